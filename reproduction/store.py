"""A store of what was computed and need not be computed again: networks, Shapley values, results.

Each value is kept under a name, with the key it was made for (data, settings, checksums of what it was made from) and
its own checksum. A value with another key, or whose file is damaged, is computed anew. Every file is written under a
temporary name and then renamed, so an interrupted run leaves nothing half done and continues where it stopped.

Shapley values and results also depend on the code of `dasp`. Their keys include the checksum of the subpackages that
compute them, so a result never outlives the code it came from; a change elsewhere (plots, the command line, jobs) does
not cost a new run.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import Any

import torch

import dasp

__all__ = ["SUBPACKAGES", "Store", "checksum", "checksum_of_code", "write"]

log = logging.getLogger(__name__)

SUBPACKAGES = ("models", "propagation", "games", "attribution", "methods", "evaluation")


def write(file: Path, content: bytes) -> None:
    """Write a file at once: if this is interrupted, the file is as it was before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(file)


def checksum(value: Any) -> str:
    """Return the SHA-256 of a value of plain data: tensors, numbers, strings, and lists and dictionaries of them.

    >>> checksum({"a": torch.zeros(2)}) == checksum({"a": torch.zeros(2)}) != checksum({"a": torch.ones(2)})
    True
    """
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor):
        digest.update(f"{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    elif isinstance(value, dict):
        for name, part in value.items():
            digest.update(f"{name}:".encode())
            _feed(digest, part)
    elif isinstance(value, list | tuple):
        for part in value:
            _feed(digest, part)
            digest.update(b",")
    else:
        digest.update(repr(value).encode())


def checksum_of_code(subpackages: Sequence[str] = SUBPACKAGES, package: Path = Path(dasp.__file__).parent) -> str:
    """Return the SHA-256 of the names and contents of all Python files in some subpackages of `dasp`.

    >>> checksum_of_code() == checksum_of_code(SUBPACKAGES) != checksum_of_code(["games"])
    True
    """
    digest = hashlib.sha256()
    for name in subpackages:
        files = sorted((package / name).rglob("*.py"))
        if not files:
            raise FileNotFoundError(f"{package / name}: there is no such subpackage")
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(package).as_posix()} {content}\n".encode())
    return digest.hexdigest()


class Store:
    """A folder of computed values.

    >>> import tempfile
    >>> store = Store(Path(tempfile.mkdtemp()))
    >>> store.keep("seven", {"of": "two"}, lambda: 7), store.keep("seven", {"of": "two"}, lambda: 8)
    (7, 7)
    >>> store.keep("seven", {"of": "three"}, lambda: 8)
    8
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, name: str, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """Return the value that is kept under this name for this key. If there is none, keep and return the value of
        `make` (tensors, numbers, strings, and lists and dictionaries of them). Threads that ask for the same value
        wait for the one that computes it."""
        with _lock_of(self._file(name, "pt")):
            found, value = self._read(name, key)
            if found:
                return value
            value = make()
            buffer = io.BytesIO()
            torch.save(value, buffer)
            content = buffer.getvalue()
            write(self._file(name, "pt"), content)
            label = {"key": _label(key), "sha256": hashlib.sha256(content).hexdigest()}
            write(self._file(name, "json"), json.dumps(label, indent=1).encode())
            return value

    def _file(self, name: str, extension: str) -> Path:
        return self.folder / f"{name}.{extension}"

    def _read(self, name: str, key: dict[str, Any]) -> tuple[bool, Any]:
        label, content = self._file(name, "json"), self._file(name, "pt")
        if not (label.is_file() and content.is_file()):
            return False, None
        try:
            kept = json.loads(label.read_bytes())
        except ValueError:
            kept = {}
        if kept.get("key") != _label(key):
            return False, None
        raw = content.read_bytes()
        if hashlib.sha256(raw).hexdigest() != kept.get("sha256"):
            log.warning("%s is corrupt: computed anew", content)
            return False, None
        return True, torch.load(io.BytesIO(raw), weights_only=True)


_LOCKS: defaultdict[Path, RLock] = defaultdict(RLock)
_LOCK = Lock()


def _lock_of(file: Path) -> RLock:
    with _LOCK:
        return _LOCKS[file.resolve()]


def _label(key: dict[str, Any]) -> Any:
    """Return a key as it is after a round trip through JSON."""
    return json.loads(json.dumps(key))
