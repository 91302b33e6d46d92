"""Covariances of what is not additive in a game: interactions that leave every Shapley value zero.

Pairs of coalitions see only interactions of odd order. The third is the first of them, and shows in two ways, each a
Gaussian process over coalitions with unit weights, so that it depends on the design alone:

    cubic    ψ_T = χ_T − (σ_i + σ_j + σ_k)/3  for every T = {i, j, k},  σ = ±1 in and out of S,  χ_T = σ_iσ_jσ_k
    slopes   h_j(s) z_i,  h_j = cos(2πjs/N) + 1/(N−1):  a player's contribution changes with the coalition's size

(Σ_s h_j(s) = 0, so that slopes average out.) The slopes are part of the cubic term already, but too weak there. Both
are zero mean over the design in the sense of the Shapley value: they describe the noise, never the answer.
"""

from __future__ import annotations

from math import comb, pi

import torch
from torch import Tensor

from dasp.attribution.bayesian.pairs import Pairs

__all__ = ["feature_count", "features", "kernel", "size_means", "slopes"]

_MOST_CUBIC = 30  # players: C(30, 3) = 4,060 features
_HARMONICS = 2
_SLOPES = 0.2  # the variance of slopes relative to that of cubic terms: 0.1 to 0.5 in the networks it was measured on


def size_means(pairs: Pairs) -> Tensor:
    """sin(πj(2s/N − 1)), (pairs, J): the mean of y by size, which is odd about N/2 and has no Shapley value. The more
    pairs, the more waves."""
    waves = min(4, len(pairs) // 24, (pairs.players - 1) // 2)
    j = torch.arange(1, waves + 1, dtype=torch.float64)
    return torch.sin(pi * j * (2 * pairs.sizes[:, None] / pairs.players - 1))


def feature_count(players: int) -> int:
    """How many features there are."""
    return _HARMONICS * players + (comb(players, 3) if players <= _MOST_CUBIC else 0)


def features(pairs: Pairs, part: slice = slice(None)) -> Tensor:
    """The interactions by themselves, (pairs, features), for parts of the design; their scale is that of all of it."""
    n, own = pairs.players, slopes(pairs, part)
    if n > _MOST_CUBIC:
        return own
    result = torch.empty(len(own), feature_count(n), dtype=own.dtype)
    result[:, : own.shape[1]] = own
    sign = 2 * pairs.members[part].double() - 1
    _triples(sign, _scales(pairs)[0], out=result[:, own.shape[1] :])
    return result


def slopes(pairs: Pairs, part: slice = slice(None)) -> Tensor:
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
    """features·featuresᵀ, (pairs, pairs), from overlaps alone."""
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
