"""Products that sum over entries: of matrices, bilinear forms, and distances.

With one factor constant they are affine in the other. Between random values, as in `arithmetic`, with means μ,
independent variances v, total variances V and covariances c of the entries that are multiplied,

    Σ a_k b_k:   mean = Σ μ_a μ_b + c,   factors Σ μ_a b_r + μ_b a_r,   rest Σ μ_a² v_b + μ_b² v_a + V_a V_b + c²

in which products of different entries are taken as independent beyond the first order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.affine import raised
from dasp.propagation.rules.arithmetic import add, depends, scaled, sub
from dasp.propagation.rules.normalization import vector_norm
from dasp.propagation.rules.registry import RULES, Rule, affine, named, rule
from dasp.propagation.values import Linear, Power

aten = torch.ops.aten


@affine(aten.mm.default, aten.bmm.default, aten.matmul.default)
def matmul(op: Any, a: Any, b: Any) -> tuple[Any, Linear]:
    """a·b with one constant factor."""
    if isinstance(b, Tensor):
        return a, lambda data, power: op(data, raised(b, power))
    if isinstance(a, Tensor):
        return b, lambda data, power: op(raised(a, power), data)
    return None, lambda data, power: data


@affine(aten.addmm.default, aten.baddbmm.default)
def addmm(op: Any, bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> tuple[Any, Linear]:
    """β·bias + α·a·b with constant bias and one constant factor."""
    inner = aten.mm.default if op is aten.addmm.default else aten.bmm.default
    x, linear = matmul(inner, a, b)
    if not isinstance(bias, Tensor):
        return None, linear
    return x, lambda data, power: linear(data, power) * raised(alpha, power)


def contraction(a: Gaussian | Tensor, b: Gaussian | Tensor, op: Any = aten.matmul.default) -> Gaussian | Tensor:
    """Σ_k a_ik b_kj, entrywise products summed. Of their rest the last term, c², is left out: it takes a tensor of
    i × k × j, and without it Transformers' attributions were as near."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        known = isinstance(a, Tensor) and isinstance(b, Tensor)
        return op(a, b) if known else _PRODUCTS[op](a, b)  # type: ignore[no-any-return]
    mean = op(a.mean, b.mean)
    variance = op(a.mean**2, b.variance) + op(a.variance, b.mean**2) + op(a.total_variance, b.total_variance)
    if a.factors is None or b.factors is None:
        return Gaussian(mean, variance)
    shared = torch.einsum("r...ik,r...kj->...ij", a.factors, b.factors)
    factors = torch.vmap(lambda x, y: op(a.mean, y) + op(x, b.mean))(a.factors, b.factors)
    return Gaussian(mean + shared, variance, factors)


def _contracting(op: Any) -> Any:
    def contracting(a: Any, b: Any) -> Any:
        return contraction(a, b, op)

    return named(op, contracting)


_PRODUCTS: Any = {op: RULES[op].gaussian for op in (aten.mm.default, aten.bmm.default, aten.matmul.default)}
for _op in _PRODUCTS:  # which know a constant factor
    RULES[_op] = replace(RULES[_op], gaussian=_contracting(_op))


def _random_addmm(op: Any, inner: Any, constant_case: Rule) -> Rule:
    def gaussian(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Gaussian:
        """β·bias + α·a·b as a product and a sum."""
        product = RULES[inner].gaussian(a, b) if depends(a) or depends(b) else inner(a, b)  # type: ignore[misc]
        if not depends(product):
            return add(product * alpha, bias, beta)  # type: ignore[no-any-return]
        return add(scaled(product, alpha), bias, beta)  # type: ignore[no-any-return]

    gaussian.__name__ = "random_addmm"
    return Rule(gaussian, constant_case.tracker, constant_case.linear)


for _op, _inner in ((aten.addmm.default, aten.mm.default), (aten.baddbmm.default, aten.bmm.default)):
    RULES[_op] = _random_addmm(_op, _inner, RULES[_op])


@affine(aten.bilinear.default)
def bilinear(op: Any, a: Any, b: Any, weight: Tensor, bias: Tensor | None = None) -> tuple[Any, Linear]:
    """Σ a_i W_kij b_j + bias_k with one of a and b random: the other makes one matrix of W."""
    if not (isinstance(a, Tensor) or isinstance(b, Tensor)):
        return None, lambda data, power: data
    x, other, letters = (a, b, "kij,...j->...ki") if isinstance(b, Tensor) else (b, a, "kji,...j->...ki")

    def linear(data: Tensor, power: Power) -> Tensor:
        matrix = torch.einsum(letters, weight, other)
        return torch.einsum("...i,...ki->...k", data, raised(matrix, power))

    return x, linear


def _random_bilinear(constant_case: Rule) -> Rule:
    def random_bilinear(a: Any, b: Any, weight: Tensor, bias: Tensor | None = None) -> Gaussian:
        """Σ a_i W_kij b_j + bias_k between random values."""
        if not (isinstance(a, Gaussian) and isinstance(b, Gaussian)):
            return constant_case.gaussian(a, b, weight, bias)  # type: ignore[misc, no-any-return]

        def form(x: Tensor, y: Tensor, by: Tensor = weight) -> Tensor:
            return torch.einsum("...i,kij,...j->...k", x, by, y)

        mean = form(a.mean, b.mean) + (0 if bias is None else bias)
        of_a = torch.einsum("kij,...j->...ki", weight, b.mean).square()
        of_b = torch.einsum("kij,...i->...kj", weight, a.mean).square()
        variance = (of_a * a.variance.unsqueeze(-2)).sum(-1) + (of_b * b.variance.unsqueeze(-2)).sum(-1)
        variance = variance + form(a.total_variance, b.total_variance, weight.square())
        if a.factors is None or b.factors is None:
            return Gaussian(mean, variance)
        shared = torch.einsum("r...i,kij,r...j->...k", a.factors, weight, b.factors)
        return Gaussian(mean + shared, variance, form(a.mean, b.factors) + form(a.factors, b.mean))

    return Rule(random_bilinear, constant_case.tracker, constant_case.linear)


RULES[aten.bilinear.default] = _random_bilinear(RULES[aten.bilinear.default])


@rule(aten._cdist_forward.default)
def cdist(a: Any, b: Any, order: float, mode: int | None = None) -> Gaussian:
    """Norms of the differences of all rows of a from all of b; a row is at no distance from itself."""
    rows, others = (_unsqueezed(x, dim) for x, dim in ((a, -2), (b, -3)))
    differences = sub(rows, others)
    if a is not b:
        return vector_norm(differences, order, [-1])  # type: ignore[no-any-return]
    same = torch.eye(a.mean.shape[-2], dtype=a.mean.dtype, device=a.mean.device)
    distances = vector_norm(add(differences, same.unsqueeze(-1)), order, [-1])  # the norm of 0 has no derivative
    return scaled(distances, 1 - same)


def _unsqueezed(x: Any, dim: int) -> Any:
    if isinstance(x, Tensor):
        return x.unsqueeze(dim)
    return Gaussian(x.mean.unsqueeze(dim), x.variance.unsqueeze(dim), x.columns(lambda t: t.unsqueeze(dim)))
