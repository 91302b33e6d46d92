"""The pictures of the page on how it works: computed, not sketched.

    python docs/drawings.py        writes docs/images, in under a minute on one core

Five of them are about a small network that reads 8×8 digits (scikit-learn's), one about the network of the README.
"""
# ruff: noqa: INP001  # a script, not a module

from __future__ import annotations

import io
import math
from functools import cache
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_diabetes, load_digits
from torch import Tensor, nn

from dasp import BayesianShapley, ExactShapley, Gaussian, GradientDASP, PermutationShapley, propagate
from dasp.attribution.bayesian.design import Pairs
from dasp.players import blocks
from dasp.plots.style import (
    BLACK,
    BLUE,
    DARK,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    SMALL,
    TEXT,
    VERMILLION,
    tidy,
)

FOLDER = Path(__file__).parent / "images"
COALITIONS = 20_000
DIGIT, ROW = 8, 1511  # an image that the network has not seen
EVALUATIONS = (32, 64, 128, 256, 512, 1024)
NODES, PERMUTATIONS = 25, 200
PLAYERS, SAMPLED = 16, 128  # blocks of 2×2 pixels, and evaluations of a design
SEEN = (34, 128)  # evaluations: single players and all but one, and more


def new_figure(width: float, height: float) -> Figure:
    """A figure in inches that no global state knows of."""
    return Figure(figsize=(width, height), layout="constrained")


@cache
def reader() -> tuple[nn.Sequential, Tensor]:
    """A network that reads digits, and the image of an eight; the baseline 0 is mid-grey."""
    digits = load_digits()
    pixels, labels = torch.tensor(digits.images).float().flatten(1) / 8 - 1, torch.tensor(digits.target)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for part in torch.arange(1500).repeat(5).split(50):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(pixels[part]), labels[part]).backward()
        optimizer.step()
    return network.eval(), pixels[ROW : ROW + 1]


def coalitions(mask: Tensor, probability: float) -> Tensor:
    """Random coalitions of the players of a mask, by entry: 1 where its player is there."""
    generator = torch.Generator().manual_seed(1)
    there = torch.rand(COALITIONS, int(mask.max()) + 1, generator=generator) < probability
    return there[:, mask.flatten()].float()


def gaussian() -> Figure:
    """A hidden unit over random coalitions of 4, 16 and 64 players, and the Gaussian that stands for it."""
    network, image = reader()
    first = network[0]
    weights = first.weight.detach() * image  # what each pixel adds to each unit
    unit = int(weights.square().sum(1).argmax())
    figure = new_figure(8.2, 2.7)
    for panel, side in zip(figure.subplots(1, 3), (4, 2, 1), strict=True):
        mask = blocks((1, 8, 8), side)
        sums = first(coalitions(mask, 0.5) * image)[:, unit].detach()
        own = torch.zeros(int(mask.max()) + 1).index_add(0, mask.flatten(), weights[unit])  # by player
        mean, deviation = float(first.bias[unit].detach() + own.sum() / 2), float(own.square().sum().sqrt() / 2)
        _density(panel, sums, mean, deviation)
        size = {4: "4×4 pixels", 2: "2×2 pixels", 1: "one pixel"}[side]
        panel.set_title(f"{len(own)} players of {size}", fontsize=TEXT)
        panel.set_xlabel("a hidden unit before its ReLU", fontsize=SMALL)
        panel.set_yticks([])
        panel.spines["left"].set_visible(False)
    figure.axes[0].legend(fontsize=SMALL, frameon=False, loc="upper left")
    return figure


def _density(panel: Axes, sums: Tensor, mean: float, deviation: float) -> None:
    edges = torch.linspace(mean - 3.6 * deviation, mean + 3.6 * deviation, 49)
    label = f"{COALITIONS:,} coalitions"
    panel.hist(sums.clamp(edges[0], edges[-1]), edges, density=True, color=LIGHT, edgecolor=DARK, lw=0.4, label=label)
    z = (edges - mean) / deviation
    normal = torch.exp(-z.square() / 2) / (deviation * math.sqrt(2 * math.pi))
    panel.plot(edges, normal, color=VERMILLION, lw=2, label="propagated")
    tidy(panel, grid=False)
    panel.set_ylim(0, panel.get_ylim()[1] * 1.25)


