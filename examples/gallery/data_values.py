"""Data values: which images of a training set make its classifier better, and which ones worse?

Four of the eights among forty digits are labelled as threes. The value of a set of images is how many unseen ones a
classifier that learned from them reads rightly.

    python data_values.py [--small]     draws data_values.png
"""

import sys

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from dasp import explain_game

EVALUATIONS = 200 if "--small" in sys.argv else 4000
WRONG = [3, 14, 22, 35]

x, y = load_digits(n_class=9, return_X_y=True)
of_two = np.isin(y, [3, 8])
x, y = x[of_two] / 16, np.where(y[of_two] == 8, 1.0, -1.0)
labels = y[:40].copy()
labels[WRONG] *= -1


def accuracy(masks: NDArray[np.bool_]) -> list[float]:
    """Return how many of the other images are read rightly by a ridge classifier that learned from the present ones."""
    worth = []
    for mask in masks:
        a, b = x[:40][mask], labels[mask]
        weights = np.linalg.solve(a.T @ a + np.eye(64), a.T @ b)
        worth.append(100 * ((x[40:] @ weights > 0) == (y[40:] > 0)).mean())
    return worth


explanation = explain_game(accuracy, [f"image {i}" for i in range(40)], max_evaluations=EVALUATIONS)
values = explanation.values
print("the least useful ones:", *values.argsort()[:4])

figure, panels = plt.subplots(4, 10, figsize=(10, 5), layout="constrained")
for i, panel in enumerate(panels.flat):
    panel.imshow(x[i].reshape(8, 8), cmap="gray_r")
    panel.set_title(f"{8 if labels[i] > 0 else 3}: {values[i]:+.1f}".replace("-", "−"), fontsize=10)
    panel.set_xticks([])
    panel.set_yticks([])
    panel.spines[:].set(color="#D55E00" if i in WRONG else "0.85", linewidth=3 if i in WRONG else 1)
figure.suptitle("Each image's label, and what it adds to the accuracy in per cent; framed: the wrong labels")
figure.savefig("data_values.png", dpi=100)
