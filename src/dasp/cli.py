"""The command line: `dasp reproduce`, `dasp benchmark`, `dasp explain`.

A command only reads its options here; the work is done elsewhere, and imported when the command runs. Exit codes: 0
done, 2 input that cannot be used (one line on stderr), 1 anything else.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dasp.errors import BadInput

app = typer.Typer(
    name="dasp",
    help="Shapley values for PyTorch models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


_Experiment = Annotated[str, typer.Argument(help="parkinsons, dna, mnist or all")]
_Full = Annotated[bool, typer.Option("--full", help="The paper's sizes: hours instead of minutes.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="The folder for results and what is kept of them.")]
_Threads = Annotated[int, typer.Option(min=1, help="Threads for torch.")]


@app.command()
def reproduce(
    experiment: _Experiment = "all", full: _Full = False, output: _Output = Path("results"), threads: _Threads = 2
) -> None:
    """The paper's three experiments: train, explain by every method, compare, and show all of it on one page."""
    from dasp.experiments.reproduce import reproduce  # noqa: PLC0415  # torch and matplotlib take seconds

    reproduce(experiment, output, Console(), full=full, threads=threads)


@app.command()
def benchmark(
    experiment: _Experiment = "all", full: _Full = False, output: _Output = Path("results"), threads: _Threads = 2
) -> None:
    """Our estimators against shap, captum and shapiq: same networks, rows, truth and threads, in one run."""
    from dasp.experiments.benchmark import benchmark  # noqa: PLC0415  # torch and matplotlib take seconds

    benchmark(experiment, output, Console(), full=full, threads=threads)


def main() -> None:
    """Run the command that the arguments name."""
    try:
        app()
    except BadInput as error:
        print(f"dasp: {error}", file=sys.stderr)
        sys.exit(2)
