"""Backgrounds: attributions averaged over several baselines (SHAP's interventional values)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dasp.games.arguments import Baselines, Target, Tensors, background_size

__all__ = ["background_rows", "clustered"]


@dataclass(frozen=True)
class Background:
    """Every input row beside every background row, as the arguments of one `attribute` call."""

    arguments: tuple[Any, ...]
    rows: int
    weights: Tensor

    def average(self, result: Any) -> Any:
        """A tensor, or each of a tuple, averaged over the background."""
        if isinstance(result, tuple):
            return tuple(map(self.average, result))
        return torch.tensordot(self.weights.to(result), result.unflatten(0, (len(self.weights), self.rows)), dims=1)


def background_rows(
    inputs: Tensors,
    baselines: Baselines,
    target: Target,
    additional_forward_args: Any,
    feature_mask: Tensors | None,
    clusters: int | None,
) -> Background | None:
    """The call for a background distribution; None if the baselines are none: one row, or one for each input row."""
    if background_size(inputs, baselines) is None:
        if clusters is not None:
            raise ValueError("background_clusters needs a background: baselines with more rows than one per input row")
        return None
    on = (inputs,) if isinstance(inputs, Tensor) else inputs
    off = baselines if isinstance(baselines, tuple) else (baselines,)
    centres, weights = clustered(tuple(b for b in off if isinstance(b, Tensor)), clusters)
    number, rows = len(weights), len(on[0])

    def repeated(x: Any) -> Any:
        batched = isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows
        return x.repeat(number, *[1] * (x.dim() - 1)) if batched else x

    sides = tuple(c.repeat_interleave(rows, 0) for c in centres)
    several = tuple(map(repeated, on))
    extra = additional_forward_args
    extra = tuple(map(repeated, extra)) if isinstance(extra, tuple) else repeated(extra)
    given = feature_mask if isinstance(feature_mask, tuple) else (feature_mask,)
    masks = tuple(
        repeated(mask) if isinstance(mask, Tensor) and mask.dim() == x.dim() else mask
        for mask, x in zip(given, on, strict=False)
    )
    goal = target * number if isinstance(target, list) else target
    goal = target.repeat(number) if isinstance(target, Tensor) and target.numel() == rows > 1 else goal
    single = isinstance(inputs, Tensor)
    arguments = (several[0], sides[0]) if single else (several, sides)
    return Background((*arguments, goal, extra, masks if isinstance(feature_mask, tuple) else masks[0]), rows, weights)


def clustered(rows: tuple[Tensor, ...], clusters: int | None, steps: int = 20) -> tuple[tuple[Tensor, ...], Tensor]:
    """The rows and equal weights, or the centres of k-means clusters (of all inputs together) and their shares."""
    number = len(rows[0])
    if clusters is None or clusters >= number:
        return rows, torch.full((number,), 1 / number)
    if clusters < 1:
        raise ValueError(f"background_clusters must be at least 1, not {clusters}")
    if not all(x.is_floating_point() for x in rows):
        raise TypeError("background_clusters needs floating-point baselines: integers have no mean")
    flat = torch.cat([x.flatten(1) for x in rows], 1)
    centres = flat[torch.randperm(number, generator=torch.Generator().manual_seed(0))[:clusters]].clone()
    for _ in range(steps):
        nearest = torch.cdist(flat, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=clusters).to(flat)
        sums = torch.zeros_like(centres).index_add_(0, nearest, flat)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    parts = centres.split([x[0].numel() for x in rows], 1)
    shaped = tuple(part.view(-1, *x.shape[1:]) for part, x in zip(parts, rows, strict=True))
    return shaped, (sizes / number).cpu()
