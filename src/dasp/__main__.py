"""The command `dasp`, and `python -m dasp`.

Nothing that takes long is imported here, so that an interrupt is answered from the start, and missing libraries of the
command line are named.
"""

from __future__ import annotations

import os
import sys

from dasp.errors import NO_MEMORY, lacks_memory, stops_at_once

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    _open_streams()
    try:
        with stops_at_once():
            from dasp.cli import main as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        sys.exit(f"dasp: {error.name} is missing: pip install 'torch-dasp[cli]'")
    except (ImportError, MemoryError) as error:
        if (what := lacks_memory(error)) is None:
            raise
        sys.exit(NO_MEMORY.format(what))
    run()


def _open_streams() -> None:
    """Open the streams that the process was started without (`2>&-`): else the first file that is opened would be in
    the place of one, and libraries would write their messages into it."""
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # which takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


if __name__ == "__main__":
    main()
