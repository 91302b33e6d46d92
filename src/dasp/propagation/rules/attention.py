"""Scaled dot-product attention, softmax(q·kᵀ·scale + mask)·v, as one op.

It is a product, a softmax and another product, by their own rules (`products.contraction`, `softmax`): the covariance
that queries have with keys is in the mean of the logits, and that of weights with values in the mean of the result.
Queries that may attend to nothing give 0, as torch has it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian, nonnegative
from dasp.propagation.rules.affine import raised
from dasp.propagation.rules.arithmetic import add, mul
from dasp.propagation.rules.products import contraction
from dasp.propagation.rules.registry import RULES, affine
from dasp.propagation.rules.softmax import softmax
from dasp.propagation.rules.tokens import token_attention
from dasp.propagation.values import Linear

aten = torch.ops.aten
Value = Gaussian | Tensor


def _transposed(x: Value) -> Value:
    if isinstance(x, Tensor):
        return x.mT
    return Gaussian(x.mean.mT, x.variance.mT, None if x.factors is None else x.factors.mT)


def _repeated(x: Any, heads: int) -> Any:
    """As many heads as the queries have, each of its own several times over."""
    if isinstance(x, Tensor):
        return x.repeat_interleave(heads // x.shape[-3], -3)
    parts = (x.mean, x.variance) if x.factors is None else (x.mean, x.variance, x.factors)
    return Gaussian(*(_repeated(part, heads) for part in parts))


def _additive(mask: Value | None, causal: bool, shape: tuple[int, ...], like: Tensor) -> Value | None:
    """The mask as what is added to the logits: −∞ where nothing is attended to."""
    if causal:
        mask = torch.ones(shape, dtype=torch.bool, device=like.device).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)
    return mask


def _weights(query: Value, key: Value, mask: Value | None, causal: bool, scale: float | None) -> Value:
    """softmax(q·kᵀ·scale + mask); a row that is masked altogether is 0."""
    mean, other = (x.mean if isinstance(x, Gaussian) else x for x in (query, key))
    scale = 1 / math.sqrt(mean.shape[-1]) if scale is None else scale
    mask = _additive(mask, causal, (mean.shape[-2], other.shape[-2]), mean)
    scaled = mul(query, scale) if isinstance(query, Gaussian) else query * scale
    logits: Any = contraction(scaled, _transposed(key))
    if mask is None:
        return softmax(logits, -1) if isinstance(logits, Gaussian) else logits.softmax(-1)
    if isinstance(mask, Gaussian):
        return softmax(add(logits, mask), -1)  # type: ignore[no-any-return]
    nothing = (mask == -torch.inf).all(-1, keepdim=True)
    mask = mask.masked_fill(nothing, 0)
    if isinstance(logits, Tensor):
        return (logits + mask).softmax(-1).masked_fill(nothing, 0)
    return mul(softmax(add(logits, mask), -1), (~nothing).to(mask))  # type: ignore[no-any-return]


def _grouped(query: Value, key: Value, value: Value, enable_gqa: bool) -> tuple[Value, Value]:
    if not enable_gqa:
        return key, value
    heads = (query.mean if isinstance(query, Gaussian) else query).shape[-3]
    return _repeated(key, heads), _repeated(value, heads)


@affine(aten.scaled_dot_product_attention.default)
def attention_to_values(
    op: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    *, scale: float | None = None, enable_gqa: bool = False,
) -> tuple[Any, Linear]:  # fmt: skip
    """A weighted sum of the values, if they alone are random."""
    if not all(isinstance(x, Tensor) or x is None for x in (query, key, attn_mask)):
        return None, lambda data, power: data
    key, _ = _grouped(query, key, key, enable_gqa)
    weights = _weights(query, key, attn_mask, is_causal, scale)

    def linear(data: Tensor, power: Any) -> Tensor:
        return raised(weights, power) @ (_repeated(data, query.shape[-3]) if enable_gqa else data)

    return value, linear


def scaled_dot_product_attention(
    query: Value, key: Value, value: Value, attn_mask: Value | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Gaussian:  # fmt: skip
    """softmax(q·kᵀ·scale + mask)·v; see the module's docstring."""
    key, value = _grouped(query, key, value, enable_gqa)
    weights = _weights(query, key, attn_mask, is_causal, scale)
    result: Any = contraction(weights, value)
    return _balanced(result, weights, value) if isinstance(weights, Gaussian) else result  # type: ignore[no-any-return]


def _balanced(result: Gaussian, weights: Gaussian, value: Value) -> Gaussian:
    """The variance that weights add is Σ_k v_k (b_k − result)² beside values b, as the weights' sum is certain."""
    b = value.mean if isinstance(value, Gaussian) else value
    excess = result.mean * (2 * (weights.variance @ b) - result.mean * weights.variance.sum(-1, keepdim=True))
    return replace(result, variance=nonnegative(result.variance - excess))


_OP = aten.scaled_dot_product_attention.default
RULES[_OP] = replace(RULES[_OP], gaussian=scaled_dot_product_attention, apart=token_attention)
