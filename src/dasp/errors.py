"""What goes wrong outside of the mathematics: input and models that cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BadInput", "Operation", "OverflowingRows", "Stopped", "UnsupportedOperation", "UntraceableModel", "line_of",
]  # fmt: skip

_LONGEST = 300  # characters of another library's message


class BadInput(ValueError):
    """A file, an option or data that cannot be used: one line that says what and where.

    >>> raise BadInput("rows.csv: column 'age' has text in row 3")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.csv: column 'age' has text in row 3
    """


class Stopped(RuntimeError):
    """Something that a job needs has ended, through no fault of its input: one line that says what to do."""


@dataclass(frozen=True)
class Operation:
    """An operation of a model, and the user's line of code that calls for it."""

    name: str
    where: str = ""  # file, line and code, as far as they are known

    def __str__(self) -> str:
        """Write it on one line."""
        return f"{self.name}  in {self.where}" if self.where else self.name


class UnsupportedOperation(NotImplementedError):
    """The model uses operations that have no rule; `operations` has all of them.

    >>> print(UnsupportedOperation([Operation("aten.sort.default", "model.py, line 7: x.sort(1)")]))
    1 operation(s) of the model have no rule for random values:
      - aten.sort.default  in model.py, line 7: x.sort(1)
    Register rules for them with dasp.rule, or use BayesianShapley, which only evaluates the model.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        values: str = "random values",
        remedy: str = "Register rules for them with dasp.rule, or use",
    ) -> None:
        self.operations = tuple(operations)
        self.head = f"{len(self.operations)} operation(s) of the model have no rule for {values}:"
        lines = [self.head, *(f"  - {operation}" for operation in self.operations)]
        super().__init__("\n".join([*lines, f"{remedy} BayesianShapley, which only evaluates the model."]))
        self._made_of = (self.operations, values, remedy)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    @property
    def summary(self) -> str:
        """What is the matter, on one line."""
        return " ".join([self.head, *(f"- {operation}" for operation in self.operations)])


class UntraceableModel(TypeError):
    """The model cannot be written as one graph of operations: `reason` says why, `where` at which line of code."""

    def __init__(self, reason: str, remedy: str, where: str = "") -> None:
        self.reason, self.where = reason, where
        super().__init__("\n".join([reason, *([f"  {where}"] if where else []), remedy]))
        self._made_of = (reason, remedy, where)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    @property
    def summary(self) -> str:
        """What is the matter, on one line."""
        return f"{self.reason} {self.where}".strip()


class OverflowingRows(ValueError):
    """Finite rows whose values are not: `rows` has their numbers. The largest entry of the first one is told.

    >>> print(str(OverflowingRows([2], 1e25, "torch.float32")).partition(";")[0].partition(": ")[2])
    its largest entry is 1e+25, and squares may overflow torch.float32
    """

    def __init__(self, rows: Sequence[int], largest: float, dtype: str) -> None:
        self.rows, self.largest, self.dtype = tuple(rows), largest, dtype
        more = f" (and of {len(rows) - 1} more)" if len(rows) > 1 else ""
        super().__init__(
            f"the values of row {rows[0]}{more} are NaN or infinite, though f(input) and f(baseline) are finite: its "
            f"largest entry is {largest:.3g}, and squares may overflow {dtype}; scale the inputs, take float64, or "
            "only evaluate the model, as BayesianShapley does"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.rows, self.largest, self.dtype)

    def after(self, rows: int) -> OverflowingRows:
        """The same where so many rows come before."""
        return OverflowingRows([rows + row for row in self.rows], self.largest, self.dtype)


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
