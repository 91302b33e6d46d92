"""Explain my model and my rows: one class that takes what people have and gives what SHAP's plots take."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor, nn

from dasp.attribution.arguments import check_positive
from dasp.attribution.foreign import player_values, values_of
from dasp.attribution.game import Game
from dasp.attribution.propagated import PropagatedAttribution
from dasp.attribution.question import Question
from dasp.attribution.stages import check_tolerance
from dasp.conversion import converted
from dasp.errors import BadInput
from dasp.explanation import explanation
from dasp.lifting import UnsupportedOperation
from dasp.methods import METHODS, Method
from dasp.rows import Rows, input_dtype
from dasp.selection import choose, method_name
from dasp.tracing import UntraceableModel

__all__ = ["Attributed", "Explainer"]

log = logging.getLogger("dasp")

_DEFAULT: Any = object()


@dataclass(frozen=True)
class Attributed:
    """Attributions and what they are to be judged by; a row for every row that was explained."""

    values: Tensor  # in the shape of the rows; (rows, *outputs, …) if all outputs are explained
    std: Tensor | None  # of the values, where the method knows it
    prediction: Tensor  # f(x), of the outputs that are explained
    base: Tensor  # f(baseline), or its mean over the background
    gap: Tensor  # the players' values together − (prediction − base)
    method: str

    @staticmethod
    def cat(parts: list[Attributed]) -> Attributed:
        """The rows of all parts."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Attributed)[:-1])
        joined = (None if column[0] is None else torch.cat(column) for column in columns)
        return Attributed(*joined, parts[0].method)  # type: ignore[arg-type, call-arg]


