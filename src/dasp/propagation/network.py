"""`propagate`: the lightweight probabilistic network by itself (Gast & Roth 2018, with factors)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.propagation.coalitions import Rank, column_count, sketch
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import checked_model, trace

__all__ = ["propagate"]


def propagate(model: nn.Module | ExportedProgram, mean: Tensor, variance: Tensor, *, rank: Rank = 0) -> Gaussian:
    """The output's distribution for independent Gaussian inputs; differentiable in mean and variance.

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`, of one input.
        mean, variance: tensors of the input's shape, a row per sample.
        rank: how many columns of correlation to keep; "full" is one per input entry.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    >>> output = propagate(model, torch.zeros(5, 2), torch.ones(5, 2))
    >>> output.mean.shape, output.variance.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """
    if mean.shape != variance.shape:
        raise ValueError(f"mean has shape {tuple(mean.shape)} and variance {tuple(variance.shape)}: they must be equal")
    if bool((variance < 0).any()):
        raise ValueError("variance has negative entries")
    traced = trace(checked_model(model), (mean.detach(),), RULES)
    players = mean[0].numel()
    columns = column_count(rank, players)
    if columns == 0:
        value = Gaussian(mean, variance)
    else:
        certain = variance == 0
        deviation = torch.where(certain, 0, torch.where(certain, 1, variance).sqrt())
        signs = sketch(columns, players).to(mean)
        factors = signs.view(-1, 1, *mean.shape[1:]) * deviation
        value = Gaussian(mean, torch.zeros_like(variance), factors)
    return lift(traced, (value,), players)(value)
