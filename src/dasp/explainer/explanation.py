"""Explanations: `Attributions`, which are tensors, and the same as a `shap.Explanation` in SHAP's conventions.

    values (rows, *features) or, for all outputs, (rows, *features, outputs);  base_values (rows,) or (rows, outputs)

SHAP's plots add values up, so every player has one column: a group of features is one feature, called after its
members, and its data is a text with their numbers, which waterfalls show and swarms draw in grey. Images are plotted
pixel by pixel: there a group's value is spread over its pixels, as SHAP's own explainers of images do, and
`by_player()` has one value a group again. Their channels come last, where `shap.image_plot` looks for them. A text has
as many values as pieces, so the values of several texts are ragged: arrays of arrays, as SHAP's own are. Pieces that
are no players have the value 0. All numbers are in float64, as waterfalls place their labels 1e-8 apart.

Of several inputs there is one explanation, with a column for each player of any of them, since only all of them
together lead from the base to the prediction. A part of it, the players of one input, leads there as well: what the
other inputs contribute is in a column for each of them, or, where the part has the shape of its input, in its base.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dasp.attribution.bayesian.interaction_regression import interactions_of
from dasp.attribution.bayesian.semivalues import banzhaf, beta_shapley, semivalues_of
from dasp.display import channel_axis
from dasp.errors import BadInput
from dasp.evaluation.audit import Interval
from dasp.games.evaluator import EvaluatedRow
from dasp.methods import METHODS

if TYPE_CHECKING:
    from dasp.methods.choose import Choice

__all__ = [
    "LARGE_GAP", "Attributions", "InputOfModel", "Interactions", "NameOfImage", "Regions", "RowFacts", "Semivalues",
    "explanation_class", "fitting_names", "is_image", "name_of_model", "names_of_outputs", "names_of_rows",
    "shap_explanation", "shap_explanation_of_game", "shap_explanation_of_inputs", "shap_explanation_of_texts",
    "unbalanced_rows",
]  # fmt: skip

log = logging.getLogger("dasp")

POOR = 0.2  # of the size of a row's values: what propagation is surely off by, to be warned of
LARGE_GAP = 0.1  # of the sizes of a row's values together; random networks have up to 0.06
_MOST_MEMBERS = 3  # of a group that are named


@dataclass(frozen=True)
class Semivalues:
    """Semivalues of players, such as Banzhaf values, with their standard deviations.

    `values` and `error_std` are (rows, players), or (rows, players, outputs) for all outputs; those of one row,
    `semivalues[0]`, have no dimension for rows.
    """

    values: np.ndarray
    error_std: np.ndarray
    feature_names: list[str] | None = None

    def __getitem__(self, row: Any) -> Semivalues:
        return replace(self, values=self.values[row], error_std=self.error_std[row])


@dataclass(frozen=True)
class Interactions:
    """Pairwise Shapley interactions: how much more two players add together than each by itself.

    `values` and `error_std` are (rows, players, players), or (rows, players, players, outputs) for all outputs; those
    of one row, `interactions[0]`, have no dimension for rows. They are symmetric, and their diagonals are 0.
    """

    values: np.ndarray
    error_std: np.ndarray
    feature_names: list[str] | None = None
    output_names: list[str] | None = None

    def __getitem__(self, row: Any) -> Interactions:
        return replace(self, values=self.values[row], error_std=self.error_std[row])

    def of_output(self, output: int | str) -> Interactions:
        """Return those of one output, by its number or name."""
        number = (self.output_names or []).index(output) if isinstance(output, str) else output
        return replace(self, values=self.values[..., number], error_std=self.error_std[..., number], output_names=None)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Regions:
    """Players of an image or a series, which may have several entries each: regions, windows, channels."""

    feature_mask: np.ndarray  # the number of every entry's player, (1 or rows, *features), where rows are like the data
    data: np.ndarray  # the rows, (rows, *features); channels of images are last
    names: list[str] | None  # of the players, in the order of their numbers, if they are known
    kind: str  # the word for one of them, "superpixel" say
    spread: bool  # True if the explanation divides a player's value among its entries, as those of images do

    def of(self, rows: Any) -> Regions | None:
        """Return those of some rows; None if these are chosen by something else than numbers."""
        try:
            number = np.atleast_1d(np.arange(len(self.data))[rows])
        except (IndexError, TypeError):
            return None
        mask = self.feature_mask if len(self.feature_mask) == 1 else self.feature_mask[number]
        return replace(self, feature_mask=mask, data=self.data[number])

    def columns(self, values: np.ndarray) -> np.ndarray:
        """Return values (rows, *features, …) that are divided among entries as (rows, players, …)."""
        rows = zip(values, np.broadcast_to(self.numbers, self.data.shape), strict=True)
        count, beyond = self.players, values.shape[self.data.ndim :]
        result = np.zeros((len(values), count, *beyond))
        for row, (value, own) in enumerate(rows):
            np.add.at(result[row], own.ravel(), value.reshape(own.size, *beyond))
        return result

    def means(self) -> np.ndarray:
        """Return the mean of the data of each player, (rows, players)."""
        ones = self.columns(np.ones(self.data.shape))
        return self.columns(self.data.astype(np.float64)) / ones

    @property
    def players(self) -> int:
        """The number of players, which is the same in all rows, or else they are no columns."""
        counts = {int(own.max()) + 1 for own in self.numbers}
        if len(counts) > 1:
            raise BadInput(
                "images have different numbers of players, and columns are the same for all rows: choose one, as by "
                "explanation[0].by_player()"
            )
        return counts.pop()

    @property
    def numbers(self) -> np.ndarray:
        """The feature mask with players that are numbered from 0 on in each row."""
        return np.stack([np.unique(own, return_inverse=True)[1].reshape(own.shape) for own in self.feature_mask])

    @property
    def player_names(self) -> list[str]:
        """Their names, "superpixel 0", "superpixel 1" and so on if they have none of their own."""
        if self.names is not None and len(self.names) == self.players:
            return list(self.names)
        return [f"{self.kind} {player}" for player in range(self.players)]


@dataclass(frozen=True)
class RowFacts:
    """What is known of explained rows besides their values. Arrays are (rows,), or (rows, outputs) for all outputs."""

    prediction: np.ndarray
    gap: np.ndarray
    target: np.ndarray  # the numbers of the outputs
    versus: np.ndarray | None  # and of those that are subtracted
    missed: np.ndarray | None  # (rows,), True for rows that did not reach the tolerance; None if there was none
    evaluations: np.ndarray | None  # (rows,)
    model: str = ""  # its name
    absent: str = ""  # what an absent input was, in words
    output_names: tuple[str, ...] = ()  # of all outputs of the model, if they are known

    @staticmethod
    def of(
        result: Attributions, model: str = "", absent: str = "", output_names: Sequence[str] | None = None
    ) -> RowFacts:
        """Return the facts about a result."""
        rows = len(result.gap)

        def by_output(part: Tensor | None) -> Any:
            if part is None:
                return None
            flat = part.detach().cpu().reshape(rows, -1)
            found = (flat.double() if flat.is_floating_point() else flat).numpy()  # which has no bfloat16
            return found[:, 0] if result.target.dim() == 1 else found

        return RowFacts(
            by_output(result.prediction), by_output(result.gap), by_output(result.target), by_output(result.versus),
            None if result.missed is None else result.missed.cpu().reshape(rows, -1).any(1).numpy(),
            None if result.evaluations is None else result.evaluations.cpu().reshape(rows, -1)[:, 0].numpy(),
            model, absent, tuple(map(str, output_names or ())),
        )  # fmt: skip

    def chosen(self, rows: Any, output: int | None = None) -> RowFacts | None:
        """Return the facts about some rows, or about one output; None if they are not chosen by numbers."""
        try:
            number = np.atleast_1d(np.arange(len(self.gap))[rows])
            both = (number,) if output is None else (number, output)
            return replace(
                self, prediction=self.prediction[both], gap=self.gap[both], target=self.target[both],
                versus=None if self.versus is None else self.versus[both],
                missed=None if self.missed is None else self.missed[number],
                evaluations=None if self.evaluations is None else self.evaluations[number],
            )  # fmt: skip
        except (IndexError, TypeError):
            return None


def _dimensions(values: Any) -> int:
    """Return the dimensions of values; those of texts are an array of arrays."""
    ragged = np.ndim(values) == 1 and len(values) and np.asarray(values).dtype == object
    return 1 + np.ndim(values[0]) if ragged else np.ndim(values)


def name_of_model(model: Any) -> str:
    """Return the name of a function, or of a model's class."""
    owner = getattr(model, "__self__", None)  # of a method, like predict_proba
    named = type(owner).__name__ if owner is not None else getattr(model, "__name__", type(model).__name__)
    return "a function" if named == "<lambda>" else str(named)


