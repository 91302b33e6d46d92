"""The options of an explainer as a file, without its model and without anything that could run.

A file is one of safetensors: its metadata has the options in JSON, and its tensors are the arrays among them, by their
numbers. Whoever loads it gives the model again, and whatever else is code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput, line_of
from dasp.explainer.shap_background import WeightedRows

__all__ = ["read_options_file", "write_options_file"]

_KEY, _VERSION = "dasp explainer", 1
_CODE = ("encoder", "players", "method", "device", "output")  # options that may be given again


def write_options_file(path: str | Path, options: dict[str, Any]) -> None:
    """Write options that differ from their defaults into a file."""
    save = _safetensors()[1]
    arrays: dict[str, Tensor] = {}
    texts, again = {}, []
    for name, value in options.items():
        try:
            texts[name] = _plain(value, arrays)
        except TypeError as error:
            if name not in _CODE:
                raise BadInput(f"{name} cannot be saved: {error}") from None
            again.append(name)
    content = json.dumps({"version": _VERSION, "options": texts, "again": again})
    arrays["nothing"] = torch.zeros(0)  # as a file of safetensors has at least one
    save(arrays, str(path), metadata={_KEY: content})


def read_options_file(path: str | Path, again: dict[str, Any]) -> dict[str, Any]:
    """Read options from a file; those that it could not hold must be among those that are given `again`."""
    safe_open = _safetensors()[0]
    try:
        with safe_open(str(path), framework="pt") as file:
            content = json.loads((file.metadata() or {})[_KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        version, options = content["version"], content["options"]
        missing = [name for name in content["again"] if name not in again]
        options = {name: _restored(value, arrays) for name, value in options.items()}
    except Exception as error:
        raise BadInput(f"{path} is no saved explainer, or damaged: {line_of(error)}") from error
    if version != _VERSION:
        raise BadInput(f"{path} is of version {version} of saved explainers, and {_VERSION} is known")
    if missing:
        raise BadInput(f"{path} was saved without {', '.join(missing)}, which are code: give them again")
    return {**options, **again}


def _safetensors() -> tuple[Any, Any]:
    try:
        from safetensors import safe_open  # noqa: PLC0415 (an extra)
        from safetensors.torch import save_file  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("saved explainers need safetensors: pip install 'torch-dasp[cli]'") from error
    return safe_open, save_file


def _plain(value: Any, arrays: dict[str, Tensor]) -> Any:
    """Return a value as JSON has it; arrays are put aside, and their numbers stand for them."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), arrays)
    if isinstance(value, Tensor):
        return {"tensor": _kept(value.detach().cpu(), arrays)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return {"array": _kept(torch.from_numpy(np.array(value)), arrays)}
    if hasattr(value, "to_frame") and not hasattr(value, "iterrows"):  # a row of a table, or its columns
        return _plain(value.to_frame().T if hasattr(value, "iloc") else value.tolist(), arrays)
    if hasattr(value, "columns") and hasattr(value, "dtypes"):
        columns = [[str(name), str(kind), _column(value.iloc[:, i], arrays)]
                   for i, (name, kind) in enumerate(zip(value.columns, value.dtypes, strict=True))]  # fmt: skip
        return {"table": columns}
    if isinstance(value, WeightedRows):
        return {"weighted": _plain((value.rows, list(value.shares)), arrays)}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _plain(part, arrays) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__ if type(value) in (list, tuple) else "list": [_plain(x, arrays) for x in value]}
    if callable(value) and getattr(value, "__name__", "") in ("identity", "logit"):  # SHAP's links
        return value.__name__
    raise TypeError(f"a {type(value).__name__} is neither numbers nor text")


def _column(column: Any, arrays: dict[str, Tensor]) -> Any:
    """Return a column of a table: numbers as an array, all else as a list."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "fiub":
        return _plain(column.to_numpy(), arrays)
    return _plain([None if x is None or x != x else x for x in column.tolist()], arrays)  # noqa: PLR0124 (NaN)


def _kept(tensor: Tensor, arrays: dict[str, Tensor]) -> str:
    name = str(len(arrays))
    arrays[name] = tensor.contiguous().clone()
    return name


def _restored(value: Any, arrays: dict[str, Tensor]) -> Any:
    """Undo `_plain`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return arrays[content]
    if kind == "array":
        return arrays[content].numpy()
    if kind == "dict":
        return {key: _restored(part, arrays) for key, part in content.items()}
    if kind in ("list", "tuple"):
        parts = [_restored(part, arrays) for part in content]
        return tuple(parts) if kind == "tuple" else parts
    if kind == "weighted":
        rows, shares = _restored(content, arrays)
        return WeightedRows(rows, tuple(shares))
    if kind == "table":
        import pandas as pd  # noqa: PLC0415

        columns = {name: pd.Series(_restored(part, arrays), dtype=dtype) for name, dtype, part in content}
        return pd.DataFrame(columns)
    raise BadInput(f"{kind!r} is no kind of value")
