"""Metrics of how close attributions are to the truth; one number per row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["completeness_gap", "rmse", "spearman"]


def rmse(attributions: Tensor, truth: Tensor) -> Tensor:
    """Return the root mean squared error over the entries of each row.

    >>> rmse(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]]))
    tensor([1.4142])
    """
    return (attributions - truth).flatten(1).square().mean(1).sqrt()


def spearman(attributions: Tensor, truth: Tensor) -> Tensor:
    """Return Spearman's rank correlation over the entries of each row; ties share their average rank.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[10.0, 30.0, 20.0]]))
    tensor([0.5000])
    """
    ranks = torch.stack([_ranks(attributions.flatten(1)), _ranks(truth.flatten(1))])
    ranks -= ranks.mean(2, keepdim=True)
    return (ranks.prod(0).sum(1) / ranks.square().sum(2).prod(0).sqrt()).to(attributions.dtype)


def _ranks(values: Tensor) -> Tensor:
    """Return average ranks along dimension 1."""
    values = values.contiguous()
    order = values.sort(1).values.contiguous()
    first, last = (torch.searchsorted(order, values, side=side) for side in ("left", "right"))
    return (first + last).double() / 2


def completeness_gap(attributions: Tensor, full: Tensor, empty: Tensor) -> Tensor:
    """Return Σ attributions − (f(x) − f(baseline)) of each row.

    >>> completeness_gap(torch.tensor([[1.0, 2.0]]), torch.tensor([4.0]), torch.tensor([0.5]))
    tensor([-0.5000])
    """
    return attributions.flatten(1).sum(1) - (full - empty)
