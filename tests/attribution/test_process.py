"""The Gaussian process over coalitions, against sums over all interactions and textbook conditioning."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from dasp.attribution.bayesian import posterior as posterior_module
from dasp.attribution.bayesian import process
from dasp.attribution.bayesian.design import MOST_CHOSEN, Pairs, pair_count
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.process import Process, _profile, _Smooth, size_functions

FLAT = Trust(10, 2)


def opened(players, number=10**6, seed=0):
    return Pairs.draw(players, number, seed, opening=True)


def of_games(pairs, games):
    """Half differences, totals and half sums of games (coalitions, columns); bit j of a coalition is player j."""
    codes = (pairs.members.long() << torch.arange(pairs.players)).sum(1)
    there, others = games[codes], games[2**pairs.players - 1 - codes]
    return (there - others) / 2, games[-1] - games[0], (there + others) / 2


def estimated(pairs, games, regression=None, *, relevances=False):
    y, total, sums = of_games(pairs, games)
    prior = torch.zeros(len(total), pairs.players).double()
    regression = regression or Process(pairs)
    return posterior(regression, y, total, prior, [], FLAT, sums=sums if relevances else None)


def shapley(games):
    """Shapley values (columns, players) by the definition: over all coalitions without the player."""
    players = len(games).bit_length() - 1
    codes = torch.arange(2**players)
    sizes = torch.tensor([code.bit_count() for code in range(2**players)])
    weight = torch.tensor([1 / (players * math.comb(players - 1, k)) for k in range(players)], dtype=torch.float64)
    result = []
    for i in range(players):
        without = codes[codes >> i & 1 == 0]
        result.append(weight[sizes[without]] @ (games[without + 2**i] - games[without]))
    return torch.stack(result, 1)


def games_of(coefficients):
    """Σ_A c_A Π_{j∈A} z_j for all coalitions, one player at a time; bit j of A, and of a coalition, is player j."""
    players, values = len(coefficients).bit_length() - 1, coefficients
    for j in range(players):
        values = values.view(2 ** (players - 1 - j), 2, 2**j, -1)
        values = torch.stack([values[:, 0] - values[:, 1], values[:, 0] + values[:, 1]], 1).flatten(0, 2)
    return values


def odd_sets(players):
    return [list(chosen) for k in range(3, players + 1, 2) for chosen in itertools.combinations(range(players), k)]


def enumerated(pairs, relevances):
    """h̃ of every pair (pairs, sets) and R̃ of every player (players, sets), each times the root of Π_{j∈A} λ_j."""
    n, sets = pairs.players, odd_sets(pairs.players)
    sign = 2 * pairs.members.double() - 1
    spread = torch.stack([relevances[chosen].prod() for chosen in sets]).sqrt()
    there = torch.stack([sign[:, chosen].prod(1) for chosen in sets], 1) - sign.mean(1, keepdim=True)
    values = [[2 * (i in chosen) / len(chosen) - 2 / n for chosen in sets] for i in range(n)]
    return there * spread, torch.tensor(values, dtype=torch.float64) * spread


RELEVANCES = {
    "alike": lambda n: torch.full((n,), 0.2),
    "large": lambda n: torch.full((n,), 0.9),
    "unequal": lambda n: torch.linspace(0.02, 0.9, n),
}


@pytest.mark.parametrize("kind", RELEVANCES)
@pytest.mark.parametrize(("players", "number"), [(3, 3), (4, 7), (5, 8), (6, 31)])
def test_smooth_parts_are_sums_over_all_interactions(players, number, kind):
    pairs, relevances = opened(players, number), RELEVANCES[kind](players).double()
    smooth = _Smooth.of(pairs, relevances)
    there, values = enumerated(pairs, relevances)
    scale = (there @ there.T).diagonal().mean()
    torch.testing.assert_close(smooth.kernel, there @ there.T / scale, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(smooth.cross, there @ values.T / scale, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(smooth.variance, (values @ values.T).diagonal() / scale, rtol=1e-9, atol=1e-10)


def test_shapley_values_of_interactions():
    """What `enumerated` takes for granted: R_i = 2c_A/|A| for i ∈ A, if |A| is odd."""
    for chosen in odd_sets(5):
        coefficients = torch.zeros(32, 1).double()
        coefficients[sum(2**j for j in chosen)] = 1
        wanted = torch.tensor([2 / len(chosen) if i in chosen else 0 for i in range(5)], dtype=torch.float64)
        torch.testing.assert_close(shapley(games_of(coefficients))[0], wanted)


@pytest.mark.parametrize(
    ("players", "number"), [(5, 4), (5, 7), (5, 12), (6, 20)], ids=["fewer than players", "some", "more", "many"]
)
@pytest.mark.parametrize("kind", ["alike", "unequal"])
@pytest.mark.parametrize("profiled", [False, True])
def test_posterior_is_gaussian_conditioning(players, number, kind, profiled, monkeypatch):
    """On a vector of all interactions and of a white value for every pair, seen or not."""
    monkeypatch.setattr(posterior_module, "_SIGNAL", torch.logspace(-2, 3, 6, dtype=torch.float64))
    monkeypatch.setattr(process, "_PROFILED", 0 if profiled else 99)
    shapes = [(0.7, 0.05), (2.0, 0.4), (0.7, 1.0)]
    torch.manual_seed(number)
    pairs, every = opened(players, number, seed=1), opened(players, seed=1)
    relevances = torch.ones(players).double() if kind == "alike" else torch.linspace(0.3, 1.7, players).double()
    y, total = torch.randn(number, 2).double(), torch.randn(2).double()
    regression = Process(pairs, shapes, relevances)
    nothing = torch.zeros(2, players).double()
    found = posterior(regression, y, total, nothing, [], FLAT)

    residual = y - (pairs.sizes / players - 0.5)[:, None] * total
    means, alike = size_functions(pairs), torch.eye(players).double() - 1 / players
    freedom = number - means.shape[1]
    logs, centres, variances = [], [], []
    for order, rough in shapes:
        there, values = enumerated(pairs, relevances * order / players)
        scale = there.square().sum(1).mean()
        white = torch.eye(len(every)).double()[:number]  # a longer design begins with the shorter one
        seen = torch.cat([there * ((1 - rough) / scale).sqrt(), white * rough**0.5], 1)
        of_white = (every.weights[:, None] * every.centred()).T
        wanted = torch.cat([values * ((1 - rough) / scale).sqrt(), of_white * rough**0.5], 1)
        for decay in (0.0, *(process._PROFILES if profiled else ())):
            x = pairs.centred() * (_profile(pairs, decay) if decay else 1)
            noise = seen @ seen.T + process._JITTER * torch.eye(number)
            outer = x @ alike @ x.T
            unit = (outer @ projected(noise, means)).trace() / freedom
            for signal, log_density in zip(posterior_module._SIGNAL, FLAT.log_density(), strict=True):
                a = signal / unit
                covariance = noise + a * outer
                precision = projected(covariance, means)
                inner = means.T @ torch.linalg.inv(covariance) @ means
                cross = a * alike @ x.T + wanted @ seen.T
                squares = (residual * (precision @ residual)).sum(0)
                odds = -process._PROFILE_ODDS if decay else 0.0
                determinants = torch.logdet(covariance) + torch.logdet(inner)
                logs.append(odds + log_density - (determinants + freedom * squares.log()) / 2)
                centres.append(total[:, None] / players + (cross @ precision @ residual).T)
                before = (a * alike + wanted @ wanted.T).diagonal()
                left = before - (cross @ precision * cross).sum(1)
                variances.append(left * squares[:, None] / (freedom - 2))
    weights = torch.stack(logs).softmax(0)[..., None]
    mean = (weights * torch.stack(centres)).sum(0)
    variance = (weights * (torch.stack(variances) + (torch.stack(centres) - mean) ** 2)).sum(0)
    torch.testing.assert_close(found.mean, mean, rtol=1e-6, atol=1e-7)
    wider = regression.shared_out(variance, mean)
    torch.testing.assert_close(found.deviation, wider.sqrt(), rtol=1e-4, atol=1e-6)


def projected(covariance, means):
    """The inverse, without what the means can explain."""
    inverse = torch.linalg.inv(covariance)
    return inverse - inverse @ means @ torch.linalg.inv(means.T @ inverse @ means) @ means.T @ inverse


def test_variances_are_only_shared_out():
    torch.manual_seed(0)
    pairs, mean, variance = opened(8, 60), torch.randn(3, 8).double(), torch.rand(3, 8).double()
    alike = torch.ones(3, 8).double()
    out = Process(pairs).shared_out(alike, mean)
    torch.testing.assert_close(out.mean(1), process._WIDER * torch.ones(3).double())
    assert torch.equal(out.argmax(1), mean.abs().argmax(1))
    few = Process(pairs.first(9)).shared_out(variance, 0 * mean)
    torch.testing.assert_close(few, process._MUCH_WIDER * variance)


@pytest.mark.parametrize("players", [3, 4, 6, 7, 8])
@pytest.mark.parametrize("relevances", [False, True])
def test_all_pairs_give_the_exact_values(players, relevances):
    torch.manual_seed(players)
    games = torch.randn(2**players, 3).double()
    games[0, 1] += 30
    found = estimated(opened(players), games, relevances=relevances)
    torch.testing.assert_close(found.mean, shapley(games), rtol=0, atol=1e-8)
    assert float(found.deviation.max()) < 1e-3


@pytest.mark.parametrize(("players", "number"), [(8, 14), (15, 30), (40, 70)])
def test_a_jump_at_nobody_is_seen_for_what_it_is(players, number, monkeypatch):
    """A game that is the same for everyone but nobody has equal values."""
    pairs = opened(players, number)

    def known():
        y, total = torch.zeros(number, 1).double(), torch.ones(1).double()
        return posterior(Process(pairs), y, total, torch.zeros(1, players).double(), [], FLAT)

    torch.testing.assert_close(known().mean, torch.ones(1, players).double() / players, rtol=0, atol=1e-9)
    assert float(known().deviation.max()) < 1e-6
    monkeypatch.setattr(process, "_JUMP_FROM", math.inf)
    assert float(known().deviation.max()) > 1e-4


@pytest.mark.parametrize("players", [5, 8])
@pytest.mark.parametrize("decay", [0.5, 2.0])
def test_profiles_leave_values_as_they_are(players, decay):
    """The game z f(s) β has the values β, as all sizes count alike."""
    pairs = opened(players)
    profile = _profile(pairs, decay)
    assert float(profile.max() / profile.min()) > 1.1
    values = (pairs.weights[:, None] * profile * pairs.centred()).T @ pairs.centred()
    torch.testing.assert_close(values, torch.eye(players).double() - 1 / players)


def test_functions_of_the_size_have_no_shapley_value():
    pairs = opened(9)
    functions = size_functions(pairs)
    assert functions.shape[1] > 2
    others = functions - 2 * pairs.sizes[:, None] / 9 + 1  # less the jump, whose values are equal
    assert float(((pairs.weights[:, None] * pairs.centred()).T @ others).abs().max()) < 1e-13
    assert size_functions(pairs.first(13)).shape[1] == 0
    assert size_functions(pairs.first(14)).shape[1] == 1


@pytest.mark.parametrize("relevances", [False, True])
def test_columns_do_not_disturb_each_other(relevances):
    torch.manual_seed(0)
    pairs, games = opened(10, 60), torch.randn(2**10, 4).double() ** 3
    regression, order = Process(pairs), [2, 0, 3, 1]
    found = estimated(pairs, games, regression, relevances=relevances)
    turned = estimated(pairs, games[:, order], regression, relevances=relevances)
    torch.testing.assert_close(turned.mean, found.mean[order], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(turned.deviation, found.deviation[order], rtol=1e-8, atol=1e-10)
    for i in range(4):
        alone = estimated(pairs, games[:, i, None], regression, relevances=relevances)
        torch.testing.assert_close(alone.mean[0], found.mean[i], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(alone.deviation[0], found.deviation[i], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("unit", [1e-160, 1e-6, 1e160])
def test_units_do_not_matter(unit):
    torch.manual_seed(0)
    pairs, games = opened(8, 40), torch.randn(2**8, 2).double()
    regression = Process(pairs)
    found, scaled = (estimated(pairs, u * games, regression, relevances=True) for u in (1, unit))
    torch.testing.assert_close(scaled.mean / unit, found.mean, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(scaled.deviation / unit, found.deviation, rtol=1e-8, atol=1e-8)


def test_relevances_find_those_who_interact():
    """Three of twelve players interact in all ways, the others hardly."""
    generator = torch.Generator().manual_seed(0)
    players, games = 12, 16
    few = torch.randperm(players, generator=generator)[:3].tolist()
    coefficients = torch.zeros(2**players, games).double()
    for j in range(players):
        coefficients[2**j] = torch.randn(games, generator=generator).double()
    for chosen in ([*pair] for k in (2, 3) for pair in itertools.combinations(few, k)):
        coefficients[sum(2**j for j in chosen)] = 2 * torch.randn(games, generator=generator).double()
    values = games_of(coefficients)
    pairs, truth = opened(players, 60), shapley(values)
    alike, own = (estimated(pairs, values, relevances=relevances) for relevances in (False, True))
    errors = [(found.mean - truth).square().mean(1) for found in (alike, own)]
    assert float(errors[1].mean()) < 0.7 * float(errors[0].mean())
    assert float((errors[1] < errors[0]).double().mean()) > 0.7


def test_what_it_suits():
    assert Process.suits(opened(64, 20))
    assert not Process.suits(Pairs.draw(65, 20, seed=0))
    assert not Process.suits(Pairs.draw(20, MOST_CHOSEN + 1, seed=0))
    assert pair_count(11) == MOST_CHOSEN


@pytest.mark.parametrize("number", [16, 30, 100])
@pytest.mark.parametrize("order", [0.7, 2.0])
@pytest.mark.parametrize("relevances", [False, True])
def test_intervals_hold_on_games_of_the_process(number, order, relevances):
    """Games of ten players, drawn by their coefficients; the first order has a variance of its own."""
    players, games = 10, 40 if relevances else 150
    generator = torch.Generator().manual_seed(number)
    sizes = torch.tensor([code.bit_count() for code in range(2**players)])
    spread = (order / players) ** (sizes / 2)
    spread[sizes == 1] *= 2
    values = games_of(torch.randn(2**players, games, generator=generator).double() * spread[:, None].double())
    found, truth = estimated(opened(players, number), values, relevances=relevances), shapley(values)
    inside = (found.mean - truth).abs() < 1.96 * found.deviation
    assert 0.9 < float(inside.double().mean()) < 0.99
