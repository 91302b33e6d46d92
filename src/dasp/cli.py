"""The command line: `dasp reproduce`, `dasp benchmark`, `dasp explain`.

A command only reads its options here; the work is done elsewhere, and imported when the command runs. Exit codes: 0
done, 2 input that cannot be used (one line on stderr), 1 anything else.
"""

from __future__ import annotations

import sys

import typer

from dasp.errors import BadInput

app = typer.Typer(
    name="dasp",
    help="Shapley values for PyTorch models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Shapley values for PyTorch models."""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        app()
    except BadInput as error:
        print(f"dasp: {error}", file=sys.stderr)
        sys.exit(2)
