"""The table of outputs that somebody has changed: their kind, what is changed, and what `dasp report` answers.

Each of them ends with the exit code 2 and one line on stderr, and no page is written. Those that have no answer (None)
are odd and are shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from outputs import ROWS, Output

Change = Callable[[Output], Any]


def values(name: str, entries: Any, kind: Any = None) -> Change:
    """Put others in the place of a column's values."""
    return lambda output: output.set(name, pa.array(entries, kind) if not isinstance(entries, pa.Array) else entries)


def each(name: str, entry: Any, kind: Any = None) -> Change:
    """Put the same in every row of a column."""
    return values(name, [entry] * ROWS, kind)


def without(*names: str) -> Change:
    """Leave columns out."""

    def change(output: Output) -> None:
        output.columns = [one for one in output.columns if one[0] not in names]

    return change


def renamed(**names: str) -> Change:
    """Give columns other names."""

    def change(output: Output) -> None:
        output.columns = [(names.get(name, name), own) for name, own in output.columns]

    return change


def besides(name: str, entries: Any, before: str = "gap") -> Change:
    """Insert a column."""

    def change(output: Output) -> None:
        place = [own for own, _ in output.columns].index(before)
        output.columns.insert(place, (name, pa.array(entries) if not isinstance(entries, pa.Array) else entries))

    return change


def said(key: str, text: Any) -> Change:
    """Say something else in the metadata."""
    return lambda output: output.tell(key, text)


def inside(key: str, **fields: Any) -> Change:
    """Say something else in a part of the metadata."""
    return lambda output: output.tell(key, {**output.told(key), **fields})


def within(key: str, part: str, **fields: Any) -> Change:
    """Say something else in a part of a part of the metadata."""
    return lambda output: output.tell(key, {**output.told(key), part: {**output.told(key)[part], **fields}})


def unsaid(key: str) -> Change:
    """Leave a part of the metadata out."""
    return lambda output: output.metadata.pop(key)


def written(**options: Any) -> Change:
    """Write it in another way."""
    return lambda output: output.options.update(options)


def rows(count: int) -> Change:
    """Have other rows."""

    def change(output: Output) -> None:
        places = pa.array([i % ROWS for i in range(count)], pa.int64())
        output.columns = [(name, own.take(places)) for name, own in output.columns]
        output.metadata.pop("dasp rows", None)

    return change


def lists(entry: list[Any], kind: Any) -> Any:
    """The same list of a fixed length in every row."""
    return pa.array([entry] * ROWS, pa.list_(kind, len(entry)))


_DEEP = "[" * 100_000
_DAMAGED = "is damaged or was not written by dasp explain"
_NO_NUMBERS = "is no list of whole numbers"
_STRANGE = "which dasp explain does not write there"
_FLOAT, _DOUBLE = pa.float32(), pa.float64()

