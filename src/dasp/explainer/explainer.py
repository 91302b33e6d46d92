"""Explain my model and my rows: one class that takes what people have and gives what SHAP's plots take."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor, nn

from dasp.attribution.any_method import player_values, values_of
from dasp.attribution.base import PropagatedAttribution
from dasp.attribution.dasp import DASP
from dasp.attribution.refinement import check_tolerance
from dasp.errors import BadInput, UnsupportedOperation, UntraceableModel
from dasp.explainer.conversion import MultilayerPerceptron, converted
from dasp.explainer.result import Attributed, warn_of_gaps
from dasp.explainer.rows import Rows, device_of, input_dtype, takes_integers
from dasp.explainer.shap_format import explanation
from dasp.games.arguments import check_positive, games
from dasp.games.game import Game
from dasp.games.request import Question
from dasp.methods import METHODS, Method
from dasp.methods.choice import choose, method_name

__all__ = ["Attributed", "Explainer"]

log = logging.getLogger("dasp")

_OWN: Any = object()  # stands for the target of the constructor
_LARGE_BACKGROUND = 100  # rows; what SHAP takes at most by default
_MOST_ENTRIES = 2**22  # of inputs at once


class Explainer:
    """Shapley values of a model's outputs as a `shap.Explanation`, by the method that suits the model.

    Args:
        model: a module in evaluation mode, an `ExportedProgram`, a scikit-learn MLP (explained by its logits) or a
            pipeline of scalers that ends in one, a Keras model on the torch backend, or any function of tensors.
        background: what an absent feature is: rows (an array, DataFrame or tensor) to average over. One row is a
            baseline. Time grows with their number: some dozens do (`shap.sample` and `shap.kmeans` choose).
        method: "auto", or a name: "exact", "dasp", "gradient", "bayesian", "permutation", or one of `dasp.methods`.
            Automatically: exact values for few players, `DASP(rank="full")` for some, `GradientDASP` for many (see
            `dasp.methods.choice`); `BayesianShapley` on top of these if error bars, a tolerance or a number of
            evaluations is asked for, and alone where moments cannot be propagated, with a warning in the log.
            A method that is named is taken or refused.
        target: the output to explain: its number or name, a list of numbers (one for each row), or None for all.
        baselines: instead of a background, as in Captum: a number, a row, or a row for each row. Zeros by default.
        feature_mask: integers that broadcast to a row; entries with the same number are one player.
        feature_names: of the columns, if `background` and X do not tell; or of the players.
        output_names: of all outputs.
        tolerance: refine a row until its largest standard deviation is below this fraction of |prediction − base|
            (where the method is "gradient": until the completeness gap is).
        max_evaluations: how many coalitions to evaluate per row, at most.
        error_bars: give standard deviations, too (zeros for exact values).
        batch_size: the most rows for the model at once, to save memory.
        device: where to compute; the model is moved there. Where it is by default.
        seed: for everything that is sampled. Rows do not depend on the rows beside them.
        show_progress: show a progress bar.

    `method` and `reason` say, from the first call on, which method was taken and why; so does the log, "dasp".

    >>> model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    >>> explainer = Explainer(model, background=torch.zeros(1, 16))
    >>> explainer(torch.ones(4, 16)).shape, explainer.method
    ((4, 16, 3), 'DASP, full rank')
    >>> Explainer(model, error_bars=True).attribute(torch.ones(4, 16), target=1).std.shape
    torch.Size([4, 16])
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
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        tolerance: float | None = None,
        max_evaluations: int | None = None,
        error_bars: bool = False,
        batch_size: int | None = None,
        device: torch.device | str | None = None,
        seed: int = 0,
        show_progress: bool = False,
    ) -> None:
        if background is not None and baselines is not None:
            raise BadInput("background and baselines are both given: what an absent feature is comes from one of them")
        check_positive(max_evaluations=max_evaluations, batch_size=batch_size)
        check_tolerance(tolerance)
        self.automatic = method == "auto"
        self.method = method if self.automatic else method_name(method)
        self.reason = "nothing was explained yet" if self.automatic else "it was asked for"
        self.model = converted(model)
        if device is not None and isinstance(self.model, nn.Module):
            self.model.to(device)
        self.device = device if device is not None else device_of(self.model)
        self.dtype, self.integers = input_dtype(self.model), takes_integers(self.model)
        self.target, self.tolerance, self.max_evaluations = target, tolerance, max_evaluations
        self.error_bars, self.batch_size, self.seed, self.show_progress = error_bars, batch_size, seed, show_progress
        self.columns: Sequence[str] | None = None  # of tables, in the model's order
        self.feature_names, self.output_names = (
            None if names is None else [str(name) for name in names] for names in (feature_names, output_names)
        )
        if isinstance(self.model, MultilayerPerceptron):
            self.columns = self.model.feature_names
            self.output_names = self.output_names or self.model.output_names
        self.off = baselines
        self.background = background is not None
        if self.background:
            rows = self._rows(background, "background")
            if not len(rows.tensor):
                raise BadInput("the background has no rows")
            if not bool(torch.isfinite(rows.tensor).all()):
                bad = int((~torch.isfinite(rows.tensor)).flatten(1).any(1).nonzero()[0])
                raise BadInput(f"the background has NaN or infinite entries, first in row {bad}")
            self.off, self.columns = rows.tensor, rows.names or self.columns
            if len(rows.tensor) > _LARGE_BACKGROUND:
                log.warning("the background has %d rows, which all are averaged over: fewer do", len(rows.tensor))
        elif baselines is not None and not isinstance(baselines, (int, float)):
            given = baselines if isinstance(baselines, Tensor) else torch.as_tensor(baselines)
            self.off = given.to(device=self.device, dtype=self.dtype if given.is_floating_point() else None)
        self.feature_mask = None if feature_mask is None else torch.as_tensor(feature_mask)
        self._made: tuple[int, Method, Attribution] | None = None

    def __call__(self, X: Any, target: Any = _OWN) -> Any:  # noqa: N803 (everybody's name for rows)
        """The rows of an array, DataFrame or tensor explained, as a `shap.Explanation` with `values`, `base_values`,
        `data`, `feature_names`, `output_names` and, where there is one, `error_std`.

        Values are (rows, *features), with all outputs (rows, *features, outputs). Groups of `feature_mask` are one
        column each, so that values sum to what they explain. Images of 1, 3 or 4 channels come with the channels last,
        as `shap.image_plot` wants them, and the value of a group is spread evenly over its pixels.
        """
        rows = self._rows(X, "X")
        result = self.attribute(rows.tensor, target)
        names = self.feature_names or rows.names or self.columns
        return explanation(result, rows.data, self.feature_mask, names, self.output_names)

    def attribute(self, x: Tensor, target: Any = _OWN) -> Attributed:
        """The rows explained, as tensors; needs no shap."""
        x = self._rows(x, "x").tensor
        target = self._output(self.target if target is _OWN else target)
        mask = self._mask(x)
        if isinstance(target, list) and len(target) != len(x):
            raise BadInput(f"there are {len(target)} targets for {len(x)} rows")
        if not self.background:
            games(x, self.off, mask, None)  # checks all rows: baselines are one, or one for each
        elif self.off.shape[1:] != x.shape[1:]:
            raise BadInput(f"rows of the background have the shape {tuple(self.off.shape[1:])}, x {tuple(x.shape[1:])}")
        first = _cut(slice(0, 1), len(x), self.background, x, self.off, target)
        (game,) = Question.ask(self.model, *first, None, mask, background=True).games  # type: ignore[arg-type]
        entry, method = self._method(game)
        size = len(x)
        if self.background:  # moments are those of every row beside every row of the background
            size = max(1, min(size, _MOST_ENTRIES // (len(self.off) * x[0].numel())))
        if entry.samples == "n_samples":  # of a method that draws from torch's own generator
            size = 1
        elif self.batch_size is not None and "internal_batch_size" not in signature(method.attribute).parameters:
            size = min(size, self.batch_size)
        options = self._options(entry, method, game)
        starts = range(0, len(x), size)
        parts = [_cut(slice(start, start + size), len(x), self.background, x, self.off, target) for start in starts]
        result = Attributed.cat([self._attributed(method, options, *part) for part in parts])
        if isinstance(method, DASP):  # GradientDASP warns by itself
            warn_of_gaps(result)
        return result

    def _attributed(self, method: Attribution, options: dict[str, Any], x: Tensor, off: Any, target: Any) -> Attributed:
        if self.background and 1 < len(off) == len(x):  # would be taken for a baseline for each row
            half = (len(x) + 1) // 2
            parts = [_cut(part, len(x), True, x, off, target) for part in (slice(half), slice(half, None))]
            return Attributed.cat([self._attributed(method, options, *part) for part in parts])
        given = (x, off, target, None, self._mask(x))
        question = Question.ask(self.model, *given, background=True, at_once=self.batch_size)  # type: ignore[arg-type]
        (game,) = question.games
        std = None
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self.seed)
            if "return_std" in signature(method.attribute).parameters:
                both = method.attribute(*given, **options, return_std=True)
                values, std = (values_of(part, question, x) for part in both)
            else:
                values = player_values(method, question, *given, **options)
        if self.error_bars and std is None:  # exact values
            std = [torch.zeros_like(part) for part in values]
        attributions, gap = question.answer([part.to(game.device, game.dtype) for part in values], True)
        deviations = None if std is None else question.answer([part.to(game.device, game.dtype) for part in std])
        return Attributed(attributions, deviations, question.full, question.empty, gap, self.method)

    def _rows(self, given: Any, what: str) -> Rows:
        return Rows.of(given, self.dtype, self.device, integers=self.integers, names=self.columns, what=what)

    def _mask(self, x: Tensor) -> Tensor | None:
        mask = self.feature_mask
        if mask is not None and mask.dim() == x.dim() and len(mask) > 1:
            raise BadInput(f"feature_mask has {len(mask)} rows: columns of an explanation are the same for all rows")
        return mask

    def _output(self, target: Any) -> Any:
        """The number of an output by its name, and numbers as Captum takes them."""
        if not isinstance(target, str):
            return target.tolist() if isinstance(target, (np.ndarray, np.generic)) else target
        names = list(self.output_names or ())
        if target not in names:
            raise BadInput(f"there is no output {target!r}: output_names are {names or 'not known'}")
        return names.index(target)

    def _method(self, game: Game) -> tuple[Method, Attribution]:
        """The method for the game; kept until the number of players changes."""
        if self._made is None or self._made[0] != game.count:
            made: dict[str, Attribution] = {}

            def obstacle(name: str) -> str | None:
                if not isinstance(self.model, nn.Module):
                    return f"it is a {type(self.model).__name__}, not a torch.nn.Module"
                made[name] = METHODS[name].make(self.model)
                return _obstacle(made[name], game)

            if self.automatic:
                most = self.max_evaluations
                wanted = self.error_bars or self.tolerance is not None or most is not None
                choice = choose(game, obstacle, evaluate=wanted, max_evaluations=most)
                self.method, self.reason = choice.method, choice.reason
                log.log(logging.WARNING if choice.obstacle else logging.INFO, "%s: %s", self.method, self.reason)
            entry = METHODS[self.method]
            self._made = game.count, entry, made.get(self.method) or entry.make(self.model)  # type: ignore[arg-type]
        return self._made[1:]

    def _options(self, entry: Method, method: Attribution, game: Game) -> dict[str, Any]:
        """Those of the options that the method knows; what was asked for, and it cannot do, is refused."""
        known = signature(method.attribute).parameters
        if self.error_bars and "return_std" not in known and self.method != "Exact":
            raise BadInput(f"{self.method} knows no error bars: BayesianShapley, Permutations and 'auto' do")
        general = {"internal_batch_size": self.batch_size, "seed": self.seed, "show_progress": self.show_progress}
        options = {**entry.options, **{name: value for name, value in general.items() if name in known}}
        if self.tolerance is not None and self.method != "Exact":
            if "tolerance" not in known:
                raise BadInput(f"{self.method} knows no tolerance: BayesianShapley, Permutations and 'auto' do")
            options["tolerance"] = self.tolerance
        if self.max_evaluations is not None and self.method != "Exact":
            if self.tolerance is not None and entry.samples == "nodes":
                raise BadInput(f"{self.method} takes a tolerance or a number of evaluations, not both")
            options |= _samples(self.method, entry, game, self.max_evaluations)
        return options


def _cut(part: slice, rows: int, background: bool, x: Tensor, off: Any, target: Any) -> tuple[Tensor, Any, Any]:
    """Some of the rows, with those of the baselines and targets that are one for each row."""
    each = isinstance(off, Tensor) and not background and off.shape == x.shape
    several = isinstance(target, list) or (isinstance(target, Tensor) and target.dim() == 1 and len(target) == rows)
    return x[part], off[part] if each else off, target[part] if several else target


def _obstacle(method: Attribution, game: Game) -> str | None:
    """Why moments cannot be propagated by a method, on one line; None if they can."""
    try:
        assert isinstance(method, PropagatedAttribution)
        method._lift(replace(game, baselines=game.baselines[:1]))
    except (UnsupportedOperation, UntraceableModel) as error:
        lines = [line.strip() for line in str(error).splitlines()]
        return " ".join([lines[0], *(line for line in lines[1:] if line.startswith(("- ", "File ")))])
    return None


def _samples(name: str, entry: Method, game: Game, evaluations: int) -> dict[str, int]:
    """As many samples as evaluations allow; those of BayesianShapley do not count its prior."""
    if entry.samples is None:
        raise BadInput(f"{name} takes always the same number of evaluations: leave max_evaluations out")
    if entry.samples == "max_evaluations":
        return {entry.samples: evaluations}
    number = entry.number(replace(game, baselines=game.baselines[:1]), evaluations)
    if number is None:
        raise BadInput(f"{evaluations} evaluations are too few for {name} with {game.count} players")
    return {entry.samples: number}
