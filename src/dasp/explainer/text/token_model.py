"""A model of texts as a game: masks of a text's players → what the model says of the text that is left.

`TokenModel` is a module that takes tokens as a function of rows of tokens, and `ContinuationModel` gives the
log-probability of how a text goes on. `TextGame` evaluates either of them, or a function of texts. Every coalition is
written out as the model takes it: a text, or a row of tokens. Coalitions that read the same (of "very very good"
without one "very", say) are evaluated once. Those of a similar length are evaluated together, so that there is little
to pad.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explainer.text.tokens import TokenRow, Vocabulary, batch_of
from dasp.models.calling import Scale
from dasp.models.export_lock import evaluation_lock
from dasp.models.row_function import as_tensors
from dasp.models.wrappers import device_of

__all__ = ["ContinuationModel", "Output", "PlayerText", "TextGame", "TokenModel", "by_piece", "part_of"]

log = logging.getLogger("dasp")

Output = str | Callable[[Any], Tensor] | None

_USUAL = {"input_ids", "attention_mask", "token_type_ids"}  # what modules that take whatever comes hand on


def part_of(output: Any, wanted: Output | Scale) -> Tensor:
    """Return what of a model's output is explained: the part of that name, what a function makes of it, or, if nothing
    is said, the tensor itself or its `logits`.

    >>> from types import SimpleNamespace
    >>> part_of(SimpleNamespace(logits=torch.ones(1, 2)), None)
    tensor([[1., 1.]])
    """
    if isinstance(wanted, Scale):
        return _scaled(output, wanted)
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


def _scaled(output: Any, scale: Scale) -> Any:
    """Return the part that has the name of a scale, or else what is usually explained on that scale."""
    if isinstance(getattr(output, scale.word, None), Tensor):
        if scale.kind is None:
            scale.kind = "named"
        return part_of(output, scale.word)
    return scale(part_of(_tensor_of(output), None))


def _tensor_of(outputs: Any) -> Any:
    """Return an array, or a list of numbers or of rows of numbers, as a tensor; what is none of these as it is."""
    if isinstance(outputs, (list, tuple)):
        try:
            outputs = np.asarray(outputs)
        except ValueError:  # rows of several lengths
            return outputs
    return as_tensors(outputs) if isinstance(outputs, np.ndarray) else outputs


class TokenModel:
    """A module that takes `input_ids` and `attention_mask`, as a function of rows of tokens."""

    def __init__(self, model: nn.Module, vocabulary: Vocabulary, output: Output | Scale = None) -> None:
        parameters = inspect.signature(model.forward).parameters
        whatever = any(each.kind is each.VAR_KEYWORD for each in parameters.values()) and "input_ids" not in parameters
        self.takes = _USUAL if whatever else set(TokenRow._fields) & set(parameters)
        if not {"input_ids", "attention_mask"} <= self.takes:
            raise BadInput(
                f"the forward of {type(model).__name__} takes no input_ids or no attention_mask, by which texts are "
                "batched: give a function of a list of texts, and no tokenizer"
            )
        self.model, self.output = model, output
        self.device = device_of(model)
        padding = (vocabulary.padding_id,)
        self.padding = TokenRow(padding, (0,), (0,), vocabulary.positions(padding))
        self.keeps = "logits_to_keep" in parameters

    def __call__(self, rows: list[TokenRow]) -> Tensor:
        """Return what is explained of the model's outputs, (rows, outputs)."""
        return part_of(self.run(rows), self.output)

    def run(self, rows: list[TokenRow], **options: Any) -> Any:
        """Return the model's whole output, of any type."""
        batch = batch_of(rows, self.padding)
        return self.model(**{name: x.to(self.device) for name, x in batch.items() if name in self.takes}, **options)

    def most_at_once(self, batch_size: int) -> int:
        """Return how many rows the model takes at once: Hugging Face's classifiers on decoders look for the last token
        that is no padding, and where the model knows no padding, they refuse more than one row."""
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


