"""The parts that our estimators share: one way to answer `attribute`, an `Estimate`, and a `Profile` of the cost.

An estimator has two entrances. `attribute` is Captum's: each estimator writes down its own options, so that signatures,
help and type checkers show them, and leaves the work to `PlayerMethod._attribute`, which understands the arguments once
for all. `explain` is the one method that an estimator has to define: it answers a `Request` that was understood before,
with the same options, and is what other estimators (for a prior) and `Explainer` call.

**Cost** is counted in evaluations of the model for one row: a backward pass is two; a propagated pass is one for the
mean, one for the variance and one for each column of factors.
"""

from __future__ import annotations

import io
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.errors import UntraceableModel
from dasp.games.counting import GRADIENT, Count, suited_threads, torch_threads
from dasp.games.evaluator import EvaluatedRow
from dasp.games.game import Game
from dasp.games.progress import working
from dasp.games.request import Arguments, Request, Selection
from dasp.models.calling import Output, checked_model, forward_of, innermost
from dasp.propagation.graph_cache import GraphCache, ModelOutputs
from dasp.propagation.lifting import Frontier, Lifted
from dasp.propagation.rules import RULES

__all__ = ["GRADIENT", "Estimate", "PlayerMethod", "Profile", "PropagatedAttribution", "cost_of_prior",
           "rows_at_once", "without_autocast"]  # fmt: skip

# Numbers in the widest tensor at the frontier of a chunk.
_CHUNK_ENTRIES = 2**19


@dataclass(frozen=True)
class Estimate:
    """The values that a method found for the players of each game of a request, (players, rows, *selected)."""

    values: list[Tensor]
    std: list[Tensor] | None = None  # their standard deviations, where the method knows them
    missed: Tensor | None = None  # True for rows that did not reach the tolerance, (rows,); None if there is none
    evaluations: Tensor | None = None  # of the model for each row, as a `Profile` counts them; None if not known
    evaluated: list[EvaluatedRow | None] | None = None  # the coalitions of each row and their worth, if they are kept
    background_std: list[Tensor] | None = None  # standard deviations for the choice of the background, if known
    gaps: Tensor | None = None  # Σ values − (f(x) − f(baseline)), if the method knows them already

    def answer(self, request: Request, *, delta: bool = False, std: bool = False) -> Any:
        """Return the result of `attribute`: values in the shape of the inputs, and what is asked for beside them."""
        result = request.answer(_as_inputs(request, self.values))
        if std and self.std is not None:
            return result, request.answer(_as_inputs(request, self.std))
        return (result, request.gaps(self.values) if self.gaps is None else self.gaps) if delta else result


def _as_inputs(request: Request, values: list[Tensor]) -> list[Tensor]:
    """Values in the dtype and on the device of the inputs."""
    return [v.to(game.device, game.dtype) for v, game in zip(values, request.games, strict=True)]