class Explainer:
    """Shapley values of a model's outputs as a `shap.Explanation`, by the method that suits the model.

    >>> model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    >>> explainer = Explainer(model, background=torch.zeros(1, 12))
    >>> explainer.attribute(torch.ones(3, 12)).values.shape, explainer.method
    (torch.Size([3, 12]), 'DASP, full rank')
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
            raise BadInput("background and baselines were both given: what an absent feature is comes from one of them")
        check_positive(max_evaluations=max_evaluations, batch_size=batch_size)
        check_tolerance(tolerance)
        self.model = converted(model)
        if device is not None and isinstance(self.model, nn.Module):
            self.model.to(device)
        self.device = device if device is not None else _device(self.model)
        self.dtype = input_dtype(self.model)
        self.method = method if method == "auto" else method_name(method)
        self.reason = "" if method == "auto" else "it was asked for"
        self.automatic = method == "auto"
        self.target, self.tolerance, self.max_evaluations = target, tolerance, max_evaluations
        self.error_bars, self.batch_size, self.seed, self.show_progress = error_bars, batch_size, seed, show_progress
        rows = None if background is None else Rows.of(background, self.dtype, self.device, what="background")
        self.background = None if rows is None else rows.tensor
        self.baselines = _like_captum(baselines, self.dtype, self.device)
        self.feature_mask = None if feature_mask is None else torch.as_tensor(feature_mask)
        self.feature_names = list(feature_names) if feature_names is not None else rows.names if rows else None
        self.output_names = output_names
        self._chosen: tuple[int, Method, Attribution] | None = None

    def __call__(self, X: Any, target: Any = _DEFAULT) -> Any:  # noqa: N803
        """The rows explained, as a `shap.Explanation`."""
        rows = Rows.of(X, self.dtype, self.device, names=self.feature_names)
        result = self.attribute(rows.tensor, target)
        return explanation(result, rows, self.feature_mask, rows.names or self.feature_names, self.output_names)

    def attribute(self, x: Tensor, target: Any = _DEFAULT) -> Attributed:
        """The rows explained, as tensors; needs no shap."""
        x = Rows.of(x, self.dtype, self.device, what="x").tensor
        target = self.target if target is _DEFAULT else target
        if self.background is not None and 1 < len(self.background) == len(x):
            # a row of baselines for every row would be taken for just that
            targets = _halves(target, len(x))
            return Attributed.cat([self._attribute(*part) for part in zip(x.tensor_split(2), targets, strict=True)])
        return self._attribute(x, target)

    def _attribute(self, x: Tensor, target: Any) -> Attributed:
        off = self.baselines if self.background is None else self.background
        given = (x, off, target, None, self.feature_mask)
        question = Question.ask(self.model, *given, background=True, at_once=self.batch_size)  # type: ignore[arg-type]
        if len(question.games) > 1:
            raise BadInput("feature_mask must be the same for all rows")
        game = question.games[0]
        entry, method = self._method(game)
        options = self._options(entry, method, game)
        std = None
        if "return_std" in signature(method.attribute).parameters:
            both = method.attribute(*given, **options, return_std=True)
            values, std = (values_of(part, question, x) for part in both)
        else:
            values = player_values(method, question, *given, **options)
        if std is None and self.method == "Exact" and self.error_bars:
            std = [torch.zeros_like(part) for part in values]
        values = [part.to(game.dtype).to(game.device) for part in values]
        attributions, gap = question.answer(values, return_convergence_delta=True)
        deviations = None if std is None else question.answer([part.to(attributions) for part in std])
        return Attributed(attributions, deviations, question.full, question.empty, gap, self.method)

    def _method(self, game: Game) -> tuple[Method, Attribution]:
        """The method for the game; kept until the number of players changes."""
        if self._chosen is None or self._chosen[0] != game.count:
            made: dict[str, Attribution] = {}

            def obstacle(name: str) -> str | None:
                try:
                    made[name] = METHODS[name].make(self.model)  # type: ignore[arg-type]
                    assert isinstance(made[name], PropagatedAttribution)
                    made[name]._lift(replace(game, baselines=game.baselines[:1]))
                except (UnsupportedOperation, UntraceableModel, TypeError) as error:
                    return str(error)
                return None

            if self.automatic:
                wanted = self.error_bars or self.tolerance is not None or self.max_evaluations is not None
                choice = choose(game.count, obstacle, evaluate=wanted)
                self.method, self.reason = choice.method, choice.reason
            log.info("%s: %s", self.method, self.reason)
            entry = METHODS[self.method]
            method = made.get(self.method) or entry.make(self.model)  # type: ignore[arg-type]
            self._chosen = game.count, entry, method
        return self._chosen[1:]

    def _options(self, entry: Method, method: Attribution, game: Game) -> dict[str, Any]:
        """The options that the method knows of those that were given."""
        known = signature(method.attribute).parameters
        options: dict[str, Any] = {
            "internal_batch_size": self.batch_size, "seed": self.seed, "show_progress": self.show_progress,
        }  # fmt: skip
        options = {**entry.options, **{name: value for name, value in options.items() if name in known}}
        if self.tolerance is not None and "tolerance" in known:
            options["tolerance"] = self.tolerance
        if self.max_evaluations is not None and entry.samples is not None:
            options[entry.samples] = entry.number(game, self.max_evaluations)
        return options


def _device(model: Any) -> torch.device | None:
    weights = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else ()
    return next((x.device for x in weights), None)


def _like_captum(baselines: Any, dtype: torch.dtype | None, device: Any) -> Any:
    """Baselines as `attribute` takes them; arrays and tables may be given, too."""
    if baselines is None or isinstance(baselines, (int, float)):
        return baselines
    value = baselines if isinstance(baselines, Tensor) else torch.as_tensor(baselines)
    return value.to(device=device, dtype=dtype if value.is_floating_point() else None)


def _halves(target: Any, rows: int) -> list[Any]:
    """A target for each half of the rows."""
    if isinstance(target, Tensor) and target.numel() == rows:
        return list(target.tensor_split(2))
    if isinstance(target, (list, tuple)) and len(target) == rows and isinstance(target, list):
        return [target[: (rows + 1) // 2], target[(rows + 1) // 2 :]]
    return [target, target]
