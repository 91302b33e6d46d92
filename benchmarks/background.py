"""Backgrounds: how good is it to put the background's moments into the off value, instead of averaging over its rows?

    python benchmarks/background.py

An absent player's entry is then random, with the background's mean m and variance s²: at probability q the entry has
the mean m + q(x − m) and the variance q(1 − q)(x − m)² + (1 − q)s². One pass instead of one for each row, but the
background's correlations and shape are lost. Truth: exact interventional Shapley values (the mean over the rows).

It came out between the mean as a baseline and the mean over all rows, about as good as ten clusters. It is not offered:
it is defined only where inputs enter an affine op directly, and the values no longer sum to f(x) minus the mean of f
over the background, which is what tells whether they can be trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from dasp import ExactShapley, GradientDASP, rmse, spearman
from dasp.attribution import gradient_dasp as extension
from dasp.propagation.coalitions import bernoulli
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.values import Contributions
from reproduction.experiment import fit

ROWS, BACKGROUND = 20, 50


def with_moments(spread: Tensor) -> Callable[..., Gaussian]:
    """`bernoulli` with the variance of the absent players' entries added."""

    def distribution(x: Contributions, probabilities: Tensor, signs: Any = None) -> Gaussian:
        value = bernoulli(x, probabilities, signs)
        absent = 1 - x.entries(probabilities)
        return Gaussian(value.mean, value.variance + x.linear(absent * spread, 2), value.factors)

    return distribution


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
    return nn.Sequential(*layers).eval()


def main() -> None:
    torch.set_num_threads(2)
    data = load_diabetes()
    x = torch.tensor(data.data / data.data.std(0)).float()
    networks = {name: network(seed) for seed, name in enumerate(("diabetes network", "random 10–64–32–1 network"))}
    labels = torch.tensor(data.target).float()[:, None]
    fit(networks["diabetes network"].train(), (x, labels), nn.functional.mse_loss, epochs=200, batch=64, rate=3e-3)
    networks["diabetes network"].eval()
    rows, background = x[:ROWS], x[100 : 100 + BACKGROUND]
    for name, model in networks.items():
        truth = torch.stack([ExactShapley(model).attribute(rows, b[None]) for b in background]).mean(0)
        size = float(truth.square().mean().sqrt())
        print(f"{name}: {ROWS} rows, {BACKGROUND} background rows, root mean square of the truth {size:.4f}")
        for rank in (0, "full"):
            method = GradientDASP(model, rank=rank)
            results = {
                "mean over all rows": method.attribute(rows, background, nodes=8),
                "10 clusters": method.attribute(rows, background, nodes=8, background_clusters=10),
                "their mean as baseline": method.attribute(rows, background.mean(0, keepdim=True), nodes=8),
            }
            extension.bernoulli = with_moments(background.var(0))
            results["moments in the off value"] = method.attribute(rows, background.mean(0, keepdim=True), nodes=8)
            extension.bernoulli = bernoulli
            for label, values in results.items():
                error, correlation = float(rmse(values, truth).mean()), float(spearman(values, truth).mean())
                print(f"  rank {rank!s:4} {label:26} RMSE {error:.4f}, Spearman {correlation:.3f}")


if __name__ == "__main__":
    main()
