"""The choice of the method that explains a model best for the time it takes: found out by timing the model at hand.

Three answers compete (`benchmarks/selection.py` measures them on trained networks):

- **Exact** values, where all coalitions take hardly longer than an estimate.
- **Evaluations** alone (`BayesianShapley`): right for few, coarse players, whatever the network.
- **Evaluations on a propagated prior**: unbeatable for many fine players, as N of them need several N evaluations
  before evaluations alone say anything, while a few propagated passes tell about all of them. The prior pays while it
  takes no longer than 32 evaluations for each player, 8 if players are coarse; if fewer than these are allowed, while
  it takes no longer than 2,048, or a moment. A model with many outputs pays for a backward pass each, and mostly does
  without.

Evaluations give every answer its error bar: at least 64, and more until the tolerance or the `Budget` is reached. Good
enough, unless the user says otherwise, is that a row's largest value is known to ± 10 %: 1.96 standard deviations, of
whichever player has the largest, are no more than that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from dasp.attribution.bayesian.bayesian_shapley import FEWEST as FEWEST_EVALUATIONS
from dasp.attribution.captum_adapter import estimated
from dasp.errors import BadInput, OverflowingRows, UnsupportedOperation, UntraceableModel, line_of
from dasp.games.evaluator import Evaluator, Missing
from dasp.games.game import Game
from dasp.games.request import Request, check_positive, check_tolerance
from dasp.methods.catalogue import METHODS, PRIOR_NODES, Method
from dasp.models.calling import innermost

__all__ = ["FEWEST", "MOST", "TOLERANCE", "Budget", "Choice", "Pace", "choose", "choose_evaluations"]

log = logging.getLogger("dasp")

TOLERANCE = 0.05  # the largest standard deviation, relative to a row's largest value, that is good enough unless said
FEWEST, MOST = 64, 2048  # evaluations for each row, unless said
_USUAL = 256  # evaluations: about what an estimate for few players takes
_WORTH = {True: 8, False: 32}  # evaluations for each player: what a prior may cost, by whether players are coarse
_EXACT_IS_WORTH = 2  # times the time of an estimate
_MOST_COALITIONS = 2**20
_MOMENT = 0.05  # seconds for a row that nobody minds: exact values that take less are taken, and budgets spent at once
_BOOKKEEPING = 2e-7  # seconds for each coalition, beside the model's
_STAGES = 5  # of an estimate that is fitted again and again: a budget that takes no longer is spent at once
_MANY = 64  # players who would need a prior
_A_WHILE, _SHORT, _REPEATS = 5e-3, 0.5, 3  # seconds, and how often what is quick is timed
_MOST_EVALUATIONS = 2**15  # more than that have more linear algebra than model
_OTHERS = "BayesianShapley, Permutations, Gradients at coalitions and 'auto' do"
_EXACT = "exact_shapley"
_PRIOR, _WITH_PRIOR, _WITHOUT_PRIOR = "gradient_dasp", "bayesian_shapley_on_gradient_dasp", "bayesian_shapley"


@dataclass(frozen=True)
class Budget:
    """The wishes of a user, whichever method fulfils them: how near the truth, at which cost, and how to compute."""

    tolerance: float | None = None
    max_evaluations: int | None = None
    error_bars: bool = False
    batch_size: int | None = None
    seed: int = 0
    show_progress: bool = False
    max_seconds: float | None = None  # for each row
    missing: Missing = "raise"  # what to do about coalitions without a finite value

    def __post_init__(self) -> None:
        check_positive(max_evaluations=self.max_evaluations, batch_size=self.batch_size)
        check_tolerance(self.tolerance)
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive, not {self.max_seconds}")
        if self.max_seconds is not None and self.max_evaluations is not None:
            raise BadInput("a budget is a number of evaluations or of seconds, not both")

    def evaluations(self, seconds: float, around: float, fewest: int, most: int) -> int:
        """Return the number of evaluations for each row, if one takes so many seconds, and what is `around` all of them
        takes others; `most`, unless a number or a time is given."""
        if self.max_seconds is not None:
            return min(_MOST_EVALUATIONS, max(fewest, int((self.max_seconds - around) / seconds)))
        return most if self.max_evaluations is None else self.max_evaluations

    def settled(self, evaluations: int, tolerance: float | None) -> Budget:
        """Return the same budget with a number of evaluations, and with a tolerance if none is given."""
        own = tolerance if self.tolerance is None else self.tolerance
        return replace(self, max_evaluations=evaluations, max_seconds=None, tolerance=own)

    def options(self, method: Method, game: Game) -> dict[str, Any]:
        """Return the options of the method's `attribute` for this budget, and refuse what the method cannot do."""
        name = method.name
        if self.error_bars and not method.error_bars:
            raise BadInput(f"{name} knows no error bars: {_OTHERS}")
        if self.missing == "drop" and "missing" not in method.takes:
            raise BadInput(f"{name} needs the value of every coalition, and cannot do with missing='drop'")
        if self.max_seconds is not None:
            raise BadInput(f"{name} cannot be told its time: leave max_seconds to 'auto', or give max_evaluations")
        general = {
            "internal_batch_size": self.batch_size, "seed": self.seed, "show_progress": self.show_progress,
            "missing": self.missing,
        }  # fmt: skip
        options = {**method.options, **{key: value for key, value in general.items() if key in method.takes}}
        if method.exact:
            return options
        if self.tolerance is not None:
            if "tolerance" not in method.takes:
                raise BadInput(f"{name} knows no tolerance: {_OTHERS}")
            options["tolerance"] = self.tolerance
        if self.max_evaluations is not None:
            if self.tolerance is not None and method.samples == "nodes":
                raise BadInput(f"{name} takes a tolerance or a number of evaluations, not both")
            options |= _samples(method, game, self.max_evaluations)
            if method.replicates and (self.error_bars or self.tolerance is not None) and options[method.samples] < 2:  # type: ignore[index]
                raise BadInput(f"{self.max_evaluations} evaluations are too few for error bars of {name}")
        return options


