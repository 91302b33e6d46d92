"""The command line of the reproduction: `python -m reproduction demo` and `python -m reproduction benchmark`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from dasp.errors import BadInput

__all__ = ["main"]

_NAME = "python -m reproduction"
_INTERRUPTED = 130  # the exit code of a command that was interrupted


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except BadInput as error:
        sys.exit(_said(str(error), 2))
    except KeyboardInterrupt:
        sys.exit(_said("interrupted; run the same command again to continue where it stopped", _INTERRUPTED))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_NAME, description="The experiments of the DASP paper, reproduced.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, about in (
        ("demo", "Explain a network with dasp, then run the paper's experiments, and show everything on one page."),
        ("benchmark", "Compare the estimators of dasp with shap, Captum and shapiq: same networks, rows and threads."),
    ):
        command = commands.add_parser(name, help=about, description=about)
        command.add_argument("experiment", nargs="?", default="all", help="parkinsons, dna, mnist, or all (default)")
        command.add_argument(
            "--size", choices=["quick", "standard", "paper"], default="quick",
            help="how many rows and evaluations: quick takes minutes (default), paper is the paper's and takes hours",
        )  # fmt: skip
        command.add_argument(
            "-o", "--output", type=Path, default=Path("results"), help="folder of the results (default: results)"
        )
        command.add_argument("--threads", type=_positive, default=2, help="threads of torch (default: 2)")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def _run(options: argparse.Namespace) -> None:
    from rich.console import Console  # noqa: PLC0415  # these and torch take seconds, which --help need not wait for

    from reproduction.experiment import SizeName  # noqa: PLC0415

    chosen = {"size": SizeName(options.size), "threads": options.threads}
    if options.command == "demo":
        from reproduction.demo import demo  # noqa: PLC0415

        demo(options.experiment, options.output, Console(), **chosen)
    else:
        from reproduction.benchmark import benchmark  # noqa: PLC0415

        benchmark(options.experiment, options.output, Console(), **chosen)


def _said(message: str, code: int) -> int:
    print(f"{_NAME}: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    # Threads that wait do not spin: on a busy machine spinning makes everything many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    main()
