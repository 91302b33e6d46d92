"""Archives as torch writes them: every part once, stored as it is.

Nothing is decompressed, so the parts together are never larger than the file, and no bomb needs a limit. (JSON takes
many times its size in memory, and has one.)
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

__all__ = ["Archive", "NotUnderstood", "check_stored"]

_MOST_JSON = 2**24
# Below the archive's own folder. What is not read is named, too, as other parts would be for something else.
_READ = re.compile(
    r"archive_format|archive_version|models/model\.json|data/weights/(weight_\d+|model_weights_config\.json)"
    r"|data/constants/(tensor_\d+|model_constants_config\.json)"
)
_LEFT_OUT = re.compile(
    r"byteorder|version|\.data/(version|serialization_id)|\.(version|format_version|storage_alignment)"
    r"|data/sample_inputs/model\.pt|extra/[\w.-]+"
)
_ENCRYPTED = 1


class NotUnderstood(Exception):
    """Something in a file that is not read unless the file is trusted; says what, to stand after "has"."""


def check_stored(parts: list[ZipInfo], size: int) -> None:
    """Refuse parts that are more than what a file of this size can hold.

    >>> check_stored([ZipInfo("part")], size=0)
    """
    if any(part.compress_type != ZIP_STORED for part in parts):
        raise NotUnderstood("compressed parts (torch writes none, and they can be of any size)")
    if any(part.flag_bits & _ENCRYPTED for part in parts):
        raise NotUnderstood("encrypted parts")
    if sum(part.file_size for part in parts) > size:
        raise NotUnderstood("parts that are larger than the file")


class Archive:
    """The parts of a program's file, by their names below the archive's own folder."""

    def __init__(self, path: Path) -> None:
        self._zip = ZipFile(path)
        parts = self._zip.infolist()
        try:
            _check_kind(parts)
            check_stored(parts, path.stat().st_size)
            self._parts = _by_name(parts)
            self._check_format()
        except BaseException:
            self._zip.close()
            raise

    def _check_format(self) -> None:
        found = [self.bytes(name) for name in ("archive_format", "archive_version")]
        if found != [b"pt2", b"0"]:
            raise NotUnderstood(f"the format {found}"[:60])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def bytes(self, name: str) -> bytes:
        """The content of a part."""
        return self._zip.read(self._parts[name])

    def json(self, name: str) -> Any:
        """The content of a part as JSON."""
        if self._parts[name].file_size > _MOST_JSON:
            raise NotUnderstood(f"a part {name} of more than {_MOST_JSON >> 20} MB")
        return json.loads(self.bytes(name))


def _check_kind(parts: list[ZipInfo]) -> None:
    if not any(part.filename.endswith("/archive_format") for part in parts):
        raise BadZipFile("it is another kind of archive")


def _by_name(parts: list[ZipInfo]) -> dict[str, ZipInfo]:
    found: dict[str, ZipInfo] = {}
    roots = set()
    for part in parts:
        root, _, name = part.filename.partition("/")
        roots.add(root)
        if name in found or len(roots) > 1:
            raise NotUnderstood(f"two parts {name[:60]!r}" if name in found else "parts in two folders")
        if _READ.fullmatch(name):
            found[name] = part
        elif not _LEFT_OUT.fullmatch(name):
            raise NotUnderstood(f"a part {name[:60]!r} that plain programs do not need")
    return found