class ContinuationModel:
    """The log-probability that a language model gives the last tokens of rows: their sum, or each of them."""

    def __init__(self, model: TokenModel, tokens: tuple[int, ...], *, per_token: bool) -> None:
        self.model, self.tokens, self.per_token = model, torch.tensor(tokens), per_token

    def __call__(self, rows: list[TokenRow]) -> Tensor:
        """Return the log-probabilities: (rows,), or (rows, tokens)."""
        lengths = torch.tensor([row.tokens for row in rows])
        longest, number = int(lengths.max()), len(self.tokens)
        before = lengths - number - 1  # the last token of each prompt, which tells the first of the continuation
        options = {"logits_to_keep": longest - int(before.min())} if self.model.keeps else {}
        logits = part_of(self.model.run(rows, **options), self.model.output)
        if logits.dim() != 3:
            raise BadInput(f"logits of shape {tuple(logits.shape)} are no language model's, which has one row a token")
        places = (before[:, None] + torch.arange(number) - (longest - logits.shape[1])).to(logits.device)
        precise = torch.promote_types(logits.dtype, torch.float32)
        chosen = logits[torch.arange(len(rows), device=logits.device)[:, None], places].to(precise).log_softmax(-1)
        index = self.tokens.to(logits.device).expand(len(rows), -1)[..., None]
        each = chosen.gather(-1, index)[..., 0]
        return each if self.per_token else each.sum(-1)


class PlayerText(Protocol):
    """A text whose players may be absent: `Tokens` or `Strings`."""

    pieces: list[str]  # of which it consists
    players: list[int]  # the places of those pieces that are players; all others are always there

    def without(self, present: Sequence[bool]) -> Hashable:
        """Return what the model is given where only these players are present."""

    def length(self, written: Any) -> int:
        """Return the length of what the model is given."""


def by_piece(part: Tensor, text: PlayerText) -> Tensor:
    """Return the players' values (1, *outputs, players) as those of all pieces, (*outputs, pieces)."""
    whole = part.new_zeros(*part.shape[1:-1], len(text.pieces))
    whole[..., text.players] = part[0]
    return whole


class TextGame:
    """A function from coalitions of a text's players, masks (rows, players), to the model's outputs, (rows, outputs) on
    the CPU."""

    def __init__(self, text: PlayerText, model: Callable[[list[Any]], Any], batch_size: int) -> None:
        self.text, self.model, self.batch_size = text, model, batch_size
        self.remembers = False  # only once the model is known to be a function of each row by itself
        self._known: dict[Hashable, Tensor] = {}

    def __call__(self, masks: Tensor) -> Tensor:
        """Return the outputs for coalitions."""
        written = [self.text.without(present) for present in (masks > 0).tolist()]
        if not self.remembers:
            return self._evaluated(written)
        new = [each for each in dict.fromkeys(written) if each not in self._known]
        if new:
            self._known.update(zip(new, self._evaluated(new), strict=True))
        return torch.stack([self._known[each] for each in written])

    @torch.no_grad()
    def _evaluated(self, written: list[Hashable]) -> Tensor:
        order = sorted(range(len(written)), key=lambda i: self.text.length(written[i]))
        parts = []
        for start in range(0, len(order), self.batch_size):
            batch = [written[i] for i in order[start : start + self.batch_size]]
            with evaluation_lock():
                parts.append(_checked(self.model(batch), len(batch)))
        outputs = torch.cat(parts)
        return outputs[torch.tensor(order).argsort()]


def _checked(outputs: Any, rows: int) -> Tensor:
    outputs = _tensor_of(outputs)
    if not isinstance(outputs, Tensor):
        raise TypeError(
            "the model must return a number, or a row of numbers, for each text, as a tensor, an array or a list; it "
            f"gave a {type(outputs).__name__}"
        )
    if outputs.dim() not in (1, 2) or len(outputs) != rows:
        raise ValueError(
            f"the model must return one row of outputs for each text; for {rows} texts it gave the shape "
            f"{tuple(outputs.shape)}: say by `output` what of it is to be explained"
        )
    enough = torch.float32 if outputs.is_floating_point() else torch.float64  # which has whole numbers as they are
    return outputs.detach().cpu().to(torch.promote_types(outputs.dtype, enough))
