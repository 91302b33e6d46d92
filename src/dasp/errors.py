"""What goes wrong outside of the mathematics: input that cannot be used."""

from __future__ import annotations

__all__ = ["BadInput", "UnsupportedOperation", "UntraceableModel", "line_of"]

_LONGEST = 300  # characters of another library's message


class BadInput(ValueError):
    """A file, an option or data that cannot be used: one line that says what and where.

    >>> raise BadInput("rows.csv: column 'age' has text in row 3")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.csv: column 'age' has text in row 3
    """


class UnsupportedOperation(NotImplementedError):
    """The model uses operations that have no rule for random values; all of them are listed."""


class UntraceableModel(TypeError):
    """The model cannot be written as one graph of operations."""


def line_of(error: object) -> str:
    r"""What another library says, on one line that is not too long; what the system says, without a number and a path.

    >>> line_of(ValueError("no\n  such thing"))
    'no such thing'
    >>> line_of(FileNotFoundError(2, "No such file or directory", "absent.pt2"))
    'No such file or directory'
    """
    said = isinstance(error, OSError) and error.strerror
    text = " ".join(str(said or error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
