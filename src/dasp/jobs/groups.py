"""The players of a job, and their values when they are absent: `--groups`, `--baseline`,
`--background`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of
from dasp.jobs.options import Options, number_of
from dasp.jobs.reading.arrays import load
from dasp.jobs.reading.chunks import read_all
from dasp.jobs.reading.files import check_file, check_unpacked, is_utf8
from dasp.jobs.reading.normalized import Normalized
from dasp.jobs.reading.source import Source

__all__ = ["RESERVED", "absent", "check_names", "described", "groups"]

RESERVED = (
    "id", "target", "prediction", "base_value", "gap", "method", "evaluations", "missed", "values", "sd", "pieces",
    "players", "data",
)  # fmt: skip
_FEW = 64  # entries that are told one by one
_HINTS = {
    "id": "give --id id if it names the rows, --drop id if it is no input, or choose another",
    "target": "give --target target if it has classes, --drop target if it is no input, or choose another",
}


def groups(
    file: Path | None, names: tuple[str, ...] | None, shape: tuple[int, ...], limit: int
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    """The player of every entry (None: each its own), and the players' names (None for images and other arrays).

    A JSON file has lists of columns by the name of their group; a NumPy file has player numbers in the shape of a row.
    The file may take `limit` bytes.
    """
    if file is None:
        mask = None
    elif file.suffix.lower() == ".json":
        if names is None:
            raise BadInput(f"--groups: {file} names columns, but the data has none; give player numbers as a .npy file")
        found = _json(file, limit)
        mask, names = _players(file, found, names), tuple(found)
    elif file.suffix.lower() == ".npy":
        mask = _numbers(file, shape, limit)
        names = None if names is None else tuple(f"group{i}" for i in range(mask.max() + 1))
    else:
        raise BadInput(f"--groups: {file} must be a .json file (names) or a .npy file (player numbers)")
    return mask, names


def check_names(names: tuple[str, ...] | None) -> None:
    """Refuse players whose columns would be taken for others of the output."""
    for name in names or ():
        if name in RESERVED or name.startswith(("sd:", "data:")):
            raise BadInput(f"{name!r} is the name of a column of the output: {_HINTS.get(name, 'choose another')}")


def absent(options: Options, source: Source, dtype: str, mean: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """The `baselines` or the `background` for an `Explainer`, scaled as the rows are; `mean` is theirs."""
    baseline, limit = options.baseline or "zero", options.limit
    columns = None if source.names is None else list(source.names)
    scaling = source.scaling if isinstance(source, Normalized) else None

    def read(file: Path, option: str) -> NDArray[Any]:
        return read_all(file, columns, source.shape, dtype, option, limit, scaling)

    if options.background is not None:
        rows = read(options.background, "--background")
        if baseline == "mean":
            return {"baselines": _typed(rows.mean(0, dtype=np.float64), dtype)}
        return {"background": rows}
    if baseline == "mean":
        return {"baselines": _typed(mean, dtype)}
    if baseline == "zero" and scaling is None:
        return {}
    number = 0.0 if baseline == "zero" else number_of(baseline)
    if number is None:
        rows = read(Path(baseline), "--baseline")
        if len(rows) != 1:
            raise BadInput(
                f"--baseline: {baseline} has {len(rows)} rows, one is needed; --background averages over many"
            )
        return {"baselines": rows[0]}
    if not np.isfinite(number):
        raise BadInput(f"--baseline is {baseline}; a finite number is needed")
    row = np.full(source.shape, number)
    return {"baselines": _typed(row if scaling is None else scaling(row), dtype)}


def described(options: Options, given: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """What an absent input was, as the model was given it, for who reads the output: the numbers if they are few."""
    (name, values), *_ = [*given.items(), ("baselines", None)]
    told: dict[str, Any] = {"from": _said(options), "what": "baseline" if name == "baselines" else "background"}
    if values is None:
        return {**told, "value": 0}
    if values.size and (values == values.flat[0]).all():
        return {**told, "shape": list(values.shape), "value": values.flat[0].item()}
    if values.size <= _FEW:
        return {**told, "shape": list(values.shape), "values": values.tolist()}
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return {**told, "shape": list(values.shape), "dtype": str(values.dtype), "sha256": digest}


def _said(options: Options) -> str:
    """The options that say what an absent input is."""
    baseline = options.baseline or (None if options.background else "zero")
    background = options.background and options.background.name
    said = {"--background": background, "--baseline": baseline, "--normalize": options.normalize}
    return " ".join(f"{name} {value}" for name, value in said.items() if value)


def _typed(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    if cast.dtype.kind != "f" and (cast != values).any():
        raise BadInput("--baseline must be whole numbers, as the model's inputs are")
    if not np.isfinite(cast).all():
        raise BadInput(f"--baseline is {values.flat[np.argmin(np.isfinite(cast))]:g}, which is not finite in {dtype}")
    return cast


def _json(file: Path, limit: int) -> dict[str, list[str]]:
    """Lists of names by the name of their group."""
    try:
        check_file(file)
        check_unpacked(file, "the file", file.stat().st_size, limit)
        found = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except BadInput as error:
        raise BadInput(f"--groups: {error}") from error
    except OSError as error:
        raise BadInput(f"--groups: {file}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"--groups: {file} is not JSON ({error})") from error
    except RecursionError as error:
        raise BadInput(f"--groups: {file} is nested too deeply") from error
    except ValueError as error:  # a name twice, or bytes that are not UTF-8
        raise BadInput(f"--groups: {file} cannot be used: {line_of(error)}") from error
    lists = isinstance(found, dict) and all(isinstance(group, list) for group in found.values())
    if not found or not lists:
        raise BadInput(f'--groups: {file} must look like {{"name of a group": ["a column", "another"], …}}')
    for name, group in found.items():
        if not is_utf8(name):
            raise BadInput(f"--groups: {file}: the name {line_of(repr(name))} cannot be written in UTF-8")
        if not group:
            raise BadInput(f"--groups: {file}: group {name!r} is empty; leave it out, or list its inputs")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("two groups have the same name")
    return dict(pairs)


def _players(file: Path, found: dict[str, list[str]], names: tuple[str, ...]) -> NDArray[np.int64]:
    """The number of each input's group."""
    known, players = set(names), {}
    for number, group in enumerate(found.values()):
        for name in group:
            if not isinstance(name, str) or name not in known:
                raise BadInput(f"--groups: {file} lists {line_of(repr(name))}, which is not an input")
            if name in players:
                raise BadInput(f"--groups: {file}: input {name!r} is listed twice; each input belongs to one group")
            players[name] = number
    for name in names:
        if name not in players:
            raise BadInput(f"--groups: {file}: input {name!r} is in no group; each input belongs to one group")
    return np.array([players[name] for name in names])


def _numbers(file: Path, shape: tuple[int, ...], limit: int) -> NDArray[np.int64]:
    try:
        loaded = load(file, limit)
    except BadInput as error:
        raise BadInput(f"--groups: {error}") from error
    if loaded.dtype.kind not in "iu":
        raise BadInput(f"--groups: {file} has dtype {loaded.dtype}; player numbers must be integers")
    try:
        mask = np.broadcast_to(loaded, shape)
    except ValueError as error:
        raise BadInput(
            f"--groups: {file} has shape {loaded.shape}, which does not fit rows of shape {shape}"
        ) from error
    used = np.unique(mask).tolist()  # in their order
    wrong = next((i for i, number in enumerate(used) if number != i), None)
    if wrong is not None:
        what = f"{used[0]} is below 0" if used[0] < 0 else f"there is no player {wrong}"
        raise BadInput(f"--groups: {file} must number the players 0, 1, … {used[-1]}, but {what}")
    return mask.astype(np.int64)
