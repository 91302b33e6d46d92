"""Errors outside of the mathematics: input and models that cannot be used, and interrupts."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

__all__ = [
    "BadInput", "FailedCall", "Fraction", "Operation", "OverflowingRows", "Stopped", "UndefinedCoalitions",
    "UnexplainedRows", "UnsupportedOperation", "UntraceableModel", "line_of", "tells_options",
]  # fmt: skip

INTERRUPTED = "dasp: interrupted; run the same command again to go on where it stopped"
INTERRUPTED_CODE = 130
NO_MEMORY = (
    "dasp: there is not enough memory ({}): give the process more, or the job a smaller --batch-size and --chunk, and "
    "run the same command again; what was done is kept"
)
_NO_MEMORY = re.compile(
    "failed to map segment|cannot allocate memory|can't allocate memory|can't start new thread|not enough memory"
    "|bad_alloc|unable to allocate|out of memory|insufficient memory|malloc of size|failed to launch worker thread",
    re.IGNORECASE,
)
_LONGEST = 300  # characters of another library's message
_MOST_SUMMARISED = 3  # operations
_MOST_NAMED = 12  # players
_ALSO_CALLED = {  # options of ours, by names that people try
    "absent": "baselines", "baseline": "baselines", "budget": "max_evaluations", "max_calls": "max_evaluations",
    "n_samples": "max_evaluations", "parts": "players", "cache": "keep",
}  # fmt: skip

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")


class BadInput(ValueError):
    """A file, an option or data cannot be used; the message is one line that says what and where.

    >>> raise BadInput("rows.csv: column 'age' has text in row 3")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: rows.csv: column 'age' has text in row 3
    """


class Fraction(BadInput):
    """An entry is not whole where whole numbers are needed: the dtype does not fit, rather than the row."""


class Stopped(RuntimeError):
    """Something that a job needs has ended, through no fault of its input; the message says in one line what to do."""


class FailedCall(RuntimeError):
    """A function that is explained as a game failed, and was not to be asked again; `kept` is the number of answers
    that are on disk, or None if none are kept. The error of the function itself is its `__cause__`."""

    def __init__(self, message: str, kept: int | None = None) -> None:
        self.kept = kept
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.kept)


@dataclass(frozen=True)
class Operation:
    """An operation of a model, and the user's line of code that calls for it, or the first of several."""

    name: str
    where: str = ""  # file, line and code, as far as they are known
    times: int = 1

    @property
    def discrete(self) -> bool:
        """True if it gives an order, a place or a step, and not a number that depends smoothly on others."""
        indices = self.name.endswith((".max.dim", ".min.dim"))  # which have rules for the values
        return indices or any(part in _DISCRETE for part in self.name.split("."))

    def __str__(self) -> str:
        """Write it on one line."""
        often = f"{self.times} times; first " if self.times > 1 else ""
        return f"{self.name} ({often}at {self.where})" if self.where else self.name


_DISCRETE = {
    "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode", "argmax", "argmin", "nonzero", "unique",
    "unique2", "bucketize", "searchsorted", "histc", "bincount", "multinomial", "sign", "sgn", "floor", "ceil", "round",
    "trunc", "heaviside", "gt", "ge", "lt", "le", "eq", "ne", "logical_not", "logical_and", "logical_or", "any", "all",
}  # fmt: skip


