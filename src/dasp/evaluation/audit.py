"""The audit: how far are attributions from the Shapley values? It evaluates coalitions, whoever made the attributions.

It is `BayesianShapley` with the attributions as prior, read the other way round: what evaluations say of the prior's
error is the answer. Nothing is thought of the attributions beforehand that a few evaluations could not overrule.

Attributions come in several layouts: Captum's, with outputs behind the rows, and SHAP's, with outputs last, channels
last, and a column for each player. They are told apart by their shapes. An explanation of ours says itself who its
players are and where its channels were. Entries of a player that are all equal may each have its value, as Captum's, or
a share of it, as SHAP's: the reading that adds up to f(x) − f(baseline) is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.attribution.bayesian import FEWEST
from dasp.attribution.bayesian.design import Pairs
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.priors import covariances
from dasp.attribution.bayesian.regression import Regression
from dasp.attribution.exact import exact_values
from dasp.errors import BadInput
from dasp.evaluation.compare import spearman
from dasp.games.call_options import read_options
from dasp.games.evaluator import Evaluator
from dasp.games.idle_players import Active
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, contrasted
from dasp.models.calling import Output, forward_of
from dasp.models.wrappers import own_dtype

__all__ = ["Audit", "Discrepancy", "Interval", "TopPlayers", "audit", "audited"]

# Signal to noise of attributions that may be anything: a tenth and ten times the centre are both within reach. Chosen
# on the development networks of benchmarks/audit.py.
_ANYTHING = Trust(1, 2)
_DRAWS = 200
_QUANTILES = (0.5, 0.025, 0.975)  # in the order of an Interval
_TOP = 5  # players
_TIED = 1e-5  # of a row's largest value: what values may differ by and be the same
_SURE, _UNSURE = 0.9, 0.5  # probabilities that the top players are the right ones
_HARDLY = 0.75  # of that of the best guess
_ADDS_UP = 0.1  # of f(x) − f(baseline): a smaller gap says how equal entries of a player are to be read
_BASE = 1e-3  # of the scale of the outputs: what a base value may be off by
_WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}


@dataclass(frozen=True)
class Interval:
    """A number for every row and output, and the interval that holds it with a probability of 95 %."""

    middle: Tensor
    low: Tensor
    high: Tensor

    def __getitem__(self, place: Any) -> Interval:
        return Interval(self.middle[place], self.low[place], self.high[place])

    def __str__(self) -> str:
        if self.middle.dim():
            return f"Interval of shape {tuple(self.middle.shape)}"
        return f"{float(self.middle):.3g} ({float(self.low):.3g} to {float(self.high):.3g})"


@dataclass(frozen=True)
class Discrepancy:
    """A player's attribution beside its Shapley value, as far as that is known."""

    player: int
    attribution: float
    value: float
    std: float
    name: str | None = None  # of the player, if an explanation of ours has one

    def __str__(self) -> str:
        who = f"player {self.player}" if self.name is None else self.name
        return f"{who}: {self.attribution:.3g} instead of {self.value:.3g} ± {self.std:.2g}"


@dataclass(frozen=True)
class TopPlayers:
    """The evidence on the players that attributions call the most important of a row: the `number` of those whose
    attributions are largest in absolute value. They are *right* if no other player has a larger Shapley value (in
    absolute value); their order among each other does not count, and ties are right.

    Each of the three is (rows, *outputs), from draws of the Shapley values from their posterior distribution, given the
    coalitions that were evaluated; where all of them were, the values are known, and so each is 0 or 1, or a count.
    """

    number: int
    right: Tensor  # the probability that these players are the right ones
    belonging: Tensor  # the expected number of them that are among the right ones
    knowable: Tensor  # the probability that the players that the evaluations themselves speak for are the right ones

    @property
    def verdict(self) -> str:
        """Whether the top players can be relied on, by the means over all rows and outputs: they can be if they are
        right with a probability of at least 90 %, and cannot be below 50 %. If the evaluations themselves know hardly
        better who the right ones are (`right` is more than three quarters of `knowable`), they do not tell."""
        right, belonging, knowable = (float(part.mean()) for part in (self.right, self.belonging, self.knowable))
        one = self.number == 1
        who = f"the top {'player' if one else _WORDS[self.number]}"
        odds = f"right with a probability of {_share(right)}"
        if not one:
            odds += f", and {belonging:.1f} of them belong there"
        if right >= _SURE:
            return f"{who} can be relied on ({odds})"
        if right >= _UNSURE:
            return f"{who} {'is' if one else 'are'} to be taken with care ({odds})"
        if right <= _HARDLY * knowable:
            return f"{who} cannot be relied on ({odds})"
        return f"whether {who} can be relied on takes more evaluations to say ({odds}, as far as is known)"


