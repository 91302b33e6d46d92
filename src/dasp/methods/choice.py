"""Which method explains a model best for the time it takes: found out by timing the model at hand.

Three answers compete (`benchmarks/selection.py` measures them on trained networks):

- **Exact** values, where all coalitions take hardly longer than an estimate.
- **Evaluations** alone (`BayesianShapley`): right for few, coarse players, whatever the network.
- **Evaluations on a propagated prior**: unbeatable for many fine players, as N of them need several N evaluations
  before evaluations alone say anything, while a few propagated passes tell about all of them. The prior pays while it
  takes no longer than `_WORTH`·N evaluations; a model with many outputs pays for a backward pass each, and mostly does
  without.

Evaluations give every answer its error bar: at least 64, and more until the tolerance or the budget is reached.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dasp.attribution.base import PropagatedAttribution
from dasp.errors import BadInput, UnsupportedOperation, UntraceableModel
from dasp.games.idle import Active
from dasp.games.request import Request
from dasp.methods.table import METHODS
from dasp.methods.wanted import Wanted

__all__ = ["FEWEST", "MOST", "SHORT_NAMES", "TOLERANCE", "Choice", "Pace", "choose", "method_name"]

TOLERANCE = 0.01  # the largest standard deviation, relative to prediction − base, that is good enough unless said
FEWEST, MOST = 64, 2048  # evaluations for each row, unless said
_USUAL = 256  # evaluations: about what an estimate for few players takes
_WORTH = 8  # evaluations for each player: what a prior may cost
_EXACT_IS_WORTH = 2  # times the time of an estimate
_MOST_COALITIONS = 2**20
_TIMED = 64  # coalitions
_FIT = 0.01  # seconds for the linear algebra of an estimate, about
_MOMENT = 0.03  # seconds: a budget that takes less is spent at once, as looking at it in between takes longer

SHORT_NAMES = {
    "exact": "Exact",
    "dasp": "DASP, full rank",
    "gradient": "GradientDASP",
    "bayesian": "BayesianShapley",
    "permutation": "Permutations",
}
_PRIOR, _WITH_PRIOR = "GradientDASP", "BayesianShapley on GradientDASP"


def method_name(method: str) -> str:
    """The name in `METHODS` of a method by that name or a short one.

    >>> method_name("dasp")
    'DASP, full rank'
    """
    name = SHORT_NAMES.get(method, method)
    if name not in METHODS:
        names = ", ".join(map(repr, ["auto", *SHORT_NAMES, *METHODS]))
        raise BadInput(f"there is no method {method!r}; there are {names}")
    return name


@dataclass(frozen=True)
class Pace:
    """How quick a model is, in seconds for one row."""

    evaluation: float  # of a coalition, over all rows of a background
    prior: float | None  # a propagated prior; None if there is none
    obstacle: str = ""  # why there is none

    @staticmethod
    def of(request: Request, model: Any) -> Pace:
        """Time the model on the first row: some coalitions in a batch, and a propagated prior."""
        first = request.rows_of(slice(0, 1))
        (evaluator,) = first.evaluators(None, _NoProgress())
        generator = torch.Generator().manual_seed(0)
        coalitions = torch.rand(_TIMED, evaluator.game.count, generator=generator) < 0.5
        evaluator.worth(coalitions[:2])
        seconds = _timed(lambda: evaluator.worth(coalitions))
        if not isinstance(model, torch.nn.Module):
            return Pace(seconds / _TIMED, None, f"it is a {type(model).__name__}, not a torch.nn.Module")
        try:
            prior = METHODS[_PRIOR].make(model)
            assert isinstance(prior, PropagatedAttribution)
            prior.lift(evaluator.game)
            prior.explain(first, nodes=1)
            return Pace(
                seconds / _TIMED, METHODS[_WITH_PRIOR].prior_nodes * _timed(lambda: prior.explain(first, nodes=1))
            )
        except (UnsupportedOperation, UntraceableModel) as error:
            return Pace(seconds / _TIMED, None, error.summary)


class _NoProgress:
    """Shows nothing."""

    def update(self, number: int) -> None:
        """Do nothing."""


def _timed(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


@dataclass(frozen=True)
class Choice:
    """A method of `METHODS` with its budget, and why."""

    method: str
    reason: str
    wanted: Wanted
    obstacle: bool = False  # whether moments cannot be propagated, though that would pay


def choose(request: Request, pace: Callable[[], Pace], wanted: Wanted) -> Choice:
    """The method for a request; `pace` times the model, where that matters.

    >>> from dasp.games.arguments import Arguments
    >>> request = Request.of(lambda x: x.prod(1), Arguments(torch.ones(1, 6)))
    >>> choose(request, lambda: Pace(1e-5, None), Wanted()).reason
    '6 players have only 64 coalitions'
    """
    players = max((game.count for game in Active.of(request).request.games), default=1)
    coalitions, over = 2 ** min(players, 64), len(request.empties)
    few = f"{players} players have only {coalitions:,} coalitions" + (f" over {over} background rows" * (over > 1))
    if coalitions <= FEWEST:
        return Choice("Exact", few, wanted)
    measured = pace()
    budget = wanted.budget(measured.evaluation, FEWEST, MOST)
    pays = measured.prior is not None and measured.prior <= _WORTH * players * measured.evaluation
    estimate = min(budget, _USUAL) * measured.evaluation + _FIT + (measured.prior or 0 if pays else 0)
    quick = coalitions * measured.evaluation <= _EXACT_IS_WORTH * estimate or coalitions <= budget
    if coalitions <= _MOST_COALITIONS and quick and coalitions <= (wanted.max_evaluations or coalitions):
        return Choice("Exact", few, wanted)
    settled = wanted.settled(budget, None if budget * measured.evaluation < _MOMENT else TOLERANCE)
    if measured.prior is None:
        reason = f"moments cannot be propagated through the model: {measured.obstacle}"
        return Choice("BayesianShapley", reason, settled, obstacle=True)
    both = f"a propagated prior takes {_time(measured.prior)} a row, an evaluation {_time(measured.evaluation)}"
    if pays:
        return Choice(_WITH_PRIOR, f"{players} players: {both}", settled)
    return Choice(
        "BayesianShapley", f"{players} players: {both}, so evaluations alone are nearer in that time", settled
    )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2g} {unit}"
    return f"{seconds * 1e6:.2g} µs"
