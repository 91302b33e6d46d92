"""BayesianShapley: a regression over coalitions that starts from any attributions."""

from dasp.attribution.bayesian.bayesian_shapley import FEWEST, BayesianShapley

__all__ = [
    "FEWEST",
    "BayesianShapley",
]
