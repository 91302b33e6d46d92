"""The code that truths and results depend on: whole rooms of the package, by name.

What an earlier run has kept is used again only as long as the checksum of these rooms is the same. So a result never
outlives the code it came from; a change elsewhere (plots, the command line, jobs) costs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import dasp

__all__ = ["ROOMS", "checksum_of_rooms"]

ROOMS = ("propagation", "games", "attribution", "methods", "evaluation")


def checksum_of_rooms(rooms: Sequence[str] = ROOMS, package: Path = Path(dasp.__file__).parent) -> str:
    """Hash the names and contents of all Python files in some rooms.

    >>> checksum_of_rooms() == checksum_of_rooms(ROOMS) != checksum_of_rooms(["games"])
    True
    """
    digest = hashlib.sha256()
    for room in rooms:
        files = sorted((package / room).rglob("*.py"))
        if not files:
            raise FileNotFoundError(f"{package / room}: there is no such room")
        for file in files:
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(package).as_posix()} {content}\n".encode())
    return digest.hexdigest()
