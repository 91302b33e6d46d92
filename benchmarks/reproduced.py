"""Keeps what the demo and the benchmark of the reproduction found as data for the tables of the documentation.

    python -m reproduction demo && python -m reproduction benchmark
    python benchmarks/reproduced.py [--results results] [--size quick] [--threads 2]
    python benchmarks/page_tables.py

Networks, truths and results are taken from the run's cache, so this takes seconds; what is not there is computed.

    benchmarks/results/reproduced/about.json     the run: versions, size, networks, rows
    benchmarks/results/reproduced/claims.csv     the paper's claims, what was found, and whether they hold
    benchmarks/results/reproduced/mnist.csv, …   every method with every budget
    benchmarks/results/libraries/mnist.csv, …    the same of the benchmark, with the peers
"""

from __future__ import annotations

import argparse
import csv
import json
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import dasp
from reproduction.claims import claims
from reproduction.demo import EXPERIMENTS
from reproduction.experiment import SizeName
from reproduction.outcome import Outcome, prepare, run
from reproduction.store import Store

FOLDER = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--size", type=SizeName, default=SizeName.QUICK)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    store = Store(options.results / "cache")
    outcomes = [
        run(prepare(experiment, experiment.sizes[options.size], store, _said), store, _said)
        for experiment in EXPERIMENTS.values()
    ]
    keep(outcomes, FOLDER / "reproduced", options.size, options.threads)
    for file in sorted((options.results / "benchmark").glob("*.json")):
        record = json.loads(file.read_text())
        write_csv(FOLDER / "libraries" / f"{file.stem}.csv", record["results"])
        about = {name: part for name, part in record.items() if name not in _LONG}
        (FOLDER / "libraries" / f"{file.stem}.json").write_text(_text(about))


_LONG = ("results", "best of ours", "peers on the front of error against time")  # which follow from the results


def keep(outcomes: Iterable[Outcome], folder: Path, size: SizeName, threads: int) -> None:
    """Write what the tables need of a run."""
    found: list[dict[str, str]] = []
    experiments = {}
    for outcome in outcomes:
        name = outcome.experiment.name
        write_csv(folder / f"{name}.csv", [result.numbers() for result in outcome.results])
        found += [
            {"experiment": name, "paper": claim.paper, "found": claim.found, "verdict": claim.verdict}
            for claim in claims(outcome)
        ]
        experiments[name] = {
            "title": outcome.title,
            "data": outcome.data.source,
            "rows": outcome.rows,
            "players": outcome.problem.truth.shape[1],
            "network": {part: round(value, 4) for part, value in outcome.quality.items()},
            "standard error of the truth": float(f"{outcome.problem.standard_error:.3g}"),
            "budgets": list(outcome.size.budgets),
        }
    write_csv(folder / "claims.csv", found)
    about = {
        "date": datetime.now(UTC).date().isoformat(), "version": dasp.__version__, "torch": torch.__version__,
        "python": platform.python_version(), "size": size.value, "threads": threads, "experiments": experiments,
    }  # fmt: skip
    (folder / "about.json").write_text(_text(about))


def write_csv(file: Path, rows: list[Mapping[str, Any]]) -> None:
    """Write rows with the same names, floats to four digits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({name: f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()} for row in rows)


def _text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _said(stage: str, done: int, total: int) -> None:
    print(f"\r{stage} {done}/{total}", end="\n" if done == total else "", flush=True)


if __name__ == "__main__":
    main()
