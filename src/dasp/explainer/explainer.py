"""`Explainer` explains the rows of a model: it takes what people have, and gives what SHAP's plots take."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import cache
from inspect import signature
from pathlib import Path
from threading import RLock
from typing import Any, Self

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from dasp.attribution.base import PlayerMethod
from dasp.attribution.captum_adapter import estimated
from dasp.attribution.dasp import DASP
from dasp.attribution.gradient_dasp import GradientDASP
from dasp.attribution.refinement import Clock
from dasp.errors import BadInput, UnexplainedRows, line_of
from dasp.evaluation.audit import Interval, audited
from dasp.explainer.data_frames import DataFrames, is_table, takes_tables
from dasp.explainer.encoders import Encoder
from dasp.explainer.explanation import Attributions, RowFacts, fitting_names, name_of_model, unbalanced_rows
from dasp.explainer.inputs import OWN_TARGET, Inputs, ModelRows, RawTables, names_of
from dasp.explainer.saved_explainer import read_options_file, write_options_file
from dasp.explainer.shap_background import WeightedRows, given_background
from dasp.games.call_options import read_options
from dasp.games.computing import computing
from dasp.games.counting import Count, Threads, suited_threads
from dasp.games.game import Game
from dasp.games.progress import Work, working
from dasp.games.request import PREDICTED, SECOND, Request, contrasted, output_number
from dasp.methods import METHODS, Method, MethodOnModel, find
from dasp.methods.choose import Budget, Choice, choose
from dasp.models.calling import SCALES, Kind, Output, Scale, forward_of, link_scale, scale_of
from dasp.models.row_function import RowFunction, class_names, is_plain_function
from dasp.models.wrappers import (
    MultilayerPerceptron,
    converted,
    device_of,
    encoder_and_network,
    normalized,
    own_dtype,
)
from dasp.propagation.saved_program import alone

__all__ = ["Explainer"]

log = logging.getLogger("dasp")

_ASKED = "it was asked for"
_MOST_ENTRIES = 2**22  # of inputs at once
_CHOOSING = RLock()  # one at a time, as it may trace the model
_NEGLIGIBLE = 0.01  # of the values of the output that has the largest
_AUDITED = 64  # evaluations, for what moments alone have said
_ACTIVATIONS: dict[str, Kind] = {"softmax": "softmax", "logistic": "sigmoid"}  # of scikit-learn's classifiers
_DRAWING = RLock()  # as all threads have torch's own generator together


class Explainer:
    """Shapley values of a model's outputs as a `shap.Explanation`, by the method that suits the model.

    Args:
        model: a module in evaluation mode, an `ExportedProgram`, a scikit-learn MLP (explained by its logits) or a
            pipeline that ends in one, a Keras model on the torch backend, or any function, such as the `predict_proba`
            of a classifier. A function is given rows as the background is, else as X is: as a DataFrame with its
            columns and dtypes, as an array or as a tensor; and in another of these forms if it cannot take that one.
        background: rows (an array, DataFrame or tensor) that stand for absent features, and are averaged over. One row
            is a baseline. Time grows with their number: some dozens do (`shap.sample` and `shap.kmeans` choose; the
            weights of the latter count). SHAP's maskers `Independent` and `Image` of numbers are understood, too.
        baselines: instead of a background, what an absent feature is, as in Captum: a number, a row, or a row for each
            row. Zeros by default.
        players: who the players are, as a short text: "block:8", "superpixel:60", "window:25", … (see
            `dasp.players.named`); or a function from rows to masks, which is called once a call. By default every
            entry of a row is a player.
        feature_mask: instead, integers that broadcast to a row; entries with the same number are one player. Of
            images, each may have a mask of its own. `dasp.players` makes masks.
        feature_names: names of the columns, if `background` and X do not tell; or of the players.
        method: "auto", or a name: "exact", "dasp", "gradient", "bayesian", "permutation", or one of `dasp.methods`.
            Automatically, by counting what the model does (see `dasp.methods.choose`), so that it is the same one on
            every machine: exact values where all coalitions are quickly evaluated, `GradientShapley` for more than 64
            fine players, else `BayesianShapley`; both on a prior of `GradientDASP` where that pays. Every answer has
            standard deviations. A method that is named is taken or refused. An `Attribution` of Captum's (or of ours)
            that was made for the model is taken as it is, and called by the name of its class.
        target: the output to explain: its number or name, a list of them (one for each row), "predicted" for each
            row's largest, or None for all.
        versus: another output, for "why this one and not that one?": what is explained is the difference of the two,
            target − versus. Its number or name, a list, "predicted", or "second" for the largest beside the target.
        output: the result of the model to explain, if it returns several: a name or an index; or a function of what it
            returns. Of classifiers, "probability" or "logit" (log-odds), whichever of them the model gives: see
            `dasp.models.calling`. A result that the model itself calls so goes before.
        output_names: names of all outputs.
        tolerance: refine a row until its largest standard deviation is below this fraction of its largest value (where
            the method is "gradient": until the completeness gap is below this fraction of |prediction − base|).
            Automatically 0.05: the largest value of a row is known to ± 10 %, unless the budget is used up before.
        max_evaluations: the largest number of coalitions to evaluate for a row. Automatically 2,048.
        max_seconds: instead, the seconds that a row may take, of "auto" and methods that can stop at any time. It
            includes everything but importing and the tracing of a model, which is done once; there is a smallest number
            of evaluations. Only this makes results depend on the machine.
        error_bars: insist on standard deviations: refuse a named method that knows none.
        batch_size: the most rows for the model at once, to save memory.
        device: where to compute; the model is moved there. By default it stays where it is.
        seed: for everything that is sampled. Rows do not depend on the rows beside them.
        show_progress: None for a bar that appears after two seconds on a terminal or in a notebook, and elsewhere for a
            line every half minute in the log, "dasp"; True for a bar at once, False for nothing.
        threads: how many of torch's threads to compute with. Automatically one, unless the model's operations are large
            and there are idle cores (see `dasp.games.counting`), and never more than torch has; the log says which.
        mean, std: the model takes (x − mean)/std, with a number for each channel or column, or one for all of them; X,
            background and baselines are on the scale of x.
        link: "logit", SHAP's word for output="logit": the log-odds of a model that gives probabilities, which must not
            be 0 or 1. They are averaged over a background as log-odds.
        encoder: a fitted scikit-learn transformer in front of the model. X and the background are then raw tables, and
            the players their columns. `baselines="missing"`: absent columns are missing values, which it fills in. Of
            a pipeline that ends in an MLP, it is what comes before.

    A model with several inputs takes a tuple of them, or a dictionary by keyword; what else is given for each input
    (`background`, `baselines`, `feature_mask`, `players`, `feature_names`) is then so, too, the last three for those
    inputs alone that have some: `players={"image": "block:8"}`.

    `method` and `reason` of an explanation say which method was taken and why; so does the log, "dasp". The explainer
    itself does not change, and threads may share it. `TextExplainer` has the same options, as far as texts have them.

    >>> model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> explanation = Explainer(model, background=torch.zeros(1, 6))(torch.ones(4, 6))
    >>> explanation.shape, explanation.reason
    ((4, 6, 3), '6 players have only 64 coalitions')
    >>> Explainer(model).attribute(torch.ones(4, 6), target=1).std.shape
    torch.Size([4, 6])
    """

    def __init__(
        self,
        model: Any,
        background: Any = None,
        *,
        baselines: Any = None,
        players: Any = None,
        feature_mask: Any = None,
        feature_names: Any = None,
        method: str | Attribution = "auto",
        target: Any = None,
        versus: Any = None,
        output: Output = None,
        output_names: Sequence[str] | None = None,
        tolerance: float | None = None,
        max_evaluations: int | None = None,
        max_seconds: float | None = None,
        error_bars: bool = False,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
        show_progress: bool | None = None,
        threads: int | None = None,
        mean: Any = None,
        std: Any = None,
        encoder: Any = None,
        link: Any = "identity",
    ) -> None:
        self.model_name = name_of_model(model)
        background, baselines = tree_map(alone, (background, baselines))  # else a pickle has all of a table
        background, baselines, shares = given_background(background, baselines)
        self._options = _own_options(locals(), shares)
        self.budget = Budget(tolerance, max_evaluations, error_bars, batch_size, seed, show_progress, max_seconds)
        self.threads, device = read_options(
            {"threads": threads, "device": device}, {"threads": None, "device": None}
        ).values()
        if encoder is None:
            encoder, model = encoder_and_network(model)
        self.model = own = converted(model)
        if device is not None and isinstance(self.model, nn.Module):
            self.model.to(device)
        self.device = device if device is not None else device_of(self.model)
        self.target, self.versus = target, versus
        self.output_names = None if output_names is None else names_of("output_names", output_names)
        columns = None
        if isinstance(self.model, MultilayerPerceptron):
            columns = self.model.feature_names
        if self.output_names is None and (isinstance(output, Scale) or not callable(output)):  # else it is anything
            self.output_names = own.output_names if isinstance(own, MultilayerPerceptron) else class_names(own)
        given = {"background": background, "baselines": baselines, "feature_mask": feature_mask,
                 "feature_names": feature_names}  # fmt: skip
        table = None
        if not isinstance(method, Attribution) and is_plain_function(own):
            off = background if baselines is None else baselines
            table = _table_for(own, off) if encoder is players is mean is std is None else None
            self.model = RowFunction(own, arrays_first=_has_arrays(off))
        self._function = self.model
        channels = None
        if mean is not None or std is not None:
            self.model, channels = normalized(self.model, mean, std, own_dtype(self.model), self.device)
        self.inputs: Inputs
        if table is not None:
            self.inputs = DataFrames(own, table, feature_mask=feature_mask, feature_names=feature_names)
            self.model = self.inputs.model
        elif encoder is None:
            self.inputs = Inputs(self.model, self.device, columns, **given, players=players, normalized=channels)
        else:
            if channels is not None or players is not None:
                raise BadInput("an encoder goes with raw columns as players, and without mean and std")
            self.inputs = RawTables(Encoder(encoder), self.model, self.device, **given)
            self.model = self.inputs.model
        self.inputs.shares = shares
        for each in _outputs_of(own, output, link_scale(link)):
            self.model = forward_of(self.model, each)
        self._choices: dict[tuple[int, int], Choice] = {}  # by the number of players and of outputs
        self._made: dict[str, Attribution] = {}
        if isinstance(method, Attribution):
            method = self._take(method, own)
        taken = isinstance(method, str) and (method == "auto" or method in self._made)
        self.requested_method = method if taken else find(method)

    def _take(self, method: Attribution, own: Any) -> str:
        """Take a method that was made for the user's own model, and return its name."""
        name = type(getattr(method, "method", method)).__name__  # of Captum's own, if options were set beside it
        if method.forward_func is not own:
            raise BadInput(
                f"the {name} was made for another model than the one that is explained: make it for the module or "
                "function that you give here"
            )
        if own is not self.model:  # but for what is around it
            if isinstance(method, PlayerMethod) and not isinstance(method, MethodOnModel):
                raise BadInput(f"with mean, std, encoder or output, {name} is given by its name, not as an object")
            method = _for_model(method, own, self.model)
        self._made[name] = method
        return name

    def _method(self, name: str) -> Method:
        """Return one of our methods, or the user's own, which costs nobody knows what."""
        if name in METHODS:
            return METHODS[name]
        own = self._made[name]
        if isinstance(own, PlayerMethod) and not isinstance(own, MethodOnModel):  # which says itself what it can do
            settings = {"rank": own.rank} if isinstance(own, (DASP, GradientDASP)) else {}
            return Method(name, lambda _: own, takes=frozenset(own.options()), **vars(own.profile(**settings)))
        draws = any("samples" in option for option in signature(own.attribute).parameters)
        return Method(name, lambda _: own, row_by_row=draws)

    def __call__(
        self,
        X: Any,  # noqa: N803 (everybody's name for rows)
        target: Any = OWN_TARGET,
        additional_forward_args: Any = None,
        *,
        versus: Any = OWN_TARGET,
    ) -> Any:
        """Explain the rows of an array, DataFrame or tensor as a `shap.Explanation` with `values`, `base_values`,
        `data`, `feature_names`, `output_names` and, where there is one, `error_std`; its `method` was taken for its
        `reason`.

        Values are (rows, *features), with all outputs (rows, *features, outputs). Groups of `feature_mask` are one
        column each, so that values sum to what they explain. Images of 1, 3 or 4 channels come with the channels last,
        as `shap.image_plot` wants them, and the value of a group is spread evenly over its pixels.

        Of several inputs there is one explanation, with a column for each player of any of them: "age", or "image:
        block 3" where players have no names of their own. `explanation["image"]` is the part of one input, and
        `explanation.parts` has all of them. A part leads to the model's output, too: it has a column for each of the
        other inputs, or, in the shape of an image or a series, their contributions in its `base_values`.

        A single row, X[0], has the explanation of a single row, which waterfalls take.

        `additional_forward_args` are further arguments of the model, which are not explained: a tuple, or a dictionary
        of keyword arguments. Tensors with as many rows as X go along with them row by row. `target` and `versus` are
        those of the constructor, if no others are given.
        """
        if (row := self.inputs.single(X)) is not None:
            return self(row, target, additional_forward_args, versus=versus)[0]
        parts = self._rows(X, "X")
        result = self._explained(parts, target, additional_forward_args, versus)
        asked = self.target if target is OWN_TARGET else target
        names = self.output_names if result.target.dim() > 1 else fitting_names(self.output_names, asked)
        found = self.inputs.explanations(result, parts, names)
        facts = RowFacts.of(result, self.model_name, self.inputs.absent(), self.output_names)
        for each in (found, *found.parts.values()):
            each.facts = facts
        return found

    def attribute(
        self, x: Any, target: Any = OWN_TARGET, additional_forward_args: Any = None, *, versus: Any = OWN_TARGET
    ) -> Attributions:
        """Explain rows as `Attributions`, which are tensors; this needs no shap."""
        return self._explained(self._rows(x, "x"), target, additional_forward_args, versus)

    def _explained(self, rows: dict[Any, ModelRows], target: Any, extra: Any, versus: Any) -> Attributions:
        clock = self._clock(len(next(iter(rows.values())).tensor))
        with working("evaluating the rows", show=self.budget.show_progress):
            request = self._prepared(rows, target, extra, versus)
        self.inputs.note_zeros(request.games[0].on)
        self._check_log_odds(request)
        if number := int(request.selection.idle.sum()):
            log.warning(
                "target and versus are the same output in %d of %d rows, whose values are 0: versus='second' is the "
                "largest beside the target", number, len(request.full),
            )  # fmt: skip
        result = self.run(request, clock)
        if self._method(result.choices[0].method).propagates:
            result = replace(result, propagation_error=self.propagation_error(request, result))
        if self.requested_method == "auto" and self.budget.tolerance is None:
            result = replace(result, missed=None)  # the tolerance was ours; standard deviations say what was reached
        result.warn(self.budget.tolerance)
        return self.inputs.in_given_shape(result)

    def prepare(
        self, x: Any, target: Any = OWN_TARGET, additional_forward_args: Any = None, *, versus: Any = OWN_TARGET
    ) -> Request:
        """Check rows and what is asked of them; prediction and base are evaluated here, and only here."""
        return self._prepared(self._rows(x, "x"), target, additional_forward_args, versus)

    def _rows(self, x: Any, what: str) -> dict[Any, ModelRows]:
        """Read rows; the form that they are given in is the one that a function is given them in, if it can take it."""
        if isinstance(self._function, RowFunction):
            self._function.prefer(arrays=_has_arrays(x) is not False)
        return self.inputs.rows(x, what)

    def save(self, path: str | Path) -> None:
        """Write the options of this explainer, with its background, into a file that holds no code: the model is given
        again to `load`, and so are an encoder, a method or a function of players that are objects."""
        write_options_file(path, self._options)

    @classmethod
    def load(cls, path: str | Path, model: Any, **again: Any) -> Self:
        """Return an explainer of a model with the options in a file, and with those that are given `again`.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "explainer.safetensors"
        >>> Explainer(nn.Identity(), background=torch.ones(2, 3), target=1, seed=7).save(path)
        >>> Explainer.load(path, nn.Identity())(torch.zeros(1, 3)).base_values
        array([1.])
        """
        return cls(model, **read_options_file(path, again))

    def _prepared(self, rows: dict[Any, ModelRows], target: Any, extra: Any, versus: Any) -> Request:
        target = self._output(self.target if target is OWN_TARGET else target)
        versus = self._output(self.versus if versus is OWN_TARGET else versus, (PREDICTED, SECOND))
        arguments = self.inputs.arguments(rows, target, extra)
        with computing(self.threads or 1):  # a few evaluations
            return Request.of(
                self.model, replace(arguments, target=contrasted(target, versus)), at_once=self.budget.batch_size
            )

    def _check_log_odds(self, request: Request) -> None:
        """Refuse the log-odds of 0 and 1."""
        scale = scale_of(self.model)
        if (
            scale is not None
            and scale.kind == "log-odds"
            and not (request.full.isfinite().all() and request.empties.isfinite().all())
        ):
            raise BadInput(
                "the log-odds of 0 and 1 are infinite, and the model gives such a probability, where probabilities "
                "strictly between 0 and 1 are needed: leave output='logit' (or link='logit') out"
            )

    def propagation_error(self, request: Request, result: Attributions) -> Interval | None:
        """Return how far propagated values of the first row are off, relative to the size of the Shapley values, by
        evaluating coalitions of it: that values add up does not show it. None if that cannot be known, as some
        coalition has no finite value, or if the row has no effect."""
        first = next(iter(request.apart())) if len(request.games) > 1 else request.rows_of(slice(0, 1))
        values = tree_map(lambda each: each[:1], result.values)
        try:
            with working("checking the values", show=self.budget.show_progress), self._computing(result.choices[0]):
                audit = audited(first, values, _AUDITED, self.budget.seed, self.budget.batch_size, whole=True)
        except (UnexplainedRows, ValueError) as error:
            log.info("the values of the first row cannot be checked: %s", line_of(error))
            return None
        found, size = audit.relative[0], (audit.rmse.middle / audit.relative.middle)[0].nan_to_num(0.0)
        known = (size > 0) & (size >= _NEGLIGIBLE * size.max()) & found.high.isfinite()
        return found[known] if bool(known.any()) else None

    def _computing(self, choice: Choice) -> AbstractContextManager[None]:
        """Compute with the threads that were chosen: no more than torch has, unless the user says so."""
        assert choice.threads is not None
        return computing(self.threads or min(choice.threads.number, torch.get_num_threads()))

    def _clock(self, rows: int) -> Clock | None:
        return None if self.budget.max_seconds is None else Clock(self.budget.max_seconds * rows)

    def run(self, request: Request, clock: Clock | None = None) -> Attributions:
        """Explain the rows of a request by the method that suits them; the clock runs since the request was made."""
        clock = clock or self._clock(len(request.full))
        with working("explaining", "row", len(request.full), show=self.budget.show_progress) as progress:
            run = self._run_alike if len(request.games) == 1 else self._run_each  # rows with players of their own
            return run(request, clock, progress)

    def _run_alike(self, request: Request, clock: Clock | None, progress: Work) -> Attributions:
        """Explain rows that have the same players."""
        choice = self._choice(request)
        with self._computing(choice):
            return self._run_chosen(request, choice, clock, progress)

    def _run_chosen(self, request: Request, choice: Choice, clock: Clock | None, progress: Work) -> Attributions:
        """Explain rows that have the same players by the method that was chosen."""
        (game,) = request.games
        entry = self._method(choice.method)
        options = choice.budget.options(entry, game)
        size = self._rows_at_once(entry, game)
        parts = []
        for start in range(0, game.rows, size):
            part = request if size >= game.rows else request.rows_of(slice(start, start + size))
            if clock is not None and options.get("max_seconds") is not None:
                options["max_seconds"] = max(0.0, clock.left / (game.rows - start))
            try:
                parts.append(self._attributed(choice, options, part))
            except UnexplainedRows as error:
                raise error.after(start) from error
            progress.update(len(part.full))
        return Attributions.cat(parts)

    def _run_each(self, request: Request, clock: Clock | None, progress: Work) -> Attributions:
        """Explain rows that have players of their own, one game after the other."""
        parts, before = [], 0
        for part in request.apart():
            own = None if clock is None else clock.part(len(part.full), len(request.full) - before)
            try:
                parts.append(self._run_alike(part, own, progress))
            except UnexplainedRows as error:
                raise error.after(before) from error
            before += len(part.full)
        return Attributions.cat(parts)

    def _rows_at_once(self, entry: Method, game: Game) -> int:
        if entry.row_by_row:
            return 1
        size = game.rows
        if len(game.baselines) > 1:  # moments are those of every row beside every row of the background
            size = max(1, min(size, _MOST_ENTRIES // (len(game.baselines) * sum(x[0].numel() for x in game.on))))
        if self.budget.batch_size is not None and "internal_batch_size" not in entry.takes:
            size = min(size, self.budget.batch_size)
        return size

    def _attributed(self, choice: Choice, options: dict[str, Any], request: Request) -> Attributions:
        (game,), (select,) = request.games, request.selections
        made, entry = self._made[choice.method], self._method(choice.method)
        with _seeded(self.budget.seed) if entry.row_by_row else nullcontext():
            estimate = estimated(made, request, **options)
        values = [part.to(game.device, game.dtype) for part in estimate.values]
        std = None if estimate.std is None else [part.to(game.device, game.dtype) for part in estimate.std]
        choice = _as_it_came_out(choice, entry, game, estimate.evaluations)
        gap, background = request.gaps(values), None
        if estimate.background_std is not None:
            background = request.answer([part.to(game.device, game.dtype) for part in estimate.background_std])
        return Attributions(
            request.answer(values), None if std is None else request.answer(std), request.full, request.empty, gap,
            select.chosen, (choice,) * game.rows, estimate.missed,
            unbalanced_rows(values[0], gap) if entry.propagates else 0, estimate.evaluations,
            evaluated=estimate.evaluated, background_std=background, background_rows=len(game.baselines),
            versus=select.against,
        )  # fmt: skip

    def _output(self, target: Any, words: tuple[str, ...] = (PREDICTED,)) -> Any:
        """Return the number of an output by its name, and numbers as Captum takes them."""
        target = target.tolist() if isinstance(target, (np.ndarray, np.generic)) else target
        if isinstance(target, list):
            return [self._output(each, ()) if isinstance(each, str) else each for each in target]
        return output_number(target, self.output_names, words) if isinstance(target, str) else target

    def _choice(self, request: Request) -> Choice:
        """Return the method for a request, which is the same for all with as many players and outputs."""
        game = (request.players, request.full[0].numel())
        most = torch.get_num_threads()
        with working("choosing a method"), _CHOOSING, computing(self.threads or 1):
            if game not in self._choices:
                counted = cache(lambda: Count.of_request(request, self.budget.batch_size))
                choice = Choice(self.requested_method, _ASKED, self.budget)
                if self.requested_method == "auto":
                    choice = choose(request, self.model, self.budget, counted=counted)
                    level = logging.WARNING if choice.obstacle else logging.INFO
                    log.log(level, "%s: %s", METHODS[choice.method].name, choice.reason)
                if choice.method not in self._made:
                    self._made[choice.method] = self._method(choice.method).make(self.model)  # type: ignore[arg-type]
                threads = Threads(self.threads, _ASKED) if self.threads else suited_threads(most, request, counted)
                if most > 1:  # else there was nothing to choose
                    log.info("threads: %s", threads)
                self._choices[game] = replace(choice, threads=threads)
            return self._choices[game]


def _outputs_of(model: Any, output: Any, link: str | None) -> list[Any]:
    """Return what is explained of a model's result, and on which scale."""
    wanted = [each for each in (output, link) if each is not None]
    if len(wanted) == 2 and isinstance(output, str) and output in SCALES:
        if output != link:
            raise BadInput(f"output={output!r} and link={link!r} are two scales: give one of them")
        wanted = [link]
    return [_of_network(model, each) if isinstance(each, str) and each in SCALES else each for each in wanted]


def _of_network(model: Any, scale: str) -> Any:
    """Return a scale for a model; of a scikit-learn MLP, which gives logits, what makes probabilities of them."""
    if not isinstance(model, MultilayerPerceptron):
        return scale
    if scale == "logit":
        raise BadInput("scikit-learn's MLPs are explained by their logits already: leave output or link out")
    if model.activation not in _ACTIVATIONS:
        raise BadInput("a regressor gives no probabilities: leave output='probability' out")
    return Scale(scale, _ACTIVATIONS[model.activation])


def _has_arrays(rows: Any) -> bool | None:
    """True for rows as arrays, tables or lists, False for tensors, None for what says nothing."""
    first = next(iter(tree_leaves(rows)), None) if isinstance(rows, (tuple, dict)) else rows
    if first is None or isinstance(first, (int, float)):
        return None
    return not isinstance(first, Tensor)


def _own_options(given: dict[str, Any], shares: tuple[float, ...] | None) -> dict[str, Any]:
    """Return those arguments of an explainer that are not the defaults; its background with the weights of its rows."""
    known = signature(Explainer).parameters
    if shares is not None:
        given = {**given, "background": WeightedRows(given["background"], shares)}
    return {name: value for name, value in given.items()
            if name in known and name != "model" and value is not known[name].default}  # fmt: skip


def _table_for(function: Any, table: Any) -> Any:
    """Return the table that stands for absent features if the function is one of tables, else None."""
    if hasattr(table, "to_frame") and hasattr(table, "iloc") and not is_table(table):  # a row of a table
        table = table.to_frame().T.infer_objects()
    return table if is_table(table) and len(table) and takes_tables(function, table) else None


def _as_it_came_out(choice: Choice, entry: Method, game: Game, evaluations: Tensor | None) -> Choice:
    """Return a choice whose time decided on the evaluations with their number instead, so that as many can be had
    again."""
    if choice.budget.max_seconds is None or evaluations is None:
        return choice
    own = int(evaluations.max()) // len(game.baselines) - entry.beforehand(game)
    return replace(choice, budget=replace(choice.budget, max_seconds=None, max_evaluations=own))


def _for_model(method: Attribution, own: Any, model: Any) -> Attribution:
    """Return a method of Captum's for another model than its own; also of a method that it rests on."""
    result = copy(method)
    for name, value in vars(method).items():
        if value is own:
            setattr(result, name, model)
        elif isinstance(value, Attribution):
            setattr(result, name, _for_model(value, own, model))
    return result


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Begin torch's own generator and NumPy's anew, as methods of Captum's draw from both; for one thread at a time."""
    with _DRAWING, torch.random.fork_rng(devices=[]):
        state = np.random.get_state()  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
