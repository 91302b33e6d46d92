"""The choice of the method that explains a model best for the time it takes, by counting what the model does.

Nothing is timed: the same model, rows and options have the same method on every machine and in every load. Costs are
counted (`counting`): one evaluation is watched, and that tells what a gradient and a propagated pass would cost.
Nothing is run, traced or differentiated before it is known to be needed. Four answers compete (`benchmarks/real.py` and
`benchmarks/selection.py` measure them on trained networks):

- **Exact** values, where all coalitions take hardly longer than an estimate.
- **Evaluations** alone (`BayesianShapley`): for up to 64 players, and wherever nothing else can be had. They serve all
  outputs at once. Up to 64 players, a propagated prior was worth fewer evaluations than it costs on every network that
  was tried; only if the user allows for less than 8 evaluations a player, it is taken if it costs no more than 2,048.
- **Evaluations on a propagated prior**: for more than 64 coarse players (blocks of pixels, tokens, windows), of which N
  need several N evaluations before evaluations alone say anything. The prior pays while it costs no more than 8
  evaluations for each player, 32 if players are fine.
- **Gradients at coalitions** (`GradientShapley`) for more than 64 fine players (pixels, columns of a wide table), each
  of which tells about all of them; on a propagated prior where that costs no more than 1,024 evaluations, and a few
  gradients do not show that its plainest form, four nodes at rank 0, is far off. Sampled gradients show how far the
  prior is off, too, and it is believed no more than that. Every output needs a backward pass of
  its own: if fewer than 16 pairs can be had for 2,048 evaluations, evaluations serve better. So they do where gradients
  do not tell what the model does: a few of them have to add up to f(x) − f(baseline).

Networks of more than 24 nonlinear functions are not propagated: what a function leaves over is put into independent
noise, which the next layers average away though it is shared, and after 30 or 50 layers nothing is left of the truth
(EfficientNet-Lite0, 33 of them: errors of .9 to 1.4 of the values' size).

Evaluations give every answer its error bar: at least 64, and more until the tolerance or the `Budget` is reached: 2,048
at most, and of a large model as many as half a minute allows for a row, but 512. Good enough, unless the user says
otherwise, is that a row's largest value is known to ± 10 %: 1.96 standard deviations, of whichever player has the
largest, are no more than that. `max_seconds` alone looks at the clock: then the estimate grows until the time is up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import torch

from dasp.attribution.bayesian.bayesian_shapley import FEWEST as FEWEST_EVALUATIONS
from dasp.attribution.gradient_dasp import GradientDASP, automatic_columns
from dasp.attribution.gradient_shapley import FewGradients
from dasp.errors import BadInput, OverflowingRows, UnsupportedOperation, UntraceableModel, line_of
from dasp.games.call_options import read_options
from dasp.games.counting import GRADIENT, Count, Threads
from dasp.games.evaluator import Missing
from dasp.games.game import Game
from dasp.games.request import Request
from dasp.methods.catalogue import METHODS, PRIOR_NODES, Method
from dasp.models.calling import innermost

__all__ = ["FEWEST", "MOST", "TOLERANCE", "Budget", "Choice", "choose", "choose_evaluations"]

log = logging.getLogger("dasp")

TOLERANCE = 0.05  # the largest standard deviation, relative to a row's largest value, that is good enough unless said
FEWEST, MOST = 64, 2048  # evaluations for each row, unless said
_USUAL = 256  # evaluations: about what an estimate for few players takes
_WORTH = {True: 8, False: 32}  # evaluations for each player: what a prior may cost, by whether players are coarse
_WORTH_OF_MANY = 1024  # evaluations that a prior of sampled gradients may cost
_PLAIN_NODES, _POOR = 4, 0.3  # of propagation at rank 0, and the relative error beyond which no prior is of use
_FEWEST_PAIRS = 16  # of sampled gradients, for as many outputs as there are
_EXACT_IS_WORTH = 2  # times the time of an estimate
_MOST_COALITIONS = 2**20
_MOMENT = 0.05  # seconds for a row that nobody minds: exact values that take less are taken
_AT_ONCE = 0.1  # seconds for a row: budgets that take less are spent at once, as estimates in between take as long
_HALF_A_MINUTE, _FEWEST_OF_LARGE = 30.0, 512  # seconds for a row, and evaluations that a large model gets all the same
_FIT = 0.01  # seconds for the linear algebra of an estimate
_BOOKKEEPING = 2e-7  # seconds for each coalition, beside the model's
_MANY = 64  # players: what evaluations alone can do with
_DEEP = 24  # nonlinear functions: what can be propagated through
_MOST_EVALUATIONS = 2**15  # more than that have more linear algebra than model
_OTHERS = "BayesianShapley, Permutations, Gradients at coalitions and 'auto' do"
_EXACT, _EVALUATIONS, _GRADIENTS = "exact_shapley", "bayesian_shapley", "gradient_shapley"
_PRIOR, _ON_PRIOR = "gradient_dasp", {each: f"{each}_on_gradient_dasp" for each in (_EVALUATIONS, _GRADIENTS)}


@dataclass(frozen=True)
class Budget:
    """The wishes of a user, whichever method fulfils them: how near the truth, at which cost, and how to compute."""

    tolerance: float | None = None
    max_evaluations: int | None = None
    error_bars: bool = False
    batch_size: int | None = None
    seed: int = 0
    show_progress: bool | None = None
    max_seconds: float | None = None  # for each row
    missing: Missing = "raise"  # what to do about coalitions without a finite value

    def __post_init__(self) -> None:
        for name, value in read_options(vars(self), {own.name: own.default for own in fields(self)}).items():
            object.__setattr__(self, name, value)  # as it was meant
        if self.max_seconds == 0:
            raise ValueError("max_seconds must be positive, not 0")
        if self.max_seconds is not None and self.max_evaluations is not None:
            raise BadInput("a budget is a number of evaluations or of seconds, not both")

    def settled(self, tolerance: float | None, evaluations: int = MOST) -> Budget:
        """Return the same budget with a tolerance and a number of evaluations, where none is given. A time that is
        given decides by itself how many evaluations there are."""
        own = tolerance if self.tolerance is None else self.tolerance
        most = evaluations if self.max_evaluations is None and self.max_seconds is None else self.max_evaluations
        return replace(self, max_evaluations=most, tolerance=own)

    def options(self, method: Method, game: Game) -> dict[str, Any]:
        """Return the options of the method's `attribute` for this budget, and refuse what the method cannot do."""
        name = method.name
        if self.error_bars and not method.error_bars:
            raise BadInput(f"{name} knows no error bars: {_OTHERS}")
        if self.missing == "drop" and "missing" not in method.takes:
            raise BadInput(f"{name} needs the value of every coalition, and cannot do with missing='drop'")
        if self.max_seconds is not None and "max_seconds" not in method.takes:
            raise BadInput(f"{name} cannot be told its time: leave max_seconds to 'auto', or give max_evaluations")
        general = {
            "internal_batch_size": self.batch_size, "seed": self.seed, "show_progress": self.show_progress,
            "missing": self.missing, "max_seconds": self.max_seconds,
        }  # fmt: skip
        options = {**method.options, **{key: value for key, value in general.items() if key in method.takes}}
        if method.exact:
            return options
        if self.tolerance is not None:
            if "tolerance" not in method.takes:
                raise BadInput(f"{name} knows no tolerance: {_OTHERS}")
            options["tolerance"] = self.tolerance
        if self.max_seconds is not None and method.samples is not None:
            options |= _samples(method, game, _MOST_EVALUATIONS)
        if self.max_evaluations is not None:
            if self.tolerance is not None and method.samples == "nodes":
                raise BadInput(f"{name} takes a tolerance or a number of evaluations, not both")
            options |= _samples(method, game, self.max_evaluations)
            if method.replicates and (self.error_bars or self.tolerance is not None) and options[method.samples] < 2:  # type: ignore[index]
                raise BadInput(f"{self.max_evaluations} evaluations are too few for error bars of {name}")
        return options


