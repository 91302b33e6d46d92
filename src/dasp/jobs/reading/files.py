"""Files before they are opened, and sizes before they are allocated: what cannot be read is refused in one line."""

from __future__ import annotations

import stat
from pathlib import Path

from dasp.errors import BadInput, line_of

__all__ = ["check_file", "check_unpacked", "files_in", "is_folder", "is_utf8"]

_SPECIAL = {
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def is_folder(path: Path) -> bool:
    """Whether a path is a folder rather than a file; anything else is refused: a pipe would be waited for, and a
    device may never end, while the data is read more than once.

    >>> is_folder(Path("absent.csv"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.csv: no such file or folder
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file or folder") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: cannot be read: {line_of(error)}") from error
    for test, what in _SPECIAL.items():
        if test(mode):
            raise BadInput(f"{path}: is {what}; copy what it gives to a file, and name that one")
    return stat.S_ISDIR(mode)


def check_file(path: Path) -> None:
    """Refuse what is not a file."""
    if is_folder(path):
        raise BadInput(f"{path}: is a folder; a file is needed")


def files_in(folder: Path) -> list[Path]:
    """The files that are in a folder itself, in their order."""
    try:
        return sorted(file for file in folder.iterdir() if file.is_file())
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror}") from error


def is_utf8(text: str) -> bool:
    r"""Whether a name can be written in UTF-8, as the ids and the columns of the output must be.

    >>> is_utf8("Zürich"), is_utf8("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unpacked(path: Path, what: str, size: int, limit: int) -> None:
    """Refuse something in a file that takes more bytes than are allowed, before it is unpacked.

    >>> check_unpacked(Path("rows.npz"), "a row", 3 * 2**30, 2**30)
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.npz: a row takes 3.0 GiB when it is read, and --max-unpacked allows 1.0 GiB
    """
    if size > limit:
        raise BadInput(f"{path}: {what} takes {_told(size)} when it is read, and --max-unpacked allows {_told(limit)}")


def _told(size: int) -> str:
    """A number of bytes, as people write it."""
    unit = next((unit for unit in (2**30, 2**20, 2**10) if size >= unit), 1)
    return f"{size / unit:,.1f} { {2**30: 'GiB', 2**20: 'MiB', 2**10: 'KiB', 1: 'bytes'}[unit] }"
