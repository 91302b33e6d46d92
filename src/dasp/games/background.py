"""A background distribution, summarised: some weighted centres instead of many rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from dasp.games.request import Request

__all__ = ["clustered", "k_means"]

_STEPS = 20  # of k-means


def clustered(request: Request, clusters: int) -> Request:
    """Return the request with its background replaced by the centres of k-means clusters (of all inputs together),
    which are weighted by their shares of its rows."""
    if clusters < 1:
        raise ValueError(f"background_clusters must be at least 1, not {clusters}")
    first = request.games[0]
    if len(first.baselines) == 1:
        raise ValueError("background_clusters needs a background: baselines with more rows than one per input row")
    if clusters >= len(first.baselines):
        return request
    if not all(x.is_floating_point() for x in first.on):
        raise TypeError("background_clusters needs floating-point baselines: integers have no mean")
    rows = torch.stack([torch.cat([x[0].flatten() for x in baseline]) for baseline in first.baselines])
    centres, shares = k_means(rows, clusters)
    sizes = [x[0].numel() for x in first.on]
    games, empties = [], []
    for game in request.games:
        parts = [centre.split(sizes) for centre in centres]
        baselines = tuple(
            tuple(part.view(1, *x.shape[1:]).expand(x.shape) for part, x in zip(each, game.on, strict=True))
            for each in parts
        )
        games.append(replace(game, baselines=baselines, shares=shares))
        empties.append(games[-1].empties(request.function, game.rows_at_once))
    selected = torch.cat([select(x) for select, x in zip(request.selections, empties, strict=True)], 1)
    return replace(request, games=games, empties=selected)


def k_means(rows: Tensor, clusters: int) -> tuple[Tensor, tuple[float, ...]]:
    """Return the centres of clusters of rows, and the share of the rows that each has."""
    centres = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:clusters]].clone()
    for _ in range(_STEPS):
        nearest = torch.cdist(rows, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=clusters).to(rows)
        sums = torch.zeros_like(centres).index_add_(0, nearest, rows)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], centres)
    return centres, tuple((sizes / len(rows)).tolist())
