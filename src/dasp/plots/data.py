"""The data of figures: the arrays in what users give, and the parts that a figure shows of them.

Users give a `shap.Explanation`, the result of `Explainer.attribute`, or plain attributions with keywords: `read`,
`read_row` and `read_table` make a `PlotData` of them. Figures of a row show its largest players by name and all others
together: each of these is a `Part`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from dasp.display import half_of_sum, uncertain
from dasp.errors import BadInput
from dasp.formatting import INTERVAL, entry, number, within
from dasp.plots.style import DOWN, TEXT, UP, fit_names

__all__ = [
    "Part", "PlotData", "as_array", "axis_edge", "end_labels", "error_note", "faces", "feature_names", "parts_of",
    "read", "read_entries", "read_row", "read_table", "sum_of",
]  # fmt: skip

_HATCHES = "////"
_FEWEST = 60  # points of a name
_BEYOND = 1.3  # times the largest named feature, where an axis ends that cuts off all others


@dataclass(frozen=True)
class PlotData:
    """The attributions of one output, of one row or of several."""

    values: np.ndarray  # (*features) of a row, (rows, *features) of several
    std: np.ndarray | None  # the standard deviations of the values
    data: np.ndarray | None  # the features themselves
    names: list[str]  # the names of the features, if these have one dimension
    base: np.ndarray | None  # the base value, to which the values add; () or (rows,)
    output: str  # the name of the output
    one_row: bool  # True for one row, False for several
    spread: bool  # True if a group's value is divided among its entries, as in explanations of images
    sums: np.ndarray | None = None  # of the players' values of each row, where values are those of entries

    @property
    def half(self) -> np.ndarray | None:
        """Half of the 95 % interval: the true value is within ± half with that probability."""
        return None if self.std is None else INTERVAL * self.std

    @property
    def uncertain(self) -> np.ndarray:
        """True where the 95 % interval includes 0, and is not only 0."""
        return np.zeros(self.values.shape, dtype=bool) if self.half is None else uncertain(self.values, self.half)


def as_array(given: Any) -> np.ndarray:
    """Return a tensor, list or array as an array."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def read(
    given: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    base: Any = None,
    output: str | None = None,
) -> PlotData:
    """Read a `shap.Explanation`, the result of `Explainer.attribute`, or attributions. Keywords go before what an
    explanation says by itself."""
    explained = hasattr(given, "base_values")  # a shap.Explanation
    if not explained and hasattr(given, "prediction"):  # the result of Explainer.attribute
        std, base = (given.std if std is None else std), (given.base if base is None else base)
    values = as_array(given.values if hasattr(given, "values") and not callable(given.values) else given)
    if explained:
        data = given.data if data is None else data
        std = given.error_std if std is None else std
        base = given.base_values if base is None else base
        names = given.feature_names if names is None else names
        output = _output(given) if output is None else output
    names = getattr(data, "columns", None) if names is None else names
    values = _checked(values, given, data)
    deviations = None if std is None else as_array(std).astype(np.float64)
    if deviations is not None:
        if deviations.shape != values.shape:
            raise BadInput(f"std has the shape {deviations.shape}, and the values {values.shape}")
        if not (deviations >= 0).all():
            raise BadInput("std has negative or NaN entries: give standard deviations")
    base = None if base is None else as_array(base).astype(np.float64)
    one_row = values.ndim == 1 or (base is not None and base.ndim == 0 and explained)
    data = None if data is None else as_array(data)
    spread = explained and values.ndim + one_row == 4
    return PlotData(
        values, deviations, data, [] if names is None else [str(n) for n in names], base, output or "", one_row, spread
    )


def read_entries(given: Any, *, data: Any = None, std: Any = None) -> tuple[PlotData, np.ndarray | None]:
    """Read values of the entries of images or series, and the players that an explanation keeps. Where these are its
    columns, every entry has the value of its player, and the data are those of the entries."""
    regions = getattr(given, "regions", None)
    if regions is None:
        return read(given, data=data, std=std), None
    mask = regions.feature_mask[0] if len(regions.feature_mask) == 1 else regions.feature_mask
    found = read(given, data=data if regions.spread or data is None else None, std=std)
    if regions.spread:
        return found, mask
    numbers = np.broadcast_to(regions.numbers, regions.data.shape)

    def by_entry(part: np.ndarray) -> np.ndarray:
        rows = np.stack([own[number] for own, number in zip(part.reshape(len(numbers), -1), numbers, strict=True)])
        return rows[0] if found.one_row else rows

    rows = regions.data[0] if found.one_row else regions.data
    return replace(
        found, values=by_entry(found.values), std=None if found.std is None else by_entry(found.std),
        data=rows if data is None else as_array(data), names=[], sums=np.atleast_1d(found.values.sum(-1)),
    ), mask  # fmt: skip


def _output(explanation: Any) -> str | None:
    """Return the name of what is explained, if all rows have the same."""
    if isinstance(explanation.output_names, str):
        return explanation.output_names
    rows = set(getattr(explanation, "row_outputs", None) or ())
    return rows.pop() if len(rows) == 1 else None


def read_row(given: Any, **keywords: Any) -> PlotData:
    """Read one row of features with names; a table of one row will do, too."""
    found = read(given, **keywords)
    if found.values.ndim == 2 and len(found.values) == 1:
        found = _reshaped(found, lambda whole: whole[0] if whole.ndim == 2 else whole)
    elif found.values.ndim != 1:
        _refuse_shape(found, "one row of features", "choose one, as by explanation[0]")
    if found.base is not None and found.base.ndim:
        if found.base.size != 1:
            raise BadInput(f"base has the shape {found.base.shape}: give one number for one row")
        found = replace(found, base=found.base.reshape(()))
    return _named(replace(found, one_row=True), found.values.shape)


