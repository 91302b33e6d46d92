"""DeepLIFT's rules, op by op: nothing gets lost, parts are as the paper defines them, and games have their values."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from test_rules import CASES, Lambda, program, random_input
from torch import nn

from dasp import DeepLiftRevealCancel, ExactShapley
from dasp.attribution.deeplift import DIFFERENCE_RULES
from dasp.attribution.deeplift.deeplift import walk
from dasp.attribution.deeplift.difference_rules import whole_operations
from dasp.attribution.deeplift.differences import Difference
from dasp.errors import UnsupportedOperation
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace

NONLINEAR = ["revealcancel", "rescale", "mixed"]

# Operations that mix entries or are steps, stay whole in any graph, and whose multipliers DeepLIFT does not define.
MIXING = {
    "logaddexp", "logsumexp", "logsumexp of two dims", "layer norm", "layer norm of two dims", "layer norm, weighted",
    "group norm", "group norm of images", "instance norm", "var", "var of two dims", "std", "std of two dims", "norm",
    "norm of order 1", "norm of order 3", "norm of order infinity", "normalize", "cosine_similarity",
    "cosine with a constant", "prod", "prod keepdim", "and", "and of one value", "any", "any of two dims",
    "assigned by mask", "attention", "attention, additive mask", "attention, causal", "attention, fixed keys",
    "attention, fixed queries", "attention, fixed values", "attention, masked", "attention, scaled",
    "attention, shared keys", "bilinear", "both sides", "cdist", "cdist from itself", "cdist of order 1",
    "cdist of random", "choice by another", "clamp by another", "clamp by itself", "condition times another",
    "cosine with one vector", "count", "elu by where", "eq", "eq of tensors", "fmax", "fmin", "functions by where",
    "ge", "ge of a number", "gt", "gt of random", "gt of tensors", "heaviside", "isinf", "isnan",
    "layer norm by its deviation", "layer norm by its variance", "layer norm, as much noise as signal", "le",
    "le of tensors", "leaky by where", "logical_and", "logical_not", "logical_xor", "logsumexp, masked", "lt",
    "lt of tensors", "masked_fill of itself", "maxima at places", "mean of both", "minima at places", "ne",
    "ne of tensors", "norm of order 0", "normalize few", "not",
    "numbers by where", "or", "or of one value", "over its norm", "over its norm and more", "pairwise distance",
    "power of random", "products at places", "spectrum", "sum of the sources alone",
    "times a condition", "times a number", "var and mean", "xor",
}  # fmt: skip


@cache
def divided(name):
    """The graph of a case as DeepLIFT has it."""
    return trace(program(name), (), whole_operations(), pool_first=False)


# Each takes a trace: of those that are refused, every sixth.
TRACED = [case for case in CASES if case.name not in MIXING - set(sorted(MIXING)[::6])]


@pytest.mark.parametrize("case", TRACED, ids=lambda case: case.name)
def test_every_operation_keeps_the_difference(case):
    """Whatever the parts are, those of the result sum to f(x) − f(x⁰)."""
    reference = random_input(case, 0).mean
    up, down = case.scale * torch.rand(2, *reference.shape, generator=torch.Generator().manual_seed(4)).double()
    x = Difference(reference, up, -down)
    if case.name in MIXING:
        with pytest.raises(UnsupportedOperation, match="no rule for differences from a reference"):
            walk(divided(case.name), (x,), "rescale")
        return
    for nonlinear in NONLINEAR:
        result = walk(divided(case.name), (x,), nonlinear)
        torch.testing.assert_close(result.reference, case.module(reference))
        torch.testing.assert_close(result.value, case.module(reference + up - down), rtol=1e-10, atol=1e-10)


AFFINE = [case for case in CASES if case.oracle == "JACOBIAN" and case.name not in {"same value away", *MIXING}]


@pytest.mark.parametrize("case", AFFINE, ids=lambda case: case.name)
def test_linear_rule(case):
    """y⁺ = Σ max(w_i Δ_i, 0), y⁻ = Σ min(w_i Δ_i, 0)."""
    reference, value = random_input(case, 0).mean, random_input(case, 1).variance
    x = Difference.between(value, reference)
    result = walk(divided(case.name), (x,), "revealcancel")
    jacobian = torch.autograd.functional.jacobian(case.module, reference).reshape(result.reference.numel(), -1)
    terms = jacobian * x.total.flatten()
    torch.testing.assert_close(result.positive.flatten(), terms.clamp(min=0).sum(1), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(result.negative.flatten(), terms.clamp(max=0).sum(1), rtol=1e-10, atol=1e-10)


def test_rules_for_differences_are_of_operations_that_stay_whole():
    assert set(DIFFERENCE_RULES) <= set(RULES)


WEIGHTS = torch.randn(12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

GAMES = {
    "max_pool1d": nn.MaxPool1d(3, 2, padding=1),
    "max_pool1d dilated, ceil": nn.MaxPool1d(3, 3, dilation=2, ceil_mode=True),
    "max_pool2d": lambda x: nn.functional.max_pool2d(x.view(-1, 1, 3, 4), (2, 3), (1, 2), (1, 1)),
    "max_pool3d": lambda x: nn.functional.max_pool3d(x.view(-1, 1, 2, 3, 2), 2, 1),
    "adaptive_max_pool1d": nn.AdaptiveMaxPool1d(5),
    "adaptive_max_pool2d": lambda x: nn.functional.adaptive_max_pool2d(x.view(-1, 1, 3, 4), (2, 3)),
    "amax": lambda x: x.view(-1, 3, 4).amax(1),
    "amax of two": lambda x: x.view(-1, 3, 2, 2).amax((1, 3), keepdim=True),
    "amin": lambda x: x.view(-1, 3, 4).amin(2),
    "maximum": lambda x: torch.maximum(x.view(-1, 2, 6)[:, 0], x.view(-1, 2, 6)[:, 1]),
    "maximum with a constant": lambda x: torch.maximum(x.view(-1, 12), WEIGHTS),
    "minimum": lambda x: torch.minimum(x.view(-1, 2, 6)[:, 0], 0.3 - x.view(-1, 2, 6)[:, 1]),
    "product": lambda x: x.view(-1, 2, 6)[:, 0] * x.view(-1, 2, 6)[:, 1],
    "product of matrices": lambda x: x.view(-1, 2, 2, 3)[:, 0] @ x.view(-1, 2, 2, 3)[:, 1].transpose(1, 2),
}


@pytest.mark.parametrize("name", GAMES)
def test_games_by_themselves_are_exact(name):
    model = Lambda(lambda x: (y := GAMES[name](x).flatten(1)) @ WEIGHTS[: y.shape[1]]).eval()
    torch.manual_seed(2)
    x, baseline = torch.randn(2, 2, 1, 12, dtype=torch.float64)
    baseline[1, 0, :4] = x[1, 0, :4]  # entries that do not differ
    result = DeepLiftRevealCancel(model).attribute(x, baseline)
    torch.testing.assert_close(result, ExactShapley(model).attribute(x, baseline), rtol=1e-9, atol=1e-9)
