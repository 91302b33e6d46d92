"""What the evaluations of an explanation tell beyond its values: interactions, semivalues, and of the background."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import dasp
from dasp.errors import BadInput


def network(players, outputs=1, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(players, 24), nn.Tanh(), nn.Linear(24, outputs)).eval()


def worth(model, x, output=0):
    """The worth of all coalitions of one row with a baseline of zeros, by their numbers."""
    n = len(x)
    members = (torch.arange(2**n)[:, None] >> torch.arange(n) & 1).bool()
    with torch.no_grad():
        return model(torch.where(members, x, 0.0))[:, output].double().numpy()


def interaction(v, n, i, j):
    """By the definition: second differences, averaged over coalitions of the others."""
    total = 0.0
    others = [k for k in range(n) if k not in (i, j)]
    for size in range(n - 1):
        for chosen in itertools.combinations(others, size):
            s = sum(1 << k for k in chosen)
            difference = v[s | 1 << i | 1 << j] - v[s | 1 << i] - v[s | 1 << j] + v[s]
            total += difference / ((n - 1) * math.comb(n - 2, size))
    return total


def banzhaf(v, n, i):
    return np.mean([v[s | 1 << i] - v[s] for s in range(2**n) if not s >> i & 1])


@pytest.mark.parametrize("method", ["exact", "bayesian"])
def test_interactions_and_banzhaf_values_by_their_definition(method):
    n = 6
    model, x = network(n), torch.randn(2, n, generator=torch.Generator().manual_seed(1))
    x[1, 2] = 0.0  # an idle player
    found = dasp.Explainer(model, method=method, target=0, feature_names=list("abcdef"))(x)
    pairs, values = found.interactions(), found.banzhaf()
    assert pairs.feature_names == values.feature_names == list("abcdef")
    assert pairs.values.shape == (2, n, n)
    for row in range(2):
        v = worth(model, x[row])
        wanted = [[0 if i == j else interaction(v, n, i, j) for j in range(n)] for i in range(n)]
        np.testing.assert_allclose(pairs[row].values, wanted, atol=1e-5)
        np.testing.assert_allclose(values[row].values, [banzhaf(v, n, i) for i in range(n)], atol=1e-5)
    assert pairs.error_std.max() == values.error_std.max() == 0
    np.testing.assert_allclose(found.beta_shapley(1, 1).values, found.values, atol=1e-5)


def test_estimates_are_near_and_held_by_their_intervals():
    n = 12
    model, x = network(n), torch.randn(4, n, generator=torch.Generator().manual_seed(1))
    exact, found = (
        dasp.Explainer(model, target=0, **options)(x)
        for options in ({"method": "exact"}, {"method": "bayesian", "max_evaluations": 300})
    )
    for name in ("interactions", "banzhaf"):
        truth, estimate = getattr(exact, name)(), getattr(found, name)()
        error = estimate.values - truth.values
        assert np.sqrt((error**2).mean() / (truth.values**2).mean()) < 0.5
        assert (np.abs(error) <= 1.96 * estimate.error_std + 1e-9).mean() > 0.9
        assert estimate.error_std.max() > 0


def test_rows_outputs_and_copies():
    model, x = network(5, outputs=3), torch.ones(4, 5)
    found = dasp.Explainer(model)(x)
    assert found.interactions().values.shape == (4, 5, 5, 3)
    assert found.banzhaf().values.shape == (4, 5, 3)
    whole = found.interactions().values
    np.testing.assert_array_equal(found[2].interactions().values, whole[2])
    np.testing.assert_array_equal(found[1:3].interactions().values, whole[1:3])
    np.testing.assert_array_equal(copy.copy(found).interactions().values, whole)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).interactions().values, whole)


def test_rows_with_different_numbers_of_evaluations():
    """A tolerance stops rows one after the other."""
    model = network(14)
    x = torch.randn(6, 14, generator=torch.Generator().manual_seed(0)) * torch.logspace(-2, 1, 6)[:, None]
    found = dasp.Explainer(model, method="bayesian", target=0, tolerance=0.05, max_evaluations=600)
    together = found.attribute(x)
    assert len(set(together.evaluations.tolist())) > 1
    alone = [found.attribute(row[None]).interactions().values[0] for row in x]
    np.testing.assert_allclose(together.interactions().values, np.stack(alone), rtol=1e-5, atol=1e-7)


def test_games_have_interactions_of_one_row():
    game = dasp.explain_game(lambda masks: 2.0 * masks[:, 0] * masks[:, 1] + masks[:, 2], ["a", "b", "c", "d"])
    np.testing.assert_allclose(game.interactions().values[0], [0, 2, 0, 0], atol=1e-12)
    np.testing.assert_allclose(game.banzhaf().values, [1, 1, 1, 0], atol=1e-12)
    assert dasp.plots.interactions(game.interactions()).get_xticklabels()[0].get_text() == "a"


def test_methods_without_evaluations_say_so():
    found = dasp.Explainer(network(4), method="gradient", target=0)(torch.ones(1, 4))
    with pytest.raises(BadInput, match="none were kept of gradient_dasp"):
        found.interactions()


@pytest.mark.parametrize(("players", "options"), [
    (5, {"method": "exact"}), (14, {"method": "bayesian", "max_evaluations": 200}),
])  # fmt: skip
def test_the_part_of_the_background(players, options):
    """The stated standard deviation is that of values over many backgrounds of the same kind."""
    model, generator = network(players), torch.Generator().manual_seed(0)
    x, everybody = torch.randn(2, players, generator=generator), torch.randn(600, players, generator=generator)
    values, stated = [], []
    for part in everybody.split(30):
        found = dasp.Explainer(model, background=part, target=0, **options).attribute(x)
        values.append(found.values)
        stated.append(found.background_std)
    actual = torch.stack(values).var(0).mean().sqrt()
    said = torch.stack(stated).square().mean().sqrt()
    assert 0.75 < float(said / actual) < 1.35


def test_background_on_explanations_and_how_many_rows_would_do(caplog):
    model, generator = network(4), torch.Generator().manual_seed(0)
    x, rows = torch.randn(3, 4, generator=generator), torch.randn(8, 4, generator=generator)
    caplog.set_level("INFO", "dasp")
    explainer = dasp.Explainer(model, background=rows, target=0)
    found = explainer(x)
    assert found.background_std.shape == found.values.shape
    assert found[1].background_std.shape == (4,)
    enough = explainer.attribute(x).enough_background()
    assert enough > 8
    assert f"{enough:,} rows would do" in caplog.text
    assert dasp.Explainer(model, background=rows[:2], target=0).attribute(x).background_std is None
    same = dasp.Explainer(model, background=rows[:1].expand(8, -1), target=0).attribute(x)
    assert same.enough_background() == 1


def test_rows_with_other_idle_players():
    """Each of them is a game of its own; who is alone has all there is."""
    x = torch.tensor([[2.0, 3.0, 0, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8], [5.0, 0, 0, 0, 0, 0, 0, 0]])
    found = dasp.Explainer(lambda x: x[:, 0] * x[:, 1] + x[:, 1:].prod(1).tanh() + x.sum(1), method="exact")(x)
    np.testing.assert_allclose(found.beta_shapley(1, 1).values, found.values, atol=1e-5)
    np.testing.assert_allclose(found.banzhaf()[2].values, [5, 0, 0, 0, 0, 0, 0, 0], atol=1e-6)
    assert found.interactions()[2].values.max() == 0


def test_idle_players_of_games_that_are_played_together():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 14, generator=generator)
    for row in range(40):
        x[row, torch.randperm(14, generator=generator)[:2]] = 0.0
    found = dasp.Explainer(network(14), method="bayesian", target=0, max_evaluations=200).attribute(x)
    assert np.abs(found.banzhaf().values[x.numpy() == 0]).max() == 0
    assert np.abs(found.interactions().values[x.numpy() == 0]).max() == 0


def test_what_is_not_kept_is_not_zero(monkeypatch):
    monkeypatch.setattr("dasp.attribution.exact.MOST_KEPT", 20)
    x = torch.tensor([[2.0, 3.0, 0, 0, 0], [2.0, 3.0, 1, 1, 1]])
    found = dasp.Explainer(lambda x: x[:, 0] * x[:, 1] + x.sum(1), method="exact")(x)
    with pytest.raises(BadInput, match="for all rows"):
        found.interactions()
    assert found[0].interactions().values[0, 1] == pytest.approx(6)


def test_the_order_of_the_background_does_not_matter():
    rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    x, stated = torch.full((1, 3), 2.0), []
    for background in (rows, rows[rows[:, 0].argsort()]):
        found = dasp.Explainer(lambda x: 10 * x[:, 0] + x[:, 1], background=background, method="exact").attribute(x)
        stated.append(float(found.background_std[0, 0]))
    wanted = 10 * float(rows[:, 0].std()) / 200**0.5
    assert all(0.4 < each / wanted < 1.8 for each in stated)


def test_rows_like_the_background_and_rows_that_are_constant():
    rows = torch.tensor([[-1.0] * 3, [1.0] * 3, [-2.0] * 3, [2.0] * 3])
    assert dasp.Explainer(lambda x: x.sum(1), background=rows).attribute(torch.zeros(1, 3)).enough_background() == 1
    constant = dasp.BayesianShapley(lambda x: x.sum(1) * 0 + 3)
    values, std = constant.attribute(torch.ones(1, 14), tolerance=0.05, return_std=True)  # a warning would be an error
    assert float(values.abs().max()) == float(std.max()) == 0


def test_means_over_rows_have_no_evaluations():
    found = dasp.Explainer(network(4), target=0)(torch.randn(3, 4, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(BadInput, match="none were kept"):
        found.mean(0).banzhaf()


def test_several_inputs_and_several_outputs():
    a, b = torch.ones(1, 2), torch.ones(1, 2)
    several = dasp.Explainer(lambda a, b: a[:, 0] * b[:, 0]).attribute((a, b)).interactions()
    assert several.values.shape == (1, 4, 4)
    outputs = dasp.Explainer(network(3, outputs=3))(torch.ones(2, 3)).interactions()
    with pytest.raises(BadInput, match="several outputs"):
        dasp.plots.interactions(outputs[0])
    dasp.plots.interactions(outputs[0].of_output(1))
