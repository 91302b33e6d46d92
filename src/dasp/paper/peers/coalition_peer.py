"""Libraries that ask for the worth of coalitions, as attribution methods.

shap's and shapiq's samplers explain one function of one row. What they are given here is v(S) itself, for NumPy rows of
coalitions, so that groups of entries are players for them too; v evaluates the model in batches without gradients, as
our methods do. No evaluation is made that the library did not ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from torch import Tensor

from dasp.games.arguments import Arguments, Baselines, Target, Tensors, check_positive, games
from dasp.games.game import Game
from dasp.games.target import Selection

__all__ = ["CoalitionPeer", "Solver", "Worth", "chosen_output", "row_targets"]


def row_targets(target: Target, rows: int) -> list[Any]:
    """The target of each row."""
    if isinstance(target, Tensor):
        target = int(target) if target.numel() == 1 else target.tolist()
    return target if isinstance(target, list) else [target] * rows


def chosen_output(outputs: Tensor, target: Any) -> Tensor:
    """The one output that is explained: (m, *outputs) → (m,)."""
    chosen = Selection.of(outputs[:1], target).chosen
    if chosen.numel() > 1:
        raise ValueError(f"target must select one of the outputs of shape {tuple(outputs.shape[1:])}")
    return outputs.flatten(1)[:, int(chosen)] if outputs.dim() > 1 else outputs


@dataclass(frozen=True)
class Worth:
    """v(S) of one row."""

    function: Callable[..., Tensor]
    row: Game
    target: Any

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """(m, players), or one coalition, of 0 and 1 or booleans → (m,) in float64."""
        members = torch.from_numpy(np.atleast_2d(coalitions).astype(bool))[:, None]
        with torch.no_grad():
            parts = [
                chosen_output(self.row.evaluate(self.function, part.to(self.row.device))[:, 0], self.target)
                for part in members.split(self.row.rows_at_once)
            ]
        return torch.cat(parts).cpu().double().numpy()

    @property
    def players(self) -> int:
        """The number of players."""
        return self.row.count

    @property
    def varying(self) -> np.ndarray:
        """Whether a player's entries differ from the baseline at all: shap skips those that do not."""
        varying = np.zeros(self.players, dtype=bool)
        for on, off, mask in zip(self.row.on, self.row.off, self.row.masks, strict=True):
            varying[mask[(on != off)[0]].cpu().numpy()] = True
        return varying


# v, the number of samples in the library's own unit and a seed → the values of the players
Solver = Callable[[Worth, int, int], np.ndarray]


class CoalitionPeer(Attribution):  # type: ignore[misc]
    """A library's sampler on every row by itself, each with the same seed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2)).eval()
    >>> ends = lambda worth, number, seed: np.full(3, worth(np.ones(3)) - worth(np.zeros(3))) / 3
    >>> CoalitionPeer(model, ends).attribute(torch.ones(4, 3), target=[0, 1, 1, 0], number=2).shape
    torch.Size([4, 3])
    """

    def __init__(self, forward_func: Callable[..., Tensor], solver: Solver) -> None:
        super().__init__(forward_func)
        self.solver = solver

    def attribute(
        self,
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
        *,
        number: int,
        seed: int = 0,
    ) -> Any:
        """Attributions in the shape of the inputs, every entry with the value of its player."""
        check_positive(number=number)
        parts = games(Arguments(inputs, baselines, target, additional_forward_args, feature_mask))
        rows = [row for game in parts for _, row in game.slices(1)]
        pieces = []
        for row, goal in zip(rows, row_targets(target, len(rows)), strict=True):
            values = self.solver(Worth(self.forward_func, row, goal), number, seed)
            pieces.append(row.attributions(torch.as_tensor(values).to(row.dtype).to(row.device)[None]))
        joined = tuple(torch.cat(piece) for piece in zip(*pieces, strict=True))
        return joined[0] if parts[0].single else joined
