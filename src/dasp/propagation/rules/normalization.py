"""Softmax and LayerNorm: exact within a player, as over a token's embedding; between players they have no rule."""

from __future__ import annotations

import torch

from dasp.propagation.rules.registry import RULES, Rule, within

aten = torch.ops.aten

for _op in (aten.softmax.int, aten.log_softmax.int):
    RULES[_op] = Rule(None, within(lambda x, dim, *_, **__: [dim], keepdim=lambda *_, **__: None))

RULES[aten.layer_norm.default] = Rule(
    None, within(lambda x, shape, *_, **__: range(-len(shape), 0), keepdim=lambda *_, **__: None)
)