@dataclass(frozen=True)
class Audit:
    """The result of an audit: how far attributions are from the Shapley values. Numbers are (rows, *outputs).

    `verdict` says it in a sentence, `str(report)` in some lines.
    """

    rmse: Interval
    relative: Interval  # the RMSE divided by the root mean square of the Shapley values
    correlation: Interval  # Spearman's, of attributions and Shapley values
    top: TopPlayers | None  # None if rows have one player
    gap: Tensor  # Σ attributions − (f(x) − f(baseline))
    base: Tensor  # f(baseline), or its mean over a background
    stated_base: Tensor | None  # the base value that the attributions came with
    values: Any  # the Shapley values as far as they are known, in the shape of the attributions
    std: Any  # their standard deviations
    evaluations: int  # coalitions that were evaluated for each row; for rows with few players, all there are
    _rows: list[_Row] = field(repr=False)
    reading: str | None = None  # how equal entries of a player were read, if they could be read in two ways
    doubtful: bool = False  # the sums do not tell which way is right
    names: tuple[str, ...] | None = None  # of the players, if an explanation of ours has them

    @property
    def verdict(self) -> str:
        """How far off the values are, whether their top players can be relied on (see `TopPlayers`), how equal entries
        of a player were read, if their sums do not tell, and whether the values have the base value of the model at
        these baselines: in a sentence."""
        parts = [self._size(), *([] if self.top is None else [self.top.verdict])]
        if self.reading is not None and self.doubtful:
            parts.append(f"{self.reading}: give a column for each player if that is wrong")
        return "; ".join([*parts, *self._other_base()])

    def _size(self) -> str:
        middle, low, high = (float(each.flatten().nanmedian()) for each in self._parts(self.relative))
        if middle != middle:  # noqa: PLR0124 (NaN)
            return "these values cannot be measured, as the Shapley values are all 0"
        if _share(high) == "0 %":
            return "these values are off by less than 1 % of their size"
        known = "" if _share(low) == _share(high) else f" ({_share(low)} to {_share(high)})"
        return f"these values are off by about {_share(middle)} of their size{known}"

    def _other_base(self) -> Iterator[str]:
        if self.stated_base is None:
            return
        scale = torch.maximum(self.base.abs(), (self.base + self.gap).abs()).max().clamp(min=1e-12)
        off = (self.stated_base - self.base).abs()
        if bool((off > _BASE * scale).any()):
            place = int(off.argmax())
            stated, own = (float(each.flatten()[place]) for each in (self.stated_base, self.base))
            yield (
                f"their base value is {stated:.3g}, and the model's is {own:.3g} here: they have other baselines, or "
                "are of another output or scale"
            )

    @staticmethod
    def _parts(interval: Interval) -> tuple[Tensor, Tensor, Tensor]:
        return interval.middle, interval.low, interval.high

    def to_json(self) -> dict[str, Any]:
        """Return the verdict and the numbers that it rests on as JSON has them; null where a number is not finite."""
        intervals = {"rmse": self.rmse, "relative": self.relative, "correlation": self.correlation}
        top = self.top
        return {
            "verdict": self.verdict,
            "rows": len(self._rows),
            "evaluations": self.evaluations,
            **{
                name: {part: _plain(getattr(own, part)) for part in ("middle", "low", "high")}
                for name, own in intervals.items()
            },
            "top": None
            if top is None
            else {
                "number": top.number,
                **{part: _plain(getattr(top, part)) for part in ("right", "belonging", "knowable")},
            },
            "gap": _plain(self.gap),
            "base": _plain(self.base),
            "stated_base": None if self.stated_base is None else _plain(self.stated_base),
            "reading": self.reading,
        }

    def worst(self, row: int = 0, number: int = 5, output: Any = ()) -> list[Discrepancy]:
        """Return the players of a row whose attributions are most off, the worst first. Their numbers are those of the
        feature mask in increasing order, or positions in the flattened input."""
        index = output if isinstance(output, tuple) else (output,)
        own = self._rows[row]
        given, found, std = (x[(slice(None), *index)] for x in (own.given, own.mean, own.std))
        if given.dim() > 1:
            raise ValueError(f"the audit is of outputs of shape {tuple(given.shape[1:])}: choose one by output=…")
        order = (given - found).abs().argsort(descending=True)[:number].tolist()
        names = self.names if self.names is not None and len(self.names) == len(given) else (None,) * len(given)
        return [Discrepancy(i, float(given[i]), float(found[i]), float(std[i]), names[i]) for i in order]

    def numbers(self) -> list[str]:
        """Return the numbers that the verdict rests on, as lines of a text."""
        rows, several = len(self._rows), self.rmse.middle.dim() > 1
        over = "rows and outputs" if several else "rows"
        lines = [f"{rows} row{'s' * (rows != 1)}, {self.evaluations} evaluations each: median over {over}"]
        for name, interval in (
            ("RMSE", self.rmse), ("relative to the values", self.relative), ("rank correlation", self.correlation),
        ):  # fmt: skip
            flat = [x.flatten().nanmedian() for x in self._parts(interval)]
            lines.append(f"  {name:24}{Interval(*flat)}")
        lines.append(f"  {'sum less f(x) − f(base)':24}{float(self.gap.abs().flatten().median()):.3g}")
        return lines if self.reading is None or self.doubtful else [*lines, f"  {self.reading}, which adds up"]

    def __str__(self) -> str:
        return "\n".join([*self.verdict.split("; "), *self.numbers()])


