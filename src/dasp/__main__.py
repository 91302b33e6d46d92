"""The command `dasp`, and `python -m dasp`.

Nothing that takes long is imported here, so that an interrupt is answered from the start, and missing libraries of the
command line are named.
"""

from __future__ import annotations

import sys

from dasp.errors import stops_at_once

__all__ = ["main"]


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
