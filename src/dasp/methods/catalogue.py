"""The methods that `Explainer` chooses from, by plain identifiers, in one table with one interface and their costs.

    METHODS["gradient_dasp"].on(model).attribute(x, baselines, target, feature_mask=groups)

What each of our estimators costs and can do, it says itself (`PlayerMethod.profile`). A method of somebody else, such
as Captum's, is a `Method` with its costs written down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

from captum.attr import Attribution
from torch import nn

from dasp.attribution.base import GRADIENT, PlayerMethod, Profile
from dasp.attribution.bayesian.bayesian_shapley import BayesianShapley
from dasp.attribution.captum_adapter import MethodOnModel
from dasp.attribution.dasp import DASP
from dasp.attribution.deeplift.deeplift import DeepLiftRevealCancel
from dasp.attribution.exact import ExactShapley
from dasp.attribution.gradient_dasp import GradientDASP
from dasp.attribution.gradient_shapley import GradientShapley
from dasp.attribution.permutation import PermutationShapley
from dasp.errors import BadInput
from dasp.formatting import METHOD_NAMES
from dasp.games.game import Game
from dasp.models.calling import Output, forward_of

__all__ = ["GRADIENT", "METHODS", "PRIOR_NODES", "SHORT_NAMES", "Method", "MethodOnModel", "find"]

PRIOR_NODES = 8  # of GradientDASP as a prior


@dataclass(frozen=True)
class Method(Profile):
    """A method with its name, the way to make it for a model, and its `Profile`: what it costs and can do.

    >>> from captum.attr import Saliency
    >>> Method("Saliency", Saliency, fixed=lambda _: GRADIENT).name
    'Saliency'
    """

    name: str  # as people are shown it
    make: Callable[[nn.Module], Attribution]
    options: dict[str, Any] = field(default_factory=dict)  # further ones of its `attribute`
    takes: frozenset[str] = frozenset()  # the options of ours that it has, like a seed
    row_by_row: bool = False  # it draws from torch's own generator, so that rows would depend on those beside them

    @staticmethod
    def of(identifier: str, estimator: type[PlayerMethod], **settings: Any) -> Method:
        """Return one of our estimators, made with these settings, with what it says itself of its cost."""
        return _ours(identifier, partial(estimator, **settings), estimator, estimator.profile(**settings))

    def on(self, model: nn.Module, number: int | None = None, *, output: Output = None) -> MethodOnModel:
        """Return the method for a model, with a number of samples if it takes any (None for its own default). Of a
        model that returns several tensors, `output` is the name or index of the one to explain."""
        options = self.options if number is None or self.samples is None else {**self.options, self.samples: number}
        one: Any = model if output is None else forward_of(model, output)
        return MethodOnModel(self.make(one), **options)


def _ours(
    identifier: str, make: Callable[[nn.Module], Attribution], estimator: type[PlayerMethod], profile: Profile
) -> Method:
    return Method(METHOD_NAMES[identifier], make, takes=frozenset(estimator.options()), **vars(profile))


def _on_prior(
    identifier: str,
    estimator: type[BayesianShapley | GradientShapley],
    prior: Method,
    samples: Callable[[Game], int],
    **options: Any,
) -> Method:
    """Return an estimator on a prior that takes so many samples."""
    return _ours(
        identifier,
        lambda model: estimator(model, prior.make(model), prior_options=options),
        estimator,
        estimator.profile(prior=prior, prior_samples=samples),
    )


_DASP = Method.of("dasp", DASP, rank="full")
_GRADIENT_DASP = Method.of("gradient_dasp", GradientDASP, rank="auto")

METHODS: dict[str, Method] = {
    "exact_shapley": Method.of("exact_shapley", ExactShapley),
    "permutation_shapley": Method.of("permutation_shapley", PermutationShapley),
    "gradient_shapley": Method.of("gradient_shapley", GradientShapley),
    "dasp": _DASP,
    "dasp_rank_0": Method.of("dasp_rank_0", DASP, rank=0),
    "gradient_dasp": _GRADIENT_DASP,
    "gradient_dasp_rank_0": Method.of("gradient_dasp_rank_0", GradientDASP, rank=0),
    "bayesian_shapley": Method.of("bayesian_shapley", BayesianShapley),
    "bayesian_shapley_on_gradient_dasp": _on_prior(
        "bayesian_shapley_on_gradient_dasp", BayesianShapley, _GRADIENT_DASP, lambda _: PRIOR_NODES, nodes=PRIOR_NODES
    ),
    "bayesian_shapley_on_dasp": _on_prior("bayesian_shapley_on_dasp", BayesianShapley, _DASP, lambda game: game.count),
    "gradient_shapley_on_gradient_dasp": _on_prior(
        "gradient_shapley_on_gradient_dasp", GradientShapley, _GRADIENT_DASP, lambda _: PRIOR_NODES, nodes=PRIOR_NODES
    ),
    "deeplift_revealcancel": Method.of("deeplift_revealcancel", DeepLiftRevealCancel, rule="revealcancel"),
    "deeplift_mixed": Method.of("deeplift_mixed", DeepLiftRevealCancel, rule="mixed"),
}
"""Every method that `Explainer` knows by name: a `Method` for each identifier."""

SHORT_NAMES = {
    "exact": "exact_shapley",
    "permutation": "permutation_shapley",
    "gradient": "gradient_dasp",
    "bayesian": "bayesian_shapley",
}
"""Short names that are understood in place of identifiers."""


def find(text: str) -> str:
    """Return the identifier in `METHODS` of a method by its identifier, its name in any case, or a short name.

    >>> find("GradientDASP"), find("exact"), find("dasp, rank 0")
    ('gradient_dasp', 'exact_shapley', 'dasp_rank_0')
    >>> find("gradient_dap")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: there is no method 'gradient_dap': did you mean gradient_dasp?
    """
    spellings = {key: key for key in METHODS}
    spellings |= {method.name.casefold(): key for key, method in METHODS.items()} | SHORT_NAMES
    if not isinstance(text, str):
        raise BadInput(f"a method is its name, or an Attribution that was made for the model, not {text!r}")
    wanted = text.strip().casefold()
    if wanted in spellings:
        return spellings[wanted]
    near = dict.fromkeys(spellings[match] for match in get_close_matches(wanted, spellings))
    if near:
        raise BadInput(f"there is no method {text!r}: did you mean {' or '.join(near)}?")
    raise BadInput(f"there is no method {text!r}; there are {', '.join(['auto', *SHORT_NAMES, *METHODS])}")
