"""The players of a job, and their values when they are absent: `--groups`, `--baseline`, `--background`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput
from dasp.jobs.options import number_of
from dasp.jobs.reading.arrays import load
from dasp.jobs.reading.chunks import read_all

__all__ = ["RESERVED", "absent", "groups"]

RESERVED = ("id", "target", "prediction", "base_value", "gap", "method", "values", "sd")
_HINTS = {
    "id": "give --id id if it names the rows, --drop id if it is no input, or choose another",
    "target": "give --target target if it has classes, --drop target if it is no input, or choose another",
}


def groups(
    file: Path | None, names: tuple[str, ...] | None, shape: tuple[int, ...]
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """The player of every entry (None: each its own), and the players' names (None for images and other arrays).

    A JSON file has lists of columns by the name of their group; a NumPy file has player numbers in the shape of a row.
    """
    if file is None:
        mask = None
    elif file.suffix.lower() == ".json":
        if names is None:
            raise BadInput(f"--groups: {file} names columns, but the data has none; give player numbers as a .npy file")
        found = _json(file, names)
        mask, names = np.array([_group_of(found, name) for name in names]), tuple(found)
    elif file.suffix.lower() == ".npy":
        mask = _numbers(file, shape)
        names = None if names is None else tuple(f"group{i}" for i in range(mask.max() + 1))
    else:
        raise BadInput(f"--groups: {file} must be a .json file (names) or a .npy file (player numbers)")
    for name in names or ():
        if name in RESERVED or name.startswith("sd:"):
            raise BadInput(f"{name!r} is the name of a column of the output: {_HINTS.get(name, 'choose another')}")
    return mask, names


def absent(
    baseline: str,
    background: Path | None,
    names: tuple[str, ...] | None,
    shape: tuple[int, ...],
    dtype: str,
    mean: NDArray[np.float64],
) -> dict[str, NDArray[Any]]:
    """The `baselines` or the `background` for an `Explainer`; `mean` is the mean of the data."""
    columns = None if names is None else list(names)
    if background is not None:
        rows = read_all(background, columns, shape, dtype, "--background")
        if baseline == "mean":
            return {"baselines": _typed(rows.mean(0, dtype=np.float64), dtype)}
        return {"background": rows}
    if baseline == "zero":
        return {}
    if baseline == "mean":
        return {"baselines": _typed(mean, dtype)}
    number = number_of(baseline)
    if number is None:
        rows = read_all(Path(baseline), columns, shape, dtype, "--baseline")
        if len(rows) != 1:
            raise BadInput(
                f"--baseline: {baseline} has {len(rows)} rows, one is needed; --background averages over many"
            )
        return {"baselines": rows[0]}
    if not np.isfinite(number):
        raise BadInput(f"--baseline is {baseline}; a finite number is needed")
    return {"baselines": _typed(np.full(shape, number), dtype)}


def _typed(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    cast = values.astype(dtype)
    if cast.dtype.kind != "f" and (cast != values).any():
        raise BadInput("--baseline must be whole numbers, as the model's inputs are")
    return cast


def _json(file: Path, names: tuple[str, ...]) -> dict[str, list[str]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as error:
        raise BadInput(f"--groups: {file}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"--groups: {file} is not JSON ({error})") from error
    except ValueError as error:  # a name twice, or bytes that are not UTF-8
        raise BadInput(f"--groups: {file} cannot be used: {error}") from error
    lists = isinstance(found, dict) and all(isinstance(group, list) for group in found.values())
    if not found or not lists:
        raise BadInput(f'--groups: {file} must look like {{"name of a group": ["a column", "another"], …}}')
    members = [name for group in found.values() for name in group]
    for name in members:
        if name not in names:
            raise BadInput(f"--groups: {file} lists {name!r}, which is not an input")
    for name in names:
        if members.count(name) != 1:
            where = "in no group" if name not in members else "listed twice"
            raise BadInput(f"--groups: {file}: input {name!r} is {where}; each input belongs to one group")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("two groups have the same name")
    return dict(pairs)


def _group_of(found: dict[str, list[str]], name: str) -> int:
    return next(i for i, group in enumerate(found.values()) if name in group)


def _numbers(file: Path, shape: tuple[int, ...]) -> NDArray[np.int64]:
    try:
        loaded = load(file)
    except BadInput as error:
        raise BadInput(f"--groups: {error}") from error
    if loaded.dtype.kind not in "iu":
        raise BadInput(f"--groups: {file} has dtype {loaded.dtype}; player numbers must be integers")
    try:
        mask = np.broadcast_to(loaded, shape).astype(np.int64)
    except ValueError as error:
        raise BadInput(
            f"--groups: {file} has shape {loaded.shape}, which does not fit rows of shape {shape}"
        ) from error
    used = set(np.unique(mask).tolist())
    missing = set(range(max(used) + 1)) - used
    if min(used) < 0 or missing:
        wrong = f"there is no player {min(missing)}" if missing else f"{min(used)} is below 0"
        raise BadInput(f"--groups: {file} must number the players 0, 1, … {max(used)}, but {wrong}")
    return mask
