"""A lock between evaluating models and exporting them.

While torch.export runs, the weights of the model are fakes, and `nn.Module` is patched for the whole process. Whatever
another thread evaluates meanwhile would be wrong, and so might be the graph. So this library evaluates models under
`evaluation_lock`, which any number of threads may hold at the same time, and exports them under `export_lock`, which
one thread holds while nobody else holds either. Both may be nested, and a thread may ask for the second while it holds
the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, get_ident

__all__ = ["evaluation_lock", "export_lock"]

_changed = Condition()
_evaluating: Counter[int] = Counter()  # threads that hold the lock for evaluation, and how deeply nested
_waiting: set[int] = set()  # threads that wait to export; they evaluate nothing while they wait
_exporting: list[int] = []  # the thread that exports, once for every nested lock


@contextmanager
def evaluation_lock() -> Iterator[None]:
    """Keep other threads from exporting a model while this one evaluates a model.

    >>> with evaluation_lock(), evaluation_lock():
    ...     pass
    """
    me = get_ident()
    with _changed:
        # Threads that wait to export go before those that begin to evaluate, or they might wait for ever.
        _changed.wait_for(lambda: me in _exporting or not (_exporting or (_waiting and me not in _evaluating)))
        _evaluating[me] += 1
    try:
        yield
    finally:
        with _changed:
            _evaluating[me] -= 1
            if not _evaluating[me]:
                del _evaluating[me]
                _changed.notify_all()


@contextmanager
def export_lock() -> Iterator[None]:
    """Keep other threads from evaluating or exporting models while this one exports a model.

    >>> with evaluation_lock(), export_lock(), evaluation_lock():
    ...     pass
    """
    me = get_ident()
    with _changed:
        if me not in _exporting:
            _waiting.add(me)
            _changed.notify_all()
            try:
                _changed.wait_for(lambda: not _exporting and not (_evaluating.keys() - _waiting - {me}))
            finally:
                _waiting.remove(me)
        _exporting.append(me)
    try:
        yield
    finally:
        with _changed:
            _exporting.pop()
            if not _exporting:
                _changed.notify_all()