def read_table(given: Any, **keywords: Any) -> PlotData:
    """Read rows of features with names; one row will do, too."""
    found = read(given, **keywords)
    if found.values.ndim == 1:
        found = _reshaped(found, lambda whole: whole.reshape(1, -1))
    elif found.values.ndim != 2:
        _refuse_shape(found, "a table", "group their entries by a feature_mask, or see dasp.plots.image")
    return _named(found, found.values.shape)


def _checked(values: np.ndarray, given: Any, data: Any) -> np.ndarray:
    """Return the values of one output as finite numbers, or say what is wrong with them."""
    if values.dtype == object:
        raise BadInput("rows have different numbers of values: choose one of them, as by explanation[0]")
    outputs = getattr(given, "output_names", None)
    if outputs is not None and not isinstance(outputs, str) and (data is None or values.ndim > np.ndim(data)):
        some = ", ".join(str(name) for name in list(outputs)[:3])
        raise BadInput(
            f"the explanation is of {len(outputs)} outputs ({some}{', …' if len(outputs) > 3 else ''}): choose one, "
            f"as by explanation[{':, ' * (values.ndim - 1)}{str(outputs[0])!r}]"
        )
    if values.size == 0:
        raise BadInput(f"there are no values to draw: their shape is {values.shape}")
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise BadInput("the values have NaN or infinite entries, which cannot be drawn")
    return values


def _reshaped(found: PlotData, change: Callable[[np.ndarray], np.ndarray]) -> PlotData:
    """Return the same with values, deviations and data in another shape."""
    std, data = (None if part is None else change(part) for part in (found.std, found.data))
    return replace(found, values=change(found.values), std=std, data=data)


def _refuse_shape(found: PlotData, wanted: str, remedy: str) -> None:
    raise BadInput(f"values of the shape {found.values.shape} are not {wanted}: {remedy}")


def _named(found: PlotData, shape: tuple[int, ...]) -> PlotData:
    """Return the same with a name for every feature, after a check of the shape of the data."""
    if found.data is not None and found.data.shape != shape:
        raise BadInput(f"data has the shape {found.data.shape}, and the values {shape}")
    return replace(found, names=feature_names(found.names, shape[-1]))


def feature_names(names: list[str], count: int, what: str = "features") -> list[str]:
    """Return the names of so many features; "Feature 0", "Feature 1" and so on if there are none."""
    names = names or [f"Feature {i}" for i in range(count)]
    if len(names) != count:
        raise BadInput(f"there are {len(names)} names for {count} {what}")
    return names


@dataclass(frozen=True)
class Part:
    """A player, or several together, with its value: a bar of a figure."""

    label: str
    value: float
    half: float | None  # half of the 95 % interval; None if it is not known

    @property
    def uncertain(self) -> bool:
        """True if the interval includes 0, and is not only 0."""
        return self.half is not None and bool(uncertain(self.value, self.half))

    @property
    def text(self) -> str:
        """The value with its interval, unless it is exact."""
        return within(self.value, self.half or None)


def sum_of(found: PlotData, players: Iterable[int]) -> Part:
    """Return several players as one part: values and variances add up, as if errors were independent."""
    which = list(players)
    half = None if found.half is None else half_of_sum(found.half[which])
    return Part(f"{len(which)} other{'s' * (len(which) != 1)}", float(found.values[which].sum()), half)


def parts_of(found: PlotData, players: Iterable[int], width: float, size: float = TEXT) -> list[Part]:
    """Return players of a row as parts, labelled "name = data" within so many points."""
    which = list(players)
    entries = [
        "" if found.data is None or found.names[i] == str(found.data[i]) else f" = {entry(found.data[i])}"
        for i in which
    ]  # a piece of text is its own name
    room = max(width - 5 * max(map(len, entries), default=0), _FEWEST)
    names = fit_names([found.names[i] for i in which], room, size)
    halves = [None if found.half is None else float(found.half[i]) for i in which]
    return [
        Part(name + own, float(found.values[i]), half)
        for i, name, own, half in zip(which, names, entries, halves, strict=True)
    ]


def faces(part: Part) -> dict[str, Any]:
    """Return how the area of a part is filled: in red or blue, and only hatched if it is uncertain."""
    colour = UP if part.value >= 0 else DOWN
    if part.uncertain:
        return {"facecolor": "white", "edgecolor": colour, "hatch": _HATCHES, "linewidth": 0.9}
    return {"facecolor": colour, "edgecolor": "white", "linewidth": 0.8}


def error_note(found: PlotData, *, hatched: bool) -> str:
    """Return how to read the error bars of a figure, or why there are none."""
    if found.half is None:
        return "No error bars: the standard deviations of the values are not known."
    if not found.half.any():
        return "No error bars: the values are exact."
    return "Thin bars and ±: 95 % intervals." + " Hatched: the interval includes 0." * hatched


def end_labels(found: PlotData, start: float, end: float) -> tuple[str, str]:
    """Return the texts at the two ends of a row of values: where they start, and where they lead to."""
    before, after = number(start, digits=4), number(end, digits=4)
    return (
        ("0", f"sum of the values = {after}")
        if found.base is None
        else (f"base = {before}", f"base + values = {after}")
    )


def axis_edge(named: float, others: float, times: float) -> float | None:
    """Return where an axis ends if the others together reach more than so many times as far as the largest named
    feature, which they would squeeze; None if they do not."""
    return _BEYOND * named if named and others > times * named else None