def _none(_: Game) -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The cost of a method for one row of a game, in evaluations of the model, and its abilities.

    >>> from dasp.games.request import games
    >>> (game,) = games(Arguments(torch.ones(1, 6)))
    >>> profile = Profile(fixed=lambda _: 2, samples="n_permutations", each=lambda game: 2 * (game.count - 1))
    >>> profile.cost(game, 3), profile.number(game, 100)
    (32, 9)
    """

    fixed: Callable[[Game], int] = _none  # evaluations, whatever the number of samples
    beforehand: Callable[[Game], int] = _none  # evaluations of a prior, which users' budgets do not count
    samples: str | None = None  # the option that says how many samples (steps, nodes, …) are taken
    each: Callable[[Game], int] = _none  # evaluations for each of them
    fewest: Callable[[Game], int] = lambda _: 1
    most: Callable[[Game], int | None] = lambda _: None  # more of them are of no use
    players: int | None = None  # the largest number of players
    paper_each: Callable[[Game], int] | None = None  # `each` in the paper's accounting
    error_bars: bool = False  # it knows standard deviations
    exact: bool = False  # its values have no error
    replicates: bool = False  # its error bars come from how its samples differ: there must be two
    propagates: bool = False  # it propagates moments, which are poor where values do not add up

    def number(self, game: Game, evaluations: int, *, with_prior: bool = True) -> int | None:
        """Return how many samples that many evaluations allow, with those of a prior or beside it; None if not one."""
        if self.samples is None:
            return None
        spent = self.fixed(game) + (self.beforehand(game) if with_prior else 0)
        number = (evaluations // len(game.baselines) - spent) // self.each(game)
        most = self.most(game)
        number = number if most is None else min(number, most)
        return number if number >= self.fewest(game) else None

    def possible(self, game: Game) -> bool:
        """True if there are not too many players."""
        return self.players is None or game.count <= self.players

    def cost(self, game: Game, number: int | None = None) -> int:
        """Return the evaluations for a row; of a background, as many for each of its rows."""
        return self._cost(game, number, self.each)

    def paper_cost(self, game: Game, number: int | None = None) -> int:
        """Return the evaluations as the paper counts them."""
        return self._cost(game, number, self.paper_each or self.each)

    def _cost(self, game: Game, number: int | None, each: Callable[[Game], int]) -> int:
        if (number is None) != (self.samples is None):
            raise ValueError(f"the cost depends on {self.samples}" if self.samples else "the method takes no samples")
        return len(game.baselines) * (self.fixed(game) + self.beforehand(game) + (number or 0) * each(game))


def cost_of_prior(prior: Profile | None, samples: Callable[[Game], int]) -> Callable[[Game], int]:
    """Return the evaluations that a prior with a number of samples takes beside each baseline."""
    return lambda game: prior.cost(game, samples(game)) // len(game.baselines) if prior else 0


class PlayerMethod(Attribution, ABC):  # type: ignore[misc]
    """A method of ours: with target=None it explains all outputs, a group of entries is one player, and baselines may
    be a background.

    Args:
        forward_func: the model, or any callable.
        output: the name or index of the tensor to explain, of a model that returns several.
    """

    forward_func: Callable[..., Any]
    _unit = "evaluations"  # the plural of what is sampled
    _threads: int | None = None  # of torch, that suit the model, once they are known

    def __init__(self, forward_func: Callable[..., Any], output: Output = None) -> None:
        super().__init__(forward_func if output is None else forward_of(forward_func, output))

    @abstractmethod
    def explain(self, request: Request, *args: Any, **options: Any) -> Estimate:
        """Return the values of the players for a request; the options are those of `attribute`."""

    @classmethod
    def profile(cls, *args: Any, **settings: Any) -> Profile:
        """Return the cost and the abilities of the method, if it is made with these settings."""
        raise NotImplementedError(f"the cost of {cls.__name__} is not known")

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Return the options of `explain` with their defaults.

        >>> from dasp import ExactShapley
        >>> ExactShapley.options()
        {'internal_batch_size': None, 'show_progress': False}
        """
        parameters = signature(cls.explain).parameters.values()
        return {own.name: own.default for own in parameters if own.kind is Parameter.KEYWORD_ONLY}

    def _attribute(self, arguments: Arguments, *, delta: bool = False, std: bool = False, **options: Any) -> Any:
        """Answer an `attribute` call with options of `explain`; with the completeness gaps if `delta`, with standard
        deviations if `std`."""
        at_once, most = options.get("internal_batch_size"), torch.get_num_threads()
        with torch_threads(1):  # a few evaluations
            request = self._requested(arguments, at_once, most)
        with torch_threads(min(most, self._threads or 1)):
            estimate = self.explain(request, **options)
        missed, tolerance = 0 if estimate.missed is None else int(estimate.missed.sum()), options.get("tolerance")
        if missed and tolerance is not None:
            warnings.warn(
                f"{missed} row(s) did not reach the tolerance {tolerance:g} with "
                f"{self._shortfall(estimate, **options)}",
                stacklevel=3,
            )
        return estimate.answer(request, delta=delta, std=std)

    def _requested(self, arguments: Arguments, at_once: int | None, most: int) -> Request:
        """Return the request. What the model does for the first one decides how many of torch's threads suit it."""
        if most == 1 or self._threads is not None:
            return Request.of(self.forward_func, arguments, at_once=at_once)
        made: list[Request] = []
        count = Count.of(lambda: made.append(Request.of(self.forward_func, arguments, at_once=at_once)))
        (request,) = made
        rows, size = 2 * len(request.full), at_once or request.games[0].rows_at_once  # each, and a baseline beside it
        each = replace(count, flops=count.flops / rows, written=count.written / rows, at_once=size)
        self._threads = suited_threads(most, request, lambda: each).number
        return request

    def _shortfall(self, estimate: Estimate, **options: Any) -> str:  # noqa: ARG002 (others look at it)
        """Say with how many samples the tolerance was not reached, and what to do."""
        number = options[self.profile().samples or ""]
        return f"{number} {self._unit}: allow for more, or see with return_std what was reached."

    def _check_differentiable(self) -> None:
        """Refuse to work where derivatives cannot be had."""
        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{type(self).__name__} differentiates, which inference mode forbids: use torch.no_grad() instead"
            )


