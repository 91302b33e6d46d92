"""Attributions of any kind as a prior: the values of players, before any coalition was evaluated."""

from __future__ import annotations

from inspect import signature
from itertools import product
from typing import Any, TypeAlias

import torch
from captum.attr import Attribution
from torch import Tensor

from dasp.attribution.arguments import Baselines, Target, Tensors
from dasp.attribution.background import background_rows
from dasp.attribution.dasp import DASP
from dasp.attribution.game import Game
from dasp.attribution.gradient import GradientDASP
from dasp.attribution.posterior import Trust
from dasp.attribution.propagated import PropagatedAttribution
from dasp.attribution.question import Question

__all__ = ["Prior", "prior_values", "trust"]

Prior: TypeAlias = Attribution | Tensor | tuple[Tensor, ...] | None


def trust(prior: Prior) -> Trust:
    """How far a prior is off, as signal to noise; from networks and rows other than the benchmark's. There it was 0.005
    to 0.01 for DASP of full rank, 0.01 to 0.06 for GradientDASP with factors, 0.1 to 0.3 without. Numbers of unknown
    origin are trusted like the last. Of a flat prior nothing is known: the signal is everything."""
    if prior is None:
        return Trust(10, 2)
    if isinstance(prior, DASP) and prior.rank == "full":
        return Trust(0.012, 0.8)
    if isinstance(prior, (DASP, GradientDASP)) and prior.rank != 0:
        return Trust(0.02, 1.0)
    return Trust(0.05, 1.2)


def prior_values(
    prior: Attribution | Tensor | tuple[Tensor, ...],
    question: Question,
    inputs: Tensors,
    baselines: Baselines,
    target: Target,
    additional_forward_args: Any,
    feature_mask: Tensors | None,
) -> list[Tensor]:
    """The prior of each game, (players, rows, *selected) in float64 on the CPU."""
    whole = True  # whether every entry has the value of its player
    if isinstance(prior, Attribution):
        whole = feature_mask is None or "feature_mask" in signature(prior.attribute).parameters
        background = background_rows(inputs, baselines, target, additional_forward_args, feature_mask, None)
        given = (inputs, baselines, target, additional_forward_args, feature_mask)
        outputs = tuple(question.full.shape[1:])
        result = _attributed(prior, outputs, *(given if background is None else background.arguments))
        prior = result if background is None else background.average(result)
    tensors = prior if isinstance(prior, tuple) else (prior,)
    on = inputs if isinstance(inputs, tuple) else (inputs,)
    wanted = [(*question.full.shape, *x.shape[1:]) for x in on]
    if [tuple(x.shape) for x in tensors] != wanted:
        raise ValueError(
            f"the prior has shape {', '.join(str(tuple(x.shape)) for x in tensors)}; attributions of shape "
            f"{', '.join(map(str, wanted))} are needed"
        )
    if not all(bool(torch.isfinite(x).all()) for x in tensors):
        raise ValueError("the prior has NaN or infinite entries")
    values, start = [], 0
    for game in question.games:
        rows = slice(start, start + game.rows)
        values.append(_of_players(tuple(x[rows].detach() for x in tensors), game, whole=whole))
        start += game.rows
    return values


def _attributed(
    prior: Attribution, outputs: tuple[int, ...], inputs: Tensors, baselines: Baselines, target: Target, *rest: Any
) -> Any:
    """The prior's attributions. Captum's methods explain one output at a time, ours all of them."""
    taken = signature(prior.attribute).parameters
    names = ("baselines", "additional_forward_args", "feature_mask")
    options = {name: x for name, x in zip(names, (baselines, *rest), strict=True) if name in taken and x is not None}
    if target is not None or not outputs or isinstance(prior, PropagatedAttribution):
        return prior.attribute(inputs, target=target, **options)
    single = isinstance(inputs, Tensor)
    parts = []
    for place in product(*map(range, outputs)):
        result = prior.attribute(inputs, target=place[0] if len(place) == 1 else place, **options)
        parts.append((result,) if single else result)
    joined = tuple(torch.stack(part, 1).unflatten(1, outputs) for part in zip(*parts, strict=True))
    return joined[0] if single else joined


def _of_players(tensors: tuple[Tensor, ...], game: Game, *, whole: bool) -> Tensor:
    """Attributions (rows, *selected, *input) as values of players: of their entries the mean if each has the value of
    the player, else the sum."""
    lead = tensors[0].dim() - game.masks[0].dim()
    entries = torch.cat([x.double().cpu().flatten(lead) for x in tensors], lead)
    players = torch.cat([mask.cpu().flatten() for mask in game.masks])
    values = torch.zeros(*entries.shape[:lead], game.count, dtype=torch.float64).index_add_(lead, players, entries)
    if whole:
        values /= torch.bincount(players, minlength=game.count)
    return values.movedim(-1, 0)
