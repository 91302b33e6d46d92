"""One rule per ATen op; importing this package fills the registry."""

from dasp.rules import activations, affine, arithmetic, maximum, normalization, structural
from dasp.rules.registry import RULES, rule, same_entry

__all__ = [
    "RULES",
    "activations",
    "affine",
    "arithmetic",
    "maximum",
    "normalization",
    "rule",
    "same_entry",
    "structural",
]
