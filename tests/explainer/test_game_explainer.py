"""Any function of masks is explained as a model is: the same values, budgets, error bars, names and figures."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from tqdm import tqdm

import dasp
from dasp import Explainer, explain_game, plots
from dasp.attribution.base import Estimate
from dasp.errors import BadInput, FailedCall, UndefinedCoalitions
from dasp.games import mask_function
from dasp.methods import METHODS

CAN_DROP = "missing" in METHODS["bayesian_shapley"].takes


def random_game(players, outputs=None, seed=0):
    """A value for each coalition, drawn at random."""
    table = np.random.default_rng(seed).normal(size=(2**players, *([] if outputs is None else [outputs])))
    return lambda masks: table[masks @ (1 << np.arange(players))]


def enumerated(function, players):
    """The mean of what players add, over all orders: the definition itself."""
    total = 0
    orders = list(itertools.permutations(range(players)))
    for order in orders:
        masks = np.zeros((players + 1, players), dtype=bool)
        for step, player in enumerate(order):
            masks[step + 1 :, player] = True
        total = total + np.diff(function(masks), axis=0)[np.argsort(order)]
    return total / len(orders)


class Counted:
    """Counts how often it is asked for each mask."""

    def __init__(self, function):
        self.function, self.times, self.lock = function, Counter(), threading.Lock()

    def __call__(self, masks):
        with self.lock:
            self.times.update(map(tuple, masks.tolist()))
        return self.function(masks)


def interacting(masks):
    """Many players, of whom some interact. The numbers have few digits, so that no sum depends on its order."""
    weights = np.arange(masks.shape[1]) / 4 - 1
    return masks @ weights + 3 * masks[:, 0] * masks[:, 3] - 2 * masks[:, 1] * masks[:, 2] * masks[:, 5] + 0.5


@pytest.mark.parametrize("players", [2, 3, 6])
@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_small_games_are_exact(players, outputs):
    function = Counted(random_game(players, outputs))
    found = explain_game(function, players)
    wanted = enumerated(function.function, players)
    if outputs == 1:
        wanted = wanted[:, 0]  # a single output is a number
    np.testing.assert_allclose(found.values, wanted, atol=1e-12)
    assert (found.error_std == 0).all()
    assert found.error_std.shape == found.values.shape
    nobody = function.function(np.zeros((1, players), dtype=bool))
    np.testing.assert_array_equal(np.ravel(found.base_values), np.ravel(nobody))
    assert found.method == "exact_shapley"
    assert found.reason == f"{players} players have only {2**players} coalitions"
    assert len(function.times) == 2**players
    assert set(function.times.values()) == {1}


@pytest.mark.parametrize("budget", [10, 40, 100, 333])
def test_a_budget_is_the_number_of_masks(budget):
    function = Counted(interacting)
    found = explain_game(function, 12, max_evaluations=budget, tolerance=1e-9)
    assert budget - 2 <= len(function.times) <= budget
    assert set(function.times.values()) == {1}
    assert found.reason == f"12 players have more than {budget} coalitions"
    assert found.values.sum() == pytest.approx(interacting(np.ones((1, 12)))[0] - 0.5)
    assert found.base_values == 0.5


def test_many_players_have_error_bars_and_the_answers_of_an_explainer():
    found = explain_game(interacting, 14, max_evaluations=300, seed=3)
    exact = explain_game(interacting, 14, method="exact")
    assert (np.abs(found.values - exact.values) <= 4 * found.error_std + 1e-6).all()
    assert (found.method, exact.method, exact.reason) == ("bayesian_shapley", "exact_shapley", "it was asked for")

    def model(x):
        return torch.from_numpy(interacting(x.numpy() > 0))

    ones = torch.ones(1, 14, dtype=torch.float64)
    settings = found.settings | {"seed": 3}
    same = Explainer(model, **settings).attribute(ones)
    np.testing.assert_allclose(found.values, same.values[0], rtol=1e-5)  # which is in float32
    np.testing.assert_allclose(found.error_std, same.std[0], rtol=1e-4)


def test_permutations():
    found = explain_game(interacting, 12, method="permutation", max_evaluations=200)
    assert found.method == "permutation_shapley"
    assert (found.error_std > 0).any()


@pytest.mark.parametrize(
    "options", [{"workers": 4}, {"batch_size": 5}, {"workers": 3, "batch_size": 2}, {"retries": 2}]
)
def test_the_same_seed_asks_for_the_same_masks(options):
    plain, other = Counted(interacting), Counted(interacting)
    first = explain_game(plain, 12, max_evaluations=120, seed=5)
    second = explain_game(other, 12, max_evaluations=120, seed=5, **options)
    assert plain.times == other.times
    assert first.values.tolist() == second.values.tolist()
    assert first.error_std.tolist() == second.error_std.tolist()


def test_arrays_and_tensors():
    def in_torch(masks):
        assert masks.dtype == torch.bool
        return masks.float() @ torch.arange(5.0)

    assert explain_game(in_torch, 5, masks="torch").values == pytest.approx(range(5))
    assert explain_game(lambda masks: [sum(mask) for mask in masks.tolist()], 5).values == pytest.approx(1)
    assert explain_game(lambda mask: float(mask.sum()), 5, batch_size=1).values == pytest.approx(1)


def test_names_and_figures():
    names = ["age", "sex", "height", "weight"]
    found = explain_game(lambda masks: np.stack([masks.sum(1), 3 * masks[:, 1]], 1), names, output_names=["sum", "sex"])
    assert list(found.feature_names) == names
    one = found[:, "sex"]
    np.testing.assert_allclose(one.values, [0, 3, 0, 0], atol=1e-12)
    assert one.output_names == "sex"
    assert one.method == "exact_shapley"
    with pytest.raises(BadInput, match="of 2 outputs .*as by explanation"):
        plots.waterfall(found)
    for figure in (plots.waterfall, plots.bar, plots.force):
        axes = figure(one)
        assert any("sex" in label.get_text() for label in axes.figure.findobj(plt.Text))
        plt.close("all")
    assert "sex +3" in one._repr_html_()
    plt.close("all")
    plain = explain_game(lambda masks: np.stack([masks.sum(1), masks[:, 1]], 1), 4)
    assert list(plain.feature_names) == [f"Player {i}" for i in range(4)]
    assert list(plain.output_names) == ["Output 0", "Output 1"]
    with pytest.raises(BadInput, match="3 output_names, but 2 outputs"):
        explain_game(lambda masks: np.stack([masks.sum(1), masks[:, 1]], 1), 4, output_names="abc")


def test_figures_of_shap():
    shap = pytest.importorskip("shap")
    found = explain_game(interacting, 12, max_evaluations=100)
    for figure in (shap.plots.waterfall, shap.plots.bar):
        figure(found, show=False)
        plt.close("all")


def test_games_of_shapiq():
    games = pytest.importorskip("shapiq_games.synthetic")
    game = games.DummyGame(n=6, interaction=(1, 2))
    found = explain_game(game, game.n_players)
    np.testing.assert_allclose(found.values, enumerated(game, 6), atol=1e-12)


def test_answers_are_kept(tmp_path, caplog):
    path = tmp_path / "kept.db"
    first, again, more = Counted(interacting), Counted(interacting), Counted(interacting)
    options = dict(keep=path, key="v1", tolerance=1e-9)
    one = explain_game(first, 12, max_evaluations=100, **options)
    with caplog.at_level(logging.INFO, "dasp"):
        two = explain_game(again, 12, max_evaluations=100, workers=3, **options)
    assert "0 new answers, 100 answers were kept before, 0 coalitions left out" in caplog.text
    assert not again.times
    assert one.values.tolist() == two.values.tolist()
    explain_game(more, 12, max_evaluations=400, **options)
    assert not set(more.times) & set(first.times)
    with pytest.raises(BadInput, match="kept.db has answers with the key 'v1', not 'v2'"):
        explain_game(first, 12, keep=path, key="v2")
    with pytest.raises(BadInput, match="kept.db has answers of 12 players, not of 11"):
        explain_game(first, 11, keep=path, key="v1")


def test_a_failure_goes_on_where_it_ended(tmp_path):
    left = [50]

    def limited(masks):
        if not left[0]:
            raise ConnectionError("out of credit")
        left[0] -= 1
        return interacting(masks)

    options = dict(keep=tmp_path / "kept.db", max_evaluations=100, tolerance=1e-9)
    with pytest.raises(FailedCall, match="ConnectionError: out of credit; 50 answers are kept in .*kept.db") as caught:
        explain_game(limited, 12, **options)
    assert caught.value.kept == 50
    rest = Counted(interacting)
    found = explain_game(rest, 12, **options)
    assert sum(rest.times.values()) == 50
    whole = explain_game(interacting, 12, max_evaluations=100, tolerance=1e-9)
    assert found.values.tolist() == whole.values.tolist()


def test_seconds_are_a_number_of_masks(monkeypatch):
    """A call takes three seconds of this clock, which nobody else reads; three of them run at once."""
    ticks = itertools.count()
    monkeypatch.setattr(mask_function.time, "perf_counter", lambda: 3 * next(ticks))
    function = Counted(interacting)
    explain_game(function, 12, max_seconds=150, batch_size=1)
    assert 48 <= len(function.times) <= 50
    function = Counted(interacting)
    explain_game(function, 12, max_seconds=1)  # of a call of two, but there is a smallest number
    assert len(function.times) == 10


def test_coalitions_without_a_value_are_named():
    def function(masks):
        with np.errstate(divide="ignore"):
            return masks.sum(1) + np.where(masks[:, 1] & ~masks[:, 2], np.log(0), 0)

    for options in ({"method": "exact"}, {"max_evaluations": 12}, {"method": "permutation"}):
        with pytest.raises(
            UndefinedCoalitions, match="coalitions have no finite value; the first is -inf, of"
        ) as caught:
            explain_game(function, ["a", "b", "c", "d", "e"], **options)
        assert "row" not in str(caught.value)
        assert 1 in caught.value.present
        assert "b" in str(caught.value).partition("of the player")[2].partition("of 5")[0]
    with pytest.raises(UndefinedCoalitions, match="of all 5 players: mend"):
        explain_game(lambda masks: np.where(masks.all(1), np.nan, 1), 5)
    with pytest.raises(UndefinedCoalitions, match="of the player 1 of 5:"):
        explain_game(function, 5)


def test_only_who_can_drop_is_asked_to():
    for method in ("exact", "permutation"):
        with pytest.raises(BadInput, match="needs the value of every coalition, and cannot do with missing='drop'"):
            explain_game(interacting, 12, method=method, missing="drop")


def test_an_estimator_is_told_to_leave_out_what_has_no_value(monkeypatch):
    class Told:
        def __init__(self, function):
            pass

        def explain(self, request, *, missing="raise", **options):
            (evaluator,) = request.evaluators(None, tqdm(disable=True), missing)
            found.append(evaluator.worth(torch.eye(5, dtype=torch.bool))[:, 0].tolist())
            return Estimate([request.total.expand(5, 1) / 5])

    def function(masks):
        if masks[0, 1] and masks.sum() == 1:
            raise ConnectionError
        return np.where(masks[:, 3] & (masks.sum(1) == 1), np.inf, masks.sum(1))

    found = []
    usual = METHODS["bayesian_shapley"]
    monkeypatch.setitem(METHODS, "bayesian_shapley", replace(usual, make=Told, takes=usual.takes | {"missing"}))
    explained = explain_game(function, 5, missing="drop", batch_size=1)
    assert np.isnan(found[0]).tolist() == [False, True, False, True, False]
    assert explained.reason == "coalitions without a value are left out"
    assert explained.error_std is None


@pytest.mark.skipif(not CAN_DROP, reason="BayesianShapley leaves nothing out")
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("players", [8, 14])
def test_what_has_no_value_is_left_out(workers, players):
    def function(masks):
        if masks[:, 0].any() and masks.sum() == 3:
            raise ConnectionError
        return np.where(masks[:, 1] & (masks.sum(1) == 4), np.nan, interacting(masks))

    found = explain_game(function, players, missing="drop", workers=workers, batch_size=1, max_evaluations=400)
    wanted = explain_game(interacting, players, method="exact")
    assert found.method == "bayesian_shapley"
    assert np.isfinite(found.values).all()
    assert (np.abs(found.values - wanted.values) <= 5 * found.error_std + 1e-6).all()
    assert found.values.sum() == pytest.approx(wanted.values.sum())


@pytest.mark.parametrize("budget", [60, 300, 5000])
def test_players_whom_failures_never_tell_apart_are_doubted_whatever_the_budget(budget, caplog):
    weights = np.array([0.1, 0.2, 0.3, -0.2, 0.05, 0.25, -0.1, 0.15, 0.0, 0.2])

    def function(masks):
        return np.where(masks[:, 0] & ~masks[:, 1], np.nan, masks @ weights)  # the first fails without the second

    names = ["VIP", "angry", *"cdefghij"]
    found = explain_game(function, names, missing="drop", max_evaluations=budget)
    np.testing.assert_allclose(found.values, [0.15, 0.15, *weights[2:]], atol=0.02)
    assert (found.error_std[:2] > 0.1).all()
    assert (found.error_std[:2] < 0.3).all()
    assert (found.error_std[2:] < 0.02).all()
    assert caplog.text.count("not random: the other coalitions cannot tell VIP and angry apart") == 1


def test_failures_at_random_hide_nobody(caplog):
    def function(masks):
        failed = (masks @ np.arange(1, 13) % 3 == 1) & (masks.sum(1) < 12)  # not that of nobody either
        return np.where(failed, np.nan, interacting(masks))

    found = explain_game(function, 12, missing="drop", max_evaluations=100)
    assert np.isfinite(found.values).all()
    assert "not random" not in caplog.text


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((interacting, 0), {}, "at least one player, not 0"),
        ((interacting, []), {}, "at least one player, not 0"),
        ((interacting, 2.5), {}, "players are a number, or a list of names, not 2.5"),
        ((interacting, "abc"), {}, "players are a number, or a list of names, not 'abc'"),
        ((3, 3), {}, "a game is a function of masks, not a int"),
        ((interacting, 12), {"method": "gradient"}, "'permutation', not by 'gradient'"),
        ((interacting, 12), {"method": "unheard"}, "there is no method 'unheard'"),
        ((interacting, 12), {"masks": "jax"}, "masks is 'numpy' or 'torch', not 'jax'"),
        ((interacting, 12), {"missing": "ignore"}, "missing is 'raise' or 'drop', not 'ignore'"),
        ((interacting, 12), {"workers": 0}, "workers must be at least 1"),
        ((interacting, 12), {"batch_size": 0}, "batch_size must be at least 1"),
        ((interacting, 12), {"retries": -1}, "retries must be at least 0"),
        ((interacting, 12), {"max_evaluations": 9}, "max_evaluations must be at least 10, not 9"),
        ((interacting, 12), {"max_evaluations": 90, "max_seconds": 1}, "not both"),
        ((interacting, 12), {"tolerance": -1}, "tolerance must be positive"),
        ((interacting, 12), {"key": "v1"}, "key goes with a file"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_paid(arguments, options, message):
    function, players = arguments
    counted = Counted(function)
    with pytest.raises(ValueError, match=message):
        explain_game(counted if callable(function) else function, players, **options)
    assert not counted.times


def test_a_tolerance_that_is_missed_is_said(caplog):
    explain_game(interacting, 30, max_evaluations=40, tolerance=1e-6)
    assert "did not reach the tolerance 1e-06" in caplog.text


def test_it_is_public():
    assert dasp.explain_game is explain_game
