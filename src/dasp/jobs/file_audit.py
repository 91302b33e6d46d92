"""`dasp audit`: the values in a file, audited: an output of `dasp explain`, or anybody's attributions.

An output says itself what it is of: the record in it has the options, and the names and checksums of all files, which
are looked for beside it and here. Whether they are the same is checked, as are the model's outputs. Of anybody's file,
which has a column for each player, the user names model and data. Rows are put beside their values by their ids; the
first of several with the same id is the first in the other file, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dasp.errors import BadInput, UnexplainedRows, line_of
from dasp.evaluation.audit import Audit, audited
from dasp.games.request import Request
from dasp.jobs.identity import FilesRead
from dasp.jobs.options import AUDIT_OPTIONS, Options, name_of
from dasp.jobs.output import FORMATS, StoredOutput, format_of
from dasp.jobs.plan import Opened, opened, waiting
from dasp.jobs.preflight import Preflight, preflight
from dasp.jobs.reading.chunks import Reader, open_data
from dasp.jobs.reading.source import Source, check_file, floats
from dasp.jobs.reading.tables import TABLES, read_header
from dasp.jobs.record import JobRecord
from dasp.jobs.worker import Worker

__all__ = ["FileAudit", "audit_file"]

_FREE = ("weights", "trust", "max_unpacked", "seed", "device", "batch_size", "show_progress")  # beside a record, too
_CLOSE = 1e-3  # of the largest output: what the model's may differ from the recorded ones, on another machine, say
_TOGETHER = 2**10  # rows
_SHOWN = 3  # players that are most off


@dataclass(frozen=True)
class FileAudit:
    """The audit of some rows of a file."""

    file: Path
    rows: int  # in the file
    ids: list[str]  # of the rows that were audited
    names: list[str]  # of the players
    audit: Audit

    def lines(self) -> Iterator[str]:
        """Yield what a terminal shows."""
        first, *others = self.audit.numbers()
        yield f"{self.file}: {self.audit.verdict}"
        yield f"{first}, of {self.rows:,} in the file" if len(self.ids) < self.rows else first
        yield from others
        worst = sorted(
            ((found, row) for row in range(len(self.ids)) for found in self.audit.worst(row, 1)),
            key=lambda each: -abs(each[0].attribution - each[0].value),
        )
        yield "most off:"
        for found, row in worst[:_SHOWN]:
            said = str(found).partition(": ")[2]
            yield f"  {self.names[found.player]}, in the row of id {self.ids[row]}: {said}"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {"file": self.file.name, "rows_in_file": self.rows, "ids": self.ids, **self.audit.to_json()}


@dataclass(frozen=True)
class _Values:
    """Some rows of the file: their keys (id, and how often it was there before), values, and what is known of them."""

    keys: list[tuple[str, int]]
    values: NDArray[Any]  # (rows, players) or (rows, entries)
    target: list[int] | None = None
    versus: list[int] | None = None
    prediction: NDArray[Any] | None = None
    base_values: NDArray[Any] | None = None


def audit_file(file: Path, given: dict[str, Any], evaluations: int, most: int) -> FileAudit:
    """Audit at most so many rows of a file, drawn by the seed, with so many evaluations each. `given` are the options
    of the user by their names, without those that were not given."""
    check_file(file)
    stored = _stored(file)
    options = _options(file, given, stored)
    checked = preflight(options)
    found, files = opened(checked, lambda _: None)
    if stored is not None:
        _check_same(file, stored, files, found)
    if found.task.names is None and found.task.mask is not None:
        names = [f"player {i}" for i in range(int(found.task.mask.max()) + 1)]
    else:
        names = list(found.task.names or [])
    rows, values = _read_values(file, stored, checked, found, options.seed, most)
    x, ids = _rows_of_data(file, checked, found, values)
    worker = Worker(found.task, found.model)
    with waiting(options, "auditing"):
        audit = _audited(file, worker, found, x, values, options, evaluations)
    players = len(audit._rows[0].given)
    return FileAudit(file, rows, ids, names or [f"entry {i}" for i in range(players)], audit)


def _stored(file: Path) -> StoredOutput | None:
    """Return an output of `dasp explain`; None for a file without a record, which is anybody's."""
    if file.suffix.lower() not in FORMATS:
        return None
    try:
        found = format_of(file).read(file)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise BadInput(f"{file}: cannot be read: {line_of(error)}") from error
    if isinstance(found.record, JobRecord):
        return found
    if found.record.reason.startswith("has a record"):  # of another version
        raise BadInput(f"{file}: {found.record.reason}")
    return None