class UnsupportedOperation(NotImplementedError):
    """The model uses operations that have no rule; `operations` has each of them once.

    >>> print(UnsupportedOperation([Operation("aten.lgamma.default", "model.py, line 7: x.lgamma()")]))
    1 operation(s) of the model have no rule for random values:
      - aten.lgamma.default (at model.py, line 7: x.lgamma())
    Register rules for them with dasp.rule, or use BayesianShapley, which only evaluates the model.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        values: str = "random values",
        remedy: str = "Register rules for them with dasp.rule, or use",
    ) -> None:
        self._made_of = (operations, values, remedy)
        self.operations = _each_once(operations)
        self.head = f"{len(self.operations)} operation(s) of the model have no rule for {values}:"
        discrete = [operation.name for operation in self.operations if operation.discrete]
        lines = [self.head, *(f"  - {operation}" for operation in self.operations)]
        if discrete:
            lines.append(
                f"What is an order, a place or a step ({', '.join(discrete)}) jumps from one value to another and has "
                "no Gaussian."
            )
            remedy = "Use" if len(discrete) == len(self.operations) else "Register rules for the others, or use"
        also = " So does Explainer by default." if discrete else ""
        super().__init__("\n".join([*lines, f"{remedy} BayesianShapley, which only evaluates the model.{also}"]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._made_of

    @property
    def summary(self) -> str:
        """The message on one line."""
        more = len(self.operations) - _MOST_SUMMARISED
        listed = "; ".join(map(str, self.operations[:_MOST_SUMMARISED]))
        return f"{self.head} {listed}" + (f"; and {more} more" if more > 0 else "")


def _each_once(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return each operation once, with the number of times that it is there."""
    found: dict[str, Operation] = {}
    for operation in operations:
        first = found.get(operation.name)
        found[operation.name] = replace(first, times=first.times + operation.times) if first else operation
    return tuple(found.values())


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
        """The message on one line."""
        return f"{self.reason} {self.where}".strip()


class UnexplainedRows(ValueError):
    """Some rows cannot be explained, while others can: `rows` has their numbers. What is wrong with them, subclasses
    say."""

    rows: tuple[int, ...]

    def after(self, rows: int) -> UnexplainedRows:
        """Return the same error where so many rows come before."""
        raise NotImplementedError


