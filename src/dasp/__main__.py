"""`python -m dasp`, also for the command `dasp`: says what to install where libraries of the command are missing."""

from __future__ import annotations

import sys

from dasp_command import stops_at_once

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