def _options(file: Path, given: dict[str, Any], stored: StoredOutput | None) -> Options:
    """Return the options by which the file was made."""
    output = file.with_suffix(".parquet")  # which nothing is written to
    if stored is None:
        if missing := [f"--{name}" for name in ("model", "data") if name not in given]:
            raise BadInput(
                f"{file}: has no record of dasp explain, so {' and '.join(missing)} must say what the values are of"
            )
        return Options(output=output, **given)
    record, result = stored.record, stored.result
    assert isinstance(record, JobRecord)
    if record.options.get("text") is not None:
        raise BadInput(f"{file}: is of texts, and audits are of rows of numbers")
    known = {name: record.options[name] for name in AUDIT_OPTIONS if name in record.options and name not in _FREE}
    for name, value in given.items():
        if name not in (*_FREE, "model", "data", *record.files):
            raise BadInput(f"{file}: its record says what {name_of(name)} was: leave it out, not {value!r}")
    names = {"model": result.model, "data": result.data, **result.files}
    for name in ("model", *record.files):
        if name not in given:
            known[name] = _found(file, name, names.get(name))
    known["on_bad_row"] = "skip"  # those that were left out are in no row of the file
    return Options(output=output, **{**known, **given})


def _found(file: Path, name: str, told: str | None) -> Any:
    """Return where a file is that was read when the values were made: beside them, or here."""
    option = f"--{name.replace('_', '-')}"
    if not told:
        raise BadInput(f"{file}: does not say which file {option} was: name it by {option}")
    if name == "model" and ":" in told:  # a factory
        return told
    for folder in (file.parent, Path()):
        if (folder / told).exists():
            return str(folder / told) if name in ("model", "baselines", "players") else folder / told
    raise BadInput(f"{file}: was made with {told}, which is neither beside it nor here: name it by {option}")


def _check_same(file: Path, stored: StoredOutput, files: FilesRead, found: Opened) -> None:
    """Refuse other files than those that the values were made of."""
    record = stored.record
    assert isinstance(record, JobRecord)
    changed = [name for name, own in record.files.items() if name != "model" and files.checksums.get(name) != own]
    if changed:
        raise BadInput(
            f"{file}: was made of another file than the one that {name_of(changed[0])} names: its contents have changed"
        )
    if record.parameters != found.task.parameters:
        raise BadInput(f"{file}: was made of a model with other parameters than {found.task.model} has")


def _read_values(
    file: Path, stored: StoredOutput | None, checked: Preflight, found: Opened, seed: int, most: int
) -> tuple[int, _Values]:
    """Return the number of rows in the file, and some of them."""
    try:
        rows, batches = _output_rows(stored, found) if stored else _anybodys_rows(file, checked, found)
        chosen = np.sort(np.random.default_rng(seed).permutation(rows)[:most])
        parts, seen, start = [], Counter[str](), 0
        for part in batches:
            keys = _numbered_keys(part.keys, seen)
            here = chosen[(chosen >= start) & (chosen < start + len(keys))] - start
            start += len(keys)
            parts.append(_some(part, keys, here))
    except BadInput:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, TypeError) as error:
        raise BadInput(f"{file}: cannot be read: {line_of(error)}") from error
    if start != rows or not rows:
        raise BadInput(f"{file}: has {start:,} rows{f' instead of {rows:,}' if rows else ''}")
    values = _joined(parts)
    if not np.isfinite(values.values).all():
        bad = int(np.argmin(np.isfinite(values.values).all(1)))
        raise BadInput(f"{file}: a value is missing or not finite in the row of id {values.keys[bad][0]}")
    return rows, values


