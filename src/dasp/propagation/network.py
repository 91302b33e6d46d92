"""The lightweight probabilistic network (Gast & Roth 2018, with factors): a model that takes and gives Gaussians.

propagate(model, mean, variance)                         of independent Gaussian inputs
propagate_coalitions(model, x, baselines, players, [3])  of inputs of which three random players are present
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.models.calling import Output, checked_model, forward_of, one_tensor
from dasp.models.export_lock import evaluation_lock
from dasp.propagation.coalitions import Rank, SizedCoalitions, column_count, sketch
from dasp.propagation.gaussian import Gaussian, root
from dasp.propagation.graph_cache import GraphCache, Model, ModelOutputs
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from dasp.propagation.values import NOBODY, Toggled

__all__ = ["ProbabilisticNetwork", "propagate", "propagate_coalitions"]


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


@torch.no_grad()
def propagate_coalitions(
    model: nn.Module,
    inputs: Tensor,
    baselines: Tensor,
    players: Tensor,
    sizes: Sequence[int],
    *,
    rank: Rank = 0,
    coordinates: Tensor | None = None,
    seed: int = 0,
) -> Gaussian:
    """Return the distribution of a model's output when k random players have their entries of the input, and all
    others have those of the baseline; along dimension 0 for each size k.

    Args:
        model: a module in evaluation mode, of one input.
        inputs: one row, (1, *shape).
        baselines: the baseline of the row, in the same shape.
        players: the player (0 … N − 1) of every entry of the row, in its shape without the first dimension.
        sizes: the numbers k of players.
        rank: how many columns of correlation between units to propagate; "full" is one for each player.
        coordinates: where the players are on a grid, (N, dimensions), if they are: neighbours then share no column.
        seed: the seed that divides players among fewer columns.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).eval()
    >>> propagate_coalitions(model, torch.ones(1, 3), torch.zeros(1, 3), torch.arange(3), [1, 2]).mean.shape
    torch.Size([2, 1, 1])
    """
    count = int(players.max()) + 1
    columns = column_count(rank, count)
    toggled = Toggled(inputs, baselines, (players + NOBODY + 1).expand(inputs.shape))
    sketches = None
    if columns:
        seeds = [seed + i for i in range(len(sizes))] if columns < count else [seed]
        sketches = torch.stack([sketch(columns, count, coordinates, each) for each in seeds]).to(inputs)
    frontier = lift(trace(model, (inputs,), RULES), (toggled,), count).frontier(toggled)
    coalitions = frontier.map(lambda x: SizedCoalitions.of(x, 1, sketches).of_all(torch.tensor(sizes)))
    return coalitions.propagated(batched=True)


def _of_one_output(model: Model, output: Output) -> Model:
    checked = checked_model(model)
    if output is None:
        return checked
    output = (output,) if isinstance(output, str) else output  # the name of a result, and no scale
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
