"""A check of programs saved by `torch.export.save`, so that reading one cannot run code.

Such a file is an archive of tensors and of a graph as JSON, but torch also unpickles parts that say so (and sample
inputs that are no plain tensors), loads compiled libraries, evaluates the expressions of sizes, and writes the names of
values into the code of a module. Usual programs have only plain sizes and names, and nothing of the rest.

torch reads archives in its own way (names in any case, the first of several with one name), so what is checked here and
what is loaded could differ. It is therefore copied: only parts that are known, under exact names, once each.
"""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from dasp.errors import BadInput, line_of

__all__ = ["checked_program"]

# Below the archive's own folder.
_PARTS = re.compile(
    r"archive_(format|version)|version|byteorder|\.(data/)?(version|serialization_id|format_version|storage_alignment)"
    r"|models/[\w.-]+\.json|data/(weights|constants)/[\w.-]+|data/sample_inputs/[\w.-]+\.pt|extra/[\w.-]+"
)
_NAME = re.compile(r"[\w.]*")
# Sizes: numbers, symbols like s0 or Symbol('s0', integer=True), functions like FloorDiv, which begin with a capital.
_EXPRESSION = re.compile(r"(?:'[su]\d+'|[a-z]+=(?:True|False)\b|\b(?:[su]\d+|[A-Z][A-Za-z]*|\d+)\b|[\s+\-*/(),<>=.])*")


def checked_program(path: Path) -> io.BytesIO:
    """Copy a file for `torch.export.load`; refuse it if reading it could run code.

    >>> checked_program(Path("absent.pt2"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.pt2 is not a program of torch.export.save, or damaged: No such file or directory
    """
    copy = io.BytesIO()
    try:
        with ZipFile(path) as archive, ZipFile(copy, "w") as clean:
            names = archive.namelist()
            danger = "two parts with one name" if len({name.casefold() for name in names}) < len(names) else None
            for name in names if danger is None else ():
                content = archive.read(name)
                danger = danger or next(_dangers(name, content), None)
                clean.writestr(name, content)
    except (BadZipFile, OSError, ValueError, RuntimeError, RecursionError, zlib.error) as error:
        raise BadInput(f"{path} is not a program of torch.export.save, or damaged: {line_of(error)}") from error
    if not any(name.endswith("/archive_format") for name in names):
        raise BadInput(f"{path} is not a program of torch.export.save, but another kind of archive")
    if danger is not None:
        raise BadInput(
            f"{path} has {danger}, which can run any code when it is read: give --trust if you know where it comes "
            "from, or export it again"
        )
    copy.seek(0)
    return copy


def _dangers(name: str, content: bytes) -> Iterator[str]:
    part = name.partition("/")[2]
    if "custom_obj_" in part or "opaque_obj_" in part:
        yield "pickled objects"
    elif not _PARTS.fullmatch(part) or part.endswith((".so", ".pyd", ".dll")):
        yield f"a part {part[:60]!r} that programs do not need"
    elif part.endswith(".pt"):
        try:
            torch.load(io.BytesIO(content), weights_only=True)
        except Exception:  # noqa: BLE001 (broken or not, it is no plain tensors)
            yield f"a part {Path(part).name} that is more than tensors"
    elif part.endswith(".json"):
        for key, value in _entries(json.loads(content or b"null")):
            if key == "use_pickle" and value:
                yield "pickled weights"
            if key == "name" and isinstance(value, str) and not _NAME.fullmatch(value):
                yield f"a value named {value[:40]!r}"
            if key == "expr_str" and isinstance(value, str) and not _EXPRESSION.fullmatch(value):
                yield f"a size {value[:40]!r}"


def _entries(tree: Any) -> Iterator[tuple[str, Any]]:
    """All keys and values of nested JSON."""
    if isinstance(tree, list):
        for part in tree:
            yield from _entries(part)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield key, value
            yield from _entries(value)
