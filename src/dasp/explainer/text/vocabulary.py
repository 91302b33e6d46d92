"""What is to be known of a tokenizer and its model: which tokens stand for nothing, and how long a text may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explainer.text.rows import Row

__all__ = ["Vocabulary"]

_WAYS = ("mask", "pad", "drop")


class Vocabulary:
    """A tokenizer beside the model that it is for, and what is put in the place of absent tokens.

    Args:
        tokenizer: a fast one of Hugging Face's.
        model: takes `input_ids` and `attention_mask`.
        absent: "mask", "pad", "drop", or a text.
    """

    def __init__(self, tokenizer: Any, model: nn.Module, absent: str | None) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise BadInput(
                "the tokenizer does not tell where its tokens are in the text: take a fast one, as AutoTokenizer does"
            )
        self.tokenizer = tokenizer
        self.absent = absent or ("drop" if tokenizer.mask_token_id is None else "mask")
        if self.absent == "mask" and tokenizer.mask_token_id is None:
            raise BadInput("the tokenizer has no mask token: choose absent='drop', 'pad' or a text such as '…'")
        self.replacement = () if self.absent in _WAYS else self.plain(self.absent)
        config = getattr(model, "config", None)
        padding = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id, tokenizer.eos_token_id)
        self.padding_id = _first(*padding) or 0
        # Untrained additions of ours would be worse than the token that models have seen before every text.
        self.beginning = _first(tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.cls_token_id)
        self.special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
        self.positions, first = _positions(model)
        limit = getattr(config, "max_position_embeddings", None)
        self.limit = min(tokenizer.model_max_length, tokenizer.model_max_length if limit is None else limit - first)

    def plain(self, text: str) -> tuple[int, ...]:
        """The tokens of a text and nothing around them."""
        return tuple(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def instead(self, row: Row, *, again: bool) -> Row:
        """What the model is given instead of the tokens of an absent piece; if some of them came before (`again`), the
        replacing text did, too."""
        if self.absent == "drop":
            return Row()
        if self.absent == "mask":
            return row._replace(input_ids=(int(self.tokenizer.mask_token_id),) * row.tokens)
        if self.absent == "pad":
            return row._replace(input_ids=(self.padding_id,) * row.tokens, attention_mask=(0,) * row.tokens)
        number = 0 if again else len(self.replacement)
        return Row(self.replacement[:number], (1,) * number, row.token_type_ids[:1] * number)

    def begun(self, row: Row) -> Row:
        """A row of which the model sees anything at all: where nothing is left, the token that texts begin with."""
        if any(row.attention_mask):
            return row
        if self.beginning is None:
            raise BadInput(
                f"nothing is left of a text with absent={self.absent!r}, and the tokenizer knows no token that begins "
                "one: set its bos_token, or choose absent='mask' or a text"
            )
        return row._replace(input_ids=(self.beginning, *row.input_ids[1:]), attention_mask=(1, *row.attention_mask[1:]))


def _first(*numbers: int | None) -> int | None:
    return next((number for number in numbers if number is not None), None)


def _positions(model: nn.Module) -> tuple[Callable[[tuple[int, ...]], tuple[int, ...]], int]:
    """The positions of tokens, and the number of the first, as a model has them that counts those that are no padding
    (as RoBERTa does), or else in their order. They are told where tokens are masked out, as some models (OPT) would
    count those only that are not."""
    for module in model.modules():
        count = getattr(module, "create_position_ids_from_input_ids", None)
        padding = getattr(module, "padding_idx", None)
        if count is not None and isinstance(padding, int):
            return partial(_counted, count, padding), padding + 1
    return lambda ids: tuple(range(len(ids))), 0


def _counted(count: Callable[..., Tensor], padding: int, ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(count(torch.tensor([ids]), padding)[0].tolist())
