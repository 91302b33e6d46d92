"""Shapley values for PyTorch models by propagating random coalitions through the network."""

from dasp.attribution.bayesian import BayesianShapley
from dasp.attribution.dasp import DASP
from dasp.attribution.exact import ExactShapley
from dasp.attribution.gradient import GradientDASP
from dasp.attribution.permutation import PermutationShapley
from dasp.attribution.revealcancel import DeepLiftRevealCancel
from dasp.explainer import Explainer
from dasp.gaussian import Gaussian
from dasp.lifting import UnsupportedOperation
from dasp.maximum_game import shapley_of_maximum
from dasp.metrics import completeness_gap, rmse, spearman
from dasp.propagation import propagate
from dasp.rules import rule
from dasp.tracing import UntraceableModel

__all__ = [
    "DASP",
    "BayesianShapley",
    "DeepLiftRevealCancel",
    "ExactShapley",
    "Explainer",
    "Gaussian",
    "GradientDASP",
    "PermutationShapley",
    "UnsupportedOperation",
    "UntraceableModel",
    "completeness_gap",
    "propagate",
    "rmse",
    "rule",
    "shapley_of_maximum",
    "spearman",
]

__version__ = "0.1.0"
