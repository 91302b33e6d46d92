"""An audit: how far are popular attributions from the Shapley values, and can their five most important pixels be
relied on?

    python audited.py [--small]         draws audited.png
"""

import sys

import torch
from captum.attr import FeatureAblation, InputXGradient, IntegratedGradients, ShapleyValueSampling
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import dasp

ROWS, EVALUATIONS = (2, 64) if "--small" in sys.argv else (20, 512)

digits = load_digits()
images, labels = torch.tensor(digits.images).float()[:, None] / 16, torch.tensor(digits.target)
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 32), nn.ReLU(), nn.Linear(32, 10)
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for part in torch.arange(1500).repeat(5).split(50):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
    optimizer.step()
model.eval()

x, target = images[1500 : 1500 + ROWS].requires_grad_(), labels[1500 : 1500 + ROWS]
attributions = {
    "input × gradient": InputXGradient(model).attribute(x, target=target),
    "feature ablation": FeatureAblation(model).attribute(x, target=target),
    "integrated gradients": IntegratedGradients(model).attribute(x, target=target),
    "sampling, 650 evaluations": ShapleyValueSampling(model).attribute(x, target=target, n_samples=10),
    "BayesianShapley, 650 evaluations": dasp.BayesianShapley(model).attribute(x, target=target, max_evaluations=650),
    "GradientShapley, 64 pairs of passes": dasp.GradientShapley(model).attribute(x, target=target, n_pairs=64),
}
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
for line, (name, values) in enumerate(attributions.items()):
    report = dasp.audit(model, values.detach(), x.detach(), target=target, evaluations=EVALUATIONS)
    print(f"{name}: {report.verdict}")
    assert report.top is not None
    found = report.relative
    low, middle, high = (100 * part.median() for part in (found.low, found.middle, found.high))
    axes.plot([low, high], [line, line], color="#0072B2", linewidth=6, solid_capstyle="butt", alpha=0.4)
    axes.plot(middle, line, "o", color="#0072B2")
    axes.text(1.02, line, f"{report.top.belonging.mean():.1f}", va="center", transform=axes.get_yaxis_transform())
axes.set_yticks(range(len(attributions)), list(attributions))
axes.invert_yaxis()
axes.set_xlim(left=0)
axes.set_xlabel("how far off, in per cent of the size of the Shapley values")
axes.text(1.02, 1.02, "of the top five\nbelong there", transform=axes.transAxes, fontsize=9)
axes.spines[["top", "right"]].set_visible(False)
figure.savefig("audited.png", dpi=110)
