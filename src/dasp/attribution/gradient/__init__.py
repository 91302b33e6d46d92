"""GradientDASP: all players by differentiating a propagated random coalition."""

from dasp.attribution.gradient.gradient_dasp import GradientDASP, automatic_rank

__all__ = [
    "GradientDASP",
    "automatic_rank",
]