def _samples(method: Method, game: Game, evaluations: int) -> dict[str, int]:
    """Take as many samples as evaluations allow, which do not count those of a prior."""
    name = method.name
    if method.samples is None:
        raise BadInput(f"{name} takes always the same number of evaluations: leave max_evaluations out")
    number = method.number(_beside_one(game), evaluations, with_prior=False)
    if number is None:
        raise BadInput(f"{evaluations} evaluations are too few for {name} with {game.count} players")
    return {method.samples: number}


def _beside_one(game: Game) -> Game:
    """Return the game beside one baseline: coalitions are counted once, however many baselines each is put beside."""
    return replace(game, baselines=game.baselines[:1], shares=None)


@dataclass(frozen=True)
class Choice:
    """The identifier of a method, with its budget, and the reason for it."""

    method: str
    reason: str
    budget: Budget
    obstacle: bool = False  # moments cannot be propagated, though that would pay
    threads: Threads | None = None  # of torch, where they were chosen


def choose(request: Request, model: Any, budget: Budget, *, counted: Callable[[], Count] | None = None) -> Choice:
    """Choose the method for a request to a model; `counted` tells what the model does, where that matters.

    >>> from dasp.games.request import Arguments
    >>> request = Request.of(lambda x: x.prod(1), Arguments(torch.ones(1, 6)))
    >>> choose(request, request.function, Budget()).reason
    '6 players have only 64 coalitions'
    """
    players, over = request.players, len(request.empties)
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
    costs = _Costs(request, model, budget, counted() if counted else Count.of_request(request, budget.batch_size))
    if coalitions <= min(_MOST_COALITIONS, allowed) and costs.all_are_quick(coalitions):
        return exact
    settled = budget.settled(None if MOST * costs.evaluation < _AT_ONCE else TOLERANCE, costs.affordable)
    if players > _MANY and not costs.coarse and costs.gradients_pay():
        if budget.max_evaluations is None and budget.max_seconds is None:  # every output has a backward pass of its own
            pairs = costs.affordable * GRADIENT // (1 + (GRADIENT - 1) * costs.outputs)
            settled = replace(settled, max_evaluations=pairs)
        choice = costs.on_prior(_GRADIENTS, f"gradients tell about all {players} players at once", settled)
    elif players > _MANY or allowed < _WORTH[True] * players:
        choice = costs.on_prior(_EVALUATIONS, f"{players} players", settled)
    else:
        reason = f"{players} players are few enough for evaluations alone"
        choice = Choice(_EVALUATIONS, reason, settled)
    return choice


