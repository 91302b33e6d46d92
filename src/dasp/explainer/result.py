"""What an explanation consists of, as tensors."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

import torch
from torch import Tensor

__all__ = ["LARGE_GAP", "Attributed", "warn_of_gaps"]

log = logging.getLogger("dasp")

LARGE_GAP = 0.1  # of the sizes of a row's values together; random networks have up to 0.06


@dataclass(frozen=True)
class Attributed:
    """Attributions and what they are to be judged by; a row for every row that was explained.

    >>> from dasp import Explainer
    >>> Explainer(lambda x: x[:, 0] * x[:, 1]).attribute(torch.tensor([[2.0, 3.0]])).values
    tensor([[3., 3.]])
    """

    values: Tensor  # in the shape of the rows; (rows, *outputs, …) if all outputs are explained
    std: Tensor | None  # of the values, where the method knows it
    prediction: Tensor  # f(x), of the outputs that are explained
    base: Tensor  # f(baseline), or its mean over the background
    gap: Tensor  # the players' values together − (prediction − base)
    method: str

    @staticmethod
    def cat(parts: list[Attributed]) -> Attributed:
        """The rows of all parts."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Attributed)[:-1])
        joined = (None if column[0] is None else torch.cat(column) for column in columns)
        return Attributed(*joined, parts[0].method)  # type: ignore[arg-type, call-arg]


def warn_of_gaps(result: Attributed) -> None:
    """Coalitions that are far from Gaussian give values that do not add up: say so."""
    rows = len(result.gap)
    gaps = result.gap.reshape(rows, -1).abs().sum(1)
    poor = int((gaps > LARGE_GAP * result.values.flatten(1).abs().sum(1)).sum())
    if poor:
        log.warning(
            "%s: the values of %d of %d rows miss prediction − base by more than %.0f %% of what they add up to: "
            "moments are a poor approximation there, and error_bars or a tolerance would bring evaluations on top",
            result.method, poor, rows, 100 * LARGE_GAP,
        )  # fmt: skip
