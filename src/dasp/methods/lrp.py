"""Captum's layer-wise relevance propagation for any network of its layers; rests on private parts of Captum."""

from __future__ import annotations

import copy
from typing import Any

from captum.attr import LRP
from captum.attr._core.lrp import SUPPORTED_LAYERS_WITH_RULES, SUPPORTED_NON_LINEAR_LAYERS
from captum.attr._utils.lrp_rules import EpsilonRule
from torch import nn

from dasp.games.arguments import Target, Tensors

__all__ = ["EpsilonLRP"]


class EpsilonLRP(LRP):  # type: ignore[misc]
    """Captum's LRP with its ε rule for every layer that has none (Conv1d, Flatten, …), on a copy of the model."""

    def __init__(self, model: nn.Module) -> None:
        copied = copy.deepcopy(model)
        super().__init__(copied if list(copied.children()) else nn.Sequential(copied))

    def attribute(self, inputs: Tensors, target: Target = None, additional_forward_args: Any = None) -> Any:
        """Attribute as Captum does, which forgets the rules of a model every time."""
        known = (*SUPPORTED_LAYERS_WITH_RULES, *SUPPORTED_NON_LINEAR_LAYERS)
        for layer in self.model.modules():
            if not list(layer.children()) and type(layer) not in known:
                layer.rule = EpsilonRule()
        return super().attribute(inputs, target=target, additional_forward_args=additional_forward_args)
