"""The worth of coalitions, by evaluating the model on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dasp.games.game import Game

if TYPE_CHECKING:  # a request makes evaluators
    from dasp.games.request import Selection

__all__ = ["Evaluator"]


@dataclass(frozen=True)
class Evaluator:
    """The worth v(S) of one game's coalitions, for all its rows."""

    function: Callable[..., Tensor]
    game: Game
    select: Selection
    empty: Tensor  # v(∅), (rows, *selected) in float64 on the CPU
    full: Tensor  # v(P)
    at_once: int  # rows of the model at most
    progress: Any  # counts evaluations

    @property
    def total(self) -> Tensor:
        """The worth of all players less that of none, v(P) − v(∅)."""
        return self.full - self.empty

    def rows_of(self, part: Any) -> Evaluator:
        """Select some of the rows: a slice or indices."""
        own = part.to(self.game.device) if isinstance(part, Tensor) else part
        return replace(
            self, game=self.game.rows_of(own), select=self.select.rows(part), empty=self.empty[part],
            full=self.full[part],
        )  # fmt: skip

    def slices(self) -> list[tuple[slice, Evaluator]]:
        """Divide it into parts of as many rows as may be evaluated at once."""
        starts = range(0, self.game.rows, self.at_once)
        parts = [slice(start, min(start + self.at_once, self.game.rows)) for start in starts]
        return [(part, self.rows_of(part)) for part in parts]

    def worth(self, coalitions: Any) -> Tensor:
        """Return v(S) for every row, in float64 on the CPU: (m, rows, *selected). The coalitions (m, players) are a
        tensor, or anything that gives slices of one."""
        result = torch.empty(len(coalitions), *self.select.chosen.shape, dtype=torch.float64)
        for part, rows in self.slices():
            chunk = max(1, self.at_once // rows.game.rows)
            for start in range(0, len(coalitions), chunk):
                result[start : start + chunk, part] = rows._worth(coalitions[start : start + chunk])
        return result

    def halves(self, members: Tensor) -> Tensor:
        """Return (v(S) − v(Sᶜ))/2 and (v(S) + v(Sᶜ))/2 of pairs of coalitions, (2, pairs, rows, *selected)."""
        there, others = self.worth(members), self.worth(~members)
        return torch.stack([there - others, there + others]) / 2

    @torch.no_grad()
    def _worth(self, members: Tensor) -> Tensor:
        every_row = members.to(self.game.device)[:, None].expand(-1, self.game.rows, -1)
        outputs = self.select(self.game.evaluate(self.function, every_row, self.at_once)).cpu().double()
        self.progress.update(len(members) * self.game.rows)
        return outputs
