"""`python -m dasp.demo`: train a small network on real data, explain some rows, compare with the exact values."""

from __future__ import annotations

import time
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import torch
from captum.attr import IntegratedGradients
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from dasp import DASP, ExactShapley, completeness_gap, rmse, spearman

ROWS = 20
PICTURE = Path("results") / "diabetes.png"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = {"exact Shapley values": "#000000", "DASP, full rank": "#D55E00", "DASP": "#E69F00",
           "integrated gradients": "#56B4E9"}  # fmt: skip


def trained_network(x: Tensor, y: Tensor) -> nn.Module:
    """A multilayer perceptron with 10 inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-3)
    for _ in range(200):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[batch])[:, 0], y[batch]).backward()
            optimizer.step()
    return model.eval()


def draw(values: dict[str, Tensor], names: list[str]) -> None:
    """What each method says about the first row."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    height = 0.8 / len(values)
    for i, (method, attributions) in enumerate(values.items()):
        positions = [j + (i - 1.5) * height for j in range(len(names))]
        axes.barh(positions, attributions[0].tolist(), height, label=method, color=COLOURS[method])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_xlabel("contribution to the predicted disease progression")
    axes.set_title("Diabetes: why the network predicts what it does for one patient")
    figure.legend(loc="outside lower center", ncols=len(values), frameon=False)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, dpi=150)


def main() -> None:
    """The demonstration."""
    print("Training a network with 10 inputs on scikit-learn's diabetes data, then explaining", ROWS, "rows (10 s) …")
    data = load_diabetes()
    x = torch.tensor(data.data / data.data.std(0)).float()
    y = torch.tensor(data.target).float()
    model = trained_network(x[ROWS:], y[ROWS:])
    rows = x[:ROWS]
    with torch.no_grad():
        full, empty = model(rows)[:, 0], model(torch.zeros_like(rows))[:, 0]
    methods = {
        "exact Shapley values": ExactShapley(model),
        "DASP, full rank": DASP(model, rank="full"),
        "DASP": DASP(model),
        "integrated gradients": IntegratedGradients(model),
    }
    values, table = {}, []
    for name, method in methods.items():
        method.attribute(rows[:1])  # traced before it is timed
        start = time.perf_counter()
        values[name] = method.attribute(rows).detach()
        milliseconds = (time.perf_counter() - start) / ROWS * 1e3
        truth = values["exact Shapley values"]
        quality = rmse(values[name], truth).mean(), spearman(values[name], truth).mean()
        gap = completeness_gap(values[name], full, empty).abs().mean()
        table.append(f"{name:22} {quality[0]:8.3f} {quality[1]:9.3f} {gap:10.3f} {milliseconds:8.2f}")
    print(f"\n{'method':22} {'RMSE':>8} {'Spearman':>9} {'gap of sum':>10} {'ms/row':>8}", *table, sep="\n")
    draw(values, list(data.feature_names))
    print(f"\nRMSE and Spearman are against the exact values (2^10 evaluations a row). Picture: {PICTURE}")


if __name__ == "__main__":
    main()