def audit(
    forward_func: Callable[..., Any],
    attributions: Any,
    inputs: Tensors | None = None,
    baselines: Baselines = None,
    target: Target = None,
    additional_forward_args: Any = None,
    feature_mask: Tensors | None = None,
    *,
    versus: Target = None,
    output: Output = None,
    evaluations: int = 128,
    seed: int = 0,
    internal_batch_size: int | None = None,
) -> Audit:
    """Estimate how far attributions are from the Shapley values, row by row, with intervals.

    Args:
        forward_func: the model, or any callable, as in Captum.
        attributions: the attributions of any method: a `shap.Explanation`, a tensor or an array, or such for each
            input. They have the shape of the inputs, or (rows, players) with a column for each player; with target=None
            outputs come behind the rows, as Captum has them, or last, as SHAP has them. Of values for all outputs,
            those of `target` are taken. With a feature mask, every entry has the value of its group, as Captum gives
            it, or entries are added up; of equal entries, whichever gives f(x) − f(baseline), else the former. An
            explanation's base values are compared with the model's.
        inputs, baselines, target, additional_forward_args, feature_mask: what the attributions are about, as in
            `DASP.attribute`: the same baselines, above all. Inputs are those in an explanation, unless given, and so is
            the feature mask of an explanation of regions by an `Explainer`. Masks may be arrays, also with channels
            last.
        versus: the output that is subtracted from `target`, for attributions of their difference, as of an `Explainer`.
        output: what is explained of the model's result, as of an `Explainer`: a name or index, a function, or
            "probability" or "logit".
        evaluations: the number of coalitions to evaluate for each row. The more, the narrower the intervals; 2^N give
            the exact error.
        seed: for the choice of coalitions.
        internal_batch_size: the largest number of rows to evaluate at once.

    >>> model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).eval()
    >>> x = torch.ones(2, 12)
    >>> report = audit(model, model[0].weight.sum(0).expand(2, -1), x)
    >>> bool((report.rmse.low < report.rmse.high).all()), report.values.shape
    (True, torch.Size([2, 12]))
    >>> from dasp import ExactShapley
    >>> halves = ExactShapley(model).attribute(x) / 2
    >>> for part in audit(model, halves, x, evaluations=2**12).verdict.split("; "):
    ...     print(part)
    these values are off by about 50 % of their size
    the top five can be relied on (right with a probability of 100 %, and 5.0 of them belong there)
    """
    known = _Regions.of(attributions)
    if inputs is None:
        inputs = _own_inputs(attributions, known, forward_func)
    if feature_mask is not None:
        feature_mask = _as_masks(feature_mask, inputs)
    elif isinstance(inputs, Tensor):
        feature_mask = known.mask
    given = {"evaluations": evaluations, "seed": seed, "internal_batch_size": internal_batch_size}
    own = read_options(given, {"internal_batch_size": None})
    arguments = Arguments.given(inputs, baselines, contrasted(target, versus), additional_forward_args, feature_mask)
    function = forward_func if output is None else forward_of(forward_func, output)
    request = Request.of(function, arguments, at_once=own["internal_batch_size"])
    report = audited(request, known.of_model(attributions), **own, whole=known.whole)
    return replace(report, names=known.names)


