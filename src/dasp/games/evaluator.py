"""The worth of coalitions, by evaluating the model on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from dasp.errors import UndefinedCoalitions
from dasp.games.game import Game

if TYPE_CHECKING:  # a request makes evaluators
    from dasp.games.request import Selection

__all__ = ["MOST_KEPT", "Evaluated", "EvaluatedRow", "Evaluator", "Missing"]

Missing = Literal["raise", "drop"]
"""The answer to coalitions without a finite value: an error, or to do without them."""


_FEWEST_BASELINES = 4  # for their differences to say anything
MOST_KEPT = 2**24  # numbers that are kept of evaluations: 128 MB


@dataclass(frozen=True)
class Evaluated:
    """The worth of the pairs of coalitions {S, Sᶜ} that were evaluated for the rows of a game, from which more can be
    learned than what they were evaluated for."""

    members: Tensor  # S of every pair, (pairs, players)
    halves: Tensor  # (v(S) − v(Sᶜ))/2 and (v(S) + v(Sᶜ))/2, (2, pairs, rows, *selected)
    ends: Tensor  # the same of everybody and nobody, (2, rows, *selected)
    numbers: Tensor  # how many of the pairs were evaluated for each row, (rows,)
    players: Tensor  # the numbers of the players among all; the others are idle
    everybody: int  # the number of all players

    @staticmethod
    def of_one(player: Tensor, everybody: int, ends: Tensor) -> Evaluated:
        """Return that of a row with one player who is not idle, or none, of which nothing has to be evaluated: both
        ends, (2, *selected), say all."""
        members = torch.zeros(0, len(player), dtype=torch.bool)
        halves = torch.zeros(2, 0, 1, *ends.shape[1:], dtype=ends.dtype)
        return Evaluated(members, halves, ends[:, None], torch.zeros(1, dtype=torch.long), player, everybody)


@dataclass(frozen=True)
class EvaluatedRow:
    """The evaluations of one row among those of its game."""

    game: Evaluated
    row: int
    busy: Tensor  # True for players that are not idle in this row, (everybody,)


@dataclass(frozen=True)
class Evaluator:
    """The worth v(S) of one game's coalitions, for all its rows. A coalition without a finite worth is an error that
    names it; with `missing="drop"`, what is not finite is NaN, and left out by whoever asked."""

    function: Callable[..., Tensor]
    game: Game
    select: Selection
    empty: Tensor  # v(∅), (rows, *selected) in float64 on the CPU
    full: Tensor  # v(P)
    at_once: int  # rows of the model at most
    progress: Any  # counts evaluations
    rows: Tensor  # the numbers of the rows, as the user counts them
    players: Tensor  # the numbers of the players, as the user counts them
    everybody: int  # the number of players, with those that are idle
    empties: Tensor  # v(∅) for each group of baselines, (groups, rows, *selected)
    missing: Missing = "raise"

    @property
    def total(self) -> Tensor:
        """The worth of all players less that of none, v(P) − v(∅)."""
        return self.full - self.empty

    def rows_of(self, part: Any) -> Evaluator:
        """Select some of the rows: a slice or indices."""
        own = part.to(self.game.device) if isinstance(part, Tensor) else part
        return replace(
            self, game=self.game.rows_of(own), select=self.select.rows(part), empty=self.empty[part],
            full=self.full[part], empties=self.empties[:, part],
            rows=self.rows[part.cpu() if isinstance(part, Tensor) else part],
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
        return self.finite(result, coalitions)

    @property
    def sees_background(self) -> bool:
        """True if there are enough baselines to see how much depends on which of them there are."""
        return len(self.game.baselines) >= _FEWEST_BASELINES and self.missing == "raise"

    def worth_by_group(self, coalitions: Tensor) -> Tensor:
        """Return v(S) for every row and group of baselines, (groups, m, rows, *selected); see `worth`."""
        result = torch.empty(len(self.empties), len(coalitions), *self.select.chosen.shape, dtype=torch.float64)
        for part, rows in self.slices():
            chunk = max(1, self.at_once // rows.game.rows)
            for start in range(0, len(coalitions), chunk):
                result[:, start : start + chunk, part] = rows._worth_by_group(coalitions[start : start + chunk])
        self.finite(self.over_groups(result), coalitions)
        return result

    def over_groups(self, by_group: Tensor) -> Tensor:
        """Return the mean over all baselines of what is by groups of them."""
        return torch.tensordot(torch.tensor(self.game.group_shares, dtype=by_group.dtype), by_group, dims=1)

    def finite(self, worth: Tensor, coalitions: Any) -> Tensor:
        """Return the worth (m, rows, *selected) of coalitions if all of it is finite; else raise an error that names
        the first coalition without, or put NaN in the places of those without."""
        good = worth.isfinite()
        if bool(good.all()):
            return worth
        if self.missing == "drop":
            return torch.where(good, worth, torch.nan)
        bad = ~good.reshape(*worth.shape[:2], -1)
        by_row = bad.any(2)
        place = by_row.any(0).nonzero()[:, 0]
        first = int(by_row[:, place[0]].nonzero()[0])
        value = worth.reshape(bad.shape)[first, place[0]][bad[first, place[0]]][0]
        present = self.players[coalitions[first : first + 1][0].cpu()]
        raise UndefinedCoalitions(
            self.rows[place].tolist(), int(by_row.any(1).sum()), len(worth), present.tolist(), self.everybody,
            float(value),
        )  # fmt: skip

    def evaluated(self, members: Tensor, halves: Tensor, numbers: Tensor) -> Evaluated:
        """Return what was evaluated, of a design and of a number of its pairs for each row."""
        ends = torch.stack([self.full - self.empty, self.full + self.empty]) / 2
        return Evaluated(members, halves, ends, numbers, self.players, self.everybody)

    def halves(self, members: Tensor) -> Tensor:
        """Return (v(S) − v(Sᶜ))/2 and (v(S) + v(Sᶜ))/2 of pairs of coalitions, (2, pairs, rows, *selected)."""
        there, others = self.worth(members), self.worth(~members)
        return torch.stack([there - others, there + others]) / 2

    def halves_by_group(self, members: Tensor) -> Tensor:
        """Return the same for each group of baselines, (groups, 2, pairs, rows, *selected)."""
        there, others = self.worth_by_group(members), self.worth_by_group(~members)
        return torch.stack([there - others, there + others], 1) / 2

    @torch.no_grad()
    def _worth(self, members: Tensor) -> Tensor:
        every_row = members.to(self.game.device)[:, None].expand(-1, self.game.rows, -1)
        outputs = self.select(self.game.evaluate(self.function, every_row, self.at_once)).cpu().double()
        self.progress.update(len(members) * self.game.rows)
        return outputs

    @torch.no_grad()
    def _worth_by_group(self, members: Tensor) -> Tensor:
        every_row = members.to(self.game.device)[:, None].expand(-1, self.game.rows, -1)
        groups = self.game.evaluate_groups(self.function, every_row, self.at_once)
        self.progress.update(len(members) * self.game.rows)
        return torch.stack([self.select(group).cpu().double() for group in groups])
