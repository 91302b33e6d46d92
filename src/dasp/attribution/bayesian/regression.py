"""The regression on the values of some pairs of coalitions, reduced to the part of the regression that rows share.

With covariance V = ν + b·interactions of everything but β (see `posterior`), m pairs tell about β what no more than
min(m, N) pseudo-observations with independent noise of variance 1 do: values = A β + noise. For m ≤ N they are the
pairs themselves, whitened; for m > N they come from zᵀV⁻¹z and zᵀV⁻¹y. V⁻¹ is taken in the smaller of pairs and
interactions. All but the values depends on the pairs alone, and is most of the work: a `Regression` does it once.

**Directions.** With pseudo-observations A β + noise and β ~ N(·, aT), given Σβ, the covariance 1 + aATAᵀ of the
observations is diagonal in the eigenvectors of ATAᵀ, for every a at once.

**Interactions** are what is not additive in a game and leaves every Shapley value zero. Pairs of coalitions see only
interactions of odd order. The third is the first of them, and shows in two ways, each a Gaussian process over
coalitions with unit weights, so that it depends on the pairs alone:

    cubic    ψ_T = χ_T − (σ_i + σ_j + σ_k)/3  for every T = {i, j, k},  σ = ±1 in and out of S,  χ_T = σ_iσ_jσ_k
    slopes   h_j(s) z_i,  h_j = cos(2πjs/N) + 1/(N−1):  a player's contribution changes with the coalition's size

(Σ_s h_j(s) = 0, so that slopes average out.) The slopes are part of the cubic term already, but too weak there. Both
have zero mean over the pairs in the sense of the Shapley value: they describe the noise, never the answer.

**Likely interactions.** The half differences of pairs have the odd part of a game, which Shapley values are of; the
half sums

    (v(S) + v(Sᶜ))/2 = constant + Σ_{ij} b_ij σ_iσ_j + …

have the even part, which costs nothing more. Where two players interact, three do: the variance of the coefficient of

    ψ_T = χ_T − Σ_{i∈T} σ_i / |T|,      χ_T = Π_{i∈T} σ_i,      |T| = 3 or 5

is taken as the root of the weight of all trees on T, whose branches weigh a_ij = b_ij² + κ b_i² b_j² / Σb_k² each, with
b_i² = Σ_j b_ij². The most likely T are kept (`likely_sets`). As they come from other numbers than those that they
explain, nothing is fitted by choice, and error bars stay honest. ψ_T has no Shapley value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import comb, pi

import torch
from torch import Tensor

from dasp.attribution.bayesian.design import Pairs, log_counts

__all__ = [
    "Covariance", "Directions", "PairSummary", "Reduced", "ReducedDesign", "Regression", "white_variance",
]  # fmt: skip

_STRENGTHS = (0.0, 0.3, 1.0, 3.0, 10.0)  # b: variance of interactions relative to the white part
_FEW_STRENGTHS = (0.0, 3.0)  # where pairs are too few to tell more of them apart: coverage and errors are the same
_SINGULAR = 1e-12
_MOST_CUBIC = 30  # players: C(30, 3) = 4,060 features
_HARMONICS = 2
_SLOPES = 0.2  # the variance of slopes relative to that of cubic terms: 0.1 to 0.5 in the networks it was measured on
_MOST_PLAYERS = 64  # 2,016 interactions of two
_FEWEST_PAIRS = 1024  # with fewer, there is less to gain than the time that it takes for every row
_FEWEST_FOR_A_PLAYER = 8
_MOST_IN_FIVES = 20  # players: 15,504 sets
_FIFTH = 0.1  # variance of all interactions of five relative to those of three
_BACKGROUND = 0.2  # κ
_RIDGE = 30.0  # as if every interaction of two had been seen to be zero in so many pairs
_WAVES = 4  # of the mean by size
_MOST_SETS = 1500
_MOST_FEATURES_KEPT = 2**24  # numbers: 128 MB


@dataclass(frozen=True)
class Covariance:
    """A candidate for T = √t K √t: how the prior's errors are distributed."""

    scale: Tensor  # t, (columns, players), or (1, players) for all columns
    correlation: Tensor | None = None  # K, (players, players)

    @staticmethod
    def flat(players: int) -> Covariance:
        """Take all players as alike and independent."""
        return Covariance(torch.ones(1, players, dtype=torch.float64))

    def of(self, columns: Tensor | slice) -> Covariance:
        """Select some of the columns."""
        return self if len(self.scale) == 1 else Covariance(self.scale[columns], self.correlation)


