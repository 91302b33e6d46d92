"""One rule per ATen op; importing this package fills the registry."""

from dasp.propagation.rules import (
    activations,
    affine,
    arithmetic,
    attention,
    conditions,
    indexing,
    maximum,
    normalization,
    piecewise,
    products,
    recurrent,
    resampling,
    softmax,
    structural,
)
from dasp.propagation.rules.registry import RULES, rule, same_entry

__all__ = [
    "RULES",
    "activations",
    "affine",
    "arithmetic",
    "attention",
    "conditions",
    "indexing",
    "maximum",
    "normalization",
    "piecewise",
    "products",
    "recurrent",
    "resampling",
    "rule",
    "same_entry",
    "softmax",
    "structural",
]
