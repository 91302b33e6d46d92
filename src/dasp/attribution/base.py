"""What our methods share beside Captum's interface; and those that propagate moments: a traced and lifted model."""

from __future__ import annotations

from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.games.game import Game
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import checked_model, trace
from dasp.propagation.values import Contributions

__all__ = ["PlayerMethod", "PropagatedAttribution", "rows_at_once"]

# Numbers in the widest tensor at the frontier of a chunk.
_CHUNK_ENTRIES = 2**19


class PlayerMethod(Attribution):  # type: ignore[misc]
    """A method of ours: with target=None it explains all outputs, and a group of entries is one player."""

    backgrounds = True  # whether many baselines may be given for every row


class PropagatedAttribution(PlayerMethod):
    """An attribution method that needs the model's graph, not only its outputs."""

    _pool_first = True  # whether the graph may rectify after pooling

    def __init__(self, model: nn.Module | ExportedProgram) -> None:
        self.model = checked_model(model)
        super().__init__(model.module() if isinstance(model, ExportedProgram) else model)
        self._traced: tuple[Any, fx.GraphModule] | None = None
        self._lifted: tuple[Any, Lifted] | None = None

    def _trace(self, game: Game) -> fx.GraphModule:
        """The model's graph; kept until shapes, constants or the set of weights change (what the weights are may
        change: the graph shares them)."""
        checked_model(self.model)
        weights = () if isinstance(self.model, ExportedProgram) else (*self.model.parameters(), *self.model.buffers())
        signature = (*map(_signature, (*game.on, *game.extra)), game.batched, *map(id, weights))
        if self._traced is None or self._traced[0] != signature:
            self._traced = signature, trace(self.model, (*game.on, *game.extra), RULES, pool_first=self._pool_first)
            self._lifted = None
        return self._traced[1]

    def _lift(self, game: Game) -> Lifted:
        """The model lifted for the game's players; kept until its graph or the players change."""
        traced = self._trace(game)
        players = tuple(mask.cpu().numpy().tobytes() for mask in game.masks)
        if self._lifted is None or self._lifted[0] != players:
            _, row = next(game.slices(1))
            self._lifted = players, lift(traced, (*row.toggled(), *row.extra), game.count)
        return self._lifted[1]

    def _check_differentiable(self) -> None:
        """Refuse to work where derivatives cannot be had."""
        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{type(self).__name__} differentiates, which inference mode forbids: use torch.no_grad() instead"
            )

    def _frontier(self, lifted: Lifted, game: Game) -> list[Any]:
        """What crosses the frontier of the lifted graph."""
        with torch.no_grad():
            return list(lifted.exact(*game.toggled(), *game.extra))


def rows_at_once(frontier: list[Any]) -> int:
    """How many rows to propagate at once, given the frontier of one: as many as a processor's cache holds well."""
    sizes = [x.expected(torch.zeros_like(x.value.difference)).numel() for x in frontier if isinstance(x, Contributions)]
    return max(1, _CHUNK_ENTRIES // max(sizes, default=1))


def _signature(x: Any) -> Any:
    """What a trace depends on: of a tensor the shape of a row, dtype and device, of anything else the value."""
    return (x.shape[1:], x.dtype, x.device) if isinstance(x, Tensor) else (type(x), repr(x))