def diagonal() -> Figure:
    """The mean output along the diagonal, sampled and propagated, and its derivative by one player."""
    network, image = reader()
    probabilities = torch.linspace(0.02, 0.98, NODES)
    curves = {rank: [_extension(network, image, float(q), rank) for q in probabilities] for rank in (0, "full")}
    full = torch.stack([slope for _, slope in curves["full"]])
    player = int(full.mean(0).argmax())
    sampled = [_sampled(network, image, float(q), player) for q in probabilities]
    figure = new_figure(8.2, 3.1)
    left, right = figure.subplots(1, 2)
    for rank, colour, line in ((0, ORANGE, "--"), ("full", VERMILLION, "-")):
        label = f"propagated, {'full rank' if rank else 'rank 0'}"
        left.plot(probabilities, [mean for mean, _ in curves[rank]], line, color=colour, lw=2, label=label)
        slopes = torch.stack([slope[player] for _, slope in curves[rank]])
        right.plot(probabilities, slopes, line, color=colour, lw=2, label=label)
    right.fill_between(probabilities, full[:, player], color=VERMILLION, alpha=0.12, lw=0)
    for panel, own in ((left, [mean for mean, _ in sampled]), (right, [slope for _, slope in sampled])):
        panel.plot(probabilities, own, "o", color=BLACK, ms=3.5, label=f"{COALITIONS:,} coalitions each")
        panel.set_xlabel("q, the probability of each player to be there", fontsize=SMALL)
        tidy(panel)
    left.set_title("F(q): the mean score of the digit", fontsize=TEXT)
    left.legend(fontsize=SMALL, frameon=False)
    right.set_title("∂F/∂q of one pixel: what it adds on average", fontsize=TEXT)
    right.set_ylim(0, right.get_ylim()[1] * 1.1)
    propagated = GradientDASP(network).attribute(image, target=DIGIT)[0, player].item()
    truth = PermutationShapley(network).attribute(image, target=DIGIT, n_permutations=PERMUTATIONS)[0, player].item()
    text = f"the area is its Shapley value:\n{propagated:.2f} propagated, {truth:.2f} sampled"
    right.text(0.5, 0.2, text, transform=right.transAxes, ha="center", fontsize=SMALL)
    return figure


def _extension(network: nn.Module, image: Tensor, q: float, rank: int | str) -> tuple[float, Tensor]:
    """F̂ at (q, …, q), and its derivative by the probability of every pixel."""
    each = torch.full_like(image, q).requires_grad_()
    output = propagate(network, each * image, each * (1 - each) * image.square(), rank=rank).mean[0, DIGIT]
    return output.item(), torch.autograd.grad(output, each)[0][0]


def _sampled(network: nn.Module, image: Tensor, q: float, player: int) -> tuple[float, float]:
    """The mean score over coalitions, and how much more it is with a pixel than without."""
    there = coalitions(torch.arange(64), q)
    means = []
    with torch.no_grad():
        means.append(network(there * image)[:, DIGIT].mean())
        for present in (1, 0):
            there[:, player] = present
            means.append(network(there * image)[:, DIGIT].mean())
    return means[0].item(), (means[1] - means[2]).item()


