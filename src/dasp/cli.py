"""The command line: `dasp reproduce`, `dasp benchmark`, `dasp explain`.

A command only reads its options here; the work is done elsewhere, and imported when the command runs. Exit codes: 0
done, 2 input that cannot be used (one line on stderr), 130 interrupted, 1 anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

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

_USAGE: type[Any] = typer.BadParameter.__mro__[2]  # the exception of all usage errors; Typer has its own Click by now

_INTERRUPTED = 130


_Experiment = Annotated[str, typer.Argument(help="parkinsons, dna, mnist or all")]
_Full = Annotated[bool, typer.Option("--full", help="The paper's sizes: hours instead of minutes.")]
_Output = Annotated[Path, typer.Option("--output", "-o", help="The folder for results and what is kept of them.")]
_Threads = Annotated[int, typer.Option(min=1, help="Threads for torch.")]


@app.command()
def reproduce(
    experiment: _Experiment = "all", full: _Full = False, output: _Output = Path("results"), threads: _Threads = 2
) -> None:
    """The paper's three experiments: train, explain by every method, compare, and show all of it on one page."""
    with _needs("experiments"):
        from dasp.paper.reproduce import reproduce as run  # noqa: PLC0415  # torch and matplotlib take seconds
    run(experiment, output, Console(), full=full, threads=threads)


@app.command()
def benchmark(
    experiment: _Experiment = "all", full: _Full = False, output: _Output = Path("results"), threads: _Threads = 2
) -> None:
    """Our estimators against shap, captum and shapiq: same networks, rows, truth and threads, in one run."""
    with _needs("experiments"):
        from dasp.paper.benchmark import benchmark as run  # noqa: PLC0415
    run(experiment, output, Console(), full=full, threads=threads)


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    """Say what to install, if a library is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BadInput(f"{error.name} is missing: pip install 'torch-dasp[{extra}]'") from error


def _option(text: str, *names: str, panel: str | None = None) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel)


@app.command()
def explain(
    model: Annotated[
        str, typer.Argument(help="A .pt2 file (torch.export.save), a .keras file, or a factory package.module:build.")
    ],
    data: Annotated[Path, typer.Argument(help="A .csv, .parquet, .npy or .npz file, or a folder of images.")],
    output: Annotated[Path, _option("Where the explained rows go, a .parquet file.", "--output", "-o")],
    weights: Annotated[Path | None, _option("A state dict for the factory: .safetensors, .pt.")] = None,
    trust: Annotated[bool, _option("Read a pickled model: it can run any code.", "--trust")] = False,
    target: Annotated[
        str | None, _option("The output to explain: its index, 'predicted', or a column with an index for each row.")
    ] = None,
    baseline: Annotated[
        str | None, _option("What an absent input is: zero (if not given), mean, a number, or a file with one row.")
    ] = None,
    background: Annotated[Path | None, _option("A file of rows that absent inputs are averaged over.")] = None,
    groups: Annotated[
        Path | None, _option("Inputs that come and go together: .json, lists of columns by name; or .npy, numbers.")
    ] = None,
    columns: Annotated[
        str | None, _option("The inputs, in the model's order: a,b,c. All columns, if not given.")
    ] = None,
    drop: Annotated[str | None, _option("Columns that are no inputs: a,b,c.")] = None,
    id_: Annotated[str | None, _option("The column that names the rows. Row numbers, if not given.", "--id")] = None,
    on_bad_row: Annotated[str, _option("fail or skip, where entries are missing or infinite, or outputs.")] = "fail",
    method: Annotated[str, _option("auto, exact, dasp, gradient, bayesian, permutation, …")] = "auto",
    tolerance: Annotated[float | None, _option("The error to reach, relative to the output's change.")] = None,
    max_evaluations: Annotated[int | None, _option("Evaluations of the model for each row, at most.")] = None,
    error_bars: Annotated[bool, _option("Standard deviations of the values.", "--error-bars")] = False,
    seed: Annotated[int, _option("Of what is random.")] = 0,
    device: Annotated[str | None, _option("cpu, cuda, …")] = None,
    batch_size: Annotated[int | None, _option("Rows the model is given at once.")] = None,
    chunk: Annotated[int | None, _option("Rows done together: what a killed job loses at most.")] = None,
    threads: Annotated[int | None, _option("Threads of a worker. All cores, if not given; 1 with Ray.")] = None,
    engine: Annotated[str, _option("local or ray.")] = "local",
    workers: Annotated[int | None, _option("Ray workers, at most.")] = None,
    ray_address: Annotated[str | None, _option("A running Ray; else one is started here.")] = None,
    overwrite: Annotated[bool, _option("Replace what another job has left there.", "--overwrite")] = False,
) -> None:
    """Explain every row of DATA by MODEL.

    If it is interrupted, the same command goes on where it was; the result is the same to the byte.
    """
    given = dict(locals())
    given["id"] = given.pop("id_")
    with _needs("cli"):
        from dasp.jobs.identity import Options  # noqa: PLC0415
        from dasp.jobs.run import explain as run  # noqa: PLC0415
    options = Options(**given)
    if options.engine == "ray":
        with _needs("cluster"):
            import ray  # noqa: F401, PLC0415
    run(options)


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name."""
    try:
        code = app(arguments, standalone_mode=False)
    except BadInput as error:
        _stop(f"dasp: {error}", 2)
    except _USAGE as error:
        message = " ".join(error.format_message().split())
        _stop(f"dasp: {message}" if message else "", 2)  # none, if it has printed its help
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:  # Typer may have caught it
        _stop("dasp: interrupted; the same command goes on where it was", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> None:
    if message:
        print(message, file=sys.stderr)
    sys.exit(code)
