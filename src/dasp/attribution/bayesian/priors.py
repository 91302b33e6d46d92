"""Attributions of any kind as a prior: the values of players, before any coalition was evaluated."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import torch
from captum.attr import Attribution
from torch import Tensor

from dasp.attribution.base import Estimate
from dasp.attribution.bayesian.design import MOST_OPENED
from dasp.attribution.bayesian.posterior import Trust
from dasp.attribution.bayesian.regression import Covariance
from dasp.attribution.captum_adapter import estimated
from dasp.attribution.dasp import DASP
from dasp.attribution.gradient_dasp import GradientDASP
from dasp.games.game import Game
from dasp.games.request import Request

__all__ = ["Prior", "checked_prior", "covariances", "opens", "prior_values", "trust", "with_prior"]

Prior: TypeAlias = Attribution | Tensor | tuple[Tensor, ...] | None


def checked_prior(prior: Prior) -> Prior:
    """Return a prior, or say what one is."""
    tensors = prior if isinstance(prior, tuple) else (prior,)
    if prior is not None and not isinstance(prior, Attribution) and not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(f"prior must be an Attribution, a tensor or None, not a {type(prior).__name__}")
    return prior


_MOST_CORRELATED = 4096  # players
_FEW_PLAYERS = 20
_NOTHING = Trust(10, 2)
_ENTRIES_OF_DASP = {True: Trust(0.06, 0.7), False: Trust(0.4, 0.6)}  # by whether correlations are kept
_GROUPS_OF_DASP = {True: Trust(0.3, 1), False: Trust(1, 0.7)}


def trust(prior: Prior, game: Game | None = None) -> Trust:
    """Return the trust in a prior: how far it is off, as signal to noise, measured on the development networks of
    benchmarks/calibration.py:

        DASP of full rank                    0.01 to 0.03 for single entries, 0.01 to 1.4 for groups and tokens
        DASP and GradientDASP with factors   0.03 to 0.15                     0.05 to 1.8
        without                              0.2 to 1.2                       0.2 to 3.3
        integrated gradients                 0.7 to 11

    Units that see few of large players, as in a convolution over blocks, are not Gaussian. DASP's completeness gap has
    twice the size that independent errors would give it, and tells the good cases from the bad; GradientDASP's is
    that of its quadrature only. Numbers of unknown origin are trusted like integrated gradients. Of a flat prior
    nothing is known: the signal is everything."""
    if prior is None:
        return _NOTHING
    coarse = game is not None and game.coarse
    if isinstance(prior, DASP) and prior.rank == "full":
        return Trust(0.1, 1, gap=4) if coarse else Trust(0.02, 0.8, gap=4)
    if isinstance(prior, (DASP, GradientDASP)):
        return (_GROUPS_OF_DASP if coarse else _ENTRIES_OF_DASP)[prior.rank != 0]
    return Trust(2.5, 0.7)


def opens(players: int, believed: Trust) -> bool:
    """True if the design begins with single players and halves, and the game is a process: with few players, if the
    prior is hardly trusted, and with more, if there is none. (On a good prior, single players led away from it: with 64
    evaluations of networks with 10 to 18 inputs, intervals on GradientDASP held 68 to 89 % instead of 92 to 95.)"""
    return players <= (MOST_OPENED if believed == _NOTHING else _FEW_PLAYERS if believed.centre > 1 else 0)


def covariances(prior: Tensor, game: Game) -> list[Covariance]:
    """Return how the errors of a prior (columns, players) may be distributed: as large as values are, with the mean
    of all added; on a grid also alike among neighbours. (With variances, not deviations, in proportion to values,
    intervals held fewer of the largest values.)"""
    size = prior.abs()
    mean = size.mean(1, keepdim=True)
    square = (torch.where(mean > 0, size / mean, 0) + 1).square()
    scale = square / square.mean(1, keepdim=True)
    result = [Covariance(scale)]
    if game.coordinates is not None and game.count <= _MOST_CORRELATED:
        result.append(Covariance(scale, _nearness(tuple(map(tuple, game.coordinates.tolist())))))
    return result


@lru_cache(maxsize=1)
def _nearness(coordinates: tuple[tuple[int, ...], ...]) -> Tensor:
    """Return how alike the errors of players at these places are; kept for the next stage, row or call."""
    places = torch.tensor(coordinates, dtype=torch.float64)
    near = torch.exp(-(torch.cdist(places, places) ** 2) / 4.5)
    return (near + torch.eye(len(places), dtype=near.dtype)) / 2


def prior_values(prior: Prior, options: dict[str, Any], request: Request) -> Estimate | None:
    """Return the prior of each game, with values in float64 on the CPU; None if there is none."""
    if prior is None:
        return None
    evaluations: Tensor | None = torch.zeros(len(request.full), dtype=torch.long)
    if isinstance(prior, Attribution):
        found = estimated(prior, request, **options)
        values, evaluations = [x.cpu().double() for x in found.values], found.evaluations
        request.check_finite(values)
    else:
        values = request.values_of(prior)
    if not all(bool(torch.isfinite(x).all()) for x in values):
        raise ValueError("the prior has NaN or infinite entries")
    return Estimate(values, evaluations=evaluations)


def with_prior(estimate: Estimate, prior: Estimate) -> Estimate:
    """Return the estimate with the evaluations that its prior took, if they are known."""
    if estimate.evaluations is None or prior.evaluations is None:
        return replace(estimate, evaluations=None)
    return replace(estimate, evaluations=estimate.evaluations + prior.evaluations)
