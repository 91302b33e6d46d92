"""The choice of a method for a model, by what it does and not by the clock, and budgets."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from dasp import ExactShapley, Explainer, GradientShapley
from dasp.attribution.gradient_shapley import FewGradients
from dasp.errors import BadInput
from dasp.games.counting import Count
from dasp.games.request import Arguments, Request
from dasp.methods.choose import MOST, TOLERANCE, Budget, choose

MEGA = 1e6
EVALUATIONS, GRADIENTS = "bayesian_shapley", "gradient_shapley"


def network(players: int, outputs: int = 1) -> nn.Module:
    return nn.Sequential(nn.Linear(players, 8), nn.ReLU(), nn.Linear(8, outputs)).eval()


def request(model, players: int, idle: int = 0, entries: int = 1) -> Request:
    x = torch.ones(2, players * entries)
    x[:, :idle] = 0
    mask = torch.arange(players).repeat_interleave(entries)
    return Request.of(model, Arguments(x, feature_mask=mask))


def counted(megaflops: float, depth: int = 1) -> Count:
    return Count(megaflops * MEGA, written=0, nonlinear=0, calls=0, at_once=1, depth=depth)


def chosen(players: int, megaflops: float, budget: Budget | None = None, *, depth=1, entries=1, outputs=1):
    model = network(players * entries, outputs)
    count = counted(megaflops, depth)
    return choose(request(model, players, entries=entries), model, budget or Budget(), counted=lambda: count)


@pytest.mark.parametrize(
    ("players", "megaflops", "name"),
    [
        (6, 1e5, "exact_shapley"),  # no more coalitions than an estimate evaluates
        (11, 1e5, "exact_shapley"),  # as many as the budget
        (13, 0.5, "exact_shapley"),  # 41 ms for all of them
        (15, 0.5, EVALUATIONS),  # 164 ms for all of them, 11 ms for an estimate
        (13, 500, EVALUATIONS),  # a transformer: 41 s for all of them, 1.3 s for an estimate
        (18, 0.4, EVALUATIONS),
        (64, 30, EVALUATIONS),
        (784, 10, f"{GRADIENTS}_on_gradient_dasp"),  # pixels
    ],
)
def test_what_a_choice_depends_on(players, megaflops, name):
    assert chosen(players, megaflops).method == name


def test_deep_networks_are_not_propagated():
    deep = chosen(784, 10, depth=40)
    assert (deep.method, "too deep" in deep.reason, deep.obstacle) == (GRADIENTS, True, False)
    assert chosen(200, 10, depth=40, entries=5).method == EVALUATIONS


def test_coarse_players_are_evaluated():
    few, many = (chosen(players, 10, entries=5) for players in (70, 400))
    assert few.method == EVALUATIONS  # 816 evaluations for the prior are more than 8 for each
    assert many.method == f"{EVALUATIONS}_on_gradient_dasp"
    assert many.budget.tolerance == TOLERANCE


def test_a_prior_pays_where_few_evaluations_are_allowed():
    for allowed, name in ((128, f"{EVALUATIONS}_on_gradient_dasp"), (2000, EVALUATIONS)):
        assert chosen(48, 10, Budget(max_evaluations=allowed)).method == name


def test_evaluations_serve_many_outputs_at_once():
    assert chosen(784, 10, outputs=10).method == f"{GRADIENTS}"  # for which a prior would cost ten backward passes each
    assert chosen(784, 10, outputs=360).method == EVALUATIONS


def test_what_cannot_be_propagated_is_said():
    model = lambda x: (x * x).sum(1)
    choice = choose(request(model, 100), model, Budget(), counted=lambda: counted(10))
    assert choice.method == GRADIENTS
    assert "it is a function, not a torch.nn.Module" in choice.reason
    sorted_ = lambda x: x.detach().sum(1)  # has no derivative
    choice = choose(request(sorted_, 100), sorted_, Budget(), counted=lambda: counted(10))
    assert (choice.method, choice.obstacle) == (EVALUATIONS, True)
    with torch.inference_mode():
        whole = network(100)
        assert choose(request(whole, 100), whole, Budget()).method == EVALUATIONS


def test_a_choice_is_for_all_rows():
    """Players that are idle in one row may be busy in the next."""
    model = network(30)
    assert choose(request(model, 30, idle=27), model, Budget()).method == EVALUATIONS


def test_the_budget():
    usual = chosen(30, 100).budget
    assert (usual.max_evaluations, usual.tolerance) == (MOST, TOLERANCE)
    assert chosen(30, 3000).budget.max_evaluations == 1000  # 30 ms each
    assert chosen(30, 3e5).budget.max_evaluations == 512
    at_once = chosen(30, 0.1).budget
    assert (at_once.max_evaluations, at_once.tolerance) == (MOST, None)
    own = chosen(30, 100, Budget(max_evaluations=300, tolerance=0.2)).budget
    assert (own.max_evaluations, own.tolerance) == (300, 0.2)
    timed = chosen(30, 100, Budget(max_seconds=0.5)).budget
    assert (timed.max_evaluations, timed.max_seconds) == (None, 0.5)
    assert chosen(12, 0.1, Budget(max_evaluations=300)).method == EVALUATIONS
    assert chosen(6, 100, Budget(max_evaluations=20)).method == f"{EVALUATIONS}_on_gradient_dasp"
    exact = chosen(6, 0.1, Budget(max_seconds=1))
    assert (exact.method, exact.budget.max_seconds) == ("exact_shapley", None)
    with pytest.raises(BadInput, match="must be at least 10, not 5"):
        chosen(30, 100, Budget(max_evaluations=5))
    with pytest.raises(BadInput, match="not both"):
        Budget(max_seconds=1, max_evaluations=100)
    with pytest.raises(ValueError, match="positive"):
        Budget(max_seconds=0)


class Slow(nn.Module):
    """Does as little as its first layer, but takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.seconds = nn.Linear(20, 1), 0.0

    def forward(self, x):
        time.sleep(self.seconds)
        return self.first(x).relu()


def test_the_clock_has_no_part_in_it():
    model, x = Slow().eval(), torch.rand(1, 20)
    quick = Explainer(model).attribute(x)
    model.seconds = 0.05
    slow = Explainer(model).attribute(x)
    assert (slow.method, slow.reason) == (quick.method, quick.reason)
    assert torch.equal(slow.values, quick.values)


def test_batches_are_kept_while_counting():
    most = 0

    def model(x):
        nonlocal most
        most = max(most, len(x))
        return x.sum(1)

    choose(Request.of(model, Arguments(torch.ones(1, 20)), at_once=1), model, Budget(batch_size=1))
    assert most == 1


def test_exact_values_are_those_of_exact():
    model, x = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 1)).eval(), torch.rand(3, 10)
    result = Explainer(model).attribute(x)
    assert result.method == "exact_shapley"
    torch.testing.assert_close(result.values, ExactShapley(model).attribute(x))
    assert result.std.eq(0).all()
    assert result.settings == {
        "method": "exact_shapley",
        "tolerance": None,
        "max_evaluations": None,
        "max_seconds": None,
    }


@pytest.mark.parametrize("far", [False, True])
def test_a_few_gradients_show_whether_propagation_is_far_off(far):
    """Values that are right, and values that are off by their own size."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(80, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    few = FewGradients.of(Request.of(model, Arguments(torch.rand(1, 80))))
    exact = GradientShapley(model).explain(few.request, n_pairs=256).values
    wrong = [v + v.square().mean().sqrt() * torch.randn(v.shape) for v in exact]
    assert (few.far_from(wrong if far else exact) > 0.5) == far
