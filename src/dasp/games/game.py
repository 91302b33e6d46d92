"""The game that is played for each row: its players, and what the model sees of a coalition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from dasp.models.calling import settled
from dasp.models.export_lock import evaluation_lock
from dasp.models.misfit import check_plain
from dasp.propagation.values import NOBODY, Toggled

__all__ = ["BatchOutput", "Game", "SeveralOutputs"]

_MOST_ROWS, _MOST_ENTRIES = 2**14, 2**20
_GROUPS = 8  # of baselines
_IMAGES = 4  # dimensions of a batch of images
_FINE = 4  # entries of a player, at most: the colours of a pixel, the letters of DNA


class SeveralOutputs(TypeError):
    """The model returned something else than a tensor."""


class BatchOutput(ValueError):
    """The model returned something else than a row for every row; `single` if it was one answer for all of them."""

    def __init__(self, rows: int, shape: tuple[int, ...]) -> None:
        super().__init__(f"the model must return one row per input row; for {rows} rows it gave the shape {shape}")
        self.rows, self.shape = rows, shape

    @property
    def single(self) -> bool:
        """True if there was one answer for all rows."""
        return self.shape in ((), (1,))


@dataclass(frozen=True)
class Game:
    """Rows that have the same players: for every row, coalitions of `count` players decide what the model sees."""

    on: tuple[Tensor, ...]
    baselines: tuple[tuple[Tensor, ...], ...]  # what absent players are; several are averaged over
    masks: tuple[Tensor, ...]  # the player (0 … count−1) of every entry of each input; −1 for those of nobody
    extra: tuple[Any, ...]
    batched: tuple[bool, ...]  # True for extra arguments that have a row for every row of the inputs
    count: int
    single: bool  # the user gave one tensor, not a tuple
    shares: tuple[float, ...] | None = None  # the weights of the baselines; None: all alike
    channels_last: bool = False  # the model is given images with the channels of a pixel side by side in memory

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.on[0])

    @property
    def has_rows(self) -> tuple[bool, ...]:
        """True for the model's arguments that have a row for every row of the inputs."""
        return (*[True] * len(self.on), *self.batched)

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
        """The device of the inputs."""
        return self.on[0].device

    @property
    def rows_at_once(self) -> int:
        """The number of rows to evaluate at once, unless the user gives one."""
        return max(1, min(_MOST_ROWS, _MOST_ENTRIES // sum(mask.numel() for mask in self.masks)))

    @cached_property
    def busy(self) -> Tensor:
        """True for the players of each row that are not idle, (rows, players): their entries differ from some
        baseline."""
        busy = torch.zeros(self.rows, self.count, dtype=torch.bool, device=self.device)
        for off in self.baselines:
            for on, absent, mask in zip(self.on, off, self.masks, strict=True):
                differs = (on != absent).reshape(self.rows, -1).long()
                busy |= torch.zeros_like(busy, dtype=torch.long).index_add_(1, mask.flatten(), differs) > 0
        return busy

    @property
    def coarse(self) -> bool:
        """True if players are groups of many entries, or tokens: units that see few of them are not Gaussian."""
        entries = sum(int((mask >= 0).sum()) for mask in self.masks)
        return entries > _FINE * self.count or not all(x.is_floating_point() for x in self.on)

    @cached_property
    def coordinates(self) -> Tensor | None:
        """The place of each player in a sequence, image or volume, (count, 1 to 3); None where players are
        unordered: in a row of features, several inputs, or groups that cover more than one position."""
        mask = self.masks[0]
        if len(self.masks) > 1 or not 2 <= mask.dim() <= 4:
            return None
        grid = torch.cartesian_prod(*(torch.arange(n) for n in mask.shape[1:])).view(-1, mask.dim() - 1)
        places = grid.repeat(len(mask), 1)  # of all entries, channel after channel
        players = mask.flatten().cpu()
        places, players = places[players >= 0], players[players >= 0]  # the others are nobody's
        first = torch.zeros(self.count, grid.shape[1], dtype=torch.long)
        first[players] = places
        return first if bool((first[players] == places).all()) else None

    def slices(self, size: int) -> Iterator[tuple[slice, Game]]:
        """Divide the game into parts of at most `size` rows."""
        for start in range(0, self.rows, size):
            part = slice(start, min(start + size, self.rows))
            yield part, self.rows_of(part)

    def rows_of(self, part: Any) -> Game:
        """Return the game of some rows: a slice or indices."""
        return self._with(itemgetter(part))

    def repeated(self, number: int) -> Game:
        """Repeat all rows, `number` times over."""
        return self._with(lambda x: x.repeat(number, *[1] * (x.dim() - 1)))

    def beside_each_baseline(self) -> Game:
        """Put every row beside every baseline, as rows of a game with one baseline: all rows with the first, then all
        with the next. This is for methods that know one baseline only; `averaged` undoes it."""
        if len(self.baselines) == 1:
            return self
        off = tuple(torch.cat(parts) for parts in zip(*self.baselines, strict=True))
        repeated = replace(self, baselines=()).repeated(len(self.baselines))
        return replace(repeated, baselines=(off,), shares=None)

    def averaged(self, over: Tensor) -> Tensor:
        """Return the mean over the baselines, along dimension 0, by their shares."""
        if self.shares is None:
            return over.mean(0)
        return torch.tensordot(torch.tensor(self.shares, dtype=over.dtype, device=over.device), over, dims=1)

    def _with(self, function: Callable[[Tensor], Tensor]) -> Game:
        """`function` on all tensors that have a row for every row."""
        on, baselines = tuple(map(function, self.on)), tuple(tuple(map(function, off)) for off in self.baselines)
        return replace(self, on=on, baselines=baselines, extra=self._extra(function))

    def _extra(self, function: Callable[[Tensor], Tensor]) -> tuple[Any, ...]:
        """`function` on those extra arguments that have a row for every row of the inputs."""
        return tuple(function(x) if rows else x for x, rows in zip(self.extra, self.batched, strict=True))

    def extra_for(self, number: int) -> tuple[Any, ...]:
        """Return the extra arguments for all rows, `number` times over: copies, as a model may write into what it is
        given."""
        copied = tuple(x.clone() if isinstance(x, Tensor) else x for x in self.extra)
        return replace(self, extra=copied)._extra(lambda x: x.repeat(number, *[1] * (x.dim() - 1)))

    def laid_out(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return inputs of the model as copies of its own, as it may write into what it is given. Images have their
        channels last in memory if that is said: convolutions of a processor are 1.2 to 2.9 times as quick with that
        (gradients 1.2 to 1.6 times), and all other operations take tensors in any layout."""
        return tuple(
            torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
            if self.channels_last and x.dim() == _IMAGES
            else x.clone()
            for x in inputs
        )

    def toggled(self) -> tuple[Toggled, ...]:
        """Return the inputs as values per player."""
        first = torch.arange(self.rows, device=self.device) * self.count + NOBODY + 1
        return tuple(
            Toggled(on, off, torch.where(mask < 0, NOBODY, first.view(-1, *[1] * mask.dim()) + mask).expand(on.shape))
            for on, off, mask in zip(self.on, self.off, self.masks, strict=True)
        )

    def evaluate(self, function: Callable[..., Tensor], coalitions: Tensor, at_once: int = 1) -> Tensor:
        """Evaluate the model on coalitions (m, rows, count) of booleans, averaged over the baselines: (m, rows,
        *outputs). With as many baselines at once as make no more than `at_once` rows, but at least one."""
        return self._averages(function, coalitions, at_once, [0] * len(self.baselines))[0]

    def evaluate_groups(self, function: Callable[..., Tensor], coalitions: Tensor, at_once: int = 1) -> Tensor:
        """Evaluate the model on coalitions as `evaluate` does, averaged over the baselines of each group: (groups, m,
        rows, *outputs)."""
        averages = self._averages(function, coalitions, at_once, self._groups)
        return torch.stack([part / share for part, share in zip(averages, self.group_shares, strict=True)])

    @cached_property
    def group_shares(self) -> list[float]:
        """The weights of some groups of baselines, by whose difference one sees how much depends on which baselines
        there are."""
        shares, groups = self._shares, self._groups
        return [sum(shares[i] for i in range(len(shares)) if groups[i] == group) for group in range(max(groups) + 1)]

    @cached_property
    def _groups(self) -> list[int]:
        """The group of each baseline, at random, as their own order may mean something."""
        number = len(self.baselines)
        order = torch.randperm(number, generator=torch.Generator().manual_seed(0))
        return (order % min(_GROUPS, number)).tolist()

    def group_averages(self, over: Tensor) -> Tensor:
        """Return the means over the baselines of each group, along dimension 0."""
        shares = torch.tensor(self._shares, dtype=over.dtype, device=over.device)
        groups = torch.tensor(self._groups, device=over.device)
        return torch.stack([
            torch.tensordot(shares[groups == group] / share, over[groups == group], dims=1)
            for group, share in enumerate(self.group_shares)
        ])  # fmt: skip

    @property
    def _shares(self) -> Sequence[float]:
        return self.shares or [1 / len(self.baselines)] * len(self.baselines)

    def _averages(
        self, function: Callable[..., Tensor], coalitions: Tensor, at_once: int, groups: list[int]
    ) -> list[Tensor]:
        """The parts of the average over all baselines that are of each group of them."""
        shares = self._shares
        several = max(1, at_once // max(1, len(coalitions) * self.rows))
        totals: dict[int, Tensor] = {}
        for start in range(0, len(shares), several):
            outputs = self._evaluate(function, self.baselines[start : start + several], coalitions)
            for place, output in enumerate(outputs, start):
                part = output if len(shares) == 1 else output * shares[place]
                group = groups[place]
                totals[group] = totals[group].add_(part) if group in totals else part
        return [totals[group] for group in sorted(totals)]

    def _evaluate(
        self, function: Callable[..., Tensor], baselines: Sequence[tuple[Tensor, ...]], coalitions: Tensor
    ) -> Tensor:
        """The model on coalitions beside each of some baselines: (baselines, m, rows, *outputs)."""
        number = len(baselines) * len(coalitions)
        with evaluation_lock():
            output = function(*self._arguments(baselines, coalitions))
            return self._checked(output, number).unflatten(0, (len(baselines), len(coalitions)))

    def arguments(self, coalitions: Tensor) -> tuple[Any, ...]:
        """Return what the model is given for coalitions (m, rows, count), m · rows of each."""
        return self._arguments([self.off], coalitions)

    def _arguments(self, baselines: Sequence[tuple[Tensor, ...]], coalitions: Tensor) -> tuple[Any, ...]:
        inputs = tuple(
            torch.where(coalitions[..., mask], on, torch.stack(off)[:, None]).flatten(0, 2)
            for on, off, mask in zip(self.on, zip(*baselines, strict=True), self.masks, strict=True)
        )
        if self.channels_last:
            inputs = self.laid_out(inputs)
        return (*inputs, *self.extra_for(len(baselines) * len(coalitions)))

    def _checked(self, output: Any, number: int) -> Tensor:
        """The output for `number` coalitions, (number, rows, *outputs); at least in float32, as it is added up."""
        output = settled(output)
        if not isinstance(output, Tensor):
            raise SeveralOutputs(
                f"the model must return one tensor to explain, not a {type(output).__name__}: give output="
            )
        if not output.is_complex():
            check_plain(output, "the model's output")
        else:
            raise TypeError(
                f"the model's outputs are complex ({output.dtype}), and Shapley values are of real numbers: explain "
                "their absolute values, or real and imaginary parts side by side (torch.view_as_real)"
            )
        if output.dim() == 0 and number * self.rows == 1:
            output = output.view(1)  # of a model that squeezes
        if output.dim() == 0 or len(output) != number * self.rows:
            raise BatchOutput(number * self.rows, tuple(output.shape))
        if not output.numel():
            raise ValueError(f"the model gives no outputs: their shape is {tuple(output.shape)}")
        if output.dtype.itemsize >= 4 and not output.is_floating_point():
            output = output.double()  # whole numbers as they are
        precise = torch.promote_types(output.dtype, torch.float32)
        return output.to(precise).unflatten(0, (number, self.rows))

    def ends(self, function: Callable[..., Tensor], at_once: int) -> tuple[Tensor, Tensor]:
        """Return f(x), (rows, *outputs), and f of every baseline, (baselines, rows, *outputs), at most `at_once`
        rows at once. A baseline that all rows share is evaluated once."""
        return self.outputs(function, at_once), self.empties(function, at_once)

    @torch.no_grad()
    def outputs(self, function: Callable[..., Tensor], at_once: int) -> Tensor:
        """Return f(x), (rows, *outputs)."""
        return self._end(function, self.baselines[0], at_once, present=True)

    def empties(self, function: Callable[..., Tensor], at_once: int) -> Tensor:
        """Return f of every baseline, (baselines, rows, *outputs)."""
        with torch.no_grad():
            return torch.stack([self._empty(function, baseline, at_once) for baseline in self.baselines])

    def _empty(self, function: Callable[..., Tensor], baseline: tuple[Tensor, ...], at_once: int) -> Tensor:
        shared = not any(self.batched) and all(x.stride(0) == 0 for x in baseline)
        if not shared:
            return self._end(function, baseline, at_once, present=False)
        two = slice(0, 2)  # some models lose the batch dimension of a single row
        own = self.rows_of(two)._end(function, tuple(x[two] for x in baseline), at_once, present=False)
        return own[:1].expand(self.rows, *own.shape[1:])

    def _end(
        self, function: Callable[..., Tensor], baseline: tuple[Tensor, ...], at_once: int, *, present: bool
    ) -> Tensor:
        """The model with all players present, or absent."""
        parts = []
        for part, rows in replace(self, baselines=()).slices(at_once):
            coalition = torch.full((1, rows.rows, self.count), present, device=self.device)
            parts.append(rows._evaluate(function, [tuple(x[part] for x in baseline)], coalition)[0, 0])
        return torch.cat(parts)

    def attributions(self, values: Tensor) -> tuple[Tensor, ...]:
        """Return values (rows, *outputs, count) as tensors (rows, *outputs, *input): every entry has its player's
        value."""
        return tuple(values[..., mask] for mask in self.masks)

    def values_of(self, tensors: tuple[Tensor, ...], *, whole: bool) -> Tensor:
        """Return attributions (rows, *selected, *input) as values of players, (players, rows, *selected) in float64
        on the CPU: of their entries the mean if each has the value of the player (`whole`), else the sum."""
        lead = tensors[0].dim() - self.masks[0].dim()
        entries = torch.cat([x.cpu().double().reshape(*x.shape[:lead], -1) for x in tensors], lead)
        players = torch.cat([mask.cpu().flatten() for mask in self.masks])
        values = torch.zeros(*entries.shape[:lead], self.count, dtype=torch.float64).index_add_(lead, players, entries)
        if whole:
            values /= torch.bincount(players, minlength=self.count)
        return values.movedim(-1, 0)
