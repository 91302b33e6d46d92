"""What is being done, for those who wait: a bar on a terminal or in a notebook, a line every half minute elsewhere.

Work says what it is: `with working("tracing the model"):`, or, if it can tell how far it is, `with
working("BayesianShapley", "evaluation", total=2048) as progress:` and `progress.update(64)`. Work inside of other work
is a part of it, so that people read "explaining: BayesianShapley" and see one bar, however deeply things are nested.
The outermost work decides whether anything is seen:

    show=None     a bar that appears after two seconds and vanishes in the end, if anybody can see it: stderr is a
                  terminal or a notebook's. Otherwise a line in the log "dasp", level INFO, every half minute.
    show=True     a bar at once, which stays
    show=False    nothing

Whoever works may be blocked for a minute (`torch.export`), so a thread of its own looks at the clock. It ends with the
work, and writes nothing afterwards. Work itself does no more than add up numbers.
"""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread, local
from typing import Any

from tqdm import tqdm

__all__ = ["Work", "working"]

log = logging.getLogger("dasp")

_PATIENCE = 2.0  # seconds before a bar appears
_FRAME = 0.5  # seconds between two drawings of it
_LINE = 30.0  # seconds between two lines of the log
_BAR = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]"
_SCREEN = Lock()  # of whoever draws a bar: there is one at a time
_here = local()  # the outermost work of each thread, as `watch`


class Work:
    """Some work, and how much of it is done.

    Args:
        name: what is done: "tracing the model".
        unit: what is counted, in the singular.
        total: how many of them there are; None if that is not known.
        at_most: True if there may turn out to be fewer.
        done: how many were done before.
        clock: tells the time, in seconds.
    """

    def __init__(
        self,
        name: str,
        unit: str = "",
        total: int | None = None,
        *,
        at_most: bool = False,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.unit, self.total, self.at_most = name, unit, total, at_most
        self.done = self.before = done
        self.clock, self.start, self._lock = clock, clock(), Lock()

    def update(self, number: int = 1) -> None:
        """Say that so many more are done; any thread may."""
        with self._lock:
            self.done += number

    @property
    def seconds(self) -> float:
        """The seconds that it has taken so far."""
        return self.clock() - self.start

    @property
    def left(self) -> float | None:
        """The seconds that it will take, if the rest is like what is done; None if that is not known."""
        new = self.done - self.before
        return None if self.total is None or not new else self.seconds * max(0, self.total - self.done) / new

    def line(self) -> str:
        """Return what is done, and how long it will take.

        >>> times = iter([0.0, 30.0, 30.0])
        >>> work = Work("BayesianShapley", "evaluation", 2048, at_most=True, clock=lambda: next(times))
        >>> work.update(512)
        >>> work.line()
        'BayesianShapley: 512 of at most 2,048 evaluations in 30 s, at most 1 min 30 s to go'
        """
        most = "at most " * self.at_most
        if not self.unit:
            return f"{self.name}: {_duration(self.seconds)}"
        of = "" if self.total is None else f" of {most}{self.total:,}"
        text = f"{self.name}: {self.done:,}{of} {self.unit}s in {_duration(self.seconds)}"
        left = self.left
        return text if left is None else f"{text}, {most}{_duration(left)} to go"

    def bar(self, width: int) -> str:
        """Return the same as a bar, if it is known how much there is to do."""
        if self.total is None:
            return self.line()[:width]
        name = self.name + ", at most" * self.at_most
        meter: str = tqdm.format_meter(
            self.done, self.total, self.seconds, width, prefix=name, initial=self.before, bar_format=_BAR
        )
        return meter


def _duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> _duration(7.2), _duration(90), _duration(7260)
    ('7 s', '1 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, seconds = divmod(whole, 60)
    return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class _Watch:
    """The outermost work of a thread, with all work inside of it, and how it is shown."""

    def __init__(self, show: bool | None, say: Callable[[str], None] | None) -> None:
        self.stream = sys.stderr  # of now: others may redirect it meanwhile
        self.draws = _seen(self.stream) or (show is True and self.stream is not None)
        self.stays, self.say = self.draws and show is True, say or log.info
        self.patience = 0.0 if self.stays else _PATIENCE if self.draws else _LINE
        self.works: list[Work] = []
        self.drawn = 0  # characters on the screen
        self._over, self._lock = Event(), Lock()

    def begin(self) -> None:
        """Look at the clock from now on."""
        Thread(target=self._run, daemon=True, name="dasp progress").start()

    def end(self) -> None:
        """Write nothing more; a bar that was asked for stays as it is in the end."""
        with self._lock:
            self._over.set()
            if self.stays:
                self._draw()
                self.stream.write("\n")
            elif self.drawn:
                self.stream.write("\r" + " " * self.drawn + "\r")
            if self.drawn:
                self.stream.flush()
                _SCREEN.release()

    def _run(self) -> None:
        wait = self.patience
        while not self._over.wait(wait):
            self.tell()
            wait = _FRAME if self.draws else _LINE

    def tell(self) -> None:
        """Show what is being done, unless it is over."""
        with self._lock:
            if self._over.is_set():
                return
            if self.draws:
                self._draw()
            else:
                self.say("; ".join(work.line() for work in list(self.works)))

    def _draw(self) -> None:
        if not self.drawn and not _SCREEN.acquire(blocking=False):
            return  # somebody else draws
        width = max(20, shutil.get_terminal_size().columns - 1)
        text = self._bar(width)
        self.stream.write("\r" + text.ljust(self.drawn))
        self.stream.flush()
        self.drawn = max(1, len(text))

    def _bar(self, width: int) -> str:
        """Return the bar of the outermost work that can tell how far it is, or else of the innermost; before it, what
        it is a part of."""
        works = list(self.works)
        telling = next((work for work in works if work.left is not None), works[-1])
        before = "" if telling is works[0] else f"{works[0].name}: "
        return before + telling.bar(width - len(before))


def _seen(stream: Any) -> bool:
    """Return True if somebody looks at a stream: it is a terminal, or a notebook's."""
    return stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel"))


@contextmanager
def working(
    name: str,
    unit: str = "",
    total: int | None = None,
    *,
    at_most: bool = False,
    done: int = 0,
    show: bool | None = False,
    say: Callable[[str], None] | None = None,
) -> Iterator[Work]:
    """Do some work, of which people see how far it is; the arguments are those of `Work`.

    Args:
        show: None, True or False (see above), if it is not a part of other work, which decides for both.
        say: writes a line, in the place of the log.

    >>> with working("counting", "row", total=3) as progress:
    ...     progress.update(2)
    >>> progress.done
    2
    """
    work, outer = Work(name, unit, total, at_most=at_most, done=done), getattr(_here, "watch", None)
    watch = outer
    if watch is None and show is not False:
        watch = _here.watch = _Watch(show, say)
    if watch is None:
        yield work
        return
    watch.works.append(work)
    try:
        if outer is None:
            watch.begin()
        yield work
    finally:
        if outer is None:
            _here.watch = None
            watch.end()
        watch.works.remove(work)
