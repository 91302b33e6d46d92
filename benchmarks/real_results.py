"""The measurements of `real.py` in their file, and how errors are compared."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dasp
from reproduction.store import write

FILE = Path(__file__).parent / "results" / "real.csv"
BUDGETS = (64, 128, 256, 1024)
OWN, TIME = "own", "time"  # budgets: the default's own, and the default's seconds
_FLOOR = 1e-3


@dataclass(frozen=True)
class Row:
    """One measurement."""

    game: str
    network: str
    kind: str  # of players
    players: int
    truth_error: float
    what: str  # default, method or peer
    budget: str  # own, time or a number of evaluations
    method: str
    error: float
    stated: float = math.nan
    coverage: float = math.nan
    seconds: float = math.nan
    first_seconds: float = math.nan
    evaluations: float = math.nan
    memory: float = math.nan  # MB

    @staticmethod
    def read(cells: dict[str, str]) -> Row:
        """Return the row of a line of the file."""
        numbers = {field.name for field in fields(Row) if field.type == "float"}
        made: dict[str, Any] = {key: float(text or "nan") if key in numbers else text for key, text in cells.items()}
        return Row(**{**made, "players": int(cells["players"])})

    def cells(self) -> dict[str, str]:
        """Return a line of the file."""
        return {
            key: ("" if math.isnan(value) else f"{value:.4g}") if isinstance(value, float) else str(value)
            for key, value in asdict(self).items()
        }

    @property
    def floor(self) -> float:
        """The error below which nothing is told apart."""
        return max(_FLOOR, self.truth_error / 2)


@dataclass
class Results:
    """The measurements of a file, which is written after every game."""

    file: Path
    rows: list[Row]
    order: Sequence[str] = ()  # of games

    @staticmethod
    def of(file: Path, order: Sequence[str] = ()) -> Results:
        """Read a file, if there is one."""
        lines = file.read_text().splitlines() if file.exists() else []
        own = [line for line in lines if not line.startswith("# ")]
        return Results(file, [Row.read(cells) for cells in csv.DictReader(own)], order)

    def replace(self, rows: list[Row]) -> None:
        """Put rows in the place of those with the same game, kind and budget, and write the file anew; what another
        process has written meanwhile is kept."""
        self.rows = Results.of(self.file).rows
        new = {(row.game, row.what, row.budget) for row in rows}
        kept = [row for row in self.rows if (row.game, row.what, row.budget) not in new]
        order = {name: number for number, name in enumerate(self.order)}
        self.rows = sorted([*kept, *rows], key=lambda row: order.get(row.game, len(order)))
        text = io.StringIO()
        text.write(f"# by: benchmarks/real.py\n# version: {dasp.__version__}\n# date: {datetime.now(UTC):%Y-%m-%d}\n")
        lines = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
        lines.writeheader()
        lines.writerows(row.cells() for row in self.rows)
        write(self.file, text.getvalue().encode())

    def of_game(self, game: str, what: str, budget: str) -> list[Row]:
        """Return the rows of a game, of one kind and budget."""
        return [row for row in self.rows if (row.game, row.what, row.budget) == (game, what, budget)]

    def defaults(self, budget: str = OWN) -> list[Row]:
        """Return the rows of the default with a budget."""
        return [row for row in self.rows if row.what == "default" and row.budget == budget]


def best(rows: Iterable[Row]) -> Row:
    """Return the row with the least error."""
    return min(rows, key=lambda row: row.error)


def ratio(row: Row, rival: Row) -> float:
    """Return the error of a row divided by that of another, both at least the floor."""
    return max(row.error, row.floor) / max(rival.error, row.floor)


def geometric_mean(numbers: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return math.exp(sum(map(math.log, numbers)) / len(numbers))
