"""Shapley values for PyTorch models by propagating random coalitions through the network.

Nothing else is imported until it is asked for: torch takes seconds, which `dasp --help` or an error need not wait for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dasp.attribution.bayesian import BayesianShapley
    from dasp.attribution.dasp import DASP
    from dasp.attribution.deeplift import DeepLiftRevealCancel, shapley_of_maximum
    from dasp.attribution.exact import ExactShapley
    from dasp.attribution.gradient_dasp import GradientDASP
    from dasp.attribution.gradient_shapley import GradientShapley
    from dasp.attribution.permutation import PermutationShapley
    from dasp.errors import UnsupportedOperation, UntraceableModel
    from dasp.evaluation import axioms, completeness_gap, rmse, spearman
    from dasp.evaluation.audit import audit
    from dasp.explainer import Explainer, TextExplainer, explain_game, explain_prompt
    from dasp.games.request import Contrast
    from dasp.pages import report
    from dasp.propagation import Gaussian, ProbabilisticNetwork, propagate, rule
    from dasp.propagation.saved_program import save

__all__ = [
    "DASP",
    "BayesianShapley",
    "Contrast",
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
    "explain_game",
    "explain_prompt",
    "propagate",
    "report",
    "rmse",
    "rule",
    "save",
    "shapley_of_maximum",
    "spearman",
]

__version__ = "0.3.0.dev0"

# Where the public names are, as above; and what is a module itself.
_HOMES = {
    "dasp.attribution.bayesian": ("BayesianShapley",),
    "dasp.attribution.gradient_shapley": ("GradientShapley",),
    "dasp.attribution.dasp": ("DASP",),
    "dasp.attribution.deeplift": ("DeepLiftRevealCancel", "shapley_of_maximum"),
    "dasp.attribution.exact": ("ExactShapley",),
    "dasp.attribution.gradient_dasp": ("GradientDASP",),
    "dasp.attribution.permutation": ("PermutationShapley",),
    "dasp.errors": ("UnsupportedOperation", "UntraceableModel"),
    "dasp.evaluation": ("completeness_gap", "rmse", "spearman"),
    "dasp.evaluation.audit": ("audit",),
    "dasp.explainer": ("Explainer", "TextExplainer", "explain_game", "explain_prompt"),
    "dasp.games.request": ("Contrast",),
    "dasp.pages": ("report",),
    "dasp.propagation": ("Gaussian", "ProbabilisticNetwork", "propagate", "rule"),
    "dasp.propagation.saved_program": ("save",),
}
_MODULES = {
    "axioms": "dasp.evaluation.axioms",
    **{
        room: f"dasp.{room}"
        for room in (
            "attribution", "errors", "evaluation", "explainer", "games", "jobs", "methods", "models", "players",
            "plots", "propagation", "rules",
        )
    },
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import what a public name stands for, or a room of the package."""
    if name in _MODULES:
        found: Any = importlib.import_module(_MODULES[name])
    else:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module 'dasp' has no attribute {name!r}")
        found = getattr(importlib.import_module(home), name)
    globals()[name] = found  # so that it is asked for once
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
