"""The record of a job, which its output carries: two jobs with the same record write the same bytes.

Everything that can change a bit of the result is part of it: checksums of model and data, all options that count, the
size of the chunks, the number of threads and the version of torch as well. How the work is spread (engine, workers) is
not. A `JobResult` stands beside it: what is known when all rows are written, and the names of the files.

Both are written as JSON. The record has a version, and a record of another version is refused. Whoever reads an output
may have it from somebody else, so everything that is read has its type, or is no record.
"""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dasp.jobs.options import OPTIONS, Options, name_of
from dasp.jobs.summary import Notes

__all__ = [
    "VERSION", "AbsentInputs", "JobRecord", "JobResult", "SkippedRows", "Software", "UnreadableRecord", "typed",
]  # fmt: skip

VERSION = 1
_CHECKSUM = 64  # characters of a SHA-256
_PARAMETERS, _OUTPUTS = "the model's parameters", "the model's outputs"  # as they are called in messages


@dataclass(frozen=True)
class Software:
    """The versions of the libraries that computed the rows."""

    dasp: str
    torch: str
    transformers: str | None = None  # of texts


@dataclass(frozen=True)
class AbsentInputs:
    """The values that the model was given for absent inputs, on the scale of the data."""

    kind: str  # "baselines", "background" or "text"
    options: dict[str, str] = field(default_factory=dict)  # those that say so, by their names
    shape: tuple[int, ...] | None = None
    value: float | None = None  # if all are the same
    values: Any = None  # nested lists, if they are few
    dtype: str | None = None  # if they are many,
    sha256: str | None = None  # with their checksum
    warning: str | None = None  # if nobody asked for them, and the data is far from them


@dataclass(frozen=True)
class SkippedRows:
    """The rows of the data that are left out before the model sees them, by their numbers."""

    number: int = 0
    first: tuple[int, ...] = ()  # some of them: as the data decides on them, these are enough


