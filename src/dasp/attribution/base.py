"""What our methods share beside Captum's interface, and what those share that propagate moments."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from captum.attr import Attribution
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.games.game import Game
from dasp.games.request import Request
from dasp.games.target import Selection
from dasp.propagation.forward import Output, forward_of
from dasp.propagation.graphs import KeptGraphs, Outputs
from dasp.propagation.lifting import Frontier, Lifted
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import checked_model

__all__ = ["GRADIENT", "Estimate", "PlayerMethod", "PropagatedAttribution", "rows_at_once"]

GRADIENT = 3  # evaluations: forward once, and backward

# Numbers in the widest tensor at the frontier of a chunk.
_CHUNK_ENTRIES = 2**19


@dataclass(frozen=True)
class Estimate:
    """What a method found: the values of the players of each game of a request, (players, rows, *selected)."""

    values: list[Tensor]
    std: list[Tensor] | None = None  # their standard deviations, where the method knows them
    missed: Tensor | None = None  # which rows did not reach the tolerance, (rows,); None if there is none
    evaluations: Tensor | None = None  # of the model for each row, as `dasp.methods` counts them; None if not known

    def answer(self, request: Request, *, delta: bool = False, std: bool = False) -> Any:
        """The result of `attribute`: values in the shape of the inputs, and what is asked for beside them."""
        result = request.answer(self.values)
        if std and self.std is not None:
            return result, request.answer(self.std)
        return (result, request.gaps(self.values)) if delta else result


class PlayerMethod(Attribution):  # type: ignore[misc]
    """A method of ours: with target=None it explains all outputs, a group of entries is one player, and baselines may
    be a background. `attribute` is Captum's; it understands its arguments and leaves the rest to `explain`. Of a model
    that returns several things, `output` is the name or index of the tensor to explain."""

    forward_func: Callable[..., Any]

    def __init__(self, forward_func: Callable[..., Any], output: Output = None) -> None:
        super().__init__(forward_func if output is None else forward_of(forward_func, output))

    explain: Callable[..., Estimate]
    """The values of the players for a `Request`; the options are those of `attribute`."""


class PropagatedAttribution(PlayerMethod):
    """An attribution method that needs the model's graph, not only its outputs."""

    _pool_first = True  # whether the graph may rectify after pooling

    def _whole(self) -> Collection[Any]:
        """The operations that stay whole in the graph."""
        return RULES

    def __init__(self, model: nn.Module | ExportedProgram, output: Output = None) -> None:
        checked = checked_model(model)
        super().__init__(checked.module() if isinstance(checked, ExportedProgram) else checked, output)
        self.model = checked if output is None else self.forward_func
        self._asked: Callable[..., Any] = self.forward_func  # last; it is held here, as its graphs go with it

    def _called(self, request: Request) -> nn.Module | ExportedProgram:
        """What is traced: the model, or how the request calls it."""
        self._asked = request.function
        model = self.model if request.function is self.forward_func else request.function
        return checked_model(model)

    def __getstate__(self) -> dict[str, Any]:
        """A program cannot be pickled, but saved."""
        state = dict(vars(self))
        state["_asked"] = None
        if isinstance(self.model, ExportedProgram):
            file = io.BytesIO()
            torch.export.save(self.model, file)
            state |= {"model": file.getvalue(), "forward_func": None}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.model, bytes):
            self.model = torch.export.load(io.BytesIO(self.model))
            self.forward_func = self.model.module()

    def traces(self, request: Request) -> list[fx.GraphModule]:
        """The model's graph for inputs like those of each game."""
        model = self._called(request)
        return [
            KeptGraphs.of(model).traced(
                model, (*game.on, *game.extra), _outputs(game, select, request.full[rows]),
                keep=self._whole(), pool_first=self._pool_first,
            ) for rows, game, select in request.parts()
        ]  # fmt: skip

    def lifts(self, request: Request, at_once: int | None = None) -> list[Lifted]:
        """The model lifted for the players of each game, from a graph that gives the request's outputs; at most
        `at_once` rows are evaluated at once."""
        model = self._called(request)
        return [
            self.lift(game, _outputs(game, select, request.full[rows], at_once), model)
            for rows, game, select in request.parts()
        ]

    def lift(
        self, game: Game, outputs: Outputs | None = None, model: nn.Module | ExportedProgram | None = None
    ) -> Lifted:
        """The model lifted for the game's players; raises what says why it cannot be."""
        model = checked_model(self.model) if model is None else model
        first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
        players = tuple(mask.cpu().numpy().tobytes() for mask in game.masks)
        arguments = (*first.toggled(), *first.extra)
        example = (*game.on, *game.extra)
        return KeptGraphs.of(model).lifted(model, example, arguments, game.count, players, outputs)

    def _estimate(
        self, request: Request, values: list[Tensor], evaluations: Tensor | None = None, missed: Tensor | None = None
    ) -> Estimate:
        """The values beside each baseline, averaged, if they are finite."""
        averaged = request.silenced(request.averaged(values))
        request.check_finite(averaged)
        return Estimate(averaged, missed=missed, evaluations=evaluations)

    def _check_differentiable(self) -> None:
        """Refuse to work where derivatives cannot be had."""
        if torch.is_inference_mode_enabled():
            raise RuntimeError(
                f"{type(self).__name__} differentiates, which inference mode forbids: use torch.no_grad() instead"
            )


def _outputs(game: Game, select: Selection, full: Tensor, at_once: int | None = None) -> Outputs:
    return Outputs(lambda function: select(game.outputs(function, at_once or game.rows_at_once)), full)


def rows_at_once(frontier: Frontier) -> int:
    """How many rows to propagate at once, given the frontier of one: as many as a processor's cache holds well."""
    return max(1, _CHUNK_ENTRIES // frontier.entries)