TAMPERED: dict[str, tuple[str, Change, str | None]] = {
    # columns that are missing, twice, or elsewhere
    "no ids": ("table", without("id"), _DAMAGED),
    "no targets": ("table", without("target"), _DAMAGED),
    "no predictions": ("table", without("prediction"), _DAMAGED),
    "no base values": ("table", without("base_value"), _DAMAGED),
    "no gaps": ("table", without("gap"), _DAMAGED),
    "no methods": ("table", without("method"), _DAMAGED),
    "no values": ("table", without("a", "b", "c", "d"), "has standard deviations of other players"),
    "no values and no deviations": (
        "table", without(*"abcd", *(f"error_std:{name}" for name in "abcd")),
        "has no values of players"),
    "no values of images": ("images", without("values"), "has a column 'error_std' and no values"),
    "no values and no deviations of images": ("images", without("values", "error_std"), "has no values of players"),
    "no values and no deviations of superpixels": (
        "superpixels", without("values", "error_std"), "has no values of players"),
    "no values of a series": ("series", without("values"), "has a column 'error_std' and no values"),
    "no values and no deviations of a series": ("series", without("values", "error_std"), "has no values of players"),
    "no values and no deviations of a sequence": (
        "sequence", without("values", "error_std"), "has no values of players"),
    "no values of texts": ("texts", without("values"), "has a column 'error_std' and no values"),
    "no deviations of texts": ("texts", without("error_std"), "has other columns than outputs of texts have"),
    "no deviation of a player": ("table", without("error_std:b"), "standard deviations of other players"),
    "deviations without their player": ("table", without("b"), "standard deviations of other players"),
    "some data": ("table", without("data:b"), "has 3 columns of data for 4 inputs"),
    "interactions alone": ("pairs", without("interactions_std"), "has only one of the columns 'interactions'"),
    "deviations of interactions alone": ("pairs", without("interactions"), "has only one of the columns 'inter"),
    "players of their own of a table": (
        "table", besides("players", lists([0] * 4, pa.int32()), "data:a"), "players of its own for every row, but no"),
    "a column twice": ("table", besides("a", [1.0] * ROWS), _DAMAGED),
    "the ids twice": ("table", besides("id", ["x"] * ROWS), _DAMAGED),
    "players behind the gap": ("table", besides("z", [1.0] * ROWS, "method"), _STRANGE),
    "a gap before the values": ("table", lambda output: output.columns.insert(1, output.columns.pop(12)), _STRANGE),
    "values both ways": ("table", besides("values", lists([1.0] * 4, _FLOAT)), "has values both as lists and in"),
    "pieces of a table": ("table", besides("pieces", [["a"]] * ROWS), "has values both as lists and in"),
    "data of a text": ("texts", besides("data", lists([1.0], _FLOAT), "method"), "columns than outputs of texts have"),
    # types
    "values that are texts": ("table", each("a", "1.5"), f"column 'a' is of type string, {_STRANGE}"),
    "values that are whole": ("table", each("a", 1), f"column 'a' is of type int64, {_STRANGE}"),
    "values that are truths": ("table", each("a", True), f"column 'a' is of type bool, {_STRANGE}"),
    "values that are nothing": ("table", values("a", pa.nulls(ROWS)), f"column 'a' is of type null, {_STRANGE}"),
    "values that are lists": ("table", each("a", [1.0]), f"'a' is of type list<element: double>, {_STRANGE}"),
    "values that are records": ("table", each("a", {"b": {"c": 1}}), "'a' is of type struct<b: struct<c: int64>>"),
    "values that are dates": ("table", values("a", [0] * ROWS, pa.date32()), f"is of type date32[day], {_STRANGE}"),
    "a target that is text": ("table", each("target", "no"), f"'target' is of type string, {_STRANGE}"),
    "a target that is a fraction": ("table", each("target", 0.5), f"'target' is of type double, {_STRANGE}"),
    "a target that is a list": ("table", each("target", [0]), f"'target' is of type list<element: int64>, {_STRANGE}"),
    "predictions that are text": ("table", each("prediction", "1"), f"'prediction' is of type string, {_STRANGE}"),
    "methods that are numbers": ("table", each("method", 3), f"column 'method' is of type int64, {_STRANGE}"),
    "methods that are bytes": ("table", each("method", b"\xff\xfe"), f"'method' is of type binary, {_STRANGE}"),
    "evaluations that are fractions": ("table", each("evaluations", 0.5), f"is of type double, {_STRANGE}"),
    "missed that is a number": ("table", each("missed", 1), f"column 'missed' is of type int64, {_STRANGE}"),
    "ids that are lists": ("table", each("id", ["a"]), f"column 'id' is of type list<element: string>, {_STRANGE}"),
    "ids that are records": ("table", each("id", {"a": 1}), f"column 'id' is of type struct<a: int64>, {_STRANGE}"),
    "data that are texts": ("table", each("data:a", "x"), None),  # categories
    "data that are lists": ("table", each("data:a", [1.0]), f"'data:a' is of type list<element: double>, {_STRANGE}"),
    "pieces that are numbers": ("texts", each("pieces", [1, 2]), "'pieces' is of type list<element: int64>"),
    "pieces that are no lists": ("texts", each("pieces", "a b"), f"'pieces' is of type string, {_STRANGE}"),
    "values of images that are whole": ("images", values("values", lists([1] * 16, pa.int32())), _STRANGE),
    "values of images that are nested": ("images", each("values", [[1.0]] * 16), _STRANGE),
    # sizes
    "no rows": ("table", rows(0), _DAMAGED),
    "no rows of images": ("images", rows(0), _DAMAGED),
    "other rows than are declared": ("table", said("dasp rows", "7"), _DAMAGED),
    "a series of 300,000 players": ("series", lambda output: (
        output.tell("data shape", [1, 300_000]), output.tell("players", [*range(300_000)])
    ), "has 300,000 players in a row, and up to 262,144 of a series"),
    "images of fewer values": ("images", values("values", lists([1.0] * 15, _FLOAT)), "its rows need 16 entries"),
    "images of more data": ("images", values("data", lists([1.0] * 17, _DOUBLE)), "its rows need 16 entries"),
    "images of other deviations": ("images", values("error_std", lists([1.0] * 4, _FLOAT)), "rows need 16 entries"),
    "images in lists of any length": ("images", each("values", [1.0] * 16), "its rows need 16 entries"),
    "images written without their schema": ("images", written(store_schema=False), "its rows need 16 entries"),
    "blocks of more values": ("blocks", values("values", lists([1.0] * 16, _FLOAT)), "its rows need 4 entries"),
    "superpixels of fewer players": ("superpixels", values("players", lists([0] * 9, pa.int32())), "need 16 entries"),
    "interactions of other pairs": ("pairs", values("interactions", lists([1.0] * 7, _FLOAT)), "need 6 entries"),
    "texts of more values": (
        "texts", values("values", [[1.0] * 4] * ROWS), "has texts with other numbers of pieces than of values"),
    "texts of fewer deviations": (
        "texts", values("error_std", [[1.0]] * ROWS), "has texts with other numbers of pieces than of values"),
    "a shape of 10^9": ("images", said("data shape", "[1, 100000, 10000]"), "has rows of an impossible shape"),
    "a shape of 2^62": ("images", said("data shape", "[1, 2147483648, 2147483648]"), "of an impossible shape"),
    "a shape of nothing": ("images", said("data shape", "[1, 0, 16]"), "has rows of an impossible shape, [1, 0, 16]"),
    "a shape below 0": ("images", said("data shape", "[1, -4, -4]"), _NO_NUMBERS),
    "a shape of fractions": ("images", said("data shape", "[1, 4.5, 4]"), _NO_NUMBERS),
    "a shape of infinities": ("images", said("data shape", "[1e400]"), _NO_NUMBERS),
    "a shape of words": ("images", said("data shape", '["a", "b"]'), _NO_NUMBERS),
    "a shape that is no list": ("images", said("data shape", "16"), _NO_NUMBERS),
    "a shape that is nested": ("images", said("data shape", _DEEP), _NO_NUMBERS),
    "a shape of 400 digits": ("images", said("data shape", f"[{'9' * 400}]"), _NO_NUMBERS),
    "a shape of 5000 digits": ("images", said("data shape", f"[{'9' * 5000}]"), _NO_NUMBERS),
    "a shape of 100,000 dimensions": ("images", said("data shape", json.dumps([1] * 100_000)), "an impossible shape"),
    "a shape of another size": ("images", said("data shape", "[1, 4, 5]"), "its rows need 20 entries"),
    "players up to 10^9": ("groups", said("players", "[0, 0, 1, 1000000000]"), "numbers are not 0, 1, 2, …"),
    "players up to 10^9 of images": ("blocks", said("players", json.dumps([10**9] * 16)), "numbers are not 0, 1"),
    "players below 0": ("groups", said("players", "[0, 0, 1, -1]"), _NO_NUMBERS),
    "players of too few inputs": ("groups", said("players", "[0, 1]"), "has 4 columns of data for 2 inputs"),
    "players of too many groups": ("groups", said("players", "[0, 1, 2, 3]"), "has 2 columns of values for 4 players"),
    "players of too few pixels": ("blocks", said("players", "[0, 1, 2, 3]"), "players for 4 entries in rows of 16"),
    "players of nothing": ("groups", said("players", "[]"), "has players whose numbers are not 0, 1, 2, …"),
    "players that are nested": ("groups", said("players", "[[0, 0], [1, 1]]"), _NO_NUMBERS),
    "players that are no JSON": ("groups", said("players", "0 0 1 1"), _NO_NUMBERS),
    "players beyond 64 bits": ("groups", said("players", f"[0, 0, 1, {2**70}]"), _NO_NUMBERS),
    # numbers
    "values of 1e200": ("table", each("a", 1e200), "column 'a' has 1e+200, and numbers up to 1e+150 can be shown"),
    "values of -1e300": ("table", each("d", -1e300), "column 'd' has -1e+300, and numbers up to 1e+150"),
    "values of 1e200 of images": ("images", values("values", lists([1e200] * 16, _DOUBLE)), "'values' has 1e+200"),
    "values of 1e200 of texts": ("texts", values("values", [[1e200] * 3, [1.0]] * 3), "'values' has 1e+200"),
    "deviations of 1e200": ("table", each("error_std:a", 1e200), "column 'error_std:a' has 1e+200"),
    "predictions of 1e200": ("table", each("prediction", 1e200), "column 'prediction' has 1e+200"),
    "a base value of 1e200": ("table", each("base_value", -1e200), "column 'base_value' has -1e+200"),
    "gaps of 1e200": ("table", each("gap", 1e200), "column 'gap' has 1e+200, and numbers up to 1e+150"),
    "data of 1e308": ("table", each("data:a", 1e308), "column 'data:a' has 1e+308"),
    "interactions of 1e200": ("pairs", values("interactions", lists([1e200] * 6, _DOUBLE)), "'interactions' has 1e"),
    "deviations below 0": ("table", each("error_std:a", -0.5), "'error_std:a' has standard deviations that are"),
    "deviations below 0 of texts": (
        "texts", values("error_std", [[-1.0] * 3, [1.0]] * 3), "'error_std' has standard deviations that are"),
    "deviations below 0 of interactions": (
        "pairs", values("interactions_std", lists([-1.0] * 6, _FLOAT)), "'interactions_std' has standard deviations"),
    "deviations without end": ("table", each("error_std:a", float("inf"), _FLOAT), "that are below 0 or infinite"),
    "deviations without end of a series": (
        "series", values("error_std", lists([float("inf")] * 3, _FLOAT)), "deviations that are below 0 or infinite"),
    "deviations without end of texts": (
        "texts", values("error_std", [[float("inf")] * 3, [1.0]] * 3), "deviations that are below 0 or infinite"),
    "deviations without end of interactions": (
        "pairs", values("interactions_std", lists([float("inf")] * 6, _FLOAT)), "that are below 0 or infinite"),
    "targets below 0": ("table", each("target", -1), "column 'target' has numbers that it cannot have"),
    "targets beyond the outputs": ("table", each("target", 2), "column 'target' has numbers that it cannot have"),
    "targets of 2^62": ("table", each("target", 2**62), "column 'target' has numbers that it cannot have"),
    "targets that are missing": ("table", each("target", None, pa.int32()), "'target' has numbers that it cannot have"),
    "evaluations below 0": ("table", each("evaluations", -64), "column 'evaluations' has numbers that it cannot have"),
    "evaluations of 2^62": ("table", each("evaluations", 2**62), "'evaluations' has numbers that it cannot have"),
    "evaluations that are missing": ("table", each("evaluations", None, pa.int64()), "'evaluations' has numbers that"),
    "missed that is missing": ("table", each("missed", None, pa.bool_()), "column 'missed' has numbers that it"),
    "methods that are missing": ("table", each("method", None, pa.string()), "column 'method' has nothing in some"),
    "methods that nobody knows": ("table", each("method", "guess"), "there is no method 'guess'"),
    "methods of a megabyte": ("table", each("method", "x" * 2**20), "there is no method 'xxxxxxxxxxxxxxxxxxxx"),
    "pieces that are missing": ("texts", each("pieces", [None, "b", "c"]), "column 'pieces' has nothing in some rows"),
    "lists that are missing": ("texts", values("values", [None, [1.0]] * 3), "column 'values' has nothing in some"),
    "ids of 2 megabytes": ("table", each("id", "x" * 2**21), "column 'id' has a text of more than 1,048,576 bytes"),
    "pieces of 2 megabytes": ("texts", values("pieces", [["x" * 2**21, "b", "c"], ["d"]] * 3), "'pieces' has a text"),
    "ids beyond all times": ("table", values("id", [2**62] * ROWS, pa.timestamp("ms")), "cannot be read: "),
    "ids in no time zone": ("table", values("id", [0] * ROWS, pa.timestamp("us", "No/Where")), "cannot be read: "),
    # the record
    "no record": ("table", unsaid("dasp"), _DAMAGED),
    "an empty record": ("table", said("dasp", ""), "out.parquet: cannot be read: Expecting value"),
    "a record that is no JSON": ("table", said("dasp", "{"), "cannot be read: Expecting property name"),
    "a record that is a list": ("table", said("dasp", "[]"), _DAMAGED),
    "a record that is nested": ("table", said("dasp", _DEEP), "its metadata are nested too deeply"),
    "a record with a number of 5000 digits": ("table", said("dasp", "9" * 5000), "Exceeds the limit (4300 digits)"),
    "a record of version 9": ("table", inside("dasp", version=9), "has a record of version 9, and this version"),
    "a record of version 1.5": ("table", inside("dasp", version=1.5), _DAMAGED),
    "a record of version true": ("table", inside("dasp", version=True), _DAMAGED),
    "a record with more": ("table", inside("dasp", more=1), _DAMAGED),
    "a record with options in a list": ("table", inside("dasp", options=[]), _DAMAGED),
    "a record with an unknown option": ("table", within("dasp", "options", speed=3), _DAMAGED),
    "a record with a tolerance of text": ("table", within("dasp", "options", tolerance="0.1"), _DAMAGED),
    "a record with an infinite tolerance": ("table", within("dasp", "options", tolerance=float("inf")), _DAMAGED),
    "a record with a list for a target": ("table", within("dasp", "options", target=["a"]), _DAMAGED),
    "a record with an unknown file": ("table", within("dasp", "files", sound="0"), _DAMAGED),
    "a record with files of numbers": ("table", within("dasp", "files", data=3), _DAMAGED),
    "a record without software": ("table", inside("dasp", software=None), _DAMAGED),
    "a record with software of lists": ("table", within("dasp", "software", torch=["2"]), _DAMAGED),
    "a record with parameters of numbers": ("table", inside("dasp", parameters=7), _DAMAGED),
    "a record with skipped rows below 0": ("table", within("dasp", "skipped", number=-5), _DAMAGED),
    "a record with skipped rows of text": ("table", within("dasp", "skipped", first="abc"), _DAMAGED),
    "a record with skipped rows beyond 64 bits": ("table", within("dasp", "skipped", number=2**70), _DAMAGED),
    "a record with absent inputs of text": ("table", inside("dasp", absent="zero"), _DAMAGED),
    "a record with an infinite absent input": ("table", within("dasp", "absent", value=float("inf")), _DAMAGED),
    "a record with a shape of text": ("table", within("dasp", "absent", shape="ab"), _DAMAGED),
    "a record with options of absent inputs in a list": ("table", within("dasp", "absent", options=[1]), _DAMAGED),
    "a record with a warning in a list": ("table", within("dasp", "absent", warning=["x"]), _DAMAGED),
    "a record with a reason in a list": ("table", inside("dasp", reason=["x"]), _DAMAGED),
    "a record with a method in a list": ("table", inside("dasp", method=["x"]), _DAMAGED),
    # the result
    "a result that is no JSON": ("table", said("dasp result", "{"), "cannot be read: Expecting property name"),
    "a result that is nested": ("table", said("dasp result", _DEEP), "its metadata are nested too deeply"),
    "a result that is a number": ("table", said("dasp result", "3"), "3 is not of type JobResult"),
    "a result with outputs below 0": ("table", inside("dasp result", outputs=-2), "cannot be read: -2 is not of type"),
    "a result with outputs of text": ("table", inside("dasp result", outputs="two"), "two is not of type int | None"),
    "a result with a number for a name": ("table", inside("dasp result", model=3), "3 is not of type str"),
    "a result with names of numbers": ("table", inside("dasp result", output_names=[1, 2]), "1 is not of type str"),
    "a result with names in a text": ("table", inside("dasp result", output_names="no"), "no is not of type tuple"),
    "a result with notes in a list": ("table", inside("dasp result", notes=[]), "a list is not of type Notes"),
    "a result with notes below 0": ("table", within("dasp result", "notes", left_out=-3), "-3 is not of type int"),
    "a result with notes of text": ("table", within("dasp result", "notes", gaps="7"), "7 is not of type int"),
    "a result with unknown notes": ("table", within("dasp result", "notes", more=1), "are not the fields of Notes"),
    "a result with ids of numbers": ("table", within("dasp result", "notes", ids=[7]), "7 is not of type str"),
    # CSV, and what is beside it
    "CSV without a record": ("csv", unsaid("dasp"), _DAMAGED),
    "CSV with a record in a list": ("csv", said("dasp", []), _DAMAGED),
    "CSV without a checksum": ("csv", unsaid("sha256"), "has changed since it was written"),
    "CSV without columns": ("csv", unsaid("columns"), "are not the fields of _BesideCSV"),
    "CSV with columns in a list": ("csv", said("columns", ["id"]), "a list is not of type dict"),
    "CSV with types of numbers": ("csv", inside("columns", a=3), "3 is not of type str"),
    "CSV with an unknown type": ("csv", inside("columns", a="colour"), "No type alias for colour"),
    "CSV with a type of text for a value": ("csv", inside("columns", a="string"), f"'a' is of type string, {_STRANGE}"),
    "CSV with a column that is not there": ("csv", inside("columns", z="float"), _STRANGE),
    "CSV with values that are texts": ("csv", each("a", "x"), "conversion error to float: invalid value 'x'"),
    "CSV with more rows than it says": ("csv", rows(7), "has 7 rows instead of 6"),
    "CSV with fewer rows than it says": ("csv", said("rows", 10**9), "has 1,000,000,000 rows and"),
    "CSV with rows below 0": ("csv", said("rows", -1), "-1 is not of type int"),
    "CSV with facts of numbers": ("csv", said("about", {"players": 3}), "3 is not of type str"),
    "CSV with a result in a list": ("csv", said("result", []), "a list is not of type JobResult"),
    # odd, but shown
    "values that are NaN": ("table", each("a", float("nan"), _FLOAT), None),
    "values that are infinite": ("table", each("a", float("inf"), _FLOAT), None),
    "values that are missing": ("table", each("a", None, _FLOAT), None),
    "deviations that are NaN": ("table", each("error_std:a", float("nan"), _FLOAT), None),
    "values of 1e-320": ("table", each("a", 1e-320), None),
    "values of 1e149": ("table", each("a", 1e149), None),
    "all values infinite": ("images", values("values", lists([float("-inf")] * 16, _FLOAT)), None),
    "predictions that are missing": ("table", each("prediction", None, _FLOAT), None),
    "ids of 100,000 letters": ("table", each("id", "x" * 100_000), None),
    "ids of markup": ("table", each("id", "</script><script>alert(1)</script>\u202e"), None),
    "ids that are missing": ("table", each("id", None, pa.string()), None),
    "ids in a dictionary": ("table", values("id", pa.array(["x"] * ROWS).dictionary_encode()), None),
    "ids that are bytes": ("table", each("id", b"\xff\xfe\x00"), None),
    "a reason of a megabyte": ("table", inside("dasp", reason="x" * 10**6), None),
    "a name of a megabyte": ("table", inside("dasp result", model="x" * 10**6), None),
    "names of a megabyte": ("table", inside("dasp result", output_names=["x" * 10**6, "y"]), None),
    "an absent input of an unknown kind": ("table", within("dasp", "absent", kind="text"), None),
    "texts with a shape": ("texts", said("shape", "[0.5]"), None),
    "texts with players": ("texts", said("players", "[-1]"), None),
    "a text without pieces": ("texts", lambda output: [
        output.set(name, pa.array([[]] * ROWS, output.column(name).type)) for name in ("pieces", "values", "error_std")
    ], None),
}  # fmt: skip
