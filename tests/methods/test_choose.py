"""The choice of a method for a model, by its own time, and budgets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dasp import ExactShapley
from dasp.errors import BadInput
from dasp.games.request import Arguments, Request
from dasp.methods.choose import FEWEST, MOST, TOLERANCE, Budget, Pace, choose

MICRO, MILLI = 1e-6, 1e-3


def request(players: int, idle: int = 0, entries: int = 1) -> Request:
    x = torch.ones(2, players * entries)
    x[:, :idle] = 0
    mask = torch.arange(players).repeat_interleave(entries)
    return Request.of(lambda x: x.sum(1), Arguments(x, feature_mask=mask))


@pytest.mark.parametrize(
    ("players", "evaluation", "prior", "name"),
    [
        (6, 1.0, None, "exact_shapley"),  # no more coalitions than an estimate evaluates
        (11, 1.0, None, "exact_shapley"),  # as many as the budget
        (13, 5 * MICRO, 20 * MILLI, "exact_shapley"),  # 41 ms for all of them
        (15, 5 * MICRO, 20 * MILLI, "bayesian_shapley"),  # 164 ms for all of them, 11 ms for an estimate
        (13, 5 * MILLI, None, "bayesian_shapley"),  # a transformer: 41 s for all of them, 1.3 s for an estimate
        (18, 4 * MICRO, 10 * MILLI, "bayesian_shapley"),  # a dense network: 576 evaluations take 2.3 ms
        (36, 300 * MICRO, 500 * MILLI, "bayesian_shapley"),  # a deep network: 1,152 evaluations take 346 ms
        (784, 100 * MICRO, 50 * MILLI, "bayesian_shapley_on_gradient_dasp"),  # pixels: 25,088 evaluations take 2.5 s
        (784, 100 * MICRO, 50, "bayesian_shapley"),  # pixels and a thousand outputs
        (784, 100 * MICRO, None, "bayesian_shapley"),
    ],
)
def test_what_a_choice_depends_on(players, evaluation, prior, name):
    choice = choose(request(players), lambda: Pace(evaluation, prior, "it branches"), Budget())
    assert choice.method == name
    assert ("it branches" in choice.reason) == (prior is None and name != "exact_shapley")
    assert choice.obstacle == (prior is None and players == 784)  # who would need a prior


def test_a_prior_pays_less_for_coarse_players():
    pace = Pace(100 * MICRO, 500 * MILLI)  # as long as 25 evaluations for each of 200 players
    fine, coarse = (choose(request(200, entries=entries), lambda: pace, Budget()) for entries in (3, 4))
    assert (fine.method, fine.budget.tolerance) == ("bayesian_shapley_on_gradient_dasp", TOLERANCE)
    assert (coarse.method, coarse.budget.tolerance) == ("bayesian_shapley", TOLERANCE)


def test_a_prior_pays_more_where_few_evaluations_are_allowed():
    pace = Pace(100 * MICRO, 200 * MILLI)  # as long as 2,000 evaluations
    for allowed, name in ((128, "bayesian_shapley_on_gradient_dasp"), (2000, "bayesian_shapley")):
        assert choose(request(48), lambda: pace, Budget(max_evaluations=allowed)).method == name
    assert choose(request(48), lambda: Pace(100 * MICRO, 1.0), Budget(max_evaluations=128)).method == "bayesian_shapley"
    moment = choose(request(48), lambda: Pace(1 * MICRO, 40 * MILLI), Budget(max_evaluations=128))
    assert moment.method == "bayesian_shapley_on_gradient_dasp"


def test_a_choice_is_for_all_rows():
    """Players that are idle in one row may be busy in the next."""
    assert choose(request(30, idle=27), lambda: Pace(1 * MILLI, None), Budget()).method == "bayesian_shapley"


def test_the_budget():
    slow, quick = Pace(1 * MILLI, None), Pace(1 * MICRO, None)
    usual = choose(request(30), lambda: slow, Budget()).budget
    assert (usual.max_evaluations, usual.tolerance) == (MOST, TOLERANCE)
    assert choose(request(15), lambda: slow, Budget()).budget.tolerance == TOLERANCE
    at_once = choose(request(30), lambda: quick, Budget()).budget
    assert (at_once.max_evaluations, at_once.tolerance) == (MOST, None)
    own = choose(request(30), lambda: slow, Budget(max_evaluations=300, tolerance=0.2)).budget
    assert (own.max_evaluations, own.tolerance) == (300, 0.2)
    timed = choose(request(30), lambda: slow, Budget(max_seconds=0.5)).budget
    assert (timed.max_evaluations, timed.max_seconds) == (490, None)  # 10 ms for the fit
    prior = choose(request(400), lambda: Pace(1 * MILLI, 0.3), Budget(max_seconds=0.5)).budget
    assert prior.max_evaluations == 190
    assert choose(request(30), lambda: slow, Budget(max_seconds=0.001)).budget.max_evaluations == FEWEST
    assert choose(request(12), lambda: slow, Budget(max_seconds=60)).method == "exact_shapley"
    assert choose(request(12), lambda: quick, Budget(max_evaluations=300)).method == "bayesian_shapley"
    assert choose(request(6), lambda: slow, Budget(max_evaluations=20)).method == "bayesian_shapley"
    exact = choose(request(8), lambda: quick, Budget(max_seconds=1))
    assert (exact.method, exact.budget.max_seconds) == ("exact_shapley", None)
    with pytest.raises(BadInput, match="must be at least 10, not 5"):
        choose(request(30), lambda: pytest.fail("not timed"), Budget(max_evaluations=5))
    with pytest.raises(BadInput, match="not both"):
        Budget(max_seconds=1, max_evaluations=100)
    with pytest.raises(ValueError, match="positive"):
        Budget(max_seconds=0)


class Slow(nn.Module):
    """Takes about two milliseconds a row, whatever the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.matrix = nn.Linear(12, 1), torch.rand(500, 500)

    def forward(self, x):
        for _ in range(len(x)):
            self.matrix @ self.matrix
        return self.first(x)


def test_a_model_is_timed():
    x = torch.ones(1, 12)
    quick = nn.Linear(12, 1).eval()
    pace = Pace.of(Request.of(quick, Arguments(x)), quick)
    assert 0 < pace.evaluation < pace.prior
    assert Pace.of(Request.of(Slow().eval(), Arguments(x)), Slow().eval()).evaluation > 5 * pace.evaluation
    function = lambda x: x.sum(1)
    obstacle = Pace.of(Request.of(function, Arguments(x)), function).obstacle
    assert obstacle == "it is a function, not a torch.nn.Module"


def test_what_cannot_be_differentiated_is_evaluated():
    model = nn.Sequential(nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    with torch.inference_mode():
        pace = Pace.of(Request.of(model, Arguments(torch.ones(1, 20))), model)
    assert pace.prior is None
    assert "inference mode" in pace.obstacle


def test_batches_are_kept_while_timing():
    most = 0

    def model(x):
        nonlocal most
        most = max(most, len(x))
        return x.sum(1)

    Pace.of(Request.of(model, Arguments(torch.ones(1, 12)), at_once=3), model, batch_size=3)
    assert most == 3


def test_exact_values_are_those_of_exact():
    from dasp import Explainer  # noqa: PLC0415

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
