"""Shapley values for PyTorch models by propagating random coalitions through the network."""

from dasp import former_names
from dasp.attribution.bayesian import BayesianShapley
from dasp.attribution.coalition_gradients import GradientShapley
from dasp.attribution.dasp import DASP
from dasp.attribution.deeplift import DeepLiftRevealCancel, shapley_of_maximum
from dasp.attribution.exact import ExactShapley
from dasp.attribution.gradient import GradientDASP
from dasp.attribution.permutation import PermutationShapley
from dasp.errors import UnsupportedOperation, UntraceableModel
from dasp.evaluation import axioms, completeness_gap, rmse, spearman
from dasp.evaluation.audit import audit
from dasp.explainer import Explainer, TextExplainer
from dasp.propagation import Gaussian, ProbabilisticNetwork, propagate, rule

__all__ = [
    "DASP",
    "BayesianShapley",
    "DeepLiftRevealCancel",
    "ExactShapley",
    "Explainer",
    "Gaussian",
    "GradientDASP",
    "GradientShapley",
    "PermutationShapley",
    "ProbabilisticNetwork",
    "TextExplainer",
    "UnsupportedOperation",
    "UntraceableModel",
    "audit",
    "axioms",
    "completeness_gap",
    "propagate",
    "rmse",
    "rule",
    "shapley_of_maximum",
    "spearman",
]

__version__ = "0.2.0.dev0"

former_names.serve()
