"""Attributions of any method, with all of our arguments, as values of players.

Captum's methods differ in which arguments they know and explain one output at a time; many know no groups of entries,
and most one baseline only. Here every method takes all arguments, a group gets the sum over its entries where the
method knows none, several baselines are averaged over, and all outputs are explained if no target is given. For a
`Contrast`, the model that the method explains is one of differences of outputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from inspect import signature
from typing import Any

import torch
from captum.attr import Attribution, GradientAttribution
from torch import Tensor, nn

from dasp.attribution.base import Estimate, PlayerMethod
from dasp.games.call_options import read_options
from dasp.games.game import Game
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors
from dasp.models.calling import like, one_tensor
from dasp.models.export_lock import evaluation_lock

__all__ = ["MethodOnModel", "estimated"]

# What Captum warns of when DeepLift and KernelShap are used as they are here.
_EXPECTED = ("Setting forward, backward hooks", "You are providing multiple inputs")


class MethodOnModel(PlayerMethod):
    """A method for a model, with options of its own `attribute` set, and with the arguments that all have here.

    >>> from captum.attr import IntegratedGradients
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)).eval()
    >>> method = MethodOnModel(IntegratedGradients(model), n_steps=10)
    >>> method.attribute(torch.ones(3, 4), feature_mask=torch.tensor([0, 0, 1, 2])).shape
    torch.Size([3, 2, 4])
    """

    def __init__(self, method: Attribution, **options: Any) -> None:
        super().__init__(method.forward_func)
        self.method, self.fixed_options = method, options

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
    ) -> Any:
        """Return attributions in the shape of the inputs, every entry with the value of its player."""
        return self._attribute(Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask))

    def explain(self, request: Request, **options: Any) -> Estimate:
        """Return the values of the players, by the method itself; further options go before those that were set."""
        return estimated(self.method, request, **{**self.fixed_options, **options})


def estimated(method: Attribution, request: Request, **options: Any) -> Estimate:
    """Return the values that a method gives to the players of each game, (players, rows, *selected)."""
    if isinstance(method, PlayerMethod):
        return method.explain(request.of_function(method.forward_func), **read_options(options, method.options()))
    method = _called(method, like(request.function, method.forward_func))
    if (pairs := request.selection.differences()) is not None:
        method = _called(method, Differences(method.forward_func, pairs).eval())
    known = signature(method.attribute).parameters  # as a method of Captum's, or anybody's, may know any of them
    each = request.beside_each_baseline()
    targets = list(each.selection.captum_targets())
    given = {name: value for name, value in _captum_arguments(each).items() if name in known and value is not None}
    with warnings.catch_warnings(), evaluation_lock():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        attributions = _attributed(method, each, targets, {**given, **options})
    whole = not request.grouped or "feature_mask" in known
    return Estimate(request.averaged(each.values_of(attributions, whole=whole)))


class Differences(nn.Module):
    """A model whose outputs are differences between two outputs of another: those of each of the pairs (pairs, 2)."""

    def __init__(self, model: Callable[..., Any], pairs: Tensor) -> None:
        super().__init__()
        self.model, self.pairs = model, pairs

    def forward(self, *args: Any) -> Tensor:
        """Return (rows, pairs)."""
        outputs = one_tensor(self.model(*args)).flatten(1)
        first, second = self.pairs.to(outputs.device).unbind(1)
        return outputs[:, first] - outputs[:, second]


def _called(method: Attribution, function: Callable[..., Any]) -> Attribution:
    """The method for its model, called in the way of a request."""
    if function is method.forward_func:
        return method
    result = copy(method)
    result.forward_func = function
    if hasattr(method, "model"):  # as those that put hooks on it have
        result.model = function
    return result


def _captum_arguments(request: Request) -> dict[str, Any]:
    """The arguments of Captum's methods, for a request with one baseline."""
    games = request.games
    single = games[0].single
    off = tuple(torch.cat(parts) for parts in zip(*(game.off for game in games), strict=True))
    masks = tuple(torch.cat(parts) for parts in zip(*(_masks(game, len(games)) for game in games), strict=True))
    extra = tuple(
        torch.cat([game.extra[i] for game in games]) if batched else games[0].extra[i]
        for i, batched in enumerate(games[0].batched)
    )
    return {
        "baselines": off[0] if single else off,
        "additional_forward_args": extra or None,
        "feature_mask": None if not request.grouped else masks[0] if single else masks,
    }


def _masks(game: Game, games: int) -> tuple[Tensor, ...]:
    """Its masks with a batch dimension: one row if there is no other game, else one for each of its rows."""
    rows = game.rows if games > 1 else 1
    return tuple(mask.expand(rows, *mask.shape) for mask in game.masks)


def _attributed(
    method: Attribution, request: Request, targets: list[Any], options: dict[str, Any]
) -> tuple[Tensor, ...]:
    """Attributions (rows, *selected, *input) to every input, one output after the other."""
    inputs = tuple(torch.cat(parts) for parts in zip(*(game.on for game in request.games), strict=True))
    if isinstance(method, GradientAttribution):
        inputs = _differentiable(inputs)
    single = request.games[0].single
    parts = []
    for target in targets:
        result = method.attribute(inputs[0] if single else inputs, target=target, **options)
        parts.append((result.detach(),) if single else tuple(x.detach() for x in result))
    shape = tuple(request.full.shape[1:])  # of what is selected: () for a single output
    return tuple(torch.stack(part, 1).unflatten(1, shape) if shape else part[0] for part in zip(*parts, strict=True))


def _differentiable(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Copies that require gradients, which Captum would otherwise switch on with a warning."""
    if not all(x.is_floating_point() for x in inputs):
        raise TypeError(f"gradients need floating-point inputs, not {', '.join(str(x.dtype) for x in inputs)}")
    return tuple(x.detach().requires_grad_() for x in inputs)
