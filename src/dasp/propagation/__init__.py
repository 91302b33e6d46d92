"""Random coalitions, propagated through a model's graph as Gaussians."""

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.network import propagate
from dasp.propagation.rules import rule

__all__ = [
    "Gaussian",
    "propagate",
    "rule",
]
