"""The command `dasp`, outside of the package, which takes seconds to import: so an interrupt is always answered."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["INTERRUPTED", "main", "stops_at_once"]

INTERRUPTED = "dasp: interrupted; run the same command again to go on where it stopped"


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
    os._exit(130)


def main() -> None:
    """Run the command line."""
    with stops_at_once():
        from dasp.__main__ import main as run  # noqa: PLC0415
    run()


if __name__ == "__main__":
    main()
