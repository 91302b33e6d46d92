"""A store of what was computed and need not be computed again: networks, truths, results.

Each thing is kept under a name, with the key it was made for (data, settings, checksums of what it was made from) and
its own checksum. A thing with another key, or whose file is not whole, is made anew; everything is written to a
temporary file first and then renamed, so that an interrupted run leaves nothing half done, and goes on where it was.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import Any

import torch

__all__ = ["Store", "checksum", "write"]

log = logging.getLogger(__name__)


def write(file: Path, content: bytes) -> None:
    """Write a file in one go: it is whole, or as it was before."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.{get_ident()}")
    temporary.write_bytes(content)
    temporary.replace(file)


def checksum(value: Any) -> str:
    """Hash anything that `torch.save` can save as plain data.

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


class Store:
    """A folder of things that were computed.

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
        """Return what is kept under this name for this key; if there is nothing, keep and return what `make` returns
        (tensors, numbers, strings, and lists and dictionaries of them). Threads that ask for the same thing wait for
        the one that makes it."""
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
    """Convert a key to what comes back from its file."""
    return json.loads(json.dumps(key))
