"""Which of the paper's six axioms does an attribution method fulfil? Measured, on any model.

Every check gives a *violation*: the largest error over all rows, relative to the rows' root mean square of what it is
compared with (0.3 is 30 %). With attributions R of a function f at x, for a baseline b:

    completeness                Σ_i R_i = f(x) − f(b)
    null player                 R_v = 0 if f does not depend on v
    symmetry                    R_u = R_v if f(u, v) = f(v, u), and u and v have the same values and baselines
    linearity                   R(αf + βg) = αR(f) + βR(g)
    continuity                  R(x) and R(x + ε) are nearly the same
    implementation invariance   R(f) = R(g) if f and g are the same function, written differently

Two inputs u and v are added to the model to play those parts (`probes`). Null players and symmetric ones are so in
the graph or, if *hidden*, in the function only: a null player whose effects cancel, and the two of u − relu(u − v). A
method that evaluates the function treats both alike; one that follows the graph, or takes gradients at kinks, need not.

A violation is a counterexample; its absence is no proof, as the parts that are added are what they are: DeepLIFT with
RevealCancel is exact for units of two inputs, and passes where Rescale does not.

A method that samples gets the same seed in every call: what is measured is the method, not twice its noise.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from dasp.evaluation import probes
from dasp.evaluation.probes import Baselines, Maker, Probe, Target
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


def completeness(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """|Σ R − (f(x) − f(b))|, relative to |f(x) − f(b)| (or to 1 % of Σ|R|, if that is more).

    Args:
        method: makes an attribution method of a model, like `captum.attr.IntegratedGradients` or `dasp.DASP`.
        model: is copied, in evaluation mode.
        inputs: a tensor of floating point, a row per sample.
        baselines: None (zeros), a number, one row, or a row per sample; for methods that take them.
        target: the output to explain, if the model has several.

    >>> from captum.attr import FeatureAblation
    >>> completeness(FeatureAblation, probes.minimum(), torch.tensor([[2.0, 3.0]]))  # 2 for each, 4 in all
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
    """|R_v| of an input on which the function does not depend, relative to the largest attribution. It has no
    weight or, if `hidden`, a part in relu(relu(u) − 1 − relu(v)) − relu(relu(u − 1) − relu(v)) = 0.

    >>> from captum.attr import IntegratedGradients
    >>> null_player(IntegratedGradients, probes.minimum(), torch.tensor([[2.0, 3.0]]), hidden=True)
    0.0
    """
    network = probes.two_ways(1, -1) if hidden else probes.first()
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
    """|R_u − R_v| of two inputs with the same role, value and baseline, relative to the largest attribution. They
    enter as relu(u + v − ½) or, if `hidden`, as min(u, v) = u − relu(u − v).

    >>> from captum.attr import IntegratedGradients
    >>> model, inputs = probes.minimum(), torch.tensor([[2.0, 3.0]])
    >>> symmetry(IntegratedGradients, model, inputs), symmetry(IntegratedGradients, model, inputs, hidden=True)
    (0.0, 1.0)
    """
    network = probes.minimum() if hidden else probes.total()
    values = Probe.of(model, inputs, baselines, target).extended(network, 1, 1).attributions(method)
    return _relative(values[:, -1] - values[:, -2], _largest(values))


def linearity(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """|R(αf + βg) − αR(f) − βR(g)|, relative to the largest attribution. g is f of the entries moved by one
    place, α = 2 and β = −1.

    >>> from captum.attr import InputXGradient, Saliency
    >>> model, inputs = probes.first(), torch.tensor([[1.0, 1.0]])
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
    """|R(x, 1, 1 + ε) − R(x, 1, 1 − ε)| across the kink of min(u, v), relative to the largest attribution. ε is
    the root of the machine precision.

    >>> from captum.attr import IntegratedGradients
    >>> from dasp import ExactShapley
    >>> model, inputs = probes.minimum(), torch.tensor([[2.0, 3.0]])
    >>> continuity(IntegratedGradients, model, inputs)
    1.0
    >>> continuity(ExactShapley, model, inputs) < 1e-3
    True
    """
    probe, step = Probe.of(model, inputs, baselines, target), torch.finfo(inputs.dtype).eps ** 0.5
    above, below = (probe.extended(probes.minimum(), 1, 1 + change).attributions(method) for change in (step, -step))
    return _relative(above - below, _largest(above, below))


def implementation_invariance(
    method: Maker, model: nn.Module, inputs: Tensor, baselines: Baselines = None, target: Target = None
) -> float:
    """|R(f) − R(g)|, relative to the largest attribution; f contains relu(relu(u) − 1 − relu(v)), and g
    relu(relu(u − 1) − relu(v)), which is the same.

    >>> from captum.attr import IntegratedGradients
    >>> implementation_invariance(IntegratedGradients, probes.minimum(), torch.tensor([[2.0, 3.0]]))
    0.0
    """
    probe = Probe.of(model, inputs, baselines, target)
    one, other = (probe.extended(probes.two_ways(*weights), 3, 1).attributions(method) for weights in ((1, 0), (0, 1)))
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
        """Which violations are within the tolerance, by method and axiom.

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
        methods: what makes an attribution method of a model, by name. Options of `attribute` can be bound there:
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
        model, inputs = probes.example()
    violations = {
        name: {axiom: check(method, model, inputs, baselines, target) for axiom, check in AXIOMS.items()}
        for name, method in methods.items()
    }
    return Report(violations, tolerance)


def _relative(errors: Tensor, scale: Tensor) -> float:
    """The largest error, in units of the rms of the rows' scales."""
    error, unit = errors.abs().max(), scale.square().mean().sqrt()
    return 0.0 if error == 0 else float(error / unit)


def _largest(*attributions: Tensor) -> Tensor:
    """The largest attribution of each row."""
    return torch.stack(attributions).abs().amax((0, 2))
