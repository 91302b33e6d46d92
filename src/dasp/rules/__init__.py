"""One rule per ATen op; importing this package fills the registry."""

from dasp.rules import activations, affine, arithmetic, maximum, normalization, piecewise, structural
from dasp.rules.registry import RULES, rule, same_entry

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
    "structural",
]
