"""What goes wrong outside of the mathematics: input that cannot be used."""

from __future__ import annotations

__all__ = ["BadInput"]


class BadInput(ValueError):
    """A file, an option or data that cannot be used: one line that says what and where.

    >>> raise BadInput("rows.csv: column 'age' has text in row 3")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.csv: column 'age' has text in row 3
    """
