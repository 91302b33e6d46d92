"""Sums and means of embeddings, in ops that have rules: a token, or its weight, adds to its bag as to any sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["DECOMPOSITIONS"]

aten = torch.ops.aten
_SUM, _MEAN = 0, 1
_DEFAULTS = (False, _SUM, False, None, False, -1)


def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, *options: Any) -> Any:
    """A bag's entries are those from its offset to the next."""
    given = (*options, *_DEFAULTS[len(options) :])
    _scale_gradient, mode, _sparse, per_sample_weights, include_last_offset, padding_idx = given
    if mode not in (_SUM, _MEAN) or (mode == _MEAN and padding_idx >= 0):
        return NotImplemented  # how many entries count depends on the tokens
    starts = offsets[:-1] if include_last_offset else offsets
    bag = torch.searchsorted(starts, torch.arange(indices.shape[0], device=indices.device), right=True) - 1
    entries = aten.embedding.default(weight, indices)
    if padding_idx >= 0:
        entries = entries * (indices != padding_idx).unsqueeze(-1)
    if per_sample_weights is not None:
        entries = entries * per_sample_weights.unsqueeze(-1)
    total = weight.new_zeros(starts.shape[0], weight.shape[1]).index_add(0, bag, entries)
    if mode == _MEAN:
        counts = weight.new_zeros(starts.shape[0]).index_add(0, bag, torch.ones_like(bag, dtype=weight.dtype))
        total = total / counts.clamp(min=1).unsqueeze(-1)
    unused = offsets.new_empty(0)
    return total, unused, unused, unused


DECOMPOSITIONS = {aten._embedding_bag.default: _embedding_bag, aten._embedding_bag_forward_only.default: _embedding_bag}
