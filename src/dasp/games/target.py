"""Which outputs of the model are explained: Captum's `target`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dasp.errors import BadInput
from dasp.games.arguments import Target

__all__ = ["PREDICTED", "Selection", "output_number"]

PREDICTED = "predicted"


def output_number(name: str, names: Sequence[str] | None) -> int | str:
    """The number of an output by its name; "predicted" stays as it is, unless an output is called so.

    >>> output_number("dog", ["cat", "dog"]), output_number("predicted", None)
    (1, 'predicted')
    """
    if name in (names or ()):
        return list(names or ()).index(name)
    if name == PREDICTED:
        return name
    known = list(names or ()) or "not known; give them as output_names=[…]"
    raise BadInput(f"there is no output {name!r}: output_names are {known}")


@dataclass(frozen=True)
class Selection:
    """Captum's `target`: which outputs of each row are explained."""

    chosen: Tensor  # (rows, *selected): positions among the flattened outputs of a row
    outputs: torch.Size  # the outputs of a row

    @staticmethod
    def of(values: Tensor, target: Target) -> Selection:
        """Select among outputs (rows, …): None selects all of them, where a single one counts as a scalar, and
        "predicted" each row's largest."""
        rows, outputs = values.shape[0], values.shape[1:]
        number = torch.arange(outputs.numel()).view(1, *outputs).expand(values.shape)
        if target is None:
            return Selection(number.reshape(rows) if outputs.numel() == 1 else number, outputs)
        if isinstance(target, str) and target == PREDICTED:
            return Selection(values.reshape(rows, -1).argmax(1).cpu(), outputs)
        try:
            return Selection(_chosen(number, target), outputs)
        except (IndexError, TypeError, ValueError) as error:
            raise ValueError(f"target {target} does not fit outputs of shape {tuple(values.shape)}: {error}") from error

    def captum_targets(self) -> Iterator[Any]:
        """What Captum takes for `target`, for one selected output after the other: a number or a tuple of numbers if it
        is the same in all rows, else one for each row; None if the model has a single output."""
        for column in self.chosen.reshape(len(self.chosen), -1).T:
            places = torch.stack(torch.unravel_index(column, self.outputs), 1).tolist() if self.outputs else []
            each = [place[0] if len(place) == 1 else tuple(place) for place in places]
            yield each[0] if len(set(each)) == 1 else each or None

    def rows(self, part: Any) -> Selection:
        """The selection for some of the rows: a slice or indices."""
        return replace(self, chosen=self.chosen[part.cpu() if isinstance(part, Tensor) else part])

    def repeated(self, number: int) -> Selection:
        """The selection for all rows, `number` times over."""
        return replace(self, chosen=self.chosen.repeat(number, *[1] * (self.chosen.dim() - 1)))

    def __call__(self, values: Tensor) -> Tensor:
        """(*any, rows, *outputs) → (*any, rows, *selected)."""
        lead = values.shape[: values.dim() - 1 - len(self.outputs)]
        flat = values.reshape(*lead, len(self.chosen), self.outputs.numel())
        index = self.chosen.reshape(len(self.chosen), -1).to(values.device)
        return flat.gather(-1, index.expand(*lead, *index.shape)).reshape(*lead, *self.chosen.shape)


def _chosen(number: Tensor, target: Any) -> Tensor:
    """Those of the outputs' numbers (rows, *outputs) that Captum's target selects: an index (or a tuple of them) for
    all rows, or a tensor or list with one for each row."""
    if isinstance(target, Tensor):
        if target.is_floating_point() or target.dim() > 1:
            raise TypeError("a tensor of targets has an integer for each row, or one for all")
        target = int(target) if target.numel() == 1 else target.tolist()
    if isinstance(target, (int, tuple)):
        index = (target,) if isinstance(target, int) else target
        return number[(slice(None), *index)]
    if not isinstance(target, list):
        raise TypeError("an integer, a tuple, a tensor or a list is needed")
    if len(target) != len(number):
        raise ValueError(f"there are {len(target)} targets for {len(number)} rows")
    if all(isinstance(each, int) for each in target):
        if number.dim() != 2:
            raise ValueError("an integer for each row needs outputs with one dimension beside the rows")
        return number[torch.arange(len(number)), torch.tensor(target)]
    return torch.stack([number[(row, *each)] for row, each in enumerate(target)])
