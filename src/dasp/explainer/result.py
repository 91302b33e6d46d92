"""What an explanation consists of, as tensors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["LARGE_GAP", "Attributed", "picture_of", "unbalanced_rows"]

log = logging.getLogger("dasp")

LARGE_GAP = 0.1  # of the sizes of a row's values together; random networks have up to 0.06


@dataclass(frozen=True)
class Attributed:
    """Attributions and what they are to be judged by; a row for every row that was explained.

    >>> from dasp import Explainer
    >>> Explainer(lambda x: x[:, 0] * x[:, 1]).attribute(torch.tensor([[2.0, 3.0]])).values
    tensor([[3., 3.]])
    """

    values: Any  # in the shape of the rows; (rows, *outputs, …) if all outputs are explained; of several inputs, each
    std: Any  # of the values, where the method knows it
    prediction: Tensor  # f(x), of the outputs that are explained
    base: Tensor  # f(baseline), or its mean over the background
    gap: Tensor  # the players' values together − (prediction − base)
    target: Tensor  # which outputs these are: their numbers, (rows, *outputs)
    method: str
    missed: Tensor | None = None  # which rows did not reach the tolerance; None if there is none
    unbalanced: int = 0  # rows whose values miss prediction − base by much, as moments are a poor approximation there
    evaluations: Tensor | None = None  # of the model, for each row, as `dasp.methods` counts them

    def _repr_html_(self) -> str | None:
        return picture_of(self)

    @staticmethod
    def cat(parts: list[Attributed]) -> Attributed:
        """The rows of all parts."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Attributed)}
        joined = {
            name: None if column[0] is None else tree_map(lambda *pieces: torch.cat(pieces), *column)
            for name, column in columns.items()
            if name not in ("method", "unbalanced")
        }
        return Attributed(**joined, method=parts[0].method, unbalanced=sum(columns["unbalanced"]))  # type: ignore[arg-type]

    def warn(self, tolerance: float | None) -> None:
        """Say in the log what is to be doubted."""
        rows = len(self.gap)
        if self.missed is not None and self.missed.any():
            log.warning(
                "%s: %d of %d rows did not reach the tolerance%s: allow for more evaluations, or see what was reached",
                self.method, int(self.missed.sum()), rows, "" if tolerance is None else f" {tolerance:g}",
            )  # fmt: skip
        if self.unbalanced:
            log.warning(
                "%s: the values of %d of %d rows miss prediction − base by more than %.0f %% of what they add up to: "
                "moments are a poor approximation there; method 'auto' evaluates coalitions, too, and has error bars",
                self.method, self.unbalanced, rows, 100 * LARGE_GAP,
            )  # fmt: skip


def unbalanced_rows(values: Tensor, gap: Tensor) -> int:
    """How many rows have a large gap beside their players' values (players, rows, *outputs): coalitions that are far
    from Gaussian give values that do not add up.

    >>> unbalanced_rows(torch.tensor([[1.0, 1.0], [2.0, 2.0]]), torch.tensor([0.1, -0.5]))
    1
    """
    sizes = values.abs().sum(0).reshape(len(gap), -1).sum(1)
    return int((gap.reshape(len(gap), -1).abs().sum(1) > LARGE_GAP * sizes).sum())


def picture_of(explained: Any) -> str | None:
    """What a notebook shows: a picture with error bars; None, and so the text, without matplotlib and for what has no
    one picture."""
    try:
        from dasp.plots.html import picture  # noqa: PLC0415 (matplotlib is an extra)
    except ImportError:
        return None
    return picture(explained)
