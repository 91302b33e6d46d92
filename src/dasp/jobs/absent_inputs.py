"""The inputs of a job that are absent together, and the values that they have then: `--players` (of a file),
`--baselines`, `--background`, and `--mean` and `--std`, which are on the model's side of all of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput, line_of
from dasp.jobs.options import Options, is_utf8, number_of
from dasp.jobs.reading.arrays import load
from dasp.jobs.reading.chunks import read_all
from dasp.jobs.reading.source import Source, check_file, check_unpacked
from dasp.jobs.record import AbsentInputs

__all__ = ["RESERVED", "Normalization", "absent_record", "absent_values", "check_player_names", "players_of_file"]

RESERVED = (
    "id", "target", "versus", "prediction", "base_value", "gap", "method", "evaluations", "missed", "values",
    "error_std", "pieces", "players", "data", "interactions", "interactions_std",
)  # fmt: skip
_PREFIXES = ("error_std:", "data:")
_FEW = 64  # entries that are told one by one
_HINTS = {
    "id": "give --id id if it names the rows, --drop id if it is no input, or choose another",
    "versus": "give --drop versus if it is no input, or choose another",
    "target": "give --target target if it has classes, --drop target if it is no input, or choose another",
}
_KNOWN = {"imagenet": {"--mean": "0.485,0.456,0.406", "--std": "0.229,0.224,0.225"}}


@dataclass(frozen=True)
class Normalization:
    """The (x − mean)/std that a model expects of its inputs, with a number for all entries, or one for each channel or
    column. It is the `mean` and `std` of an `Explainer`.

    >>> Normalization.of("imagenet", "2", (3, 8, 8))
    Normalization(mean=(0.485, 0.456, 0.406), std=(2.0,))
    """

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None

    @staticmethod
    def of(mean: str | None, std: str | None, shape: tuple[int, ...]) -> Normalization | None:
        """Read --mean and --std for rows of a shape, in which channels come first; None if neither is given."""
        if mean is None and std is None:
            return None
        found = Normalization(_numbers_of("--mean", mean, shape), _numbers_of("--std", std, shape))
        if any(number <= 0 for number in found.std or ()):
            raise BadInput(f"--std is {std}; numbers above 0 are needed")
        return found

    def only(self, columns: list[int]) -> Normalization:
        """Return the same for columns in another order."""
        mean, std = (
            numbers if numbers is None or len(numbers) == 1 else tuple(numbers[column] for column in columns)
            for numbers in (self.mean, self.std)
        )
        return Normalization(mean, std)


def _numbers_of(option: str, text: str | None, shape: tuple[int, ...]) -> tuple[float, ...] | None:
    if text is None:
        return None
    written = _KNOWN.get(text.lower(), {option: text})[option].split(",")
    numbers = [number for number in map(number_of, written) if number is not None and np.isfinite(number)]
    if len(numbers) < len(written):
        raise BadInput(
            f"{option} is {text!r}; a finite number, some with commas between (1,2,3), or imagenet, is needed"
        )
    if len(numbers) not in (1, shape[0]):
        what = "columns" if len(shape) == 1 else "channels"
        raise BadInput(
            f"{option} has {len(numbers)} numbers, but a row has {shape[0]} {what}; as many are needed, or one"
        )
    return tuple(numbers)


def players_of_file(
    file: Path, names: tuple[str, ...] | None, shape: tuple[int, ...], limit: int
) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Return the player of every entry, and the players' names (None for images and other arrays).

    A JSON file has lists of columns by the name of their player; a NumPy file has player numbers in the shape of a row.
    The file may take `limit` bytes.
    """
    if file.suffix.lower() == ".json":
        if names is None:
            raise BadInput(
                f"--players: {file} names columns, but the data has none; give player numbers as a .npy file"
            )
        found = _json(file, limit)
        return _players(file, found, names), tuple(found)
    mask = _numbers(file, shape, limit)
    return mask, None if names is None else tuple(f"group{i}" for i in range(mask.max() + 1))


def check_player_names(names: tuple[str, ...] | None) -> None:
    """Refuse players whose columns would be taken for others of the output."""
    for name in names or ():
        if name in RESERVED or name.startswith(_PREFIXES):
            raise BadInput(f"{name!r} is the name of a column of the output: {_HINTS.get(name, 'choose another')}")