def audited(
    request: Request, attributions: Any, evaluations: int, seed: int = 0, internal_batch_size: int | None = None,
    *, whole: bool | None = None,
) -> Audit:  # fmt: skip
    """Return the audit of attributions that answer a request; the arguments are those of `audit`. They are `whole` if
    every entry has the value of its player, not if entries are to be added up; None if that is not known."""
    given, reading, doubtful = _values(attributions, request, whole)
    stated_base = _stated_base(attributions, request)
    active = Active.of(request, apart=True)  # a busy player's error is not to be given to an idle one
    fewest = max((min(FEWEST, 2**game.count) for game in active.request.games), default=0)
    if evaluations < fewest:
        raise ValueError(f"evaluations must be at least {fewest}, not {evaluations}")
    own = active.select(given)
    with working("audit", "evaluation") as progress:
        evaluators = active.request.evaluators(internal_batch_size, progress)
        known = [_Known.of(evaluator, part, evaluations, seed) for evaluator, part in zip(evaluators, own, strict=True)]
    unsure, scales = _unsure(active, known)
    found = active.restored([part.mean for part in known])
    std = active.restored([part.std for part in known], deviations=True)
    rows = [
        _Row(*row, unsure[:, i], scales[:, i])
        for i, row in enumerate(zip(_by_row(given), _by_row(found), _by_row(std), strict=True))
    ]
    rmse, size = _stacked([row.rmse() for row in rows]), torch.stack([row.size() for row in rows])
    relative = Interval(rmse.middle / size, rmse.low / size, rmse.high / size)
    correlation = _stacked([row.correlation(seed) for row in rows])
    made = min(evaluations, max((2**game.count for game in active.request.games), default=2))
    number = min(_TOP, min(game.count for game in request.games) - 1)
    top = None
    if number:
        tops = [row.top(number, seed) for row in rows]
        top = TopPlayers(number, *(torch.stack(parts) for parts in zip(*tops, strict=True)))
    return Audit(
        rmse, relative, correlation, top, request.gaps(given).cpu().double(), request.empty.cpu().double(), stated_base,
        request.answer(found), request.answer(std), made, rows, reading, doubtful,
    )  # fmt: skip


def _by_row(parts: list[Tensor]) -> list[Tensor]:
    """Return (players, *selected) for every row, of what is (players, rows, *selected) for every game."""
    return [row for part in parts for row in part.cpu().double().unbind(1)]


