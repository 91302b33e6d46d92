"""Every method of the table on the networks of the paper's three experiments: error against evaluations and time.

DASP_DATA=folder python benchmarks/methods.py [parkinsons] [dna] [mnist]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

import dna
import mnist
import parkinsons
from dasp.evaluation import Problem, Result, compare, table

BUDGETS = (300, 3000, 30_000)


def parkinsons_problem() -> Problem:
    model, rows, _ = parkinsons.trained()
    return Problem.of(model, rows[:10])


def dna_problem() -> Problem:
    groups = torch.arange(dna.LENGTH).expand(4, dna.LENGTH)
    return Problem.of(dna.trained(), dna.sequences(400, seed=1)[0][3::4][:3], target=0, feature_mask=groups)


def mnist_problem() -> Problem:
    model, number = mnist.trained(), 8
    x, targets = mnist.images(number)
    values, error = mnist.sampled_truth(model, number, 1000)
    arguments = {"inputs": x[:2], "baselines": None, "target": targets[:2], "feature_mask": None}
    return Problem(model, arguments, values[:2].flatten(1).double(), error)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "parkinsons": parkinsons_problem,
    "dna": dna_problem,
    "mnist": mnist_problem,
}


def show(result: Result) -> None:
    print(table([result]).splitlines()[1], flush=True)


def main(names: list[str]) -> None:
    torch.set_num_threads(2)
    for name in names or PROBLEMS:
        problem = PROBLEMS[name]()
        print(f"\n== {name}: {len(problem.truth)} rows, {problem.truth.shape[1]} players")
        print(table([], problem.standard_error))
        compare(problem, budgets=BUDGETS, on_result=show)


if __name__ == "__main__":
    main(sys.argv[1:])
