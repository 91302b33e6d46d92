"""A small model and data files for the tests of `dasp explain`, and the command as a function."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from dasp.cli import main
from dasp.jobs.record import AbsentInputs, JobRecord, SkippedRows, Software

FACTORY = """
import torch
from torch import nn


def build(inputs=4, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


def single():
    return build(outputs=1)


def wide():
    return build(inputs=12)


def pictures():
    return nn.Sequential(nn.Flatten(), build(inputs=16))


def fails():
    raise RuntimeError("no weights today")


def number():
    return 3


def unseeded():
    return nn.Sequential(nn.Linear(4, 3))


def words():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(12, 3))


def brain():
    return build().bfloat16()


def abrupt():
    \"\"\"One player decides, and units of the second layer are on or off by it: far from Gaussian.\"\"\"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    model[0].weight.data[:, 0] *= 8
    model[2].weight.data *= 10
    model[2].bias.data -= 10
    return model


class Mixed(nn.Module):
    \"\"\"Its last input is a category, and the others are numbers.\"\"\"

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.names, self.last = nn.Embedding(10, 3), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.cat([x[:, :3], self.names(x[:, -1].long())], 1))


class Pole(nn.Module):
    def forward(self, x):
        return 1 / (x[:, :1] - 7) + x.sum(1, keepdim=True)


class Surface(nn.Module):
    def forward(self, x):
        return 1 / (x[:, :3].sum(1) - 7)


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Cube(nn.Module):
    def forward(self, x):
        return x[:, :, None] * x[:, None]


class Total(nn.Module):
    def forward(self, x):
        return x.sum()
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


def dasp(*arguments: object) -> Result:
    """`dasp …` in this process."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
    assert isinstance(code, int)
    return Result(code, out.getvalue(), err.getvalue())


def besides_random(err: str) -> str:
    """What is on stderr, but for the line that says that the weights of a factory are random."""
    return "".join(line for line in err.splitlines(keepends=True) if "its weights are random" not in line)


def record(**options: object) -> JobRecord:
    """The record of some job."""
    return JobRecord(
        options, {}, Software("0", "0"), "parameters", "outputs", SkippedRows(), AbsentInputs("baselines"), {}, "none"
    )


def rows(number: int = 10, inputs: int = 4) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(number, inputs)).round(4).astype(np.float32)


def write_csv(file: Path, table: np.ndarray, names: str = "a,b,c,d") -> None:
    file.write_text("\n".join([names, *(",".join(map(str, row)) for row in table)]) + "\n")


def write_good_files(folder: Path) -> None:
    """A model and 50 rows, as CSV, TSV, Parquet, NPY and NPZ."""
    (folder / "small.py").write_text(FACTORY)
    sys.modules.pop("small", None)  # of another folder
    x = rows(50)
    write_csv(folder / "rows.csv", x)
    (folder / "rows.tsv").write_text((folder / "rows.csv").read_text().replace(",", "\t"))
    pd.DataFrame(x, columns=list("abcd")).to_parquet(folder / "rows.parquet", row_group_size=7)
    np.save(folder / "rows.npy", x)
    np.savez_compressed(folder / "rows.npz", x)