@dataclass(frozen=True)
class _Regions:
    """What an explanation of ours knows of its players and of the layout of its rows; of anything else, nothing."""

    mask: Tensor | None = None  # as the model takes it, with a dimension for rows
    rows: Any = None  # the data behind regions
    whole: bool | None = None  # see `audited`
    names: tuple[str, ...] | None = None  # of the players
    channels: int | None = None  # their axis as the model takes them, where they are last in the explanation
    is_row: bool = False  # the explanation is one row, without a dimension for rows

    @staticmethod
    def of(attributions: Any) -> _Regions:
        channels, is_row = getattr(attributions, "channels", None), getattr(attributions, "is_row", False)
        regions = getattr(attributions, "regions", None) or getattr(attributions, "column_regions", None)
        if regions is None:
            names = getattr(attributions, "feature_names", None) if hasattr(attributions, "column_regions") else None
            plain = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
            return _Regions(names=tuple(names or ()) if plain else None, channels=channels, is_row=is_row)
        mask, rows = (_moved(part, channels) for part in (regions.feature_mask, regions.data))
        names = None
        if len({len(np.unique(own)) for own in mask}) == 1:
            names = tuple(regions.player_names)
        return _Regions(_integers(mask), rows, not regions.spread, names, channels, is_row)

    def of_model(self, attributions: Any) -> Any:
        """Return attributions with their channels where the model has them."""
        values = getattr(attributions, "values", None)
        if self.channels is None or (self.mask is not None and self.whole):
            return attributions  # which have no channels, or are columns of regions
        values = np.asarray(values)[None] if self.is_row else np.asarray(values)
        if values.ndim < 4:  # some columns of images
            return attributions
        base = np.asarray(attributions.base_values)
        return _Stated(_moved(values, self.channels), base[None] if self.is_row else base)


@dataclass(frozen=True)
class _Stated:
    """Values and their base values, as an explanation has them."""

    values: np.ndarray
    base_values: np.ndarray


def _moved(last: np.ndarray, channels: int | None) -> np.ndarray:
    """Return (rows, height, width, channels, …) with the channels where the model has them."""
    return last if channels is None else np.moveaxis(last, 3, channels)


def _integers(mask: Any) -> Tensor:
    return torch.from_numpy(np.array(mask, order="C"))  # which may not be written to


def _as_masks(given: Any, inputs: Any) -> Any:
    """Return feature masks, which may be arrays, as tensors; that of images with channels last, as explanations have
    them, as the model takes these."""
    if isinstance(given, dict):
        return {name: _as_masks(mask, inputs.get(name) if isinstance(inputs, dict) else None)
                for name, mask in given.items()}  # fmt: skip
    if isinstance(given, (tuple, list)) and not isinstance(inputs, Tensor):
        rows = inputs if isinstance(inputs, tuple) and len(inputs) == len(given) else (None,) * len(given)
        return tuple(_as_masks(mask, own) for mask, own in zip(given, rows, strict=True))
    mask = _integers(given) if isinstance(given, np.ndarray) else given
    if not isinstance(inputs, Tensor) or inputs.dim() != 4 or not isinstance(mask, Tensor) or mask.dim() not in (3, 4):
        return mask
    channels, *picture = inputs.shape[1:]
    *before, last = mask.shape[-3:]
    fits = mask.shape[-3] in (1, channels) and all(
        n in (1, own) for n, own in zip(mask.shape[-2:], picture, strict=True)
    )
    return mask.movedim(-1, -3) if not fits and before == picture and last in (1, channels) else mask


def _own_inputs(attributions: Any, known: _Regions, model: Any) -> Tensors:
    """Return the inputs that an explanation has, in the model's dtype."""
    data = getattr(attributions, "data", None) if _is_explanation(attributions) else None
    array = None if data is None else np.asarray(data)
    if known.rows is not None:
        array = known.rows
    elif array is not None:
        array = array[None] if array.ndim == 1 or known.is_row else array
        array = _moved(array, known.channels) if array.ndim == 4 else array
    if array is None or array.dtype.kind not in "fiub":
        raise BadInput(
            "inputs are missing: give the rows that the attributions are of, as the model takes them; only those of an "
            "explanation with numbers as data are known"
        )
    rows = torch.from_numpy(np.array(array, order="C"))
    return rows.to(own_dtype(model) or torch.get_default_dtype())


def _is_explanation(attributions: Any) -> bool:
    """Return True for a `shap.Explanation`, or what is like it."""
    return hasattr(attributions, "values") and hasattr(attributions, "base_values")