def _numbered_keys(keys: list[tuple[str, int]], seen: Counter[str]) -> list[tuple[str, int]]:
    """Return ids with the number of times that they were there before."""
    numbered = []
    for id_, _ in keys:
        numbered.append((id_, seen[id_]))
        seen[id_] += 1
    return numbered


def _some(part: _Values, keys: list[tuple[str, int]], here: NDArray[Any]) -> _Values:
    def of(column: Any) -> Any:
        return None if column is None else [column[i] for i in here] if isinstance(column, list) else column[here]

    return _Values(
        [keys[i] for i in here], part.values[here], of(part.target), of(part.versus), of(part.prediction),
        of(part.base_values),
    )  # fmt: skip


def _joined(parts: list[_Values]) -> _Values:
    def of(columns: list[Any]) -> Any:
        if columns[0] is None:
            return None
        return list(chain.from_iterable(columns)) if isinstance(columns[0], list) else np.concatenate(columns)

    names = ("keys", "values", "target", "versus", "prediction", "base_values")
    return _Values(*(of([getattr(part, name) for part in parts]) for name in names))


def _output_rows(stored: StoredOutput, found: Opened) -> tuple[int, Iterator[_Values]]:
    """Return the number of rows of an output, and all of them, some at a time."""
    names, task = stored.schema.names, found.task
    values = ["values"] if task.names is None else list(task.names)
    columns = ["id", "target", "prediction", "base_value", *(["versus"] if "versus" in names else []), *values]
    if lacking := [name for name in columns if name not in names]:
        raise ValueError(f"has no column {lacking[0]!r}")

    def numbers(batch: Any, name: str) -> NDArray[Any]:
        return floats(pa.chunked_array([batch[name]]))

    def whole(batch: Any, name: str) -> list[int]:
        return [int(each) for each in batch[name].to_pylist()]

    def read() -> Iterator[_Values]:
        for batch in stored.batches(columns):
            if task.names is None:
                flat = floats(pa.chunked_array([batch["values"].flatten()]))
                table = flat.reshape(len(batch["values"]), -1)
            else:
                table = np.stack([numbers(batch, name) for name in values], 1)
            yield _Values(
                [(str(each), 0) for each in batch["id"].to_pylist()], table, whole(batch, "target"),
                whole(batch, "versus") if "versus" in columns else None, numbers(batch, "prediction"),
                numbers(batch, "base_value"),
            )  # fmt: skip

    return stored.rows, read()


def _anybodys_rows(file: Path, checked: Preflight, found: Opened) -> tuple[int, Iterator[_Values]]:
    """Return the number of rows of a file that anybody has written, and all of them, some at a time."""
    limit, id_ = checked.options.limit, checked.options.id
    table = file.suffix.lower() in TABLES
    if table and found.task.names is None:
        raise BadInput(f"{file}: has columns, and players here have no names: write values as a .npy or .npz file")
    if table:
        header = read_header(file, limit)
        id_ = id_ if id_ in header.types else None
        source: Source = open_data(file, list(found.task.names or ()), None, id_, limit=limit, header=header)
    else:
        source, id_ = open_data(file, limit=limit), None
        shape, players = checked.source.shape, _players(checked, found)
        if source.shape not in (shape, (players,)):
            raise BadInput(
                f"{file}: rows have the shape {source.shape}; {shape} is needed, that of the data, or {(players,)}, "
                "a number for each player"
            )
    if id_ is None and checked.options.id is not None:
        raise BadInput(f"{file}: has no column {checked.options.id!r} (--id), by which its rows are found in the data")
    rows = sum(len(raw.values) for raw in source.chunks(_TOGETHER))
    if id_ is None and rows != found.survey.rows:
        raise BadInput(
            f"{file}: has {rows:,} rows, and {checked.options.data} has {found.survey.rows:,}: give both a column of "
            "ids, and --id"
        )

    def read() -> Iterator[_Values]:
        for raw in source.chunks(_TOGETHER):
            start = raw.number * _TOGETHER
            ids = range(start, start + len(raw.values)) if raw.ids is None else raw.ids.to_pylist()
            yield _Values([(str(each), 0) for each in ids], raw.values.reshape(len(raw.values), -1))

    return rows, read()


