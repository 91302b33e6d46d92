"""GradientDASP: the Shapley values of all players in a few backward passes.

Let each player join a coalition independently with probability q_i. The expected output F(q) is the multilinear
extension of the game, and (Owen 1972)

    R_i = ∫₀¹ ∂F/∂q_i (q, …, q) dq

Moment propagation gives a differentiable approximation F̂ of F (`Extension`), and one backward pass all of its
derivatives: K nodes of a quadrature cost K forward and backward passes, whatever the number of players. At q = 0 and 1
the coalition is certain and F̂ is exactly f(baseline) and f(x), so the attributions sum to f(x) − f(baseline) up to the
error of the quadrature, which is therefore known: it is what adaptive nodes are refined by.

Other indices weigh the same derivatives g(q) in another way:

    Shapley        ∫₀¹ g(q) dq
    Banzhaf        g(½)
    Beta(α, β)     ∫₀¹ g(q) q^(β−1)(1−q)^(α−1) dq / B(α, β)      (Kwon & Zou 2022; Beta(1, 1) is Shapley)

A fixed number of nodes is Gauss's rule for the weight. The adaptive rules are Fejér's second in t with q = t²(3 − 2t):

- its 2ᵏ − 1 nodes are among the 2ᵏ⁺¹ − 1 of the next level, so refining throws no evaluation away;
- where a unit is at its kink when the coalition is certain, its mean grows like the standard deviation, √q, and the
  derivative has a pole of order ½ at q = 0 (or 1). In t it has none, so the rule converges fast where Gauss's does not.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from math import inf
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.attribution.base import GRADIENT, Estimate, Profile, PropagatedAttribution, rows_at_once, without_autocast
from dasp.games.call_options import number_of, read_options, whole_number
from dasp.games.game import Game
from dasp.games.progress import working
from dasp.games.request import (
    Arguments,
    Baselines,
    Request,
    Selection,
    Target,
    Tensors,
    check_positive,
    check_tolerance,
    yardstick,
)
from dasp.models.calling import Output
from dasp.models.witness import check_rows_by_themselves
from dasp.propagation.coalitions import Rank, bernoulli, column_count, sketch
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import Lifted
from dasp.propagation.values import Conditional

__all__ = [
    "Extension", "GradientDASP", "Index", "automatic_columns", "automatic_rank", "clustered", "fejer", "gauss",
    "k_means",
]  # fmt: skip

Array = NDArray[np.float64]
Index = str | tuple[float, float]

_FIRST_LEVEL, _LAST_LEVEL = 3, 6  # 7 to 63 nodes
_TOLERANCE = 1e-2
_SEVERAL = 8  # baselines, over which errors average: 3 nodes beside each may do
# Where values change by no more than 9 tolerances of their size with twice the nodes (and next by a third of it), and
# what is missing is no more than ¼ of a tolerance of Σ|values|, more nodes are of no use, however small the difference.
_SETTLED, _LITTLE = 9, 0.25
_OTHER_NODES = 16  # for indices whose sum is not known
_MOST_NODES = 64  # where the integrals have converged
_LAST_DIGITS = 10  # machine epsilons of an output: what its place in a batch may change
_FEW_PLAYERS = 32
_CLUSTER_STEPS = 20  # of k-means
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
        self.rank = number_of(rank)
        if not isinstance(self.rank, str) or self.rank != "auto":
            column_count(self.rank, 1)
        self.compile = compile

    @classmethod
    def profile(cls, *, rank: Rank | Literal["auto"] = "auto") -> Profile:
        """Return its cost: a propagated pass forward and backward for each node."""
        return Profile(
            samples="nodes", each=lambda game: GRADIENT * (2 + _columns(rank, game)), most=lambda _: _MOST_NODES,
            propagates=True,
        )  # fmt: skip

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        nodes: int | None = None,
        tolerance: float = _TOLERANCE,
        index: Index = "shapley",
        background_clusters: int | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs, baselines, target, additional_forward_args, feature_mask: as in `DASP.attribute`.
            nodes: K for Gauss–Legendre with K nodes; None refines each row until the attributions sum to
                f(input) − f(baseline) within `tolerance`, relative to it (or to
                1 % of Σ|attributions|, if that is more), with 7 to 63 nodes (16
                of Gauss's for the other indices, whose sum is not known). Of a
                background it is the average that has to add up, and of 8 rows
                or more 3 nodes beside each may do.
            tolerance: the largest relative completeness gap for adaptive nodes.
            index: "shapley", "banzhaf", or (α, β) for the Beta(α, β) semivalue.
            background_clusters: summarise the background by that many weighted centres.
            seed: for the signs of sketches, drawn anew for every node.
            internal_batch_size: the largest number of rows to propagate at once, a factor column counting as a row.
            show_progress: show a progress bar.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)).
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, delta=return_convergence_delta, return_input_shape=return_input_shape, nodes=nodes,
            tolerance=tolerance, index=index, background_clusters=background_clusters, seed=seed,
            internal_batch_size=internal_batch_size, show_progress=show_progress,
        )  # fmt: skip

    @without_autocast
    def explain(
        self,
        request: Request,
        *,
        nodes: int | None = None,
        tolerance: float = _TOLERANCE,
        index: Index = "shapley",
        background_clusters: int | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
    ) -> Estimate:
        """Return the values of the players; the options are those of `attribute`."""
        check_index(index)
        check_positive(nodes=nodes, internal_batch_size=internal_batch_size)
        check_tolerance(tolerance)
        self._check_differentiable()
        if background_clusters is not None:
            request = clustered(request, background_clusters)
        adaptive = nodes is None and index == "shapley"
        each = request.beside_each_baseline()
        values, counts, missed = [], [], []
        lifts = self.lifts(request, internal_batch_size)
        profile = self.profile(rank=self.rank)
        places, weights = gauss(nodes or _OTHER_NODES, index)
        most = sum(game.rows for game in each.games) * (2**_LAST_LEVEL - 1 if adaptive else len(places))
        with working("GradientDASP", "node", most, at_most=adaptive, show=show_progress) as progress:
            for lifted, whole, (rows, game, select) in zip(lifts, request.games, each.parts(), strict=True):
                extension = self._extension(lifted, game, select, seed, internal_batch_size, progress)
                if adaptive:
                    found, taken, beyond = _adapted(
                        extension, each.total[rows], tolerance, whole, _rounding(each, rows)
                    )
                    missed.append(beyond)
                else:
                    found, taken = _weighted(extension.slopes(places), weights), torch.full((whole.rows,), len(places))
                values.append(found)
                counts.append(taken * profile.each(game) * len(whole.baselines))
        return self._estimate(request, values, torch.cat(counts), torch.cat(missed) if adaptive else None)

    def _shortfall(self, estimate: Estimate, **_: Any) -> str:
        assert estimate.gaps is not None
        gap = float(estimate.gaps.abs().max())
        return (
            f"as many nodes as change the values: the attributions miss f(input) − f(baseline) by up to {gap:.3g}. "
            "Raise `tolerance` or, if less than full, `rank`."
        )

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
        """Return pairwise Shapley interaction values I_ij = ∫ ∂²F/∂q_i∂q_j dq: how much more two players add together
        than each by itself. They are (rows, players, N), for all players or only the chosen ones; the diagonal is 0.

        The arguments are those of `attribute`; one output must be selected. A chosen player costs two forward and
        backward passes per node.

        >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
        >>> GradientDASP(model).interactions(torch.ones(2, 3)).shape
        torch.Size([2, 3, 3])
        """
        given = {"nodes": nodes, "seed": seed, "internal_batch_size": internal_batch_size}
        nodes, seed, internal_batch_size = read_options(given, {"internal_batch_size": None}).values()
        check_index(index)
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
        chosen = list(range(game.count)) if players is None else [whole_number("a player", i) for i in players]
        if not all(0 <= player < game.count for player in chosen):
            raise ValueError(f"players must be from 0 to {game.count - 1}, not {chosen}")
        (lifted,) = self.lifts(request, internal_batch_size)
        places, weights = gauss(nodes, index)
        most = 2 * game.rows * len(places) * len(chosen)
        with working("interactions", "node", most, show=show_progress) as progress:
            extension = self._extension(lifted, game, select, seed, internal_batch_size, progress)
            result = extension.interactions(places, weights, chosen)
        if players is None:
            result = (result + result.transpose(1, 2)) / 2  # two estimates of the same
        result[:, range(len(chosen)), chosen] = 0
        request.check_finite([result.flatten(1).T])
        return result

    def _extension(
        self, lifted: Lifted, game: Game, select: Selection, seed: int, internal_batch_size: int | None, progress: Any
    ) -> Extension:
        columns = _columns(self.rank, game)
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


def _columns(rank: Rank | Literal["auto"], game: Game) -> int:
    return column_count(automatic_rank(game) if rank == "auto" else rank, game.count)


def automatic_columns(game: Game) -> int:
    """Return the number of columns of factors that rank="auto" has for a game."""
    return _columns("auto", game)


def automatic_rank(game: Game) -> Rank:
    """Return the number of columns for rank="auto": where more bought little accuracy for their time. For images that
    is `benchmarks/gradient.py ranks`; for sequences the DNA experiment, where 11 and 21 were equally good. Those for
    volumes and players without an order are by analogy, not measured."""
    if game.count <= _FEW_PLAYERS:
        return "full"
    return _AUTOMATIC_COLUMNS[0 if game.coordinates is None else game.coordinates.shape[1]]


def _weighted(slopes: Tensor, weights: Any) -> Tensor:
    return torch.tensordot(torch.as_tensor(weights, dtype=slopes.dtype, device=slopes.device), slopes, dims=1)


def _rounding(request: Request, rows: slice) -> Tensor:
    """Return what rounding may leave of f(x) − f(baseline), which no node can mend: the same input has outputs that
    differ in their last digits by its place in a batch."""
    sizes = torch.maximum(request.full[rows].abs(), request.empties[0, rows].abs())
    return _LAST_DIGITS * torch.finfo(request.games[0].dtype).eps * sizes


def _adapted(
    extension: Extension, wanted: Tensor, tolerance: float, game: Game, rounding: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Double the nodes of the rows of a game whose values do not sum to `wanted` yet, as long as there are any, and as
    that changes the values: what is missing then is noise of the sketches beside a small difference.

    The extension has every row beside every baseline; it is their average that is asked for, and that has to add up.
    Returns the values beside each baseline, how many nodes each row of the game has taken, and which rows are beyond
    the tolerance."""
    wanted = wanted.to(extension.game.dtype)
    sketched = 0 < extension.columns < game.count  # else there is no noise
    number, left = len(game.baselines), torch.arange(game.rows, device=wanted.device)
    first, allowed = _FIRST_LEVEL - (number >= _SEVERAL), min(tolerance, _TOLERANCE)
    result = torch.zeros(extension.game.count, *wanted.shape, dtype=wanted.dtype, device=wanted.device)
    taken, beyond = torch.zeros(game.rows, dtype=torch.long), torch.zeros(game.rows, dtype=torch.bool)
    places, slopes = np.empty(0), wanted.new_empty(0)

    def averaged(each: Tensor) -> Tensor:
        """(any, baselines · rows, *selected) → (any, rows, *selected)."""
        return each if number == 1 else game.averaged(each.unflatten(1, (number, -1)).movedim(1, 0))

    for level in range(first, _LAST_LEVEL + 1):
        new = fejer(level)[0][:: 1 if level == first else 2]  # every other node is new
        beside = (torch.arange(number, device=left.device)[:, None] * game.rows + left).flatten()
        places, slopes = np.concatenate([places, new]), torch.cat([slopes, extension.slopes(new, beside)])
        slopes, places = slopes[places.argsort().tolist()], np.sort(places)
        result[:, beside] = _weighted(slopes, fejer(level)[1])
        taken[left.cpu()] = len(places)
        values, total = averaged(result[:, beside]), averaged(wanted[None, beside])[0]
        fewer = averaged(_weighted(slopes[1::2], fejer(level - 1)[1]))  # by every other node
        gap = (values.sum(0) - total).abs()
        missing = (gap > tolerance * yardstick(total, values) + averaged(rounding[None, beside])[0]).view(len(left), -1)
        unsettled = (values - fewer).norm(dim=0) > _SETTLED * allowed * values.norm(dim=0)
        unsettled |= gap > _LITTLE * allowed * values.abs().sum(0)
        beyond[left.cpu()] = missing.any(1).cpu()
        still = (missing & (unsettled.view(len(left), -1) | (not sketched))).any(1)
        left, slopes = left[still], slopes[:, :, still.repeat(number)]
        if not len(left):
            break
    return result, taken, beyond


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
    def slopes(self, places: Array, rows: Any = slice(None)) -> Tensor:
        """Return ∂F̂/∂q_i at each of the `places`: (places, players, rows, *selected)."""
        parts = [self._slopes(*piece) for piece in self._pieces(places, rows)]
        per_row = -(-len(places) // self.at_once)
        joined = [torch.cat(parts[i : i + per_row]) for i in range(0, len(parts), per_row)]
        return torch.cat(joined, 2)

    @torch.enable_grad()
    def interactions(self, places: Array, weights: Array, players: Sequence[int]) -> Tensor:
        """Return Σ over places of weight·∂²F/∂q_i∂q_j, for one selected output: (rows, len(players), N).

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

    def _pieces(self, places: Array, rows: Any) -> Iterator[tuple[Game, Selection, Array]]:
        """The work in chunks: of rows with all places, or of places if one row alone is too large."""
        whole, select = self.game.rows_of(rows), self.select.rows(rows)
        for part, game in whole.slices(max(1, self.at_once // len(places))):
            for i in range(0, len(places), self.at_once):
                yield game, select.rows(part), places[i : i + self.at_once]

    def _slopes(self, game: Game, select: Selection, places: Array, known: tuple[int, float] | None = None) -> Tensor:
        outputs, q = self._outputs(game, select, places, known)
        number, rows, selected = outputs.shape
        self._check_rows(game, select, places, known, outputs.detach())
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

    def _check_rows(
        self, game: Game, select: Selection, places: Array, known: tuple[int, float] | None, outputs: Tensor
    ) -> None:
        """Refuse a model whose rows depend on the batch that was propagated, which no evaluation may have been as large
        as."""
        number, rows, _ = outputs.shape
        for at in chain.from_iterable(self.lifted.places.of(number * rows)):
            place, row = at // rows, slice(at % rows, at % rows + 1)
            alone = partial(self._mean, game.rows_of(row), select.rows(row), places[place : place + 1], known)
            check_rows_by_themselves(outputs[place, row], alone)

    @torch.no_grad()
    def _mean(self, game: Game, select: Selection, places: Array, known: tuple[int, float] | None) -> Tensor:
        return replace(self, compiled=None)._outputs(game, select, places, known)[0][0]

    def _outputs(
        self, game: Game, select: Selection, places: Array, known: tuple[int, float] | None
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
        by_player = self.columns == game.count and self.compiled is None  # with a column for every player
        random = frontier.map(
            lambda x: Conditional.of(x.value, q) if by_player and x.conditional else bernoulli(x, q, signs)
        )
        mean = random.propagated(through=self.compiled).mean
        return select(mean.unflatten(0, (number, rows))).reshape(number, rows, -1), q

    def _signs(self, places: Array) -> Tensor | None:
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


def parameters(index: Index) -> tuple[float, float]:
    """Return α and β of a semivalue's Beta distribution."""
    if isinstance(index, str) and index == "shapley":
        return 1.0, 1.0
    given = tuple(map(number_of, index)) if isinstance(index, tuple) else ()
    if len(given) == 2 and all(isinstance(x, (int, float)) and 0 < x < inf for x in given):
        return float(given[0]), float(given[1])
    raise ValueError(f'index must be "shapley", "banzhaf" or (α, β) with both positive, not {index!r}')


def check_index(index: Index) -> None:
    """Raise an error if this is not an index."""
    if not isinstance(index, str) or index != "banzhaf":
        parameters(index)


@cache
def gauss(number: int, index: Index = "shapley") -> tuple[Array, Array]:
    """Return the `number` nodes and weights of Gauss's rule for the index; one node at ½ for Banzhaf.

    The nodes are the eigenvalues of the Jacobi matrix of the orthogonal polynomials (Golub & Welsch 1969).

    >>> nodes, weights = gauss(2)
    >>> nodes.round(4), weights
    (array([0.2113, 0.7887]), array([0.5, 0.5]))
    """
    if index == "banzhaf":
        return np.array([0.5]), np.array([1.0])
    alpha, beta = parameters(index)
    a, b = alpha - 1, beta - 1  # weight (1−x)^a (1+x)^b on [−1, 1]
    k = np.arange(number, dtype=float)
    total = 2 * k + a + b
    with np.errstate(divide="ignore", invalid="ignore"):
        diagonal = np.where(total == 0, (b - a) / (a + b + 2), (b * b - a * a) / (total * (total + 2)))
        step = 4 * k * (k + a) * (k + b) * (k + a + b) / (total**2 * (total + 1) * (total - 1))
    diagonal[0] = (b - a) / (a + b + 2)
    if number > 1:
        step[1] = 4 * (1 + a) * (1 + b) / ((2 + a + b) ** 2 * (3 + a + b))
    off = np.sqrt(step[1:])
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return (nodes + 1) / 2, vectors[0] ** 2


@cache
def fejer(level: int) -> tuple[Array, Array]:
    """Return the nodes and weights of Fejér's second rule with 2^level − 1 nodes in t.

    >>> nodes, weights = fejer(2)
    >>> nodes.round(4), weights.round(4), float(weights.sum().round(4))
    (array([0.0581, 0.5   , 0.9419]), array([0.25, 0.5 , 0.25]), 1.0)
    """
    intervals = 2**level
    angle = np.arange(1, intervals) * np.pi / intervals
    odd = np.arange(1, intervals, 2)
    weights = 2 / intervals * np.sin(angle) * (np.sin(np.outer(angle, odd)) / odd).sum(1)
    t = (1 - np.cos(angle)) / 2
    return t * t * (3 - 2 * t), weights * 6 * t * (1 - t)


def clustered(request: Request, clusters: int) -> Request:
    """Return the request with its background replaced by the centres of k-means clusters (of all inputs together),
    which are weighted by their shares of its rows."""
    if clusters < 1:
        raise ValueError(f"background_clusters must be at least 1, not {clusters}")
    first = request.games[0]
    if len(first.baselines) == 1:
        raise ValueError("background_clusters needs a background: baselines with more rows than one per input row")
    if clusters >= len(first.baselines):
        return request
    if not all(x.is_floating_point() for x in first.on):
        raise TypeError("background_clusters needs floating-point baselines: integers have no mean")
    rows = torch.stack([torch.cat([x[0].flatten() for x in baseline]) for baseline in first.baselines])
    centres, shares = k_means(rows, clusters)
    sizes = [x[0].numel() for x in first.on]
    games, empties = [], []
    for game in request.games:
        parts = [centre.split(sizes) for centre in centres]
        baselines = tuple(
            tuple(part.view(1, *x.shape[1:]).expand(x.shape) for part, x in zip(each, game.on, strict=True))
            for each in parts
        )
        games.append(replace(game, baselines=baselines, shares=shares))
        empties.append(games[-1].empties(request.function, game.rows_at_once))
    selected = torch.cat([select(x) for select, x in zip(request.selections, empties, strict=True)], 1)
    return replace(request, games=games, empties=selected)


def k_means(rows: Tensor, clusters: int) -> tuple[Tensor, tuple[float, ...]]:
    """Return the centres of clusters of rows, and the share of the rows that each has."""
    centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:clusters]].clone()
    for _ in range(_CLUSTER_STEPS):
        nearest = torch.cdist(rows, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=clusters).to(rows)
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return centres, tuple((sizes / len(rows)).tolist())
