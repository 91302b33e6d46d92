"""Estimates that grow until their time is up, by a clock that the tests turn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dasp import BayesianShapley, ExactShapley, Explainer, GradientShapley
from dasp.attribution import refinement
from dasp.attribution.refinement import Clock


class Timed(nn.Module):
    """A network that takes a second for a row, and a clock that says so."""

    def __init__(self, players: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(players, 8), nn.Tanh(), nn.Linear(8, 1))
        self.now = 0.0

    def forward(self, x):
        self.now += len(x)
        return self.body(x)[:, 0]


@pytest.fixture
def timed(monkeypatch):
    def model(players: int) -> Timed:
        made = Timed(players).eval()
        monkeypatch.setattr(refinement.time, "perf_counter", lambda: made.now)
        return made

    return model


def test_a_stage_is_begun_if_there_is_time_for_it(monkeypatch):
    now = 0.0
    monkeypatch.setattr(refinement.time, "perf_counter", lambda: now)
    clock = Clock(100)
    now = 8.0  # 4 samples, 2 seconds each
    assert clock.within(4, 8) == 8
    now = 16.0
    assert clock.within(8, 1000) == 8 + 28  # the other 84 seconds, at 3 seconds each
    now = 99.0
    assert clock.within(36, 72) == 36
    assert clock.left == 1
    assert clock.part(1, 4).seconds == 0.25


def test_linear_algebra_that_grows_is_foreseen(monkeypatch):
    now = 0.0
    monkeypatch.setattr(refinement.time, "perf_counter", lambda: now)
    clock = Clock(100)
    now = 1.0
    clock.sampled()  # 10 samples in a second
    now = 11.0  # and 10 seconds for the rest, which are 40 for twice as many samples
    number = clock.within(10, 1000)
    assert 0.1 * (number - 10) + 10 * (number / 10) ** 2 <= 89 < 0.1 * (number - 9) + 10 * ((number + 1) / 10) ** 2


@pytest.mark.parametrize("seconds", [40, 400, 1000])
def test_evaluations_take_the_time_that_is_given_and_no_more(timed, seconds):
    model = timed(14)
    found = Explainer(model, max_seconds=seconds, tolerance=1e-9).attribute(torch.rand(1, 14), target=None)
    assert found.method == "bayesian_shapley"
    assert 0.5 * seconds < model.now < 1.2 * seconds
    checks = 10  # evaluations of rows once more, to see that the model computes each by itself
    assert 0.5 * (seconds - checks) < int(found.evaluations) < seconds


def test_all_coalitions_are_evaluated_if_there_is_time(timed):
    model, x = timed(9), torch.rand(1, 9)
    found = Explainer(model, max_seconds=1500).attribute(x)
    torch.testing.assert_close(found.values, ExactShapley(model).attribute(x))
    assert int(found.evaluations) == 512
    assert bool((found.std == 0).all())


def test_rows_share_the_time(timed):
    model = timed(14)
    Explainer(model, max_seconds=100, tolerance=1e-9).attribute(torch.rand(5, 14))
    assert 250 < model.now < 600


def test_there_is_a_smallest_number(timed):
    x = torch.rand(1, 14)
    assert int(Explainer(timed(14), max_seconds=1e-3).attribute(x).evaluations) == 10
    values, std = GradientShapley(timed(80)).attribute(
        torch.rand(1, 80), n_pairs=500, max_seconds=1e-3, return_std=True
    )
    assert bool((std[values != 0] > 0).all())


def test_gradients_take_the_time_that_is_given(timed, monkeypatch):
    model = timed(80)
    monkeypatch.setattr("dasp.attribution.gradient_shapley.time.perf_counter", lambda: model.now)
    GradientShapley(model).attribute(torch.rand(1, 80), n_pairs=10_000, max_seconds=300)
    assert 150 < model.now < 360


def test_what_the_time_allowed_for_can_be_had_again(timed):
    model, x = timed(14), torch.rand(1, 14)
    first = Explainer(model, max_seconds=300).attribute(x)
    assert first.settings["max_seconds"] is None
    again = Explainer(model, **first.settings).attribute(x)
    assert torch.equal(again.evaluations, first.evaluations)
    torch.testing.assert_close(again.values, first.values)


def test_time_is_told_to_methods_by_name(timed):
    x = torch.rand(1, 14)
    assert int(Explainer(timed(14), method="bayesian", max_seconds=200).attribute(x).evaluations) < 200
    values = BayesianShapley(timed(14)).attribute(x, max_seconds=200)
    assert values.shape == x.shape