@dataclass(frozen=True)
class Directions:
    """The directions in which pseudo-observations are independent. Indices: column c (one for all, where T is the
    same), direction k, player p."""

    values: Tensor  # eigenvalues of ATAᵀ, given Σβ (ck)
    vectors: Tensor | None  # of the observations, in columns (c, observation, k); None if these are the directions
    additive: Tensor  # covariance of each direction with β/a (ckp)
    white: Tensor  # and with the white part of R (ckp)
    before: Tensor  # the diagonal of T, given Σβ (cp)
    share: Tensor  # which part of a change of Σβ each player has (cp)
    total: Tensor  # the variance of Σβ/√a before it was given, 1ᵀT1 (c1)

    @staticmethod
    def orthogonal(matrix: Tensor, white: Tensor) -> Directions:
        """Return the directions of observations with AAᵀ diagonal and A1 = 0, for players who are all alike before."""
        share = torch.full((1, matrix.shape[1]), 1 / matrix.shape[1], dtype=matrix.dtype)
        values, total = matrix.square().sum(1)[None], 1 / share[:, :1]
        return Directions(values, None, matrix[None], white[None], 1 - share, share, total)

    @staticmethod
    def of(matrix: Tensor, white: Tensor, covariance: Covariance) -> Directions:
        """Return the directions from A (observations, players) and the covariance of the observations with the white
        part of R."""
        root = covariance.scale.sqrt()
        smooth, ones = matrix * root[:, None], root
        if covariance.correlation is not None:
            smooth, ones = smooth @ covariance.correlation, ones @ covariance.correlation
        smooth, ones = smooth * root[:, None], ones * root  # AT and T1
        total = ones.sum(1, keepdim=True)
        share = ones / total
        smooth = smooth - smooth.sum(2, keepdim=True) * share[:, None]
        values, vectors = torch.linalg.eigh(smooth @ matrix.T)
        before = covariance.scale - ones * share
        return Directions(values.clamp(min=0), vectors, vectors.mT @ smooth, vectors.mT @ white, before, share, total)

    def along(self, residual: Tensor) -> Tensor:
        """Return observations (columns, observations) in these directions."""
        return residual if self.vectors is None else (residual[:, None] @ self.vectors)[:, 0]


@dataclass(frozen=True)
class ReducedDesign:
    """The pseudo-observations for one strength of interactions, whatever their values."""

    matrix: Tensor  # A (k, players)
    white: Tensor  # covariance of the pseudo-observations with the white part of R (k, players)
    unknown: Tensor  # variance of the white part of R that the data do not reveal, if β was known (players,)
    log_determinant: float  # of V, on the complement of the size means
    freedom: int  # degrees of freedom of y without the size means
    flat: Directions  # what they tell of players who are all alike before

    def directions(self, covariance: Covariance) -> Directions:
        """Return what they tell of players whose values are distributed like that before."""
        return Directions.of(self.matrix, self.white, covariance)


@dataclass(frozen=True)
class PairSummary:
    """The values of some columns, summed up as pseudo-observations."""

    design: ReducedDesign
    values: Tensor  # (k, columns)
    rest: Tensor  # the squares of y that no β can explain (columns,)
    shift: Tensor  # the white part of R that these imply (columns, players)

    def of(self, columns: Tensor | slice) -> PairSummary:
        """Select some of the columns."""
        return replace(self, values=self.values[:, columns], rest=self.rest[columns], shift=self.shift[columns])

    def more_likely(self, odds: float) -> PairSummary:
        """Return the same, thought more likely beforehand by these odds, given as a logarithm."""
        return replace(self, design=replace(self.design, log_determinant=self.design.log_determinant - 2 * odds))


