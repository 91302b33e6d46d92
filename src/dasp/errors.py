"""What goes wrong outside of the mathematics: input that cannot be used."""

from __future__ import annotations

__all__ = ["BadInput", "line_of"]

_LONGEST = 300  # characters


class BadInput(ValueError):
    """A file, an option or data that cannot be used: one line that says what and where.

    >>> raise BadInput("rows.csv: column 'age' has text in row 3")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.csv: column 'age' has text in row 3
    """


def line_of(error: object) -> str:
    """What another library says, on one line.

    >>> line_of(ValueError("wrong   shape"))
    'wrong shape'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