@dataclass(frozen=True)
class _Costs:
    """What could be done for a request, and at which cost, in counted seconds for a row."""

    request: Request
    model: Any
    budget: Budget
    count: Count

    @property
    def evaluation(self) -> float:
        """Those of a coalition, over all rows of a background."""
        return self.count.evaluation * len(self.request.empties)

    @property
    def affordable(self) -> int:
        """The evaluations that people wait for, of a large model."""
        return min(MOST, max(_FEWEST_OF_LARGE, int(_HALF_A_MINUTE / self.evaluation)))

    @property
    def coarse(self) -> bool:
        return self.request.games[0].coarse

    @cached_property
    def gradients(self) -> FewGradients | None:
        """A few of them, if they tell what the model does."""
        return FewGradients.of(self.request)

    @property
    def outputs(self) -> int:
        return self.request.full[0].numel()

    @property
    def prior(self) -> float:
        """Those of a propagated prior."""
        columns = automatic_columns(self.request.games[0])
        return PRIOR_NODES * self.count.propagated(columns, self.outputs) * len(self.request.empties)

    def all_are_quick(self, coalitions: int) -> bool:
        """True if all coalitions are evaluated in little more than the time of an estimate."""
        everything = coalitions * (self.evaluation + _BOOKKEEPING)
        if self.budget.max_seconds is not None:  # the clock will tell
            return False
        most = self.budget.max_evaluations or MOST
        estimate = min(most, _USUAL) * self.evaluation + _FIT
        return everything <= max(_EXACT_IS_WORTH * estimate, _MOMENT) or coalitions <= most

    def gradients_pay(self) -> bool:
        """True if gradients can be had, for all outputs, at a cost that leaves enough of them."""
        pair = 2 * self.count.gradient(self.outputs) / self.count.evaluation
        allowed = self.budget.max_evaluations
        if _FEWEST_PAIRS * pair > MOST or (allowed is not None and allowed < 4 * GRADIENT * self.outputs):
            return False
        return self.budget.missing == "raise" and self.gradients is not None

    def on_prior(self, method: str, why: str, settled: Budget) -> Choice:
        """Return the method on a propagated prior if there is one, and it is worth its cost; else without."""
        players, allowed, each = self.request.players, self.budget.max_evaluations, self.evaluation
        worth: float = _WORTH_OF_MANY if method == _GRADIENTS else _WORTH[self.coarse] * players
        if method == _EVALUATIONS and allowed is not None and allowed < worth:
            worth = max(worth, MOST, _MOMENT / each)  # as evaluations cannot be had in its place
        if self.count.depth > _DEEP:
            return Choice(method, f"{why}, and the network is too deep for propagation", settled)
        if self.prior > worth * each or not self._has_time_for_prior():
            return Choice(method, f"{why}, and a propagated prior is not worth its cost", settled)
        if obstacle := _obstacle(self.request, self.model, self.budget.batch_size):
            reason = f"moments cannot be propagated through the model: {obstacle}"
            return Choice(method, reason, settled, obstacle=players > _MANY and method == _EVALUATIONS)
        if method == _GRADIENTS and self._prior_as_lifted() > worth * each:
            return Choice(method, f"{why}, and a propagated prior is not worth its cost", settled)
        if method == _GRADIENTS and self._propagation_is_poor():
            return Choice(method, f"{why}, and show that propagated values are far off", settled)
        return Choice(_ON_PRIOR[method], f"{players} players, and a propagated prior is worth its cost", settled)

    def _prior_as_lifted(self) -> float:
        """Return the counted seconds of a prior, with the passes through the operation where players meet. They are
        known once the model is lifted; that may be the whole model, and is a small part of most."""
        first = self.request.rows_of(slice(0, 1)) if len(self.request.games) == 1 else next(self.request.apart())
        (lifted,) = METHODS[_PRIOR].make(self.model).lifts(first, self.budget.batch_size)  # type: ignore[attr-defined]
        game = first.games[0].beside_each_baseline().rows_of(slice(0, 1))
        passes = lifted.frontier(*game.toggled(), *game.extra).packing - 1
        return self.prior + PRIOR_NODES * passes * self.count.gradient() * len(self.request.empties)

    def _propagation_is_poor(self) -> bool:
        """True if few gradients are evidence against propagation, by its plainest values, as those with columns of
        factors cost eight times as much. On networks for development these were off by .07 to .22 (convolutions, where
        a prior pays), .24 and .32 (ResNet-8, where it pays a little) and .40 and .62 (ResNet-20, where it does not)."""
        assert self.gradients is not None
        plain = GradientDASP(self.model, rank=0).explain(self.gradients.request, nodes=_PLAIN_NODES)
        return self.gradients.far_from([v.detach().double().cpu() for v in plain.values]) > _POOR

    def _has_time_for_prior(self) -> bool:
        seconds = self.budget.max_seconds
        return seconds is None or self.prior + self.count.tracing <= seconds / 4