class Regression(ABC):
    """The regression on a design, prepared for any values.

    >>> regression = Regression.on(Pairs.draw(players=6, number=12, seed=0))
    >>> regression.summaries(torch.ones(12, 2).double())[0].values.shape  # Σz = 0: one direction less than players
    torch.Size([5, 2])
    """

    pairs: Pairs

    @staticmethod
    def on(pairs: Pairs) -> Regression:
        """Prepare it in the form that suits the number of pairs."""
        result = _SomePairs(pairs) if len(pairs) <= feature_count(pairs.players) else _ManyPairs(pairs)
        result.second = SecondOrder(pairs) if SecondOrder.suits(pairs) else None
        return result

    @abstractmethod
    def summaries(self, y: Tensor) -> list[PairSummary]:
        """Sum up the values (pairs, columns), once for each strength of the interactions."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""

    def shared_out(self, variance: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """Return the variances (columns, players) as they are distributed over players with these values."""
        return variance

    @property
    def chooses(self) -> bool:
        """True if there are interactions that a column may be likely to have by itself."""
        return False

    def own_summaries(self, y: Tensor, sums: Tensor, evidence: Tensor) -> list[PairSummary]:
        """Sum up the values (pairs, 1) of one column with interactions that its half sums (pairs,) make likely; none
        if they make none likely. The evidence of what `summaries` gave for the column may tell what to try."""
        raise NotImplementedError


class _Noisy(Regression):
    """White noise that is larger for coalitions of half the players, and the interactions of `_STRENGTHS`."""

    strengths: tuple[float, ...] = _STRENGTHS
    second: SecondOrder | None = None  # where there are enough pairs for what is beyond this regression

    def __init__(self, pairs: Pairs) -> None:
        n = pairs.players
        noise = pairs.sizes * (n - pairs.sizes)
        self.pairs = pairs
        self.unit = float((1 / noise).mean())  # the scale of ν: means nothing, but keeps numbers near 1
        self.noise = noise * self.unit
        self.variance = self.unit * float((_white_variances(n) * _noise(n)).sum())

    @property
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""
        shared = len(self.pairs) * (self.pairs.players // 8 + 4)
        return self._numbers() + shared + (self.second.numbers if self.second else 0)

    @abstractmethod
    def _numbers(self) -> int:
        """Count the numbers that it keeps for all strengths."""

    @property
    def chooses(self) -> bool:
        """True if there are enough pairs to choose by."""
        return self.second is not None

    def own_summaries(self, y: Tensor, sums: Tensor, evidence: Tensor) -> list[PairSummary]:  # noqa: ARG002
        """Sum up a column with the most likely interactions, for each of their strengths."""
        assert self.second is not None
        affinities = self.second.affinities(sums)
        if not float(affinities.sum()) > 0:
            return []
        return _LikelyInteractions(self.pairs, likely_sets(affinities, min(_MOST_SETS, len(sums)))).summaries(y)

    def _regressors(self, part: slice = slice(None)) -> Tensor:
        """Size means, z, and the covariance of y with the white part of R, side by side."""
        z = self.pairs.centred(part)
        return torch.cat([size_means(self.pairs)[part], z, (self.pairs.weights * self.noise)[part, None] * z], 1)


def _noise(players: int) -> Tensor:
    """s(N − s) for s = 1 … ⌊N/2⌋."""
    sizes = torch.arange(1, players // 2 + 1, dtype=torch.float64)
    return sizes * (players - sizes)


def _white_variances(players: int) -> Tensor:
    """Σ w² z_i² over all pairs of a size, for s = 1 … ⌊N/2⌋: 4/(s(N−s)L), a quarter of it at s = N/2."""
    fractions = torch.full((players // 2,), 4.0, dtype=torch.float64)
    if players % 2 == 0:
        fractions[-1] = 1
    return fractions * (-log_counts(players)).exp() / _noise(players)


def white_variance(players: int) -> float:
    """Return the variance of a Shapley value, if pairs have independent values of variance 1."""
    return float(_white_variances(players).sum())


class _SomePairs(_Noisy):
    """No more than interactions: from a root of V, (pairs, pairs)."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        if len(pairs) <= pairs.players:
            self.strengths = _FEW_STRENGTHS
        regressors, interactions = self._regressors(), kernel(pairs) * self.unit
        roots = [torch.linalg.cholesky(torch.diag(self.noise) + b * interactions) for b in self.strengths]
        self._reduced = [Reduced.of(root, regressors, self.variance, pairs) for root in roots]

    def _numbers(self) -> int:
        return sum(reduced.numbers for reduced in self._reduced)

    def summaries(self, y: Tensor) -> list[PairSummary]:
        """Sum up the values, see `Regression`."""
        return [reduced.summary(y) for reduced in self._reduced]