def factors() -> Figure:
    """Covariances of the ten scores over random coalitions: sampled, and propagated with more and more columns."""
    network, image = reader()
    with torch.no_grad():
        outputs = network(coalitions(torch.arange(64), 0.5) * image)
    matrices = {f"{COALITIONS:,} coalitions": outputs.T.cov()}
    for rank, name in ((0, "rank 0"), (16, "16 columns"), ("full", "full rank, 64 columns")):
        given = propagate(network, image / 2, image.square() / 4, rank=rank)
        matrices[name] = _covariance(given)
    truth = next(iter(matrices.values()))
    limit = truth.abs().max()
    figure = new_figure(8.2, 2.3)
    panels = figure.subplots(1, 4)
    for panel, (name, matrix) in zip(panels, matrices.items(), strict=True):
        shown = panel.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-limit, vmax=limit)
        panel.set_title(name, fontsize=TEXT)
        panel.set_xticks(range(10))
        panel.set_yticks(range(10) if panel is panels[0] else [])
        panel.tick_params(labelsize=SMALL, length=0)
        off = float((matrix - truth).norm() / truth.norm())
        panel.set_xlabel("score of the digit" if panel is panels[0] else f"off by {100 * off:.0f} %", fontsize=SMALL)
    bar = figure.colorbar(shown, ax=panels, shrink=0.8, aspect=15)
    bar.ax.tick_params(labelsize=SMALL)
    bar.set_label("covariance", fontsize=SMALL)
    return figure


def _covariance(given: Gaussian) -> Tensor:
    own = torch.diag(given.variance[0])
    columns = given.factors
    return (own if columns is None else own + columns[:, 0].T @ columns[:, 0]).detach()


@cache
def scores() -> Tensor:
    """Ten scores of the eight for all 2^16 coalitions of blocks, whose members are the bits of their number."""
    network, image = reader()
    there = _members(torch.arange(2**PLAYERS)).float()
    with torch.no_grad():
        return network(there[:, blocks((1, 8, 8), 2).flatten()] * image).double()


def _members(numbers: Tensor) -> Tensor:
    return (numbers[:, None] >> torch.arange(PLAYERS) & 1).bool()


def _worth(members: Tensor) -> Tensor:
    return scores()[:, DIGIT][members.long() @ 2 ** torch.arange(PLAYERS)]


def contributions() -> Tensor:
    """What each player adds to the probability of the digit for coalitions of k others in the mean, (players, k)."""
    probability = scores().softmax(1)[:, DIGIT]
    everyone = torch.arange(2**PLAYERS)
    result = torch.zeros(PLAYERS, PLAYERS, dtype=torch.float64)
    for player in range(PLAYERS):
        without = everyone[(everyone >> player & 1) == 0]
        added = probability[without + 2**player] - probability[without]
        result[player].index_add_(0, _members(without).sum(1), added)
    return result / torch.tensor([math.comb(PLAYERS - 1, k) for k in range(PLAYERS)])


def along(added: Tensor, q: Tensor) -> Tensor:
    """∂F/∂q of every player where each of the others is there with probability q, (players, q)."""
    k = torch.arange(PLAYERS, dtype=torch.float64)[:, None]
    ways = torch.tensor([math.comb(PLAYERS - 1, k) for k in range(PLAYERS)], dtype=torch.float64)[:, None]
    return added @ (ways * q**k * (1 - q) ** (PLAYERS - 1 - k))


