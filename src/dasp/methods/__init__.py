"""Every method, what it can do, what it costs, and which to choose."""

from dasp.methods.table import GRADIENT, METHODS, EpsilonLRP, Method, PlayerAttribution

__all__ = [
    "GRADIENT",
    "METHODS",
    "EpsilonLRP",
    "Method",
    "PlayerAttribution",
]
