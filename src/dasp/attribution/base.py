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
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any

import torch
from captum.attr import Attribution, PerturbationAttribution, ShapleyValueSampling
from captum.log import log_usage
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.errors import UntraceableModel
from dasp.games.call_options import check_replicates, read_options
from dasp.games.computing import computing
from dasp.games.counting import GRADIENT, Count, suited_threads
from dasp.games.evaluator import EvaluatedRow
from dasp.games.game import BatchOutput, Game
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Selection, Target, Tensors, check_positive, games
from dasp.models.calling import Output, checked_model, forward_of, innermost, one_tensor
from dasp.models.export_lock import evaluation_lock
from dasp.propagation.graph_cache import GraphCache, ModelOutputs
from dasp.propagation.lifting import Frontier, Lifted
from dasp.propagation.rules import RULES
from dasp.propagation.saved_program import without_data

__all__ = ["GRADIENT", "Estimate", "EvaluatedAttribution", "PlayerMethod", "Profile", "PropagatedAttribution",
           "WholeBatch", "cost_of_prior", "rows_at_once", "without_autocast"]  # fmt: skip

_ENOUGH_BITS = 32  # of a number that holds all values that people have
# Numbers in the widest tensor at the frontier of a chunk; and in all of a chunk that a backward pass needs, if every
# operation gave as many: deep networks are no quicker with more rows at once, and take as many times the memory.
_CHUNK_ENTRIES, _CHUNK_KEPT = 2**19, 2**25


