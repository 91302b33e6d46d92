"""What a model must be for its coalitions to have a worth: a function of each row by itself, and always the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dasp.games.game import Game
from dasp.propagation.modes import check_evaluation_mode

__all__ = ["check_function"]


def check_function(function: Callable[..., Any], game: Game, at_once: int) -> None:
    """Refuse a model in training mode, one whose evaluations of the same input differ, and one that mixes the rows of a
    batch. The first row's baseline is evaluated twice in one batch, and once beside another coalition."""
    if isinstance(function, nn.Module):
        check_evaluation_mode(function)
    first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
    half = torch.arange(game.count, device=game.device) < (game.count + 1) // 2
    nobody = torch.zeros_like(half)
    same = _outputs(function, first, (nobody, nobody), at_once)
    if not _alike(same[0], same[1]):
        raise ValueError(
            "the model's outputs for the same input differ from one evaluation to the next (dropout that is always "
            "on, or random numbers of its own): its Shapley values would be noise; make it deterministic"
        )
    if at_once > 1 and not _alike(same[0], _outputs(function, first, (nobody, half), at_once)[0]):
        raise ValueError(
            "the model's output for a row depends on the rows beside it in the batch (a batch norm without running "
            "statistics, or a sum, softmax or norm over dimension 0): every row must be computed by itself"
        )


@torch.no_grad()
def _outputs(function: Callable[..., Any], row: Game, coalitions: tuple[Tensor, ...], at_once: int) -> Tensor:
    """The outputs for coalitions of one row, in one batch if that is allowed."""
    parts = torch.stack(coalitions)[:, None].split(at_once)
    return torch.cat([row.evaluate(function, part) for part in parts])[:, 0]


def _alike(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding, which may depend on the place in a batch; what is not finite is another matter."""
    if not bool(a.isfinite().all() and b.isfinite().all()):
        return True
    scale = float(torch.maximum(a.abs().max(), b.abs().max())) if a.numel() else 0.0
    precision = torch.finfo(a.dtype).eps ** 0.5 if a.is_floating_point() else 0.0
    return bool(((a - b).abs() <= 10 * precision * scale).all())