class _ManyPairs(_Noisy):
    """More than interactions F: V⁻¹ = ν⁻¹ − ν⁻¹F(1/b + Fᵀν⁻¹F)⁻¹Fᵀν⁻¹ (Woodbury)."""

    def __init__(self, pairs: Pairs) -> None:
        super().__init__(pairs)
        count = self._interactions(slice(1)).shape[1]
        products: Tensor | float = 0.0
        for part in self.pairs.slices():
            x = torch.cat([self._interactions(part), self._regressors(part)], 1) / self.noise[part, None].sqrt()
            products = products + _gram(x)
        assert isinstance(products, Tensor)
        ff, self._fx, xx = products[:count, :count], products[:count, count:].clone(), products[count:, count:]
        log_noise = float(self.noise.log().sum())
        self._parts = []
        for strength in self.strengths:
            root = torch.linalg.cholesky(torch.eye(count, dtype=ff.dtype) + strength * ff)
            x = _solve(root, strength**0.5 * self._fx)
            log_determinant = log_noise + _log_determinant(root)
            reduction = _Reduction.of(xx - x.T @ x, log_determinant, self.variance, pairs)
            self._parts.append((strength, root, reduction))

    def _numbers(self) -> int:
        return self._fx.numel() + len(self.strengths) * (len(self._fx) ** 2 + 3 * self.pairs.players**2)

    def _interactions(self, part: slice) -> Tensor:
        return features(self.pairs, part).mul_(self.unit**0.5)

    def summaries(self, y: Tensor) -> list[PairSummary]:
        """Sum up the values, see `Regression`."""
        weighted = y / self.noise[:, None]
        fy, xy = (
            torch.stack([regressors(part).T @ weighted[part] for part in self.pairs.slices()]).sum(0)
            for regressors in (self._interactions, self._regressors)
        )
        yy = (y * weighted).sum(0)
        result = []
        for strength, root, reduction in self._parts:
            z = _solve(root, strength**0.5 * fy)
            less = strength**0.5 * self._fx.T @ _solve(root.T, z, upper=True)
            result.append(reduction.summary(xy - less, yy - z.square().sum(0)))
        return result


class Reduced(ABC):
    """The way from the values of pairs to pseudo-observations, for one covariance V of everything but β."""

    @staticmethod
    def of(root: Tensor, regressors: Tensor, variance: Tensor | float, pairs: Pairs) -> Reduced:
        """Prepare it from V = root rootᵀ (pairs, pairs), the regressors (size means, z, and the covariance of y with
        the part of R that is not β, side by side) and the variance of that part."""
        x = _solve(root, regressors)
        if len(pairs) <= pairs.players:
            return _Whitened(root, x, variance, pairs)
        return _Projected(root, x, _Reduction.of(x.T @ x, _log_determinant(root), variance, pairs))

    @abstractmethod
    def summary(self, y: Tensor) -> PairSummary:
        """Sum up the values (pairs, columns)."""

    @property
    @abstractmethod
    def numbers(self) -> int:
        """The number of numbers that it keeps."""


class _Whitened(Reduced):
    """No more pairs than players: the whitened pairs themselves, without the size means."""

    def __init__(self, root: Tensor, x: Tensor, variance: Tensor | float, pairs: Pairs) -> None:
        means = x.shape[1] - 2 * pairs.players
        self.root = root
        self.basis, triangle = torch.linalg.qr(x[:, :means])
        matrix, white = (x - self.basis @ (self.basis.T @ x))[:, means:].tensor_split(2, 1)
        unknown = variance - white.square().sum(0)
        log_determinant = _log_determinant(root) + _log_determinant(triangle)
        flat = Directions.of(matrix, white, Covariance.flat(pairs.players))
        self.design = ReducedDesign(matrix, white, unknown, log_determinant, len(pairs) - means, flat)

    def summary(self, y: Tensor) -> PairSummary:
        nothing = torch.zeros(y.shape[1], dtype=y.dtype)
        x = _solve(self.root, y)
        return PairSummary(self.design, x - self.basis @ (self.basis.T @ x), nothing, nothing[:, None])

    @property
    def numbers(self) -> int:
        return 2 * self.root.numel() + 4 * self.design.matrix.numel()


