"""The paper's six axioms, measured: which of them does an attribution method fulfil, on any model?

Every check gives a *violation*: the largest error over all rows, relative to the rows' root mean square of what it is
compared with (0.3 is 30 %). With attributions R of a function f at x, for a baseline b:

    completeness                Σ_i R_i = f(x) − f(b)
    null player                 R_v = 0 if f does not depend on v
    symmetry                    R_u = R_v if f(u, v) = f(v, u), and u and v have the same values and baselines
    linearity                   R(αf + βg) = αR(f) + βR(g)
    continuity                  R(x) and R(x + ε) are nearly the same
    implementation invariance   R(f) = R(g) if f and g are the same function, written differently

Two inputs u and v are added to the model to play those parts. A `Probe` is the model f as a function of flat rows, with
the rows x and baselines b to explain; a small network h carries u and v into entry i, the one whose absence changes f
most:

    f'(x, u, v) = f(x + s h(u, v) e_i),    s the root mean square of x − b

It is explained at x − s h(u, v) e_i, so that the model sees what it saw before. h is made of linear layers and ReLUs:

    first            relu(u)                         v has no weight
    total            relu(u + v − ½)                 the graph is symmetric in u and v
    minimum          min(u, v) = u − relu(u − v)     the function is, the graph is not
    two_ways(α, β)   α relu(relu(u) − 1 − relu(v)) + β relu(relu(u − 1) − relu(v))

The two terms of the last are the same function (Sundararajan et al. 2017): (1, 0) and (0, 1) are two networks for it,
and (1, −1) is a network for 0. Every module is used once, as Captum's LRP and DeepLift want.

So null players and symmetric ones are such in the graph or, if *hidden*, in the function only: a null player whose
effects cancel, and the two of u − relu(u − v). A method that evaluates the function treats both alike; one that follows
the graph, or takes gradients at kinks, need not.

A violation is a counterexample; its absence is no proof, as the parts that are added are what they are: DeepLIFT with
RevealCancel is exact for units of two inputs, and passes where Rescale does not.

A method that samples gets the same seed in every call: what is measured is the method, not twice its noise.
"""

from __future__ import annotations

import copy
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from captum.attr import Attribution, FeatureAblation
from torch import Tensor, nn

from dasp.games.request import yardstick

__all__ = [
    "AXIOMS",
    "Report",
    "completeness",
    "continuity",
    "implementation_invariance",
    "linearity",
    "null_player",
    "report",
    "symmetry",
]

Maker = Callable[[nn.Module], Attribution]
"""A callable that makes an attribution method of a model, like `captum.attr.IntegratedGradients` or `dasp.DASP`."""
Target = None | int | tuple[int, ...]
Baselines = None | float | Tensor