class _Reasons:
    """The methods of the rows of an explanation, why they were taken, and what more their evaluations tell."""

    choices: tuple[Choice, ...]  # one for each row
    evaluated: list[EvaluatedRow | None] | None  # one for each row
    values: Any

    def interactions(self) -> Interactions:
        """Return the pairwise Shapley interactions of the rows with their standard deviations, from the coalitions that
        were evaluated for their values: nothing is evaluated again. Where all coalitions were, they are exact.
        Else large ones are pulled to zero: on public games, 95 % intervals held 94 to 95 % of all pairs, but of the two
        largest of a game 59, 71, 82 and 90 % with 64, 128, 256 and 512 evaluations.

        >>> from dasp import Explainer
        >>> found = Explainer(lambda x: x[:, 0] * x[:, 1]).attribute(torch.tensor([[2.0, 3.0]]))
        >>> found.interactions()[0].values
        array([[0., 6.],
               [6., 0.]])
        """
        mean, deviation = (_outputs_last(part, 2) for part in interactions_of(self._evaluations()))
        outputs = getattr(self, "output_names", None)
        several = mean.ndim > 3
        named = None if not several else [str(i) for i in range(mean.shape[3])] if outputs is None else list(outputs)
        result = Interactions(mean, deviation, self._player_names(mean.shape[1]), named)
        return result[0] if self._one_row(mean) else result

    def banzhaf(self) -> Semivalues:
        """Return the Banzhaf values of the rows with their standard deviations, from the same evaluations: the mean
        contribution of a player to a coalition that each of the others joins with probability ½.

        >>> from dasp import Explainer
        >>> found = Explainer(lambda x: x[:, 0] * x[:, 1]).attribute(torch.tensor([[2.0, 3.0]]))
        >>> found.banzhaf().values
        array([[3., 3.]])
        """
        return self._semivalues(*banzhaf())

    def beta_shapley(self, alpha: float, beta: float) -> Semivalues:
        """Return the Beta(α, β)-Shapley values of the rows with their standard deviations, from the same evaluations.
        The larger α, the more a player's contributions to small coalitions count, which data valuation prefers;
        Beta(1, 1) are Shapley values."""
        players = max(2, *(len(row.game.players) for row in self._evaluations()))
        return self._semivalues(*beta_shapley(alpha, beta, players))

    def _semivalues(self, nodes: Tensor, weights: Tensor) -> Semivalues:
        mean, deviation = (_outputs_last(part, 1) for part in semivalues_of(self._evaluations(), nodes, weights))
        result = Semivalues(mean, deviation, self._player_names(mean.shape[1]))
        return result[0] if self._one_row(mean) else result

    def _evaluations(self) -> list[EvaluatedRow]:
        kept = [] if self.evaluated is None else [row for row in self.evaluated if row is not None]
        if self.evaluated is None or len(kept) < len(self.evaluated):
            raise BadInput(
                f"this needs evaluations of coalitions, and none were kept of {self.method} for "
                f"{'all' if kept else 'these'} rows: explain rows (no texts) by 'exact' or 'bayesian', fewer of them "
                "at a time if they are many, and choose rows, not outputs or columns, before you ask"
            )
        return kept

    def _player_names(self, players: int) -> list[str] | None:
        names = getattr(self, "feature_names", None)
        fits = names is not None and len(names) == players and all(isinstance(name, str) for name in names)
        return list(names) if fits else None  # type: ignore[arg-type]

    def _one_row(self, found: np.ndarray) -> bool:  # noqa: ARG002 (an Explanation looks at it)
        """True for an explanation of one row without a dimension for rows, as of a game."""
        return False

    @property
    def method(self) -> str:
        """The method that explained the rows; several, with commas between them, if rows differ."""
        return ", ".join(dict.fromkeys(choice.method for choice in self.choices))

    @property
    def reason(self) -> str:
        """The reason why this method was taken."""
        return "; ".join(dict.fromkeys(choice.reason for choice in self.choices))

    @property
    def settings(self) -> dict[str, Any]:
        """Options of an `Explainer` that takes the same method again, with the same budget, and counts nothing; where
        there was so much time, as many evaluations as there was time for. If rows have several methods, these are the
        options of the last one."""
        chosen = self.choices[-1]
        return {
            "method": chosen.method, "tolerance": chosen.budget.tolerance,
            "max_evaluations": chosen.budget.max_evaluations, "max_seconds": chosen.budget.max_seconds,
        }  # fmt: skip


