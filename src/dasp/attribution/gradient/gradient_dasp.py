"""GradientDASP: the Shapley values of all players in a few backward passes.

Let each player join a coalition independently with probability q_i. The expected output F(q) is the multilinear
extension of the game, and (Owen 1972)

    R_i = ∫₀¹ ∂F/∂q_i (q, …, q) dq

Moment propagation gives a differentiable approximation F̂ of F, and one backward pass all of its derivatives: K nodes
of a quadrature cost K forward and backward passes, whatever the number of players. At q = 0 and 1 the coalition is
certain and F̂ is exactly f(baseline) and f(x), so the attributions sum to f(x) − f(baseline) up to the error of the
quadrature, which is therefore known: it is what adaptive nodes are refined by.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from tqdm.auto import tqdm

from dasp.attribution.base import GRADIENT, Estimate, PropagatedAttribution, rows_at_once
from dasp.attribution.gradient.extension import Extension
from dasp.attribution.gradient.quadrature import Index, check_index, fejer, gauss
from dasp.games.arguments import Arguments, Baselines, Target, Tensors, check_positive
from dasp.games.background import clustered
from dasp.games.game import Game
from dasp.games.request import Request, yardstick
from dasp.games.target import Selection
from dasp.propagation.coalitions import Rank, column_count
from dasp.propagation.forward import Output
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import Lifted

__all__ = ["GradientDASP"]

_FIRST_LEVEL, _LAST_LEVEL = 3, 6  # 7 to 63 nodes
_OTHER_NODES = 16  # for indices whose sum is not known
_FEW_PLAYERS = 32
_AUTOMATIC_COLUMNS = {0: 32, 1: 16, 2: 25, 3: 27}  # by the dimensions of the players' grid


class GradientDASP(PropagatedAttribution):
    """Shapley values of all players by differentiating a propagated random coalition.

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`.
        rank: how many columns of correlation between units to keep: 0, a number, "full" (one per player), or "auto":
            "full" up to 32 players, else 16 columns for sequences, 25 for images, 27 for volumes and 32 for players
            without an order.
        compile: run the propagated network through `torch.compile`. On a processor it was slower (LeNet-5: 58 against
            33 ms a call, after 40 s of compiling), as the costly functions are fused by hand; try it elsewhere.
        output: which of the model's results, if it returns several: a name or an index.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    >>> attributions, delta = GradientDASP(model).attribute(torch.ones(2, 3), target=1, return_convergence_delta=True)
    >>> attributions.shape, delta.shape
    (torch.Size([2, 3]), torch.Size([2]))
    """

    def __init__(
        self,
        model: nn.Module | ExportedProgram,
        *,
        rank: Rank | Literal["auto"] = "auto",
        compile: bool = False,  # noqa: A002
        output: Output = None,
    ) -> None:
        super().__init__(model, output)
        if rank != "auto":
            column_count(rank, 1)
        self.rank = rank
        self.compile = compile

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        nodes: int | None = None,
        tolerance: float = 1e-2,
        index: Index = "shapley",
        background_clusters: int | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        return_convergence_delta: bool = False,
    ) -> Any:
        """Attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `DASP.attribute`.
            nodes: K for Gauss–Legendre with K nodes; None refines each row until the attributions sum to
                f(input) − f(baseline) within `tolerance`, relative to it (or to
                1 % of Σ|attributions|, if that is more), with 7 to 63 nodes (16
                of Gauss's for the other indices, whose sum is not known).
            tolerance: the largest relative completeness gap for adaptive nodes.
            index: "shapley", "banzhaf", or (α, β) for the Beta(α, β) semivalue.
            background_clusters: summarise the background by that many weighted centres.
            seed: for the signs of sketches, drawn anew for every node.
            internal_batch_size: the largest number of rows to propagate at once, a factor column counting as a row.
            show_progress: show a progress bar.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)).
        """
        check_positive(internal_batch_size=internal_batch_size)
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        request = Request.of(self.forward_func, arguments, at_once=internal_batch_size)
        request = request if background_clusters is None else clustered(request, background_clusters)
        estimate = self.explain(
            request, nodes=nodes, tolerance=tolerance, index=index, seed=seed, internal_batch_size=internal_batch_size,
            show_progress=show_progress,
        )  # fmt: skip
        if estimate.missed is not None and estimate.missed.any():
            gap = float(request.gaps(estimate.values).abs().max())
            warnings.warn(
                f"{int(estimate.missed.sum())} row(s) did not reach the tolerance {tolerance:g} with "
                f"{2**_LAST_LEVEL - 1} nodes: the attributions miss f(input) − f(baseline) by up to {gap:.3g}. Raise "
                "`tolerance` or, if less than full, `rank`.",
                stacklevel=2,
            )
        return estimate.answer(request, delta=return_convergence_delta)

    def explain(
        self,
        request: Request,
        *,
        nodes: int | None = None,
        tolerance: float = 1e-2,
        index: Index = "shapley",
        background_clusters: int | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Estimate:
        """The values of the players; the options are those of `attribute`."""
        _check(index, nodes, internal_batch_size)
        request = request if background_clusters is None else clustered(request, background_clusters)
        self._check_differentiable()
        if tolerance <= 0:
            raise ValueError(f"tolerance must be positive, not {tolerance}")
        adaptive = nodes is None and index == "shapley"
        each = request.beside_each_baseline()
        values, counts = [], []
        lifts = self.lifts(request, internal_batch_size)
        with tqdm(desc="GradientDASP", unit="pass", disable=not show_progress) as progress:
            for lifted, (rows, game, select) in zip(lifts, each.parts(), strict=True):
                extension = self._extension(lifted, game, select, seed, internal_batch_size, progress)
                if adaptive:
                    found, taken = _adapted(extension, each.total[rows], tolerance)
                else:
                    places, weights = gauss(nodes or _OTHER_NODES, index)
                    found, taken = _weighted(extension.slopes(places), weights), torch.full((game.rows,), len(places))
                values.append(found)
                counts.append(_over_baselines(taken * GRADIENT * (2 + extension.columns), request).sum(0))
        missed = _missed(each, values, tolerance, request) if adaptive else None
        return self._estimate(request, values, torch.cat(counts), missed)

    def interactions(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        players: Sequence[int] | None = None,
        nodes: int = 8,
        index: Index = "shapley",
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Tensor:
        """Pairwise Shapley interaction values I_ij = ∫ ∂²F/∂q_i∂q_j dq: how much more two players add together than
        each by itself. (rows, players, N), for all players or only the chosen ones; the diagonal is 0.

        The arguments are those of `attribute`; one output must be selected. A chosen player costs two forward and
        backward passes per node.

        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
        >>> GradientDASP(model).interactions(torch.ones(2, 3)).shape
        torch.Size([2, 3, 3])
        """
        _check(index, nodes, internal_batch_size)
        self._check_differentiable()
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        request = Request.of(self.forward_func, arguments, at_once=internal_batch_size)
        if request.full.dim() > 1:
            raise ValueError(f"interactions are of one output: choose a target among {tuple(request.full.shape[1:])}")
        if len(request.games) > 1:
            raise ValueError("interactions need the same players in all rows")
        if arguments.background:
            raise ValueError("interactions need one baseline: one row, or one for each input row")
        (game,), (select,) = request.games, request.selections
        chosen = list(range(game.count)) if players is None else list(players)
        if not all(0 <= player < game.count for player in chosen):
            raise ValueError(f"players must be from 0 to {game.count - 1}, not {chosen}")
        (lifted,) = self.lifts(request, internal_batch_size)
        with tqdm(desc="interactions", unit="pass", disable=not show_progress) as progress:
            extension = self._extension(lifted, game, select, seed, internal_batch_size, progress)
            result = extension.interactions(*gauss(nodes, index), chosen)
        if players is None:
            result = (result + result.transpose(1, 2)) / 2  # two estimates of the same
        result[:, range(len(chosen)), chosen] = 0
        request.check_finite([result.flatten(1).T])
        return result

    def _extension(
        self, lifted: Lifted, game: Game, select: Selection, seed: int, internal_batch_size: int | None, progress: Any
    ) -> Extension:
        columns = column_count(automatic_rank(game) if self.rank == "auto" else self.rank, game.count)
        first = game.rows_of(slice(0, 1))
        at_once = internal_batch_size or rows_at_once(lifted.frontier(*first.toggled(), *first.extra))
        compiled = self._compiled(lifted.random) if self.compile else None
        return Extension(game, select, lifted, compiled, columns, seed, max(1, at_once // (1 + columns)), progress)

    def _compiled(self, module: Any) -> Callable[..., Gaussian]:
        """The module through torch.compile, or as it is, with a warning, if that fails."""
        compiled = torch.compile(module)

        def run(*values: Any) -> Gaussian:
            if self.compile:
                try:
                    return compiled(*values)
                except Exception as error:  # noqa: BLE001 (a compiler may raise anything)
                    reason = str(error).splitlines()[0]
                    warnings.warn(f"torch.compile failed, running without it: {reason}", stacklevel=2)
                    self.compile = False
            return module(*values)

        return run


def _check(index: Index, nodes: int | None, internal_batch_size: int | None) -> None:
    check_index(index)
    check_positive(nodes=nodes, internal_batch_size=internal_batch_size)


def automatic_rank(game: Game) -> Rank:
    """The number of columns for rank="auto": where more bought little accuracy for their time. For images that is
    `benchmarks/gradient.py ranks`; for sequences the DNA experiment, where 11 and 21 were equally good. Those for
    volumes and players without an order are by analogy, not measured."""
    if game.count <= _FEW_PLAYERS:
        return "full"
    return _AUTOMATIC_COLUMNS[0 if game.coordinates is None else game.coordinates.shape[1]]


def _weighted(slopes: Tensor, weights: Any) -> Tensor:
    return torch.tensordot(torch.as_tensor(weights, dtype=slopes.dtype, device=slopes.device), slopes, dims=1)


def _over_baselines(each: Tensor, request: Request) -> Tensor:
    """What there is of every row of a game beside each baseline, (baselines, rows of the game)."""
    return each.view(len(request.empties), -1)


def _missed(each: Request, values: list[Tensor], tolerance: float, request: Request) -> Tensor:
    """Which rows have, beside any of the baselines, values that do not add up within the tolerance."""
    gaps, missed = each.gaps(values).abs(), []
    for v, (rows, _, _) in zip(values, each.parts(), strict=True):
        beyond = gaps[rows] > tolerance * yardstick(each.total[rows].to(v), v)
        missed.append(_over_baselines(beyond.flatten(1).any(1) if beyond.dim() > 1 else beyond, request).any(0))
    return torch.cat(missed).cpu()


def _adapted(extension: Extension, wanted: Tensor, tolerance: float) -> tuple[Tensor, Tensor]:
    """Double the nodes of the rows whose values do not sum to `wanted` yet, as long as there are any. Values, and how
    many nodes each row has taken."""
    wanted = wanted.to(extension.game.dtype)
    left = torch.arange(len(wanted), device=wanted.device)
    result = torch.zeros(extension.game.count, *wanted.shape, dtype=wanted.dtype, device=wanted.device)
    taken = torch.zeros(len(wanted), dtype=torch.long)
    places, slopes = np.empty(0), wanted.new_empty(0)
    for level in range(_FIRST_LEVEL, _LAST_LEVEL + 1):
        new = fejer(level)[0][:: 1 if level == _FIRST_LEVEL else 2]  # every other node is new
        places, slopes = np.concatenate([places, new]), torch.cat([slopes, extension.slopes(new, left)])
        slopes, places = slopes[places.argsort().tolist()], np.sort(places)
        result[:, left] = _weighted(slopes, fejer(level)[1])
        taken[left.cpu()] = len(places)
        values = result[:, left]
        gap = (values.sum(0) - wanted[left]).abs()
        still = (gap > tolerance * yardstick(wanted[left], values)).view(len(left), -1).any(1)
        if not bool(still.any()):
            break
        left, slopes = left[still], slopes[:, :, still]
    return result, taken
