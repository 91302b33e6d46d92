"""Parkinsons telemonitoring: a fully connected network predicts a disability score from 18 measures of a voice."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from dasp.plots import force
from reproduction.comparison_methods import display_name
from reproduction.data_files import DataFile, find
from reproduction.experiment import SLOW, Data, Drawn, Experiment, ExplainedRows, Size, SizeName
from reproduction.style import empty_figure

__all__ = ["FILE", "Parkinsons"]

FILE = DataFile(
    "parkinsons_updrs.csv",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/parkinsons/telemonitoring/parkinsons_updrs.data",
    "f2c7d5025dec4e92e7feae367a5f7ccf58789a10ac6b54bdf15976c599f9dd39",
)
_LEFT_OUT = ("subject#", "test_time", "motor_UPDRS", "total_UPDRS")
_SHOWN = "bayesian_shapley"  # its values always sum to the prediction


class Parkinsons(Experiment):
    """18–128–64–1, trained on 4,995 of 5,875 recordings; exact Shapley values."""

    name = "parkinsons"
    title = "Parkinsons telemonitoring"
    task = (
        "A fully connected network (128 and 64 ReLU units, dropout 0.2) predicts the disability score (total UPDRS) "
        "from age, sex and 16 measures of the voice. A player is an input, scaled to [−1, 1]; the baseline is 0."
    )
    epochs, batch, rate = 400, 64, 3e-3
    most_threads = 1  # a second one makes the small batches no quicker, and much slower if it has to wait for a core
    sizes: ClassVar = {
        SizeName.QUICK: Size(10, 0, (100, 1000, 10_000), patience=15, at_most=SLOW, coalitions=500),
        SizeName.STANDARD: Size(20, 0, (100, 300, 1000, 3000, 10_000, 30_000), patience=15),
        SizeName.PAPER: Size(100, 0, (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000), coalitions=10_000),
    }
    minutes: ClassVar = {SizeName.QUICK: 1, SizeName.STANDARD: 2}

    def data(self) -> Data:
        """Load the table in the authors' split (880 rows for testing); without it, scikit-learn's diabetes patients."""
        content = find(FILE)
        if content is None:
            return _diabetes()
        names = content.split(b"\n", 1)[0].decode().strip().split(",")
        table = np.loadtxt(io.BytesIO(content), delimiter=",", skiprows=1, comments=None)
        players = [name for name in names if name not in _LEFT_OUT]
        x = table[:, [names.index(name) for name in players]]
        return _split(
            x, table[:, names.index("total_UPDRS")], 880, players, "UCI Parkinsons Telemonitoring, 5,875 rows"
        )

    def network(self, data: Data) -> nn.Module:
        """Build the paper's layers."""
        return nn.Sequential(
            nn.Linear(len(data.players), 128), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1),
        )  # fmt: skip

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Average the squared errors."""
        return nn.functional.mse_loss(outputs[:, 0], labels)

    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Measure the errors on the test rows."""
        x, y = data.test
        with torch.no_grad():
            error = model(x)[:, 0] - y
        return {"test MAE": float(error.abs().mean()), "test MSE": float(error.square().mean())}

    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Choose the first test rows."""
        return {"inputs": data.test[0][:rows], "baselines": None, "target": None, "feature_mask": None}

    def figures(self, explained: ExplainedRows) -> dict[str, Drawn]:
        """Draw the force plot of one subject."""
        row, values = explained.data.test[0][0], explained.attributions[_SHOWN][0]
        with torch.no_grad():
            base = float(explained.model(torch.zeros_like(row)[None]))
        score = "disease progression" if explained.data.stands_in_for else "UPDRS"
        figure = empty_figure(11, 4, f"Why the network predicts this {score} for one subject ({display_name(_SHOWN)})")
        force(
            values, names=explained.data.players, data=row, base=base, output=f"predicted {score}", ax=figure.subplots()
        )
        own, paper = (
            float((v - explained.truth[0]).abs().max()) for v in (values, explained.attributions["dasp_rank_0"][0])
        )
        text = (
            f"What raises (red) and lowers (blue) the predicted score of the first row, from f(0) = {base:.2f} "
            f"to the prediction. Inputs are scaled to [−1, 1]. The exact values differ by {own:.3f} at most; from "
            f"those of the paper's DASP by {paper:.2f}."
        )
        return {"force": Drawn(figure, text)}


def _split(x: np.ndarray, y: np.ndarray, test: int, players: list[str], source: str, **rest: Any) -> Data:
    """Scale inputs to [−1, 1], shuffle, and take the first rows for testing."""
    inputs, labels = torch.tensor(x).float(), torch.tensor(y).float()
    low, high = inputs.min(0).values, inputs.max(0).values
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    inputs, labels = (2 * (inputs - low) / (high - low) - 1)[order], labels[order]
    return Data((inputs[test:], labels[test:]), (inputs[:test], labels[:test]), players, source, **rest)


def _diabetes() -> Data:
    from sklearn.datasets import load_diabetes  # noqa: PLC0415  # a stand-in

    data = load_diabetes(scaled=False)
    return _split(
        data.data, data.target, 66, list(data.feature_names), "scikit-learn's 442 diabetes patients with 10 measures",
        stands_in_for="UCI Parkinsons Telemonitoring (5,875 rows, 18 inputs)",
    )  # fmt: skip
