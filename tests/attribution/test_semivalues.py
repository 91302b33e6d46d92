"""Semivalues with standard deviations, against enumeration and textbook Gaussian conditioning on all coalitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from dasp.attribution.bayesian import semivalues
from dasp.attribution.bayesian.design import Pairs, pair_count
from dasp.attribution.bayesian.interaction_regression import mixed
from dasp.attribution.bayesian.semivalues import SemivalueRegression, banzhaf, beta_shapley

KINDS = {
    "banzhaf": lambda _: banzhaf(),
    "shapley": lambda n: beta_shapley(1, 1, n),
    "small coalitions": lambda n: beta_shapley(4, 1, n),
    "large coalitions": lambda n: beta_shapley(1, 2.5, n),
    "both ends": lambda n: beta_shapley(0.5, 0.5, n),
    "q = 0.3": lambda _: (torch.tensor([0.3]), torch.tensor([1.0])),
    "first and last": lambda _: (torch.tensor([0.0, 1.0]), torch.tensor([0.75, 0.25])),
}
SYMMETRIC = {"banzhaf", "shapley", "both ends"}


def coalitions(players):
    """All of them; the number of each is its bits."""
    return torch.tensor([[code >> j & 1 for j in range(players)] for code in range(2**players)]).bool()


def functional(players, nodes, weights):
    """The weight of every coalition in every value, (players, coalitions), by the definition."""
    result = torch.zeros(players, 2**players, dtype=torch.float64)
    for i, (code, row) in itertools.product(range(players), enumerate(coalitions(players).tolist())):
        if not row[i]:
            weight = sum(
                float(w) * math.prod(float(q if row[j] else 1 - q) for j in range(players) if j != i)
                for q, w in zip(nodes, weights, strict=True)
            )
            result[i, code] -= weight
            result[i, code | 1 << i] += weight
    return result


def seen(pairs, games):
    """Half differences and half sums of games (coalitions, columns), with those of everybody and nobody last."""
    powers = 2 ** torch.arange(pairs.players)
    codes = torch.cat([(pairs.members.long() * powers).sum(1), powers.sum()[None]])
    there, others = games[codes], games[2**pairs.players - 1 - codes]
    return (there - others) / 2, (there + others) / 2


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (4, 1), (1, 16), (0.5, 0.5), (0.3, 2.2), (1.5, 0.5)])
@pytest.mark.parametrize("players", [1, 2, 3, 8, 15])
def test_beta_shapley_has_the_moments_of_its_density(alpha, beta, players):
    """q is Beta(β, α), so that E[q^k (1−q)^l] is a ratio of Beta functions, for all degrees k + l below N."""
    nodes, weights = beta_shapley(alpha, beta, players)

    def log_beta(a, b):
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)

    for k in range(players):
        rest = players - 1 - k
        wanted = math.exp(log_beta(beta + k, alpha + rest) - log_beta(beta, alpha))
        assert float(weights @ (nodes**k * (1 - nodes) ** rest)) == pytest.approx(wanted, rel=1e-9)


def test_nodes_are_those_of_gauss_and_legendre():
    nodes, weights = beta_shapley(1, 1, 48)
    wanted, sizes = np.polynomial.legendre.leggauss(24)
    np.testing.assert_allclose(nodes, (1 + wanted) / 2, atol=1e-14)
    np.testing.assert_allclose(weights, sizes / 2, atol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("players", [2, 3, 4, 5, 7, 8])
def test_all_pairs_give_the_exact_values(players, kind):
    torch.manual_seed(players)
    nodes, weights = KINDS[kind](players)
    games = torch.randn(2**players, 3).double() + 5
    games[0, 1] += 40  # a jump
    pairs = Pairs.draw(players, pair_count(players), seed=0, opening=True)
    mean, deviation = SemivalueRegression(pairs, nodes, weights).posterior(*seen(pairs, games))
    torch.testing.assert_close(mean.T, functional(players, nodes, weights) @ games, rtol=0, atol=3e-6)
    assert float(deviation.max()) < 1e-3


def test_shapley_values_are_those_of_all_orders():
    torch.manual_seed(0)
    players, games = 5, torch.randn(32, 1).double()
    wanted = torch.zeros(players).double()
    for order in itertools.permutations(range(players)):
        code = 0
        for player in order:
            wanted[player] += games[code | 1 << player, 0] - games[code, 0]
            code |= 1 << player
    pairs = Pairs.draw(players, 15, seed=0)
    mean, _ = SemivalueRegression(pairs, *beta_shapley(1, 1, players)).posterior(*seen(pairs, games))
    torch.testing.assert_close(mean[0], wanted / math.factorial(players), rtol=0, atol=1e-6)


def covariance_of_games(players, order, rough, own):
    """Of all coalitions, from θ, ω and the variance of the lowest odd and even orders: a sum over all A, white values
    and what is left open. The scale of higher orders is 1 for every coalition."""
    sign = 2 * coalitions(players).double() - 1
    result = torch.zeros(2**players, 2**players, dtype=torch.float64)
    for lowest in (1, 2):
        strength = order / players
        scale = sum(math.comb(players, k) * strength**k for k in range(lowest + 2, players + 1, 2))
        for size in range(lowest, players + 1, 2):
            variance = own / math.comb(players, lowest) if size == lowest else (1 - rough) * strength**size / scale
            for chosen in itertools.combinations(range(players), size):
                product = sign[:, list(chosen)].prod(1)
                result += variance * torch.outer(product, product)
        turn = torch.eye(2**players).flip(0).double() * (-1) ** lowest
        jump = torch.zeros(2**players).double()
        jump[-1], jump[0] = 1, (-1) ** lowest
        result += (rough + semivalues._JITTER) * (torch.eye(2**players) + turn)
        result += semivalues._OPEN * (torch.outer(jump, jump) + (lowest - 1))
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("players", "number", "together"), [(5, 5, 0.0), (5, 11, 0.0), (6, 18, 0.0), (5, 11, 0.6)])
def test_posterior_is_gaussian_conditioning(players, number, kind, together, monkeypatch):
    monkeypatch.setattr(semivalues, "_TOGETHER", together)
    monkeypatch.setattr(semivalues, "_SHAPES", [(0.7, 0.1), (3.0, 1.0)])
    monkeypatch.setattr(semivalues, "_OWN", torch.tensor([0.5, 3.0, 100.0], dtype=torch.float64))
    torch.manual_seed(number)
    nodes, weights = KINDS[kind](players)
    pairs = Pairs.draw(players, number, seed=1, opening=True)
    values = seen(pairs, torch.randn(2**players, 2).double())
    mean, deviation = SemivalueRegression(pairs, nodes, weights).posterior(*values)
    values = values[0], values[1] - values[1].mean(0)
    by = functional(players, nodes, weights)
    rows = torch.stack(seen(pairs, torch.eye(2**players).double()))  # what is seen of a game
    found = []
    for parity, (turn, values_of) in enumerate(zip((-1, 1), values, strict=True)):
        half = (torch.eye(2**players) + turn * torch.eye(2**players).flip(0)).double() / 2  # the odd or even part
        parts = []
        for (order, rough), own in itertools.product(semivalues._SHAPES, semivalues._OWN.tolist()):
            prior = half @ covariance_of_games(players, order, rough, own) @ half.T
            covariance = rows[parity] @ prior @ rows[parity].T
            gain = by @ prior @ rows[parity].T @ torch.linalg.inv(covariance)
            squares = (values_of * torch.linalg.solve(covariance, values_of)).sum(0)
            freedom = number - parity
            left = (by @ prior @ by.T - gain @ rows[parity] @ prior @ by.T).diagonal().clamp(min=0)
            variance = left * (squares / max(1, freedom - 2))[:, None]
            before = -2 * math.log(1 + (math.log(own / 10) / 2) ** 2 / 3)
            evidence = before - (torch.logdet(covariance) + freedom * squares.log()) / 2
            parts.append(((gain @ values_of).T, variance, evidence))
        found.append(mixed(*map(torch.stack, zip(*parts, strict=True))))
    (odd, odd_variance), (even, even_variance) = found
    if kind in SYMMETRIC:  # half sums have no part in it
        assert float(even.abs().max()) < 1e-6
        assert float(even_variance.max()) < 1e-6
    torch.testing.assert_close(mean, odd + even, rtol=1e-5, atol=1e-6)
    variance = odd_variance + even_variance + 2 * together * (odd_variance * even_variance).sqrt()
    torch.testing.assert_close(deviation, variance.sqrt(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["banzhaf", "small coalitions"])
def test_intervals_hold_on_games_of_the_process(kind):
    """Games of eleven players with interactions of all orders, drawn by their coefficients."""
    players, games = 11, 60
    generator = torch.Generator().manual_seed(0)
    members = coalitions(players)
    sizes = members.sum(1)
    spread = (1.5 / players) ** (sizes / 2.0)
    spread[sizes == 1] *= 3
    values = torch.randn(2**players, games, generator=generator).double() * spread[:, None].double()
    for j in range(players):  # Σ_A c_A Π_{j∈A} z_j for all z, one player at a time
        values = values.view(2 ** (players - 1 - j), 2, 2**j, games)
        values = torch.stack([values[:, 0] - values[:, 1], values[:, 0] + values[:, 1]], 1).flatten(0, 2)
    nodes, weights = KINDS[kind](players)
    k = members.sum(1)
    q = nodes.double()[:, None]
    inside = (weights.double()[:, None] * q ** (k - 1) * (1 - q) ** (players - k)).sum(0)  # of a member
    outside = (weights.double()[:, None] * q**k * (1 - q) ** (players - 1 - k)).sum(0)
    truth = torch.where(members, inside[:, None], -outside[:, None]).T @ values
    pairs = Pairs.draw(players, 60, seed=0, opening=True)
    mean, deviation = SemivalueRegression(pairs, nodes, weights).posterior(*seen(pairs, values))
    errors = mean - truth.T
    assert 0.9 < float((errors.abs() < 1.96 * deviation).double().mean()) < 0.99
    assert 0.7 < float(errors.square().mean().sqrt() / deviation.square().mean().sqrt()) < 1.3
    assert float(errors.square().mean()) < 0.1 * float(truth.square().mean())


def test_columns_units_and_constants():
    torch.manual_seed(0)
    pairs = Pairs.draw(8, 40, seed=0, opening=True)
    regression = SemivalueRegression(pairs, *beta_shapley(4, 1, 8))
    games = torch.randn(2**8, 4).double()
    mean, deviation = regression.posterior(*seen(pairs, games))
    order = [2, 0, 3, 1]
    for turned in (regression.posterior(*seen(pairs, games[:, order])),
                   [torch.cat([regression.posterior(*seen(pairs, games[:, i, None]))[k] for i in order])
                    for k in range(2)]):  # fmt: skip
        torch.testing.assert_close(turned[0], mean[order], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(turned[1], deviation[order], rtol=1e-9, atol=1e-12)
    for unit in (1e-160, 1e160):
        scaled = regression.posterior(*seen(pairs, unit * games))
        torch.testing.assert_close(scaled[0] / unit, mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(scaled[1] / unit, deviation, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(regression.posterior(*seen(pairs, games + 100))[0], mean, rtol=0, atol=1e-9)
    nothing = regression.posterior(*seen(pairs, 0 * games + 7))
    assert float(nothing[0].abs().max()) == 0
    assert bool(nothing[1].isfinite().all())


def test_additive_games_have_the_same_values_whatever_the_semivalue():
    torch.manual_seed(0)
    own = torch.randn(9).double()
    games = (coalitions(9).double() @ own)[:, None]
    pairs = Pairs.draw(9, 30, seed=0, opening=True)
    for kind in KINDS.values():
        mean, deviation = SemivalueRegression(pairs, *kind(9)).posterior(*seen(pairs, games))
        assert bool(((mean[0] - own).abs() <= 1e-3 + 2 * deviation[0]).all())
        torch.testing.assert_close(mean[0], own, rtol=0, atol=0.02)


def test_the_numbers_it_keeps_are_counted():
    pairs = Pairs.draw(8, 40, seed=0)
    for kind, parts in (("banzhaf", ["_odd"]), ("small coalitions", ["_odd", "_even"])):
        regression = SemivalueRegression(pairs, *KINDS[kind](8))
        tensors = [x for name in parts for part in getattr(regression, name)._parts for x in vars(part).values()]
        real = sum({x.data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values()) / 8
        assert 0.9 * real < regression.numbers < 1.3 * real


def test_what_is_no_semivalue_is_said():
    pairs = Pairs.draw(4, 5, seed=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        SemivalueRegression(pairs, torch.tensor([1.5]), torch.tensor([1.0]))
    with pytest.raises(ValueError, match="sum to 1"):
        SemivalueRegression(pairs, torch.tensor([0.5]), torch.tensor([2.0]))
    with pytest.raises(ValueError, match="positive"):
        beta_shapley(0, 1, 5)
