"""Trained networks of the experiments, rows to explain and their Shapley values; kept as by the demo."""

from __future__ import annotations

from pathlib import Path

from reproduction.dna import DNA
from reproduction.experiment import Experiment, Size
from reproduction.mnist import MNIST
from reproduction.outcome import Setting, prepare
from reproduction.parkinsons import Parkinsons
from reproduction.store import Store


def _setting(experiment: Experiment, rows: int, permutations: int) -> Setting:
    def step(stage: str, done: int, total: int) -> None:
        print(f"\r{experiment.title}: {stage} {done}/{total}", end="\n" if done == total else "", flush=True)

    setting = prepare(experiment, Size(rows, permutations, ()), Store(Path("results") / "cache"), step)
    print(f"{setting.data.source}: {', '.join(f'{name} {value:.3f}' for name, value in setting.quality.items())}")
    return setting


def parkinsons(rows: int = 30) -> Setting:
    return _setting(Parkinsons(), rows, 0)


def dna(rows: int = 6, permutations: int = 300) -> Setting:
    return _setting(DNA(), rows, permutations)


def mnist(rows: int = 8, permutations: int = 1000) -> Setting:
    return _setting(MNIST(), rows, permutations)
