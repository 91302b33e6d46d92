"""Outputs of `dasp explain`, changed at random: their columns, their metadata, and their bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
from damaged_files import damaged
from fuzzer import Subject
from outputs import KINDS, Output, changed, valid

from dasp.pages.write import write_report

_BYTES = 0.15  # of the files are damaged in their bytes as well


def _valid(output: Output, folder: Path) -> Iterator[Path]:
    yield output.write(folder)


def _changed(output: Output, folder: Path, chance: random.Random, bait: str) -> Path:
    while True:
        try:
            file = changed(output, chance).write(folder)
        except (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError):  # the library cannot write it
            continue
        if chance.random() < _BYTES:
            file.write_bytes(damaged(file.read_bytes(), chance, [file.read_bytes()], bait))
        return file


def _report(file: Path, _: random.Random) -> None:
    write_report(file, file.with_name("page.html"))


def subjects() -> list[Subject]:
    """All kinds of outputs."""
    return [
        Subject(f"output of {kind}", partial(_valid, valid(kind)), partial(_changed, valid(kind)), _report)
        for kind in KINDS
    ]
