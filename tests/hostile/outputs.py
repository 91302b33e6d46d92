"""Outputs of `dasp explain` that somebody has changed: valid ones of every kind, a table of what is changed in them and
what `dasp report` answers, and changes at random for the fuzzer.

Everything in such a file is somebody's word: types, sizes, names, numbers and the record. The page is written, or the
answer is one line and exit code 2.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
from damaged_files import changed_tree

from dasp.jobs.output import write
from dasp.jobs.record import AbsentInputs, JobRecord, JobResult, SkippedRows, Software

ROWS = 6
KINDS = ("table", "csv", "groups", "images", "blocks", "superpixels", "series", "sequence", "pairs", "texts")


@dataclass
class Output:
    """An output in pieces that can be changed: columns in their order, metadata, and how it is written."""

    kind: str
    columns: list[tuple[str, Any]]
    metadata: dict[str, str]  # of a CSV file, what is beside it, by its keys
    options: dict[str, Any] = field(default_factory=dict)  # of the writer

    def copy(self) -> Output:
        """The same, to be changed."""
        return Output(self.kind, list(self.columns), dict(self.metadata), dict(self.options))

    def column(self, name: str) -> Any:
        """A column by its name."""
        return dict(self.columns)[name]

    def set(self, name: str, values: Any) -> None:
        """Put other values in the place of a column's, as many as there are rows."""
        rows = len(self.columns[0][1])
        if len(values) != rows:
            large = values.nbytes > 2**20  # which is not made often, but said often
            values = (values.dictionary_encode() if large else values).take(
                pa.array([i % len(values) for i in range(rows)], pa.int64())
            )
        self.columns = [(own, values if own == name else old) for own, old in self.columns]

    def told(self, key: str) -> Any:
        """A part of the metadata."""
        return json.loads(self.metadata[key])

    def tell(self, key: str, content: Any) -> None:
        """Say something else in the metadata."""
        self.metadata[key] = content if isinstance(content, str) else json.dumps(content)

    def write(self, folder: Path, name: str = "out") -> Path:
        """Write it, and return the file."""
        file = folder / f"{name}.{'csv' if self.kind == 'csv' else 'parquet'}"
        table = pa.Table.from_arrays([values for _, values in self.columns], names=[own for own, _ in self.columns])
        if self.kind != "csv":
            layout = dict(self.options)
            groups = layout.pop("row_group_size", None)
            with pq.ParquetWriter(file, table.schema, **layout) as writer:
                writer.write_table(table, groups)
                writer.add_key_value_metadata(self.metadata)
            return file
        pv.write_csv(table, file)
        beside = {key: json.loads(text) for key, text in self.metadata.items()}
        if "sha256" in beside:  # whoever changes the rows can do the sum again
            beside["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
        Path(f"{file}.json").write_text(json.dumps(beside))
        return file


def valid(kind: str) -> Output:
    """An output as `dasp explain` writes it."""
    return _valid(kind).copy()


@cache
def _valid(kind: str) -> Output:
    numbers = np.random.default_rng(0)
    floats = lambda *shape: numbers.normal(size=shape).astype(np.float32)
    lists = lambda values: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    entries, players, about = 4, 4, dict[str, str]()
    head: dict[str, Any] = {
        "id": pa.array([f"row {i}" for i in range(ROWS)]), "target": pa.array([0, 1] * (ROWS // 2), pa.int32()),
        "prediction": pa.array(floats(ROWS)), "base_value": pa.array(floats(ROWS)),
    }  # fmt: skip
    if kind in ("images", "blocks", "superpixels"):
        entries, shape = 16, [1, 4, 4]
        about["data shape"] = json.dumps(shape)
        players = {"images": 16, "blocks": 4, "superpixels": 16}[kind]
        if kind == "blocks":
            about["players"] = json.dumps(np.arange(4).reshape(2, 2).repeat(2, 0).repeat(2, 1).ravel().tolist())
        if kind == "images":
            about["shape"] = json.dumps(shape)
    elif kind in ("series", "sequence"):
        entries, players = 12 if kind == "series" else 24, 3 if kind == "series" else 6
        about["data shape"] = "[2, 6]" if kind == "series" else "[4, 6]"
        along = np.repeat(np.arange(3), 2) if kind == "series" else np.arange(6)
        about["players"] = json.dumps(np.tile(along, 2 if kind == "series" else 4).tolist())
    elif kind == "groups":
        players, about = 2, {"players": "[0, 0, 1, 1]"}
    data: Any = numbers.normal(size=(ROWS, entries))
    if kind == "sequence":
        data = np.eye(4)[numbers.integers(0, 4, (ROWS, 6))].transpose(0, 2, 1).reshape(ROWS, 24)
    values, std = floats(ROWS, players), np.abs(floats(ROWS, players))
    if kind == "texts":
        pieces = [["A ", "good ", "film"], ["the lazy dog"]] * (ROWS // 2)
        part = lambda: [numbers.normal(size=len(row)).tolist() for row in pieces]
        own = {"pieces": pa.array(pieces), "values": pa.array(part())}
        own["error_std"] = pa.array([np.abs(row).tolist() for row in part()])
        behind: dict[str, Any] = {}
    elif kind in ("table", "csv", "groups", "pairs"):
        names = ["a", "b", "c", "d"][:players]
        own = {name: pa.array(values[:, i]) for i, name in enumerate(names)}
        own |= {f"error_std:{name}": pa.array(std[:, i]) for i, name in enumerate(names)}
        behind = {f"data:{name}": pa.array(data[:, i]) for i, name in enumerate("abcd")}
    else:
        own = {"values": lists(values), "error_std": lists(std)}
        behind = {"data": lists(data)}
    if kind == "superpixels":
        behind["players"] = lists(np.tile(np.repeat(np.arange(4, dtype=np.int32), 4), (ROWS, 1)))
    if kind == "pairs":
        behind |= {name: lists(np.abs(floats(ROWS, 6))) for name in ("interactions", "interactions_std")}
    tail = {
        "gap": pa.array(floats(ROWS) / 100), "method": pa.array(["bayesian_shapley"] * ROWS),
        "evaluations": pa.array(np.full(ROWS, 64)), "missed": pa.array([False] * ROWS),
    }  # fmt: skip
    columns = {**head, **own, **tail, **behind}
    record = JobRecord(
        {"seed": 0, "tolerance": 0.1, "target": "predicted", "baselines": "zero"}, {"data": "0" * 64},
        Software("0", "0"), "f" * 64, "e" * 64, SkippedRows(1, (3,)),
        AbsentInputs("baselines", {"baselines": "zero"}, (entries,), 0.0), {"max_evaluations": 64}, "a reason",
    )  # fmt: skip
    result = JobResult("small:build", "rows.csv", 2, ("no", "yes"))
    stream, table = io.BytesIO(), pa.table(columns, metadata=about or None)
    written = write(iter([table]), stream, record, Path(f"out.{'csv' if kind == 'csv' else 'parquet'}"), result)
    if kind == "csv":
        metadata = {key: json.dumps(told) for key, told in json.loads(written.beside).items()}
    else:
        found = pq.ParquetFile(io.BytesIO(stream.getvalue())).metadata.metadata
        metadata = {key.decode(): told.decode() for key, told in found.items() if key != b"ARROW:schema"}
    return Output(kind, list(columns.items()), metadata)


# Changes at random.

HOSTILE: list[Callable[[], Any]] = [  # columns of as many rows
    lambda: pa.array([1e200] * ROWS),
    lambda: pa.array([-1e300, 1e300] * (ROWS // 2)),
    lambda: pa.array([np.nan] * ROWS),
    lambda: pa.array([np.inf, -np.inf] * (ROWS // 2)),
    lambda: pa.array([5e-324, -5e-324] * (ROWS // 2)),
    lambda: pa.array([-1.0] * ROWS),
    lambda: pa.array([3e38] * ROWS, pa.float32()),
    lambda: pa.array(np.full(ROWS, 6e4, np.float16)),
    lambda: pa.array([-1] * ROWS),
    lambda: pa.array([10**9] * ROWS),
    lambda: pa.array([2**62] * ROWS),
    lambda: pa.array([2**64 - 1] * ROWS, pa.uint64()),
    lambda: pa.array([0] * ROWS, pa.int8()),
    lambda: pa.array([True] * ROWS),
    lambda: pa.nulls(ROWS),
    lambda: pa.nulls(ROWS, pa.float32()),
    lambda: pa.nulls(ROWS, pa.string()),
    lambda: pa.array([None, 1.0] * (ROWS // 2)),
    lambda: pa.array(["x" * 2**21] * ROWS),
    lambda: pa.array(["</script>\0\u202e\ud7ff"] * ROWS),
    lambda: pa.array([b"\xff\xfe"] * ROWS),
    lambda: pa.array([""] * ROWS),
    lambda: pa.array(["exact_shapley"] * ROWS).dictionary_encode(),
    lambda: pa.array([Decimal("1.5")] * ROWS),
    lambda: pa.array([2**62] * ROWS, pa.timestamp("s")),
    lambda: pa.array([0] * ROWS, pa.timestamp("us", "Nowhere/Land")),
    lambda: pa.array([0] * ROWS, pa.date32()),
    lambda: pa.array([-(2**62)] * ROWS, pa.duration("s")),
    lambda: pa.array([[1.0, 2.0]] * ROWS),
    lambda: pa.array([[]] * ROWS, pa.list_(pa.float64())),
    lambda: pa.array([[None, 1.0]] * ROWS),
    lambda: pa.array([[[1.0]]] * ROWS),
    lambda: pa.array([["a", None]] * ROWS),
    lambda: pa.array([["a", "b", "c"]] * ROWS),
    lambda: pa.array([{"a": 1, "b": {"c": 2}}] * ROWS),
    lambda: pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
    lambda: pa.array([[1.0] * 4] * ROWS, pa.list_(pa.float32(), 4)),
    lambda: pa.array([None, [1.0] * 6] * (ROWS // 2), pa.list_(pa.float32(), 6)),
    lambda: pa.array([[1e200] * 16] * ROWS, pa.list_(pa.float64(), 16)),
    lambda: pa.array([[-1] * 16] * ROWS, pa.list_(pa.int32(), 16)),
    lambda: pa.array([[10**9] * 16] * ROWS, pa.list_(pa.int32(), 16)),
    lambda: pa.array([[2**31 - 1, *range(15)]] * ROWS, pa.list_(pa.int32(), 16)),
]
WORDS = [
    "", "[", "[" * 10**5, "{}", "null", "[0, 1000000000]", "[1000000000]", "[-1, 4, 4]", "[1e400]", "[0.5]", "[NaN]",
    "[true]",
    "[1, 0, 16]", "[2147483648, 2147483648]", "[1, 4, 4]", "[16]", "[4, 4]", "[[1], [4]]", '["a"]', "9" * 5000,
    "x" * 10**6,
    "[" + "0," * 10**5 + "0]", "1" * 400, "\ufffd",
]  # fmt: skip
NAMES = [
    "id", "values", "error_std", "pieces", "players", "data", "data:a", "gap", "interactions", "interactions_std",
    "method",
    "error_std:a", "error_std:", "", "=1+1", "\0", "x" * 70_000, "evaluations", "missed", "base_value", "prediction",
    "a",
]  # fmt: skip


def changed(output: Output, chance: random.Random) -> Output:
    """An output with a few changes at random."""
    found = output.copy()
    for _ in range(min(chance.choice((1, 1, 1, 2, 3, 5)), len(found.columns) - 1)):
        chance.choice(_CHANGES)(found, chance)
    return found


def _other_values(output: Output, chance: random.Random) -> None:
    if output.columns:
        output.set(chance.choice(output.columns)[0], chance.choice(HOSTILE)())


def _one_entry(output: Output, chance: random.Random) -> None:
    """Another number in one row, of the same type."""
    name, values = chance.choice(output.columns)
    if values.nbytes > 2**20 or pa.types.is_dictionary(values.type):
        return
    try:
        told = values.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError):  # times that Python does not have
        return
    if not told:
        return
    row = chance.randrange(len(told))
    number: Any = chance.choice((None, 1e200, -1e38, np.nan, np.inf, -1, 0, 7, 2**31 - 1, 1e-320, "x", [], [0.5]))
    told[row] = [number, *told[row][1:]] if isinstance(told[row], list) and told[row] else number
    try:
        output.set(name, pa.array(told, values.type))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        _other_values(output, chance)


def _left_out(output: Output, chance: random.Random) -> None:
    del output.columns[chance.randrange(len(output.columns))]


def _twice(output: Output, chance: random.Random) -> None:
    name, values = chance.choice(output.columns)
    output.columns.insert(chance.randrange(len(output.columns)), (chance.choice((name, *NAMES)), values))


def _renamed(output: Output, chance: random.Random) -> None:
    place = chance.randrange(len(output.columns))
    output.columns[place] = (chance.choice(NAMES), output.columns[place][1])


def _moved(output: Output, chance: random.Random) -> None:
    output.columns.insert(
        chance.randrange(len(output.columns)), output.columns.pop(chance.randrange(len(output.columns)))
    )


def _rows(output: Output, chance: random.Random) -> None:
    count, before = chance.choice((0, 1, 2, 1000)), len(output.columns[0][1])
    places = pa.array([i % before for i in range(count if before else 0)], pa.int64())
    output.columns = [(name, values.take(places)) for name, values in output.columns]


def _words(output: Output, chance: random.Random) -> None:
    keys = [*output.metadata, "shape", "data shape", "players", "about"]
    text = chance.choice(WORDS)
    if output.kind == "csv":
        text = json.dumps(chance.choice((text, [text], {"shape": text, "players": text}, -1, 10**9, None, True)))
    output.metadata[chance.choice(keys)] = text


def _tree(output: Output, chance: random.Random) -> None:
    """Another value somewhere in the record or the result."""
    keys = [key for key, text in output.metadata.items() if text.startswith(("{", "["))]
    if keys:
        key = chance.choice(keys)
        output.metadata[key] = changed_tree(output.metadata[key].encode(), chance, "/etc/passwd").decode()


def _forgotten(output: Output, chance: random.Random) -> None:
    if output.metadata:
        del output.metadata[chance.choice(list(output.metadata))]


def _layout(output: Output, chance: random.Random) -> None:
    output.options = chance.choice((
        {"store_schema": False}, {"row_group_size": 1}, {"data_page_version": "2.0"}, {"use_dictionary": False},
        {"compression": "none"}, {"compression": "zstd"}, {"write_page_index": True}, {"version": "1.0"},
    ))  # fmt: skip


_CHANGES = (
    _other_values, _other_values, _other_values, _one_entry, _one_entry, _left_out, _twice, _renamed, _moved, _rows,
    _words, _words, _tree, _tree, _tree, _forgotten, _layout,
)  # fmt: skip
