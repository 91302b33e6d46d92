"""Other libraries' methods for `real.py`: those of `reproduction.peers`, and some that only explain what they do not
call Shapley values, but that people use as if they were."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from captum.attr import GradientShap
from scipy.cluster.hierarchy import linkage

from dasp.methods import GRADIENT, Method
from reproduction.comparison_methods import COMPARISON_METHODS
from reproduction.peers import PEERS as LIBRARIES
from reproduction.peers import CoalitionPeer, RowWorth, shap  # which it imports without a warning

_MOST_SAMPLES = 2000  # of gradients, where what is left of their error is not that of sampling
_FEWEST_EVALUATIONS = 16


def _partition(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run shap's PartitionExplainer on v: Owen values of a binary tree over neighbouring players."""
    tree = linkage(np.arange(worth.players, dtype=float)[:, None], "complete")
    masker = shap.maskers.Partition(np.zeros((1, worth.players)), clustering=tree)
    explainer = shap.PartitionExplainer(worth, masker)
    return explainer(np.ones((1, worth.players)), max_evals=number, silent=True).values[0]


PEERS: dict[str, Method] = {
    **LIBRARIES,
    "captum_feature_ablation": replace(COMPARISON_METHODS["occlusion"], name="captum FeatureAblation"),
    "captum_gradient_shap": Method(
        name="captum GradientShap",
        make=GradientShap,
        samples="n_samples",
        each=lambda _: GRADIENT,
        most=lambda _: _MOST_SAMPLES,
        options={"stdevs": 0.0},
        row_by_row=True,
    ),
    "shap_partition_explainer": Method(
        name="shap PartitionExplainer",
        make=lambda model: CoalitionPeer(model, _partition),
        samples="number",
        each=lambda _: 1,
        fewest=lambda _: _FEWEST_EVALUATIONS,
        most=lambda game: 2 * game.count**2,
        players=2000,
    ),
}
"""The libraries' methods by identifier."""
