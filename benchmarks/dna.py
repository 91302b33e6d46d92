"""The paper's second network: two convolutions that find GATA and TAL1 motifs in DNA, a player per position.

    python benchmarks/dna.py

trains it on generated sequences and compares ranks of GradientDASP with sampled Shapley values.
"""

from __future__ import annotations

import time
import warnings

import torch
from captum.attr import IntegratedGradients
from torch import Tensor, nn

from dasp import GradientDASP, PermutationShapley, rmse, spearman

LENGTH = 200
BACKGROUND = (0.27, 0.23, 0.23, 0.27)  # A C G T
GATA = """.323 .185 .360 .132|.138 .476 .323 .063|.667 .100 0 .233|0 0 1 0|1 0 0 0|0 0 0 1|.878 0 0 .122|.974 .026 0 0|
0 .053 .947 0|.243 .249 .508 0"""
TAL1 = """.23 .35 .28 .14|.15 .30 .23 .32|.14 .23 .44 .19|.66 .09 .14 .11|.61 .30 .03 .06|0 1 0 0|1 0 0 0|0 0 1 0|
.86 .01 .10 .03|0 0 0 1|0 0 1 0|.01 .03 .61 .35|.03 .17 .01 .79|.20 .43 .17 .20|.27 .23 .31 .19|.23 .26 .32 .19"""


def motif(text: str) -> Tensor:
    """A position weight matrix (length, 4)."""
    rows = [[float(p) for p in row.split()] for row in text.replace("\n", "").split("|")]
    return torch.tensor(rows) * (1 - 0.001) + 0.001 / 4


def sequences(number: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """One-hot sequences (number, 4, 200) and labels (both, GATA, TAL1); a quarter each with none, one or both."""
    generator = torch.Generator().manual_seed(seed)
    bases = torch.multinomial(torch.tensor(BACKGROUND), number * LENGTH, True, generator=generator).view(number, LENGTH)
    labels = torch.zeros(number, 3)
    for i in range(number):
        taken = torch.zeros(LENGTH, dtype=torch.bool)
        present = [kind for kind, here in ((1, i % 4 in (1, 3)), (2, i % 4 in (2, 3))) if here]
        for kind in present:
            matrix = motif(GATA if kind == 1 else TAL1)
            copies = 0
            while not 1 <= copies <= 3:
                copies = int(torch.poisson(torch.tensor(2.0), generator=generator))
            while copies:
                start = int(torch.randint(0, LENGTH - len(matrix) + 1, (1,), generator=generator))
                place = slice(start, start + len(matrix))
                if not bool(taken[place].any()):
                    bases[i, place] = torch.multinomial(matrix, 1, generator=generator).squeeze(1)
                    taken[place] = True
                    copies -= 1
            labels[i, kind] = 1
        labels[i, 0] = float(len(present) == 2)
    return nn.functional.one_hot(bases, 4).transpose(1, 2).float(), labels


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(4, 50, 11), nn.ReLU(), nn.Conv1d(50, 50, 11), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
        nn.Linear(50, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 3),
    )  # fmt: skip


def trained(epochs: int = 12) -> nn.Module:
    torch.manual_seed(0)
    model = network()
    x, y = sequences(6000)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(100):
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model.eval()


def main() -> None:
    torch.set_num_threads(2)
    model = trained()
    x, y = sequences(400, seed=1)
    with torch.no_grad():
        accuracy = ((model(x) > 0) == (y > 0)).float().mean(0).tolist()
    print("accuracy per task", [round(a, 3) for a in accuracy])
    rows = x[3::4][:6]
    mask = torch.arange(LENGTH).expand(4, LENGTH)
    truth, errors = PermutationShapley(model).attribute(
        rows, target=0, feature_mask=mask, n_permutations=300, return_std=True
    )
    truth, error = truth[:, 0], float(errors.square().mean().sqrt())
    size = float(truth.square().mean().sqrt())
    print(f"6 sequences with both motifs, output 0, s.e. of the truth {error:.4f}, root mean square {size:.4f}")
    start = time.perf_counter()
    gradients = IntegratedGradients(model).attribute(rows, target=0, n_steps=64).sum(1).detach()
    milliseconds = (time.perf_counter() - start) / len(rows) * 1e3
    quality = float(rmse(gradients, truth).mean()), float(spearman(gradients, truth).mean())
    print(f"  integrated gradients RMSE {quality[0]:.4f}, Spearman {quality[1]:.3f}, {milliseconds:.0f} ms/sequence")
    for rank in (0, 11, 16, 21, 50, "full"):
        for nodes in (8, None):
            method = GradientDASP(model, rank=rank)
            method.attribute(rows[:1], target=0, feature_mask=mask, nodes=2)
            start = time.perf_counter()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                values, delta = method.attribute(
                    rows, target=0, feature_mask=mask, nodes=nodes, return_convergence_delta=True
                )
            values = values[:, 0]
            milliseconds = (time.perf_counter() - start) / len(rows) * 1e3
            print(
                f"  rank {rank!s:5} {'K = 8' if nodes else 'adaptive':12} "
                f"RMSE {float(rmse(values, truth).mean()):.4f}, Spearman {float(spearman(values, truth).mean()):.3f}, "
                f"{milliseconds:.0f} ms/sequence, gap {float(delta.abs().max()):.4f}{', warned' if caught else ''}",
                flush=True,
            )


if __name__ == "__main__":
    main()