@dataclass(frozen=True)
class Attributions(_Reasons):
    """Attributions as tensors, and what they are to be judged by. There is a row for every row that was explained.

    `method` is the method that was taken, `reason` says why, and `settings` are the options of an explainer that takes
    it again.

    The values of texts are lists: `values[i]` and `std[i]` are tensors (*outputs, pieces), for the `pieces[i]` of the
    text i.

    >>> from dasp import Explainer
    >>> found = Explainer(lambda x: x[:, 0] * x[:, 1]).attribute(torch.tensor([[2.0, 3.0]]))
    >>> found.values, found.reason
    (tensor([[3., 3.]]), '2 players have only 4 coalitions')
    """

    values: Any  # in the shape of the rows; (rows, *outputs, …) if all outputs are explained; of several inputs, each
    std: Any  # the standard deviations of the values, or None if the method knows none
    prediction: Tensor  # f(x), of the outputs that are explained
    base: Tensor  # f(baseline), or its mean over the background
    gap: Tensor  # the players' values together − (prediction − base)
    target: Tensor  # the numbers of the outputs that are explained, (rows, *outputs)
    choices: tuple[Choice, ...] = field(repr=False)  # the method of each row, and why it was taken
    missed: Tensor | None = None  # True for rows that did not reach the tolerance; None if there is none
    unbalanced: int = 0  # rows whose values miss prediction − base by much, as moments are a poor approximation there
    evaluations: Tensor | None = None  # of the model, for each row, as `dasp.methods` counts them
    pieces: list[list[str]] | None = None  # the pieces of each text; None if the rows are no texts
    evaluated: list[EvaluatedRow | None] | None = field(default=None, repr=False)  # coalitions, for `interactions`
    background_std: Any = None  # standard deviations of the values for the choice of the background's rows, if known
    background_rows: int = 0  # how many there are
    versus: Tensor | None = None  # the numbers of the outputs that are subtracted, (rows, *outputs), if there are any
    propagation_error: Interval | None = None  # of the first row, where moments alone decided: relative to its values

    def _repr_html_(self) -> str | None:
        if self.pieces is None:
            return _picture(self)
        try:
            return _picture(shap_explanation_of_texts(self, None))
        except ImportError:
            return None

    @staticmethod
    def cat(parts: Sequence[Attributions]) -> Attributions:
        """Return the rows of all parts, one after the other."""
        columns = {each.name: [getattr(part, each.name) for part in parts] for each in fields(Attributions)}
        columns["propagation_error"] = [None]
        joined = {name: _joined(column) for name, column in columns.items()}
        return Attributions(**{**joined, "background_rows": parts[0].background_rows})

    def enough_background(self, tolerance: float = 0.05) -> int | None:
        """Return how many background rows would do for the largest value of every row to depend on which of them there
        are by no more than a fraction of it (as one standard deviation); None if that is not known, as with less than
        four rows and on a prior.

        >>> from dasp import Explainer
        >>> rows = torch.arange(8.0)[:, None].expand(8, 3)
        >>> found = Explainer(lambda x: x.sum(1), background=rows).attribute(torch.full((1, 3), 10.0))
        >>> found.background_std, found.enough_background(0.1)
        (tensor([[0.8660, 0.8660, 0.8660]]), 15)
        """
        if self.background_std is None or not isinstance(self.values, Tensor):
            return None
        values, std = (part.abs().reshape(len(self.gap), -1).amax(1) for part in (self.values, self.background_std))
        share = torch.where((std > 0) & (values > 0), std / (tolerance * values), 0)
        return max(1, math.ceil(self.background_rows * float(share.square().max())))

    def warn(self, tolerance: float | None) -> None:
        """Say in the log what is to be doubted."""
        rows = len(self.gap)
        if (enough := self.enough_background()) is not None and enough > self.background_rows:
            log.info(
                "the largest value of some row depends on which %d background rows there are by more than ± 10 %%; "
                "%s rows would do (background_std has the standard deviations)", self.background_rows, f"{enough:,}",
            )  # fmt: skip
        methods = dict.fromkeys(choice.method for choice in self.choices)
        shown = ", ".join(METHODS[each].name if each in METHODS else each for each in methods)
        if self.missed is not None and self.missed.any():
            log.warning(
                "%s: %d of %d rows did not reach the tolerance%s: allow for more evaluations, or see what was reached",
                shown, int(self.missed.sum()), rows, "" if tolerance is None else f" {tolerance:g}",
            )  # fmt: skip
        if self.unbalanced:
            log.warning(
                "%s: the values of %d of %d rows miss prediction − base by more than %.0f %% of what they add up to",
                shown, self.unbalanced, rows, 100 * LARGE_GAP,
            )  # fmt: skip
        if (evidence := self.evidence()) is not None:
            log.log(*evidence)

    def evidence(self) -> tuple[int, str] | None:
        """Return what evaluations say of values that rest on moments alone, as a level of the log and a text; None if
        they do not."""
        error, method = self.propagation_error, self.choices[0].method
        if error is None:
            return None
        shown = METHODS[method].name if method in METHODS else method
        middle, low, high = (float(part.max()) for part in (error.middle, error.low, error.high))
        text = (
            f"{shown}: coalitions of the first row say that its values are off by {middle:.0%} of their size "
            f"({low:.0%} to {high:.0%})"
        )
        if low <= POOR:
            return logging.INFO, text
        return logging.WARNING, f"{text}: moments are a poor approximation here; method 'auto' does not rest on them"