def absent_values(
    options: Options, source: Source, like: dict[str, Source], dtype: str, mean: NDArray[np.float64]
) -> dict[str, NDArray[Any]]:
    """Return the `baselines` or the `background` for an `Explainer`; `mean` is that of the data. The files that options
    name are open already."""
    baselines = options.baselines or "zero"

    def read(name: str) -> NDArray[Any]:
        return read_all(like[name], options.files()[name], dtype, f"--{name}", options.limit)

    if "background" in like:
        rows = read("background")
        if baselines == "mean":
            return {"baselines": _typed(rows.mean(0, dtype=np.float64), dtype)}
        return {"background": rows}
    if baselines == "mean":
        return {"baselines": _typed(mean, dtype)}
    if baselines == "zero":
        return {}
    number = number_of(baselines)
    if number is None:
        rows = read("baselines")
        if len(rows) != 1:
            raise BadInput(
                f"--baselines: {baselines} has {len(rows)} rows, one is needed; --background averages over many"
            )
        return {"baselines": rows[0]}
    if not np.isfinite(number):
        raise BadInput(f"--baselines is {baselines}; a finite number is needed")
    return {"baselines": _typed(np.full(source.shape, number), dtype)}


def absent_record(
    options: Options, given: dict[str, NDArray[Any]], warning: str | None, *, labelled: bool = False
) -> AbsentInputs:
    """Return what an absent input was, for who reads the output: the numbers if they are few, and no places of
    labels."""
    (kind, values), *_ = [*given.items(), ("baselines", None)]
    background = options.background and options.background.name
    said = {"background": background, "baselines": options.baselines or (None if background else "zero")}
    about: dict[str, Any] = {"options": {name: value for name, value in said.items() if value}, "warning": warning}
    if values is None:
        return AbsentInputs(kind, value=0, **about)
    if values.size and (values == values.flat[0]).all() and not labelled:
        return AbsentInputs(kind, shape=values.shape, value=values.flat[0].item(), **about)
    if values.size <= _FEW and not labelled:
        return AbsentInputs(kind, shape=values.shape, values=values.tolist(), **about)
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()
    return AbsentInputs(kind, shape=values.shape, dtype=str(values.dtype), sha256=digest, **about)


def _typed(values: NDArray[np.float64], dtype: str) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    if cast.dtype.kind != "f" and (cast != values).any():
        raise BadInput("--baselines must be whole numbers, as the model's inputs are")
    if not np.isfinite(cast).all():
        raise BadInput(f"--baselines is {values.flat[np.argmin(np.isfinite(cast))]:g}, which is not finite in {dtype}")
    return cast


def _json(file: Path, limit: int) -> dict[str, list[str]]:
    """Return lists of names by the name of their player."""
    try:
        check_file(file)
        check_unpacked(file, "the file", file.stat().st_size, limit)
        found = json.loads(file.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except BadInput as error:
        raise BadInput(f"--players: {error}") from error
    except OSError as error:
        raise BadInput(f"--players: {file}: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise BadInput(f"--players: {file} is not JSON ({error})") from error
    except RecursionError as error:
        raise BadInput(f"--players: {file} is nested too deeply") from error
    except ValueError as error:  # a name twice, or bytes that are not UTF-8
        raise BadInput(f"--players: {file} cannot be used: {line_of(error)}") from error
    lists = isinstance(found, dict) and all(isinstance(group, list) for group in found.values())
    if not found or not lists:
        raise BadInput(f'--players: {file} must look like {{"name of a player": ["a column", "another"], …}}')
    for name, group in found.items():
        if not is_utf8(name):
            raise BadInput(f"--players: {file}: the name {line_of(repr(name))} cannot be written in UTF-8")
        if not group:
            raise BadInput(f"--players: {file}: player {name!r} is empty; leave it out, or list its inputs")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("two players have the same name")
    return dict(pairs)


def _players(file: Path, found: dict[str, list[str]], names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the number of each input's player."""
    known, players = set(names), {}
    for number, group in enumerate(found.values()):
        for name in group:
            if not isinstance(name, str) or name not in known:
                raise BadInput(f"--players: {file} lists {line_of(repr(name))}, which is not an input")
            if name in players:
                raise BadInput(f"--players: {file}: input {name!r} is listed twice; each input belongs to one player")
            players[name] = number
    for name in names:
        if name not in players:
            raise BadInput(f"--players: {file}: input {name!r} is of no player; each input belongs to one player")
    return np.array([players[name] for name in names])


def _numbers(file: Path, shape: tuple[int, ...], limit: int) -> NDArray[np.int64]:
    try:
        loaded = load(file, limit)
    except BadInput as error:
        raise BadInput(f"--players: {error}") from error
    if loaded.dtype.kind not in "iu":
        raise BadInput(f"--players: {file} has dtype {loaded.dtype}; player numbers must be integers")
    try:
        mask = np.broadcast_to(loaded, shape)
    except ValueError as error:
        raise BadInput(
            f"--players: {file} has shape {loaded.shape}, which does not fit rows of shape {shape}"
        ) from error
    used = np.unique(mask).tolist()  # in their order
    wrong = next((i for i, number in enumerate(used) if number != i), None)
    if wrong is not None:
        what = f"{used[0]} is below 0" if used[0] < 0 else f"there is no player {wrong}"
        raise BadInput(f"--players: {file} must number the players 0, 1, … {used[-1]}, but {what}")
    return mask.astype(np.int64)
