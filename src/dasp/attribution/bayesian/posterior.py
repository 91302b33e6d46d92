"""Gaussian-process regression over coalitions: the posterior of the Shapley values, given the values of some pairs.

The game is modelled, for all pairs of coalitions whether evaluated or not, as

    y = Δ(s/N − ½) + z β + B γ + h + e,      e ~ N(0, σ²ν),  ν ∝ s(N−s)
    β ~ N(R₀, aσ²T) with Σβ = Δ      h ~ N(0, bσ²·interactions)      γ flat: the mean by size

Interactions and size means have no Shapley value, but the white part has: R = β + Σ_pairs w z e (see `design`). So R is
a linear functional of the game, jointly Gaussian with what was evaluated, and its posterior is

    E[R] = p₀ + c C⁻¹(y − z p₀),   Var[R] = σ²(k − c C⁻¹ cᵀ),    C = a zTzᵀ + b·interactions + ν,  c = aTzᵀ + (w z ν)ᵀ

(T here conditioned on Σβ, p₀ the prior mean moved to Σ = Δ.) Because the white part belongs to the game, not to the
measurement, the posterior is the exact value with variance 0 once all pairs were seen; before, it is a shrunken
regression with the weights of the Shapley kernel.

a (how good the prior is), b and the form of T are averaged over with their posterior probabilities, and σ² is
integrated out (restricted likelihood): a point estimate of a is overconfident with few evaluations.

With many pairs and not too many players, h is also tried with the interactions that a column's own values make likely
(see `regression`), and takes part by its posterior probability.

With far fewer pairs than players a is hardly seen in the data: z of different pairs are nearly orthogonal, so that
errors of the prior look like noise, and error bars rest on what was thought of a before (`Trust`). What else tells of
it is the completeness gap Δ − ΣR₀ of a prior that is not made to have none: with errors that all players share,

    R₀ − β ~ N(0, aσ²(T + (κ−1) T11ᵀT/1ᵀT1)),      Δ − ΣR₀ ~ N(0, κaσ² 1ᵀT1)

and the first, given Σβ = Δ, does not depend on κ: the gap is one observation more, of a and σ² alone.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from dasp.attribution.bayesian.regression import Covariance, Directions, PairSummary, Regression

__all__ = ["FEWEST_PAIRS", "Distance", "Posterior", "Trust", "posterior"]

FEWEST_PAIRS = 4  # for a variance to be estimated
_SIGNAL = torch.logspace(-5, 9, 57, dtype=torch.float64)  # a·tr(AT Aᵀ)/m: signal to noise
_NEGLIGIBLE = 1e-4  # posterior probability
_IMPOSSIBLE = -20.0  # the log of such a probability
_COSTLY = 2**31  # operations: of several outputs of many players, only the most probable strength is tried
_NUMBERS_AT_ONCE = 2**22
_HALVINGS = 60  # of an interval, for a quantile


@dataclass(frozen=True)
class Trust:
    """The trust in a prior before any data: the log of the signal (its error) to noise is Student's t with
    three degrees of freedom about log `centre`, so that data can say otherwise."""

    centre: float
    spread: float
    gap: float | None = None  # κ; None if the completeness gap says nothing, as of priors that are made to have none

    def log_density(self) -> Tensor:
        """Return the log of its density over the grid of signal-to-noise ratios."""
        x = (_SIGNAL / self.centre).log() / self.spread
        return -2 * (1 + x**2 / 3).log()


@dataclass(frozen=True)
class Posterior:
    """The mean and standard deviation of Shapley values, (columns, players) each; a column is an output of a row."""

    mean: Tensor
    deviation: Tensor
    distance: Distance | None  # of the prior from the Shapley values, if that was asked for


def posterior(
    regression: Regression,
    y: Tensor,
    total: Tensor,
    prior: Tensor,
    covariances: list[Covariance],
    trust: Trust,
    *,
    sums: Tensor | None = None,
    distance: bool = False,
) -> Posterior:
    """Return the posterior of the Shapley values, given the values of pairs.

    Args:
        regression: on the pairs that were evaluated.
        y: (v(S) − v(Sᶜ))/2, (pairs, columns).
        total: Δ = v(P) − v(∅), (columns,).
        prior: R₀, (columns, players).
        covariances: the candidates for T, besides all players alike.
        trust: the prior on a.
        sums: (v(S) + v(Sᶜ))/2, (pairs, columns), by which to choose interactions where there are enough pairs for it.
        distance: also find out how far the prior is from the Shapley values; without interactions by `sums`.
    """
    pairs = regression.pairs
    y = y - (pairs.sizes / pairs.players - 0.5)[:, None] * total  # as if all players were alike: z is about this
    size = torch.maximum(y.abs().amax(0), prior.abs().amax(1))
    constant = size <= 0
    size = torch.where(size > 0, size, 1)  # so that nothing is lost in the squares of tiny or huge numbers
    y, total, prior = y / size, total / size, prior / size[:, None]
    shared = regression.summaries(y)
    given = _Given(total, prior, trust, distance)
    mixtures = [_mixture(summary, given, None) for summary in shared]
    # Strengths of interactions that have no chance with players all alike are not tried with the others.
    probabilities = torch.stack([mixture.evidence for mixture in mixtures]).softmax(0)
    likely = probabilities > _NEGLIGIBLE
    if len(total) * min(pairs.players, len(pairs)) ** 3 > _COSTLY:  # each of them takes so many operations
        likely &= probabilities == probabilities.amax(0)
    for covariance in covariances:
        for summary, columns in zip(shared, likely, strict=True):
            part = _mixture(summary.of(columns), given.of(columns), covariance.of(columns))
            mixtures.append(part.spread(columns))
    if sums is not None and not distance and regression.chooses and len(total) > 0:
        evidence = torch.stack([mixture.evidence for mixture in mixtures[: len(shared)]])
        mixtures.append(_likely_mixture(regression, y, sums, given, covariances, evidence))
    mixture = _Mixture.of(mixtures)
    mean = mixture.mean + (total - mixture.mean.sum(1))[:, None] / pairs.players  # rounding
    away = None if mixture.distance is None else mixture.distance.times(size)
    variance = regression.shared_out(mixture.variance.clamp(min=0), mean)
    variance = torch.where(constant[:, None], 0, variance)
    return Posterior(mean * size[:, None], variance.sqrt() * size[:, None], away)


@dataclass(frozen=True)
class _Given:
    """The quantities of each column that all hyper-parameters share."""

    total: Tensor
    prior: Tensor
    trust: Trust
    distance: bool

    def of(self, columns: Tensor | slice) -> _Given:
        """Select some of the columns."""
        return replace(self, total=self.total[columns], prior=self.prior[columns])


@dataclass(frozen=True)
class _Mixture:
    """Moments of R over a part of the hyper-parameters, and the log of how probable this part is."""

    mean: Tensor  # (columns, players)
    variance: Tensor
    evidence: Tensor  # (columns,)
    distance: Distance | None

    @staticmethod
    def of(parts: list[_Mixture]) -> _Mixture:
        """Put all parts together."""
        means, variances = (torch.stack([getattr(part, name) for part in parts], 1) for name in ("mean", "variance"))
        evidence = torch.stack([part.evidence for part in parts], 1)
        return _Mixture.over(means, variances, evidence, _joined(parts, 1))

    @staticmethod
    def over(means: Tensor, variances: Tensor, logs: Tensor, distance: Distance | None) -> _Mixture:
        """Average over dimension 1, with weights proportional to exp(logs)."""
        weights = logs.softmax(1)[:, None]
        mean = weights @ means
        variance = weights @ (variances + (means - mean) ** 2)
        return _Mixture(mean[:, 0], variance[:, 0], logs.logsumexp(1), distance)

    @staticmethod
    def beside(parts: list[_Mixture]) -> _Mixture:
        """Put columns side by side."""
        mean, variance, evidence = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("mean", "variance", "evidence")
        )
        return _Mixture(mean, variance, evidence, _joined(parts, 0))

    def spread(self, columns: Tensor) -> _Mixture:
        """Make it a part of all columns, without weight in the others."""
        evidence = torch.full(columns.shape, -torch.inf, dtype=self.evidence.dtype)
        mean = torch.zeros(len(columns), self.mean.shape[1], dtype=self.mean.dtype)
        variance = torch.zeros_like(mean)
        evidence[columns], mean[columns], variance[columns] = self.evidence, self.mean, self.variance
        return _Mixture(mean, variance, evidence, None if self.distance is None else self.distance.among(columns))


def _joined(parts: list[_Mixture], dimension: int) -> Distance | None:
    there = [part.distance for part in parts if part.distance is not None]
    return Distance.cat(there, dimension) if there else None


def _mixture(summary: PairSummary, given: _Given, covariance: Covariance | None) -> _Mixture:
    """Averaged over a, some columns at a time; without a covariance, for players all alike."""
    design = summary.design
    pseudo, players = design.matrix.shape
    at_once = max(1, _NUMBERS_AT_ONCE // (players * max(pseudo, len(_SIGNAL))))
    parts = []
    for start in range(0, max(1, len(given.total)), at_once):
        part = slice(start, start + at_once)
        directions = design.flat if covariance is None else design.directions(covariance.of(part))
        parts.append(_averaged(summary.of(part), directions, given.of(part)))
    return _Mixture.beside(parts)


def _likely_mixture(
    regression: Regression, y: Tensor, sums: Tensor, given: _Given, covariances: list[Covariance], evidence: Tensor
) -> _Mixture:
    """For each column, over the interactions that it is likely to have; without weight where it has none."""
    none = torch.zeros(1, given.prior.shape[1], dtype=given.prior.dtype)
    parts = []
    for column in range(len(given.total)):
        at = slice(column, column + 1)
        own = [
            _mixture(summary, given.of(at), covariance and covariance.of(at))
            for summary in regression.own_summaries(y[:, at], sums[:, column], evidence[:, column])
            for covariance in (None, *covariances)
        ]
        parts.append(_Mixture.of(own) if own else _Mixture(none, none, none[:, 0] - torch.inf, None))
    return _Mixture.beside(parts)


def _averaged(summary: PairSummary, directions: Directions, given: _Given) -> _Mixture:
    """Average over a: in these directions C is diagonal for every a. Indices: column, a, direction k, player p."""
    design, values, trust = summary.design, directions.values, given.trust
    additive, white = directions.additive, directions.white
    gap = (given.total - given.prior.sum(1))[:, None]
    start = given.prior + directions.share * gap
    residual = directions.along(summary.values.T - start @ design.matrix.T)  # ck
    a = _SIGNAL * design.freedom / values.sum(1, keepdim=True)  # ca
    shrink = 1 / (1 + a[..., None] * values[:, None])  # cak
    squares = summary.rest[:, None] + (shrink * residual[:, None].square()).sum(2)
    log_determinant, freedom = design.log_determinant - shrink.log().sum(2), design.freedom
    if trust.gap is not None:
        expected = trust.gap * a * directions.total
        squares, log_determinant, freedom = squares + gap**2 / expected, log_determinant + expected.log(), freedom + 1
    squares = squares.clamp(min=torch.finfo(squares.dtype).tiny)
    logs = trust.log_density() - (log_determinant + freedom * squares.log()) / 2

    if not given.distance:  # which has the same choices for all columns
        possible = (logs > logs.amax(1, keepdim=True) + _IMPOSSIBLE).any(0)
        a, shrink, squares, logs = a[:, possible], shrink[:, possible], squares[:, possible], logs[:, possible]
    weighted = shrink * residual[:, None]
    means = (start + summary.shift)[:, None] + a[..., None] * (weighted @ additive) + weighted @ white
    explained = a[..., None] ** 2 * (shrink @ additive**2) + 2 * a[..., None] * (shrink @ (additive * white))
    # of the white part, `unknown` has the reduction for a = 0 already
    variances = a[..., None] * directions.before[:, None] - explained + design.unknown + (1 - shrink) @ white**2
    variances = variances * (squares / (freedom - 2))[..., None]
    distance = Distance.of(given.prior, means, variances, logs, freedom) if given.distance else None
    return _Mixture.over(means, variances, logs, distance)


@dataclass(frozen=True)
class Distance:
    """The distribution of Q = Σ(numbers − R)²: log-normal for each choice of the hyper-parameters, whose probabilities
    have the given logs. All are (columns, choices)."""

    mean: Tensor
    variance: Tensor
    unknown: Tensor  # the part of the mean that is the variance of R
    logs: Tensor

    @staticmethod
    def of(numbers: Tensor, means: Tensor, variances: Tensor, logs: Tensor, freedom: int) -> Distance:
        """Return the moments of Q from those of R (columns, choices, players), as if players were independent given
        σ², which is known from so many degrees of freedom."""
        away, variances = (numbers[:, None] - means).square(), variances.clamp(min=0)
        unknown = variances.sum(2)
        spread = 2 * variances.square().sum(2) + 4 * (away * variances).sum(2) + 2 * unknown**2 / max(1, freedom - 4)
        return Distance(away.sum(2) + unknown, spread, unknown, logs)

    @staticmethod
    def cat(parts: list[Distance], dimension: int) -> Distance:
        """Put columns (dimension 0) or choices (1) together."""
        names = [field.name for field in fields(Distance)]
        return Distance(*(torch.cat([getattr(part, name) for part in parts], dimension) for name in names))

    def times(self, size: Tensor) -> Distance:
        """Return the distance for numbers and values in another unit, column by column."""
        square = size[:, None] ** 2
        return Distance(self.mean * square, self.variance * square**2, self.unknown * square, self.logs)

    def among(self, columns: Tensor) -> Distance:
        """Make it a part of all columns, without weight in the others."""

        def spread(values: Tensor, others: float) -> Tensor:
            result = torch.full((len(columns), values.shape[1]), others, dtype=values.dtype)
            result[columns] = values
            return result

        return Distance(
            spread(self.mean, 0), spread(self.variance, 0), spread(self.unknown, 0), spread(self.logs, -torch.inf)
        )

    def quantile(self, probability: float) -> Tensor:
        """Return the number that Q is below with a probability, (columns,)."""
        mean = self.mean.clamp(min=torch.finfo(self.mean.dtype).tiny)
        spread = (self.variance.sqrt() / mean).square().log1p().sqrt().clamp(min=1e-6)
        centre = mean.log() - spread**2 / 2
        weights = self.logs.softmax(1)
        low, high = (torch.where(weights > 0, centre + side * 10 * spread, side * -torch.inf) for side in (-1, 1))
        low, high = low.amin(1), high.amax(1)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = (weights * torch.special.ndtr((middle[:, None] - centre) / spread)).sum(1) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return high.exp()

    def scales(self, number: int, generator: torch.Generator) -> Tensor:
        """Draw by how much the variance of R is larger or smaller than its mean over all choices, (columns, number)."""
        weights = self.logs.softmax(1)
        mean = (weights * self.unknown).sum(1, keepdim=True)
        drawn = self.unknown.gather(1, torch.multinomial(weights, number, replacement=True, generator=generator))
        return torch.where(mean > 0, drawn / mean, 0)
