"""The lightweight probabilistic network (Gast & Roth 2018, with factors): a model that takes and gives Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.models.calling import Output, checked_model, forward_of, one_tensor
from dasp.models.export_lock import evaluation_lock
from dasp.propagation.coalitions import Rank, column_count, sketch
from dasp.propagation.gaussian import Gaussian, root
from dasp.propagation.graph_cache import GraphCache, Model, ModelOutputs

__all__ = ["ProbabilisticNetwork", "propagate"]


class ProbabilisticNetwork:
    """A model as a function from Gaussians to Gaussians: the paper's lightweight probabilistic network.

    The model is traced when this is first called, and again only if shapes or its modules change; after that a call
    costs a propagated pass. It shares the model's weights, and is differentiable in its inputs and in them.

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`, of one input.
        rank: the number of columns of correlation to keep between units that have the same inputs; "full" is one per
            input entry. The factors of a `Gaussian` input are kept beside them.
        output: the name or index of one of the model's results, if it returns several.

    >>> network = ProbabilisticNetwork(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval())
    >>> output = network(torch.zeros(5, 2), torch.ones(5, 2))
    >>> output.mean.shape, output.variance.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """

    def __init__(self, model: Model, *, rank: Rank = 0, output: Output = None) -> None:
        column_count(rank, 1)
        self.model, self.rank = _of_one_output(model, output), rank

    def __call__(self, mean: Tensor | Gaussian, variance: Tensor | None = None) -> Gaussian:
        """Return the distribution of the output for independent Gaussian inputs.

        They are given by tensors of mean and variance with a row per sample, or as a `Gaussian`.
        """
        return _propagated(self.model, _random(mean, variance, self.rank))


def propagate(
    model: Model, mean: Tensor | Gaussian, variance: Tensor | None = None, *, rank: Rank = 0, output: Output = None
) -> Gaussian:
    """Return the distribution of a model's output for Gaussian inputs.

    The arguments are those of `ProbabilisticNetwork`. The graph is kept as long as the model is, so that further calls
    are as quick.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    >>> propagate(model, torch.zeros(5, 2), torch.ones(5, 2)).mean.shape
    torch.Size([5, 1])
    """
    return _propagated(_of_one_output(model, output), _random(mean, variance, rank))


def _of_one_output(model: Model, output: Output) -> Model:
    checked = checked_model(model)
    if output is None:
        return checked
    return forward_of(checked.module() if isinstance(checked, ExportedProgram) else checked, output)  # type: ignore[return-value]


def _propagated(model: Model, value: Gaussian) -> Gaussian:
    checked_model(model)
    mean = value.mean.detach()
    outputs = _outputs(model, mean) if isinstance(model, nn.Module) else None  # a program does not change
    return GraphCache.of(model).lifted(model, (mean,), (value,), mean[0].numel(), value.rank > 0, outputs)(value)


def _outputs(model: nn.Module, mean: Tensor) -> ModelOutputs:
    """Return the outputs of two rows, which cost little and tell much."""
    two = mean[[0, -1]]

    def evaluate(function: Callable[..., Any]) -> Tensor:
        return one_tensor(function(two))

    with torch.no_grad(), evaluation_lock():
        return ModelOutputs(evaluate, evaluate(model))


def _random(mean: Tensor | Gaussian, variance: Tensor | None, rank: Rank) -> Gaussian:
    """Return the inputs of a probabilistic network."""
    if isinstance(mean, Gaussian):
        if variance is not None:
            raise TypeError("a Gaussian has its own variance: give it alone")
        value = mean
    elif variance is None:
        raise TypeError("variance is missing: a tensor of the shape of the mean")
    else:
        value = Gaussian(mean, variance)
    return _with_columns(value, rank)


def _with_columns(value: Gaussian, rank: Rank) -> Gaussian:
    """Put each entry's own noise in columns, beside those that are there."""
    mean, variance, factors = value.mean, value.variance, value.factors
    if mean.shape != variance.shape:
        raise ValueError(f"mean has shape {tuple(mean.shape)} and variance {tuple(variance.shape)}: they must be equal")
    if bool((variance < 0).any()):
        raise ValueError("variance has negative entries")
    columns = column_count(rank, mean[0].numel())
    if columns == 0:
        return Gaussian(mean, variance, factors)
    signs = sketch(columns, mean[0].numel()).to(mean)
    own = signs.view(-1, 1, *mean.shape[1:]) * root(variance)
    return Gaussian(mean, torch.zeros_like(variance), own if factors is None else torch.cat([factors, own]))
