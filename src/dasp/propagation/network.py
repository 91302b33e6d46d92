"""The lightweight probabilistic network (Gast & Roth 2018, with factors): a model that takes and gives Gaussians."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.propagation.coalitions import Rank, column_count, sketch
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import checked_model, trace

__all__ = ["KeptGraphs", "ProbabilisticNetwork", "propagate"]

Model = nn.Module | ExportedProgram


class KeptGraphs:
    """The graphs of a model and their lifted forms: the last few of each, by the shapes of inputs and by players, as
    long as the model's modules stay what they are. They share the model's weights, which may be trained meanwhile."""

    def __init__(self) -> None:
        self._traced: dict[Hashable, fx.GraphModule] = {}
        self._lifted: dict[Hashable, Lifted] = {}

    @staticmethod
    def of(model: Model) -> KeptGraphs:
        """Those of a model, which are shared by all that propagate through it, and forgotten with it."""
        with _LOCK:
            return _KEPT.setdefault(model, KeptGraphs())

    def traced(self, model: Model, example: tuple[Any, ...], *, pool_first: bool = True) -> fx.GraphModule:
        """The graph of a model for inputs like those of the example."""
        key = (_structure(model), _shapes(example), pool_first)
        return _kept(self._traced, key, lambda: trace(model, example, RULES, pool_first=pool_first))

    def lifted(
        self, model: Model, example: tuple[Any, ...], arguments: tuple[Any, ...], count: int, players: Hashable
    ) -> Lifted:
        """The graph lifted for arguments (see `lift`); `players` are whatever that depends on beside shapes."""
        key = (_structure(model), _shapes(example), count, players)
        return _kept(self._lifted, key, lambda: lift(self.traced(model, example), arguments, count))


_MOST_KEPT = 4
_MOST_LISTED = 64  # entries of a list or dictionary


def _kept(things: dict[Hashable, Any], key: Hashable, make: Callable[[], Any]) -> Any:
    """What is kept by a key, or is made now, in place of what was made first if there are too many."""
    with _LOCK:  # torch exports one model at a time
        if key not in things:
            made = make()
            while len(things) >= _MOST_KEPT:
                del things[next(iter(things))]
            things[key] = made
        return things[key]


_PLAIN = (bool, int, float, str, tuple, torch.dtype, torch.device, type(None))


def _structure(model: Model) -> Hashable:
    """What a graph depends on beside the values of weights: which tensors they are, how modules are set, and rules."""
    rules = tuple(map(id, RULES.values()))  # users register their own
    if isinstance(model, ExportedProgram):
        return id(model), rules
    settings = tuple((type(module), *_settings(module)) for module in model.modules())
    return settings, tuple(id(x) for x in (*model.parameters(), *model.buffers())), rules


_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def _settings(module: nn.Module) -> list[Hashable]:
    """What is set in a module: plain values and collections of them, tensors and functions by identity, and hooks."""
    found: list[Hashable] = [(name, *vars(module)[name]) for name in _HOOKS]
    for name, value in vars(module).items():
        if _plain(value):
            found.append((name, repr(value)))
        elif isinstance(value, Tensor) or (callable(value) and not isinstance(value, nn.Module)):
            found.append((name, id(value)))
    return found


def _plain(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return len(parts) <= _MOST_LISTED and all(isinstance(part, _PLAIN) for part in parts)


def _shapes(example: tuple[Any, ...]) -> Hashable:
    """What a graph depends on in its inputs: of a tensor with a row per row the shape of a row, of another its whole
    shape, dtype and device of both; of anything else the value."""
    rows = next(len(x) for x in example if isinstance(x, Tensor))
    return tuple(_shape(x, rows) for x in example)


def _shape(x: Any, rows: int) -> Hashable:
    if not isinstance(x, Tensor):
        return type(x), repr(x)
    batched = x.dim() > 0 and len(x) == rows
    return batched, x.shape[1:] if batched else x.shape, x.dtype, x.device


class ProbabilisticNetwork:
    """A model as a function from Gaussians to Gaussians: the paper's lightweight probabilistic network.

    The model is traced when this is first called, and again only if shapes or its modules change; after that a call
    costs a propagated pass. It shares the model's weights, and is differentiable in its inputs and in them.

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`, of one input.
        rank: how many columns of correlation to keep between units that have the same inputs; "full" is one per input
            entry. Of a `Gaussian` that has factors, these are kept.

    >>> network = ProbabilisticNetwork(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval())
    >>> output = network(torch.zeros(5, 2), torch.ones(5, 2))
    >>> output.mean.shape, output.variance.shape
    (torch.Size([5, 1]), torch.Size([5, 1]))
    """

    def __init__(self, model: Model, *, rank: Rank = 0) -> None:
        column_count(rank, 1)
        self.model, self.rank = checked_model(model), rank

    def __call__(self, mean: Tensor | Gaussian, variance: Tensor | None = None) -> Gaussian:
        """The distribution of the output for independent Gaussian inputs, given by tensors of mean and variance with a
        row per sample, or for the inputs that a `Gaussian` describes."""
        return _propagated(self.model, _random(mean, variance, self.rank))


def propagate(model: Model, mean: Tensor | Gaussian, variance: Tensor | None = None, *, rank: Rank = 0) -> Gaussian:
    """The distribution of a model's output for Gaussian inputs, once: see `ProbabilisticNetwork`, which has the same
    arguments. What was traced is kept as long as the model is there, so that further calls are as quick.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).eval()
    >>> propagate(model, torch.zeros(5, 2), torch.ones(5, 2)).mean.shape
    torch.Size([5, 1])
    """
    return _propagated(model, _random(mean, variance, rank))


_KEPT: WeakKeyDictionary[Model, KeptGraphs] = WeakKeyDictionary()
_LOCK = RLock()


def _propagated(model: Model, value: Gaussian) -> Gaussian:
    checked_model(model)
    example = (value.mean.detach(),)
    return KeptGraphs.of(model).lifted(model, example, (value,), value.mean[0].numel(), value.rank > 0)(value)


def _random(mean: Tensor | Gaussian, variance: Tensor | None, rank: Rank) -> Gaussian:
    """The inputs of a probabilistic network."""
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
    """Each entry's own noise in columns, beside those that are there."""
    mean, variance, factors = value.mean, value.variance, value.factors
    if mean.shape != variance.shape:
        raise ValueError(f"mean has shape {tuple(mean.shape)} and variance {tuple(variance.shape)}: they must be equal")
    if bool((variance < 0).any()):
        raise ValueError("variance has negative entries")
    columns = column_count(rank, mean[0].numel())
    if columns == 0:
        return Gaussian(mean, variance, factors)
    certain = variance == 0
    deviation = torch.where(certain, 0, torch.where(certain, 1, variance).sqrt())
    signs = sketch(columns, mean[0].numel()).to(mean)
    own = signs.view(-1, 1, *mean.shape[1:]) * deviation
    return Gaussian(mean, torch.zeros_like(variance), own if factors is None else torch.cat([factors, own]))
