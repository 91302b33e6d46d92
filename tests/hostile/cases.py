"""All cases of the tables of commands and of changed outputs, as they are answered: `python -m tests.hostile --cases`.

Each has the exit code and the line on stderr, in tables of Markdown; the last table is their numbers.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bad_files import write_bad_files, write_outputs
from commands import AUDITS, CASES
from explain_files import besides_random, dasp
from outputs import valid
from tampered_outputs import TAMPERED

__all__ = ["Case", "all_cases", "expected", "numbers", "table"]

COMMANDS, AUDITED, CHANGED = "dasp explain", "dasp audit", "dasp report"
CODES = (2, 0)


@dataclass(frozen=True)
class Case:
    """A case of a command, with the exit code and what is on stderr."""

    command: str
    name: str
    code: int
    line: str


def all_cases() -> Iterator[Case]:
    """Run all cases."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        here = Path(name)
        write_bad_files(here)
        for case, (typed, _) in CASES.items():
            yield _run(COMMANDS, case, *shlex.split(typed), *([] if " -o " in typed else ["-o", "out.parquet"]))
        write_outputs(here)
        for case, (typed, _) in AUDITS.items():
            yield _run(AUDITED, case, *shlex.split(typed))
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        for case, (kind, change, _) in TAMPERED.items():
            output = valid(kind)
            change(output)
            yield _run(CHANGED, case, output.write(Path()), "page.html")


def _run(command: str, case: str, *typed: object) -> Case:
    result = dasp(*command.split()[1:], *typed)
    return Case(command, case, result.code, besides_random(result.err).strip().replace(f"{Path.cwd()}/", ""))


def expected() -> Counter[tuple[str, int]]:
    """Return how many cases of a command must have an exit code, which the tests hold."""
    return Counter({
        (COMMANDS, 2): len(CASES), (AUDITED, 2): len(AUDITS),
        **{(CHANGED, code): sum((2 if line else 0) == code for _, _, line in TAMPERED.values()) for code in CODES},
    })  # fmt: skip


def numbers(found: Counter[tuple[str, int]]) -> str:
    """Return a table of the numbers of cases."""
    what = {
        COMMANDS: "a model, data or an option that cannot be used",
        AUDITED: "values, a record or an option that cannot be used",
        CHANGED: "an output that somebody has changed",
    }
    lines = ["| command | what is given | exit code 2, one line | shown, exit code 0 |", "| --- | --- | --- | --- |"]
    lines += [f"| `{command}` | {said} | {found[command, 2]} | {found[command, 0]} |" for command, said in what.items()]
    strange = [f"\n{number} of {command} with exit code {code}" for (command, code), number in found.items()
               if code not in CODES]  # fmt: skip
    return "\n".join(lines) + "".join(strange)


def table(cases: Iterable[Case]) -> Iterator[str]:
    """Yield the lines of a table for each command, and of the numbers."""
    found, before = Counter[tuple[str, int]](), ""
    for case in cases:
        if case.command != before:
            yield from (f"\n## {case.command}\n", "| case | exit code | on stderr |", "| --- | --- | --- |")
        before = case.command
        found[case.command, case.code] += 1
        shown = case.line.replace("|", "\\|").replace("\n", " ⏎ ").encode(errors="backslashreplace").decode()
        yield f"| {case.name} | {case.code} | {shown} |"
    yield f"\n{numbers(found)}"
