"""DeepLIFT with RevealCancel: an approximation of Shapley values by one pass forward and one backward per output.

The model's graph is walked with every value as a `Difference` from what it is at the baseline, by the rules of
`difference_rules`. All multipliers are constants on the way, so the output's difference is Σ_i m_i⁺Δ_i⁺ + m_i⁻Δ_i⁻ over
the parts of the inputs' differences, and a backward pass gives the multipliers m⁺, m⁻. An entry's contribution is its
term of the sum, a player's that of all its entries; together they are f(x) − f(baseline).
"""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any, get_args

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree

from dasp.attribution.base import GRADIENT, Estimate, Profile, PropagatedAttribution, without_autocast
from dasp.attribution.deeplift.difference_rules import at_reference, difference_rule, whole_operations
from dasp.attribution.deeplift.differences import Difference, Nonlinear
from dasp.errors import UnsupportedOperation
from dasp.games.game import Game
from dasp.games.request import Arguments, Baselines, Request, Selection, Target, Tensors
from dasp.models.calling import Output
from dasp.models.export_lock import evaluation_lock
from dasp.propagation.lifting import covered, operation
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import SHAPE_ONLY

__all__ = ["DeepLiftRevealCancel"]


class DeepLiftRevealCancel(PropagatedAttribution):
    """DeepLIFT (Shrikumar et al. 2017) with the RevealCancel rule, for any model whose operations have rules.

    Args:
        model: a module in evaluation mode, or an `ExportedProgram`.
        rule: for nonlinearities "revealcancel", "rescale", or "mixed": Rescale for activations of three or more
            dimensions, as convolutions have, and RevealCancel for the others. Maxima are divided by the Shapley values
            of their entries in any case.
        output: which of the model's results, if it returns several: a name or an index.

    Here both inputs must be there for min(x₁, x₂) = x₁ − ReLU(x₁ − x₂), which Rescale does not see:

    >>> class Minimum(nn.Module):
    ...     def forward(self, x):
    ...         return x[:, 0] - torch.relu(x[:, 0] - x[:, 1])
    >>> DeepLiftRevealCancel(Minimum().eval()).attribute(torch.tensor([[2.0, 2.0]]))
    tensor([[1., 1.]])
    >>> DeepLiftRevealCancel(Minimum().eval(), rule="rescale").attribute(torch.tensor([[2.0, 2.0]]))
    tensor([[2., 0.]])
    """

    _pool_first = False  # DeepLIFT depends on how the function is written: as the user wrote it

    def __init__(
        self, model: nn.Module | ExportedProgram, *, rule: Nonlinear = "revealcancel", output: Output = None
    ) -> None:
        super().__init__(model, output)
        if rule not in get_args(Nonlinear):
            raise ValueError(f"rule must be one of {', '.join(get_args(Nonlinear))}, not {rule}")
        self.rule = rule

    @classmethod
    def profile(cls, *, rule: Nonlinear = "revealcancel") -> Profile:  # noqa: ARG003 (all rules cost the same)
        """Return its cost: the reference, and differences with the weights and with their absolute values, forward and
        backward."""
        return Profile(fixed=lambda _: 1 + 2 * GRADIENT)

    def _whole(self) -> Collection[Any]:
        return whole_operations()

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        return_convergence_delta: bool = False,
        return_input_shape: bool = True,
    ) -> Any:
        """Return attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None.

        Args:
            inputs, baselines, target, additional_forward_args: as in `DASP.attribute`.
            feature_mask: as in `DASP.attribute`; a group of entries has the sum of their values.
            return_convergence_delta: also return Σ attributions − (f(input) − f(baseline)), which is rounding.
            return_input_shape: False for values by player, (batch, outputs, players), in the order of their numbers.
        """
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        return self._attribute(arguments, delta=return_convergence_delta, return_input_shape=return_input_shape)

    @without_autocast
    def explain(self, request: Request) -> Estimate:
        """Return the contributions of the players."""
        self._check_differentiable()
        each = request.beside_each_baseline()
        parts = zip(self.traces(request), each.games, each.selections, strict=True)
        values = [self._values(traced, game, select) for traced, game, select in parts]
        counts = [torch.full((game.rows,), self.profile().cost(game)) for game in request.games]
        return self._estimate(request, values, torch.cat(counts))

    def _values(self, traced: fx.GraphModule, game: Game, select: Selection) -> Tensor:
        """The contributions of one game's players, (players, rows, *selected)."""
        if not all(x.is_floating_point() for x in game.on):
            raise TypeError(f"inputs must be floating point to have multipliers, not {[x.dtype for x in game.on]}")
        inputs = [Difference.between(on, off) for on, off in zip(game.on, game.off, strict=True)]
        parts = [part.requires_grad_() for x in inputs for part in (x.positive, x.negative)]
        with torch.enable_grad(), evaluation_lock():
            output = walk(traced, (*inputs, *game.extra), self.rule)
            outputs = select(output.total).reshape(game.rows, -1).sum(0).unbind()
        result = torch.zeros(game.count, game.rows, len(outputs), dtype=game.dtype, device=game.device)
        players = torch.cat([mask.flatten() for mask in game.masks for _ in ("positive", "negative")])
        for i, each in enumerate(outputs):
            if not each.requires_grad:  # it does not depend on the inputs
                continue
            multipliers = torch.autograd.grad(each, parts, retain_graph=True, materialize_grads=True)
            terms = [(m * part.detach()).reshape(game.rows, -1) for m, part in zip(multipliers, parts, strict=True)]
            result[:, :, i].index_add_(0, players, torch.cat(terms, 1).T.to(game.dtype))
        return result.reshape(game.count, *select.chosen.shape)


