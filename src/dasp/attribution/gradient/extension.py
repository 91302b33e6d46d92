"""F̂(q): the expected output when each player joins with probability q, by moment propagation, and its derivatives."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.games.game import Game
from dasp.games.target import Selection
from dasp.propagation.apart import Apart
from dasp.propagation.coalitions import bernoulli, sketch
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import Lifted

__all__ = ["Extension"]

Places = NDArray[np.float64]


@dataclass(frozen=True)
class Extension:
    """The multilinear extension of a game, at probabilities (q, …, q), and its derivatives in all players."""

    game: Game
    select: Selection
    lifted: Lifted
    compiled: Callable[..., Gaussian] | None  # its random half, if that was compiled
    columns: int
    seed: int
    at_once: int  # rows to propagate together
    progress: Any

    @torch.enable_grad()
    def slopes(self, places: Places, rows: Any = slice(None)) -> Tensor:
        """∂F̂/∂q_i at each of the `places`: (places, players, rows, *selected)."""
        parts = [self._slopes(*piece) for piece in self._pieces(places, rows)]
        per_row = -(-len(places) // self.at_once)
        joined = [torch.cat(parts[i : i + per_row]) for i in range(0, len(parts), per_row)]
        return torch.cat(joined, 2)

    @torch.enable_grad()
    def interactions(self, places: Places, weights: Places, players: Sequence[int]) -> Tensor:
        """Σ over places of weight·∂²F/∂q_i∂q_j, for one selected output: (rows, len(players), N).

        F is linear in each q_j, so its second derivative is the difference of the first between q_j = 1 and 0. F̂ is
        not: its own second derivative has a pole of order 3/2 where a coalition is certain, and was 2 to 5 times as
        far from the truth.
        """
        game = self.game
        total = torch.zeros(game.rows, len(players), game.count, dtype=game.dtype, device=game.device)
        weight = dict(zip(places.tolist(), weights.tolist(), strict=True))
        start = 0
        for part, select, some in self._pieces(places, slice(None)):
            scale = torch.tensor([weight[p] for p in some.tolist()], dtype=game.dtype, device=game.device)
            for k, player in enumerate(players):
                for joined, sign in ((1.0, scale), (0.0, -scale)):
                    slopes = self._slopes(part, select, some, (player, joined))
                    total[start : start + part.rows, k] += torch.tensordot(sign, slopes, dims=1).T
            if some[-1] == places[-1]:
                start += part.rows
        return total

    def _pieces(self, places: Places, rows: Any) -> Iterator[tuple[Game, Selection, Places]]:
        """The work in chunks: of rows with all places, or of places if one row alone is too large."""
        whole, select = self.game.rows_of(rows), self.select.rows(rows)
        for part, game in whole.slices(max(1, self.at_once // len(places))):
            for i in range(0, len(places), self.at_once):
                yield game, select.rows(part), places[i : i + self.at_once]

    def _slopes(self, game: Game, select: Selection, places: Places, known: tuple[int, float] | None = None) -> Tensor:
        outputs, q = self._outputs(game, select, places, known)
        number, rows, selected = outputs.shape
        if outputs.requires_grad:
            gradients = [
                torch.autograd.grad(outputs[:, :, c].sum(), q, retain_graph=c + 1 < selected)[0]
                for c in range(selected)
            ]
        else:
            gradients = [torch.zeros_like(q)] * selected
        stacked = torch.stack(gradients, 1).view(number, rows, selected, game.count)
        self.progress.update(number * rows)
        return stacked.movedim(3, 1).reshape(number, game.count, *select.chosen.shape)

    def _outputs(
        self, game: Game, select: Selection, places: Places, known: tuple[int, float] | None
    ) -> tuple[Tensor, Tensor]:
        """Selected mean outputs (places, rows, selected) and the probabilities (places·rows, N) they depend on; one
        player may have a probability of its own."""
        number, rows = len(places), game.rows
        q = torch.as_tensor(np.repeat(places, rows), dtype=game.dtype, device=game.device)
        q = q[:, None].expand(-1, game.count).clone()
        if known is not None:
            q[:, known[0]] = known[1]
        q.requires_grad_()
        signs = self._signs(places)
        if signs is not None and signs.shape[1] > 1:
            signs = signs.repeat_interleave(rows, 1)
        repeated = game.repeated(number)
        frontier = self.lifted.frontier(*repeated.toggled(), *repeated.extra)
        apart = self.columns == game.count and self.compiled is None  # with a column for every player
        random = frontier.map(lambda x: Apart.of(x.value, q) if apart and x.conditional else bernoulli(x, q, signs))
        mean = random.propagated(through=self.compiled).mean
        return select(mean.unflatten(0, (number, rows))).reshape(number, rows, -1), q

    def _signs(self, places: Places) -> Tensor | None:
        """A sketch for each place, (columns, places or 1, N). It depends on the place and the seed alone, so the result
        does not depend on how the work is divided."""
        if self.columns == 0:
            return None
        drawn = [
            sketch(self.columns, self.game.count, self.game.coordinates, _hash(self.seed, place))
            for place in (places if self.columns < self.game.count else places[:1])
        ]
        return torch.stack(drawn, 1).to(device=self.game.device, dtype=self.game.dtype)


def _hash(seed: int, place: float) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed} {place:.12g}".encode(), digest_size=7).digest(), "big")