def _samples(method: Method, game: Game, evaluations: int) -> dict[str, int]:
    """Take as many samples as evaluations allow; those of BayesianShapley do not count its prior."""
    name = method.name
    if method.samples is None:
        raise BadInput(f"{name} takes always the same number of evaluations: leave max_evaluations out")
    if method.samples == "max_evaluations":
        return {method.samples: evaluations}
    number = method.number(replace(game, baselines=game.baselines[:1], shares=None), evaluations)
    if number is None:
        raise BadInput(f"{evaluations} evaluations are too few for {name} with {game.count} players")
    return {method.samples: number}


@dataclass(frozen=True)
class Pace:
    """The time that a model takes, in seconds for one row."""

    evaluation: float  # of a coalition, over all rows of a background
    prior: float | None  # a propagated prior; None if there is none
    obstacle: str = ""  # why there is none
    fit: float = 0.01  # the linear algebra of an estimate

    @staticmethod
    def of(request: Request, model: Any, batch_size: int | None = None) -> Pace:
        """Time the model on the first row: some coalitions in a batch, an estimate, and a propagated prior."""
        first = request.rows_of(slice(0, 1))
        (evaluator,) = first.evaluators(batch_size, _NoProgress())
        evaluation = _time_of_evaluation(evaluator)
        estimate = METHODS[_WITHOUT_PRIOR].make(model)
        run = partial(estimated, estimate, first, max_evaluations=FEWEST, internal_batch_size=batch_size)
        fit = max(0.0, _timed(run) - FEWEST * evaluation)
        if not isinstance(model, torch.nn.Module):
            return Pace(evaluation, None, f"it is a {type(innermost(model)).__name__}, not a torch.nn.Module", fit)
        if torch.is_inference_mode_enabled():
            return Pace(evaluation, None, "inference mode forbids derivatives", fit)
        try:
            propagated = partial(estimated, METHODS[_PRIOR].make(model), first, internal_batch_size=batch_size)
            prior = PRIOR_NODES * _timed(partial(propagated, nodes=1))
            if prior < _SHORT:  # much of which each call takes, and not each node
                prior = _timed(partial(propagated, nodes=PRIOR_NODES))
        except (UnsupportedOperation, UntraceableModel) as error:
            return Pace(evaluation, None, error.summary, fit)
        except OverflowingRows as error:
            return Pace(evaluation, None, line_of(error), fit)
        except Exception as error:  # another method because of an accident would be chosen by accident
            error.add_note("while moments were propagated through the model; method='bayesian' does without them")
            raise
        return Pace(evaluation, prior, fit=fit)


def _time_of_evaluation(evaluator: Evaluator) -> float:
    """Seconds for a coalition among as many as take a while: a few of a quick model take what a call takes."""
    generator = torch.Generator().manual_seed(0)
    number = FEWEST
    while True:
        coalitions = torch.rand(number, evaluator.game.count, generator=generator) < 0.5
        seconds = _timed(partial(evaluator.worth, coalitions))
        if seconds > _A_WHILE or number >= MOST:
            return seconds / number
        number *= 4


class _NoProgress:
    """A progress bar that shows nothing."""

    def update(self, number: int) -> None:
        """Do nothing."""


def _timed(function: Callable[[], Any]) -> float:
    """The time of a second call, as the first may trace, compile or prepare; of a quick one, the least of three."""
    function()
    times: list[float] = []
    while not times or (len(times) < _REPEATS and sum(times) < _MOMENT):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclass(frozen=True)
