"""shapiq takes our estimators and explanations, and its games and imputers are explained by ours."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dasp import Explainer, explain_game
from dasp.errors import BadInput

pytest.importorskip("shapiq")

import shapiq

from dasp.explainer.shapiq_adapter import ShapiqApproximator, interaction_values


class Interacting(shapiq.Game):
    """Players alone, two pairs, three together, and a value of nobody."""

    def __init__(self, players=8, *, normalize=False, **options):
        self.asked = 0
        super().__init__(n_players=players, normalize=normalize, **options)

    def value_function(self, coalitions):
        self.asked += len(coalitions)
        x = coalitions.astype(float)
        alone = x @ np.linspace(-1, 2, self.n_players)
        return 0.5 + alone + 3 * x[:, 0] * x[:, 1] - 2 * x[:, 2] * x[:, 3] + x[:, 0] * x[:, 4] * x[:, 5]


def distance(found, truth):
    return max(abs(found[players] - truth[players]) for players in truth.interaction_lookup if players)


@pytest.mark.parametrize(("index", "order"), [("SV", 1), ("BV", 1), ("SII", 1), ("SII", 2), ("k-SII", 2)])
def test_indices(index, order):
    game = Interacting()
    truth = game.exact_values(index, order)
    game.asked = 0
    approximator = ShapiqApproximator(8, order, index, random_state=3)
    assert isinstance(approximator, shapiq.approximator.Approximator)
    some = approximator(100, game)
    assert game.asked == some.estimation_budget == 100
    assert some.estimated
    assert (some.index, some.max_order, some.min_order) == (truth.index, order, 0)
    assert distance(some, truth) < 0.3
    all_of_them = approximator.approximate(budget=300, game=game)
    assert (all_of_them.estimated, all_of_them.estimation_budget) == (False, 256)
    assert distance(all_of_them, truth) < 1e-9
    assert all_of_them[()] == pytest.approx(0.5)


def test_only_the_highest_order():
    found = ShapiqApproximator(8, 2, "SII", top_order=True)(300, Interacting())
    assert {len(players) for players in found.interaction_lookup} == {2}
    assert (found[(0, 1)], found[(0, 4)]) == (pytest.approx(3), pytest.approx(1 / 2))


def test_seeds_and_methods():
    game = Interacting(12)
    first, again, other = (ShapiqApproximator(12, random_state=seed)(100, game).values for seed in (0, None, 1))
    np.testing.assert_array_equal(first, again)
    assert abs(first - other).max() > 0
    truth = game.exact_values("SV", 1)
    assert distance(ShapiqApproximator(12, method="permutation")(1000, game), truth) < 0.2
    assert distance(ShapiqApproximator(12, method="exact")(10, game), truth) < 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ShapiqApproximator(6, 3, "SII"), "SII can be had of the orders 1 to 2 here, not 3"),
        (lambda: ShapiqApproximator(6, 0), "SV can be had of the orders 1 to 1 here, not 0"),
        (lambda: ShapiqApproximator(6, 2, "STII"), "Invalid index 'STII'"),
        (lambda: ShapiqApproximator(6, method="gradient"), "games are explained by 'auto', 'exact'"),
        (lambda: ShapiqApproximator(6)(9, Interacting(6)), "max_evaluations must be at least 10, not 9"),
        (lambda: ShapiqApproximator(3)(9, lambda m: np.stack([m[:, 0], m[:, 1]], 1)), "one output"),
    ],
)
def test_what_cannot_be_had(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_explainer_and_the_figures_of_shapiq():
    rows = np.random.default_rng(0).normal(size=(30, 5))
    model = lambda x: x[:, 0] * x[:, 1] + x[:, 2]
    explainer = shapiq.TabularExplainer(
        model, rows, imputer="baseline", approximator=ShapiqApproximator(5, 2, "k-SII"), index="k-SII", max_order=2
    )
    found = explainer.explain(rows[0], budget=64)
    for figure in (found.plot_waterfall, found.plot_force, found.plot_network, found.plot_upset):
        figure(show=False)
        plt.close("all")


def test_games_and_imputers_are_explained_by_ours():
    names = [f"player {letter}" for letter in "abcdefgh"]
    game = Interacting(player_names=names)
    found = explain_game(game)
    assert list(found.feature_names) == names
    assert distance(interaction_values(found), game.exact_values("SV", 1)) < 1e-9
    rows = np.random.default_rng(0).normal(size=(30, 5))
    imputer = shapiq.BaselineImputer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], rows[:1], x=rows[5:6])
    ours = Explainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], baselines=rows[0])(rows[5:6])
    np.testing.assert_allclose(explain_game(imputer).values, ours.values[0], atol=1e-6)
    with pytest.raises(BadInput, match="players are missing"):
        explain_game(lambda masks: masks.sum(1))


def test_explanations_as_interaction_values():
    rows = np.random.default_rng(0).normal(size=(3, 4))
    explanation = Explainer(lambda x: x[:, 0] * x[:, 1] + x[:, 2], baselines=1.0)(rows)
    single, pairs = interaction_values(explanation[1]), interaction_values(explanation[1], max_order=2)
    np.testing.assert_allclose([single[(i,)] for i in range(4)], explanation[1].values)
    assert (single.index, single.baseline_value, single.estimated) == ("SV", 2, False)
    change = rows[1] - 1
    np.testing.assert_allclose(pairs[(0, 1)], change[0] * change[1], atol=1e-6)
    np.testing.assert_allclose(pairs[(0,)], change[0], atol=1e-6)  # k-SII leaves what it has alone
    with pytest.raises(BadInput, match=r"values of shape \(3, 4\) are of several rows"):
        interaction_values(explanation)
    with pytest.raises(BadInput, match="orders 1 and 2, not 3"):
        interaction_values(explanation[0], max_order=3)