def completeness(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """Measure |Σ R − (f(x) − f(b))|, relative to |f(x) − f(b)| (or to 1 % of Σ|R|, if that is more).

    Args:
        method: a callable that makes an attribution method of a model, like `captum.attr.IntegratedGradients` or
            `dasp.DASP`.
        model: the model; a copy of it is used, in evaluation mode.
        inputs: a tensor of floating point, a row per sample.
        baselines: None (zeros), a number, one row, or a row per sample; for methods that take them.
        target: the output to explain, if the model has several.

    >>> from captum.attr import FeatureAblation
    >>> completeness(FeatureAblation, minimum(), torch.tensor([[2.0, 3.0]]))  # 2 for each, 4 in all
    1.0
    """
    probe = Probe.of(model, inputs, baselines, target)
    values, difference = probe.attributions(method), probe.difference()
    return _relative(values.sum(1) - difference, yardstick(difference, values.T))


def null_player(
    method: Maker,
    model: nn.Module,
    inputs: Tensor,
    baselines: Baselines = None,
    target: Target = None,
    *,
    hidden: bool = False,
) -> float:
    """Measure |R_v| of an input on which the function does not depend, relative to the largest attribution. It has no
    weight or, if `hidden`, a part in relu(relu(u) − 1 − relu(v)) − relu(relu(u − 1) − relu(v)) = 0.

    >>> from captum.attr import IntegratedGradients
    >>> null_player(IntegratedGradients, minimum(), torch.tensor([[2.0, 3.0]]), hidden=True)
    0.0
    """
    network = two_ways(1, -1) if hidden else first()
    values = Probe.of(model, inputs, baselines, target).extended(network, 3, 1).attributions(method)
    return _relative(values[:, -1], _largest(values))


def symmetry(
    method: Maker,
    model: nn.Module,
    inputs: Tensor,
    baselines: Baselines = None,
    target: Target = None,
    *,
    hidden: bool = False,
) -> float:
    """Measure |R_u − R_v| of two inputs with the same role, value and baseline, relative to the largest attribution.
    They enter as relu(u + v − ½) or, if `hidden`, as min(u, v) = u − relu(u − v).

    >>> from captum.attr import IntegratedGradients
    >>> model, inputs = minimum(), torch.tensor([[2.0, 3.0]])
    >>> symmetry(IntegratedGradients, model, inputs), symmetry(IntegratedGradients, model, inputs, hidden=True)
    (0.0, 1.0)
    """
    network = minimum() if hidden else total()
    values = Probe.of(model, inputs, baselines, target).extended(network, 1, 1).attributions(method)
    return _relative(values[:, -1] - values[:, -2], _largest(values))


def linearity(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """Measure |R(αf + βg) − αR(f) − βR(g)|, relative to the largest attribution. g is f of the entries moved by one
    place, α = 2 and β = −1.

    >>> from captum.attr import InputXGradient, Saliency
    >>> model, inputs = first(), torch.tensor([[1.0, 1.0]])
    >>> linearity(InputXGradient, model, inputs), linearity(Saliency, model, inputs)  # |−1| is not −|1|
    (0.0, 1.0)
    """
    one = Probe.of(model, inputs, baselines, target)
    both, other = one.combined(2, -1)
    values = both.attributions(method)
    return _relative(values - 2 * one.attributions(method) + other.attributions(method), _largest(values))


def continuity(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """Measure |R(x, 1, 1 + ε) − R(x, 1, 1 − ε)| across the kink of min(u, v), relative to the largest attribution. ε is
    the root of the machine precision.

    >>> from captum.attr import IntegratedGradients
    >>> from dasp import ExactShapley
    >>> model, inputs = minimum(), torch.tensor([[2.0, 3.0]])
    >>> continuity(IntegratedGradients, model, inputs)
    1.0
    >>> continuity(ExactShapley, model, inputs) < 1e-3
    True
    """
    probe, step = Probe.of(model, inputs, baselines, target), torch.finfo(inputs.dtype).eps ** 0.5
    above, below = (probe.extended(minimum(), 1, 1 + change).attributions(method) for change in (step, -step))
    return _relative(above - below, _largest(above, below))


def implementation_invariance(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """Measure |R(f) − R(g)|, relative to the largest attribution; f contains relu(relu(u) − 1 − relu(v)), and g
    relu(relu(u − 1) − relu(v)), which is the same.

    >>> from captum.attr import IntegratedGradients
    >>> implementation_invariance(IntegratedGradients, minimum(), torch.tensor([[2.0, 3.0]]))
    0.0
    """
    probe = Probe.of(model, inputs, baselines, target)
    one, other = (probe.extended(two_ways(*weights), 3, 1).attributions(method) for weights in ((1, 0), (0, 1)))
    return _relative(one - other, _largest(one, other))


AXIOMS: dict[str, Callable[..., float]] = {
    "completeness": completeness,
    "null player": null_player,
    "hidden null player": partial(null_player, hidden=True),
    "symmetry": symmetry,
    "hidden symmetry": partial(symmetry, hidden=True),
    "linearity": linearity,
    "continuity": continuity,
    "implementation invariance": implementation_invariance,
}
"""The check of every axiom, by name; two of them also for what is hidden in the function."""


@dataclass(frozen=True)
class Report:
    """Violations by method and axiom. Printed, it is a table: "yes" where a violation is within the tolerance.

    >>> print(Report({"IG": {"completeness": 0.002, "continuity": 1.0}}, tolerance=0.01))
        completeness  continuity
    IG  yes 0.002     no  1.000
    """

    violations: dict[str, dict[str, float]]
    tolerance: float

    def fulfilled(self) -> dict[str, dict[str, bool]]:
        """Return True for every violation that is within the tolerance, by method and axiom.

        >>> Report({"IG": {"completeness": 0.002, "continuity": 1.0}}, tolerance=0.01).fulfilled()
        {'IG': {'completeness': True, 'continuity': False}}
        """
        return {
            method: {axiom: violation <= self.tolerance for axiom, violation in row.items()}
            for method, row in self.violations.items()
        }

    def __str__(self) -> str:
        axioms = next(iter(self.violations.values()), {})
        headers = [[], *(textwrap.wrap(axiom, 14) for axiom in axioms)]
        cells = [
            list(self.violations),
            *([self._cell(row[axiom]) for row in self.violations.values()] for axiom in axioms),
        ]
        height = max(map(len, headers))
        columns = [[""] * (height - len(top)) + top + below for top, below in zip(headers, cells, strict=True)]
        widths = [max(map(len, column), default=0) for column in columns]
        lines = zip(*columns, strict=True)
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def _cell(self, violation: float) -> str:
        return f"{'yes' if violation <= self.tolerance else 'no':3} {violation:.3f}"


def report(
    methods: Mapping[str, Maker],
    model: nn.Module | None = None,
    inputs: Tensor | None = None,
    baselines: Baselines = None,
    target: Target = None,
    *,
    tolerance: float = 1e-2,
) -> Report:
    """Check all axioms for all methods, on a model and inputs of your own or on a small random network.

    Args:
        methods: callables that make an attribution method of a model, by name. They can bind options of `attribute`:
            `lambda model: SimpleNamespace(attribute=partial(GradientDASP(model).attribute, nodes=32))`.
        model, inputs, baselines, target: as in `completeness`.
        tolerance: the largest violation that counts as none.

    >>> from captum.attr import FeatureAblation
    >>> from dasp import ExactShapley
    >>> result = report({"occlusion": FeatureAblation, "exact": ExactShapley})
    >>> [axiom for axiom, fulfilled in result.fulfilled()["occlusion"].items() if not fulfilled]
    ['completeness']
    >>> all(result.fulfilled()["exact"].values())
    True
    """
    if (model is None) != (inputs is None):
        raise ValueError("a model and inputs belong together: give both or none")
    if model is None or inputs is None:
        model, inputs = example()
    violations = {
        name: {axiom: check(method, model, inputs, baselines, target) for axiom, check in AXIOMS.items()}
        for name, method in methods.items()
    }
    return Report(violations, tolerance)


def _relative(errors: Tensor, scale: Tensor) -> float:
    """Return the largest error, in units of the root mean square of the rows' scales."""
    error, unit = errors.abs().max(), scale.square().mean().sqrt()
    return 0.0 if error == 0 else float(error / unit)


def _largest(*attributions: Tensor) -> Tensor:
    """Return the largest attribution of each row."""
    return torch.stack(attributions).abs().amax((0, 2))


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
        """Make a probe of the target output of a copy of the model in evaluation mode."""
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
        """Return f(x) − f(b)."""
        with torch.no_grad():
            return self.function(self.on) - self.function(self.off)

    def attributions(self, method: Maker) -> Tensor:
        """Return what a method attributes to the rows: (rows, entries). If it samples, it gets the same seed in every
        call; if it takes baselines, it gets those of the probe."""
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
        """Return αf + βg and g, the function f of the row's entries moved by one place."""
        other = _Rolled(copy.deepcopy(self.function))
        both = _Combination(copy.deepcopy(self.function), copy.deepcopy(other), _linear([[alpha, beta]]).to(self.on))
        return replace(self, function=both.eval()), replace(self, function=other.eval())

    def extended(self, network: nn.Module, u: float, v: float) -> Probe:
        """Return f'(x, u, v) for a network h, with baselines of 0 for u and v."""
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
    """Return a network for relu(u).

    >>> first()(torch.tensor([[2.0, 3.0], [-1.0, 2.0]]))[:, 0].tolist()
    [2.0, 0.0]
    """
    return nn.Sequential(_linear([[1, 0]]), nn.ReLU())


def total() -> nn.Module:
    """Return a network for relu(u + v − ½).

    >>> total()(torch.tensor([[2.0, 3.0], [-1.0, -2.0]]))[:, 0].tolist()
    [4.5, 0.0]
    """
    return nn.Sequential(_linear([[1, 1]], [-0.5]), nn.ReLU())


def minimum() -> nn.Module:
    """Return a network for min(u, v) = u − relu(u − v)  with  u = relu(u) − relu(−u).

    >>> minimum()(torch.tensor([[2.0, 3.0], [-1.0, -2.0]]))[:, 0].tolist()
    [2.0, -2.0]
    """
    return nn.Sequential(_linear([[1, 0], [-1, 0], [1, -1]]), nn.ReLU(), _linear([[1, -1, -1]]))


def two_ways(alpha: float, beta: float) -> nn.Module:
    """Return a network for α relu(relu(u) − 1 − relu(v)) + β relu(relu(u − 1) − relu(v)).

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
    """Return a small random network and some rows, in double precision.

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
