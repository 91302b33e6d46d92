"""Rows to explain as people have them: arrays, tables and tensors, as tensors of the model's dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput

__all__ = ["Rows", "one_by_one", "together"]


def one_by_one(inputs: Any) -> dict[Any, Any]:
    """The inputs of a model by keyword, if they are a dictionary, or by number, if a tuple; the only one by None. A
    tuple of numbers or names is one row."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    several = isinstance(inputs, tuple) and not all(isinstance(x, (int, float, str)) for x in inputs)
    return dict(enumerate(inputs)) if several else {None: inputs}


def together(parts: dict[Any, Any]) -> Any:
    """The opposite of `one_by_one`.

    >>> together({0: "first", 1: "second"}), together({None: "only"}), together({"x": 1})
    (('first', 'second'), 'only', {'x': 1})
    """
    if None in parts:
        return parts[None]
    return parts if all(isinstance(key, str) for key in parts) else tuple(parts.values())


@dataclass(frozen=True)
class Rows:
    """A row per sample: the numbers as they were given and as the model takes them, and the names of the columns."""

    data: np.ndarray
    tensor: Tensor
    names: list[str] | None = None

    @staticmethod
    def of(
        given: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        integers: bool = False,
        names: Sequence[str] | None = None,
        what: str = "X",
    ) -> Rows:
        """Read a tensor, an array, a DataFrame or nested lists. Floating-point numbers become `dtype`, as do integers,
        except in tensors and if the model takes `integers`. The columns of a table are put in the order of `names`.
        `what` the rows are is said in errors.

        >>> Rows.of(np.array([[1, 2]]), torch.float32).tensor
        tensor([[1., 2.]])
        """
        own = None
        if isinstance(given, Tensor):
            tensor = given.detach()
            data, integers = _numpy(tensor), True
        else:
            if hasattr(given, "columns") and hasattr(given, "to_numpy"):
                given, own = _columns(given, names, what)
            data = _array(given, what)
            tensor = torch.from_numpy(data)
        if data.ndim < 2:
            raise BadInput(f"{what} has shape {data.shape}: rows of features are needed, {what}[None] for a single one")
        if integers and not tensor.is_floating_point():
            dtype = tensor.dtype if isinstance(given, Tensor) else torch.int64
        return Rows(data, tensor.to(device=device, dtype=dtype), own)


def _numpy(tensor: Tensor) -> np.ndarray:
    """Make an array of it; NumPy knows no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def _columns(table: Any, names: Sequence[str] | None, what: str) -> tuple[np.ndarray, list[str]]:
    """The numbers of a table, and the names of its columns, in the order of `names`."""
    own = [str(name) for name in table.columns]
    if names is not None and own != list(names):
        missing, unknown = [name for name in names if name not in own], [name for name in own if name not in names]
        if missing or unknown or len(own) != len(names):
            lacks = f" lacks {missing}" if missing else ""
            has = f" has {unknown}, which nobody knows" if unknown else ""
            raise BadInput(f"{what}{' and'.join(filter(None, (lacks, has))) or ' has columns twice'}; columns: {names}")
        table, own = table.iloc[:, [own.index(name) for name in names]], list(names)
    for name, kind in zip(own, table.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "fiub":
            raise BadInput(f"column {name!r} of {what} has no numbers, but {kind}: encode it as for the model")
    if all(isinstance(kind, np.dtype) and kind.kind in "iu" for kind in table.dtypes):
        return table.to_numpy(dtype=np.int64), own
    if len(set(table.dtypes)) == 1 and isinstance(table.dtypes.iloc[0], np.dtype):
        return table.to_numpy(), own
    return table.to_numpy(dtype=float, na_value=np.nan), own


def _array(given: Any, what: str) -> np.ndarray:
    try:
        array = np.array(given)
    except ValueError as error:
        raise BadInput(f"{what} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        kind = "text" if array.dtype.kind in "US" else array.dtype
        raise BadInput(f"{what} must be numbers, not {kind}: encode its columns as for the model")
    if array.dtype == np.longdouble or not array.dtype.isnative:  # which torch does not know
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return array