def _joined(column: list[Any]) -> Any:
    """Return one field of several parts as a field of all of their rows."""
    if any(part is None for part in column):
        return None
    if isinstance(column[0], int):
        return sum(column)  # `background_rows` are set again by `cat`
    if isinstance(column[0], list) or not isinstance(tree_leaves(column[0])[0], Tensor):
        return sum(column, type(column[0])())
    return tree_map(lambda *pieces: torch.cat(pieces), *column)


def unbalanced_rows(values: Tensor, gap: Tensor) -> int:
    """Return the number of rows whose gap is large beside their players' values (players, rows, *outputs): coalitions
    that are far from Gaussian give values that do not add up.

    >>> unbalanced_rows(torch.tensor([[1.0, 1.0], [2.0, 2.0]]), torch.tensor([0.1, -0.5]))
    1
    """
    sizes = values.abs().sum(0).reshape(len(gap), -1).sum(1)
    return int((gap.reshape(len(gap), -1).abs().sum(1) > LARGE_GAP * sizes).sum())


def _picture(explained: Any) -> str | None:
    """Return the picture with error bars that a notebook shows; None, and so the text, without matplotlib and for what
    has no one picture."""
    try:
        from dasp.plots.notebook import picture  # noqa: PLC0415 (matplotlib is an extra)
    except ImportError:
        return None
    return picture(explained)


