"""A forecast of three horizons: which days, and which measurements, does tomorrow's temperature depend on, and which
that in a week?

A recurrent network learned from the weather of Seattle (NOAA, 2012 to 2014; in the public domain). The players are
windows of two days of each measurement; an absent one is as it is on average.

    python forecast.py [--small]        draws forecast.png
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

from dasp import Explainer

EPOCHS, ROWS, EVALUATIONS = (1, 1, 64) if "--small" in sys.argv else (15, 12, 500)
HORIZONS = {"tomorrow": 1, "in three days": 3, "in a week": 7}
DAYS = 14

table = pd.read_csv(Path(__file__).with_name("weather.csv"), index_col="date")
weather = torch.tensor(((table - table.mean()) / table.std()).to_numpy()).float().T  # (measurements, days)
x = weather.unfold(1, DAYS, 1)[:, : -max(HORIZONS.values())].permute(1, 0, 2)  # two weeks, from each day on
degrees = torch.tensor(table["warmest"].to_numpy()).float()
y = torch.stack([degrees[DAYS - 1 + days :][: len(x)] for days in HORIZONS.values()], dim=1)


class Forecast(nn.Module):
    """A GRU over two weeks (rows, measurements, days) → the temperature at each horizon, (rows, horizons)."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.GRU(len(weather), 16, batch_first=True), nn.Linear(16, len(HORIZONS))
        nn.init.constant_(self.last.bias, float(degrees.mean()))

    def forward(self, x: Tensor) -> Tensor:
        """Return the temperatures."""
        return self.last(self.recurrent(x.mT)[0][:, -1])


torch.manual_seed(0)
model, last = Forecast(), 1000  # days to learn from
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for part in torch.cat([torch.randperm(last) for _ in range(EPOCHS)]).split(50):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x[part]), y[part]).backward()
    optimizer.step()
model.eval()
print("off by (degrees, of days not learned from):", (model(x[last:]) - y[last:]).abs().mean(0).tolist())

explainer = Explainer(
    model, baselines=0.0, players="window:2,channel", output_names=list(HORIZONS), max_evaluations=EVALUATIONS
)
explanation = explainer(x[last :: (len(x) - last) // ROWS][:ROWS])
size = abs(explanation.values).mean(0).reshape(len(weather), DAYS // 2, len(HORIZONS))

figure, panels = plt.subplots(1, len(HORIZONS), figsize=(11, 2.6), layout="constrained", sharey=True)
for panel, name, values in zip(panels, HORIZONS, size.transpose(2, 0, 1), strict=True):
    picture = panel.imshow(values, cmap="Oranges", vmin=0, vmax=size.max(), aspect="auto")
    panel.set_title(f"temperature {name}", fontsize=10)
    panel.set_xticks(range(DAYS // 2), [f"−{DAYS - 2 * i}" for i in range(DAYS // 2)])
    panel.set_yticks(range(len(weather)), list(table.columns))
    panel.set_xlabel("days before")
    for (row, column), value in np.ndenumerate(values):
        panel.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8)
figure.colorbar(picture, label="mean |value|, degrees")
figure.savefig("forecast.png", dpi=110)
