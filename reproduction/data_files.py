"""Data files of the experiments: from the folder `$DASP_DATA`, from the user's cache, or from their public source.

A file is identified by the SHA-256 of its content (uncompressed, as archives of the same data differ). A file with
another content is an error that names it, and so is a `$DASP_DATA` that is not a folder. Only if there is no file and
no network, `find` returns None, and the caller uses other data and says so.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import logging
import os
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dasp.errors import BadInput
from reproduction.store import write

__all__ = ["DataFile", "cache", "find"]

log = logging.getLogger(__name__)

_TIMEOUT = 30  # seconds


@dataclass(frozen=True)
class DataFile:
    """A public file of data."""

    path: str  # below the data folder; .gz if compressed
    url: str
    sha256: str  # of the content


def cache() -> Path:
    """Return the folder in which downloads are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dasp"


def find(file: DataFile) -> bytes | None:
    """Return the content of a file, downloaded if it is not here; None if it cannot be downloaded."""
    for folder in _folders():
        place = folder / file.path
        if place.is_file():
            return _checked(file, place.read_bytes(), str(place))
    try:
        with urllib.request.urlopen(file.url, timeout=_TIMEOUT) as answer:  # noqa: S310  # our own addresses
            raw = answer.read()
    except http.client.IncompleteRead as error:
        raise BadInput(f"{file.url}: the download broke off ({error}); try again") from error
    except (OSError, http.client.HTTPException) as error:
        log.warning("%s could not be downloaded (%s)", file.url, error)
        return None
    content = _checked(file, raw, file.url)
    try:
        write(cache() / file.path, raw)
    except OSError as error:
        log.warning("%s cannot be written, so that the next run downloads it again (%s)", cache() / file.path, error)
    return content


def _folders() -> Iterator[Path]:
    given = os.environ.get("DASP_DATA")
    if given:
        if not Path(given).is_dir():
            raise BadInput(
                f"DASP_DATA={given}: there is no such folder; unset DASP_DATA to download the data of the experiments"
            )
        yield Path(given)
    yield cache()


def _checked(file: DataFile, raw: bytes, place: str) -> bytes:
    try:
        content = gzip.decompress(raw) if file.path.endswith(".gz") else raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{place}: corrupt or truncated ({error}); delete it or get it again from {file.url}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise BadInput(
            f"{place}: corrupt or another version ({len(content):,} bytes, SHA-256 {found[:12]}… instead of "
            f"{file.sha256[:12]}…); delete it or get it again from {file.url}"
        )
    return content
