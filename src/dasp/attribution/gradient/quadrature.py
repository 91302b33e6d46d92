"""Nodes and weights for integrals over the probability q that a player takes part.

    Shapley        ∫₀¹ g(q) dq
    Banzhaf        g(½)
    Beta(α, β)     ∫₀¹ g(q) q^(β−1)(1−q)^(α−1) dq / B(α, β)      (Kwon & Zou 2022; Beta(1, 1) is Shapley)

A fixed number of nodes is Gauss's rule for the weight. The adaptive rules are Fejér's second in t with q = t²(3 − 2t):

- its 2ᵏ − 1 nodes are among the 2ᵏ⁺¹ − 1 of the next level, so refining throws no evaluation away;
- where a unit is at its kink when the coalition is certain, its mean grows like the standard deviation, √q, and the
  derivative has a pole of order ½ at q = 0 (or 1). In t it has none, so the rule converges fast where Gauss's does not.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Index", "check_index", "fejer", "gauss"]

Array = NDArray[np.float64]
Index = str | tuple[float, float]


def parameters(index: Index) -> tuple[float, float]:
    """α and β of a semivalue's Beta distribution."""
    if index == "shapley":
        return 1.0, 1.0
    if isinstance(index, tuple) and len(index) == 2 and all(isinstance(x, (int, float)) and x > 0 for x in index):
        return float(index[0]), float(index[1])
    raise ValueError(f'index must be "shapley", "banzhaf" or (α, β) with both positive, not {index!r}')


def check_index(index: Index) -> None:
    """Refuse what is not an index."""
    if index != "banzhaf":
        parameters(index)


@cache
def gauss(number: int, index: Index = "shapley") -> tuple[Array, Array]:
    """The `number` nodes and weights of Gauss's rule for the index; one node at ½ for Banzhaf.

    The nodes are the eigenvalues of the Jacobi matrix of the orthogonal polynomials (Golub & Welsch 1969).

    >>> nodes, weights = gauss(2)
    >>> nodes.round(4), weights
    (array([0.2113, 0.7887]), array([0.5, 0.5]))
    """
    if index == "banzhaf":
        return np.array([0.5]), np.array([1.0])
    alpha, beta = parameters(index)
    a, b = alpha - 1, beta - 1  # weight (1−x)^a (1+x)^b on [−1, 1]
    k = np.arange(number, dtype=float)
    total = 2 * k + a + b
    with np.errstate(divide="ignore", invalid="ignore"):
        diagonal = np.where(total == 0, (b - a) / (a + b + 2), (b * b - a * a) / (total * (total + 2)))
        step = 4 * k * (k + a) * (k + b) * (k + a + b) / (total**2 * (total + 1) * (total - 1))
    diagonal[0] = (b - a) / (a + b + 2)
    if number > 1:
        step[1] = 4 * (1 + a) * (1 + b) / ((2 + a + b) ** 2 * (3 + a + b))
    off = np.sqrt(step[1:])
    nodes, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return (nodes + 1) / 2, vectors[0] ** 2


@cache
def fejer(level: int) -> tuple[Array, Array]:
    """Fejér's second rule with 2^level − 1 nodes in t.

    >>> nodes, weights = fejer(2)
    >>> nodes.round(4), weights.round(4), float(weights.sum().round(4))
    (array([0.0581, 0.5   , 0.9419]), array([0.25, 0.5 , 0.25]), 1.0)
    """
    intervals = 2**level
    angle = np.arange(1, intervals) * np.pi / intervals
    odd = np.arange(1, intervals, 2)
    weights = 2 / intervals * np.sin(angle) * (np.sin(np.outer(angle, odd)) / odd).sum(1)
    t = (1 - np.cos(angle)) / 2
    return t * t * (3 - 2 * t), weights * 6 * t * (1 - t)