def without_autocast(explain: Callable[..., Estimate]) -> Callable[..., Estimate]:
    """Return an `explain` that computes in the dtypes of the model where autocast would take others: rules compute
    moments of the same dtype, and squares of small ones. What the model gives at both ends is evaluated again so."""

    @wraps(explain)
    def explained(self: PlayerMethod, request: Request, *args: Any, **options: Any) -> Estimate:
        device = request.games[0].device.type
        if not torch.is_autocast_enabled(device):
            return explain(self, request, *args, **options)
        with torch.autocast(device, enabled=False):
            return explain(self, request.of_function(request.function, again=True), *args, **options)

    return explained


class PropagatedAttribution(PlayerMethod):
    """An attribution method that needs the model's graph, not only its outputs."""

    _pool_first = True  # the graph may rectify after pooling

    def _whole(self) -> Collection[Any]:
        """The operations that stay whole in the graph."""
        return RULES

    def __init__(self, model: nn.Module | ExportedProgram, output: Output = None) -> None:
        checked = checked_model(model)
        super().__init__(checked.module() if isinstance(checked, ExportedProgram) else checked, output)
        self.model = checked if output is None else self.forward_func
        self._asked: Callable[..., Any] = self.forward_func  # last; it is held here, as its graphs go with it

    def _called(self, request: Request) -> nn.Module | ExportedProgram:
        """Return what is traced: the model, or the function by which the request calls it."""
        self._asked = request.function
        model = self.model if request.function is self.forward_func else request.function
        if isinstance(script := innermost(model), torch.jit.ScriptModule):
            raise UntraceableModel(
                f"{script.original_name} is a script of torch.jit (made by torch.jit.script or torch.jit.trace), of "
                "which torch.export makes no graph",
                "Give the module that the script was made of. BayesianShapley and GradientShapley take the script as "
                "it is.",
            )
        return checked_model(model)

    def __getstate__(self) -> dict[str, Any]:
        """Save an exported program as bytes, as it cannot be pickled."""
        state = dict(vars(self))
        state["_asked"] = None
        if isinstance(self.model, ExportedProgram):
            file = io.BytesIO()
            torch.export.save(self.model, file)
            state |= {"model": file.getvalue(), "forward_func": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.model, bytes):
            self.model = torch.export.load(io.BytesIO(self.model))
            self.forward_func = self.model.module()

    def traces(self, request: Request) -> list[fx.GraphModule]:
        """Return the model's graph for inputs like those of each game."""
        model = self._called(request)
        with working("tracing the model"):
            return [
                GraphCache.of(model).traced(
                    model, (*game.on, *game.extra), _outputs(game, select, request.full[rows]),
                    keep=self._whole(), pool_first=self._pool_first,
                ) for rows, game, select in request.parts()
            ]  # fmt: skip

    def lifts(self, request: Request, at_once: int | None = None) -> list[Lifted]:
        """Return the model lifted for the players of each game, from a graph that gives the request's outputs; at most
        `at_once` rows are evaluated at once."""
        model = self._called(request)
        with working("tracing the model"):
            return [
                self.lift(game, _outputs(game, select, request.full[rows], at_once), model)
                for rows, game, select in request.parts()
            ]

    def lift(
        self, game: Game, outputs: ModelOutputs | None = None, model: nn.Module | ExportedProgram | None = None
    ) -> Lifted:
        """Return the model lifted for the game's players, or raise an error that says why it cannot be lifted."""
        model = checked_model(self.model) if model is None else model
        first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
        players = tuple(mask.cpu().numpy().tobytes() for mask in game.masks)
        arguments = (*first.toggled(), *first.extra)
        example = (*game.on, *game.extra)
        return GraphCache.of(model).lifted(model, example, arguments, game.count, players, outputs)

    def _estimate(
        self, request: Request, values: list[Tensor], evaluations: Tensor | None = None, missed: Tensor | None = None
    ) -> Estimate:
        """Average the values over the baselines, and refuse them if they are not finite."""
        averaged = request.silenced(request.averaged(values))
        request.check_finite(averaged)
        return Estimate(averaged, missed=missed, evaluations=evaluations, gaps=request.gaps(averaged))


def _outputs(game: Game, select: Selection, full: Tensor, at_once: int | None = None) -> ModelOutputs:
    return ModelOutputs(lambda function: select(game.outputs(function, at_once or game.rows_at_once)), full)


def rows_at_once(frontier: Frontier) -> int:
    """Return the number of rows to propagate at once, by the frontier of one: as many as a processor's cache holds
    well."""
    return max(1, _CHUNK_ENTRIES // frontier.entries)
