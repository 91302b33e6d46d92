"""One rule per ATen op; importing this package fills the registry."""

from dasp.propagation.rules import (
    activations,
    affine,
    arithmetic,
    maximum,
    normalization,
    piecewise,
    softmax,
    structural,
)
from dasp.propagation.rules.registry import RULES, rule, same_entry

__all__ = [
    "RULES",
    "activations",
    "affine",
    "arithmetic",
    "maximum",
    "normalization",
    "piecewise",
    "rule",
    "same_entry",
    "softmax",
    "structural",
]
