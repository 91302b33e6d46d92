"""LayerNorm: exact within a player, as over a token's embedding; between players it has no rule."""

from __future__ import annotations

import torch

from dasp.propagation.rules.registry import RULES, Rule, within

aten = torch.ops.aten

RULES[aten.layer_norm.default] = Rule(
    None, within(lambda x, shape, *_, **__: range(-len(shape), 0), keepdim=lambda *_, **__: None)
)
