"""An `attribute` call, understood: its games, the outputs it asks about, and how values become attributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import OverflowingRows
from dasp.games.arguments import Arguments, Tensors, games
from dasp.games.evaluator import Evaluator
from dasp.games.game import Game, SeveralOutputs
from dasp.games.target import Selection
from dasp.propagation.forward import forward_of, like
from dasp.propagation.tracing import check_evaluation_mode

__all__ = ["Request", "yardstick"]

_CANCELLED = 1e-2


@dataclass(frozen=True)
class Request:
    """An `attribute` call, understood: its games, what is selected of the outputs, and the outputs at both ends, which
    are evaluated once."""

    function: Callable[..., Tensor]
    games: list[Game]
    selections: list[Selection]
    full: Tensor  # f(x), selected: (rows, *selected)
    empties: Tensor  # f of each baseline: (baselines, rows, *selected)
    grouped: bool  # whether the players were given by a mask
    keys: tuple[str, ...] | None = None  # keywords of the inputs, if they were given by these

    @staticmethod
    def of(
        function: Callable[..., Tensor], arguments: Arguments, *, at_once: int | None = None, rounding: float = 0.0
    ) -> Request:
        """Check everything that can be wrong before any work is done. At most `at_once` rows are evaluated at once. The
        function may round more than its outputs' dtype does: to this relative precision."""
        parts = games(arguments)
        if arguments.names:
            function = forward_of(function, names=arguments.names)
        try:
            _check_function(function, parts[0], at_once or parts[0].rows_at_once, rounding)
        except SeveralOutputs:
            function = forward_of(function)
            _check_function(function, parts[0], at_once or parts[0].rows_at_once, rounding)
        ends = [game.ends(function, at_once or game.rows_at_once) for game in parts]
        full, empties = torch.cat([end[0] for end in ends]), torch.cat([end[1] for end in ends], 1)
        whole = Selection.of(full, arguments.target)
        selections, start = [], 0
        for game in parts:
            selections.append(whole.rows(slice(start, start + game.rows)))
            start += game.rows
        grouped = arguments.feature_mask is not None
        return Request(function, parts, selections, whole(full), whole(empties), grouped, arguments.keys)

    def of_function(self, function: Callable[..., Tensor]) -> Request:
        """The same request to another model: a surrogate, say, whose values are a prior. It is called in the same way,
        and this is the request itself if it is the same model."""
        function = like(self.function, function)
        if function is self.function:
            return self
        ends = [game.ends(function, game.rows_at_once) for game in self.games]
        try:
            full = torch.cat([s(end[0]) for s, end in zip(self.selections, ends, strict=True)])
            empties = torch.cat([s(end[1]) for s, end in zip(self.selections, ends, strict=True)], 1)
        except RuntimeError as error:
            outputs = tuple(ends[0][0].shape[1:])
            raise ValueError(
                f"the model of the prior has outputs of shape {outputs}, and the model that is explained of shape "
                f"{tuple(self.selections[0].outputs)}: they must be the same outputs"
            ) from error
        return replace(self, function=function, full=full, empties=empties)

    @property
    def empty(self) -> Tensor:
        """f(baseline), averaged over the baselines: (rows, *selected)."""
        return self.games[0].averaged(self.empties)

    @property
    def total(self) -> Tensor:
        """f(x) − f(baseline), what the values of the players add up to."""
        return self.full - self.empty

    @property
    def players(self) -> int:
        """The number of players; of the most, if rows have players of their own."""
        return max(game.count for game in self.games)

    def parts(self) -> Iterator[tuple[slice, Game, Selection]]:
        """Each game with the rows it has, and what is selected of its outputs."""
        start = 0
        for game, select in zip(self.games, self.selections, strict=True):
            yield slice(start, start + game.rows), game, select
            start += game.rows

    def apart(self) -> Iterator[Request]:
        """A request for each game."""
        for rows, game, select in self.parts():
            full, empties = self.full[rows], self.empties[:, rows]
            yield replace(self, games=[game], selections=[select], full=full, empties=empties)

    def captum_targets(self) -> Iterator[Any]:
        """Captum's `target` for one selected output after the other, for all rows."""
        first = self.selections[0]
        return replace(first, chosen=torch.cat([select.chosen for select in self.selections])).captum_targets()

    def evaluators(self, at_once: int | None, progress: Any) -> Iterator[Evaluator]:
        """What evaluates coalitions, for each game."""
        for rows, game, select in self.parts():
            yield Evaluator(
                self.function, game, select, self.empty[rows].cpu().double(), self.full[rows].cpu().double(),
                at_once or game.rows_at_once, progress,
            )  # fmt: skip

    def rows_of(self, part: Any) -> Request:
        """The request for some of the rows (a slice or indices), where all rows have the same players."""
        (game,), (select,) = self.games, self.selections
        full, empties = self.full[part], self.empties[:, part]
        return replace(self, games=[game.rows_of(part)], selections=[select.rows(part)], full=full, empties=empties)

    def beside_each_baseline(self) -> Request:
        """Put every row beside every baseline, as rows of their own; `averaged` undoes it."""
        number = len(self.empties)
        if number == 1:
            return self
        selections = [select.repeated(number) for select in self.selections]
        parts = list(self.parts())
        full = torch.cat([self.full[rows].repeat(number, *[1] * (self.full.dim() - 1)) for rows, _, _ in parts])
        empties = torch.cat([self.empties[:, rows].flatten(0, 1) for rows, _, _ in parts])[None]
        games = [game.beside_each_baseline() for game in self.games]
        return replace(self, games=games, selections=selections, full=full, empties=empties)

    def averaged(self, values: list[Tensor]) -> list[Tensor]:
        """Values of `beside_each_baseline`, (players, baselines · rows, *selected), averaged over the baselines."""
        number = len(self.empties)
        if number == 1:
            return values
        apart = [v.unflatten(1, (number, game.rows)) for v, game in zip(values, self.games, strict=True)]
        return [game.averaged(v.movedim(1, 0)) for v, game in zip(apart, self.games, strict=True)]

    def silenced(self, values: list[Tensor]) -> list[Tensor]:
        """Values with those of idle players exactly 0, where a method gives them rounding."""
        idle = [~game.busy.T for game in self.games]
        return [torch.where(i.view(*i.shape, *[1] * (v.dim() - 2)), 0, v) for i, v in zip(idle, values, strict=True)]

    def check_finite(self, values: list[Tensor]) -> None:
        """Refuse values (players, rows, *selected) that are not finite where the outputs at both ends are."""
        wrong = ~torch.cat([v.isfinite().all(0).cpu() for v in values]) & self.total.isfinite().cpu()
        rows = wrong.reshape(len(wrong), -1).any(1).nonzero()[:, 0].tolist()
        if rows:
            entries = [torch.cat([game.on[i].reshape(game.rows, -1) for game in self.games])[rows[0]]
                       for i in range(len(self.games[0].on))]  # fmt: skip
            raise OverflowingRows(rows, max(float(x.abs().max()) for x in entries), str(self.games[0].dtype))

    def gaps(self, values: list[Tensor]) -> Tensor:
        """Σ values − (f(x) − f(baseline)), (rows, *selected)."""
        return torch.cat([v.sum(0) for v in values]) - self.total.to(values[0])

    def answer(self, values: list[Tensor]) -> Any:
        """Values (players, rows, *selected) of each game in the shape of the inputs: the result of `attribute`."""
        pieces = [game.attributions(v.movedim(0, -1)) for game, v in zip(self.games, values, strict=True)]
        joined = tuple(torch.cat(rows) for rows in zip(*pieces, strict=True))
        if self.keys is not None:
            return dict(zip(self.keys, joined, strict=True))
        return joined[0] if self.games[0].single else joined

    def in_order(self, attributions: Any) -> tuple[Any, ...]:
        """Attributions to the inputs, one after the other, from a result of `attribute`."""
        if isinstance(attributions, dict) and set(attributions) == set(self.keys or ()):
            return tuple(attributions[key] for key in self.keys or ())
        return attributions if isinstance(attributions, tuple) else (attributions,)

    def values_of(self, attributions: Tensors, *, whole: bool = True) -> list[Tensor]:
        """Attributions in the shape of the inputs as values of the players of each game, (players, rows, *selected) in
        float64 on the CPU; `whole` if every entry has the value of its player, else they are added up."""
        tensors = self.in_order(attributions)
        wanted = [(*self.full.shape, *mask.shape) for mask in self.games[0].masks]
        if [tuple(x.shape) for x in tensors] != wanted:
            raise ValueError(
                f"attributions (of a prior, say) have shape {', '.join(str(tuple(x.shape)) for x in tensors)}; "
                f"{', '.join(map(str, wanted))} is needed"
            )
        return [game.values_of(tuple(x[rows].detach() for x in tensors), whole=whole) for rows, game, _ in self.parts()]


