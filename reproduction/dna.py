"""DNA: two convolutions find GATA and TAL1 motifs in generated sequences; 200 positions are the players."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from reproduction.comparison_methods import display_name
from reproduction.experiment import SLOW, Data, Drawn, Experiment, ExplainedRows, Size, SizeName
from reproduction.figures import logos

__all__ = ["DNA", "LENGTH", "Sequences", "generate"]

LENGTH = 200
LETTERS = "ACGT"
_BACKGROUND = (0.27, 0.23, 0.23, 0.27)
_PSEUDO = 0.001  # added to the probabilities of a motif
_SHOWN = (
    "dasp_rank_0", "gradient_dasp", "bayesian_shapley_on_gradient_dasp", "permutation_shapley", "kernel_shap",
    "integrated_gradients", "deeplift_rescale", "deeplift_mixed", "occlusion",
)  # fmt: skip
_MOTIFS = {
    "GATA": """.323 .185 .360 .132|.138 .476 .323 .063|.667 .100 0 .233|0 0 1 0|1 0 0 0|0 0 0 1|.878 0 0 .122|
        .974 .026 0 0|0 .053 .947 0|.243 .249 .508 0""",
    "TAL1": """.23 .35 .28 .14|.15 .30 .23 .32|.14 .23 .44 .19|.66 .09 .14 .11|.61 .30 .03 .06|0 1 0 0|1 0 0 0|0 0 1 0|
        .86 .01 .10 .03|0 0 0 1|0 0 1 0|.01 .03 .61 .35|.03 .17 .01 .79|.20 .43 .17 .20|.27 .23 .31 .19|
        .23 .26 .32 .19""",
}


@dataclass(frozen=True)
class Sequences:
    """Generated sequences of letters, with the motifs that were planted in them."""

    one_hot: Tensor  # (number, 4, 200)
    labels: Tensor  # (number, 3): both motifs, GATA, TAL1
    planted: list[list[tuple[int, int, str]]]  # start, length and name of each motif

    def letters(self, i: int) -> str:
        """Return sequence i as a string of letters."""
        return "".join(LETTERS[base] for base in self.one_hot[i].argmax(0))


def generate(number: int, seed: int = 0) -> Sequences:
    """Generate sequences with no motif, GATA, TAL1 and both in turn; one to three of each, without overlap.

    >>> sequences = generate(4)
    >>> [sorted({name for _, _, name in planted}) for planted in sequences.planted]
    [[], ['GATA'], ['TAL1'], ['GATA', 'TAL1']]
    """
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.tensor(_BACKGROUND)
    bases = torch.multinomial(probabilities, number * LENGTH, True, generator=generator).view(number, LENGTH)
    matrices = {name: _matrix(text) for name, text in _MOTIFS.items()}
    labels, planted = torch.zeros(number, 3), []
    for i in range(number):
        taken = torch.zeros(LENGTH, dtype=torch.bool)
        places = []
        for column, (name, matrix) in enumerate(matrices.items(), 1):
            if not i % 4 & column:
                continue
            labels[i, column] = 1
            copies = 0
            while not 1 <= copies <= 3:
                copies = int(torch.poisson(torch.tensor(2.0), generator=generator))
            while copies:
                start = int(torch.randint(0, LENGTH - len(matrix) + 1, (1,), generator=generator))
                place = slice(start, start + len(matrix))
                if not bool(taken[place].any()):
                    bases[i, place] = torch.multinomial(matrix, 1, generator=generator).squeeze(1)
                    taken[place] = True
                    places.append((start, len(matrix), name))
                    copies -= 1
        labels[i, 0] = float(i % 4 == 3)
        planted.append(sorted(places))
    return Sequences(nn.functional.one_hot(bases, 4).transpose(1, 2).float(), labels, planted)


def _matrix(text: str) -> Tensor:
    """Read the probabilities of the letters at each position of a motif, (length, 4)."""
    rows = torch.tensor([[float(p) for p in row.split()] for row in text.split("|")])
    return rows * (1 - _PSEUDO) + _PSEUDO / 4


class DNA(Experiment):
    """The network of Shrikumar et al. on 8,000 sequences; the Shapley values of positions for "both motifs"."""

    name = "dna"
    title = "Regulatory DNA sequences"
    task = (
        "Two convolutions (50 filters of width 11), a global average and a dense layer of 50 units tell whether a "
        "sequence of 200 letters has GATA motifs, TAL1 motifs, or both. A player is a position (its four inputs "
        "together); the baseline is 0. Explained is the score for both, before the sigmoid, of sequences with both."
    )
    epochs, batch, rate = 8, 50, 3e-3
    sizes: ClassVar = {
        SizeName.QUICK: Size(2, 100, (300, 1000, 5000), patience=15, at_most=SLOW, coalitions=500),
        SizeName.STANDARD: Size(3, 250, (300, 1000, 3000, 10_000), patience=15),
        SizeName.PAPER: Size(50, 2000, (300, 1000, 3000, 10_000, 30_000, 100_000), coalitions=10_000),
    }
    minutes: ClassVar = {SizeName.QUICK: 1.5, SizeName.STANDARD: 5}

    @cached_property
    def test(self) -> Sequences:
        """Sequences that the network is tested and explained with."""
        return generate(800, seed=1)

    def data(self) -> Data:
        """Generate 8,000 sequences to train on and 800 others to test with."""
        train = generate(8000)
        return Data(
            (train.one_hot, train.labels), (self.test.one_hot, self.test.labels),
            [f"position {i + 1}" for i in range(LENGTH)], "generated: 8,000 and 800 sequences",
        )  # fmt: skip

    def network(self, _: Data) -> nn.Module:
        """Build the paper's layers."""
        return nn.Sequential(
            nn.Conv1d(4, 50, 11), nn.ReLU(), nn.Conv1d(50, 50, 11), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(50, 50), nn.ReLU(), nn.Dropout(0.5), nn.Linear(50, 3),
        )  # fmt: skip

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Average the cross entropies of the three labels."""
        return nn.functional.binary_cross_entropy_with_logits(outputs, labels)

    def quality(self, model: nn.Module, data: Data) -> dict[str, float]:
        """Measure the areas under the ROC curves."""
        from sklearn.metrics import roc_auc_score  # noqa: PLC0415  # needed here only

        x, y = data.test
        with torch.no_grad():
            scores = model(x)
        tasks = ("both", "GATA", "TAL1")
        return {f"AUC {task}": float(roc_auc_score(y[:, i], scores[:, i])) for i, task in enumerate(tasks)}

    def explained(self, data: Data, rows: int) -> dict[str, Any]:
        """Choose test sequences with both motifs."""
        return {
            "inputs": data.test[0][3::4][:rows], "baselines": None, "target": 0,
            "feature_mask": torch.arange(LENGTH).expand(4, LENGTH),
        }  # fmt: skip

    def figures(self, explained: ExplainedRows) -> dict[str, Drawn]:
        """Draw the letters of one sequence, each as large as what it contributes."""
        panels = {"sampled Shapley values": explained.truth[0]}
        found = explained.attributions
        panels |= {display_name(method): found[method][0] for method in _SHOWN if method in found}
        figure = logos(
            self.test.letters(3), panels, self.test.planted[3],
            title="What each letter of a sequence contributes to the score for both motifs",
        )  # fmt: skip
        return {"logos": Drawn(figure, "The first explained sequence; the motifs that were planted in it are shaded.")}