class Choice:
    """The identifier of a method, with its budget, and the reason for it."""

    method: str
    reason: str
    budget: Budget
    obstacle: bool = False  # moments cannot be propagated, though that would pay
    times: str = ""  # the times that were measured, which are others every time

    @property
    def full_reason(self) -> str:
        """The reason with the times that it rests on."""
        return f"{self.reason}: {self.times}" if self.times else self.reason


def choose(request: Request, pace: Callable[[], Pace], budget: Budget) -> Choice:
    """Choose the method for a request; `pace` times the model, where that matters.

    >>> from dasp.games.request import Arguments
    >>> request = Request.of(lambda x: x.prod(1), Arguments(torch.ones(1, 6)))
    >>> choose(request, lambda: Pace(1e-5, None), Budget()).reason
    '6 players have only 64 coalitions'
    """
    players, over, coarse = request.players, len(request.empties), request.games[0].coarse
    coalitions = 2 ** min(players, 64)
    exact = Choice(
        _EXACT,
        f"{players} players have only {coalitions:,} coalitions" + f" over {over} background rows" * (over > 1),
        replace(budget, max_seconds=None),
    )
    allowed = coalitions if budget.max_evaluations is None else budget.max_evaluations
    if allowed < min(FEWEST_EVALUATIONS, coalitions):
        raise BadInput(f"max_evaluations must be at least {FEWEST_EVALUATIONS}, not {allowed}")
    if coalitions <= min(FEWEST, allowed):
        return exact
    measured = pace()
    pays = measured.prior is not None and measured.prior <= _worth(
        _WORTH[coarse] * players, allowed, measured.evaluation
    )
    around = measured.fit + (measured.prior or 0.0 if pays else 0.0)
    most = budget.evaluations(measured.evaluation, around, FEWEST, MOST)
    estimate = min(most, _USUAL) * measured.evaluation + around
    everything = coalitions * (measured.evaluation + _BOOKKEEPING)
    quick = everything <= max(_EXACT_IS_WORTH * estimate, _MOMENT) or coalitions <= most
    quick = quick and everything <= (budget.max_seconds or everything)
    if coalitions <= min(_MOST_COALITIONS, allowed) and quick:
        return exact
    at_once = max(_MOMENT, _STAGES * measured.fit)
    settled = budget.settled(most, None if most * measured.evaluation < at_once else TOLERANCE)
    if measured.prior is None:
        reason = f"moments cannot be propagated through the model: {measured.obstacle}"
        return Choice(_WITHOUT_PRIOR, reason, settled, obstacle=players > _MANY)
    both = f"a propagated prior takes {_time(measured.prior)} a row, an evaluation {_time(measured.evaluation)}"
    if pays:
        return Choice(_WITH_PRIOR, f"{players} players, and a propagated prior is worth its time", settled, times=both)
    reason = f"{players} players, and evaluations alone do more than a propagated prior"
    return Choice(_WITHOUT_PRIOR, reason, settled, times=both)


def choose_evaluations(
    players: int, seconds: Callable[[], float], budget: Budget, fewest: int = FEWEST_EVALUATIONS
) -> Choice:
    """Choose the method where all that can be done is to evaluate coalitions, as with texts and games: exact values if
    the budget allows for all coalitions, else `BayesianShapley`, which is also the one that can leave coalitions out.
    `seconds` times a coalition, where that matters; the time allows for `fewest` in any case.

    >>> choose_evaluations(10, lambda: 1.0, Budget()).reason
    '10 players have only 1,024 coalitions'
    >>> choose_evaluations(10, lambda: 1.0, Budget(max_seconds=600)).reason
    '10 players have more than 600 coalitions'
    """
    coalitions, most = 2**players, budget.max_evaluations or MOST
    if budget.max_seconds is not None:
        most = budget.evaluations(seconds(), 0.0, fewest, MOST)
    if most < min(FEWEST_EVALUATIONS, coalitions):
        raise BadInput(f"max_evaluations must be at least {min(FEWEST_EVALUATIONS, coalitions)}, not {most}")
    if coalitions <= most and players <= (METHODS[_EXACT].players or 0) and budget.missing == "raise":
        reason = f"{players} players have only {coalitions:,} coalitions"
        choice = Choice(_EXACT, reason, replace(budget, max_seconds=None))
    else:
        reason = f"{players} players have more than {most:,} coalitions"
        if coalitions <= most:
            reason = "coalitions without a value are left out"
        choice = Choice(_WITHOUT_PRIOR, reason, budget.settled(most, TOLERANCE))
    log.info("%s: %s", METHODS[choice.method].name, choice.reason)
    return choice


def _worth(evaluations: int, allowed: int, each: float) -> float:
    """Return how many seconds a prior may take: those of so many evaluations. Where fewer are allowed, they cannot
    be had in its place: then it may take a moment, or as long as the largest budget."""
    return evaluations * each if allowed >= evaluations else max(evaluations * each, MOST * each, _MOMENT)


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        number = seconds / scale
        if number >= 1 or unit == "µs":
            return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"
    raise AssertionError
