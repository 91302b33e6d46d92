"""Today's libraries (shap, Captum, shapiq) in the form of `dasp.methods`: one interface, and what each costs.

    PEERS["shap KernelExplainer"].on(model, 3000).attribute(x, baselines, target, feature_mask=groups)

Every library has the settings that are best for it, not its defaults where these would be unfair, and every sampler is
seeded (`seed` among a method's options). Costs are evaluations of the model for a row, as in `dasp.methods`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import Any

import torch
from captum.attr import Attribution
from torch import nn

from dasp.methods import GRADIENT, METHODS, Method
from dasp.paper.peers import shap_explainers, shapiq_approximators
from dasp.paper.peers.coalition_peer import CoalitionPeer, Solver

__all__ = ["PEERS"]

_MOST_GRADIENTS = 2000  # where what is left of their error is not that of sampling


def _seeded(method: Attribution) -> Attribution:
    """Captum's samplers draw from torch's global generator; here from one of their own, which `seed` starts."""
    attribute = method.attribute

    @wraps(attribute)  # its arguments are looked up
    def reproducible(*arguments: Any, seed: int = 0, **options: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return attribute(*arguments, **options)

    method.attribute = reproducible
    return method


def _captum(name: str) -> Method:
    """A sampler of `dasp.methods`."""
    make = METHODS[name].make
    return replace(METHODS[name], make=lambda model: _seeded(make(model)))


def _sampler(solver: Solver, **costs: Any) -> Method:
    """A sampler; unless costs say otherwise, a sample is an evaluation."""
    return Method(partial(CoalitionPeer, solver=solver), samples="number", **{"each": lambda _: 1, **costs})


def _regression(solver: Solver, factor: int = 3, **costs: Any) -> Method:
    """A regression on v(S), exact with all 2^N coalitions. It needs a pair of coalitions for each player: with fewer
    the libraries solve a singular system in silence, and with hardly more the errors are many times the values."""
    return _sampler(
        solver,
        **{
            "fewest": lambda game: min(factor * game.count, 2**game.count - 2),
            "most": lambda game: 2**game.count,
            **costs,
        },
    )


def _permutation_explainer(model: nn.Module) -> Attribution:
    shap_explainers.compiled()
    return CoalitionPeer(model, shap_explainers.permutation)


PEERS: dict[str, Method] = {
    # the baseline once for all rows; then input and baseline together, forwards and backwards
    "shap DeepExplainer": Method(shap_explainers.DeepExplainer, fixed=lambda _: 1 + 2 * GRADIENT),
    "shap GradientExplainer": Method(
        shap_explainers.GradientExplainer, fixed=lambda _: 1, samples="nsamples", each=lambda _: GRADIENT,
        most=lambda _: _MOST_GRADIENTS,
    ),
    # v(∅) and v(N) are not among its samples
    "shap KernelExplainer": _regression(
        shap_explainers.kernel, fixed=lambda _: 2, most=lambda game: 2**game.count - 2
    ),
    # players chosen by the lasso and Akaike's criterion, which needs no tuning: better with few samples, and slower
    "shap KernelExplainer, AIC": _regression(
        partial(shap_explainers.kernel, l1_reg="aic"), fixed=lambda _: 2, most=lambda game: 2**game.count - 2
    ),
    # there and back again; v(∅) is evaluated at both ends
    "shap PermutationExplainer": Method(
        _permutation_explainer, samples="number", each=lambda game: 2 * game.count + 1
    ),
    "captum DeepLift": METHODS["DeepLIFT Rescale"],
    "captum Integrated Gradients": METHODS["Integrated Gradients"],
    "captum Shapley sampling": _captum("Shapley sampling"),
    "captum KernelShap": _captum("KernelSHAP"),
    "shapiq KernelSHAP": _regression(shapiq_approximators.kernel),
    "shapiq LeverageSHAP": _regression(shapiq_approximators.leverage),
    # 60 players have 1,831 interactions up to order 2; 200 have 20,101, and 784 have 307,721
    "shapiq kADD": _regression(shapiq_approximators.kadd, factor=4, players=60),
    "shapiq permutation": _sampler(
        shapiq_approximators.permutation, fixed=lambda _: 2, each=lambda game: game.count - 1
    ),
    # stratum by stratum for every player, in N² m steps: 25 s for 200 players and 1,000 evaluations
    "shapiq SVARM": _sampler(
        shapiq_approximators.svarm, fewest=lambda game: min(2 * game.count + 2, 2**game.count),
        most=lambda game: 2**game.count, players=60,
    ),
}  # fmt: skip