def sizes() -> Figure:
    """What players add to coalitions of every size, the nodes of Simpson's rule, and the sizes that designs take."""
    added, grid = contributions(), torch.linspace(0, 1, 101, dtype=torch.float64)
    nodes = torch.tensor([0, 0.5, 1], dtype=torch.float64)
    exact, at_nodes = added.mean(1), along(added, nodes)
    simpson = at_nodes @ torch.tensor([1, 4, 1], dtype=torch.float64) / 6
    figure = new_figure(8.2, 3.5)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    order = exact.argsort(descending=True)
    for player, colour in zip(order[[0, 2, -1]].tolist(), (VERMILLION, ORANGE, BLUE), strict=True):
        left.plot(torch.arange(PLAYERS) / (PLAYERS - 1), added[player], "o", color=colour, ms=2.5, alpha=0.6)
        left.plot(grid, along(added, grid)[player], color=colour, lw=1.8)
        left.plot(nodes, at_nodes[player], "D", color=colour, mec=BLACK, ms=7, clip_on=False, zorder=5)
        text = f"Simpson {simpson[player]:.3f}, exact {exact[player]:.3f}".replace("-", "−")
        left.text(0.5, float(added[player].max()) + 0.025, text, color=BLACK, fontsize=SMALL, ha="center")
    left.axhline(0, color=DARK, lw=0.8)
    left.set_ylim(left.get_ylim()[0], left.get_ylim()[1] + 0.03)
    left.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0\nnobody", "¼", "½\nhalf of them", "¾", "1\neverybody"])
    left.set_xlabel("q, the share of the other blocks that are there", fontsize=SMALL)
    left.set_title("What a block adds: area = Shapley value", fontsize=TEXT)
    tidy(left)
    bins, width = torch.arange(PLAYERS + 1), 0.4
    for opening, colour, label, hatch in ((False, LIGHT, "even spread", ""), (True, GREEN, "with the opening", "//")):
        pairs = Pairs.draw(PLAYERS, SAMPLED // 2 - 1, seed=0, opening=opening).sizes.long()
        taken = torch.cat([pairs, PLAYERS - pairs, torch.tensor([0, PLAYERS])])
        counts = torch.bincount(taken, minlength=PLAYERS + 1)
        place = bins + (0.5 if opening else -0.5) * width
        right.bar(
            place.tolist(), counts.tolist(), width, color=colour, edgecolor=DARK, lw=0.6, hatch=hatch, label=label
        )
    right.set_xticks([0, 1, 4, 8, 12, 15, 16])
    right.set_xlabel("players in the coalition", fontsize=SMALL)
    right.set_title(f"{SAMPLED} coalitions of {PLAYERS} players", fontsize=TEXT)
    right.legend(fontsize=SMALL, frameon=False)
    tidy(right)
    return figure


def process() -> Figure:
    """A path of coalitions from nobody to everybody: the game, and what the process predicts from some evaluations."""
    path = _path()
    truth, figure = _worth(path), new_figure(8.2, 3.3)
    for panel, number in zip(figure.subplots(1, 2, sharey=True), SEEN, strict=True):
        pairs = Pairs.draw(PLAYERS, number // 2 - 1, seed=0, opening=True).members
        seen = torch.cat([torch.ones(1, PLAYERS, dtype=torch.bool), pairs])
        seen = torch.cat([seen, ~seen])
        mean, deviation = predicted(seen, _worth(seen), path)
        places = torch.arange(PLAYERS + 1)
        panel.fill_between(
            places, mean - 1.96 * deviation, mean + 1.96 * deviation, color=BLUE, alpha=0.22, lw=0, label="95 % band"
        )
        panel.plot(places, mean, color=BLUE, lw=1.6, label="predicted")
        panel.plot(places, truth, "--", color=GREEN, lw=1.6, label="the game")
        there = (path[:, None] == seen).all(2).any(1)
        panel.plot(places[there], truth[there], "o", color=BLACK, ms=5, label="evaluated", zorder=5)
        panel.set_title(f"{len(seen)} evaluations", fontsize=TEXT)
        panel.set_xticks([0, 1, 4, 8, 12, 15, 16])
        panel.set_xlabel("blocks that are there, one more at each step", fontsize=SMALL)
        tidy(panel)
    figure.axes[0].set_ylabel("score of the eight", fontsize=SMALL)
    figure.axes[0].legend(fontsize=SMALL, frameon=False, loc="upper left")
    return figure


def _path() -> Tensor:
    """Coalitions from nobody to everybody, one player more each, by way of the first half that is evaluated."""
    pairs = Pairs.draw(PLAYERS, SEEN[-1] // 2 - 1, seed=0, opening=True)
    half = pairs.members[(2 * pairs.sizes == PLAYERS).nonzero()[0, 0]] if SEEN[-1] > 2 * PLAYERS + 2 else None
    order = torch.arange(PLAYERS) if half is None else (~half).long().argsort(stable=True)
    return order.argsort() < torch.arange(PLAYERS + 1)[:, None]


def predicted(seen: Tensor, values: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of the worth of coalitions, given that of others: the process with all players
    alike and no white part, averaged over λ and the extra variance of first orders by their evidence."""
    there, wanted = 2 * seen.double() - 1, 2 * asked.double() - 1
    everything = torch.cat([there, wanted])
    overlap, known = everything @ everything.T, len(seen)
    means, variances, evidence = [], [], []
    for strength in (0.03, 0.1, 0.2, 0.4):
        smooth = ((1 + strength) ** PLAYERS) * ((1 - strength) / (1 + strength)) ** ((PLAYERS - overlap) / 2)
        for first in (0.0, 1.0, 10.0):
            kernel = smooth + first * strength * overlap
            kernel = kernel / kernel.diagonal().mean() + 1e4  # the mean is left open
            root = torch.linalg.cholesky(kernel[:known, :known] + 1e-6 * torch.eye(known))
            cross = torch.linalg.solve_triangular(root, kernel[:known, known:], upper=False)
            white = torch.linalg.solve_triangular(root, values[:, None], upper=False)[:, 0]
            size = white.square().sum() / (known - 3)
            means.append(cross.T @ white)
            variances.append(size * (kernel.diagonal()[known:] - cross.square().sum(0)).clamp(min=0))
            evidence.append(-root.diagonal().log().sum() - (known - 1) / 2 * white.square().sum().log())
    weights = torch.stack(evidence).softmax(0)[:, None]
    mean = (weights * torch.stack(means)).sum(0)
    variance = (weights * (torch.stack(variances) + (torch.stack(means) - mean) ** 2)).sum(0)
    return mean, variance.sqrt()


def posterior() -> Figure:
    """Intervals of four players with more and more evaluations, without a prior and on one, and the exact values."""
    network, person, names = expected()
    exact = ExactShapley(network).attribute(person)[0]
    chosen = exact.abs().argsort(descending=True)[[0, 2, 4, 7]].tolist()
    methods = {
        "no prior": (BayesianShapley(network), BLUE, "o", 0.94),
        "on GradientDASP": (BayesianShapley(network, prior=GradientDASP(network, rank=0)), PURPLE, "s", 1.06),
    }
    figure = new_figure(8.2, 2.9)
    panels = figure.subplots(1, 4)
    for label, (method, colour, marker, beside) in methods.items():
        found = [method.attribute(person, max_evaluations=n, return_std=True) for n in EVALUATIONS]
        for panel, player in zip(panels, chosen, strict=True):
            values, stds = (torch.stack([one[i][0, player] for one in found]) for i in (0, 1))
            places = [n * beside for n in EVALUATIONS]
            panel.errorbar(places, values, 1.96 * stds, fmt=marker, ms=4, color=colour, capsize=2, lw=1.4, label=label)
    for panel, player in zip(panels, chosen, strict=True):
        panel.axhline(float(exact[player]), color=GREEN, lw=1.4, label="exact", zorder=0)
        panel.set_xscale("log", base=2)
        panel.set_xticks(EVALUATIONS[::2], [f"{n:,}" for n in EVALUATIONS[::2]])
        panel.set_title(names[player], fontsize=TEXT)
        panel.set_xlabel("evaluations", fontsize=SMALL)
        tidy(panel)
    panels[0].set_ylabel("Shapley value, 95 % interval", fontsize=SMALL)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL, frameon=False)
    return figure


def expected() -> tuple[nn.Module, Tensor, list[str]]:
    """The network of the README, its second person and the names of the measurements."""
    data = load_diabetes()
    x, y = torch.tensor(data.data * 21).float(), torch.tensor(data.target).float()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.mse_loss(network(x)[:, 0], y).backward()
        optimizer.step()
    return network.eval(), x[1:2], data.feature_names


DRAWINGS = {
    "gaussian": gaussian,
    "diagonal": diagonal,
    "factors": factors,
    "sizes": sizes,
    "process": process,
    "posterior": posterior,
}


def main(folder: Path = FOLDER) -> None:
    """Draw all of them."""
    for name, draw in DRAWINGS.items():
        file = io.BytesIO()
        draw().savefig(file, format="png", dpi=130)
        Image.open(file).convert("RGB").quantize(256).save(folder / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
