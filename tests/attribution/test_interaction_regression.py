"""Interactions of two players with standard deviations, against enumeration and textbook conditioning."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from dasp.attribution.bayesian import interaction_regression
from dasp.attribution.bayesian.design import Pairs
from dasp.attribution.bayesian.interaction_regression import InteractionRegression, mixed


def opened(players, number=10**6, seed=0):
    return Pairs.draw(players, number, seed, opening=True)


def half_sums(pairs, games, *, ends=True):
    """Of games (coalitions, columns), whose bit j is player j; with that of everybody and nobody last."""
    powers = 2 ** torch.arange(pairs.players)
    codes = torch.cat([(pairs.members.long() * powers).sum(1), powers.sum()[None]][: 1 + ends])
    return (games[codes] + games[2**pairs.players - 1 - codes]) / 2


def functional(players):
    """The weight of every coalition in the Shapley interaction index of every couple, (players, players, coalitions):
    v(S∪ij) − v(S∪i) − v(S∪j) + v(S), averaged over all sizes alike."""
    result = torch.zeros(players, players, 2**players, dtype=torch.float64)
    for i, j in itertools.permutations(range(players), 2):
        for code in range(2**players):
            if not (code >> i & 1 or code >> j & 1):
                weight = 1 / ((players - 1) * math.comb(players - 2, code.bit_count()))
                result[i, j, code] = result[i, j, code | 1 << i | 1 << j] = weight
                result[i, j, code | 1 << i] = result[i, j, code | 1 << j] = -weight
    return result


def signs(players):
    return torch.tensor([[2.0 * (code >> j & 1) - 1 for j in range(players)] for code in range(2**players)]).double()


@pytest.mark.parametrize("players", [4, 5, 6, 7, 8])
def test_all_pairs_give_the_exact_interactions(players):
    torch.manual_seed(players)
    games = torch.randn(2**players, 3).double() + 3
    games[0, 1] += 30
    found = InteractionRegression(opened(players)).posterior(half_sums(opened(players), games))
    wanted = torch.einsum("ijs,sc->cij", functional(players), games)
    torch.testing.assert_close(found.mean, wanted, rtol=0, atol=1e-6)
    assert float(found.deviation.max()) < 1e-3
    assert float(found.mean.diagonal(dim1=1, dim2=2).abs().max()) == 0
    assert torch.equal(found.deviation, found.deviation.mT)


@pytest.mark.parametrize("players", [2, 3, 4, 7])
def test_the_definition_by_half_sums(players):
    torch.manual_seed(players)
    games = torch.randn(2**players, 2).double()
    found = interaction_regression._exact(opened(players), half_sums(opened(players), games))
    torch.testing.assert_close(found.mean, torch.einsum("ijs,sc->cij", functional(players), games))
    assert float(found.deviation.max()) == 0


def covariance_of_games(players, order, rough, two, *, ends):
    """Of the half sums of all coalitions: a sum over all A, white values and what is left open."""
    sign, strength = signs(players), order / players
    scale = sum(math.comb(players, k) * strength**k for k in range(4, players + 1, 2))
    result = torch.full((2**players, 2**players), interaction_regression._OPEN, dtype=torch.float64)
    for size in range(2, players + 1, 2):
        variance = two / math.comb(players, 2) if size == 2 else (1 - rough) * strength**size / scale
        for chosen in itertools.combinations(range(players), size):
            product = sign[:, list(chosen)].prod(1)
            result += variance * torch.outer(product, product)
    same = torch.eye(2**players).double()
    jump = same[0] + same[-1]
    return (
        result
        + (rough + interaction_regression._JITTER) * (same + same.flip(0))
        + (interaction_regression._OPEN * ends * torch.outer(jump, jump))
    )


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(("players", "number"), [(5, 6), (5, 12), (6, 20)])
def test_posterior_is_gaussian_conditioning(players, number, ends):
    shapes = [(1.0, 0.2, 2.0), (2.0, 0.9, 10.0), (1.0, 1.0, 0.1)]
    torch.manual_seed(number)
    pairs = opened(players, number, seed=1)
    values = half_sums(pairs, torch.randn(2**players, 2).double(), ends=ends)
    found = InteractionRegression(pairs, ends=ends, shapes=shapes).posterior(values)
    values = values - values.mean(0)
    by = functional(players).flatten(0, 1)
    seen = half_sums(pairs, torch.eye(2**players).double(), ends=ends)
    parts = []
    for shape in shapes:
        prior = covariance_of_games(players, *shape, ends=ends)
        covariance, cross = seen @ prior @ seen.T, by @ prior @ seen.T
        squares = (values * torch.linalg.solve(covariance, values)).sum(0)
        freedom = len(values) - 1 - ends
        left = (by @ prior @ by.T).diagonal() - (torch.linalg.solve(covariance, cross.T).T * cross).sum(1)
        variance = left * (squares / (freedom - 2))[:, None]
        mean = (cross @ torch.linalg.solve(covariance, values)).T
        parts.append((mean, variance, -(torch.logdet(covariance) + freedom * squares.log()) / 2))
    mean, variance = mixed(*map(torch.stack, zip(*parts, strict=True)))
    torch.testing.assert_close(found.mean.flatten(1), mean, rtol=1e-5, atol=1e-6)
    first, second = torch.triu_indices(players, players, 1)
    couples = mean.unflatten(1, (players, players))[:, first, second]
    share = 1 + couples.square() / couples.square().mean(1, keepdim=True)  # more for those that are larger
    wider = interaction_regression._WIDER * share / share.mean(1, keepdim=True)
    variance = variance.unflatten(1, (players, players))[:, first, second] * wider
    torch.testing.assert_close(found.deviation[:, first, second], variance.clamp(min=0).sqrt(), rtol=1e-4, atol=1e-5)


def test_mixtures_have_the_moments_of_their_parts():
    torch.manual_seed(0)
    means, variances, evidence = torch.randn(3, 1, 2).double(), torch.rand(3, 1, 2).double(), torch.randn(3, 1).double()
    mean, variance = mixed(means, variances, evidence)
    which = torch.multinomial(evidence[:, 0].softmax(0), 200_000, replacement=True)
    drawn = means[which, 0] + variances[which, 0].sqrt() * torch.randn(len(which), 2).double()
    torch.testing.assert_close(mean[0], drawn.mean(0), rtol=0, atol=0.02)
    torch.testing.assert_close(variance[0], drawn.var(0), rtol=0.03, atol=0)


def drawn_games(players, games, order, seed):
    """Games of the process, (coalitions, columns), by their coefficients: interactions of two have five times the
    variance of all higher even orders, and white values a tenth of it."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.tensor([code.bit_count() for code in range(2**players)])
    spread = (order / players) ** (sizes.double() / 2)
    higher = spread[(sizes % 2 == 0) & (sizes > 2)].square().sum()
    spread[sizes == 2] = (5 * higher / math.comb(players, 2)).sqrt()
    values = torch.randn(2**players, games, generator=generator).double() * spread[:, None]
    for j in range(players):
        values = values.view(2 ** (players - 1 - j), 2, 2**j, games)
        values = torch.stack([values[:, 0] - values[:, 1], values[:, 0] + values[:, 1]], 1).flatten(0, 2)
    return values + (0.2 * higher).sqrt() * torch.randn(2**players, games, generator=generator).double()