def _values(attributions: Any, request: Request, whole: bool | None) -> tuple[list[Tensor], str | None, bool]:
    """Return the attributions of the players of each game, (players, rows, *selected); how they were read, if there are
    two ways; and whether their sums leave a doubt of it."""
    tensors, columns = _in_shape(attributions, request)
    whole = True if columns else whole
    if not columns:
        _check_shapes(tensors, request)
    values = request.values_of(tensors, whole=whole is not False)
    if not all(bool(torch.isfinite(x).all()) for x in values):
        raise ValueError("the attributions have NaN or infinite entries")
    if whole is not None:
        return values, None, False
    again = request.answer(values)
    pairs = zip(request.in_order(again), tensors, strict=True)
    added = request.values_of(tensors, whole=False)
    if not all(torch.allclose(x.double(), y.to(x).double(), rtol=1e-3, atol=0) for x, y in pairs):
        return added, None, False  # entries of a player differ
    if all(torch.allclose(x, y) for x, y in zip(values, added, strict=True)):
        return values, None, False
    size = _ADDS_UP * float(request.total.cpu().double().norm())
    sums, both = (float(request.gaps(each).cpu().double().norm()) <= size for each in (added, values))
    if sums and not both:
        return added, "the equal entries of a player are shares of its value, and were added up", False
    return values, "the equal entries of a player were taken for its value each, not for shares of it", both == sums


def _check_shapes(tensors: tuple[Tensor, ...], request: Request) -> None:
    """Refuse attributions of other shapes, and say which argument is missing, if that can be seen from them."""
    rows, outputs = len(request.full), tuple(request.full.shape[1:])
    entries = [tuple(mask.shape) for mask in request.games[0].masks]
    shapes, wanted = [tuple(x.shape) for x in tensors], [(rows, *outputs, *entry) for entry in entries]
    if shapes == wanted:
        return
    said = f"the attributions have shape {', '.join(map(str, shapes))}, and {', '.join(map(str, wanted))} is needed"
    of_rows = [shape if shape[:1] == (rows,) else (rows, *shape) for shape in shapes]
    counts, single = {game.count for game in request.games}, len(of_rows) == 1
    found = of_rows[0] if of_rows else ()

    def fits(shape: tuple[int, ...], entry: tuple[int, ...]) -> bool:
        layouts = entry, (*entry[1:], entry[0])  # the second has channels last
        return shape[1:] in (*layouts, *((*each, 1) for each in layouts))

    if [shape[1:] for shape in shapes] == [shape[1:] for shape in wanted]:
        raise BadInput(f"{said}: give the rows that they are of, as many as there are attributions")
    whole_rows = len(of_rows) == len(entries) and all(map(fits, of_rows, entries))
    few = len(found) > 1 and found[1:] in ((found[1],), (found[1], *outputs))
    columns = single and few and not whole_rows and 0 < found[1] < min(counts)
    one_output = whole_rows or (
        single and (found[1:] in {(count,) for count in counts} or (columns and len(found) == 2))
    )
    cures = []
    if outputs and one_output:
        cures.append(f"say by target= which of the {' × '.join(map(str, outputs))} outputs they are of")
    if columns:
        cures.append(f"say by feature_mask= which entries are one player, if the {found[1]} columns are of groups")
    raise BadInput(f"{said}: {', and '.join(cures)}" if cures else f"{said}, or a column for each player")


def _in_shape(attributions: Any, request: Request) -> tuple[tuple[Tensor, ...], bool]:
    """Return attributions to each input as Captum has them, (rows, *selected, *entry), and True if they had a column
    for each player."""
    inputs = len(request.games[0].masks)
    if isinstance(attributions, list):  # of SHAP's: for each input, or for each output of the only input
        stacked = inputs == 1 and len(attributions) > 0
        attributions = torch.stack([_tensor(x) for x in attributions], -1) if stacked else tuple(attributions)
    several = request.in_order(attributions)
    tensors = tuple(_tensor(x) for x in several)
    if len(tensors) == 1 and (found := _by_player(tensors[0], request)) is not None:
        return found, True
    if len(tensors) != inputs:
        return tensors, False  # which is an error soon
    entries = tuple(
        _by_entry(x, request, tuple(mask.shape), shap=_is_explanation(given))
        for x, given, mask in zip(tensors, several, request.games[0].masks, strict=True)
    )
    return entries, False