class WholeBatch:
    """A function of whole batches as one of rows that are batches, and arguments of `attribute` that fit it.

    A loss, or a score of a corpus, is a function of all rows together. Captum explains it with
    `perturbations_per_eval=1`: an entry comes and goes in all rows at once, and its value is the same in each of them.
    That is a game with one row, which is the batch: its inputs have one dimension more, a player has entries in all
    rows, and a coalition is a batch that the model is called with by itself.

    >>> batch = WholeBatch(lambda x: x.sum(), Arguments(torch.ones(4, 3)))
    >>> batch(torch.ones(2, 4, 3)), batch.arguments.inputs.shape
    (tensor([12., 12.]), torch.Size([1, 4, 3]))
    """

    def __init__(self, function: Callable[..., Any], arguments: Arguments) -> None:
        (game, *others) = games(arguments)
        if others:
            raise ValueError(
                "the model gives one answer for the whole batch, in which an entry is one player for all rows: "
                "feature_mask must be the same for all of them"
            )
        self.function = forward_of(function, names=arguments.names) if arguments.names else function
        self.extra, self.keys, self.single = game.extra, arguments.keys, game.single
        self.dimensions = [x.dim() for x in game.on]
        baselines = [torch.stack(parts) for parts in zip(*game.baselines, strict=True)]
        self.arguments = Arguments(
            self._form([x[None] for x in game.on]), self._form(baselines), arguments.target, None,
            self._form([mask.expand(x.shape)[None] for x, mask in zip(game.on, game.masks, strict=True)]),
            background=len(game.baselines) > 1,
        )  # fmt: skip

    @classmethod
    def answered(cls, function: Callable[..., Any], arguments: Arguments) -> WholeBatch | None:
        """Return the batch as one row if the function, when it is called with the batch as it is, does not give a row
        for each of its rows. Where players differ from row to row, it has to."""
        if len(games(arguments)) > 1:
            return None
        batch = cls(function, arguments)
        with torch.no_grad(), evaluation_lock():
            (answer,) = batch(*_tuple(batch.arguments.inputs))
        return batch if answer.dim() == 0 or len(answer) != arguments.rows else None

    def _form(self, tensors: list[Tensor]) -> Any:
        return tensors[0] if self.single else tuple(tensors)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the answers for some batches, one after the other."""
        extra = [tuple(x.clone() if isinstance(x, Tensor) else x for x in self.extra) for _ in inputs[0]]
        batches = zip(*inputs, strict=True)
        return torch.stack([one_tensor(self.function(*x, *more)) for x, more in zip(batches, extra, strict=True)])

    def answer(self, attributions: Any) -> Any:
        """Return attributions (1, *selected, rows, *entry) of each input as (1, *entry), or (*selected, *entry)."""
        tensors = _tuple(attributions)
        parts = [self.outputs(x.select(-dimension, 0), dimension - 1)
                 for x, dimension in zip(tensors, self.dimensions, strict=True)]  # fmt: skip
        return dict(zip(self.keys, parts, strict=True)) if self.keys else self._form(parts)

    def outputs(self, values: Tensor, dimensions: int = 0) -> Tensor:
        """Return values (1, *selected, …), with a number of dimensions more, as Captum does: what the model returned
        for the batch takes the place of the row."""
        return values if values.dim() == 1 + dimensions else values[0]


def _tuple(tensors: Any) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


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

    def answer(
        self, request: Request, batch: WholeBatch | None = None, *, std: bool = False, delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:  # fmt: skip
        """Return the result of `attribute`: values in the shape of the inputs or by player, with the standard
        deviations, if there are any, and the completeness gaps that are asked for. A request may be of a whole batch.
        """
        shaped = request.answer if return_input_shape else request.by_player
        tensors = [self.values, self.std] if std and self.std is not None else [self.values]
        parts = [shaped(_as_inputs(request, values)) for values in tensors]
        if batch is not None:
            parts = [batch.answer(part) if return_input_shape else batch.outputs(part, 1) for part in parts]
        if delta:
            gaps = request.gaps(self.values) if self.gaps is None else self.gaps
            parts.append(gaps if batch is None else batch.outputs(gaps))
        return parts[0] if len(parts) == 1 else tuple(parts)


def _as_inputs(request: Request, values: list[Tensor]) -> list[Tensor]:
    """Values in the dtype and on the device of the inputs, if these can hold them."""
    result = [v.to(game.device, game.dtype) for v, game in zip(values, request.games, strict=True)]
    if torch.finfo(result[0].dtype).bits < _ENOUGH_BITS:
        request.check_finite(result)
    return result


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


class PlayerMethod(PerturbationAttribution, ABC):  # type: ignore[misc]
    """A method of ours: with target=None it explains all outputs, a group of entries is one player, and baselines may
    be a background.

    Args:
        forward_func: the model, or any callable.
        output: what is explained of the model's result: the name or index of a tensor, if it returns several, a
            function of the result, or "probability" or "logit" (see `dasp.models.calling`).
    """

    forward_func: Callable[..., Any]
    _unit = "evaluations"  # the plural of what is sampled
    _threads: int | None = None  # of torch, that suit the model, once they are known

    def __init__(self, forward_func: Callable[..., Any], output: Output = None) -> None:
        if not callable(forward_func):
            raise TypeError(f"a model is a module or a function, not a {type(forward_func).__name__}")
        super().__init__(forward_func if output is None else forward_of(forward_func, output))

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Wrap `attribute` as Captum wraps its own: `NoiseTunnel` calls what is inside, and usage is logged alike."""
        super().__init_subclass__(**keywords)
        if "attribute" in vars(cls):
            cls.attribute = log_usage()(cls.attribute)

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

    @classmethod
    def get_name(cls) -> str:
        """Return the name of the class in words.

        >>> from dasp import BayesianShapley, GradientDASP
        >>> BayesianShapley.get_name(), GradientDASP.get_name()
        ('Bayesian Shapley', 'Gradient DASP')
        """
        return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", cls.__name__)

    def has_convergence_delta(self) -> bool:
        """Return True: `attribute` gives the completeness gap with return_convergence_delta."""
        return True

    def compute_convergence_delta(
        self,
        attributions: Tensors,
        start_point: Baselines,
        end_point: Tensors,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
    ) -> Tensor:
        """Return Σ attributions − (f(end_point) − f(start_point)) of attributions that `attribute` gave for the inputs
        end_point and the baselines start_point: for each row, and for each output with target=None. A player with
        several entries, by a feature_mask, counts once.

        >>> from dasp import ExactShapley
        >>> method, x = ExactShapley(lambda x: x.prod(1)), torch.ones(1, 2)
        >>> method.compute_convergence_delta(method.attribute(x), 0, x)
        tensor([0.])
        """
        arguments = Arguments.given(end_point, start_point, target, additional_forward_args, feature_mask)
        request = Request.of(self.forward_func, arguments)
        values = [v.to(request.games[0].dtype) for v in request.values_of(attributions)]
        return request.gaps(values)

    def attribute_future(self, *args: Any, **options: Any) -> torch.futures.Future[Any]:
        """Return the result of `attribute`, which has the same arguments, as a Future, for models that return Futures.
        These are waited for one after the other, so that the result is there when this returns."""
        result: torch.futures.Future[Any] = torch.futures.Future()
        result.set_result(self.attribute(*args, **options))
        return result

    @property
    def _takes_batches(self) -> bool:
        """True if functions of a whole batch can be explained, too."""
        return False

    def _attribute(
        self,
        arguments: Arguments,
        *,
        std: bool = False,
        delta: bool = False,
        return_input_shape: bool = True,
        perturbations_per_eval: int | None = None,
        **options: Any,
    ) -> Any:
        """Answer an `attribute` call with options of `explain`; with standard deviations if `std`, with the
        completeness gaps if `delta`."""
        most = torch.get_num_threads()
        if isinstance(getattr(self.forward_func, "__self__", None), Attribution):
            # One of Captum's attributions (`LLMAttribution`, say) works with this one, and counts on its default.
            perturbations_per_eval = perturbations_per_eval or 1
        if perturbations_per_eval is not None:
            options["internal_batch_size"] = self._at_once(arguments, perturbations_per_eval, **options)
        options = read_options(options, self.options())
        if std and self.profile().replicates:
            check_replicates(options[self.profile().samples or ""], self._unit)
        with computing(1):  # a few evaluations
            request, batch, options = self._understood(arguments, options, most, once=perturbations_per_eval == 1)
        with computing(min(most, self._threads or 1)):
            estimate = self.explain(request, **options)
        missed, tolerance = 0 if estimate.missed is None else int(estimate.missed.sum()), options.get("tolerance")
        if missed and tolerance is not None:
            warnings.warn(
                f"{missed} row(s) did not reach the tolerance {tolerance:g} with "
                f"{self._shortfall(estimate, **options)}",
                stacklevel=4,  # of this, `attribute` and its wrapper
            )
        return estimate.answer(request, batch, std=std, delta=delta, return_input_shape=return_input_shape)

    @staticmethod
    def _at_once(
        arguments: Arguments, perturbations_per_eval: int, internal_batch_size: int | None = None, **_: Any
    ) -> int:
        """Return the largest number of rows to evaluate at once, by how many times those of the inputs it is."""
        check_positive(perturbations_per_eval=perturbations_per_eval)
        if internal_batch_size is not None:
            raise ValueError("perturbations_per_eval and internal_batch_size say the same: give one of them")
        return perturbations_per_eval * arguments.rows

    def _understood(
        self, arguments: Arguments, options: dict[str, Any], most: int, *, once: bool
    ) -> tuple[Request, WholeBatch | None, dict[str, Any]]:
        """Return the request, the batch if it is explained as one row, and the options that fit. With a batch at `once`
        the model is called with the batch as it is, to see what it answers; else it has to give one answer for two rows
        to be taken for a function of whole batches. Of one row, that is a function of the row by itself."""
        batch = WholeBatch.answered(self.forward_func, arguments) if once and self._takes_batches else None
        at_once = options.get("internal_batch_size")
        if batch is None:
            try:
                return self._requested(self.forward_func, arguments, at_once, most), None, options
            except BatchOutput as error:
                self._check_takes_batch(error)
            if arguments.rows == 1:
                alone = self._requested(self.forward_func, arguments, 1, most)
                return alone, None, {**options, "internal_batch_size": 1}
            batch = WholeBatch(self.forward_func, arguments)
        if at_once is not None and at_once < arguments.rows:
            raise ValueError(
                f"the model gives one answer for the whole batch of {arguments.rows} rows, so that it cannot be "
                f"evaluated on {at_once} of them: leave internal_batch_size out"
            )
        return self._requested(batch, batch.arguments, None, most), batch, {**options, "internal_batch_size": None}

    def _check_takes_batch(self, error: BatchOutput) -> None:
        """Raise the error, unless it says that there is one answer for a batch, and such functions can be explained."""
        if not error.single:
            raise error
        if not self._takes_batches:
            raise ValueError(
                f"{error}. {type(self).__name__} explains rows here; a function of the whole batch is explained by "
                "ExactShapley, PermutationShapley or BayesianShapley, without a method as its prior"
            ) from error

    def _requested(self, function: Callable[..., Any], arguments: Arguments, at_once: int | None, most: int) -> Request:
        """Return the request. What the model does for the first one decides how many of torch's threads suit it."""
        if most == 1 or self._threads is not None:
            return Request.of(function, arguments, at_once=at_once)
        made: list[Request] = []
        count = Count.of(lambda: made.append(Request.of(function, arguments, at_once=at_once)))
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


class EvaluatedAttribution(PlayerMethod, ShapleyValueSampling):  # type: ignore[misc]
    """An attribution method that needs nothing but the outputs of the model, or of any callable. It keeps what Captum's
    `ShapleyValueSampling` promises, so that it may stand where Captum asks for one."""

    @property
    def _takes_batches(self) -> bool:
        return True


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
            torch.export.save(without_data(self.model), file)
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
    well, and fewer of a deep network."""
    operations = sum(node.op == "call_function" for node in frontier.lifted.random.graph.nodes)
    return max(1, min(_CHUNK_ENTRIES, _CHUNK_KEPT // max(1, operations)) // frontier.entries)
