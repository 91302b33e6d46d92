"""`python -m dasp`, and what the command `dasp` calls: says what to install where the command line's libraries are missing."""

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