@cache
def explanation_class() -> Any:
    """Return `Explanation`, a `shap.Explanation` that knows its method and that notebooks show as a picture. To SHAP's
    plots it is one of SHAP's. It is made when it is asked for, as shap is an extra and takes seconds to import."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shap's own, about other libraries
            import shap  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("a shap.Explanation needs shap: pip install 'torch-dasp[plots]'") from error

    class Explanation(_Reasons, shap.Explanation):  # type: ignore[misc]
        """The explanations that `dasp.Explainer` returns; their rows, columns and outputs are of this class, too."""

        __qualname__ = "Explanation"  # by which it is unpickled
        choices = ()
        evaluated = None
        background_std = None
        row_outputs: tuple[str, ...] | None = None  # what is explained of each row, if no name is for all
        parts: dict[str, Any] = {}  # noqa: RUF012 (replaced, never changed) of several inputs, by their names
        is_row = False  # it is one row of an explanation of rows
        sentences: Any = None  # an explanation by sentences, of one by sentences and words
        regions: Regions | None = None  # the players of images and series, if they are groups of entries
        column_regions: Regions | None = None  # the same of columns that were divided among entries, or are groups
        channels: int | None = None  # the axis of the channels of images as the model takes them; here they are last
        facts: RowFacts | None = None  # which reports tell

        def __copy__(self) -> Any:
            copied = super().__copy__()
            copied.__class__ = type(self)  # SHAP makes one of its own
            copied.choices, copied.evaluated = self.choices, self.evaluated
            copied.background_std, copied.row_outputs = self.background_std, self.row_outputs
            copied.parts, copied.is_row, copied.regions = self.parts, self.is_row, self.regions
            copied.sentences, copied.facts = self.sentences, self.facts
            copied.column_regions, copied.channels = self.column_regions, self.channels
            return copied

        def __getitem__(self, item: Any) -> Any:
            if isinstance(item, str) and item in self.parts:
                return self.parts[item]
            part = super().__getitem__(item)
            part.parts = self._parts_of(item)
            part.is_row = self.is_row or isinstance(item[0] if isinstance(item, tuple) else item, (int, np.integer))
            rows = item[0] if isinstance(item, tuple) else item
            if len(set(self.choices)) > 1 and isinstance(rows, (int, np.integer, slice, list, np.ndarray)):
                part.choices = tuple(np.atleast_1d(np.array(self.choices, dtype=object)[rows]))
            part.evaluated = self._evaluated_of(item)
            part.background_std = self._background_of(item, np.shape(part.values))
            part.sentences = None
            shape = np.shape(part.values)[1 - part.is_row :]
            part.regions = self._regions_of(self.regions, item, shape)
            part.column_regions = self._regions_of(self.column_regions, item, shape)
            part.facts = self._facts_of(item, _dimensions(part.values))
            if self.row_outputs is not None and isinstance(rows, (int, np.integer, slice, list, np.ndarray)):
                _name_rows(part, np.atleast_1d(np.array(self.row_outputs, dtype=object)[rows]).tolist())
            return part

        def _parts_of(self, item: Any) -> dict[str, Any]:
            """The parts of some rows, or of an output; none of what is chosen by columns."""
            items = item if isinstance(item, tuple) else (item,)
            every = slice(None)
            if items[0] is Ellipsis and len(items) == 2 and np.ndim(self.values) == 3 - self.is_row:
                items = (every,) * (2 - self.is_row) + items[1:]  # of an output
            rows, others = items[: 1 - self.is_row], items[1 - self.is_row :]
            columns = all(each is Ellipsis or (isinstance(each, slice) and each == every) for each in others[:1])
            if not self.parts or not columns or len(others) > 2 or any(isinstance(row, str) for row in rows):
                return {}
            if len(others) < 2:
                return {name: part[rows[0]] if rows else part for name, part in self.parts.items()}
            between = {name: np.ndim(part.values) - len(rows) - 1 for name, part in self.parts.items()}
            return {name: part[(*rows, *[every] * between[name], others[1])] for name, part in self.parts.items()}

        def _regions_of(self, regions: Regions | None, item: Any, shape: tuple[int, ...]) -> Regions | None:
            """The regions of some rows, or of an output, whose features have this shape; none of what is chosen by
            columns."""
            if regions is None:
                return None
            items = item if isinstance(item, tuple) else (item,)
            places = [place for place, each in enumerate(items) if each is Ellipsis]
            if len(places) == 1:  # stands for so many dimensions
                between = (slice(None),) * (np.ndim(self.values) - len(items) + 1)
                items = (*items[: places[0]], *between, *items[places[0] + 1 :])
            rows, others = items[: 1 - self.is_row], items[1 - self.is_row :]
            whole = regions.data.shape[1:] if regions.spread else (regions.players,)
            every = slice(None)
            if any(each is not Ellipsis and not (isinstance(each, slice) and each == every)
                   for each in others[: len(whole)]):  # fmt: skip
                return None
            found = regions if not rows or rows[0] is Ellipsis else regions.of(rows[0])
            return found if shape[: len(whole)] == whole else None

        @property
        def feature_mask(self) -> np.ndarray | None:
            """The number of every entry's player in the shape of a row, or of rows that each have players of their
            own; None if every entry is a player."""
            if self.regions is None:
                return None
            mask = self.regions.feature_mask
            return mask[0] if len(mask) == 1 else mask

        def by_player(self) -> Any:
            """Return the explanation with one value for each player, (rows, players), as bars, waterfalls and swarms
            take it: of an image, a column for each region, whose data is the mean of its pixels."""
            if self.regions is None or not self.regions.spread:
                if np.ndim(self.values) + self.is_row > 3 and is_image((1,) * self.is_row + np.shape(self.data)):
                    raise BadInput(
                        "every pixel is a player of its own: give Explainer players='block:8' or 'superpixel:60' for "
                        "regions"
                    )
                return self
            row, regions = self.is_row, self.regions
            values, std, background = (
                None if part is None else regions.columns(np.asarray(part)[None] if row else np.asarray(part))
                for part in (self.values, self.error_std, self.background_std)
            )
            found = type(self)(
                values, np.asarray(self.base_values)[None] if row else self.base_values, regions.means(), error_std=std,
                feature_names=regions.player_names, output_names=self.output_names,
            )  # fmt: skip
            found.choices, found.evaluated, found.background_std = self.choices, self.evaluated, background
            found.facts, found.channels = self.facts, self.channels
            found.column_regions = replace(regions, spread=False)
            if self.output_names is None and self.row_outputs is not None:
                _name_rows(found, list(self.row_outputs))
            return found[0] if row else found

        def _facts_of(self, item: Any, dimensions: int) -> RowFacts | None:
            """The facts about some rows, or about an output."""
            items = item if isinstance(item, tuple) else (item,)
            if self.facts is None or any(isinstance(each, str) for each in items[:1]):
                return None
            rows = slice(None) if self.is_row or items[0] is Ellipsis else items[0]
            others = items[1 - self.is_row :] if items[0] is not Ellipsis else items[1:]
            fewer = _dimensions(self.values) - dimensions - (not self.is_row and isinstance(rows, (int, np.integer)))
            if self.facts.gap.ndim < 2 or not fewer:
                return self.facts.chosen(rows)
            output = others[-1] if others else None
            if isinstance(output, str):
                output = list(np.ravel(self.output_names)).index(output)
            return self.facts.chosen(rows, int(output)) if isinstance(output, (int, np.integer)) else None

        def report(
            self, path: str | Path, *, title: str | None = None, ids: Sequence[Any] | None = None, target: Any = None,
            interactions: bool = False, rows: int | None = None,
        ) -> Path:  # fmt: skip
            """Write a page for people, in one file: how far the values may be off, which players matter, and every
            row with its waterfall, picture or text. It is the page of `dasp report`; see `dasp.report`."""
            from importlib import import_module  # noqa: PLC0415 (by its name: pages are a room above this one)

            found: Path = import_module("dasp.pages").report(
                self, path, title=title, ids=ids, target=target, interactions=interactions, rows=rows
            )
            return found

        def _background_of(self, item: Any, shape: tuple[int, ...]) -> np.ndarray | None:
            """The same of some values, if these are chosen by numbers."""
            if self.background_std is None:
                return None
            try:
                found = np.asarray(self.background_std)[item]
            except (IndexError, TypeError):
                return None
            return found if found.shape == shape else None

        def _one_row(self, found: np.ndarray) -> bool:
            return len(found) == 1 and len(self.values) != 1

        def _numpy_func(self, fname: str, **kwargs: Any) -> Any:
            """Means, sums and largest values over rows are of no row's evaluations."""
            found = super()._numpy_func(fname, **kwargs)
            found.evaluated = found.background_std = found.facts = found.sentences = None
            found.regions = found.column_regions = None
            found.parts = {}
            return found

        def _evaluated_of(self, item: Any) -> list[EvaluatedRow | None] | None:
            """The evaluations of some of the rows; none of what is not chosen by its rows alone."""
            if self.evaluated is None or len(self.evaluated) != len(self) or isinstance(item, (tuple, str)):
                return None
            try:
                return [self.evaluated[i] for i in np.atleast_1d(np.arange(len(self.evaluated))[item])]
            except (IndexError, TypeError):
                return None

        def _repr_html_(self) -> str | None:
            return _picture(self)

    return Explanation


def fitting_names(names: Sequence[str] | None, target: Any) -> Sequence[str] | None:
    """Return the names of outputs, unless they are several and all outputs together, target=None, are a single one."""
    return None if target is None and names is not None and len(names) > 1 else names


def names_of_rows(result: Attributions, names: Sequence[str] | None) -> list[str] | None:
    """Return the name of what is explained of each row, "seven" or "seven − one"; None if all outputs are, or if
    nothing has a name."""
    if result.target.dim() > 1 or (names is None and result.versus is None):
        return None
    targets = _output_names(result.target, names)
    if result.versus is None:
        return targets
    return [f"{a} − {b}" for a, b in zip(targets, _output_names(result.versus, names), strict=True)]


def names_of_outputs(result: Attributions, names: Sequence[str] | None) -> list[str] | None:
    """Return the names of all outputs, from which one that all rows have in common may be subtracted."""
    number = result.target[0].numel()
    names = _checked(names, number, "output")
    if result.versus is None or bool((result.versus != result.versus.flatten()[0]).any()):
        return names
    targets, (versus, *_) = (_output_names(part[0].flatten(), names) for part in (result.target, result.versus))
    return [f"{target} − {versus}" for target in targets]


