"""The command line: `dasp explain`, `dasp report`, `dasp audit`.

A command only reads its options here; the work is done elsewhere, and imported when the command runs. Exit codes: 0
done, 2 input that cannot be used (one line on stderr), 130 interrupted, 1 anything else.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import MISSING, fields
from functools import cache
from inspect import Parameter, Signature, signature
from json import dumps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.main import get_command

import dasp
from dasp.errors import INTERRUPTED, INTERRUPTED_CODE, ending, missing_library, stops_at_once
from dasp.jobs.job import explained
from dasp.jobs.options import AUDIT_OPTIONS, OPTIONS, Options, name_of

app = typer.Typer(
    name="dasp",
    help="Shapley values for PyTorch models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_USAGE: type[Any] = typer.BadParameter.__mro__[2]  # the exception of all usage errors; Typer has its own Click by now

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # what would not stay on its line, or visible


def _say_version(asked: bool) -> None:
    if asked:
        print(f"dasp {dasp.__version__}")
        raise typer.Exit


@app.callback()
def _any_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    pass


@contextmanager
def _needs(extra: str) -> Iterator[None]:
    """Say what to install, if a library is missing."""
    try:
        with stops_at_once():
            yield
    except ModuleNotFoundError as error:
        raise missing_library(error.name, extra) from error


def _takes_options(names: Iterable[str], *, all_given: bool = True) -> Callable[[Callable[..., None]], Any]:
    """Give a command the signature that Typer reads: a parameter for each of some fields of `Options`, besides its own.
    Unless all of them have a value, there are no arguments among them, and what is not given is None."""
    types, defaults = get_type_hints(Options), {field.name: field.default for field in fields(Options)}
    parameters = []
    for name in names:
        option = OPTIONS[name]
        panel = option.panel if all_given or not option.positional else name.capitalize()
        about: Any = {"help": option.help, "rich_help_panel": panel}
        if option.positional and all_given:
            info = typer.Argument(metavar=name_of(name), **about)
        else:
            metavar = "|".join(option.choices) or None
            flags = option.flags or ([f"--{name}"] if option.positional else [name_of(name)])
            info = typer.Option(*flags, metavar=metavar, **about)
        kind = types[name] if all_given else types[name] | None
        default = None if not all_given else Parameter.empty if defaults[name] is MISSING else defaults[name]
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]))

    def described(command: Any) -> Any:
        given = signature(command, eval_str=True).parameters.values()
        own = [each for each in given if each.kind != Parameter.VAR_KEYWORD]
        command.__signature__ = Signature([*own, *parameters])
        return command

    return described


@app.command()
@_takes_options(OPTIONS)
def explain(**given: Any) -> None:
    """Explain every row of DATA: write the Shapley values of MODEL's inputs to a Parquet file.

    If it is interrupted, run the same command again: it goes on where it stopped, and writes the same bytes.
    """
    explained(Options(**given), print, stops_at_once, (SystemExit, typer.Exit))


@app.command()
def report(
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A .parquet or .csv file that dasp explain wrote.")],
    page: Annotated[Path, typer.Argument(metavar="PAGE", help="The .html file to write.")],
    rows: Annotated[
        int | None, typer.Option(min=1, help="Largest number of rows to show. If not given: as many as have room.")
    ] = None,
) -> None:
    """Show an OUTPUT of dasp explain on one PAGE that needs no network: what matters, and why, row by row."""
    _report(output, page, rows)


@app.command()
@_takes_options(AUDIT_OPTIONS, all_given=False)
def audit(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Values to check: an output of dasp explain, which says itself what it is of; or a .csv, .parquet, "
            ".npy or .npz file of anybody's, with --model and --data.",
        ),
    ],
    evaluations: Annotated[
        int, typer.Option(min=10, max=2**20, help="Coalitions to evaluate for each row: more say more.")
    ] = 128,
    rows: Annotated[int, typer.Option(min=1, help="Largest number of rows to look at, drawn by the seed.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="Print the verdict and its numbers as JSON.")] = False,
    **given: Any,
) -> None:
    """Say how far the values in FILE are from the Shapley values, and whether the most important inputs are the right
    ones, by evaluating some coalitions of inputs."""
    with _needs("cli"):
        from dasp.jobs.file_audit import audit_file  # noqa: PLC0415
    found = audit_file(file, {name: value for name, value in given.items() if value is not None}, evaluations, rows)
    if json:
        print(dumps(found.to_json()))
    else:
        for line in found.lines():
            print(line)


def _report(output: Path, page: Path, rows: int | None = None) -> None:
    with _needs("cli"):
        from dasp.pages import write_report  # noqa: PLC0415
    shown = write_report(output, page, **({} if rows is None else {"most": rows}))
    print(f"{page}: {shown:,} row{'s' * (shown != 1)} to look at; open it in a browser")


def main(arguments: list[str] | None = None) -> None:
    """Run the command that the arguments name."""
    with redirect_stdout(_lasting(sys.stdout)), redirect_stderr(_lasting(sys.stderr)):
        _main(arguments)


@cache
def _command() -> Any:
    """Return all commands as Typer makes them of their functions, which is done once."""
    return get_command(app)


def _main(arguments: list[str] | None) -> None:
    try:
        code = _command()(arguments, standalone_mode=False)
    except _USAGE as error:
        message = " ".join(error.format_message().split())
        _stop(f"dasp: {message}" if message else "", 2)  # none, if it has printed its help
    except typer.Abort as stop:
        if isinstance(stop.__cause__, EOFError):  # a file that ends early, not the user
            raise stop.__cause__ from None
        code = INTERRUPTED_CODE
    except (Exception, KeyboardInterrupt) as error:
        code, line = ending(error)
        if line is None:
            raise
        _stop(line, code)
    if code == INTERRUPTED_CODE:  # Typer may have caught it
        _stop(INTERRUPTED, INTERRUPTED_CODE)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int) -> None:
    if message:
        print(_UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), message), file=sys.stderr)
    sys.exit(code)


class _Lasting:
    """A stream whose reader may leave (`dasp … | head -1`): what is written afterwards is lost, but the job goes on."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write as far as it is possible."""
        try:
            return self._stream.write(text)
        except OSError:
            self._leave()
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write as far as it is possible."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush as far as it is possible."""
        try:
            self._stream.flush()
        except OSError:
            self._leave()

    def _leave(self) -> None:
        """Write to nowhere from now on: the stream still has what it could not write, and tries again at the end."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


def _lasting(stream: Any) -> Any:
    """Return a stream of the process that fails neither without a reader nor at a letter that the terminal has not."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="backslashreplace", line_buffering=True)
    return _Lasting(stream)
