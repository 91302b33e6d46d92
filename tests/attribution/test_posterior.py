"""The design of BayesianShapley, and its regression against textbook Gaussian conditioning."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dasp.attribution.bayesian import posterior as posterior_module
from dasp.attribution.bayesian import process
from dasp.attribution.bayesian.design import Pairs, pair_count, shapley_weights
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.process import Process, Regressions
from dasp.attribution.bayesian.regression import (
    Covariance,
    Regression,
    feature_count,
    features,
    kernel,
    size_means,
)


def enumerated(function, x):
    """Shapley values of one row and a zero baseline, by all orders of the players."""
    players = len(x)
    total = torch.zeros(players, dtype=x.dtype)
    orders = list(itertools.permutations(range(players)))
    for order in orders:
        present = torch.zeros_like(x)
        for player in order:
            before = function(present[None])[0]
            present = present.clone()
            present[player] = x[player]
            total[player] += (function(present[None])[0] - before).detach().reshape(())
    return total / len(orders)


# The design


@pytest.mark.parametrize("players", [2, 3, 4, 7, 8])
def test_all_pairs_are_all_coalitions(players):
    pairs = Pairs.draw(players, 10**6, seed=3)
    assert len(pairs) == pair_count(players)
    codes = (pairs.members.long() << torch.arange(players)).sum(1).tolist()
    assert {*codes, *(2**players - 1 - code for code in codes)} == set(range(1, 2**players - 1))


@pytest.mark.parametrize("players", [3, 5, 6])
def test_weights_of_pairs_give_shapley_values(players):
    values = torch.randn(2**players, dtype=torch.float64)

    def game(present):
        return values[(present.long() << torch.arange(players)).sum(1)]

    pairs = Pairs.draw(players, 10**6, seed=0)
    y = (game(pairs.members) - game(~pairs.members)) / 2
    result = (values[-1] - values[0]) / players + (pairs.weights * y) @ pairs.centred()
    torch.testing.assert_close(result, enumerated(game, torch.ones(players, dtype=torch.float64)))


@pytest.mark.parametrize(("players", "number"), [(9, 200), (40, 500), (300, 700), (5000, 20)])
def test_longer_designs_begin_with_shorter_ones_and_repeat_nothing(players, number):
    pairs, first = (Pairs.draw(players, n, seed=5) for n in (number, number // 3))
    assert torch.equal(pairs.members[: number // 3], first.members)
    assert len(torch.unique(pairs.members, dim=0)) == number
    assert not torch.equal(pairs.members, Pairs.draw(players, number, seed=6).members)
    assert int(pairs.sizes.max()) <= players // 2


def test_sizes_are_even():
    counts = torch.bincount(Pairs.draw(100, 1000, seed=0).sizes.long(), minlength=51)[1:]
    assert bool(((counts[:-1] - 20.2).abs() <= 3).all())  # 1000 / 49.5
    assert abs(int(counts[-1]) - 10) <= 3


def test_players_are_even():
    share = Pairs.draw(200, 4000, seed=0).centred().mean(0)
    assert float(share.abs().max()) < 5 * math.sqrt(1 / 6 / 4000)  # variance s(N−s)/N² over sizes is 1/6


# Interactions


@pytest.mark.parametrize(("players", "number"), [(4, 5), (5, 15), (9, 60), (40, 30)])
def test_kernel_is_the_product_of_features(players, number):
    pairs = Pairs.draw(players, number, seed=0)
    by_features = features(pairs)
    assert by_features.shape[1] == feature_count(players)
    torch.testing.assert_close(kernel(pairs), by_features @ by_features.T)
    torch.testing.assert_close(features(pairs, slice(2, 4)), by_features[2:4])


def test_interactions_and_size_means_have_no_shapley_value():
    pairs = Pairs.draw(9, 10**6, seed=0)
    project = pairs.weights[:, None] * pairs.centred()
    for noise in (features(pairs), size_means(pairs)):
        assert noise.shape[1] > 0
        assert float((project.T @ noise).abs().max()) < 1e-14


# The regression


def dense_posterior(pairs, y, total, prior, covariances, trust):
    """The same model by textbook Gaussian conditioning, one hyper-parameter at a time, with dense matrices."""
    n, m = pairs.players, len(pairs)
    z = pairs.centred()
    y = y - (pairs.sizes / n - 0.5) * total
    noise = pairs.sizes * (n - pairs.sizes)
    unit = (1 / noise).mean()
    s = torch.arange(1, n // 2 + 1).double()
    counts = torch.tensor([math.comb(n, int(k)) // (2 if 2 * k == n else 1) for k in s], dtype=torch.float64)
    white = (shapley_weights(n) ** 2 * counts * s * (n - s) * unit * s * (n - s)).sum() / n**2
    means = size_means(pairs)
    ones = torch.ones(n, dtype=torch.float64)
    logs, centres, variances = [], [], []
    for covariance in covariances:
        root = covariance.scale[0].sqrt()
        t = torch.diag(root**2) if covariance.correlation is None else root[:, None] * covariance.correlation * root
        common = torch.outer(t @ ones, t @ ones) / t.sum()
        start = prior + t @ ones * (total - prior.sum()) / t.sum()
        before = None if trust.gap is None else t + (trust.gap - 1) * common
        t = t - common
        for strength in Regression.on(pairs).strengths:
            v = torch.diag(noise * unit) + strength * unit * kernel(pairs)
            inverse = torch.linalg.inv(v)
            inner = means.T @ inverse @ means
            projected = inverse - inverse @ means @ torch.linalg.inv(inner) @ means.T @ inverse
            scale = (z @ t @ z.T @ projected).trace() / (m - means.shape[1])
            for signal, log_density in zip(posterior_module._SIGNAL, trust.log_density(), strict=True):
                a = signal / scale
                c = v + a * z @ t @ z.T
                inverse = torch.linalg.inv(c)
                inner = means.T @ inverse @ means
                precision = inverse - inverse @ means @ torch.linalg.inv(inner) @ means.T @ inverse
                residual = y - z @ start
                freedom = m - means.shape[1]
                cross = a * t @ z.T + (pairs.weights * noise * unit)[:, None].T * z.T
                centre, covariance_before = start, a * t
                if before is not None:  # Σβ is observed like all else, without noise
                    centre, covariance_before, freedom = prior, a * before, freedom + 1
                    seen = torch.cat([z, ones[None]])
                    c = seen @ covariance_before @ seen.T + torch.block_diag(v, torch.zeros(1, 1))
                    inverse = torch.linalg.inv(c)
                    padded = torch.cat([means, torch.zeros(1, means.shape[1])])
                    inner = padded.T @ inverse @ padded
                    precision = inverse - inverse @ padded @ torch.linalg.inv(inner) @ padded.T @ inverse
                    residual = torch.cat([y - z @ prior, (total - prior.sum())[None]])
                    of_white = torch.cat([(pairs.weights * noise * unit)[:, None] * z, torch.zeros(1, n)])
                    cross = covariance_before @ seen.T + of_white.T
                square = residual @ precision @ residual
                logs.append(log_density - (torch.logdet(c) + torch.logdet(inner) + freedom * square.log()) / 2)
                centres.append(centre + cross @ precision @ residual)
                variance = covariance_before.diagonal() + white - (cross @ precision * cross).sum(1)
                variances.append(variance * square / (freedom - 2))
    weights = torch.stack(logs).softmax(0)[:, None]
    mean = (weights * torch.stack(centres)).sum(0)
    return mean, (weights * (torch.stack(variances) + (torch.stack(centres) - mean) ** 2)).sum(0).sqrt()


@pytest.mark.parametrize(
    ("players", "number"),
    [(40, 20), (40, 60), (40, 120), (7, 30), (7, 55), (8, 120)],
    ids=["fewer than players", "fewer than features", "more", "cubic", "cubic, more", "cubic, nearly all"],
)
@pytest.mark.parametrize("gap", [None, 4.0])
def test_posterior_is_gaussian_conditioning(players, number, gap, monkeypatch):
    monkeypatch.setattr(posterior_module, "_NEGLIGIBLE", -1.0)  # no component is left out
    monkeypatch.setattr(posterior_module, "_SIGNAL", torch.logspace(-3, 3, 7, dtype=torch.float64))
    torch.manual_seed(players)
    pairs = Pairs.draw(players, number, seed=1)
    y, prior = torch.randn(number, 3).double(), torch.randn(3, players).double()
    total, scale = torch.randn(3).double(), torch.rand(3, players).double() + 0.1
    places = torch.arange(players)[:, None].double()
    near = torch.exp(-torch.cdist(places, places))
    covariances = [Covariance.flat(players), Covariance(scale), Covariance(scale, near)]
    trust = Trust(0.1, 2, gap)
    known = posterior(Regression.on(pairs), y, total, prior, covariances[1:], trust)
    mean, deviation = known.mean, known.deviation
    for i in range(3):
        own = [covariance.of(slice(i, i + 1)) for covariance in covariances]
        wanted = dense_posterior(pairs, y[:, i], total[i], prior[i], own, trust)
        torch.testing.assert_close(mean[i], wanted[0], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(deviation[i], wanted[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("players", [5, 8, 10])
def test_all_pairs_give_the_exact_values_whatever_the_prior(players):
    """Not a special case: the noise is part of the game, and nothing of it is left."""
    torch.manual_seed(0)
    pairs = Pairs.draw(players, 10**6, seed=0)
    y, total, prior = torch.randn(len(pairs), 2).double(), torch.randn(2).double(), torch.randn(2, players).double()
    known = posterior(Regression.on(pairs), y, total, prior, [], Trust(0.1, 2))
    mean, deviation = known.mean, known.deviation
    exact = total[:, None] / players + (pairs.weights[:, None] * y).T @ pairs.centred()
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-10)
    assert float(deviation.max()) < 1e-5


def test_regressions_are_kept_as_far_as_there_is_room(monkeypatch):
    kept = Regressions()
    pairs = kept.pairs(6, 20, seed=0, opening=False)
    assert kept.pairs(6, 20, seed=0, opening=False) is pairs
    stages = [kept.on(pairs.first(number), seed=0, opening=False) for number in (5, 10, 20)]
    again = [kept.on(pairs.first(number), seed=0, opening=False) for number in (5, 10, 20)]
    assert all(x is y for x, y in zip(stages, again, strict=True))
    assert stages[-1].pairs is pairs
    # One too many for the room: it is made anew every time, but those that are there stay.
    monkeypatch.setattr(process, "_MOST_KEPT", sum(each.numbers for each in stages))
    assert kept.on(pairs.first(15), seed=0, opening=False) is not kept.on(pairs.first(15), seed=0, opening=False)
    assert kept.on(pairs.first(10), seed=0, opening=False) is stages[1]
    # Another game drives them out.
    other = kept.pairs(6, 20, seed=1, opening=False)
    assert not torch.equal(other.members, pairs.members)
    replaced = kept.on(other, seed=1, opening=False)
    assert kept.on(other, seed=1, opening=False) is replaced
    assert kept.on(pairs, seed=0, opening=False) is not stages[-1]


def storage(thing, seen):
    """Bytes of all tensors within, each storage once."""
    if isinstance(thing, torch.Tensor):
        place = thing.untyped_storage()
        fresh = place.data_ptr() not in seen
        seen.add(place.data_ptr())
        return place.nbytes() if fresh else 0
    if isinstance(thing, (list, tuple)):
        return sum(storage(part, seen) for part in thing)
    return sum(storage(part, seen) for part in vars(thing).values()) if hasattr(thing, "__dict__") else 0


@pytest.mark.parametrize(
    ("players", "number"), [(300, 20), (300, 250), (40, 60), (40, 5000), (20, 800), (20, 2000), (100, 3000)]
)
def test_the_size_of_a_regression(players, number):
    prepared = Regression.on(Pairs.draw(players, 2 * number, seed=0).first(number))
    posterior(prepared, torch.randn(number, 1).double(), torch.ones(1).double(), torch.zeros(1, players).double(), [],
              Trust(0.1, 2))  # fmt: skip
    real = storage(prepared, set()) / 8
    assert 0.9 * real < prepared.numbers < 1.3 * real


@pytest.mark.parametrize(("players", "number"), [(12, 12), (12, 100), (30, 29), (30, 200), (60, 31), (64, 127)])
def test_the_size_of_a_process(players, number):
    pairs = Pairs.draw(players, number, seed=0, opening=True)
    regression = Process(pairs)
    y, total = torch.randn(2, number, 1).double(), torch.ones(1).double()
    posterior(regression, y[0], total, torch.zeros(1, players).double(), [], Trust(10, 2), sums=y[1])
    real = storage(regression, set()) / 8
    assert 0.5 * real < regression.numbers < 2 * real


def test_copies_begin_empty_and_threads_do_not_disturb_each_other(monkeypatch):
    kept = Regressions()
    designs = [(Pairs.draw(6, number, seed), seed) for number in (5, 10, 20) for seed in range(3)]
    numbers = [kept.on(*design, opening=False).numbers for design in designs]
    assert len(pickle.dumps(kept)) < 200
    for copied in (copy.deepcopy(kept), pickle.loads(pickle.dumps(kept))):
        assert copied.on(*designs[0], opening=False) is not kept.on(*designs[0], opening=False)
    monkeypatch.setattr(process, "_MOST_KEPT", max(numbers))

    def check(i):
        pairs, seed = designs[i % len(designs)]
        assert torch.equal(kept.on(pairs, seed, opening=False).pairs.members, pairs.members)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(check, range(400)))


@pytest.mark.parametrize("number", [4, 20, 60, 400], ids=["few", "some", "more", "many"])
def test_a_regression_serves_any_values(number):
    torch.manual_seed(0)
    pairs = Pairs.draw(10, number, seed=0)
    total, prior = torch.randn(2).double(), torch.zeros(2, 10).double()
    shared = Regression.on(pairs)
    for _ in range(3):
        y = torch.randn(number, 2).double()
        own, again = (posterior(each, y, total, prior, [], Trust(0.1, 2)) for each in (Regression.on(pairs), shared))
        assert torch.equal(own.mean, again.mean)
        assert torch.equal(own.deviation, again.deviation)
