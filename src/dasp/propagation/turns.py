"""Turns of threads: many may evaluate models at the same time, but who traces one does so alone.

While torch.export runs, the weights of the model are fakes, and `nn.Module` is patched for the whole process. Whatever
another thread evaluates meanwhile would be wrong, and so might be the graph. All that this library evaluates is
therefore done in `evaluating`, and all that it traces in `alone`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident

__all__ = ["alone", "evaluating"]


class _Turns:
    """Who is evaluating, who waits to be alone, and who is."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside: Counter[int] = Counter()  # threads that evaluate, and how deeply nested
        self._waiting: set[int] = set()  # threads that want to be alone; they do not evaluate as long as they wait
        self._alone: int | None = None
        self._depth = 0

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        me = get_ident()
        with self._changed:
            self._changed.wait_for(lambda: self._alone == me or (self._alone is None and self._may_begin(me)))
            self._inside[me] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        me = get_ident()
        with self._changed:
            if self._alone != me:
                self._waiting.add(me)
                self._changed.notify_all()
                try:
                    self._changed.wait_for(lambda: self._alone is None and not self._others(me))
                finally:
                    self._waiting.remove(me)
                self._alone = me
            self._depth += 1
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                if not self._depth:
                    self._alone = None
                    self._changed.notify_all()

    def _may_begin(self, me: int) -> bool:
        """Who waits to be alone goes before who begins, or would wait for ever."""
        return me in self._inside or not self._waiting

    def _others(self, me: int) -> set[int]:
        return self._inside.keys() - self._waiting - {me}


_TURNS = _Turns()
evaluating, alone = _TURNS.evaluating, _TURNS.alone
