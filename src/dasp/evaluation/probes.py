"""Functions on which attribution methods show their properties, made of any model.

A `Probe` is a model f as a function of flat rows, with the rows x and baselines b to explain. It is extended by two
entries, u and v, that a small network h carries into entry i, the one whose absence changes f most:

    f'(x, u, v) = f(x + s h(u, v) e_i),    s the root mean square of x − b

It is explained at x − s h(u, v) e_i, so that the model sees what it saw before. h is made of linear layers and ReLUs:

    first            relu(u)                         v has no weight
    total            relu(u + v − ½)                 the graph is symmetric in u and v
    minimum          min(u, v) = u − relu(u − v)     the function is, the graph is not
    two_ways(α, β)   α relu(relu(u) − 1 − relu(v)) + β relu(relu(u − 1) − relu(v))

The two terms of the last are the same function (Sundararajan et al. 2017): (1, 0) and (0, 1) are two networks for it,
and (1, −1) is a network for 0. Every module is used once, as Captum's LRP and DeepLift want.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from captum.attr import Attribution, FeatureAblation
from torch import Tensor, nn

__all__ = ["Baselines", "Maker", "Probe", "Target", "example", "first", "minimum", "total", "two_ways"]

Maker = Callable[[nn.Module], Attribution]
"""What makes an attribution method of a model, like `captum.attr.IntegratedGradients` or `dasp.DASP`."""
Target = None | int | tuple[int, ...]
Baselines = None | float | Tensor


@dataclass(frozen=True)
class Probe:
    """A function of flat rows with a single output, and the rows to explain.

    >>> probe = Probe.of(minimum(), torch.tensor([[2.0, 3.0]])).extended(total(), u=1, v=1)
    >>> probe.on.shape, probe.difference()  # still min(2, 3) − min(0, 0)
    (torch.Size([1, 4]), tensor([2.]))
    """

    function: nn.Module  # (rows, entries) → (rows,)
    on: Tensor  # (rows, entries)
    off: Tensor

    @staticmethod
    def of(model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None) -> Probe:
        """The target output of a copy of the model in evaluation mode."""
        off = torch.zeros_like(inputs) + (0 if baselines is None else torch.as_tensor(baselines).to(inputs))
        function = _Output(copy.deepcopy(model), inputs.shape[1:], target).eval()
        with torch.no_grad():
            output = function(inputs.flatten(1))
        if output.shape != inputs.shape[:1]:
            raise ValueError(
                f"one output per row is needed, and target {target} gives {tuple(output.shape)} for {len(inputs)} rows"
            )
        return Probe(function, inputs.detach().flatten(1), off.flatten(1))

    def difference(self) -> Tensor:
        """f(x) − f(b)."""
        with torch.no_grad():
            return self.function(self.on) - self.function(self.off)

    def attributions(self, method: Maker) -> Tensor:
        """What a method says about the rows: (rows, entries). If it samples, it gets the same seed in every call; if it
        takes baselines, those."""
        attribution = method(self.function)
        takes_baselines = "baselines" in inspect.signature(attribution.attribute).parameters
        with torch.random.fork_rng(devices=[self.on.device] if self.on.is_cuda else []):
            torch.manual_seed(0)
            # Captum's gradient methods warn about inputs that do not ask for gradients
            values = attribution.attribute(
                self.on.clone().requires_grad_(), **{"baselines": self.off} if takes_baselines else {}
            )
        return values.detach()

    def combined(self, alpha: float, beta: float) -> tuple[Probe, Probe]:
        """αf + βg and g, the function f of the row's entries moved by one place."""
        other = _Rolled(copy.deepcopy(self.function))
        both = _Combination(copy.deepcopy(self.function), copy.deepcopy(other), _linear([[alpha, beta]]).to(self.on))
        return replace(self, function=both.eval()), replace(self, function=other.eval())

    def extended(self, network: nn.Module, u: float, v: float) -> Probe:
        """f'(x, u, v) for a network h, with baselines of 0 for u and v."""
        network = network.to(self.on)
        occlusion = FeatureAblation(self.function).attribute(self.on, baselines=self.off)
        entry = int(occlusion.abs().mean(0).argmax())
        size = float((self.on - self.off).square().mean().sqrt())
        added = torch.tensor([u, v], dtype=self.on.dtype, device=self.on.device).expand(len(self.on), 2)
        on = torch.cat([self.on, added], 1)
        with torch.no_grad():
            on[:, entry] -= size * network(added)[:, 0]
        function = _Extended(copy.deepcopy(self.function), network, _linear([[1, size]]).to(on), entry)
        return Probe(function.eval(), on, torch.cat([self.off, torch.zeros_like(added)], 1))