class OverflowingRows(UnexplainedRows):
    """The Shapley values of finite rows are not finite: `rows` has the numbers of these rows.

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
        """Return the same error where so many rows come before."""
        return OverflowingRows([rows + row for row in self.rows], self.largest, self.dtype)


class UndefinedCoalitions(UnexplainedRows):
    """Coalitions have no finite value, so that there are no Shapley values: in the `rows`, `count` of the `asked`
    coalitions have none. In the first of them, of row `rows[0]`, the `present` of the `players` are present, and the
    model gives `value`. Where the players have names, these are better than numbers:

    >>> error = UndefinedCoalitions([2], 3, 64, (0, 4), 6, float("nan"))
    >>> str(error).partition(":")[0]
    '3 of 64 coalitions have no finite value; the first is nan, of the players 0, 4 of 6 in row 2'
    >>> str(error.named("abcdef")).partition("; ")[2].partition(":")[0]
    'the first is nan, of the players a, e of 6 in row 2'
    """

    def __init__(
        self,
        rows: Sequence[int],
        count: int,
        asked: int,
        present: Sequence[int],
        players: int,
        value: float,
        names: Sequence[str] | None = None,
    ) -> None:
        self.rows, self.count, self.asked = tuple(rows), count, asked
        self.present, self.players, self.value = tuple(present), players, value
        self.names = None if names is None else tuple(names)
        where = f" in row {rows[0]}" if rows else ""
        more = f", and {len(rows) - 1} more rows have some" if len(rows) > 1 else ""
        ends = len(self.present) in (0, players)
        remedy = "" if ends else ", or leave such coalitions out, as BayesianShapley does with missing='drop'"
        super().__init__(
            f"{count:,} of {asked:,} coalitions have no finite value; the first is {value:g}, of {self._who()}{where}"
            f"{more}: mend what gives it (a logarithm or a quotient of 0?){remedy}"
        )

    def _who(self) -> str:
        if not self.present:
            return "none of the players"
        if len(self.present) == self.players:
            return f"all {self.players} players"
        some = [str(self.names[i]) if self.names else str(i) for i in self.present[:_MOST_NAMED]]
        more = len(self.present) - len(some)
        listed = ", ".join(some) + (f" and {more} more" if more else "")
        return f"the player{'s' * (len(self.present) > 1)} {listed} of {self.players}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (
            self.rows, self.count, self.asked, self.present, self.players, self.value, self.names,
        )  # fmt: skip

    def after(self, rows: int) -> UndefinedCoalitions:
        """Return the same error where so many rows come before."""
        return self._with([rows + row for row in self.rows], self.names)

    def named(self, names: Sequence[str] | None, *, rows: bool = True) -> UndefinedCoalitions:
        """Return the same error with the names of all players, and without rows if there are none."""
        return self._with(self.rows if rows else (), names)

    def _with(self, rows: Sequence[int], names: Sequence[str] | None) -> UndefinedCoalitions:
        return UndefinedCoalitions(rows, self.count, self.asked, self.present, self.players, self.value, names)


def line_of(error: object) -> str:
    r"""Return what another library says on one line that is not too long; and what the system says without a number and
    a path.

    >>> line_of(ValueError("no\n  such thing"))
    'no such thing'
    >>> line_of(FileNotFoundError(2, "No such file or directory", "absent.pt2"))
    'No such file or directory'
    """
    said = isinstance(error, OSError) and error.strerror
    text = " ".join(str(said or error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def tells_options(function: Callable[_Options, _Result]) -> Callable[_Options, _Result]:
    """Let a function, or a method of a class, say of an option that it does not have what it is called here, or that it
    belongs to the constructor.

    >>> @tells_options
    ... def explain(rows, *, max_evaluations=2048): ...
    >>> explain([], budget=100)
    Traceback (most recent call last):
        ...
    TypeError: explain has no option 'budget': here it is max_evaluations
    """
    parameters = signature(function).parameters

    @wraps(function)
    def told(*given: _Options.args, **options: _Options.kwargs) -> _Result:
        for option in options:
            if option not in parameters:
                owner = type(given[0]) if given and "self" in parameters else None
                raise TypeError(_no_option(option, function.__name__, list(parameters), owner))
        return function(*given, **options)

    return told


def _no_option(option: str, function: str, known: Sequence[str], owner: type | None) -> str:
    """Say that a function, or a method of an owner, has no such option, and what to give instead."""
    of_owner: Sequence[str] = () if owner is None else list(signature(owner).parameters)
    called = function if owner is None else f"{owner.__name__}.{function}"
    said = f"{called.removesuffix('.__call__').removesuffix('.__init__')} has no option {option!r}"
    meant = option if option in of_owner else _ALSO_CALLED.get(option)
    if meant in known:
        return f"{said}: here it is {meant}"
    if owner is not None and meant in of_owner:
        return f"{said}: give it to the constructor, {owner.__name__}(…, {meant}=…)"
    return f"{said}: its options are {', '.join(name for name in known if name != 'self')}"


def lacks_memory(error: BaseException | None) -> str | None:
    """Return what could not be had if an error, or what it comes from, is a lack of memory; else None. Libraries say it
    in words.

    >>> lacks_memory(RuntimeError("can't start new thread")), lacks_memory(RuntimeError("shapes differ"))
    ("can't start new thread", None)
    """
    while error is not None:
        if isinstance(error, MemoryError):
            return "memory"
        if found := _NO_MEMORY.search(str(error)):
            return found[0]
        error = error.__cause__ or error.__context__
    return None


def missing_library(name: str | None, extra: str) -> BadInput:
    """Return the error that says what to install.

    >>> str(missing_library("ray", "cluster"))
    "ray is missing: pip install 'torch-dasp[cluster]'"
    """
    return BadInput(f"{name} is missing: pip install 'torch-dasp[{extra}]'")


def ending(error: BaseException) -> tuple[int, str | None]:
    """Return the exit code of a command that an error ends, and its last line; no line if nobody expected the error,
    which then is a traceback.

    >>> ending(BadInput("rows.csv is empty")), ending(ZeroDivisionError("division by zero"))
    ((2, 'dasp: rows.csv is empty'), (1, None))
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_CODE, INTERRUPTED
    if isinstance(error, Stopped):
        return 1, f"dasp: {error}"
    refused = isinstance(error, BadInput)
    if (what := lacks_memory(error.__cause__ if refused else error)) is not None:
        return 1, NO_MEMORY.format(what)
    return (2, f"dasp: {error}") if refused else (1, None)


@contextmanager
def stops_at_once() -> Iterator[None]:
    """Let an interrupt end the process while libraries are imported, as an exception could be lost in them, or come
    out as something else. An interrupt that is ignored stays so."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(*_: object) -> None:
    os.write(2, f"{INTERRUPTED}\n".encode())
    os._exit(INTERRUPTED_CODE)
