"""Deep Approximate Shapley Propagation: Algorithm 1 of Ancona, Öztireli and Gross (ICML 2019).

The Shapley value of player i is the average, over the sizes k = 0 … N−1 of coalitions of the others, of what i adds
to a random coalition of that size (Fatima et al. 2008):

    R_i = 1/N Σ_k ( E_k[f(S ∪ i)] − E_k[f(S)] )

Both expectations come from propagating the moments of a random coalition through the network. K of the N sizes give
the average well, at 2KN propagated passes per input.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.attribution.base import Estimate, Profile, PropagatedAttribution, rows_at_once, without_autocast
from dasp.games.call_options import number_of, positive_number, whole_number
from dasp.games.game import Game
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Selection, Target, Tensors, check_positive
from dasp.models.calling import Output
from dasp.propagation.coalitions import Rank, SizedCoalitions, column_count, sketch, spaced_sizes
from dasp.propagation.lifting import Frontier, Lifted

__all__ = ["DASP"]


class DASP(PropagatedAttribution):
    """Shapley values by propagating random coalitions of every size (Algorithm 1 of the paper).

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`.
        rank: how many columns of correlation between units to keep. 0 is the paper's method; "full", one per player,
            is much more accurate and the choice for up to some dozens of players.
        output: which of the model's results, if it returns several: a name or an index.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
    >>> attributions = DASP(model, rank="full").attribute(torch.ones(2, 3))
    >>> attributions.shape
    torch.Size([2, 3])
    """

    def __init__(self, model: nn.Module | ExportedProgram, *, rank: Rank = 0, output: Output = None) -> None:
        super().__init__(model, output)
        self.rank = number_of(rank)
        column_count(self.rank, 1)

    @classmethod
    def profile(cls, *, rank: Rank = 0) -> Profile:
        """Return its cost: for each size, passes with and without every player, which the paper counts as one."""

        def halves(game: Game) -> int:
            return game.count * (2 + column_count(rank, game.count))

        return Profile(
            samples="coalition_sizes", each=lambda game: 2 * halves(game), most=lambda game: game.count,
            paper_each=halves, propagates=True,
        )  # fmt: skip

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        coalition_sizes: int | Sequence[float] | None = None,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs: a tensor, or a tuple or (by the model's keywords) a dictionary of tensors, a row per sample.
            baselines: what an absent player's entries are: None (zeros), a number, one row, or a row per sample.
                Several rows for one input row (or a number of rows that is neither 1 nor that of the inputs) are a
                background: what a coalition is worth is averaged over them.
            target: the output to explain, as in Captum; None for all, or "predicted" for the largest of each row.
            additional_forward_args: further arguments of the model, which are not explained: a tuple, or a dictionary
                of keyword arguments. Tensors with as many rows as the inputs go along with them row by row.
            feature_mask: integers that broadcast to an input row; entries with the same number are one player.
            coalition_sizes: None for all, K for that many equally spaced ones, or the sizes (0 … N−1) themselves.
            internal_batch_size: the largest number of rows to propagate at once, a factor column counting as a row.
            show_progress: show a progress bar.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)).
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, delta=return_convergence_delta, return_input_shape=return_input_shape,
            coalition_sizes=coalition_sizes, internal_batch_size=internal_batch_size, show_progress=show_progress,
        )  # fmt: skip

    @without_autocast
    def explain(
        self,
        request: Request,
        *,
        coalition_sizes: int | Sequence[float] | None = None,
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
    ) -> Estimate:
        """Return the values of the players; the options are those of `attribute`."""
        check_positive(internal_batch_size=internal_batch_size)
        each = request.beside_each_baseline()
        sizes = [_sizes(game.count, coalition_sizes) for game in each.games]
        passes = sum(2 * game.rows * game.count * len(k) for game, k in zip(each.games, sizes, strict=True))
        values, lifts = [], self.lifts(request, internal_batch_size)
        with torch.no_grad(), working("DASP", "propagation", passes, show=show_progress) as progress:
            for lifted, game, select, k in zip(lifts, each.games, each.selections, sizes, strict=True):
                values.append(self._values(lifted, game, select, k, internal_batch_size, progress))
        profile = self.profile(rank=self.rank)
        counts = [
            torch.full((game.rows,), profile.cost(game, len(k))) for game, k in zip(request.games, sizes, strict=True)
        ]
        return self._estimate(request, values, torch.cat(counts))

    def _values(
        self,
        lifted: Lifted,
        game: Game,
        select: Selection,
        sizes: list[float],
        internal_batch_size: int | None,
        progress: Any,
    ) -> Tensor:
        """The Shapley values of one game, (players, rows, *selected)."""
        columns = column_count(self.rank, game.count)
        sketches = _sketches(columns, game, len(sizes))
        pairs = game.count * len(sizes)
        result = torch.zeros(game.count, *select.chosen.shape, dtype=game.dtype, device=game.device)
        first = game.rows_of(slice(0, 1))
        frontier = lifted.frontier(*first.toggled(), *first.extra)
        if not frontier.depends:  # no player is in the output
            return result
        at_once = internal_batch_size or rows_at_once(frontier)
        samples = max(1, at_once // (2 * pairs * (1 + columns)))
        for part, rows in game.slices(samples):
            frontier = lifted.frontier(*rows.toggled(), *rows.extra)
            coalitions = frontier.map(partial(SizedCoalitions.of, rows=rows.rows, sketches=sketches))
            chunk = max(1, at_once // (2 * rows.rows * (1 + columns)))
            for start in range(0, pairs, chunk):
                pair = torch.arange(start, min(start + chunk, pairs), device=game.device)
                players, index = pair % game.count, pair // game.count
                size = torch.tensor(sizes, dtype=game.dtype, device=game.device)[index]
                with_player, without = (
                    select.rows(part)(_propagate(coalitions, players, size, index, joined)) for joined in (1, 0)
                )
                result[:, part].index_add_(0, players, (with_player - without).to(result.dtype))
                progress.update(2 * len(pair) * rows.rows)
        return result / len(sizes)


def _propagate(coalitions: Frontier, players: Tensor, sizes: Tensor, index: Tensor, joined: int) -> Tensor:
    """Mean outputs (pairs, rows, *outputs) over coalitions of each size, with the player or without."""
    joins = torch.full_like(sizes, joined)
    return coalitions.map(lambda x: x.gaussian(players, sizes, index, joins)).propagated(batched=True).mean


def _sizes(players: int, given: int | Sequence[float] | None) -> list[float]:
    if given is None:
        return spaced_sizes(players, None)
    if not isinstance(given, (Sequence, np.ndarray, Tensor)) or isinstance(given, str) or np.ndim(given) == 0:
        number = whole_number("coalition_sizes", given)
        if not 1 <= number <= players:
            raise ValueError(f"coalition_sizes must be from 1 to the number of players, {players}, not {number}")
        return spaced_sizes(players, number)
    sizes = [positive_number("a coalition size", k, zero=True) for k in given]
    if not sizes or not all(0 <= k <= players - 1 for k in sizes):
        raise ValueError(f"coalition sizes must be from 0 to {players - 1}, as there are {players} players: {given}")
    return sizes


def _sketches(columns: int, game: Game, sizes: int) -> Tensor | None:
    """Signs drawn anew for every size, so that their noise averages out."""
    if columns == 0:
        return None
    seeds = range(sizes if columns < game.count else 1)
    sketches = torch.stack([sketch(columns, game.count, game.coordinates, seed) for seed in seeds])
    return sketches.to(device=game.device, dtype=game.dtype)