@dataclass(frozen=True)
class _Projected(Reduced):
    """More pairs than players: products in the metric V⁻¹."""

    root: Tensor
    x: Tensor
    reduction: _Reduction

    def summary(self, y: Tensor) -> PairSummary:
        values = _solve(self.root, y)
        return self.reduction.summary(self.x.T @ values, values.square().sum(0))

    @property
    def numbers(self) -> int:
        return self.root.numel() + self.x.numel() + 3 * self.reduction.whiten.numel()


@dataclass(frozen=True)
class _Reduction:
    """The way from products in the metric V⁻¹ of regressors x with y to pseudo-observations, one for each direction of
    β; the size means, which come first in x, are projected out."""

    design: ReducedDesign
    root: Tensor  # of the products of the size means
    cross: Tensor  # their products with the other regressors, whitened
    whiten: Tensor

    @staticmethod
    def of(xx: Tensor, log_determinant: float, variance: Tensor | float, pairs: Pairs) -> _Reduction:
        """Make it from the products of the regressors with themselves."""
        n = pairs.players
        means = len(xx) - 2 * n
        root = torch.linalg.cholesky(xx[:means, :means])
        cross = _solve(root, xx[:means, means:])
        xx = xx[means:, means:] - cross.T @ cross
        precision, directions = torch.linalg.eigh(xx[:n, :n])
        seen = precision > _SINGULAR * precision[-1]
        whiten = (directions[:, seen] / precision[seen].sqrt()).T
        matrix, white = (whiten @ xx[:n]).tensor_split(2, 1)
        unknown = variance - xx[n:, n:].diagonal()
        flat = Directions.orthogonal(matrix, white)
        log_determinant += _log_determinant(root)
        design = ReducedDesign(matrix, white, unknown, log_determinant, len(pairs) - means, flat)
        return _Reduction(design, root, cross, whiten)

    def summary(self, xy: Tensor, yy: Tensor) -> PairSummary:
        """Sum up the products with y, and of y with itself."""
        means, n = len(self.root), self.cross.shape[1] // 2
        of_means = _solve(self.root, xy[:means])
        xy = xy[means:] - self.cross.T @ of_means
        values = self.whiten @ xy[:n]
        rest = (yy - of_means.square().sum(0) - values.square().sum(0)).clamp(min=0)
        return PairSummary(self.design, values, rest, (xy[n:] - self.design.white.T @ values).T)


def _solve(root: Tensor, x: Tensor, *, upper: bool = False) -> Tensor:
    return torch.linalg.solve_triangular(root, x, upper=upper)


def _log_determinant(root: Tensor) -> float:
    """The logarithm of the determinant of root rootᵀ."""
    return 2 * float(root.diagonal().abs().log().sum())


