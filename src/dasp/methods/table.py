"""Every attribution method of the paper, and ours, in one table with one interface and with what each costs.

    METHODS["DeepLIFT RevealCancel"].on(model).attribute(x, baselines, target, feature_mask=groups)

Captum's methods and our estimators are used as they are. Whatever arguments they know by themselves, here they take
inputs, baselines, target, further arguments of the model and groups of entries; methods without a baseline ignore it.

**Cost** is counted in evaluations of the model for one row: a backward pass is two; a propagated pass is one for the
mean, one for the variance and one for each column of factors; DASP's halves with and without a player are two passes.
The paper counts these halves as one: `paper_cost`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

from captum.attr import (
    Attribution,
    DeepLift,
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    Saliency,
    ShapleyValueSampling,
)
from torch import nn

from dasp.attribution.any_method import estimated
from dasp.attribution.base import GRADIENT, Estimate, PlayerMethod
from dasp.attribution.bayesian import FEWEST, BayesianShapley
from dasp.attribution.coalition_gradients import GradientShapley
from dasp.attribution.dasp import DASP
from dasp.attribution.deeplift.revealcancel import DeepLiftRevealCancel
from dasp.attribution.exact import MOST_PLAYERS, ExactShapley
from dasp.attribution.gradient import GradientDASP, automatic_rank
from dasp.attribution.permutation import PermutationShapley
from dasp.games.arguments import Arguments, Baselines, Target, Tensors
from dasp.games.game import Game
from dasp.games.request import Request
from dasp.propagation.coalitions import column_count
from dasp.propagation.forward import Output, forward_of

__all__ = ["GRADIENT", "METHODS", "Method", "MethodOnModel"]

_PRIOR_NODES = 8
_MOST_NODES, _MOST_STEPS = 64, 300  # where the integrals have converged
_AT_ONCE = {"perturbations_per_eval": 64}  # as quick as any; Captum's default of 1 evaluates row by row
_BATCHES = frozenset({"internal_batch_size", "show_progress"})
_SEEDED = _BATCHES | {"seed"}
_REFINED = _SEEDED | {"tolerance"}


class MethodOnModel(PlayerMethod):
    """A method for a model, with options of its own `attribute` set, and with the arguments that all have here.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).eval()
    >>> method = MethodOnModel(IntegratedGradients(model), n_steps=10)
    >>> method.attribute(torch.ones(3, 4), feature_mask=torch.tensor([0, 0, 1, 2])).shape
    torch.Size([3, 2, 4])
    """

    def __init__(self, method: Attribution, **options: Any) -> None:
        super().__init__(method.forward_func)
        self.method, self.options = method, options

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
    ) -> Any:
        """Attributions in the shape of the inputs, every entry with the value of its player."""
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        request = Request.of(self.forward_func, arguments)
        values = self.explain(request).values
        return request.answer([v.to(game.device, game.dtype) for v, game in zip(values, request.games, strict=True)])

    def explain(self, request: Request, **options: Any) -> Estimate:
        """The values of the players, by the method itself; further options go before those that were set."""
        return estimated(self.method, request, **{**self.options, **options})


def _none(_: Game) -> int:
    return 0


@dataclass(frozen=True)
class Method:
    """A method of the comparison: how it is made, and what it costs."""

    make: Callable[[nn.Module], Attribution]
    fixed: Callable[[Game], int] = _none  # evaluations, whatever the number of samples
    samples: str | None = None  # the option that says how many samples (steps, nodes, …) are taken
    each: Callable[[Game], int] = _none  # evaluations for each of them
    fewest: Callable[[Game], int] = lambda _: 1
    most: Callable[[Game], int | None] = lambda _: None  # more of them are of no use
    players: int | None = None  # the largest number of players
    paper_each: Callable[[Game], int] | None = None  # the same in the paper's accounting
    options: dict[str, Any] = field(default_factory=dict)  # further ones
    takes: frozenset[str] = frozenset()  # which general options its `attribute` has, like a seed
    error_bars: bool = False  # whether it knows standard deviations
    exact: bool = False
    replicates: bool = False  # its error bars come from how its samples differ: there must be two
    propagates: bool = False  # moments, which are poor where values do not add up
    prior_nodes: int = 0  # of the propagated prior that it rests on
    row_by_row: bool = False  # as it draws from torch's own generator, rows would depend on those beside them

    def on(self, model: nn.Module, number: int | None = None, *, output: Output = None) -> MethodOnModel:
        """The method for a model, with a number of samples if it takes any (None for its own default). Of a model that
        returns several tensors, `output` is the name or index of the one to explain."""
        options = self.options if number is None or self.samples is None else {**self.options, self.samples: number}
        one: Any = model if output is None else forward_of(model, output)
        return MethodOnModel(self.make(one), **options)

    def number(self, game: Game, evaluations: int) -> int | None:
        """How many samples that many evaluations allow; None if not one."""
        if self.samples is None:
            return None
        number = (evaluations // len(game.baselines) - self.fixed(game)) // self.each(game)
        most = self.most(game)
        number = number if most is None else min(number, most)
        return number if number >= self.fewest(game) else None

    def possible(self, game: Game) -> bool:
        """Whether there are not too many players."""
        return self.players is None or game.count <= self.players

    def cost(self, game: Game, number: int | None = None) -> int:
        """Evaluations for a row; of a background, as many for each of its rows."""
        return self._cost(game, number, self.each)

    def cost_of(self, made: Attribution, game: Game, options: dict[str, Any]) -> int:
        """Evaluations for a row by what was made of the method, with these options of its `attribute`."""
        if self.samples is None:
            return self.cost(game)
        default = signature(made.attribute).parameters[self.samples].default
        return self.cost(game, options.get(self.samples, default))

    def paper_cost(self, game: Game, number: int | None = None) -> int:
        """Evaluations as the paper counts them."""
        return self._cost(game, number, self.paper_each or self.each)

    def _cost(self, game: Game, number: int | None, each: Callable[[Game], int]) -> int:
        if (number is None) != (self.samples is None):
            raise ValueError(f"the cost depends on {self.samples}" if self.samples else "the method takes no samples")
        return len(game.baselines) * (self.fixed(game) + (number or 0) * each(game))


def _propagated(rank: Any) -> Callable[[Game], int]:
    """Evaluations of a propagated pass."""
    return lambda game: 2 + column_count(automatic_rank(game) if rank == "auto" else rank, game.count)


def _dasp(rank: Any) -> Method:
    return Method(
        lambda model: DASP(model, rank=rank),
        samples="coalition_sizes",
        each=lambda game: 2 * game.count * _propagated(rank)(game),
        paper_each=lambda game: game.count * _propagated(rank)(game),
        most=lambda game: game.count,
        takes=_BATCHES,
        propagates=True,
    )


def _gradient(rank: Any) -> Method:
    return Method(
        lambda model: GradientDASP(model, rank=rank),
        samples="nodes",
        each=lambda game: GRADIENT * _propagated(rank)(game),
        most=lambda _: _MOST_NODES,
        takes=_REFINED,
        propagates=True,
    )


def _bayesian(prior: Method | None, prior_number: Callable[[Game], int], **options: Any) -> Method:
    return Method(
        lambda model: BayesianShapley(model, prior and prior.make(model), prior_options=options),
        fixed=lambda game: prior.cost(game, prior_number(game)) // len(game.baselines) if prior else 0,
        samples="max_evaluations",
        each=lambda _: 1,
        fewest=lambda game: min(FEWEST, 2**game.count),
        most=lambda game: 2**game.count,
        takes=_REFINED,
        error_bars=True,
        prior_nodes=options.get("nodes", 0),
    )


def _epsilon_lrp(model: nn.Module) -> Attribution:
    """Imported when it is needed: it rests on private parts of Captum."""
    from dasp.methods.lrp import EpsilonLRP  # noqa: PLC0415

    return EpsilonLRP(model)


METHODS = {
    "Saliency": Method(Saliency, fixed=lambda _: GRADIENT),
    "Gradient×Input": Method(InputXGradient, fixed=lambda _: GRADIENT),
    "Integrated Gradients": Method(
        IntegratedGradients, samples="n_steps", each=lambda _: GRADIENT, most=lambda _: _MOST_STEPS
    ),
    "ε-LRP": Method(_epsilon_lrp, fixed=lambda _: GRADIENT),
    # input and baseline go through together
    "DeepLIFT Rescale": Method(DeepLift, fixed=lambda _: 2 * GRADIENT),
    # the reference; and differences with the weights and with their absolute values, forward and backward
    "DeepLIFT RevealCancel": Method(DeepLiftRevealCancel, fixed=lambda _: 1 + 2 * GRADIENT),
    "DeepLIFT mixed": Method(partial(DeepLiftRevealCancel, rule="mixed"), fixed=lambda _: 1 + 2 * GRADIENT),
    "Occlusion": Method(FeatureAblation, fixed=lambda game: game.count + 1, options=_AT_ONCE),
    "Shapley sampling": Method(
        ShapleyValueSampling, fixed=lambda _: 1, samples="n_samples", each=lambda game: game.count,
        options=_AT_ONCE, row_by_row=True,
    ),
    "KernelSHAP": Method(KernelShap, samples="n_samples", each=lambda _: 1, options=_AT_ONCE, row_by_row=True),
    "Permutations": Method(
        PermutationShapley, fixed=lambda _: 2, samples="n_permutations", each=lambda game: 2 * (game.count - 1),
        takes=_REFINED, error_bars=True, replicates=True,
    ),
    "Gradients at coalitions": Method(
        GradientShapley, samples="n_pairs", each=lambda _: 2 * GRADIENT, takes=_REFINED, error_bars=True,
        replicates=True,
    ),
    "DASP": _dasp(0),
    "DASP, full rank": _dasp("full"),
    "GradientDASP, rank 0": _gradient(0),
    "GradientDASP": _gradient("auto"),
    "BayesianShapley": _bayesian(None, _none),
    "BayesianShapley on GradientDASP": _bayesian(_gradient("auto"), lambda _: _PRIOR_NODES, nodes=_PRIOR_NODES),
    "BayesianShapley on DASP": _bayesian(_dasp("full"), lambda game: game.count),
    "Exact": Method(
        ExactShapley, fixed=lambda game: 2**game.count, players=MOST_PLAYERS, takes=_BATCHES, error_bars=True,
        exact=True,
    ),
}  # fmt: skip