def _output_names(numbers: Tensor, names: Sequence[str] | None) -> list[str]:
    places = [int(number) for number in numbers]
    if names is not None and max(places) >= len(names):
        raise BadInput(f"there are {len(names)} output_names, but more outputs")
    return [f"Output {place}" if names is None else str(names[place]) for place in places]


class NameOfImage(str):
    """The name of what is explained of one image, which SHAP's plot of images takes, too: it reshapes names as arrays.

    >>> NameOfImage("cat") == "cat", NameOfImage("cat").reshape(-1, 1).tolist()
    (True, [['cat']])
    """

    __slots__ = ()

    def reshape(self, *shape: int) -> np.ndarray:
        """Return an array of this name."""
        return np.array([str(self)]).reshape(*shape)


def _name_rows(explanation: Any, rows: Sequence[str] | None) -> None:
    """Give an explanation of one output the name of what is explained; that of each row, where these differ, or where
    there are several images, whose plot in SHAP takes no single name."""
    columns = np.ndim(explanation.values) < 3
    same = rows is not None and len(set(rows)) == 1 and (columns or explanation.is_row)
    explanation.output_names = None if not rows or not same else rows[0] if columns else NameOfImage(rows[0])
    explanation.row_outputs = None if rows is None or same else tuple(rows)


def __getattr__(name: str) -> Any:
    if name == "Explanation":
        return explanation_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def shap_explanation(
    result: Attributions,
    data: np.ndarray,
    feature_mask: Tensor | None,
    feature_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    kind: str | None = None,
) -> Any:
    """Return attributions to rows of `data` as a `shap.Explanation`. The players have names, or are of some kind."""
    outputs = result.prediction[0].numel() if result.prediction.dim() > 1 else 0
    parts = [_as_features(part, outputs, data) for part in (result.values, result.std, result.background_std)]
    columns: Regions | None = None
    regions = None if feature_mask is None or data.ndim < 3 else _regions(feature_mask, data, feature_names, kind)
    if feature_mask is not None and is_image(data.shape):
        if regions is not None and regions.names is not None:
            feature_names = None  # which are those of regions
        parts = [None if part is None else _spread(part, feature_mask, data) for part in parts]
    elif feature_mask is not None:
        groups = _Groups(feature_mask, data)
        own_names = groups.names(feature_names)
        if regions is None and data.dtype.kind in "fiub":
            columns = _regions(feature_mask, data, own_names, kind)
        parts = [None if part is None else groups.columns(part) for part in parts]
        feature_names = own_names
        data = groups.data(data)
    if (axis := _channels(data.shape)) is not None:
        data = np.moveaxis(data, axis, 3)
        parts = [None if part is None else np.moveaxis(part, axis, 3) for part in parts]
    values, std, background_std = parts
    assert values is not None
    explanation = explanation_class()(
        values, result.base.reshape(len(values), *([outputs] if outputs else [])).cpu().double().numpy(), data,
        error_std=std,
        feature_names=_checked(feature_names, values.shape[1] if data.ndim == 2 else None, "feature"),
        output_names=names_of_outputs(result, output_names) if outputs else None,
    )  # fmt: skip
    if not outputs:
        _name_rows(explanation, names_of_rows(result, output_names))
    explanation.choices, explanation.evaluated = result.choices, result.evaluated
    explanation.background_std, explanation.regions, explanation.channels = background_std, regions, axis
    explanation.column_regions = columns
    return explanation


def _regions(feature_mask: Tensor, data: np.ndarray, names: Sequence[str] | None, kind: str | None) -> Regions:
    """Return the players of rows that are images or series."""
    mask = feature_mask.cpu().numpy()
    mask = mask if mask.ndim == data.ndim else mask[None]
    mask = np.broadcast_to(mask, (len(mask), *data.shape[1:]))
    axis = _channels(data.shape)
    if axis is not None:
        mask, data = np.moveaxis(mask, axis, 3), np.moveaxis(data, axis, 3)
    found = Regions(mask, data, None, kind or "group", axis is not None)
    known = names is not None and all(len(np.unique(own)) == len(names) for own in mask)
    return replace(found, names=[str(name) for name in names]) if known else found  # type: ignore[union-attr]


@dataclass(frozen=True)
class InputOfModel:
    """One of several inputs of a model, with the values of its players; see `Attributions`."""

    name: str
    values: Tensor
    std: Tensor | None
    background_std: Tensor | None
    data: np.ndarray
    feature_mask: Tensor  # the player of each entry; none of them has entries in other inputs
    names: Sequence[str] | None  # of the columns or the players, if they are known
    kind: str | None = None  # of the players, "block" say; None if every entry is one

    @property
    def has_columns(self) -> bool:
        """True if its values are columns, and not an array in the shape of the input."""
        return self.data.ndim == 2 or (self.kind is not None and not is_image(self.data.shape))

    def columns(self, outputs: int) -> _Columns:
        """Return its players as columns. The data of a group of an array's entries is their mean."""
        parts = [_as_features(part, outputs, self.data) for part in (self.values, self.std, self.background_std)]
        own_masks = self.feature_mask.dim() == self.data.ndim and len(self.feature_mask) > 1
        rows = range(len(self.data)) if own_masks else (slice(None),)
        groups = []
        for row in rows:
            at = slice(row, row + 1) if isinstance(row, int) else row
            mask = self.feature_mask[at] if own_masks else self.feature_mask
            groups.append((at, _Groups(mask, self.data[at]), mask.unique()))
        labels = groups[0][2]
        if any(not torch.equal(each, labels) for *_, each in groups):
            raise BadInput(
                f"rows have different numbers of players in {self.name!r}, and columns are the same for all rows: take "
                "`attribute`"
            )
        first = groups[0][1]
        values = [None if x is None else np.concatenate([each.columns(x[at]) for at, each, _ in groups]) for x in parts]
        data = [
            each.data(self.data[at]) if self.data.ndim == 2 else each.means(self.data[at]) for at, each, _ in groups
        ]
        assert values[0] is not None
        return _Columns(
            labels.numpy(),
            values[0],
            values[1],
            values[2],
            np.concatenate(data),
            self._names(first),
            self.names is None,
        )

    def _names(self, groups: _Groups) -> list[str]:
        if self.names is not None:
            if len(self.names) not in (len(groups.members), groups.player.size):
                _checked(self.names, len(groups.members), "feature")
            return groups.names(self.names)
        if len(groups.members) == 1:
            return [self.name]
        if self.kind is not None:
            return [f"{self.name}: {self.kind} {player}" for player in range(len(groups.members))]
        places = [np.unravel_index(entries[0], groups.player.shape) for entries in groups.members]
        return [f"{self.name}: {', '.join(map(str, map(int, place)))}" for place in places]


