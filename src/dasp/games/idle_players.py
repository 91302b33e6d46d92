"""Idle players: their entries are what they are in the baseline, so they change nothing, and their value is exactly 0.

Methods that evaluate coalitions play the game without them, which may have far fewer players: the black border of a
picture, zeros of a one-hot column, padding. Rows with different idle players are different games then. Where that would
be many small games, rows play together with all who are busy in some row, as evaluations in batches are quicker; what
such a game says of a row's idle players is then given to the busy ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dasp.games.evaluator import Evaluated, EvaluatedRow
from dasp.games.game import Game
from dasp.games.request import Origin, Request

__all__ = ["Active"]

_NOBODY = -1  # whose entries are the same on and off
_FEWEST = 2  # players that play a game
_MOST_GAMES = 8  # by busy players, unless many are idle


@dataclass(frozen=True)
class _Part:
    """Rows of a game that have the same busy players."""

    game: int  # its place in the whole request
    rows: Tensor
    players: Tensor  # the busy ones


@dataclass(frozen=True)
class Active:
    """A request without its idle players, and the way back. Where at most one player is left there is nothing to
    estimate: it has all of f(x) − f(baseline)."""

    whole: Request
    request: Request
    parts: list[_Part]  # one for each game of `request`

    @staticmethod
    def of(request: Request, *, apart: bool = False) -> Active:
        """Take the idle players out; rows are kept `apart` by them if that is asked for, or pays. The worth of nobody
        and of everybody must be finite, as their difference is what is divided."""
        request.check_ends()
        parts = [part for i, game in enumerate(request.games) for part in _parts(i, game, apart=apart)]
        parts = [part for part in parts if len(part.players) >= _FEWEST]
        starts = [rows.start for rows, _, _ in request.parts()]
        places = [part.rows.cpu() + starts[part.game] for part in parts]
        every = torch.cat(places) if places else torch.zeros(0, dtype=torch.long)
        own = replace(
            request,
            games=[_without_idle(request.games[part.game], part) for part in parts],
            selections=[request.selections[part.game].rows(part.rows.cpu()) for part in parts],
            full=request.full[every],
            empties=request.empties[:, every],
            origins=[
                Origin(rows, part.players.cpu(), request.games[part.game].count)
                for rows, part in zip(places, parts, strict=True)
            ],
        )
        return Active(request, own, parts)

    def select(self, values: list[Tensor]) -> list[Tensor]:
        """Return values of all players as values of the busy ones."""
        return [values[part.game][part.players.cpu()][:, part.rows.cpu()] for part in self.parts]

    def restored(self, values: list[Tensor], *, deviations: bool = False) -> list[Tensor]:
        """Return values of the busy players as values of all; as standard deviations, 0 for who is alone, too."""
        result = []
        for rows, game, _ in self.whole.parts():
            total = torch.zeros_like(self.whole.total[rows]) if deviations else self.whole.total[rows]
            busy = game.busy.T
            alone = busy & (busy.sum(0) == 1)
            shape = (*alone.shape, *[1] * (total.dim() - 1))
            result.append(alone.view(shape) * total.to(game.dtype))
        for part, v in zip(self.parts, values, strict=True):
            game = self.whole.games[part.game]
            spread = torch.zeros(len(result[part.game]), *v.shape[1:], dtype=v.dtype, device=v.device)
            spread[part.players.to(v.device)] = v
            busy = game.busy[part.rows].T.to(v.device)
            busy = busy.view(*busy.shape, *[1] * (v.dim() - 2))
            owned = torch.where(busy, spread, 0)
            if not deviations:
                owned += torch.where(busy, (spread.sum(0) - owned.sum(0)) / busy.sum(0).clamp(min=1), 0)
            result[part.game][:, part.rows] = owned.to(result[part.game])
        return result

    def evaluated(self, found: list[Evaluated | None]) -> list[EvaluatedRow | None]:
        """Return what was evaluated of every row; None where it was too much to be kept."""
        result: list[EvaluatedRow | None] = []
        ends = torch.stack([self.whole.full - self.whole.empty, self.whole.full + self.whole.empty]).cpu().double() / 2
        for rows, game, _ in self.whole.parts():
            for place, busy in enumerate(game.busy.cpu(), rows.start):
                alone = Evaluated.of_one(busy.nonzero()[:, 0], game.count, ends[:, place])
                result.append(EvaluatedRow(alone, 0, busy) if int(busy.sum()) < _FEWEST else None)
        starts = [rows.start for rows, _, _ in self.whole.parts()]
        for part, own in zip(self.parts, found, strict=True):
            if own is not None:
                busy = self.whole.games[part.game].busy[part.rows].cpu()
                for row, place in enumerate((part.rows.cpu() + starts[part.game]).tolist()):
                    result[place] = EvaluatedRow(own, row, busy[row])
        return result

    def by_row(self, found: list[Tensor], otherwise: float) -> Tensor:
        """Return numbers for the rows of each game, (rows,), as numbers for all rows; `otherwise` where there was
        nothing to estimate."""
        result = torch.full((len(self.whole.full),), otherwise)
        starts = [rows.start for rows, _, _ in self.whole.parts()]
        for part, own in zip(self.parts, found, strict=True):
            result[part.rows.cpu() + starts[part.game]] = own
        return result


def _parts(place: int, game: Game, *, apart: bool) -> list[_Part]:
    patterns, which = torch.unique(game.busy, dim=0, return_inverse=True)
    anybody = patterns.any(0)
    mostly = 2 * int(game.busy.sum()) > game.rows * int(anybody.sum())
    if not apart and len(patterns) > _MOST_GAMES and mostly:
        return [_Part(place, torch.arange(game.rows, device=game.device), anybody.nonzero()[:, 0])]
    return [_Part(place, (which == i).nonzero()[:, 0], pattern.nonzero()[:, 0]) for i, pattern in enumerate(patterns)]


def _without_idle(game: Game, part: _Part) -> Game:
    if len(part.players) == game.count and len(part.rows) == game.rows:
        return game
    number = torch.full((game.count,), _NOBODY, device=game.device)
    number[part.players] = torch.arange(len(part.players), device=game.device)
    own = game.rows_of(part.rows)
    return replace(own, masks=tuple(number[mask] for mask in game.masks), count=len(part.players))
