"""The paper's first network: 18 inputs, 128 and 64 hidden units, trained on the Parkinsons telemonitoring data.

    DASP_DATA=folder python benchmarks/parkinsons.py

prints the error of each method against the exact Shapley values of 30 test rows. Without the data, the same network is
trained on a synthetic function of 18 inputs.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from captum.attr import DeepLift, IntegratedGradients
from torch import Tensor, nn

from dasp import DASP, DeepLiftRevealCancel, ExactShapley, rmse, spearman

PLAYERS, TEST_ROWS = 18, 880


def data_file() -> Path | None:
    file = Path(os.environ.get("DASP_DATA", "")) / "parkinsons_updrs.csv"
    return file if file.is_file() else None


def load() -> tuple[Tensor, Tensor]:
    """Inputs scaled to [−1, 1] and total UPDRS, shuffled."""
    file = data_file()
    generator = torch.Generator().manual_seed(0)
    if file is None:
        x = torch.rand(5875, PLAYERS, generator=generator) * 2 - 1
        waves = torch.randn(PLAYERS, 8, generator=generator)
        y = 30 + 8 * torch.sin(x @ waves).sum(1) + 5 * (x[:, :6] * x[:, 6:12]).sum(1)
        return x, y
    names = file.read_text().splitlines()[0].split(",")
    table = np.loadtxt(file, delimiter=",", skiprows=1, comments=None)
    left_out = {"subject#", "test_time", "motor_UPDRS", "total_UPDRS"}
    x = torch.tensor(table[:, [i for i, name in enumerate(names) if name not in left_out]]).float()
    y = torch.tensor(table[:, names.index("total_UPDRS")]).float()
    low, high = x.min(0).values, x.max(0).values
    order = torch.randperm(len(x), generator=generator)
    return (2 * (x - low) / (high - low) - 1)[order], y[order]


def network() -> nn.Module:
    return nn.Sequential(
        nn.Linear(PLAYERS, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(64, 1),
    )  # fmt: skip


def trained(epochs: int = 200) -> tuple[nn.Module, Tensor, float]:
    """The network, its test rows, and its mean absolute error on them."""
    x, y = load()
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(epochs):
        for batch in (TEST_ROWS + torch.randperm(len(x) - TEST_ROWS)).split(64):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x[batch])[:, 0], y[batch]).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        error = (model(x[:TEST_ROWS])[:, 0] - y[:TEST_ROWS]).abs().mean().item()
    return model, x[:TEST_ROWS], error


def main() -> None:
    torch.set_num_threads(2)
    model, rows, error = trained()
    rows = rows[:30]
    print(f"{'Parkinsons' if data_file() else 'synthetic'} network, test MAE {error:.2f}")
    truth = ExactShapley(model).attribute(rows)
    methods = {
        "integrated gradients": IntegratedGradients(model),
        "DeepLIFT": DeepLift(model),
        "DeepLIFT, RevealCancel": DeepLiftRevealCancel(model),
        "DASP": DASP(model),
        "DASP, rank 8": DASP(model, rank=8),
        "DASP, full rank": DASP(model, rank="full"),
    }
    print(f"{'method':22} {'RMSE':>7} {'Spearman':>9} {'ms/row':>8}")
    for name, method in methods.items():
        method.attribute(rows[:1])  # traced before it is timed
        start = time.perf_counter()
        attributions = method.attribute(rows).detach()
        milliseconds = (time.perf_counter() - start) / len(rows) * 1e3
        quality = rmse(attributions, truth).mean(), spearman(attributions, truth).mean()
        print(f"{name:22} {quality[0]:7.3f} {quality[1]:9.3f} {milliseconds:8.2f}")


if __name__ == "__main__":
    main()
