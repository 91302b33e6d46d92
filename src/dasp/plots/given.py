"""What users give to plots, as arrays: a `shap.Explanation`, what `Explainer.attribute` returns, or attributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from dasp.errors import BadInput
from dasp.words import INTERVAL

__all__ = ["Given", "array", "read", "read_row", "read_table"]


@dataclass(frozen=True)
class Given:
    """Attributions of one output, of one row or of several."""

    values: np.ndarray  # (*features) of a row, (rows, *features) of several
    std: np.ndarray | None  # of the values
    data: np.ndarray | None  # what the features are
    names: list[str]  # of the features, if these have one dimension
    base: np.ndarray | None  # what the values add to; () or (rows,)
    output: str  # its name
    alone: bool  # whether this is one row
    spread: bool  # whether a group's value is divided among its entries, as in explanations of images

    @property
    def half(self) -> np.ndarray | None:
        """To each side of a value, what holds the true one with a probability of 95 %."""
        return None if self.std is None else INTERVAL * self.std

    @property
    def uncertain(self) -> np.ndarray:
        """Where the interval of 95 % holds 0, and is not only 0."""
        if self.std is None:
            return np.zeros(self.values.shape, dtype=bool)
        return (np.abs(self.values) <= INTERVAL * self.std) & (self.std > 0)


def array(given: Any) -> np.ndarray:
    """A tensor, list or array as an array."""
    return given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)


def read(
    given: Any,
    *,
    names: Sequence[object] | None = None,
    data: Any = None,
    std: Any = None,
    base: Any = None,
    output: str | None = None,
) -> Given:
    """Read what is given; keywords go before what an explanation says by itself."""
    explained = hasattr(given, "base_values")  # a shap.Explanation
    if not explained and hasattr(given, "prediction"):  # what Explainer.attribute returns
        std, base = (given.std if std is None else std), (given.base if base is None else base)
    values = array(given.values if hasattr(given, "values") and not callable(given.values) else given)
    if explained:
        data = given.data if data is None else data
        std = given.error_std if std is None else std
        base = given.base_values if base is None else base
        names = given.feature_names if names is None else names
        output = given.output_names if output is None and isinstance(given.output_names, str) else output
    names = getattr(data, "columns", None) if names is None else names
    values = _checked(values, given, data)
    deviations = None if std is None else array(std).astype(np.float64)
    if deviations is not None:
        if deviations.shape != values.shape:
            raise BadInput(f"std has the shape {deviations.shape}, and the values {values.shape}")
        if not (deviations >= 0).all():
            raise BadInput("std has negative or NaN entries: give standard deviations")
    base = None if base is None else array(base).astype(np.float64)
    alone = values.ndim == 1 or (base is not None and base.ndim == 0 and explained)
    data = None if data is None else array(data)
    spread = explained and values.ndim + alone == 4
    return Given(
        values, deviations, data, [] if names is None else [str(n) for n in names], base, output or "", alone, spread
    )


def read_row(given: Any, **keywords: Any) -> Given:
    """Read one row of features with names; a table of one row is one, too."""
    found = read(given, **keywords)
    if found.values.ndim == 2 and len(found.values) == 1:
        found = _changed(found, lambda whole: whole[0] if whole.ndim == 2 else whole)
    elif found.values.ndim != 1:
        _refuse_shape(found, "one row of features", "choose one, as by explanation[0]")
    if found.base is not None and found.base.ndim:
        if found.base.size != 1:
            raise BadInput(f"base has the shape {found.base.shape}: give one number for one row")
        found = replace(found, base=found.base.reshape(()))
    return _named(replace(found, alone=True), found.values.shape)


def read_table(given: Any, **keywords: Any) -> Given:
    """Read rows of features with names; one row is a table, too."""
    found = read(given, **keywords)
    if found.values.ndim == 1:
        found = _changed(found, lambda whole: whole.reshape(1, -1))
    elif found.values.ndim != 2:
        _refuse_shape(found, "a table", "group their entries by a feature_mask, or see dasp.plots.image")
    return _named(found, found.values.shape)


def _checked(values: np.ndarray, given: Any, data: Any) -> np.ndarray:
    """Finite numbers of one output."""
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


def _changed(found: Given, change: Callable[[np.ndarray], np.ndarray]) -> Given:
    """With values, deviations and data in another shape."""
    std, data = (None if part is None else change(part) for part in (found.std, found.data))
    return replace(found, values=change(found.values), std=std, data=data)


def _refuse_shape(found: Given, wanted: str, remedy: str) -> None:
    raise BadInput(f"values of the shape {found.values.shape} are not {wanted}: {remedy}")


def _named(found: Given, shape: tuple[int, ...]) -> Given:
    """With a name for every feature, and data of the values' shape."""
    if found.data is not None and found.data.shape != shape:
        raise BadInput(f"data has the shape {found.data.shape}, and the values {shape}")
    names = found.names or [f"Feature {i}" for i in range(shape[-1])]
    if len(names) != shape[-1]:
        raise BadInput(f"there are {len(names)} names for {shape[-1]} features")
    return replace(found, names=names)