def _tensor(given: Any) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    values = getattr(given, "values", given)
    return torch.as_tensor(np.asarray(given if callable(values) else values))


def _by_entry(x: Tensor, request: Request, entry: tuple[int, ...], *, shap: bool) -> Tensor:
    """Return attributions to an input (rows, *selected, *entry); what has no such layout stays as it is."""
    found = _with_outputs(x, request, entry, shap=shap)
    if found is None and len(entry) == 3:
        last = _with_outputs(x, request, (*entry[1:], entry[0]), shap=True)
        found = None if last is None else last.movedim(-1, -3)
    return x if found is None else found


def _by_player(x: Tensor, request: Request) -> tuple[Tensor, ...] | None:
    """Return attributions with a column for each player as attributions to all entries; None if they have none."""
    counts = {game.count for game in request.games}
    shapes = [tuple(mask.shape) for mask in request.games[0].masks]
    if len(counts) > 1 or (len(shapes) == 1 and _with_outputs(x, request, shapes[0], shap=False) is not None):
        return None
    found = _with_outputs(x, request, (*counts,), shap=True)
    if found is None:
        return None
    return tuple(
        torch.cat([found[rows][..., game.masks[i].cpu()] for rows, game, _ in request.parts()])
        for i in range(len(shapes))
    )


def _with_outputs(x: Tensor, request: Request, entry: tuple[int, ...], *, shap: bool) -> Tensor | None:
    """Return (rows, *selected, *entry) of numbers in one of the layouts; None if they are in none of them."""
    rows, selected = len(request.full), tuple(request.full.shape[1:])
    x = x[None] if rows == 1 and x.dim() == len(entry) + len(selected) and x.shape[:1] != (1,) else x
    first, last = (rows, *selected, *entry), (rows, *entry, *selected)
    if tuple(x.shape) == first and not (shap and selected and first == last):
        return x
    if tuple(x.shape) == last:
        return x.movedim(tuple(range(1 + len(entry), x.dim())), tuple(range(1, 1 + len(selected))))
    if selected:
        return None
    if tuple(x.shape) == (*last, 1):
        return x[..., 0]
    outputs = request.selection.outputs
    if tuple(x.shape) == (*last, outputs.numel()):  # of all outputs
        return request.selection(x.movedim(0, -2).unflatten(-1, tuple(outputs))).movedim(-1, 0)
    return None


def _stated_base(attributions: Any, request: Request) -> Tensor | None:
    """Return the base values of an explanation, (rows, *selected), if it has some that can be those."""
    if not _is_explanation(attributions) or attributions.base_values is None:
        return None
    base = torch.as_tensor(np.asarray(attributions.base_values, dtype=np.float64))
    full = request.full.cpu().double()
    outputs, rows = request.selection.outputs, len(full)
    if full.dim() == 1 and outputs.numel() > 1 and base.shape in ((rows, outputs.numel()), (outputs.numel(),)):
        return request.selection(base.expand(rows, -1).unflatten(-1, tuple(outputs)))
    base = base[:, 0] if full.dim() == 1 and base.shape == (rows, 1) else base
    return base.expand(full.shape) if base.dim() == 0 or base.shape in (full.shape, full.shape[1:]) else None


def _share(number: float) -> str:
    """Return a share as a text.

    >>> _share(0.401)
    '40 %'
    """
    return f"{100 * number:.0f} %"


def _plain(numbers: Tensor) -> Any:
    """Return numbers as nested lists; None for those that are not finite."""

    def finite(part: Any) -> Any:
        return [finite(each) for each in part] if isinstance(part, list) else part if np.isfinite(part) else None

    return finite(numbers.tolist())


