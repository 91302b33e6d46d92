"""The command `dasp`, and `python -m dasp`.

Nothing that takes long is imported here, so that an interrupt is answered from the start, and missing libraries of the
command line are named.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERRUPTED", "INTERRUPTED_CODE", "main", "stops_at_once"]

INTERRUPTED = "dasp: interrupted; run the same command again to go on where it stopped"
INTERRUPTED_CODE = 130


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


def main() -> None:
    """Run the command line."""
    try:
        with stops_at_once():
            from dasp.cli import main as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.exit(f"dasp: {error.name} is missing: pip install 'torch-dasp[cli]'")
    run()


if __name__ == "__main__":
    main()
