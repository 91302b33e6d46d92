"""The regression on interactions that one column is likely to have, see `structure`."""

from __future__ import annotations

import torch
from torch import Tensor

from dasp.attribution.bayesian.noise import slopes
from dasp.attribution.bayesian.pairs import Pairs
from dasp.attribution.bayesian.regression import ManyPairs, Regression, Summary
from dasp.attribution.bayesian.structure import Sets, likely

__all__ = ["chosen_summaries"]

_MOST_SETS = 1500
_MOST_KEPT = 2**24  # numbers: 128 MB


class _Chosen(ManyPairs):
    """The regression on interactions that one column is likely to have."""

    strengths = (2.0, 8.0, 32.0)

    def __init__(self, pairs: Pairs, sets: list[Sets]) -> None:
        self._sets = sets
        self._kept: dict[int, Tensor] = {}
        self._scale = float((pairs.sizes * (pairs.players - pairs.sizes)).mean())
        super().__init__(pairs)

    def _interactions(self, part: slice) -> Tensor:
        """They are needed twice, and kept where they have room."""
        if part.start in self._kept:
            return self._kept[part.start]
        chosen = [self._scale**0.5 * sets.features(self.pairs, part) for sets in self._sets]
        result = torch.cat([slopes(self.pairs, part), *chosen], 1).mul_(self.unit**0.5)
        if part.start is not None and len(self.pairs) * result.shape[1] <= _MOST_KEPT:
            self._kept[part.start] = result
        return result


def chosen_summaries(regression: Regression, y: Tensor, sums: Tensor) -> list[Summary]:
    """What the values (pairs, 1) of one column say, for each strength of the interactions that its half sums (pairs,)
    make likely; nothing if they make none."""
    if regression.second is None or not float((affinities := regression.second.affinities(sums)).sum()) > 0:
        return []
    sets = likely(affinities, min(_MOST_SETS, len(sums)))
    return _Chosen(regression.pairs, sets).summaries(y)
