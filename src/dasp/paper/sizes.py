"""Sizes of an experiment: how many rows are explained, with how many evaluations, against how exact a truth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

__all__ = ["SLOW", "Size", "SizeName"]

# Evaluations per row beyond which Captum's KernelSHAP, by either name, takes longer than all other methods together.
SLOW = {"KernelSHAP": 1000, "captum KernelShap": 1000}


class SizeName(StrEnum):
    """Names of the sizes that every experiment has."""

    QUICK = "quick"
    STANDARD = "standard"
    PAPER = "paper"


@dataclass(frozen=True)
class Size:
    """How much of an experiment is done."""

    rows: int  # that are explained
    permutations: int  # of a sampled truth, each with its reverse; 0 for an exact one
    budgets: tuple[int, ...]  # evaluations per row
    patience: float = math.inf  # seconds for all rows, beyond which a method is not given a budget
    at_most: Mapping[str, int] = field(default_factory=dict)  # evaluations per row of methods that are slow with more
    coalitions: int = 2000  # of each size, over which hidden units are looked at