def _players(checked: Preflight, found: Opened) -> int:
    mask = found.task.mask
    return int(np.prod(checked.source.shape)) if mask is None else int(mask.max()) + 1


def _rows_of_data(
    file: Path, checked: Preflight, found: Opened, values: _Values
) -> tuple[tuple[Tensor, NDArray[Any], list[int] | None], list[str]]:
    """Return the rows of the data that values are of, in the same order: as the model takes them, as they are in the
    file, and their targets if they have some; and their ids."""
    places = {key: place for place, key in enumerate(values.keys)}
    rows: dict[int, tuple[Any, Any, int | None]] = {}
    seen = Counter[str]()
    reader = Reader(checked.source, _TOGETHER, found.dtype, found.survey.integer_ids, with_data=True)
    for chunk in reader.chunks():
        ids = [(str(each), 0) for each in chunk.ids.to_pylist()]
        assert chunk.data is not None
        for row, key in enumerate(_numbered_keys(ids, seen)):
            if key in places:
                target = None if chunk.targets is None else int(chunk.targets[row])
                rows[places[key]] = chunk.values[row], chunk.data[row], target
    if len(rows) < len(places):
        lost = values.keys[min(set(range(len(places))) - rows.keys())][0]
        raise BadInput(f"{file}: has values of the row of id {lost}, which {checked.options.data} has not")
    ordered = [rows[place] for place in range(len(places))]
    targets = None if ordered[0][2] is None else [target for *_, target in ordered if target is not None]
    stacked = torch.from_numpy(np.stack([each for each, *_ in ordered]))
    return (stacked, np.stack([data for _, data, _ in ordered]), targets), [id_ for id_, _ in values.keys]


@dataclass(frozen=True)
class _Stated:
    """Values and their base values, as an explanation has them."""

    values: Tensor
    base_values: NDArray[Any] | None


def _audited(
    file: Path, worker: Worker, found: Opened, rows: tuple[Tensor, NDArray[Any], list[int] | None], values: _Values,
    options: Options, evaluations: int,
) -> Audit:  # fmt: skip
    x, data, targets = rows
    if found.task.masks is not None:
        worker.use_players_of(data)
    try:
        request = worker.prepare(x, values.target or targets, values.versus)
        if values.prediction is not None:
            _check_predictions(file, request, values)
        stated = _Stated(_by_entry(values.values, found, request, x), values.base_values)
        whole = None if values.values.shape[1] == x[0].numel() else True  # columns of players are
        return audited(request, stated, evaluations, options.seed, options.batch_size, whole=whole)
    except BadInput:
        raise
    except (UnexplainedRows, ValueError, TypeError, RuntimeError, IndexError) as error:
        raise BadInput(f"{file}: cannot be audited: {line_of(error)}") from error


def _check_predictions(file: Path, request: Request, values: _Values) -> None:
    """Refuse a model that does not give what it gave when the values were made."""
    assert values.prediction is not None
    now = request.full.cpu().double().numpy()
    off = np.abs(now - values.prediction)
    scale = max(float(np.abs(values.prediction).max()), float(np.abs(now).max()))
    if not (off <= _CLOSE * scale).all():
        worst = int(np.argmax(np.nan_to_num(off, nan=np.inf)))
        raise BadInput(
            f"{file}: the model's output for the row of id {values.keys[worst][0]} is {now[worst]:.4g}, and was "
            f"{values.prediction[worst]:.4g} when it was explained: it is another model, or another row"
        )


def _by_entry(values: NDArray[Any], found: Opened, request: Request, x: Tensor) -> Tensor:
    """Return values with that of its player for every entry, in the shape of the rows."""
    table = torch.from_numpy(values)
    if found.task.mask is None or (values.shape[1] == x[0].numel() != int(found.task.mask.max()) + 1):
        return table.reshape(x.shape)
    masks = [game.masks[0].cpu() for game in request.games]
    return torch.stack([row[masks[0]] for row in table])
