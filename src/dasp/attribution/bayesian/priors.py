"""Attributions of any kind as a prior: the values of players, before any coalition was evaluated."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from captum.attr import Attribution
from torch import Tensor

from dasp.attribution.any_method import estimated
from dasp.attribution.bayesian.posterior import Trust
from dasp.attribution.dasp import DASP
from dasp.attribution.gradient import GradientDASP
from dasp.games.request import Request

__all__ = ["Prior", "prior_values", "trust"]

Prior: TypeAlias = Attribution | Tensor | tuple[Tensor, ...] | None


def trust(prior: Prior) -> Trust:
    """How far a prior is off, as signal to noise; from networks and rows other than the benchmark's. There it was 0.005
    to 0.01 for DASP of full rank, 0.01 to 0.06 for GradientDASP with factors, 0.1 to 0.3 without. Numbers of unknown
    origin are trusted like the last. Of a flat prior nothing is known: the signal is everything."""
    if prior is None:
        return Trust(10, 2)
    if isinstance(prior, DASP) and prior.rank == "full":
        return Trust(0.012, 0.8)
    if isinstance(prior, (DASP, GradientDASP)) and prior.rank != 0:
        return Trust(0.02, 1.0)
    return Trust(0.05, 1.2)


def prior_values(prior: Prior, options: dict[str, Any], request: Request) -> list[Tensor] | None:
    """The prior of each game, (players, rows, *selected) in float64 on the CPU; None if there is none."""
    if prior is None:
        return None
    if isinstance(prior, Attribution):
        values = [x.cpu().double() for x in estimated(prior, request, **options).values]
    else:
        values = request.values_of(prior)
    if not all(bool(torch.isfinite(x).all()) for x in values):
        raise ValueError("the prior has NaN or infinite entries")
    return values
