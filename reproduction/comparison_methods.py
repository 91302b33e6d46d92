"""The methods that the paper compares with, and all methods of the comparison in one table.

Captum's methods are described in the same way as the estimators of `dasp.methods`: how a method is made for a model,
and how many evaluations of the model it takes for a row. A gradient counts as three evaluations.

    COMPARED["epsilon_lrp"].on(model).attribute(x, baselines, target, feature_mask=groups)

Methods are named by plain identifiers; `display_name` gives the names that people are shown.
"""

from __future__ import annotations

import copy
from typing import Any

from captum.attr import (
    LRP,
    DeepLift,
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    Saliency,
    ShapleyValueSampling,
)
from captum.attr._core.lrp import SUPPORTED_LAYERS_WITH_RULES, SUPPORTED_NON_LINEAR_LAYERS
from captum.attr._utils.lrp_rules import EpsilonRule
from torch import nn

from dasp.methods import GRADIENT, METHODS, Method

__all__ = ["BACKPROPAGATION", "COMPARED", "COMPARISON_METHODS", "OURS", "SAMPLING", "EpsilonLRP", "display_name"]

_MOST_STEPS = 300  # where the integral of the gradients has converged
_AT_ONCE = {"perturbations_per_eval": 64}  # as quick as any; Captum's default of 1 evaluates row by row


class EpsilonLRP(LRP):  # type: ignore[misc]
    """Captum's layer-wise relevance propagation for any network of layers: a layer that Captum has no rule for
    (Conv1d, Flatten, …) gets its ε rule. It works on a copy of the model, and rests on private parts of Captum."""

    def __init__(self, model: nn.Module) -> None:
        copied = copy.deepcopy(model)
        super().__init__(copied if list(copied.children()) else nn.Sequential(copied))

    def attribute(self, inputs: Any, target: Any = None, additional_forward_args: Any = None) -> Any:
        """Return attributions as Captum does. The rules are set for every call, as Captum removes them after one."""
        known = (*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS)
        for layer in self.model.modules():
            if not list(layer.children()) and type(layer) not in known:
                layer.rule = EpsilonRule()
        return super().attribute(inputs, target=target, additional_forward_args=additional_forward_args)


COMPARISON_METHODS: dict[str, Method] = {
    "saliency": Method(name="Saliency", make=Saliency, fixed=lambda _: GRADIENT),
    "gradient_times_input": Method(name="Gradient×Input", make=InputXGradient, fixed=lambda _: GRADIENT),
    "integrated_gradients": Method(
        name="Integrated Gradients", make=IntegratedGradients, samples="n_steps", each=lambda _: GRADIENT,
        most=lambda _: _MOST_STEPS,
    ),
    "epsilon_lrp": Method(name="ε-LRP", make=EpsilonLRP, fixed=lambda _: GRADIENT),
    # the input and the baseline go through the network together
    "deeplift_rescale": Method(name="DeepLIFT Rescale", make=DeepLift, fixed=lambda _: 2 * GRADIENT),
    "occlusion": Method(
        name="Occlusion", make=FeatureAblation, fixed=lambda game: game.count + 1, options=_AT_ONCE
    ),
    "shapley_sampling": Method(
        name="Shapley sampling", make=ShapleyValueSampling, fixed=lambda _: 1, samples="n_samples",
        each=lambda game: game.count, options=_AT_ONCE, row_by_row=True,
    ),
    "kernel_shap": Method(
        name="KernelSHAP", make=KernelShap, samples="n_samples", each=lambda _: 1, options=_AT_ONCE, row_by_row=True
    ),
}  # fmt: skip
"""Captum's methods by identifier."""

COMPARED: dict[str, Method] = {**COMPARISON_METHODS, **METHODS}
"""All methods of the reproduced experiments: Captum's, and the estimators of `dasp`."""

BACKPROPAGATION = (
    "saliency", "gradient_times_input", "integrated_gradients", "epsilon_lrp", "deeplift_rescale",
    "deeplift_revealcancel", "deeplift_mixed",
)  # fmt: skip
"""The methods of one or a few backward passes."""

SAMPLING = ("shapley_sampling", "kernel_shap", "permutation_shapley")
"""The methods that sample coalitions or permutations."""

OURS = (
    "dasp_rank_0", "dasp", "gradient_dasp_rank_0", "gradient_dasp", "bayesian_shapley",
    "bayesian_shapley_on_gradient_dasp", "bayesian_shapley_on_dasp", "gradient_shapley",
    "gradient_shapley_on_gradient_dasp",
)  # fmt: skip
"""The estimators of `dasp` that are new, `dasp_rank_0` being the paper's. Permutations count as another's method."""


def display_name(identifier: str) -> str:
    """Return the name of a method that people are shown; an identifier that is not known stands for itself.

    >>> display_name("epsilon_lrp"), display_name("shapiq_kadd"), display_name("my_method")
    ('ε-LRP', 'shapiq kADD', 'my_method')
    """
    if identifier in COMPARED:
        return COMPARED[identifier].name
    from reproduction.peers import PEERS  # noqa: PLC0415  # shap and shapiq take seconds

    return PEERS[identifier].name if identifier in PEERS else identifier
