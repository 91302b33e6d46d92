"""Interactions that are chosen by the even part of a game: what they are, what they are good for, and that error bars
go on holding."""

from __future__ import annotations

import itertools

import pytest
import torch

from dasp import BayesianShapley
from dasp.attribution.bayesian.design import Pairs
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.regression import Regression, SecondOrder, Sets, _trees, likely_sets

FLAT = Trust(10, 2)


class Neighbours:
    """A game of players in a ring, in which only neighbours interact: Σ c_T Π_{i∈T} x_i, so that a player has c_T/|T|
    of every T; with single players and all runs of two to five."""

    def __init__(self, players, seed):
        generator = torch.Generator().manual_seed(seed)
        self.runs = [[[(i + k) % players for k in range(size)] for i in range(players)] for size in range(1, 6)]
        self.values = [torch.randn(players, generator=generator).double() for _ in self.runs]

    def __call__(self, members):
        x = members.double()
        return sum(x[:, runs].prod(2) @ values for runs, values in zip(self.runs, self.values, strict=True))

    def shapley(self):
        truth = torch.zeros(len(self.values[0])).double()
        for runs, values in zip(self.runs, self.values, strict=True):
            for run, value in zip(runs, values, strict=True):
                truth[run] += value / len(run)
        return truth


def halves(game, pairs):
    there, others = game(pairs.members), game(~pairs.members)
    return (there - others)[:, None] / 2, (there + others)[:, None] / 2


@pytest.mark.parametrize("size", [3, 5])
def test_trees_are_counted(size):
    torch.manual_seed(0)
    weights = torch.rand(4, size, size).double()
    weights = weights + weights.mT
    wanted = torch.zeros(4).double()
    edges = list(itertools.combinations(range(size), 2))
    for tree in itertools.combinations(edges, size - 1):
        reached = {0}
        for _ in tree:
            reached |= {i for edge in tree if reached & {*edge} for i in edge}
        if len(reached) == size:
            wanted += torch.stack([weights[:, i, j] for i, j in tree]).prod(0)
    torch.testing.assert_close(_trees(weights), wanted)


@pytest.mark.parametrize("size", [3, 5])
def test_features_are_interactions_without_a_shapley_value(size):
    pairs = Pairs.draw(9, 10**6, seed=0)
    affinities = torch.rand(9, 9).double()
    sets = Sets.of(torch.arange(9), size, affinities + affinities.T)
    features = sets.features(pairs, slice(None))
    sign = 2 * pairs.members[:, sets.members].double() - 1
    torch.testing.assert_close(features, (sign.prod(2) - sign.mean(2)) * sets.variances.sqrt())
    project = pairs.weights[:, None] * pairs.centred()
    assert float((project.T @ features).abs().max()) < 1e-14


def test_players_that_interact_are_found():
    game, pairs = Neighbours(12, seed=0), Pairs.draw(12, 1100, seed=0)
    game.values = [torch.ones_like(values) for values in game.values]  # all neighbours are alike
    affinities = SecondOrder(pairs).affinities(halves(game, pairs)[1][:, 0])
    threes, fives = likely_sets(affinities, 12)
    assert {tuple(members) for members in threes.members.tolist()} == {tuple(sorted(run)) for run in game.runs[2]}
    assert len(fives.members) == 0


@pytest.mark.parametrize(("players", "number", "enough"), [(18, 1023, False), (18, 1024, True), (65, 2000, False)])
def test_only_where_there_are_enough_pairs_and_not_too_many_players(players, number, enough):
    assert SecondOrder.suits(Pairs.draw(players, number, seed=0)) is enough


def test_interactions_of_a_game_cut_the_error_and_error_bars_hold():
    pairs = Pairs.draw(40, 1500, seed=0)
    regression = Regression.on(pairs)
    errors, inside = torch.zeros(2), []
    for seed in range(6):
        game = Neighbours(40, seed)
        y, sums = halves(game, pairs)
        total = torch.tensor([sum(float(values.sum()) for values in game.values)]).double()
        for i, given in enumerate((None, sums)):
            prior = torch.zeros(1, 40).double()
            known = posterior(regression, y, total, prior, [], FLAT, sums=given)
            error = known.mean[0] - game.shapley()
            errors[i] += error.square().mean() / 6
        inside.append(error.abs() <= 1.96 * known.deviation[0])
    assert errors[1] < 0.6**2 * errors[0]
    assert 0.9 <= float(torch.cat(inside).double().mean()) <= 0.99


def test_all_pairs_give_the_exact_values():
    torch.manual_seed(0)
    pairs = Pairs.draw(12, 10**6, seed=0)
    y, sums, total = torch.randn(len(pairs), 1).double(), torch.randn(len(pairs), 1).double(), torch.randn(1).double()
    known = posterior(Regression.on(pairs), y, total, torch.zeros(1, 12).double(), [], FLAT, sums=sums)
    exact = total[:, None] / 12 + (pairs.weights[:, None] * y).T @ pairs.centred()
    torch.testing.assert_close(known.mean, exact, rtol=0, atol=1e-10)
    assert float(known.deviation.max()) < 1e-5


def test_columns_do_not_depend_on_each_other_nor_on_units():
    pairs = Pairs.draw(12, 1100, seed=0)
    regression = Regression.on(pairs)
    several = [halves(Neighbours(12, seed), pairs) for seed in range(2)]
    y, sums = (torch.cat(each, 1) for each in zip(*several, strict=True))
    total, prior = torch.ones(2).double(), torch.zeros(2, 12).double()
    together = posterior(regression, y, total, prior, [], FLAT, sums=sums)
    alone = posterior(regression, 1e9 * y[:, 1:], 1e9 * total[1:], prior[1:], [], FLAT, sums=1e9 * sums[:, 1:])
    for all_columns, one in ((together.mean, alone.mean), (together.deviation, alone.deviation)):
        torch.testing.assert_close(all_columns[1:], one / 1e9, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("game", [lambda x: x[:, 0] * 0, lambda x: x.sum(1)], ids=["constant", "linear"])
def test_games_without_interactions(game):
    x = torch.ones(1, 12, dtype=torch.float64)
    values, std = BayesianShapley(game).attribute(x, max_evaluations=2100, return_std=True)
    torch.testing.assert_close(values, (game(x) / 12)[:, None].expand(1, 12), rtol=0, atol=1e-9)
    assert float(std.max()) < 1e-6