@dataclass(frozen=True)
class JobRecord:
    """A job, by all that its rows depend on."""

    options: dict[str, Any]  # those that can change a row, by their names in Python; not those that name files
    files: dict[str, str]  # SHA-256 of what is read, by the options that name it
    software: Software
    parameters: str  # SHA-256 of the model's parameters
    outputs: str  # SHA-256 of the model's outputs for the first rows, as its code may be anywhere
    skipped: SkippedRows
    absent: AbsentInputs
    method: dict[str, Any]  # the options of an `Explainer` that were chosen; none for texts, where each has its own
    reason: str  # for this choice
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, texts and numbers."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> JobRecord | UnreadableRecord:
        """Read what `to_json` gave; anything else is an `UnreadableRecord` that says why.

        >>> bool(JobRecord.from_json({"version": 9})), JobRecord.from_json({"version": 9}).reason
        (False, 'has a record of version 9, and this version of dasp reads version 1')
        """
        if not isinstance(content, dict) or not isinstance(content.get("version"), int):
            return UnreadableRecord()
        if content["version"] != VERSION:
            return UnreadableRecord(
                f"has a record of version {content['version']}, and this version of dasp reads version {VERSION}"
            )
        try:
            found = typed(cls, content)
            for name, value in found.options.items():
                typed(_OPTION_TYPES[name], value)
        except (KeyError, TypeError):
            return UnreadableRecord()
        return found if found.files.keys() <= OPTIONS.keys() else UnreadableRecord()

    def with_options(self, **others: Any) -> JobRecord:
        """Return the same record with other options."""
        return replace(self, options={**self.options, **others})

    def differences(self, now: JobRecord) -> dict[str, str]:
        """Return what is different now, by the names that users know, and how."""
        mine, its = self._flat(), now._flat()
        return {
            name: _change(name, mine.get(name), its.get(name))
            for name in {**mine, **its}
            if mine.get(name) != its.get(name)
        }

    def _flat(self) -> dict[str, Any]:
        """Return everything by the names that users know."""
        named = {name: self.files.get(name, self.options.get(name)) for name in {**self.options, **self.files}}
        return {
            **{name_of(name) if name in OPTIONS else name: value for name, value in named.items()},
            **asdict(self.software),
            _PARAMETERS: self.parameters, _OUTPUTS: self.outputs,
            "the rows left out": self.skipped, "an absent input": self.absent,
            "the method that was chosen": self.method, "the reason for the method": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class UnreadableRecord:
    """Something in the place of a record that is none, or not of this version; it is false."""

    reason: str = "is damaged or was not written by dasp explain"

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class JobResult:
    """The facts about an output that are known when all of its rows are written. They are no part of the record: they
    follow from it, or are but names."""

    model: str = ""  # the name of its file or factory, without folders
    data: str = ""
    outputs: int | None = None  # number of the model's outputs
    output_names: tuple[str, ...] = ()  # if they are known
    evaluations: int = 0  # of the model, for all rows
    notes: Notes = field(default_factory=Notes)
    files: dict[str, str] = field(default_factory=dict)  # the names of all others that were read, by their options

    def to_json(self) -> dict[str, Any]:
        """Return dictionaries, lists, texts and numbers."""
        return asdict(self)


_OPTION_TYPES = {name: str if kind is Path else kind for name, kind in get_type_hints(Options).items()}
_OPTION_TYPES |= {name: str | None for name, kind in _OPTION_TYPES.items() if kind == Path | None}
_MOST = 2**63 - 1  # of a whole number
_SIMPLE = (str, bool, int, float, type(None))

T = TypeVar("T")


def typed(kind: type[T], content: Any) -> T:
    """Return what JSON has as a value of a type of ours; anything else raises `TypeError`.

    Whole numbers are counts or indices, which are not below 0, and all other numbers are finite. Fields of a dataclass
    that are missing have their defaults.

    >>> typed(SkippedRows, {"number": 2, "first": [0, 7]})
    SkippedRows(number=2, first=(0, 7))
    >>> typed(SkippedRows, {"number": -2})
    Traceback (most recent call last):
        ...
    TypeError: -2 is not of type int
    """
    found: Any = _typed(kind, content)
    return found


def _typed(kind: Any, content: Any) -> Any:
    if kind is Any:
        return content
    if kind is float and type(content) is int and content <= _MOST:
        return float(content)
    if kind in _SIMPLE:
        fits = type(content) is kind and (kind is not int or 0 <= content <= _MOST)
        if fits and (kind is not float or math.isfinite(content)):
            return content
    elif isinstance(kind, UnionType):
        for one in get_args(kind):
            try:
                return _typed(one, content)
            except TypeError:
                continue
    elif is_dataclass(kind) and isinstance(content, dict):
        return _typed_fields(kind, content)
    elif get_origin(kind) is tuple and isinstance(content, list):
        return tuple(_typed(get_args(kind)[0], one) for one in content)
    elif get_origin(kind) is dict and isinstance(content, dict):
        return {name: _typed(get_args(kind)[1], one) for name, one in content.items()}
    said = str(content)[:40] if isinstance(content, _SIMPLE) else f"a {type(content).__name__}"
    raise TypeError(f"{said} is not of type {getattr(kind, '__name__', kind)}")


@cache
def _kinds_of(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _typed_fields(kind: Any, content: dict[str, Any]) -> Any:
    kinds = _kinds_of(kind)
    needed = {one.name for one in fields(kind) if one.default is MISSING and one.default_factory is MISSING}
    if not needed <= content.keys() <= kinds.keys():
        raise TypeError(f"{', '.join(needed ^ content.keys())[:40]} are not the fields of {kind.__name__}")
    return kind(**{name: _typed(kinds[name], one) for name, one in content.items()})


def _change(name: str, before: Any, now: Any) -> str:
    if any(isinstance(value, str) and len(value) == _CHECKSUM for value in (before, now)):
        return "have changed" if name in (_PARAMETERS, _OUTPUTS) else "has changed"
    return f"was {_said(before)}, and is {_said(now)} now"


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)
