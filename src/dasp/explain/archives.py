"""What a program saved by `torch.export.save` may hold, so that reading it runs no code of others.

Such a file is an archive of tensors and of a graph as JSON, but torch also unpickles parts that say so (and sample
inputs that are no plain tensors), loads compiled libraries, evaluates the expressions of sizes, and writes the names of
values into the code of a module. Usual programs have only plain sizes and names, and nothing of the rest.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import torch

from dasp.errors import BadInput

__all__ = ["check_program"]

_NAME = re.compile(r"[\w.]*")
# Sizes: numbers, symbols like s0 or Symbol('s0', integer=True), functions like FloorDiv, which begin with a capital.
_EXPRESSION = re.compile(r"(?:'[su]\d+'|[a-z]+=(?:True|False)\b|\b(?:[su]\d+|[A-Z][A-Za-z]*|\d+)\b|[\s+\-*/(),<>=.])*")


def check_program(path: Path) -> None:
    """Refuse a file that could run code when `torch.export.load` reads it.

    >>> check_program(Path("absent.pt2"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.pt2 is no program saved by torch.export.save, or broken: No such file or directory
    """
    try:
        with ZipFile(path) as archive:
            danger = next((found for name in archive.namelist() for found in _dangers(archive, name)), None)
    except (BadZipFile, OSError, ValueError) as error:
        raise BadInput(f"{path} is no program saved by torch.export.save, or broken: {_reason(error)}") from error
    if danger is not None:
        raise BadInput(f"{path} has {danger}, which can run any code when it is read: trust it, or export it anew")


def _reason(error: Exception) -> str:
    return error.strerror or "" if isinstance(error, OSError) else str(error)


def _dangers(archive: ZipFile, name: str) -> Iterator[str]:
    if "/aotinductor/" in name or name.endswith((".so", ".pyd", ".dll")):
        yield "compiled parts"
    elif re.search(r"/(custom|opaque)_obj_", name):
        yield "pickled objects"
    elif name.endswith(".pt"):
        try:
            torch.load(io.BytesIO(archive.read(name)), weights_only=True)
        except Exception:  # noqa: BLE001 (broken or not, it is no plain tensors)
            yield f"a part {Path(name).name} that is more than tensors"
    elif name.endswith(".json"):
        for key, value in _entries(json.loads(archive.read(name) or b"null")):
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
