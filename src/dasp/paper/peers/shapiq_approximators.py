"""shapiq's approximators of Shapley values, as solvers of `CoalitionPeer`."""

from __future__ import annotations

import warnings
from math import comb
from typing import Any

import numpy as np
from shapiq.approximator import SVARM, KernelSHAP, PermutationSamplingSV, kADDSHAP

from dasp.paper.peers.coalition_peer import Worth

__all__ = ["kadd", "kadd_order", "kernel", "leverage", "permutation", "svarm"]

_MOST_ORDER_3 = 20  # players

# With nearly as many evaluations as there are coalitions; the values are right all the same.
_EXPECTED = ("Not all budget is required", "Sampling might be inefficient")


def _values(approximator: Any, worth: Worth, budget: int, **options: Any) -> np.ndarray:
    """The Shapley values with `budget` evaluations. The game need not start at 0: all subtract v(∅) by themselves."""
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        values = approximator.approximate(budget, worth, **options)
    return np.array([values[(player,)] for player in range(worth.players)])


def kernel(worth: Worth, number: int, seed: int) -> np.ndarray:
    """KernelSHAP with pairs of a coalition and its complement."""
    return _values(KernelSHAP(worth.players, pairing_trick=True, random_state=seed), worth, number)


def leverage(worth: Worth, number: int, seed: int) -> np.ndarray:
    """LeverageSHAP: coalitions drawn by the leverage scores of the regression, 1 / C(N, |S|) (Musco and Witter, 2025),
    so all sizes are equally likely; shapiq's weights divide by the probability that a coalition is drawn with."""
    sizes = np.ones(worth.players + 1)
    approximator = KernelSHAP(worth.players, pairing_trick=True, sampling_weights=sizes, random_state=seed)
    return _values(approximator, worth, number)


def kadd_order(players: int, number: int) -> int:
    """The order of interactions that evaluations allow. With pairs, even and odd orders do not mix: order 2 gives the
    values of KernelSHAP, and order 3 has an unknown for each interaction of order 1 and 3, which as many pairs
    determine; on the 18-input network it is the better one from 1.5 times as many. More than 20 players make the
    regression one of thousands of unknowns."""
    enough = number >= 3 * (players + comb(players, 3))
    return 3 if enough and players <= _MOST_ORDER_3 else 2


def kadd(worth: Worth, number: int, seed: int) -> np.ndarray:
    """kADD-SHAP, of order 3 where the evaluations allow it."""
    order = kadd_order(worth.players, number)
    return _values(kADDSHAP(worth.players, order, pairing_trick=True, random_state=seed), worth, number)


def permutation(worth: Worth, number: int, seed: int) -> np.ndarray:
    """Permutations, each walked once; both ends are evaluated only once."""
    players = worth.players
    budget = 2 + number * (players - 1)
    return _values(PermutationSamplingSV(players, random_state=seed), worth, budget)


def svarm(worth: Worth, number: int, seed: int) -> np.ndarray:
    """Stratified SVARM, as it comes: pairs and equally likely sizes were no better."""
    return _values(SVARM(worth.players, random_state=seed), worth, number)