def walk(traced: fx.GraphModule, arguments: tuple[Any, ...], nonlinear: Nonlinear) -> Difference:
    """Return the output of a traced model for `arguments`: differences, or constants."""
    walker = _Walker(traced, nonlinear)
    output = walker.run(*arguments)
    if walker.missing:
        raise UnsupportedOperation([operation(node) for node in walker.missing], "differences from a reference", "Use")
    return Difference.of(output, like=next(x for x in arguments if isinstance(x, Difference)))


class _Walker(fx.Interpreter):
    def __init__(self, traced: fx.GraphModule, nonlinear: Nonlinear) -> None:
        super().__init__(traced)
        self.nonlinear = nonlinear
        self.missing: list[fx.Node] = []

    def run_node(self, node: fx.Node) -> Any:
        """Return a node's value: a difference if one of its arguments is."""
        if node.op == "get_attr":
            return super().run_node(node).detach()
        args, kwargs = self.fetch_args_kwargs_from_env(node)
        op: Any = node.target
        depends = any(isinstance(x, Difference) for x in _pytree.tree_leaves((args, kwargs)))
        if node.op != "call_function" or not depends or op is operator.getitem:
            return super().run_node(node)
        if op in SHAPE_ONLY:
            return at_reference(op, args, kwargs)
        rule = difference_rule(op, args, kwargs, self.nonlinear)
        if rule is None or not covered(node, RULES[op]) or not _continuous(node):
            self.missing.append(node)
            return _pytree.tree_map(_unknown, at_reference(op, args, kwargs))
        return rule(*args, **kwargs)


def _continuous(node: fx.Node) -> bool:
    """True if the results that the rule gives are floating point."""
    results = [x for x in _pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor)]
    return all(x.is_floating_point() for x in results[: RULES[node.target].outputs])  # type: ignore[index]


def _unknown(x: Any) -> Any:
    """Stands for the result of an operation without a rule, so that the walk can go on to find others."""
    continuous = isinstance(x, Tensor) and x.is_floating_point()
    return Difference(x, torch.zeros_like(x), torch.zeros_like(x)) if continuous else x
