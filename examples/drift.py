"""Have explanations drifted? Two outputs of `dasp explain` are compared, column by column, and with what is noise.

    python drift.py monday.parquet tuesday.parquet

Of every column, the mean of |value| (how much it matters) and the mean of the value (which way it pushes) are compared
with what independent rows would differ by; with many columns some differ by chance, so that the level is shared among
them all. Values are estimates: where those of one output have larger errors, its |values| are larger as well, by at
most √(2/π) of the difference of the errors, which counts as noise. The distance of the outputs is the sum of the
differences of mean |value| over their sum; beside it stands what it exceeds in one of 20 cases if nothing has changed.
The exit code is 1 if anything is beyond noise.

Rows that belong together (of one customer, of neighbouring minutes) differ by less than independent ones from each
other, and by more from others: take one of each, or expect false alarms.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

LEVEL = 0.05  # of false alarms, over all columns together
DRAWS = 2000
UNLIKE = ("chunk", "threads", "seed", "with_data", "on_bad_row", "interactions")  # may differ: values mean the same

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Explained:
    """The values of an output, and what they are values of."""

    names: list[str]
    values: Numbers  # (rows, columns)
    error_std: Numbers  # of the same shape; 0 where the method is exact, or knows none
    record: dict[str, Any]

    @staticmethod
    def read(output: Path) -> Explained:
        """Read an output of `dasp explain` of a table."""
        table = pd.read_parquet(output)
        columns = list(table.columns)
        between = columns[columns.index("base_value") + 1 : columns.index("gap")]
        names = [name for name in between if not name.startswith("error_std:")]
        deviations = [table.get(f"error_std:{name}", pd.Series(0.0, table.index)) for name in names]
        return Explained(
            names,
            table[names].to_numpy(np.float64),
            np.stack(deviations, axis=1).astype(np.float64),
            json.loads(pq.read_metadata(output).metadata[b"dasp"]),
        )


@dataclass(frozen=True)
class Change:
    """The mean of something in two outputs, the difference that noise makes, and whether there is more of it."""

    name: str
    before: float
    after: float
    noise: float

    @property
    def real(self) -> bool:
        """True if the difference is beyond noise."""
        return abs(self.after - self.before) > self.noise


def bias(before: Explained, after: Explained) -> Numbers:
    """Return what different errors make of the mean |value| of every column, at most."""
    return math.sqrt(2 / math.pi) * np.abs(before.error_std.mean(0) - after.error_std.mean(0))


def changes(before: Explained, after: Explained) -> Iterator[tuple[Change, Change]]:
    """Yield, for every column, how the means of |value| and of the value have changed."""
    z = NormalDist().inv_cdf(1 - LEVEL / 2 / (2 * len(before.names)))
    found = []
    for one, other, extra in [
        (np.abs(before.values), np.abs(after.values), bias(before, after)),
        (before.values, after.values, 0.0),
    ]:
        noise = z * np.sqrt(one.var(0, ddof=1) / len(one) + other.var(0, ddof=1) / len(other)) + extra
        found.append(zip(before.names, one.mean(0), other.mean(0), noise, strict=True))
    for size, push in zip(*found, strict=True):
        yield Change(*size), Change(*push)


def distance(before: Explained, after: Explained, seed: int = 0) -> tuple[float, float]:
    """Return the sum of the differences of mean |value| over their mean sum (0 for the same, 2 for nothing in common),
    and the distance that noise exceeds in one of 20 cases: the differences are then Gaussian, as means of many rows
    are, with the covariances of the columns."""
    one, other = np.abs(before.values), np.abs(after.values)
    size = max((one.mean(0) + other.mean(0)).sum() / 2, 1e-300)
    spread = np.atleast_2d(np.cov(one.T)) / len(one) + np.atleast_2d(np.cov(other.T)) / len(other)
    drawn = np.random.default_rng(seed).multivariate_normal(np.zeros(len(spread)), spread, DRAWS, check_valid="ignore")
    noise = np.quantile(np.abs(drawn).sum(1), 1 - LEVEL) + bias(before, after).sum()
    return float(np.abs(one.mean(0) - other.mean(0)).sum() / size), float(noise / size)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what else than the data is different: then it need not be the data that has drifted."""
    options = {name for name in before["options"] | after["options"] if name not in UNLIKE}
    found = [name for name in sorted(options) if before["options"].get(name) != after["options"].get(name)]
    parts = {"parameters": "the model's parameters", "absent": "values of absent inputs", "software": "versions"}
    found = [f"the options {name}" for name in found]
    return found + [said for name, said in parts.items() if before[name] != after[name]]


def main(arguments: list[str] | None = None) -> int:
    """Print what has changed; return 1 if there is anything."""
    parser = argparse.ArgumentParser(description="Compare two outputs of dasp explain.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    before, after = Explained.read(given.before), Explained.read(given.after)
    if before.names != after.names:
        sys.exit(f"drift: the columns of {given.before} and {given.after} are not the same")
    for name in differences(before.record, after.record):
        print(f"warning: not only the data may have changed: {name} differ")
    print(f"{len(before.values):,} rows before, {len(after.values):,} after")
    print(f"{'':20} {'mean |value|':>19} {'noise':>8}   {'mean value':>19} {'noise':>8}")
    found = []
    for pair in sorted(changes(before, after), key=lambda pair: -pair[0].before):
        told = [f"{each.before:9.4g} {each.after:9.4g} {each.noise:8.2g}{'*' if each.real else ' '}" for each in pair]
        print(f"{pair[0].name[:20]:20} {'  '.join(told)}".rstrip())
        found += [pair[0].name] if any(each.real for each in pair) else []
    far, noise = distance(before, after)
    print(f"distance {far:.3f}; {noise:.3f} by noise alone")
    if not found and far > noise:
        found = ["all columns together"]
    print(f"drift of {', '.join(found)}" if found else "no drift is seen")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
