"""Models of tokens, as functions of rows: a model's outputs, or the log-probability of how a text goes on."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explainer.rows import device_of
from dasp.explainer.text.rows import Row, batch_of
from dasp.explainer.text.vocabulary import Vocabulary

__all__ = ["Continued", "Output", "TokenModel", "selected"]

log = logging.getLogger("dasp")

Output = str | Callable[[Any], Tensor] | None

_USUAL = {"input_ids", "attention_mask", "token_type_ids"}  # what modules that take whatever comes hand on


def selected(output: Any, wanted: Output) -> Tensor:
    """What of a model's output is explained: the part of that name, what a function makes of it, or, if nothing is
    said, the tensor itself or its `logits`.

    >>> from types import SimpleNamespace
    >>> selected(SimpleNamespace(logits=torch.ones(1, 2)), None)
    tensor([[1., 1.]])
    """
    if callable(wanted):
        return wanted(output)
    if isinstance(output, Tensor) and wanted is None:
        return output
    name = wanted or "logits"
    part = getattr(output, name, None)
    if not isinstance(part, Tensor):
        there = ", ".join(output.keys()) if hasattr(output, "keys") else f"a {type(output).__name__}"
        raise BadInput(f"the model's output has no {name!r}, but {there}: say by `output` what is to be explained")
    return part


class TokenModel:
    """A module that takes `input_ids` and `attention_mask`, as a function of rows."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, output: Output = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        whatever = any(each.kind is each.VAR_KEYWORD for each in parameters.values()) and "input_ids" not in parameters
        self.takes = _USUAL if whatever else set(Row._fields) & set(parameters)
        if not {"input_ids", "attention_mask"} <= self.takes:
            raise BadInput(
                f"the forward of {type(model).__name__} takes no input_ids or no attention_mask, by which texts are "
                "batched: give a function of a list of texts, and no tokenizer"
            )
        self.model, self.output = model, output
        self.device = device_of(model)
        padding = (vocabulary.padding_id,)
        self.padding = Row(padding, (0,), (0,), vocabulary.positions(padding))
        self.keeps = "logits_to_keep" in parameters

    def __call__(self, rows: list[Row]) -> Tensor:
        """What is explained of its outputs."""
        return selected(self.run(rows), self.output)

    def run(self, rows: list[Row], **options: Any) -> Any:
        """The model's output, whatever it is."""
        batch = batch_of(rows, self.padding)
        return self.model(**{name: x.to(self.device) for name, x in batch.items() if name in self.takes}, **options)

    def most_at_once(self, batch_size: int) -> int:
        """How many rows the model takes: Hugging Face's classifiers on decoders look for the last token that is no
        padding, and where the model knows no padding, refuse more than one row."""
        config = getattr(self.model, "config", None)
        one_by_one = type(self.model).__name__.endswith("ForSequenceClassification") and (
            getattr(config, "pad_token_id", None) is None
        )
        if one_by_one and batch_size > 1:
            log.warning(
                "the model has no padding token, so texts are evaluated one by one: set model.config.pad_token_id to "
                "evaluate batches"
            )
        return 1 if one_by_one else batch_size


class Continued:
    """The log-probability that a language model gives the last tokens of rows: their sum, or each of them."""

    def __init__(self, model: TokenModel, tokens: tuple[int, ...], *, per_token: bool) -> None:
        self.model, self.tokens, self.per_token = model, torch.tensor(tokens), per_token

    def __call__(self, rows: list[Row]) -> Tensor:
        """(rows,), or (rows, tokens)."""
        lengths = torch.tensor([row.tokens for row in rows])
        longest, number = int(lengths.max()), len(self.tokens)
        before = lengths - number - 1  # the last token of each prompt, which tells the first of the continuation
        options = {"logits_to_keep": longest - int(before.min())} if self.model.keeps else {}
        logits = selected(self.model.run(rows, **options), self.model.output)
        if logits.dim() != 3:
            raise BadInput(f"logits of shape {tuple(logits.shape)} are no language model's, which has one row a token")
        places = (before[:, None] + torch.arange(number) - (longest - logits.shape[1])).to(logits.device)
        precise = torch.promote_types(logits.dtype, torch.float32)
        chosen = logits[torch.arange(len(rows), device=logits.device)[:, None], places].to(precise).log_softmax(-1)
        index = self.tokens.to(logits.device).expand(len(rows), -1)[..., None]
        each = chosen.gather(-1, index)[..., 0]
        return each if self.per_token else each.sum(-1)
