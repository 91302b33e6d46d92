"""Which outputs of the model are explained: Captum's `target`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from captum._utils.common import _select_targets
from torch import Tensor

from dasp.games.arguments import Target

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection:
    """Captum's `target`: which outputs of each row are explained."""

    chosen: Tensor  # (rows, *selected): positions among the flattened outputs of a row
    outputs: torch.Size  # the outputs of a row

    @staticmethod
    def of(shape: torch.Size, target: Target) -> Selection:
        """For outputs of a `shape` (rows, …). None selects all outputs; a single one counts as a scalar."""
        rows, outputs = shape[0], shape[1:]
        number = torch.arange(outputs.numel()).view(1, *outputs).expand(shape)
        if target is None:
            return Selection(number.reshape(rows) if outputs.numel() == 1 else number, outputs)
        try:
            chosen = _select_targets(number, target.cpu() if isinstance(target, Tensor) else target)
        except (AssertionError, IndexError, RuntimeError) as error:
            raise ValueError(f"target {target} does not fit outputs of shape {tuple(shape)}: {error}") from error
        return Selection(chosen, outputs)

    def rows(self, part: Any) -> Selection:
        """The selection for some of the rows: a slice or indices."""
        return replace(self, chosen=self.chosen[part])

    def __call__(self, values: Tensor) -> Tensor:
        """(*any, rows, *outputs) → (*any, rows, *selected)."""
        lead = values.shape[: values.dim() - 1 - len(self.outputs)]
        flat = values.reshape(*lead, len(self.chosen), self.outputs.numel())
        index = self.chosen.reshape(len(self.chosen), -1).to(values.device)
        return flat.gather(-1, index.expand(*lead, *index.shape)).reshape(*lead, *self.chosen.shape)
