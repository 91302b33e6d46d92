"""The game that an `attribute` call asks about: inputs, baselines, players; checked once, for every estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch
from captum._utils.common import _select_targets
from torch import Tensor

from dasp.players import NOBODY, Toggled

__all__ = ["Baselines", "Game", "Question", "Selection", "Target", "Tensors", "check_positive"]

Tensors = Tensor | tuple[Tensor, ...]
Baselines = None | int | float | Tensor | tuple[int | float | Tensor, ...]
Target = None | int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]]


@dataclass(frozen=True)
class Game:
    """Rows that have the same players: for every row, coalitions of `count` players decide what the model sees."""

    on: tuple[Tensor, ...]
    off: tuple[Tensor, ...]
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
        on, off = tuple(x[part] for x in self.on), tuple(x[part] for x in self.off)
        return replace(self, on=on, off=off, extra=self._extra(itemgetter(part)))

    def repeated(self, number: int) -> Game:
        """All rows, `number` times over."""

        def copies(x: Tensor) -> Tensor:
            return x.repeat(number, *[1] * (x.dim() - 1))

        on, off = tuple(map(copies, self.on)), tuple(map(copies, self.off))
        return replace(self, on=on, off=off, extra=self._extra(copies))

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
        """The model on coalitions (m, rows, count) of booleans: (m, rows, *outputs)."""
        number = len(coalitions)
        inputs = tuple(
            torch.where(coalitions[..., mask], on, off).flatten(0, 1)
            for on, off, mask in zip(self.on, self.off, self.masks, strict=True)
        )
        output = function(*inputs, *self.repeated(number).extra)
        if not isinstance(output, Tensor):
            raise TypeError(f"the model must return one tensor to explain, not a {type(output).__name__}")
        if output.dim() == 0 or len(output) != number * self.rows:
            raise ValueError(
                f"the model must return one row per input row; for {number * self.rows} rows it gave the shape "
                f"{tuple(output.shape)}"
            )
        return output.unflatten(0, (number, self.rows))

    def ends(self, function: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """f(x) and f(baseline)."""
        with torch.no_grad():
            present = torch.tensor([True, False], device=self.device).view(2, 1, 1)
            full, empty = self.evaluate(function, present.expand(2, self.rows, self.count))
        return full, empty

    def attributions(self, values: Tensor) -> tuple[Tensor, ...]:
        """Values (rows, *outputs, count) as tensors (rows, *outputs, *input): every entry has its player's value."""
        return tuple(values[..., mask] for mask in self.masks)


def games(
    inputs: Tensors, baselines: Baselines, feature_mask: Tensors | None, additional_forward_args: Any
) -> list[Game]:
    """Check the arguments of `attribute`. One game, or several if rows have masks of their own."""
    single = isinstance(inputs, Tensor)
    on = _inputs(inputs)
    off = _baselines(on, baselines)
    extra = additional_forward_args
    extra = () if extra is None else extra if isinstance(extra, tuple) else (extra,)
    masks = _masks(on, feature_mask)
    varying = any(bool((mask != mask[:1]).any()) for mask in masks)
    batched = tuple(isinstance(x, Tensor) and x.dim() > 0 and len(x) == len(on[0]) for x in extra)
    whole = Game(on, off, (), extra, batched, 0, single)
    result = []
    for part, game in whole.slices(1 if varying else whole.rows):
        own, count = _numbered(tuple(mask[part if len(mask) > 1 else slice(0, 1)][0] for mask in masks))
        result.append(replace(game, masks=own, count=count))
    for game in result:
        if game.count == 0:
            raise ValueError("there are no players: the inputs have no entries")
        if game.count == 1:
            raise ValueError(
                "there is only one player, whose value is all of f(input) − f(baseline): nothing to divide"
            )
    return result


def _inputs(inputs: Tensors) -> tuple[Tensor, ...]:
    on = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(on, tuple) or not on or not all(isinstance(x, Tensor) for x in on):
        raise TypeError(f"inputs must be a tensor or a tuple of tensors, not {_kind(inputs)}")
    for i, x in enumerate(on):
        name = "inputs" if len(on) == 1 else f"inputs[{i}]"
        if x.is_complex() or x.is_quantized:
            raise TypeError(f"{name} has dtype {x.dtype}; floating point, integer or bool is needed")
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: at least one row is needed, along dimension 0")
        if len(x) != len(on[0]):
            raise ValueError(f"inputs have different numbers of rows: {[len(x) for x in on]}")
        _finite(x, name)
    return tuple(x.detach() for x in on)


def _kind(x: Any) -> str:
    if isinstance(x, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in x) or 'nothing'}"
    return f"a {type(x).__name__}"


def _finite(x: Tensor, name: str) -> None:
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).flatten(1).any(1).nonzero()[0]) if x.dim() > 1 else 0
        raise ValueError(f"{name} has NaN or infinite entries, first in row {row}")