def _obstacle(request: Request, model: Any, batch_size: int | None) -> str:
    """Return why moments cannot be propagated through the model; empty if they can. What is traced for that is kept for
    the prior itself."""
    if not isinstance(model, torch.nn.Module):
        return f"it is a {type(innermost(model)).__name__}, not a torch.nn.Module"
    if torch.is_inference_mode_enabled():
        return "inference mode forbids derivatives"
    try:
        METHODS[_PRIOR].make(model).lifts(request.rows_of(slice(0, 1)), batch_size)  # type: ignore[attr-defined]
    except (UnsupportedOperation, UntraceableModel) as error:
        return error.summary
    except OverflowingRows as error:
        return line_of(error)
    except Exception as error:  # another method because of an accident would be chosen by accident
        error.add_note("while the model was traced for propagation; method='bayesian' does without")
        raise
    return ""


def choose_evaluations(
    players: int, budget: Budget, seconds: Callable[[], float] | None = None, fewest: int = FEWEST_EVALUATIONS
) -> Choice:
    """Choose the method where all that can be done is to evaluate coalitions, as with texts and games: exact values if
    the budget allows for all coalitions, else `BayesianShapley`, which is also the one that can leave coalitions out.
    If `seconds` tells the time of a coalition, a budget of time is one of evaluations, but of `fewest` in any case.

    >>> choose_evaluations(10, Budget()).reason
    '10 players have only 1,024 coalitions'
    >>> choose_evaluations(10, Budget(max_seconds=600), lambda: 1.0).reason
    '10 players have more than 600 coalitions'
    """
    if budget.max_seconds is not None and seconds is not None:
        most = min(_MOST_EVALUATIONS, max(fewest, int(budget.max_seconds / seconds())))
        budget = replace(budget, max_seconds=None, max_evaluations=most)
    coalitions, most = 2**players, budget.max_evaluations or (MOST if budget.max_seconds is None else FEWEST)
    if budget.max_seconds is not None and coalitions > most:
        choice = Choice(_EVALUATIONS, "as many coalitions as there is time for", budget.settled(TOLERANCE))
    elif most < min(FEWEST_EVALUATIONS, coalitions):
        raise BadInput(f"max_evaluations must be at least {min(FEWEST_EVALUATIONS, coalitions)}, not {most}")
    elif coalitions <= most and players <= (METHODS[_EXACT].players or 0) and budget.missing == "raise":
        only = f"{players} players have only {coalitions:,} coalitions"
        choice = Choice(_EXACT, only, replace(budget, max_seconds=None))
    else:
        reason = f"{players} players have more than {most:,} coalitions"
        if coalitions <= most:
            reason = "coalitions without a value are left out"
        choice = Choice(_EVALUATIONS, reason, budget.settled(TOLERANCE))
    log.info("%s: %s", METHODS[choice.method].name, choice.reason)
    return choice