@dataclass(frozen=True)
class _Columns:
    """Players as columns, (rows, players, …), in the order of their numbers."""

    labels: np.ndarray
    values: np.ndarray
    std: np.ndarray | None
    background_std: np.ndarray | None
    data: np.ndarray
    names: list[str]
    made_up: bool = False  # the names were not given

    @staticmethod
    def beside(parts: Sequence[_Columns]) -> _Columns:
        """Put columns side by side; data are numbers if all of them are."""

        def joined(name: str) -> Any:
            own = [getattr(part, name) for part in parts]
            return None if own[0] is None else np.concatenate(own, 0 if name == "labels" else 1)

        numbers = all(part.data.dtype.kind in "fiub" for part in parts)
        data = np.concatenate([part.data if numbers else part.data.astype(object) for part in parts], 1)
        return _Columns(
            joined("labels"), joined("values"), joined("std"), joined("background_std"), data,
            [name for part in parts for name in part.names],
        )  # fmt: skip

    def in_order(self) -> _Columns:
        """Return them in the order of the players' numbers, as evaluations of coalitions have them."""
        order = np.argsort(self.labels, kind="stable")
        std, background_std = (None if part is None else part[:, order] for part in (self.std, self.background_std))
        return _Columns(
            self.labels[order], self.values[:, order], std, background_std, self.data[:, order],
            [self.names[i] for i in order],
        )  # fmt: skip

    def together(self, name: str) -> _Columns:
        """Return all of them as one column, whose errors add up as if they were independent."""

        def root(part: np.ndarray | None) -> np.ndarray | None:
            return None if part is None else np.sqrt((part**2).sum(1, keepdims=True))

        data = np.full((len(self.data), 1), f"all {len(self.names)}", dtype=object)
        values = self.values.sum(1, keepdims=True)
        return _Columns(self.labels[:1], values, root(self.std), root(self.background_std), data, [name])


def shap_explanation_of_inputs(
    result: Attributions, inputs: Sequence[InputOfModel], output_names: Sequence[str] | None
) -> Any:
    """Return the attributions of a model with several inputs as one `shap.Explanation`, with a column for each player
    of any of them. Columns that have names keep them, unless another input has the same, and others begin with the name
    of their input. `explanation.parts` has the players of each input."""
    outputs = result.prediction[0].numel() if result.prediction.dim() > 1 else 0
    columns = _distinct(inputs, [each.columns(outputs) for each in inputs])
    base = result.base.reshape(len(result.prediction), *([outputs] if outputs else [])).cpu().double().numpy()

    def explained(own: _Columns) -> Any:
        found = explanation_class()(
            own.values, base, own.data, error_std=own.std, feature_names=own.names,
            output_names=names_of_outputs(result, output_names) if outputs else None,
        )  # fmt: skip
        if not outputs:
            _name_rows(found, names_of_rows(result, output_names))
        found.choices, found.background_std = result.choices, own.background_std
        return found

    parts = {}
    for place, one in enumerate(inputs):
        others = [(each.name, own) for i, (each, own) in enumerate(zip(inputs, columns, strict=True)) if i != place]
        if one.has_columns:
            shown = [own.together(f"all of {name}" if name in columns[place].names else name) for name, own in others]
            parts[one.name] = explained(_Columns.beside([columns[place], *shown]))
            continue
        own = replace(
            result, values=one.values, std=one.std, background_std=one.background_std,
            base=result.base + torch.from_numpy(sum(own.values.sum(1) for _, own in others)).reshape(
                result.prediction.shape).to(result.base),
        )  # fmt: skip
        mask = None if one.kind is None else one.feature_mask
        parts[one.name] = shap_explanation(own, one.data, mask, None, output_names, one.kind)
        parts[one.name].evaluated = None
    whole = explained(_Columns.beside(columns).in_order())
    whole.evaluated, whole.parts = result.evaluated, parts
    return whole


def _distinct(inputs: Sequence[InputOfModel], columns: list[_Columns]) -> list[_Columns]:
    """Return columns whose names begin with that of their input where another input has the same."""
    counts = Counter(name for own in columns for name in own.names)
    return [
        replace(own, names=[name if counts[name] == 1 or own.made_up else f"{one.name}: {name}" for name in own.names])
        for one, own in zip(inputs, columns, strict=True)
    ]


def shap_explanation_of_texts(
    result: Attributions, output_names: Sequence[str] | str | None, rows: Sequence[str] | None = None
) -> Any:
    """Return the attributions of texts as a `shap.Explanation`; `output_names` are those of all outputs, or the name of
    the one that is explained; or it has another name in each of the `rows`."""
    assert result.pieces is not None
    explanation = explanation_class()(
        _packed([_by_piece(part) for part in result.values]),
        result.base.cpu().double().numpy(),
        _packed([np.array(pieces, dtype=object) for pieces in result.pieces]),
        error_std=None if result.std is None else _packed([_by_piece(part) for part in result.std]),
        feature_names=[list(pieces) for pieces in result.pieces],  # as SHAP's own have them
        output_names=output_names if output_names is None or isinstance(output_names, str) else list(output_names),
    )
    if rows is not None:
        _name_rows(explanation, rows)
    explanation.choices = result.choices
    return explanation


