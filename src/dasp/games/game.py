"""The game that is played for each row: which players there are, and what the model sees of a coalition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from dasp.propagation.values import NOBODY, Toggled

__all__ = ["Game"]


@dataclass(frozen=True)
class Game:
    """Rows that have the same players: for every row, coalitions of `count` players decide what the model sees."""

    on: tuple[Tensor, ...]
    baselines: tuple[tuple[Tensor, ...], ...]  # what absent players are: one for DASP, several are averaged over
    masks: tuple[Tensor, ...]  # for each input the player (0 … count−1) of every entry, without a batch dimension
    extra: tuple[Any, ...]
    batched: tuple[bool, ...]  # which of the extra arguments have a row for every row of the inputs
    count: int
    single: bool  # whether the user gave one tensor, not a tuple

    @property
    def rows(self) -> int:
        """The batch size."""
        return len(self.on[0])

    @property
    def off(self) -> tuple[Tensor, ...]:
        """The baseline, where there is one only."""
        (off,) = self.baselines
        return off

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the attributions."""
        return next((x.dtype for x in self.on if x.is_floating_point()), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Where the inputs are."""
        return self.on[0].device

    @cached_property
    def coordinates(self) -> Tensor | None:
        """Where each player is in a sequence, image or volume, (count, 1 to 3); None where players are unordered: in
        a row of features, several inputs, or groups that cover more than one position."""
        mask = self.masks[0]
        if len(self.masks) > 1 or not 2 <= mask.dim() <= 4:
            return None
        grid = torch.cartesian_prod(*(torch.arange(n) for n in mask.shape[1:])).view(-1, mask.dim() - 1)
        places = grid.repeat(len(mask), 1)  # of all entries, channel after channel
        players = mask.flatten().cpu()
        first = torch.zeros(self.count, grid.shape[1], dtype=torch.long)
        first[players] = places
        return first if bool((first[players] == places).all()) else None

    def slices(self, size: int) -> Iterator[tuple[slice, Game]]:
        """The game in parts of at most `size` rows."""
        for start in range(0, self.rows, size):
            part = slice(start, min(start + size, self.rows))
            yield part, self.rows_of(part)

    def rows_of(self, part: Any) -> Game:
        """The game of some rows: a slice or indices."""
        return self._with(itemgetter(part))

    def repeated(self, number: int) -> Game:
        """All rows, `number` times over."""
        return self._with(lambda x: x.repeat(number, *[1] * (x.dim() - 1)))

    def _with(self, function: Callable[[Tensor], Tensor]) -> Game:
        """`function` on all tensors that have a row for every row."""
        on, baselines = tuple(map(function, self.on)), tuple(tuple(map(function, off)) for off in self.baselines)
        return replace(self, on=on, baselines=baselines, extra=self._extra(function))

    def _extra(self, function: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
        """`function` on those extra arguments that have a row for every row of the inputs."""
        return tuple(function(x) if rows else x for x, rows in zip(self.extra, self.batched, strict=True))

    def toggled(self) -> tuple[Toggled, ...]:
        """The inputs as values per player."""
        first = torch.arange(self.rows, device=self.device) * self.count + NOBODY + 1
        return tuple(
            Toggled(on, off, (first.view(-1, *[1] * mask.dim()) + mask).expand(on.shape))
            for on, off, mask in zip(self.on, self.off, self.masks, strict=True)
        )

    def evaluate(self, function: Callable[..., Tensor], coalitions: Tensor) -> Tensor:
        """The model on coalitions (m, rows, count) of booleans, averaged over the baselines: (m, rows, *outputs)."""
        number = len(coalitions)
        extra = tuple(self._extra(lambda x: x.repeat(number, *[1] * (x.dim() - 1))))
        total: Tensor | None = None
        for baseline in self.baselines:
            inputs = tuple(
                torch.where(coalitions[..., mask], on, off).flatten(0, 1)
                for on, off, mask in zip(self.on, baseline, self.masks, strict=True)
            )
            output = self._checked(function(*inputs, *extra), number)
            total = output if total is None else total + output
        assert total is not None
        return total if len(self.baselines) == 1 else total / len(self.baselines)

    def _checked(self, output: Any, number: int) -> Tensor:
        """The output for `number` coalitions, (number, rows, *outputs); at least in float32, as it is added up."""
        if not isinstance(output, Tensor):
            raise TypeError(f"the model must return one tensor to explain, not a {type(output).__name__}")
        if output.dim() == 0 and number * self.rows == 1:
            output = output.view(1)  # of a model that squeezes
        if output.dim() == 0 or len(output) != number * self.rows:
            raise ValueError(
                f"the model must return one row per input row; for {number * self.rows} rows it gave the shape "
                f"{tuple(output.shape)}"
            )
        precise = output.is_floating_point() and torch.finfo(output.dtype).bits >= 32
        return (output if precise else output.float()).unflatten(0, (number, self.rows))

    def ends(self, function: Callable[..., Tensor], at_once: int) -> tuple[Tensor, Tensor]:
        """f(x) and f(baseline), at most `at_once` rows at once."""
        present = torch.tensor([True, False], device=self.device).view(2, 1, 1)
        parts = []
        with torch.no_grad():
            for _, rows in self.slices(max(1, at_once // 2)):
                both = present.expand(2, rows.rows, self.count).split(min(2, at_once))
                parts.append(torch.cat([rows.evaluate(function, end) for end in both]))
        full, empty = torch.cat(parts, 1)
        return full, empty

    def attributions(self, values: Tensor) -> tuple[Tensor, ...]:
        """Values (rows, *outputs, count) as tensors (rows, *outputs, *input): every entry has its player's value."""
        return tuple(values[..., mask] for mask in self.masks)
