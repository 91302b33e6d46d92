"""Trained networks of the experiments, rows to explain and their Shapley values; kept as by `dasp reproduce`."""

from __future__ import annotations

from pathlib import Path

from dasp.paper.dna import DNA
from dasp.paper.experiment import Experiment, Size
from dasp.paper.mnist import MNIST
from dasp.paper.outcome import Setting, prepared
from dasp.paper.parkinsons import Parkinsons
from dasp.paper.store import Store


def _prepared(experiment: Experiment, rows: int, permutations: int) -> Setting:
    def step(stage: str, done: int, total: int) -> None:
        print(f"\r{experiment.title}: {stage} {done}/{total}", end="\n" if done == total else "", flush=True)

    setting = prepared(experiment, Size(rows, permutations, ()), Store(Path("results") / "cache"), step)
    print(f"{setting.data.source}: {', '.join(f'{name} {value:.3f}' for name, value in setting.quality.items())}")
    return setting


def parkinsons(rows: int = 30) -> Setting:
    return _prepared(Parkinsons(), rows, 0)


def dna(rows: int = 6, permutations: int = 300) -> Setting:
    return _prepared(DNA(), rows, permutations)


def mnist(rows: int = 8, permutations: int = 1000) -> Setting:
    return _prepared(MNIST(), rows, permutations)