@pytest.mark.parametrize("number", [30, 80, 150])
@pytest.mark.parametrize("order", [1.0, 3.0])
def test_intervals_hold_on_games_of_the_process(number, order):
    players = 9
    games = drawn_games(players, 60, order, seed=number)
    truth = torch.einsum("ijs,sc->cij", functional(players), games)
    pairs = opened(players, number)
    found = InteractionRegression(pairs).posterior(half_sums(pairs, games))
    first, second = torch.triu_indices(players, players, 1)
    errors, deviations = ((x[:, first, second]) for x in (found.mean - truth, found.deviation))
    assert 0.9 < float((errors.abs() < 1.96 * deviations).double().mean()) < 0.99
    assert 0.8 < float((errors.square().mean() / deviations.square().mean()).sqrt()) < 1.25


def test_constants_and_additive_games_have_no_interactions():
    torch.manual_seed(0)
    players = 8
    pairs = opened(players, 40)
    regression = InteractionRegression(pairs)
    games = torch.randn(2**players, 3).double()
    additive = (signs(players) @ torch.randn(players, 3).double()) + 7
    found, moved = (regression.posterior(half_sums(pairs, x)) for x in (games, games + additive))
    torch.testing.assert_close(moved.mean, found.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(moved.deviation, found.deviation, rtol=0, atol=1e-9)
    for alone in (additive, 0 * games, 0 * games + 1e6):
        nothing = regression.posterior(half_sums(pairs, alone))
        assert float(nothing.mean.abs().max()) < 1e-12
        assert float(nothing.deviation.max()) < 1e-12


def test_columns_and_units_do_not_matter():
    torch.manual_seed(0)
    pairs = opened(7, 30)
    regression, games = InteractionRegression(pairs), torch.randn(2**7, 3).double()
    found = regression.posterior(half_sums(pairs, games))
    for unit in (1e-160, 1e-9, 1e160):
        scaled = regression.posterior(half_sums(pairs, unit * games))
        torch.testing.assert_close(scaled.mean / unit, found.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(scaled.deviation / unit, found.deviation, rtol=1e-9, atol=1e-9)
    for i in range(3):
        alone = regression.posterior(half_sums(pairs, games[:, i, None]))
        torch.testing.assert_close(alone.mean[0], found.mean[i], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(alone.deviation[0], found.deviation[i], rtol=1e-9, atol=1e-12)


def test_a_jump_at_nobody_is_not_taken_for_interactions():
    """The half sums of all but nobody are those of a game with few interactions: a jump leaves them as they are."""
    players = 9
    pairs, games = opened(players, 60), drawn_games(9, 2, 1.0, seed=0)
    regression = InteractionRegression(pairs)
    jumped = games.clone()
    jumped[0] += 10
    found, moved = (regression.posterior(half_sums(pairs, x)) for x in (games, jumped))
    of_jump = functional(players)[..., 0] * 10
    torch.testing.assert_close(moved.mean, found.mean + of_jump, rtol=0, atol=0.05)


def test_the_numbers_it_keeps_are_counted():
    for players, number in ((6, 10), (12, 100)):
        regression = InteractionRegression(opened(players, number))
        real = sum(x.numel() for part in regression._parts for x in part if isinstance(x, torch.Tensor))
        assert 0.8 * real < regression.numbers <= real
