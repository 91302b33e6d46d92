"""GradientShapley: gradients at random coalitions, each of which tells about all players at once.

With S ~ Bernoulli(q) of the other players, φ_i = ∫₀¹ E[v(S∪i) − v(S)] dq, and a step is the integral of its derivative:

    v(S∪i) − v(S) = ∫₀¹ g_i(S, t) dt,      g_i = Σ_entries (x − b)·∂f/∂x   at x_S with player i at b + t(x − b).

One backward pass at a uniform t observes a step without bias, but not those of all players: on their way at once, they
would be no coalition for each other. Two estimates come from the same passes.

* **Moving**: K random groups take turns; the players of one move, each at a t of its own, while the others rest as a
  coalition. With q' = (q − 1/2K)/(1 − 1/K) for those that rest, the mean presence of the others is q, its variance
  q(1 − q) − 1/6K instead of q(1 − q): the bias is O(1/K). The variance of the mean over n passes is O(K/n), so that
  K = n^⅓ balances both, and the estimate converges to the Shapley values. A block of K passes has one q and sees each
  player move once: a plain mean with a plain standard error.
* **Resting**: the trapezoid v(S∪i) − v(S) ≈ ½(g_i(S) + g_i(S∪i)) has a term in every pass where i rests:
  R_i = Σ w_i g_i / Σ w_i, w_i = 1/2q' if i ∈ S, 1/2(1 − q') if not (q' at least .02). It sees K − 1 times as many
  passes, and has no bias if g_i is linear in t; steps that pass kinks leave one that lasts.

Passes come in pairs of a point and its mirror image (presence z and 1 − z), whose mean is exact where f is quadratic.
Both estimates are combined by precision; the squared bias of resting is the mean over the players of
(moving − resting)² less both variances. Resting had over half of the weight with LeNet's pixels; with a Transformer's
tokens .2 at 16 pairs, .03 at 256.

**What is known beforehand.** With thousands of players and some hundred passes, the noise of a value a_i is as large as
the value, and its variance s_i² is known. So a_i is pulled to what it is likely to be, as far as it is noise:

    R_i = p_i + v_i m_i + w_i (r_i − m_i),      r = a − p,      w = t/(t + s²)

s² here is the mean of a player's neighbourhood. p is a prior (`GradientDASP`, say), where it is believed, else 0. m is
the mean of r over the neighbours of a player on a grid, as the errors of a prior and the values themselves are alike
there (none if there is no grid); t the variance of r around it that is not noise, in a wider neighbourhood (all
players, if there is no grid), and v the same for m. As s falls with the number of pairs, w goes to 1: the limit is the
same. (EfficientNet, 50,176 pixels of a photo, 341 pairs: error .68 of the values' size without this, .48 with it, and
without a prior.)

A prior is believed in a row as long as its squared error, the mean of (a − p)² less that of s², is no more than 1.5
times the noise: thousands of differences say how large it is, when each of them says little about a value. (A poorer
prior did harm, as its errors are not alike for all players: those of GradientDASP at rank 0, with errors of .2 to .6,
raised those of sampled gradients by up to a quarter.)

The values have to sum to f(x) − f(b): what is missing is given to the players by the sizes of their values (who has no
effect stays at 0), and what was given counts as an error. That is done before they are compared with a prior, too, as
a pass has a part of its noise with all players in common.

Measured with 16, 64, 256 and 1,024 pairs, beside the trapezoid alone (all players at rest); 95 % intervals held 90 to
98 % of the true values. The last three networks had no part in any choice.

                                         root mean square error         trapezoid alone                rms of values
    LeNet, 784 pixels                    .0084   .0052   .0035   .0023  .0104   .0056   .0036   .0025  .045
    small ResNet, 196 pixels             .041    .025    .016    .010   .048    .028    .019    .016   .136
    ReLU network, 18 inputs              .25     .14     .11     .07    .31     .20     .17     .16    .69
    Transformer, 14 tokens               .27     .14     .10     .05    .40     .40     .39     .39    .55
    ViT, 196 pixels                      .057    .032    .022    .014   .064    .050    .043    .041   .133
    ReLU network, 16 inputs              .14     .07     .05     .04    .17     .12     .10     .09    .62
    GRU, 14 tokens                       .15     .09     .06     .05    .27     .21     .19     .19    .69
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, prod
from typing import Any, TypeAlias

import torch
from captum.attr import Attribution
from torch import Tensor
from torch.nn.functional import conv1d

from dasp.attribution.base import GRADIENT, Estimate, PlayerMethod, Profile, cost_of_prior
from dasp.attribution.bayesian.priors import Prior, checked_prior, prior_values, with_prior
from dasp.attribution.refinement import Clock, Refined, collected, refined, stages
from dasp.errors import line_of
from dasp.games.call_options import check_replicates
from dasp.games.evaluator import Evaluator
from dasp.games.game import Game
from dasp.games.idle_players import Active
from dasp.games.progress import Work, working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, check_positive, check_tolerance
from dasp.models.calling import Output
from dasp.models.export_lock import evaluation_lock

__all__ = ["FewGradients", "GradientShapley"]

log = logging.getLogger("dasp")

_BELIEVED = 1.5  # times the noise: the squared error of a prior that is of use
_TRIED, _TOLD = 8, 0.3  # pairs that show whether gradients tell what the model does, and what they may miss
_SILENCE = 0.01  # of all values: what players without gradients may move
_NUMBERS_AT_ONCE = 2**21
_FIRST = 4  # blocks before the standard error is looked at
_RAREST, _ROUNDING = 0.02, 1e-15  # chance of being present, for weights; what squares that cancel leave
_STEP_Q, _STEP_T = 0.7548776662466927, 0.5698402909980532  # powers of 1/1.3247…: even in two dimensions (Roberts 2018)


class GradientShapley(PlayerMethod):
    """Shapley values from gradients at random coalitions, for any callable that can be differentiated: for many fine
    players, like pixels, and models without rules for propagation. Few coarse players, of which gradients say little,
    are better left to `BayesianShapley`, possibly with this as its prior.

    Args:
        forward_func: any callable of tensors, as in Captum.
        prior: another attribution method (`GradientDASP(model)`), a tensor of attributions (every entry with the value
            of its player), or None. It is believed as far as sampled gradients bear it out.
        prior_options: further arguments of the prior's `attribute`, such as {"nodes": 8}.
        output: which of the model's results, if it returns several: a name or an index.

    >>> model = lambda x: x[:, 0] * x[:, 1] + x[:, 2] ** 2
    >>> GradientShapley(model).attribute(torch.tensor([[2.0, 3.0, 4.0]]), n_pairs=1).round(decimals=3)
    tensor([[ 3.,  3., 16.]])
    """

    _unit = "pairs"

    def __init__(
        self,
        forward_func: Callable[..., Any],
        prior: Prior = None,
        *,
        prior_options: dict[str, Any] | None = None,
        output: Output = None,
    ) -> None:
        super().__init__(forward_func, output)
        self.prior = checked_prior(prior)
        self.prior_options = prior_options or {}

    @property
    def _takes_batches(self) -> bool:
        return not isinstance(self.prior, Attribution)

    @classmethod
    def profile(cls, *, prior: Profile | None = None, prior_samples: Callable[[Game], int] = lambda _: 0) -> Profile:
        """Return its cost: a forward and a backward pass for each half of a pair, and a prior with its number of
        samples, if it has one."""
        return Profile(
            beforehand=cost_of_prior(prior, prior_samples),
            samples="n_pairs", each=lambda _: 2 * GRADIENT, error_bars=True, replicates=True,
        )  # fmt: skip

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        n_pairs: int = 64,
        n_samples: int | None = None,
        max_seconds: float | None = None,
        tolerance: float | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
        return_std: bool = False,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None,
        which cost one backward pass each. They always sum to f(input) − f(baseline).

        Args:
            inputs (of floating-point numbers), baselines, target, additional_forward_args, feature_mask: as in
                `BayesianShapley.attribute`.
            n_pairs: how many pairs of points to take at most, the same for every row; each costs two forward and
                backward passes. A background has as many for each of its rows, which have coalitions of their own.
            n_samples: the same in Captum's way, instead of n_pairs: how many points, two to a pair.
            max_seconds: stop when a row took so many seconds, but not before there are 2 pairs. (This alone looks at
                the clock: all else is the same on every machine.)
            tolerance: stop with a row when its largest standard deviation is below this fraction of its largest
                attribution: with 0.05, the largest is known to ± 10 % (as 95 % intervals are).
            seed: for the coalitions, which are the same for every row.
            internal_batch_size, show_progress: the largest number of rows to evaluate at once; show a progress bar.
            return_std: also return standard deviations: of sampling, the trapezoid's bias as far as it shows, and what
                made the values add up; not the bias of several players moving at once, which falls with n_pairs^⅓.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        if n_samples is not None:
            check_positive(n_samples=n_samples)
            n_pairs = ceil(n_samples / 2)
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(
            arguments, std=return_std, delta=return_convergence_delta, return_input_shape=return_input_shape,
            n_pairs=n_pairs, max_seconds=max_seconds, tolerance=tolerance, seed=seed,
            internal_batch_size=internal_batch_size, show_progress=show_progress,
        )  # fmt: skip

    def explain(
        self,
        request: Request,
        *,
        n_pairs: int = 64,
        max_seconds: float | None = None,
        tolerance: float | None = None,
        seed: int = 0,
        internal_batch_size: int | None = None,
        show_progress: bool | None = False,
    ) -> Estimate:
        """Return the values of the players, from 2 pairs on with standard deviations; the options are those of
        `attribute`."""
        check_positive(n_pairs=n_pairs, internal_batch_size=internal_batch_size)
        check_tolerance(tolerance)
        if tolerance is not None:
            check_replicates(n_pairs, "pairs")
        clock = None if max_seconds is None else Clock(max_seconds * len(request.full))
        self._check_differentiable()
        discrete = [x.dtype for x in request.games[0].on if not x.is_floating_point()]
        if discrete:
            dtype = discrete[0]
            raise TypeError(f"gradients need floating-point inputs, not {dtype}: explain the embeddings of integers")
        active = Active.of(request)
        believed = prior_values(self.prior, self.prior_options, request)
        priors = [None] * len(active.parts) if believed is None else active.select(believed.values)
        gradients = 2 * n_pairs * request.full.numel() * len(request.empties)
        early = tolerance is not None or clock is not None
        with working("GradientShapley", "gradient", gradients, at_most=early, show=show_progress) as progress:
            evaluators = list(active.request.evaluators(internal_batch_size, progress))
            left, parts = sum(evaluator.game.rows for evaluator in evaluators), []
            for evaluator, prior in zip(evaluators, priors, strict=True):
                found = []
                for rows in torch.arange(evaluator.game.rows).split(_rows_at_once(evaluator)):
                    own = None if clock is None else clock.part(len(rows), left)
                    before = None if prior is None else prior[:, rows]
                    found.append(_sampled(evaluator.rows_of(rows), before, n_pairs, tolerance, seed, own))
                    left -= len(rows)
                parts.append(Refined.cat(found))
            estimate = collected(active, parts)
        if believed is not None:
            estimate = with_prior(estimate, believed)
        request.check_finite(estimate.values)
        silent = torch.cat([~v.any(0) for v in estimate.values]) & (request.total != 0).to(estimate.values[0].device)
        if bool(silent.any()):
            raise ValueError(
                "all gradients of an output of the model are zero, though its values differ: use BayesianShapley"
            )
        return estimate if n_pairs > 1 else replace(estimate, std=None)


def _sampled(
    evaluator: Evaluator, prior: Tensor | None, pairs: int, tolerance: float | None, seed: int, clock: Clock | None
) -> Refined:
    """Values and standard deviations, and what is to be said of each row."""
    game, number = evaluator.game, len(evaluator.game.baselines)
    if clock is not None:
        pairs = min(pairs, max(2, int(clock.left / _seconds_of_a_pair(evaluator))))
    groups = max(1, min(game.count, pairs // 2, round((pairs * number) ** (1 / 3))))
    numbers = stages(_FIRST, pairs // groups, 2, tolerance, clock)  # of blocks
    each = groups * 2 * (1 + (GRADIENT - 1) * evaluator.total[0].numel())  # a backward pass for each output
    seeds = torch.randint(2**62, (number,), generator=torch.Generator().manual_seed(seed)).tolist()
    beside = [_Sample(evaluator, i, groups, own) for i, own in enumerate(seeds)]
    shares = torch.tensor(game.shares or [1 / number] * number, dtype=torch.float64)
    neighbours = Neighbourhood.of(game)

    def estimate(blocks: int, left: Tensor) -> tuple[Tensor, Tensor]:
        for sample in beside:
            sample.grow(blocks, left)
        found = _averaged([sample.moving.mean(left) for sample in beside], shares)
        if groups > 1:
            found = _combined(*found, *_averaged([sample.resting.mean(left) for sample in beside], shares))
        total = evaluator.total[left]
        values, variance = _adding_up(*found, total)
        likely = _likely(values, variance, None if prior is None else prior[:, left], neighbours)
        values, variance = _adding_up(*likely, total)
        return values, variance.sqrt()

    return refined(numbers, tolerance, game.rows, estimate, lambda blocks: each * blocks, clock=clock)


def _rows_at_once(evaluator: Evaluator) -> int:
    """Return for how many rows there is memory, as some numbers are kept for each player, output and baseline."""
    kept = evaluator.game.count * evaluator.total[0].numel() * len(evaluator.game.baselines)
    return max(1, _NUMBERS_AT_ONCE // kept)


@dataclass(frozen=True)
class FewGradients:
    """The values of the first row beside its first baseline, as a few gradients tell them, some times over."""

    request: Request  # of that row beside that baseline
    active: Active
    tries: list[Tensor]  # of each game: (tries, busy players, 1, *selected)

    @staticmethod
    def of(request: Request) -> FewGradients | None:
        """Return what they tell, or None where gradients do not tell what the model does: where it cannot be
        differentiated, steps that they stand for do not add up to f(x) − f(baseline), or players without gradients do
        something. A part of it that is rounded, compared with a threshold or detached has no gradient, and would be
        taken for others' doing."""
        if torch.is_inference_mode_enabled() or not all(x.is_floating_point() for x in request.games[0].on):
            return None
        first = next(iter(request.apart())) if len(request.games) > 1 else request.rows_of(slice(0, 1))
        beside_one = [replace(game, baselines=game.baselines[:1], shares=None) for game in first.games]
        alone = replace(first, games=beside_one, empties=first.empties[:1])
        active = Active.of(alone)
        row, tries = torch.arange(1), []
        try:
            for evaluator in active.request.evaluators(None, Work("trying gradients")):
                found = []
                for seed in range(_TRIED):
                    sample = _Sample(evaluator, 0, 2, seed)
                    sample.grow(1, row)
                    found.append(sample.moving.mean(row)[0])
                tries.append(torch.stack(found))
                if not _tells(evaluator, tries[-1]):
                    return None
        except Exception as error:  # noqa: BLE001 (whatever hinders gradients, evaluations do without)
            log.debug("gradients at coalitions cannot be had: %s", line_of(error))
            return None
        return FewGradients(alone, active, tries)

    def far_from(self, values: list[Tensor]) -> float:
        """Return how far values of all players (players, 1, *selected) are from the true ones, relative to their own
        size: at least so far, by two standard errors. Thousands of differences say how large they are, when each of
        them says little about a value."""
        squares = 0.0
        sizes = 0.0
        for own, tries in zip(self.active.select(values), self.tries, strict=True):
            noise = tries.var(0).sum(0) / len(tries)
            seen = (tries.mean(0) - own).square().sum(0)
            unsure = noise * (2 / len(own)) ** 0.5
            squares += float((seen - noise - 2 * unsure).sum())
            sizes += float(own.square().sum())
        return (max(squares, 0.0) / sizes) ** 0.5 if sizes else float("inf")


