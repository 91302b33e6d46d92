"""The function that is explained: masks of a text's players → what the model says of the text that is left.

Every coalition is written out as the model takes it: a text, or a row of tokens. Coalitions that read the same (of
"very very good" without one "very", say) are evaluated once. Those of a similar length are evaluated together, so that
there is little to pad.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dasp.propagation.turns import evaluating

__all__ = ["Divided", "Worth"]


class Divided(Protocol):
    """A text whose players may be absent."""

    pieces: list[str]  # of which it consists
    players: list[int]  # the places of those pieces that are players; all others are always there

    def without(self, present: Sequence[bool]) -> Hashable:
        """What the model is given where only these players are present."""

    def length(self, written: Any) -> int:
        """How long that is."""


class Worth:
    """A model's outputs, (rows, outputs) on the CPU, for masks (rows, players) of a text."""

    def __init__(self, divided: Divided, model: Callable[[list[Any]], Any], batch_size: int) -> None:
        self.divided, self.model, self.batch_size = divided, model, batch_size
        self.remembers = False  # only once the model is known to be a function of each row by itself
        self._known: dict[Hashable, Tensor] = {}

    def __call__(self, masks: Tensor) -> Tensor:
        """What the coalitions are worth."""
        written = [self.divided.without(present) for present in (masks > 0).tolist()]
        if not self.remembers:
            return self._evaluated(written)
        new = [each for each in dict.fromkeys(written) if each not in self._known]
        if new:
            self._known.update(zip(new, self._evaluated(new), strict=True))
        return torch.stack([self._known[each] for each in written])

    @torch.no_grad()
    def _evaluated(self, written: list[Hashable]) -> Tensor:
        order = sorted(range(len(written)), key=lambda i: self.divided.length(written[i]))
        parts = []
        for start in range(0, len(order), self.batch_size):
            batch = [written[i] for i in order[start : start + self.batch_size]]
            with evaluating():
                parts.append(_checked(self.model(batch), len(batch)))
        outputs = torch.cat(parts)
        return outputs[torch.tensor(order).argsort()]


def _checked(outputs: Any, rows: int) -> Tensor:
    if isinstance(outputs, np.ndarray):
        outputs = torch.from_numpy(outputs)
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the model must return a tensor (texts, outputs) to explain, not a {type(outputs).__name__}")
    if outputs.dim() not in (1, 2) or len(outputs) != rows:
        raise ValueError(
            f"the model must return one row of outputs for each text; for {rows} texts it gave the shape "
            f"{tuple(outputs.shape)}: say by `output` what of it is to be explained"
        )
    enough = torch.float32 if outputs.is_floating_point() else torch.float64  # which has whole numbers as they are
    return outputs.detach().cpu().to(torch.promote_types(outputs.dtype, enough))