def size_means(pairs: Pairs) -> Tensor:
    """Return sin(πj(2s/N − 1)), (pairs, J): the mean of y by size, which is odd about N/2 and has no Shapley value.
    The more pairs, the more waves."""
    waves = min(4, len(pairs) // 24, (pairs.players - 1) // 2)
    j = torch.arange(1, waves + 1, dtype=torch.float64)
    return torch.sin(pi * j * (2 * pairs.sizes[:, None] / pairs.players - 1))


def feature_count(players: int) -> int:
    """Return the number of features for so many players."""
    return _HARMONICS * players + (comb(players, 3) if players <= _MOST_CUBIC else 0)


def features(pairs: Pairs, part: slice = slice(None)) -> Tensor:
    """Return the interactions themselves, (pairs, features), for a part of the pairs; their scale is that of all
    pairs."""
    n, own = pairs.players, _slopes(pairs, part)
    if n > _MOST_CUBIC:
        return own
    result = torch.empty(len(own), feature_count(n), dtype=own.dtype)
    result[:, : own.shape[1]] = own
    sign = 2 * pairs.members[part].double() - 1
    _triples(sign, _scales(pairs)[0], out=result[:, own.shape[1] :])
    return result


def _slopes(pairs: Pairs, part: slice = slice(None)) -> Tensor:
    """The slopes by themselves, (pairs, harmonics·players)."""
    z, wave = pairs.centred(part), _waves(pairs)[part]
    return (_scales(pairs)[1] * wave[:, :, None] * z[:, None]).flatten(1)


def _triples(sign: Tensor, scale: float, out: Tensor) -> None:
    """scale·ψ_T for all T = {i < j < k} in lexicographic order."""
    n = sign.shape[1]
    first, second = torch.triu_indices(n, n, 1)
    two = scale * sign[:, first] * sign[:, second]
    start = 0
    for i in range(n - 2):
        last = two[:, int((first <= i).sum()) :]  # all {j < k} behind i
        torch.mul(last, sign[:, i, None], out=out[:, start : start + last.shape[1]])
        start += last.shape[1]
    members = torch.zeros(n, start, dtype=sign.dtype)
    members.scatter_(0, torch.combinations(torch.arange(n), 3).T, 1.0)
    out.addmm_(sign, members, alpha=-scale / 3)


def kernel(pairs: Pairs) -> Tensor:
    """Return features·featuresᵀ, (pairs, pairs), from overlaps alone."""
    cubic, slope = _scales(pairs)
    z, wave = pairs.centred(), _waves(pairs)
    overlap = z @ z.T
    result = slope**2 * (wave @ wave.T) * overlap
    if pairs.players <= _MOST_CUBIC:
        total = 2 * pairs.sizes - pairs.players  # Σ_i σ_i
        product = 4 * overlap + total[:, None] * total / pairs.players  # Σ_i σ_iσ'_i
        result += cubic**2 * _cubic(product, total[:, None], total, pairs.players)
    return result


def _cubic(product: Tensor, total: Tensor, other: Tensor, n: int) -> Tensor:
    """Σ_T ψ_Tψ'_T from Σσ_iσ'_i, Σσ_i and Σσ'_i: products of three, of three with one, and of one with one."""
    three = product * (product**2 - 3 * n + 2) / 6
    mixed = product * (total**2 + other**2 + 4 - 2 * n) / 6 - 2 * total * other / 3
    one = (comb(n - 1, 2) * product + (n - 2) * (total * other - product)) / 9
    return three - mixed + one


def _waves(pairs: Pairs) -> Tensor:
    """h_j(s), (pairs, harmonics)."""
    j = torch.arange(1, _HARMONICS + 1, dtype=torch.float64)
    return torch.cos(2 * pi * j * pairs.sizes[:, None] / pairs.players) + 1 / (pairs.players - 1)


def _scales(pairs: Pairs) -> tuple[float, float]:
    """Factors that give cubic features the noise's variance s(N−s) on average, and slopes a share of it."""
    n, s = pairs.players, pairs.sizes
    noise = s * (n - s)
    total = 2 * s - n
    cubic = _cubic(torch.full_like(s, n), total, total, n).sum() if 3 <= n <= _MOST_CUBIC else torch.zeros(())
    slope = (_waves(pairs).square().sum(1) * s * (n - s) / n).sum()
    scale = noise.sum()
    return _ratio(scale, cubic), _ratio(_SLOPES * scale, slope)


def _ratio(wanted: Tensor, there: Tensor) -> float:
    """The factor that gives features a variance; 0 where there are none, as with two or three players."""
    return float((wanted / there).sqrt()) if there > 0 else 0.0


class SecondOrder:
    """Regression of half sums on all interactions of two; all but the sums depends on the pairs alone."""

    def __init__(self, pairs: Pairs) -> None:
        self.pairs = pairs
        self.weights = 1 / (pairs.sizes * (pairs.players - pairs.sizes))
        self.weights /= self.weights.mean()
        products = sum((_gram(self._regressors(part)) for part in self.pairs.slices()), start=torch.zeros(()))
        ridge = torch.full((len(products),), _RIDGE, dtype=products.dtype)
        ridge[: _WAVES + 1] = 1e-6  # the mean by size
        self.root = torch.linalg.cholesky(products + torch.diag(ridge))

    @staticmethod
    def suits(pairs: Pairs) -> bool:
        """True if there are enough pairs to learn from, and not too many players."""
        fewest = max(_FEWEST_PAIRS, _FEWEST_FOR_A_PLAYER * pairs.players)
        return 5 <= pairs.players <= _MOST_PLAYERS and len(pairs) >= fewest

    @property
    def numbers(self) -> int:
        """The number of numbers of eight bytes that it keeps."""
        return self.root.numel() + len(self.weights)

    def affinities(self, sums: Tensor) -> Tensor:
        """Return a_ij of one column of half sums, (players, players)."""
        players = self.pairs.players
        weighted = self.weights.sqrt() * (sums - sums.mean()) / (sums - sums.mean()).abs().max().clamp(min=1e-300)
        xy = torch.stack([self._regressors(part).T @ weighted[part] for part in self.pairs.slices()]).sum(0)
        squares = torch.cholesky_solve(xy[:, None], self.root)[_WAVES + 1 :, 0].square()
        first, second = torch.triu_indices(players, players, 1)
        result = torch.zeros(players, players, dtype=sums.dtype)
        result[first, second] = result[second, first] = squares
        each = result.sum(1)
        return result + _BACKGROUND * torch.outer(each, each) / each.sum().clamp(min=1e-300)

    def _regressors(self, part: slice) -> Tensor:
        """Waves over sizes and σ_iσ_j, times the root of the weights."""
        players = self.pairs.players
        wave = torch.cos(2 * pi * torch.arange(_WAVES + 1) * self.pairs.sizes[part, None] / players)
        sign = 2 * self.pairs.members[part].double() - 1
        first, second = torch.triu_indices(players, players, 1)
        return torch.cat([wave, sign[:, first] * sign[:, second]], 1) * self.weights[part, None].sqrt()


@dataclass(frozen=True)
class Sets:
    """Sets of players of one size, and the variances of their interactions."""

    members: Tensor  # (sets, size)
    variances: Tensor

    @staticmethod
    def of(players: Tensor, size: int, affinities: Tensor) -> Sets:
        """Return all sets of some players; the variances sum to 1."""
        members = players[torch.combinations(torch.arange(len(players)), size)]
        variances = _trees(affinities[members[:, :, None], members[:, None]]).sqrt()
        return Sets(members, variances / variances.sum().clamp(min=1e-300))

    def above(self, least: float, factor: float) -> Sets:
        """Keep those whose variance, times a factor, is at least this."""
        variances = factor * self.variances
        kept = variances >= least
        return Sets(self.members[kept], variances[kept])

    def features(self, pairs: Pairs, part: slice) -> Tensor:
        """Return √variance·ψ_T, (pairs, sets): it depends only on how many of T are in S."""
        size = self.members.shape[1]
        inside = torch.zeros(pairs.players, len(self.members), dtype=torch.float64)
        inside.scatter_(0, self.members.T, 1.0)
        number = torch.arange(size + 1)
        values = (-1.0) ** (size - number) - (2.0 * number - size) / size
        count = (pairs.members[part].double() @ inside).long()
        return values.double()[count] * self.variances.sqrt()


def _trees(weights: Tensor) -> Tensor:
    """The sum over all spanning trees of the products of their branches' weights (Kirchhoff), (sets, size, size)."""
    degrees = weights.sum(2) - weights.diagonal(dim1=1, dim2=2)
    laplacian = torch.diag_embed(degrees + weights.diagonal(dim1=1, dim2=2)) - weights
    return torch.linalg.det(laplacian[:, 1:, 1:]).clamp(min=0)


def likely_sets(affinities: Tensor, most: int) -> list[Sets]:
    """Return the sets of three and of five players with the largest variances."""
    players = affinities.sum(1).argsort(descending=True)
    threes = Sets.of(players.sort().values, 3, affinities)
    fives = Sets.of(players[:_MOST_IN_FIVES].sort().values, 5, affinities)
    every = torch.cat([threes.variances, _FIFTH * fives.variances])
    least = float(every.topk(min(most, len(every))).values[-1])
    return [threes.above(least, 1), fives.above(least, _FIFTH)]


def _gram(x: Tensor) -> Tensor:
    """xᵀx. NumPy sees that both are the same, and does half the work."""
    own = x.numpy()
    return torch.from_numpy(own.T @ own)


class _LikelyInteractions(_ManyPairs):
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
        result = torch.cat([_slopes(self.pairs, part), *chosen], 1).mul_(self.unit**0.5)
        if part.start is not None and len(self.pairs) * result.shape[1] <= _MOST_FEATURES_KEPT:
            self._kept[part.start] = result
        return result