@dataclass(frozen=True)
class _Known:
    """The posterior of one game: values and deviations (players, rows, *selected)."""

    mean: Tensor
    std: Tensor
    unsure: Tensor | float  # quantiles of Σ(attributions − R)², less Σ(attributions − mean)²: (3, rows, *selected)
    scales: Tensor | float  # by how much variances may be larger or smaller: (draws, rows, *selected)

    @staticmethod
    def of(evaluator: Evaluator, given: Tensor, evaluations: int, seed: int) -> _Known:
        """Evaluate coalitions, all of them if there are no more."""
        game, total = evaluator.game, evaluator.total
        if evaluations >= 2**game.count:
            values = exact_values(evaluator).mean.cpu().double()
            return _Known(values, torch.zeros_like(values), 0.0, 0.0)
        pairs = Pairs.draw(game.count, (evaluations - 2) // 2, seed)
        prior = given.flatten(1).T
        found = posterior(
            Regression.on(pairs), evaluator.halves(pairs.members)[0].flatten(1), total.flatten(), prior,
            covariances(prior, game), _ANYTHING, distance=True,
        )  # fmt: skip
        assert found.distance is not None
        certain = (prior - found.mean).square().sum(1)
        unsure = torch.stack([found.distance.quantile(p) - certain for p in _QUANTILES])
        scales = found.distance.scales(_DRAWS, torch.Generator().manual_seed(seed)).T
        mean, std = (x.T.unflatten(1, total.shape) for x in (found.mean, found.deviation))
        return _Known(mean, std, unsure.unflatten(1, total.shape), scales.unflatten(1, total.shape))


def _unsure(active: Active, known: list[_Known]) -> tuple[Tensor, Tensor]:
    """Return what is unsure of each row of the request, (3, rows, *selected) and (draws, rows, *selected); 0 where the
    values are exact, as of idle players."""
    shape = active.whole.full.shape
    unsure, scales = (torch.zeros(number, *shape, dtype=torch.float64) for number in (len(_QUANTILES), _DRAWS))
    starts = [rows.start for rows, _, _ in active.whole.parts()]
    for part, own in zip(active.parts, known, strict=True):
        rows = part.rows.cpu() + starts[part.game]
        unsure[:, rows], scales[:, rows] = own.unsure, own.scales
    return unsure, scales


@dataclass(frozen=True)
class _Row:
    """A row of the request: attributions, values and deviations (players, *selected), and what is unsure of them."""

    given: Tensor
    mean: Tensor
    std: Tensor
    unsure: Tensor
    scales: Tensor

    def rmse(self) -> Interval:
        """Return how far the attributions are off."""
        squares = (self.given - self.mean).square().sum(0) + self.unsure
        return Interval(*(squares.clamp(min=0) / len(self.given)).sqrt())

    def size(self) -> Tensor:
        """Return the root mean square of the Shapley values."""
        return (self.mean.square() + self.std.square()).mean(0).sqrt()

    def drawn(self, seed: int) -> Tensor:
        """Draw values from their posterior, (draws, players, *selected); players as if independent."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(_DRAWS, *self.mean.shape, generator=generator, dtype=torch.float64)
        return self.mean + self.std * noise * self.scales.sqrt()[:, None]

    def top(self, number: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `TopPlayers` has of this row."""
        sizes = self.drawn(seed).abs()
        tied = _TIED * sizes.amax(1, keepdim=True)
        least = sizes.topk(number, 1).values[:, -1:] - tied  # of the right ones
        among = sizes >= least

        def chosen(values: Tensor) -> Tensor:
            places = values.abs().topk(number, 0).indices.expand(_DRAWS, number, *values.shape[1:])
            return among.gather(1, places)

        stated, best = chosen(self.given), chosen(self.mean)
        right, knowable = (each.all(1).double().mean(0) for each in (stated, best))
        return right, stated.double().sum(1).mean(0), knowable

    def correlation(self, seed: int) -> Interval:
        """Return Spearman's correlation with values drawn from their posterior."""
        drawn = self.drawn(seed)
        given = self.given.expand(drawn.shape)
        pairs = (x.movedim(1, -1).flatten(0, -2) for x in (given, drawn))
        found = spearman(*pairs).unflatten(0, (_DRAWS, *self.mean.shape[1:]))
        return Interval(*(found.nanquantile(p, 0) for p in _QUANTILES))


def _stacked(rows: list[Interval]) -> Interval:
    names = [each.name for each in fields(Interval)]
    return Interval(*(torch.stack([getattr(row, name) for row in rows]) for name in names))
