"""DeepLIFT with RevealCancel: an approximation of Shapley values by one pass forward and one backward per output.

The model's graph is walked with every value as a `Difference` from what it is at the baseline. All multipliers are
constants on the way, so the output's difference is Σ_i m_i⁺Δ_i⁺ + m_i⁻Δ_i⁻ over the parts of the inputs' differences,
and a backward pass gives the multipliers m⁺, m⁻. An entry's contribution is its term of the sum, a player's that of all
its entries; together they are f(x) − f(baseline). `dasp.attribution.deeplift` has the rules.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, get_args

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.attribution.base import Estimate, PropagatedAttribution
from dasp.attribution.deeplift.difference import Difference, Nonlinear
from dasp.attribution.deeplift.rules import whole_operations
from dasp.attribution.deeplift.walk import walk
from dasp.games.arguments import Arguments, Baselines, Target, Tensors
from dasp.games.game import Game
from dasp.games.request import Request
from dasp.games.target import Selection
from dasp.propagation.forward import Output
from dasp.propagation.turns import evaluating

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
    ) -> Any:
        """Attributions in the shape of the inputs, or (batch, outputs, input) for all outputs with target=None; the
        arguments are those of `DASP.attribute`. A group of entries of `feature_mask` has the sum of their values."""
        arguments = Arguments.given(inputs, baselines, target, additional_forward_args, feature_mask)
        request = Request.of(self.forward_func, arguments)
        return self.explain(request).answer(request, delta=return_convergence_delta)

    def explain(self, request: Request) -> Estimate:
        """The contributions of the players."""
        self._check_differentiable()
        each = request.beside_each_baseline()
        parts = zip(self.traces(request), each.games, each.selections, strict=True)
        values = [self._values(traced, game, select) for traced, game, select in parts]
        return self._estimate(request, values)

    def _values(self, traced: fx.GraphModule, game: Game, select: Selection) -> Tensor:
        """The contributions of one game's players, (players, rows, *selected)."""
        if not all(x.is_floating_point() for x in game.on):
            raise TypeError(f"inputs must be floating point to have multipliers, not {[x.dtype for x in game.on]}")
        inputs = [Difference.between(on, off) for on, off in zip(game.on, game.off, strict=True)]
        parts = [part.requires_grad_() for x in inputs for part in (x.positive, x.negative)]
        with torch.enable_grad(), evaluating():
            output = walk(traced, (*inputs, *game.extra), self.rule)
            outputs = select(output.total).reshape(game.rows, -1).sum(0).unbind()
        result = torch.zeros(game.count, game.rows, len(outputs), dtype=game.dtype, device=game.device)
        players = torch.cat([mask.flatten() for mask in game.masks for _ in ("positive", "negative")])
        for i, each in enumerate(outputs):
            if not each.requires_grad:  # it does not depend on the inputs
                continue
            multipliers = torch.autograd.grad(each, parts, retain_graph=True, materialize_grads=True)
            terms = [(m * part.detach()).flatten(1) for m, part in zip(multipliers, parts, strict=True)]
            result[:, :, i].index_add_(0, players, torch.cat(terms, 1).T.to(game.dtype))
        return result.reshape(game.count, *select.chosen.shape)