def shap_explanation_of_game(
    result: Attributions, names: Sequence[str] | None, output_names: Sequence[str] | None
) -> Any:
    """Return the attributions of a game, which has one row, as a `shap.Explanation` without a dimension for rows.
    Players have no data, and outputs have names, as SHAP takes a second dimension without names for rows."""
    outputs = result.prediction[0].numel() if result.prediction.dim() > 1 else 0
    players = result.values.shape[-1]
    if outputs:
        output_names = names_of_outputs(result, output_names or [f"Output {output}" for output in range(outputs)])
    explanation = explanation_class()(
        _by_piece(result.values[0]),
        result.base[0].cpu().double().numpy()[()],  # a number is no array for SHAP
        error_std=None if result.std is None else _by_piece(result.std[0]),
        feature_names=_checked(names or [f"Player {player}" for player in range(players)], players, "feature"),
        output_names=output_names if outputs else None,
    )
    if not outputs:
        _name_rows(explanation, names_of_rows(result, output_names))
    explanation.choices, explanation.evaluated = result.choices, result.evaluated
    return explanation


def _outputs_last(part: Tensor, dimensions: int) -> np.ndarray:
    """Return (rows, *outputs, players), with so many dimensions of players, with the outputs as the last dimension."""
    several = part.dim() > 1 + dimensions
    return (part.flatten(1, -1 - dimensions).movedim(1, -1) if several else part).numpy()


def _by_piece(part: Tensor) -> np.ndarray:
    """Return (*outputs, pieces) as (pieces, *outputs)."""
    return np.moveaxis(part.cpu().double().numpy(), -1, 0)


def _packed(arrays: list[np.ndarray]) -> np.ndarray:
    """Return one array if all are of one length, else an array of arrays."""
    if len({len(array) for array in arrays}) == 1:
        return np.stack(arrays)
    ragged = np.empty(len(arrays), dtype=object)
    ragged[:] = arrays
    return ragged


def _as_features(part: Tensor | None, outputs: int, data: np.ndarray) -> np.ndarray | None:
    """Return (rows, *outputs, *features) as (rows, *features, outputs)."""
    if part is None:
        return None
    array = part.cpu().double().numpy()
    return np.moveaxis(array.reshape(len(data), outputs, *data.shape[1:]), 1, -1) if outputs else array


def is_image(shape: Sequence[int]) -> bool:
    """True if rows of this shape are images, by their number of channels."""
    return _channels(shape) is not None


def _channels(shape: Sequence[int]) -> int | None:
    """Return the axis of the channels of images; None if these are no images."""
    return channel_axis(shape) if len(shape) == 4 else None


def _spread(values: np.ndarray, feature_mask: Tensor, data: np.ndarray) -> np.ndarray:
    """Return the values of groups divided among their pixels; images may have groups of their own."""
    if feature_mask.dim() < data.ndim or len(feature_mask) == 1:
        return _Groups(feature_mask, data).spread(values)
    rows = zip(values[:, None], feature_mask[:, None], data[:, None], strict=True)
    return np.concatenate([_Groups(mask, row).spread(value) for value, mask, row in rows])


def _checked(names: Sequence[str] | None, number: int | None, what: str) -> list[str] | None:
    if names is None:
        return None
    if number is None:
        raise BadInput(f"{what}_names are for columns, which these rows have not: group their entries by feature_mask")
    if len(names) != number:
        raise BadInput(f"there are {len(names)} {what}_names, but {number} {what}s")
    return [str(name) for name in names]


class _Groups:
    """The players of a `feature_mask`, in the order of their numbers."""

    def __init__(self, feature_mask: Tensor, data: np.ndarray) -> None:
        mask = feature_mask[0] if feature_mask.dim() == data.ndim else feature_mask
        labels, numbers = torch.unique(mask.cpu(), return_inverse=True)
        self.player = np.broadcast_to(numbers.numpy(), data.shape[1:])  # of every entry
        flat = self.player.ravel()
        self.members = [np.flatnonzero(flat == player) for player in range(len(labels))]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Return the values with that of a group divided among its entries."""
        share = np.array([1 / len(entries) for entries in self.members])[self.player].astype(values.dtype)
        return values * share.reshape(share.shape + (1,) * (values.ndim - 1 - share.ndim))

    def columns(self, values: np.ndarray) -> np.ndarray:
        """Return values (rows, *features, …), where every entry has the value of its player, as (rows, players, …)."""
        flat = values.reshape(len(values), self.player.size, *values.shape[1 + self.player.ndim :])
        return flat[:, [entries[0] for entries in self.members]]

    def data(self, data: np.ndarray) -> np.ndarray:
        """Return the data of the players: the number of those that have only one entry, and a text for the others."""
        flat = data.reshape(len(data), -1)
        if all(len(entries) == 1 for entries in self.members):
            return flat[:, np.concatenate(self.members)]
        result = np.empty((len(data), len(self.members)), dtype=object)
        for place in np.ndindex(*result.shape):
            numbers = flat[place[0], self.members[place[1]]]
            result[place] = numbers[0] if len(numbers) == 1 else _listed([_written(x) for x in numbers], ", ")
        return result

    def means(self, data: np.ndarray) -> np.ndarray:
        """Return the mean of each player's entries, (rows, players)."""
        flat = data.reshape(len(data), -1)
        return np.stack([flat[:, entries].mean(1) for entries in self.members], 1)

    def names(self, names: Sequence[str] | None) -> list[str]:
        """Return the names of the players, made from those of all entries or as they are given for the players."""
        if names is None:
            return [f"Group {player}" if len(e) > 1 else f"Feature {e[0]}" for player, e in enumerate(self.members)]
        if len(names) == self.player.size:
            return [_listed([str(names[int(i)]) for i in entries], " + ") for entries in self.members]
        return [str(name) for name in names]


def _written(x: Any) -> str:
    return x if isinstance(x, str) else f"{x:.4g}"


def _listed(parts: list[str], between: str) -> str:
    if len(parts) <= _MOST_MEMBERS:
        return between.join(parts)
    return f"{between.join(parts[: _MOST_MEMBERS - 1])}{between}{len(parts) - _MOST_MEMBERS + 1} more"
