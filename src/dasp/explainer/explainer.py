"""Explain my model and my rows: one class that takes what people have and gives what SHAP's plots take."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from torch import nn

from dasp.attribution.captum_adapter import estimated
from dasp.errors import BadInput, OverflowingRows
from dasp.explainer.conversion import MultilayerPerceptron, converted, encoder_and_network, normalized
from dasp.explainer.encoding import Encoder
from dasp.explainer.inputs import Inputs
from dasp.explainer.misfit import misfit
from dasp.explainer.raw_tables import RawTables
from dasp.explainer.result import Attributed, unbalanced_rows
from dasp.explainer.rows import Rows, device_of, input_dtype
from dasp.games.game import Game
from dasp.games.request import Request, output_number
from dasp.methods import METHODS, Method, find
from dasp.methods.choose import Budget, Pace, choose
from dasp.propagation.forward import Output, forward_of

__all__ = ["Attributed", "Explainer"]

log = logging.getLogger("dasp")

_OWN: Any = object()  # stands for the target of the constructor
_MOST_ENTRIES = 2**22  # of inputs at once
_CHOOSING = RLock()  # one at a time, as it goes by the time that the model takes
_DRAWING = RLock()  # as all threads have torch's own generator together


class Explainer:
    """Shapley values of a model's outputs as a `shap.Explanation`, by the method that suits the model.

    Args:
        model: a module in evaluation mode, an `ExportedProgram`, a scikit-learn MLP (explained by its logits) or a
            pipeline that ends in one, a Keras model on the torch backend, or any function of tensors.
        background: what an absent feature is: rows (an array, DataFrame or tensor) to average over. One row is a
            baseline. Time grows with their number: some dozens do (`shap.sample` and `shap.kmeans` choose).
        method: "auto", or a name: "exact", "dasp", "gradient", "bayesian", "permutation", or one of `dasp.methods`.
            Automatically, by timing the model (see `dasp.methods.choose`): exact values where all coalitions are
            quickly evaluated, else `BayesianShapley`, on a prior of `GradientDASP` where that pays. Every answer has
            standard deviations. A method that is named is taken or refused.
        target: the output to explain: its number or name, a list of numbers (one for each row), "predicted" for each
            row's largest, or None for all.
        baselines: instead of a background, as in Captum: a number, a row, or a row for each row. Zeros by default.
        feature_mask: integers that broadcast to a row; entries with the same number are one player. Of images, each
            may have a mask of its own. `dasp.players` makes masks.
        players: instead, a short text: "block:8", "superpixel:60", "window:25", … (see `dasp.players.named`), or a
            function from rows to masks.
        feature_names: of the columns, if `background` and X do not tell; or of the players.
        output_names: of all outputs.
        tolerance: refine a row until its largest standard deviation is below this fraction of |prediction − base|
            (where the method is "gradient": until the completeness gap is). Automatically 0.01, less for many players.
        max_evaluations: how many coalitions to evaluate per row, at most. Automatically 2,048.
        max_seconds: instead, how many seconds a row may take; for "auto" only, by timing the model.
        error_bars: insist on standard deviations: refuse a named method that knows none.
        batch_size: the most rows for the model at once, to save memory.
        device: where to compute; the model is moved there. Where it is by default.
        seed: for everything that is sampled. Rows do not depend on the rows beside them.
        show_progress: show a progress bar.
        output: which of the model's results, if it returns several: a name or an index.
        mean, std: the model takes (x − mean)/std, with a number for each channel or column, or one for all of them; X,
            background and baselines are on the scale of x.
        encoder: a fitted scikit-learn transformer in front of the model. X and the background are then raw tables, and
            the players their columns. `baselines="missing"`: absent columns are missing values, which it fills in. Of
            a pipeline that ends in an MLP, it is what comes before.

    A model with several inputs takes a tuple of them, or a dictionary by keyword; what else is given for each input
    (`background`, `baselines`, `feature_mask`, `feature_names`) is then so, too.

    `method` and `reason` say, from the first call on, which method was taken and why; so does the log, "dasp".

    >>> model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> explainer = Explainer(model, background=torch.zeros(1, 6))
    >>> explainer(torch.ones(4, 6)).shape, explainer.method
    ((4, 6, 3), 'Exact')
    >>> Explainer(model).attribute(torch.ones(4, 6), target=1).std.shape
    torch.Size([4, 6])
    """

    def __init__(
        self,
        model: Any,
        background: Any = None,
        *,
        method: str = "auto",
        target: Any = None,
        baselines: Any = None,
        feature_mask: Any = None,
        feature_names: Any = None,
        output_names: Sequence[str] | None = None,
        tolerance: float | None = None,
        max_evaluations: int | None = None,
        max_seconds: float | None = None,
        error_bars: bool = False,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
        show_progress: bool = False,
        output: Output = None,
        players: Any = None,
        mean: Any = None,
        std: Any = None,
        encoder: Any = None,
    ) -> None:
        self.automatic = method == "auto"
        self.method = method if self.automatic else find(method)
        self.reason = "nothing was explained yet" if self.automatic else "it was asked for"
        self.ground = self.reason  # the same without times, which differ every time
        self.wanted = Budget(tolerance, max_evaluations, error_bars, batch_size, seed, show_progress, max_seconds)
        if encoder is None:
            encoder, model = encoder_and_network(model)
        self.model = converted(model)
        if device is not None and isinstance(self.model, nn.Module):
            self.model.to(device)
        self.device = device if device is not None else device_of(self.model)
        self.target = target
        self.output_names = None if output_names is None else [str(name) for name in output_names]
        columns = None
        if isinstance(self.model, MultilayerPerceptron):
            columns = self.model.feature_names
            self.output_names = self.output_names or self.model.output_names
        given = {"background": background, "baselines": baselines, "feature_mask": feature_mask,
                 "feature_names": feature_names}  # fmt: skip
        channels = None
        if mean is not None or std is not None:
            self.model, channels = normalized(self.model, mean, std, input_dtype(self.model), self.device)
        if encoder is None:
            self.inputs = Inputs(self.model, self.device, columns, **given, players=players, channels=channels)
        else:
            if channels is not None or players is not None:
                raise BadInput("an encoder goes with raw columns as players, and without mean and std")
            self.inputs = RawTables(Encoder(encoder), self.model, self.device, **given)
            self.model = self.inputs.model
        if output is not None:
            self.model = forward_of(self.model, output)
        self._chosen: dict[tuple[int, int], _Chosen] = {}  # by the number of players and of outputs
        self._methods: dict[str, Attribution] = {}

    def __call__(self, X: Any, target: Any = _OWN, additional_forward_args: Any = None) -> Any:  # noqa: N803 (everybody's name for rows)
        """The rows of an array, DataFrame or tensor explained, as a `shap.Explanation` with `values`, `base_values`,
        `data`, `feature_names`, `output_names` and, where there is one, `error_std`.

        Values are (rows, *features), with all outputs (rows, *features, outputs). Groups of `feature_mask` are one
        column each, so that values sum to what they explain. Images of 1, 3 or 4 channels come with the channels last,
        as `shap.image_plot` wants them, and the value of a group is spread evenly over its pixels. Of several inputs,
        each has an explanation, in a tuple or a dictionary as they are; all values together make up the prediction.

        `additional_forward_args` are further arguments of the model, which are not explained: a tuple, or a dictionary
        of keyword arguments. Tensors with as many rows as X go along with them row by row.
        """
        parts = self.inputs.rows(X, "X")
        result = self._explained(parts, target, additional_forward_args)
        return self.inputs.explanations(result, parts, self.output_names)

    def attribute(self, x: Any, target: Any = _OWN, additional_forward_args: Any = None) -> Attributed:
        """The rows explained, as tensors; needs no shap."""
        return self._explained(self.inputs.rows(x, "x"), target, additional_forward_args)

    def _explained(self, rows: dict[Any, Rows], target: Any, extra: Any) -> Attributed:
        request = self._prepared(rows, target, extra)
        self.inputs.note_zeros(request.games[0].on)
        result = self.run(request)
        if self.automatic and self.wanted.tolerance is None:
            result = replace(result, missed=None)  # the tolerance was ours; standard deviations say what was reached
        result.warn(self.wanted.tolerance)
        return self.inputs.answered(result)

    def prepare(self, x: Any, target: Any = _OWN, additional_forward_args: Any = None) -> Request:
        """The rows and what is asked of them, checked; prediction and base are evaluated here, and only here."""
        return self._prepared(self.inputs.rows(x, "x"), target, additional_forward_args)

    def _prepared(self, rows: dict[Any, Rows], target: Any, extra: Any) -> Request:
        target = self._output(self.target if target is _OWN else target)
        arguments = self.inputs.arguments(rows, target, extra)
        try:
            return Request.of(self.model, arguments, at_once=self.wanted.batch_size)
        except (RuntimeError, IndexError, TypeError) as error:
            if told := misfit(error, self.model, arguments.inputs):
                raise BadInput(told) from error
            raise

    def run(self, request: Request) -> Attributed:
        """The rows explained, by the method that suits them."""
        if len(request.games) > 1:  # each row has players of its own
            return Attributed.cat([self.run(part) for part in request.apart()])
        (game,) = request.games
        chosen = self._choice(request)
        options = chosen.wanted.options(METHODS[chosen.name], game)
        size = self._rows_at_once(METHODS[chosen.name], game)
        parts = []
        for start in range(0, game.rows, size):
            part = request if size >= game.rows else request.rows_of(slice(start, start + size))
            try:
                parts.append(self._attributed(chosen.name, options, part))
            except OverflowingRows as error:
                raise error.after(start) from error
        return Attributed.cat(parts)

    def settled(self) -> dict[str, Any]:
        """What was chosen last, as options of an `Explainer` that needs to choose no more."""
        if not self._chosen:
            return {}
        *_, chosen = self._chosen.values()
        return {
            "method": chosen.name, "tolerance": chosen.wanted.tolerance,
            "max_evaluations": chosen.wanted.max_evaluations, "max_seconds": chosen.wanted.max_seconds,
        }  # fmt: skip

    def _rows_at_once(self, entry: Method, game: Game) -> int:
        if entry.row_by_row:
            return 1
        size = game.rows
        if len(game.baselines) > 1:  # moments are those of every row beside every row of the background
            size = max(1, min(size, _MOST_ENTRIES // (len(game.baselines) * sum(x[0].numel() for x in game.on))))
        if self.wanted.batch_size is not None and "internal_batch_size" not in entry.takes:
            size = min(size, self.wanted.batch_size)
        return size

    def _attributed(self, name: str, options: dict[str, Any], request: Request) -> Attributed:
        (game,), (select,) = request.games, request.selections
        with _seeded(self.wanted.seed) if METHODS[name].row_by_row else nullcontext():
            estimate = estimated(self._methods[name], request, **options)
        values = [part.to(game.device, game.dtype) for part in estimate.values]
        std = None if estimate.std is None else [part.to(game.device, game.dtype) for part in estimate.std]
        gap = request.gaps(values)
        return Attributed(
            request.answer(values), None if std is None else request.answer(std), request.full, request.empty, gap,
            select.chosen, name, estimate.missed, unbalanced_rows(values[0], gap) if METHODS[name].propagates else 0,
            estimate.evaluations,
        )  # fmt: skip

    def _output(self, target: Any) -> Any:
        """The number of an output by its name, and numbers as Captum takes them."""
        if not isinstance(target, str):
            return target.tolist() if isinstance(target, (np.ndarray, np.generic)) else target
        return output_number(target, self.output_names)

    def _choice(self, request: Request) -> _Chosen:
        """The method for a request; the same for all with as many players and outputs."""
        game = (request.players, request.full[0].numel())
        with _CHOOSING:
            if game not in self._chosen:
                chosen = _Chosen(self.method, self.reason, self.wanted)
                if self.automatic:
                    choice = choose(request, lambda: Pace.of(request, self.model, self.wanted.batch_size), self.wanted)
                    level, name = logging.WARNING if choice.obstacle else logging.INFO, METHODS[choice.method].name
                    log.log(level, "%s: %s", name, choice.full_reason)
                    chosen = _Chosen(choice.method, choice.full_reason, choice.budget, choice.reason)
                if chosen.name not in self._methods:
                    self._methods[chosen.name] = METHODS[chosen.name].make(self.model)  # type: ignore[arg-type]
                self._chosen[game] = chosen
            chosen = self._chosen[game]
            self.method, self.reason, self.ground = chosen.name, chosen.reason, chosen.ground or chosen.reason
            return chosen


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """With torch's own generator begun anew, for one thread at a time."""
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@dataclass(frozen=True)
class _Chosen:
    """A method of `METHODS` that was chosen, why, and what is wanted of it."""

    name: str
    reason: str
    wanted: Budget
    ground: str = ""  # the reason without the times that were measured
