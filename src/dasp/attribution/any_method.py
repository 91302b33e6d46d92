"""Attributions of any method, with all of our arguments, as values of players.

Captum's methods differ in which arguments they know and explain one output at a time; many know no groups of entries.
Here every method takes all arguments, a group gets the sum over its entries where the method knows none, and all
outputs are explained if no target is given.
"""

from __future__ import annotations

import warnings
from inspect import signature
from itertools import product
from typing import Any

import torch
from captum.attr import Attribution
from captum.attr._utils.attribution import GradientAttribution
from torch import Tensor

from dasp.attribution.base import PlayerMethod
from dasp.games.arguments import Baselines, Target, Tensors
from dasp.games.background import background_rows
from dasp.games.game import Game
from dasp.games.request import Question

__all__ = ["player_values", "values_of"]

# What Captum warns of when DeepLift and KernelShap are used as they are here.
_EXPECTED = ("Setting forward, backward hooks", "You are providing multiple inputs")


def player_values(
    method: Attribution,
    question: Question,
    inputs: Tensors,
    baselines: Baselines,
    target: Target,
    additional_forward_args: Any,
    feature_mask: Tensors | None,
    **options: Any,
) -> list[Tensor]:
    """The values that a method gives to the players of each game, (players, rows, *selected) in float64 on the CPU."""
    whole = feature_mask is None or "feature_mask" in signature(method.attribute).parameters
    if feature_mask is not None:  # numbered and shaped as Captum wants it
        masks = tuple(torch.stack(parts) for parts in zip(*(game.masks for game in question.games), strict=True))
        feature_mask = masks if isinstance(inputs, tuple) else masks[0]
    given = (inputs, baselines, target, additional_forward_args, feature_mask)
    ours = isinstance(method, PlayerMethod)
    background = None if ours and method.backgrounds else background_rows(*given, None)
    call = _all_outputs if ours else _one_output
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        result = call(method, question, options, *(given if background is None else background.arguments))
    return values_of(result if background is None else background.average(result), question, inputs, whole=whole)


def values_of(attributions: Tensors, question: Question, inputs: Tensors, *, whole: bool = True) -> list[Tensor]:
    """Attributions as values of players; `whole` if every entry has the value of its player."""
    tensors = attributions if isinstance(attributions, tuple) else (attributions,)
    on = inputs if isinstance(inputs, tuple) else (inputs,)
    wanted = [(*question.full.shape, *x.shape[1:]) for x in on]
    if [tuple(x.shape) for x in tensors] != wanted:
        raise ValueError(
            f"attributions (of a prior, say) have shape {', '.join(str(tuple(x.shape)) for x in tensors)}; "
            f"{', '.join(map(str, wanted))} is needed"
        )
    values, start = [], 0
    for game in question.games:
        rows = slice(start, start + game.rows)
        values.append(_of_players(tuple(x[rows].detach() for x in tensors), game, whole=whole))
        start += game.rows
    return values


def _all_outputs(method: Attribution, _: Question, options: dict[str, Any], *given: Any) -> Any:
    """Our methods, which explain all outputs unless there is a target."""
    return method.attribute(*given, **options)


def _one_output(
    method: Attribution,
    question: Question,
    options: dict[str, Any],
    inputs: Tensors,
    baselines: Baselines,
    target: Target,
    *rest: Any,
) -> Any:
    """Other methods: each output by itself, and only the arguments that a method knows."""
    names = ("baselines", "additional_forward_args", "feature_mask")
    known = signature(method.attribute).parameters
    options |= {name: x for name, x in zip(names, (baselines, *rest), strict=True) if name in known and x is not None}
    if isinstance(method, GradientAttribution):
        inputs = _differentiable(inputs)
    if isinstance(target, Tensor) and target.dim() == 0:
        target = int(target)
    outputs = question.selections[0].outputs
    if target is not None or not outputs:
        return method.attribute(inputs, target=target, **options)
    single = isinstance(inputs, Tensor)
    parts = []
    for place in product(*map(range, outputs)):
        result = method.attribute(inputs, target=place[0] if len(place) == 1 else place, **options)
        parts.append((result,) if single else result)
    shape = tuple(question.full.shape[1:])  # of what is selected: () for a single output
    joined = tuple(
        part[0] if shape == () else torch.stack(part, 1).unflatten(1, shape) for part in zip(*parts, strict=True)
    )
    return joined[0] if single else joined


def _differentiable(inputs: Tensors) -> Tensors:
    """Copies that require gradients, which Captum would otherwise switch on with a warning."""
    tensors = inputs if isinstance(inputs, tuple) else (inputs,)
    if not all(x.is_floating_point() for x in tensors):
        raise TypeError(f"gradients need floating-point inputs, not {', '.join(str(x.dtype) for x in tensors)}")
    copies = tuple(x.detach().requires_grad_() for x in tensors)
    return copies if isinstance(inputs, tuple) else copies[0]


def _of_players(tensors: tuple[Tensor, ...], game: Game, *, whole: bool) -> Tensor:
    """Attributions (rows, *selected, *input) as values of players: of their entries the mean if each has the value of
    the player, else the sum."""
    lead = tensors[0].dim() - game.masks[0].dim()
    entries = torch.cat([x.cpu().double().flatten(lead) for x in tensors], lead)
    players = torch.cat([mask.cpu().flatten() for mask in game.masks])
    values = torch.zeros(*entries.shape[:lead], game.count, dtype=torch.float64).index_add_(lead, players, entries)
    if whole:
        values /= torch.bincount(players, minlength=game.count)
    return values.movedim(-1, 0)