def _baselines(on: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    given = baselines if isinstance(baselines, tuple) else (baselines,) * (len(on) if _plain(baselines) else 1)
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} baselines")
    return tuple(_baseline(x, b, "baselines" if len(on) == 1 else f"baselines[{i}]") for i, (x, b) in
                 enumerate(zip(on, given, strict=True)))  # fmt: skip


def _plain(baseline: Any) -> bool:
    return baseline is None or isinstance(baseline, (int, float))


def _baseline(x: Tensor, baseline: Any, name: str) -> Tensor:
    if baseline is None:
        return torch.zeros_like(x)
    if not isinstance(baseline, (int, float, Tensor)):
        raise TypeError(f"{name} must be None, a number or a tensor, not {_kind(baseline)}")
    value = torch.as_tensor(baseline, device=x.device).detach()
    _finite(value.reshape(1, -1), name)
    if value.dim() and value.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; {tuple(x.shape)} (a row per input), {(1, *x.shape[1:])} (one row) "
            "or a number is needed"
        )
    cast = value.to(x.dtype)
    if not x.is_floating_point() and not bool((cast == value).all()):
        raise ValueError(f"{name} must be whole numbers, as the input has dtype {x.dtype}")
    return cast.expand(x.shape)


def _masks(on: tuple[Tensor, ...], feature_mask: Tensors | None) -> tuple[Tensor, ...]:
    """Player labels for every input, with a batch dimension of 1 or of all rows."""
    if feature_mask is None:
        masks, start = [], 0
        for x in on:
            size = x[0].numel()
            masks.append(torch.arange(start, start + size, device=x.device).view(1, *x.shape[1:]))
            start += size
        return tuple(masks)
    given = (feature_mask,) if isinstance(feature_mask, Tensor) else tuple(feature_mask)
    if not all(isinstance(mask, Tensor) for mask in given):
        raise TypeError(f"feature_mask must be a tensor or a tuple of tensors, not {_kind(feature_mask)}")
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} feature masks")
    result = []
    for i, (x, mask) in enumerate(zip(on, given, strict=True)):
        name = "feature_mask" if len(on) == 1 else f"feature_mask[{i}]"
        if mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
            raise TypeError(f"{name} has dtype {mask.dtype}; player numbers are integers")
        rows = len(mask) if mask.dim() == x.dim() else 1
        wanted = torch.Size([rows, *x.shape[1:]])
        if rows not in (1, len(x)) or not _broadcasts(mask.shape, wanted):
            raise ValueError(
                f"{name} has shape {tuple(mask.shape)}, which does not fit an input row of shape {tuple(x.shape[1:])}"
            )
        result.append(mask.to(x.device).long().expand(wanted))
    return tuple(result)


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    fits = len(shape) <= len(wanted)
    return fits and all(a in (1, b) for a, b in zip(reversed(shape), reversed(wanted), strict=False))


def _numbered(masks: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], int]:
    """Labels renumbered 0 … N−1, in their order, over all inputs together."""
    labels, numbers = torch.unique(torch.cat([mask.flatten() for mask in masks]), return_inverse=True)
    parts = numbers.split([mask.numel() for mask in masks])
    return tuple(part.view(mask.shape) for part, mask in zip(parts, masks, strict=True)), len(labels)


def check_positive(**options: int | None) -> None:
    """Refuse numbers below 1, by the names of the options."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


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


@dataclass(frozen=True)
class Question:
    """An `attribute` call, understood: its games, what is selected of the outputs, and the outputs at both ends."""

    games: list[Game]
    selections: list[Selection]
    full: Tensor  # f(x), selected: (rows, *selected)
    empty: Tensor  # f(baseline)

    @staticmethod
    def ask(
        function: Callable[..., Tensor],
        inputs: Tensors,
        baselines: Baselines,
        target: Target,
        additional_forward_args: Any,
        feature_mask: Tensors | None,
    ) -> Question:
        """Check everything that can be wrong before any work is done."""
        parts = games(inputs, baselines, feature_mask, additional_forward_args)
        ends = [game.ends(function) for game in parts]
        full, empty = (torch.cat(rows) for rows in zip(*ends, strict=True))
        whole = Selection.of(full.shape, target)
        selections, start = [], 0
        for game in parts:
            selections.append(whole.rows(slice(start, start + game.rows)))
            start += game.rows
        return Question(parts, selections, whole(full), whole(empty))

    def answer(self, values: list[Tensor], return_convergence_delta: bool = False) -> Any:
        """Values (count, rows, *selected) of each game as the result of `attribute`."""
        pieces = [game.attributions(v.movedim(0, -1)) for game, v in zip(self.games, values, strict=True)]
        joined = tuple(torch.cat(rows) for rows in zip(*pieces, strict=True))
        result = joined[0] if self.games[0].single else joined
        if not return_convergence_delta:
            return result
        return result, torch.cat([v.sum(0) for v in values]) - (self.full - self.empty)