class _Output(nn.Module):
    """One output of a model, as a function of flat rows."""

    def __init__(self, model: nn.Module, shape: torch.Size, target: Target) -> None:
        super().__init__()
        self.model, self.shape = model, shape
        self.target = () if target is None else target if isinstance(target, tuple) else (target,)

    def forward(self, x: Tensor) -> Tensor:
        output = self.model(x.reshape(-1, *self.shape))[:, *self.target]
        return output.squeeze(1) if output.dim() == 2 and output.shape[1] == 1 else output


class _Rolled(nn.Module):
    """A function of the entries moved by one place."""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(torch.cat([x[:, 1:], x[:, :1]], 1))


class _Combination(nn.Module):
    """αf + βg."""

    def __init__(self, one: nn.Module, other: nn.Module, weights: nn.Linear) -> None:
        super().__init__()
        self.one, self.other, self.weights = one, other, weights

    def forward(self, x: Tensor) -> Tensor:
        return self.weights(torch.stack([self.one(x), self.other(x)], 1)).squeeze(1)


class _Extended(nn.Module):
    """A function with two further entries, which a network adds to one of the others."""

    def __init__(self, function: nn.Module, network: nn.Module, join: nn.Linear, entry: int) -> None:
        super().__init__()
        self.function, self.network, self.join, self.entry = function, network, join, entry

    def forward(self, x: Tensor) -> Tensor:
        before, entry, after, added = x.split([self.entry, 1, x.shape[1] - self.entry - 3, 2], 1)
        moved = self.join(torch.cat([entry, self.network(added)], 1))
        return self.function(torch.cat([before, moved, after], 1))


def first() -> nn.Module:
    """relu(u).

    >>> first()(torch.tensor([[2.0, 3.0], [-1.0, 2.0]]))[:, 0].tolist()
    [2.0, 0.0]
    """
    return nn.Sequential(_linear([[1, 0]]), nn.ReLU())


def total() -> nn.Module:
    """relu(u + v − ½).

    >>> total()(torch.tensor([[2.0, 3.0], [-1.0, -2.0]]))[:, 0].tolist()
    [4.5, 0.0]
    """
    return nn.Sequential(_linear([[1, 1]], [-0.5]), nn.ReLU())


def minimum() -> nn.Module:
    """min(u, v) = u − relu(u − v)  with  u = relu(u) − relu(−u).

    >>> minimum()(torch.tensor([[2.0, 3.0], [-1.0, -2.0]]))[:, 0].tolist()
    [2.0, -2.0]
    """
    return nn.Sequential(_linear([[1, 0], [-1, 0], [1, -1]]), nn.ReLU(), _linear([[1, -1, -1]]))


def two_ways(alpha: float, beta: float) -> nn.Module:
    """α relu(relu(u) − 1 − relu(v)) + β relu(relu(u − 1) − relu(v)).

    >>> inputs = torch.tensor([[3.0, 1.0], [3.0, -1.0], [-2.0, 1.0]])
    >>> two_ways(1, 0)(inputs)[:, 0].tolist(), two_ways(0, 1)(inputs)[:, 0].tolist()
    ([1.0, 2.0, 0.0], [1.0, 2.0, 0.0])
    """
    return nn.Sequential(
        _linear([[1, 0], [0, 1], [1, 0], [0, 1]], [0, 0, -1, 0]),
        nn.ReLU(),
        _linear([[1, -1, 0, 0], [0, 0, 1, -1]], [-1, 0]),
        nn.ReLU(),
        _linear([[alpha, beta]]),
    )


def example() -> tuple[nn.Module, Tensor]:
    """A small random network and some rows, in double precision.

    >>> model, inputs = example()
    >>> model(inputs).shape
    torch.Size([8, 1])
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        widths = nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
        return nn.Sequential(*widths).double(), torch.randn(8, 4, dtype=torch.float64)


def _linear(weight: list[list[float]], bias: list[float] | None = None) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, len(weight[0]), len(weight), bias=bias is not None)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer
