"""DNA: how does SpliceAI know where the first intron of the human β-globin gene begins?

The network is in a package, as a Keras model that looks at 10,001 letters; the players are the forty around the site.

    pip install keras h5py
    pip install --no-deps spliceai
    python splice.py [--small]          draws splice.png
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"

import keras
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from dasp import Explainer, plots

EVALUATIONS = 12 if "--small" in sys.argv else 300

# The first exon and intron of HBB, and half of the second exon. Mutations of the intron's letters 1, 5 and 6 are known
# to cause thalassaemia.
EXON = (
    "ACATTTGCTTCTGACACAACTGTGTTCACTAGCAACCTCAAACAGACACCATGGTGCATCTGACTCCTGAGGAGAAGTCTGCCGTTACTGCCCTGTGGGGCAAGGTG"
    "AACGTGGATGAAGTTGGTGGTGAGGCCCTGGGCAG"
)
INTRON = (
    "GTTGGTATCAAGGTTACAAGACAGGTTTAAGGAGACCAATAGAAACTGGGCATGTGGAGACAGAGAAGACTCTTGGGTTTCTGATAGGCACTGACTCTCTCTGCCTA"
    "TTGGTCTATTTTCCCACCCTTAG"
)
NEXT = "GCTGCTGGTGGTCTACCCTTGGACCCAGAGGTTCTTTGAGTCCTTTGGGGATCTGTCCACTCCTGATGCTGTTATGGGCAACCCTAAGGTGAAGGCTCATGGCAAG"
AROUND = 20
BEFORE = 5001 - len(EXON)  # unknown letters, so that the exon's last one is in the middle

gene = EXON + INTRON + NEXT
x = torch.zeros(1, 10_001, 4)
x[0, torch.arange(len(gene)) + BEFORE, torch.tensor(["ACGT".index(letter) for letter in gene])] = 1
site = slice(5001 - AROUND, 5001 + AROUND)
package = find_spec("spliceai")
assert package, "pip install --no-deps spliceai"
assert package.origin
network = keras.models.load_model(Path(package.origin).parent / "models" / "spliceai1.h5", compile=False)


@torch.no_grad()
def donor(letters: Tensor) -> Tensor:
    """Return the log-odds of the end of an exon, for the letters around it (rows, 40, 4)."""
    rows = x.repeat(len(letters), 1, 1)
    rows[:, site] = letters
    return torch.logit(network(rows)[:, 0, 2])


explainer = Explainer(donor, baselines=0.0, players="window:1,dim=0", max_evaluations=EVALUATIONS, batch_size=8)
explanation = explainer(x[:, site])
figure, axes = plt.subplots(figsize=(9, 2.4), layout="constrained")
plots.logo(
    explanation[0], sequence=gene[len(EXON) - AROUND :][: 2 * AROUND], highlighted=[(AROUND, AROUND, "the intron")],
    title="Which letters tell SpliceAI that the exon ends here?", ax=axes,
)  # fmt: skip
figure.savefig("splice.png", dpi=110)