def yardstick(total: Tensor, values: Tensor) -> Tensor:
    """What a tolerance is relative to: |f(x) − f(baseline)|, but at least 1 % of Σ|values| (players along dimension 0):
    a smaller difference is what contributions of both signs leave, and would ask for more than anyone wants."""
    return torch.maximum(total.abs(), _CANCELLED * values.abs().sum(0))


def _check_function(function: Callable[..., Any], game: Game, at_once: int, rounding: float) -> None:
    """Refuse a model in training mode, one whose evaluations of the same input differ, and one that mixes the rows of a
    batch. The first row's baseline is evaluated twice in one batch, and once beside another coalition."""
    if isinstance(function, nn.Module):
        check_evaluation_mode(function)
    first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
    half = torch.arange(game.count, device=game.device) < (game.count + 1) // 2
    nobody = torch.zeros_like(half)
    same = _outputs(function, first, (nobody, nobody), at_once)
    if not _alike(same[0], same[1], rounding):
        raise ValueError(
            "the model's outputs for the same input differ from one evaluation to the next (dropout that is always "
            "on, or random numbers of its own): its Shapley values would be noise; make it deterministic (before "
            "torch.export.export, call model.eval())"
        )
    if at_once > 1 and not _alike(same[0], _outputs(function, first, (nobody, half), at_once)[0], rounding):
        raise ValueError(
            "the model's output for a row depends on the rows beside it in the batch (a batch norm without running "
            "statistics, a sum, softmax or norm over dimension 0, or dynamic quantisation): every row must be computed "
            "by itself; with internal_batch_size=1 it is"
        )


@torch.no_grad()
def _outputs(function: Callable[..., Any], row: Game, coalitions: tuple[Tensor, ...], at_once: int) -> Tensor:
    """The outputs for coalitions of one row, in one batch if that is allowed."""
    parts = torch.stack(coalitions)[:, None].split(at_once)
    return torch.cat([row.evaluate(function, part) for part in parts])[:, 0]


def _alike(a: Tensor, b: Tensor, rounding: float) -> bool:
    """Equal up to rounding, which may depend on the place in a batch; what is not finite is another matter."""
    if not bool(a.isfinite().all() and b.isfinite().all()):
        return True
    scale = float(torch.maximum(a.abs().max(), b.abs().max())) if a.numel() else 0.0
    precision = max(torch.finfo(a.dtype).eps, rounding) ** 0.5 if a.is_floating_point() else 0.0
    return bool(((a - b).abs() <= 10 * precision * scale).all())
