"""The way torch computes while values are estimated: with so many threads, and in memory that is kept.

**Memory.** Every operation of a network takes new memory for its result. What lies free at the end of the heap the C
library soon gives back to the system, and asks for it again at the next operation, a page of 4 KB at a time, each of
them filled with zeros: for EfficientNet-Lite0, 4 photos of 224 × 224 pixels at once, a third of all time (18.8 ms a
photo, and 13.6 without).

So the GNU C library is told to keep up to a gigabyte while something is computed, and afterwards as little as it keeps
by itself (64 MB, after large blocks were freed). Blocks of more than 32 MB are given back as ever: kept as well, they
made 16 photos at once quicker (9.5 ms a photo), but where small objects came to lie between blocks of one size, a
process took 6 GB for what needs .1. Who has set these limits by environment variables keeps them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import torch

__all__ = ["computing"]

_TRIM, _MAP = -1, -3  # the C library's options: what may lie free at the heap's end, and what is a block of its own
_KEPT, _USUAL, _OWN_BLOCK = 2**30, 2**26, 2**25  # bytes; the last two are the largest that it chooses by itself
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_")

_lock = Lock()
_computing = 0  # how many of the process's threads are


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """Compute with so many of torch's threads, and keep memory. The number is one of the thread that asks, so that
    threads that explain at the same time are not in each other's way; those that begin meanwhile have it, too.

    >>> with computing(1):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if threads != before:
        torch.set_num_threads(threads)
    _keep(1)
    try:
        yield
    finally:
        _keep(-1)
        if threads != before:
            torch.set_num_threads(before)


def _keep(step: int) -> None:
    """Count who computes; the first one has memory kept, and the last one has it given back."""
    global _computing  # noqa: PLW0603 (the C library has one setting for the process)
    with _lock:
        _computing += step
        if _computing == max(0, step) and (setting := _setting()):
            setting(_MAP, _OWN_BLOCK)
            setting(_TRIM, _KEPT if step > 0 else _USUAL)


@cache
def _setting() -> Callable[[int, int], Any] | None:
    """Return the function that sets the C library's options, if it is the GNU one and nobody has set them."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _VARIABLES):
        return None
    if "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    library = ctypes.CDLL(None)
    return library.mallopt if hasattr(library, "gnu_get_libc_version") else None