def _tells(evaluator: Evaluator, tries: Tensor) -> bool:
    """Return whether a few gradients add up, and players without gradients do nothing."""
    sums, sizes = tries.sum(1), tries.mean(0).abs().sum(0)  # what cancels has errors that do not
    error = sums.std(0) / len(tries) ** 0.5
    allowed = 4 * error + _TOLD * torch.maximum(evaluator.total.abs(), sizes / 2)
    if not bool(((sums.mean(0) - evaluator.total).abs() <= allowed).all()):
        return False
    silent = (tries == 0).flatten(2).all(2).all(0)  # players whose gradients say that they do nothing
    gone, alone = evaluator.worth(torch.stack([~silent, silent]))
    moved = torch.maximum((gone - evaluator.full).abs(), (alone - evaluator.empty).abs())
    return bool((moved <= _SILENCE * sizes).all())


def _seconds_of_a_pair(evaluator: Evaluator) -> float:
    """Time the gradients of some rows, as those of all rows, both halves of a pair, and beside each baseline."""
    (part, own), *_ = evaluator.slices()
    single = replace(own, game=replace(own.game, baselines=own.game.baselines[:1], shares=None))
    points = torch.full((max(1, min(8, own.at_once // own.game.rows)), own.game.count), 0.5, dtype=torch.float64)
    _slopes(single, points[:1])  # what comes once
    start = time.perf_counter()
    _slopes(single, points)
    seconds = (time.perf_counter() - start) / len(points)
    return 2 * seconds * len(evaluator.game.baselines) * evaluator.game.rows / (part.stop - part.start)


def _averaged(means: list[tuple[Tensor, Tensor]], shares: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances, averaged over the baselines, which were sampled independently."""
    values, variances = (torch.stack(parts) for parts in zip(*means, strict=True))
    return torch.tensordot(shares, values, dims=1), torch.tensordot(shares**2, variances, dims=1)


def _combined(moving: Tensor, moving_variance: Tensor, resting: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Both estimates by their precision, and the variance. All players of a row have the same weights, as the variance
    of a single one is known poorly. The squared bias of resting is half everybody's alike (whose slope varies at all),
    half in proportion to the values: so intervals held the truth as often for large values as for small ones."""
    noise, squared_bias = moving_variance.mean(0), (moving - resting).square() - moving_variance - variance
    bias = squared_bias.mean(0).clamp(min=0)
    weight = noise / (noise + variance.mean(0) + bias).clamp(min=torch.finfo(noise.dtype).tiny)
    values = torch.lerp(moving, resting, weight.expand_as(moving))
    own = torch.where(variance > 0, bias * (1 + len(values) * _shares(values)) / 2, 0)
    return values, (1 - weight) ** 2 * moving_variance + weight**2 * (variance + own)


def _likely(values: Tensor, variance: Tensor, prior: Tensor | None, neighbours: Neighbourhood) -> tuple[Tensor, Tensor]:
    """Values (players, rows, *selected) with their noise taken out as far as it can be told from them, and their
    variances; see the module's docstring. What is beyond noise is known from so many neighbours only: three standard
    errors more than was seen count for the variances."""
    tiny = torch.finfo(values.dtype).tiny
    if prior is not None:
        noise = variance.mean(0)
        error = (values - prior).square().mean(0) - noise
        prior = torch.where(error <= _BELIEVED * noise, prior, 0)
        values = values - prior
    near, far = neighbours.near, neighbours.far
    noise, mean = far.mean(variance), near.mean(values)
    result, left = torch.zeros_like(values), torch.zeros_like(values)
    itself, of_mean, of_far = (x.view(-1, *[1] * (values.dim() - 1)) for x in (near.own, near.of_mean, far.of_mean))
    for part, share_of_noise in ((mean, of_mean), (values - mean, 1 - 2 * itself + of_mean)):
        own = share_of_noise * noise
        beyond = (far.mean(part.square()) - own).clamp(min=0)
        likely, most = (
            torch.where(own > 0, seen / (seen + own).clamp(min=tiny), 1)
            for seen in (beyond, beyond + 3 * own * (2 * of_far).sqrt())
        )
        result += likely * part
        left += most * share_of_noise
    variance = variance * left.clamp(max=1)
    if prior is not None:
        return prior + result, variance
    return torch.where((result == 0).all(0), values, result), variance  # else nobody would be given what is missing


@dataclass(frozen=True)
class Neighbourhood:
    """The players around each player of a game, with weights that fall with their distance, exp(−d²/2w²)."""

    near: _Window  # w = 2: values are alike
    far: _Window  # w = 4: noise is alike, and so are the sizes of values

    @staticmethod
    def of(game: Game) -> Neighbourhood:
        """Return that of a game's players. Where they have no places, nobody is near, and all are far."""
        if game.coordinates is None:
            return Neighbourhood(_Nobody(game.count), _Everybody(game.count))
        own = game.coordinates - game.coordinates.amin(0)
        shape = tuple((own.amax(0) + 1).tolist())
        places = own[:, 0]
        for dim, length in enumerate(shape[1:], 1):
            places = places * length + own[:, dim]
        layers = _occurrences(places)  # colours of a pixel that are players of their own have a picture each
        places = layers * prod(shape) + places
        grid = (int(layers.max()) + 1, *shape)
        return Neighbourhood(_Around(places, grid, 2.0), _Around(places, grid, 4.0))


def _occurrences(places: Tensor) -> Tensor:
    """Return how many of the players before have the same place as each.

    >>> _occurrences(torch.tensor([4, 7, 4, 4]))
    tensor([0, 0, 1, 2])
    """
    order = places.argsort(stable=True)
    sorted_places = places[order]
    result = torch.empty_like(places)
    result[order] = torch.arange(len(places)) - torch.searchsorted(sorted_places, sorted_places)
    return result


class _Nobody:
    """A window that sees nothing."""

    def __init__(self, players: int) -> None:
        self.own = self.of_mean = torch.zeros(players, dtype=torch.float64)

    def mean(self, each: Tensor) -> Tensor:
        return torch.zeros_like(each)


class _Everybody:
    """A window that sees all players alike."""

    def __init__(self, players: int) -> None:
        self.own = self.of_mean = torch.full((players,), 1 / players, dtype=torch.float64)

    def mean(self, each: Tensor) -> Tensor:
        return each.mean(0, keepdim=True).expand_as(each)


class _Around:
    """A window over the places of players on some grids of the same shape, (grids, *shape)."""

    def __init__(self, places: Tensor, shape: tuple[int, ...], width: float) -> None:
        reach = round(3 * width)
        weights = torch.exp(-(torch.arange(-reach, reach + 1, dtype=torch.float64) ** 2) / (2 * width**2))
        self.weights = weights / weights.sum()
        self.places, self.shape = places, shape
        there = torch.zeros(1, *shape, dtype=torch.float64)
        there.view(-1)[places] = 1
        self.counts = self._summed(there, self.weights)
        counts = self.counts.view(-1)[places]
        self.own = self.weights.max() ** (len(shape) - 1) / counts  # the weight of a player itself
        # The variance of a mean of noise of variance 1.
        self.of_mean = self._summed(there, self.weights**2).view(-1)[places] / counts**2

    def mean(self, each: Tensor) -> Tensor:
        """Return the weighted mean over the neighbours of each player, (players, …)."""
        columns = each.reshape(len(each), -1)
        grid = torch.zeros(columns.shape[1], self.counts.numel(), dtype=each.dtype)
        grid[:, self.places] = columns.T
        means = self._summed(grid.view(-1, *self.shape), self.weights) / self.counts
        return means.reshape(len(grid), -1)[:, self.places].T.reshape(each.shape)

    @staticmethod
    def _summed(grid: Tensor, weights: Tensor) -> Tensor:
        """Sums (many, grids, *shape) by weights, one dimension of the grids after the other."""
        for dim in range(2, grid.dim()):
            lines = grid.movedim(dim, -1)
            flat = lines.reshape(-1, 1, lines.shape[-1])
            grid = conv1d(flat, weights.view(1, 1, -1), padding=len(weights) // 2).view(lines.shape).movedim(-1, dim)
        return grid.contiguous()


_Window: TypeAlias = _Nobody | _Everybody | _Around


def _adding_up(values: Tensor, variance: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """Values that sum to the total, and their variances."""
    given = (total - values.sum(0)) * _shares(values)
    return values + given, variance + given**2


def _shares(values: Tensor) -> Tensor:
    """Return the part of Σ|values| that each player has."""
    size = values.abs()
    return size / size.sum(0).clamp(min=torch.finfo(size.dtype).tiny)


class _Sample:
    """The gradients and values that were seen beside one of the baselines."""

    def __init__(self, evaluator: Evaluator, baseline: int, groups: int, seed: int) -> None:
        self.evaluator, self.baseline, self.groups = evaluator, baseline, groups
        self.generator = torch.Generator().manual_seed(seed)
        players = evaluator.game.count
        self.first_q = float(torch.rand((), generator=self.generator, dtype=torch.float64))
        self.first_t = torch.rand(players, generator=self.generator, dtype=torch.float64)
        self.blocks = 0
        self.moving, self.resting = (_WeightedMean(players, evaluator.full.shape) for _ in range(2))

    def grow(self, blocks: int, left: Tensor) -> None:
        """Add blocks until there are that many, for some of the rows."""
        evaluator = self.evaluator.rows_of(left)
        baselines = (evaluator.game.baselines[self.baseline],)
        evaluator = replace(evaluator, game=replace(evaluator.game, baselines=baselines, shares=None))
        at_once = max(1, evaluator.at_once // len(left))
        while self.blocks < blocks:
            number = min(blocks - self.blocks, max(1, at_once // self.groups))
            for points in torch.cat([self._drawn() for _ in range(number)], 1).split(at_once, 1):
                places, moving, resting = points
                for part, rows in evaluator.slices():
                    slopes = (_slopes(rows, places) + _slopes(rows, 1 - places)) / 2
                    self.moving.add(moving, slopes, left[part])
                    self.resting.add(resting, slopes, left[part])

    def _drawn(self) -> Tensor:
        """A block of points in which every player moves once, (3, points, players): where players are (0 if absent, 1
        if present, else between), 1 for those that move, and the weights of those that rest."""
        players, groups = self.evaluator.game.count, self.groups
        q = (self.first_q + self.blocks * _STEP_Q) % 1 / 2  # the mirror images have the other half
        chance = min(1.0, max(0.0, (q - 0.5 / groups) / (1 - 1 / groups))) if groups > 1 else q
        present = torch.rand(groups, players, generator=self.generator) < chance
        moving = torch.randperm(players, generator=self.generator) % groups == torch.arange(groups)[:, None]
        places = torch.where(moving, (self.first_t + self.blocks * _STEP_T) % 1, present.double())
        weights = torch.where(present, 0.5 / max(chance, _RAREST), 0.5 / (1 - chance)).double()
        self.blocks += 1
        return torch.stack([places, moving.double(), weights.masked_fill(moving, 0)])


class _WeightedMean:
    """Means Σwy/Σw of what is seen of every player, and their variances; all that is kept are sums."""

    def __init__(self, players: int, shape: torch.Size) -> None:
        self.weights = torch.zeros(3, players, shape[0], dtype=torch.float64)  # Σw, Σw², Σw³
        self.sums = torch.zeros(3, players, *shape, dtype=torch.float64)  # Σwy, Σw²y, Σ(wy)²

    def add(self, weights: Tensor, seen: Tensor, rows: Tensor) -> None:
        """Add what was seen of some rows, (m, players, rows, *selected), with weights (m, players)."""
        self.weights[:, :, rows] += torch.stack([(weights**power).sum(0) for power in (1, 2, 3)])[..., None]
        w = weights.view(*weights.shape, *[1] * (seen.dim() - 2))
        y = w * seen
        self.sums[:, :, rows] += torch.stack([y.sum(0), (w * y).sum(0), y.square().sum(0)])

    def mean(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances (players, rows, *selected). With h = w/Σw and one variance s² of all y, the mean has
        s²Σh², and Σh²(y − mean)² is s²(Σh² − 2Σh³ + (Σh²)²) on average."""
        weights = self.weights[:, :, rows]
        total, squares, cubes = weights.view(*weights.shape, *[1] * (self.sums.dim() - 3))
        first, second, third = self.sums[:, :, rows]
        mean = first / total
        spread = third - 2 * mean * second + mean**2 * squares
        spread = torch.where(spread > _ROUNDING * third, spread, 0) / total**2
        squares, cubes = squares / total**2, cubes / total**3
        variance = spread * squares / (squares - 2 * cubes + squares**2)
        return mean, variance.nan_to_num(0)  # of a single one, nothing is known


def _slopes(evaluator: Evaluator, places: Tensor) -> Tensor:
    """Σ (x − b)·∂f/∂x over the entries of each player at points between, (m, players, rows, *selected) in float64."""
    game, number = evaluator.game, len(places)
    many = game.repeated(number)
    each = places.to(game.device, game.dtype).repeat_interleave(game.rows, 0)
    points = tuple(
        torch.lerp(off, on, each[:, mask].to(on.dtype)).requires_grad_()
        for on, off, mask in zip(many.on, many.off, many.masks, strict=True)
    )
    with torch.enable_grad(), evaluation_lock():
        arguments = (*game.laid_out(points), *game.extra_for(number))
        outputs = evaluator.select(game._checked(evaluator.function(*arguments), number))
        evaluator.finite(outputs.detach().cpu(), places > 0)  # a player on the way is there
        outputs = outputs.flatten(0, 1)
        slopes = [_by_player(many, points, column) for column in outputs.reshape(len(outputs), -1).sum(0)]
    evaluator.progress.update(number * game.rows * len(slopes))
    return torch.stack(slopes, -1).view(number, game.rows, game.count, *evaluator.full.shape[1:]).transpose(1, 2)


def _by_player(many: Game, points: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """(x − b)·∂output/∂x, added up for each player: (rows, players) in float64 on the CPU."""
    gradients: tuple[Tensor | None, ...] = (None,)
    if output.requires_grad:
        gradients = torch.autograd.grad(output, points, retain_graph=True, allow_unused=True)
    if all(gradient is None for gradient in gradients):
        raise ValueError(
            "the outputs of the model have no derivative with respect to its inputs (it may detach or compare them, or "
            "leave PyTorch): use BayesianShapley, which only evaluates the model"
        )
    result = torch.zeros(many.rows, many.count, dtype=torch.float64)
    for gradient, on, off, mask in zip(gradients, many.on, many.off, many.masks, strict=True):
        if gradient is not None:
            step = on - off
            entries = torch.where(step == 0, 0, step * gradient).reshape(len(step), -1).cpu().double()
            result.index_add_(1, mask.flatten().cpu().clamp(min=0), entries)  # nobody's are 0
    return result
