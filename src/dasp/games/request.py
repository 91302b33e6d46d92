"""An `attribute` call, understood once for every estimator.

`Arguments` are what the user gave, by Captum's names. `games` checks them and makes a `Game` of rows that have the same
players. A `Selection` is Captum's `target`: which outputs of each row are explained, or which differences of two
outputs, for a `Contrast`: "why A and not B?" A `Request` has all of these and the outputs at both ends, f(x) and
f(baseline), which are evaluated once; estimators answer a request, and it turns their values of players into
attributions in the shape of the inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput, OverflowingRows, UndefinedCoalitions, line_of
from dasp.games.call_options import number_of, positive_number, shown, tensor_of, whole_number
from dasp.games.evaluator import Evaluator, Missing
from dasp.games.game import Game, SeveralOutputs
from dasp.models.calling import (
    DECIDING,
    Names,
    Scale,
    check_evaluation_mode,
    forward_of,
    innermost,
    like,
    module_of,
    scale_of,
)
from dasp.models.misfit import check_plain, misfit
from dasp.models.witness import Witness, alike

__all__ = [
    "PREDICTED", "SECOND", "Arguments", "Baselines", "Contrast", "Origin", "Request", "Selection", "Target", "Tensors",
    "check_positive", "check_tolerance", "contrasted", "games", "output_number", "yardstick",
]  # fmt: skip

log = logging.getLogger("dasp")

Tensors = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Baselines = None | int | float | Tensor | tuple[int | float | Tensor, ...] | dict[str, int | float | Tensor]
One = int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]]
"""An output of each row: the same one, or one for each."""

PREDICTED, SECOND = "predicted", "second"
_CANCELLED = 1e-2  # of Σ|values|: a smaller f(x) − f(baseline) is what contributions of both signs leave


def check_positive(**options: int | None) -> None:
    """Raise an error for what is no whole number of at least 1, by the names of the options."""
    for name, value in options.items():
        if value is not None:
            whole_number(name, value, 1)


def check_tolerance(tolerance: float | None) -> None:
    """Raise an error for a tolerance that cannot be reached."""
    if tolerance is not None:
        positive_number("tolerance", tolerance)


@dataclass(frozen=True)
class Contrast:
    """A target for differences of outputs: "why A and not B?" What is explained is the output `target` less the output
    `versus`, in each row; the values are those of this difference, with its own errors.

    `versus` is what a target can be, or "second": the largest output beside the target.

    >>> from dasp import ExactShapley
    >>> model = torch.nn.Linear(3, 4, bias=False).eval()
    >>> values = ExactShapley(model).attribute(torch.ones(1, 3), target=Contrast(2, 1))
    >>> torch.testing.assert_close(values[0], (model.weight[2] - model.weight[1]).detach())
    """

    target: One | Literal["predicted"] | None
    versus: One | Literal["predicted", "second"]


Target = One | Literal["predicted"] | Contrast | None


def contrasted(target: Any, versus: Any) -> Any:
    """Return a target, or its contrast with another output if there is one.

    >>> contrasted(3, None), contrasted(3, "second")
    (3, Contrast(target=3, versus='second'))
    """
    return target if versus is None else Contrast(target, versus)


@dataclass(frozen=True)
class Arguments:
    """The arguments of `attribute`, by Captum's names; `background` is True if the baselines are averaged over.

    Inputs may be a dictionary, of the model's keywords; then baselines and masks are so, too, where there is one for
    each. Further arguments are a tuple by position, or a dictionary by keyword.

    A background is averaged over: every row of it stands beside every row of the inputs. Whether baselines are one is
    decided where they come from, and nowhere else: here by those who know, or by their number in `given`.
    """

    inputs: Tensors
    baselines: Baselines = None
    target: Target = None
    additional_forward_args: Any = None
    feature_mask: Tensors | None = None
    background: bool = False
    shares: tuple[float, ...] | None = None  # the weights of its rows; None if all count alike

    @staticmethod
    def given(
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
    ) -> Arguments:
        """Return the arguments of an `attribute` call. Baselines are a background if they have neither one row nor one
        for each input row.

        >>> Arguments.given(torch.ones(2, 3), torch.zeros(5, 3)).background
        True
        """
        background = _is_background(_in_order(inputs, inputs), _in_order(inputs, baselines, "baselines"))
        return Arguments(inputs, baselines, target, additional_forward_args, feature_mask, background)

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keywords of the inputs, if they have any."""
        return tuple(self.inputs) if isinstance(self.inputs, dict) else None

    @property
    def rows(self) -> int:
        """The number of rows of the inputs."""
        return len(_inputs(_in_order(self.inputs, self.inputs))[0])

    @property
    def names(self) -> Names:
        """The keyword of each of the model's arguments, or None for its position; () if all have positions.

        >>> Arguments((torch.ones(1, 2),), additional_forward_args={"scale": 2}).names
        (None, 'scale')
        """
        inputs, extra = self.inputs, self.additional_forward_args
        own = self.keys or (None,) * (len(inputs) if isinstance(inputs, tuple) else 1)
        names = (*own, *(extra if isinstance(extra, dict) else (None,) * len(_extra(extra))))
        return names if any(name is not None for name in names) else ()


def _in_order(inputs: Any, things: Any, what: str = "inputs") -> Any:
    """Things by the keywords of the inputs, in the order of these, as a tuple; other things as they are."""
    if not isinstance(things, dict):
        return things
    if not isinstance(inputs, dict) or things.keys() != inputs.keys():
        raise ValueError(f"{what} are for {sorted(things)}, and inputs {_kind(inputs)}: the same keywords are needed")
    return tuple(things[key] for key in inputs)


def _extra(given: Any) -> tuple[Any, ...]:
    """Further arguments of the model, without their keywords."""
    if given is None:
        return ()
    return tuple(given.values()) if isinstance(given, dict) else given if isinstance(given, tuple) else (given,)


def _is_background(inputs: Any, baselines: Any) -> bool:
    on = inputs if isinstance(inputs, tuple) else (inputs,)
    off = baselines if isinstance(baselines, tuple) else (baselines,)
    if len(on) != len(off) or not all(map(_rows_alike, on, off)):
        return False
    lengths = {len(b) for b in off}
    return len(lengths) == 1 and not lengths <= {1, len(on[0])}


def _rows_alike(x: Any, baseline: Any) -> bool:
    both = isinstance(x, Tensor) and isinstance(baseline, Tensor)
    return both and not x.is_nested and not baseline.is_nested and _same_rows(x, baseline)


def _same_rows(x: Tensor, baseline: Tensor) -> bool:
    return baseline.dim() == x.dim() > 0 and baseline.shape[1:] == x.shape[1:]


def games(arguments: Arguments) -> list[Game]:
    """Check the arguments, and return one game, or several if rows have masks of their own."""
    on = _inputs(_in_order(arguments.inputs, arguments.inputs))
    baselines = _in_order(arguments.inputs, arguments.baselines, "baselines")
    several: list[Any] = [baselines]
    if arguments.background:
        several = _background(on, baselines)
    off = tuple(_baselines(on, part) for part in several)
    # Copies, as a model may write into what it is given.
    extra = tuple(x.clone() if isinstance(x, Tensor) else x for x in _extra(arguments.additional_forward_args))
    masks = _masks(on, _in_order(arguments.inputs, arguments.feature_mask, "feature masks"))
    varying = any(bool((mask != mask[:1]).any()) for mask in masks)
    batched = tuple(isinstance(x, Tensor) and x.dim() > 0 and len(x) == len(on[0]) for x in extra)
    whole = Game(on, off, (), extra, batched, 0, isinstance(arguments.inputs, Tensor), arguments.shares)
    result = []
    for part, game in whole.slices(1 if varying else whole.rows):
        own, count = _numbered(tuple(mask[part if len(mask) > 1 else slice(0, 1)][0] for mask in masks))
        result.append(replace(game, masks=own, count=count))
    for game in result:
        if game.count == 0:
            raise ValueError("there are no players: the inputs have no entries")
    return result


def _background(on: tuple[Tensor, ...], rows: Any) -> list[tuple[Tensor, ...]]:
    """The rows of a background, each as a baseline for all rows of the inputs."""
    parts = rows if isinstance(rows, tuple) else (rows,)
    if len(parts) != len(on) or not all(map(_rows_alike, on, parts)) or len({len(part) for part in parts}) != 1:
        shapes = ", ".join(str(tuple(part.shape)) if isinstance(part, Tensor) else _kind(part) for part in parts)
        wanted = ", ".join(str(("rows", *x.shape[1:])) for x in on)
        raise ValueError(f"the background has shape {shapes}; {wanted} is needed, with as many rows for every input")
    if not len(parts[0]):
        raise ValueError("the background has no rows")
    return [tuple(part[i] for part in parts) for i in range(len(parts[0]))]


def _inputs(inputs: Any) -> tuple[Tensor, ...]:
    on = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(on, tuple) or not on or not all(isinstance(x, Tensor) for x in on):
        raise TypeError(f"inputs must be a tensor, or a tuple or dictionary of tensors, not {_kind(inputs)}")
    for i, x in enumerate(on):
        name = "inputs" if len(on) == 1 else f"inputs[{i}]"
        check_plain(x, name)
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: at least one row is needed, along dimension 0")
        if len(x) != len(on[0]):
            raise ValueError(f"inputs have different numbers of rows: {[len(x) for x in on]}")
        _finite(x, name)
    return tuple(x.detach().resolve_neg() for x in on)


def _kind(x: Any) -> str:
    if isinstance(x, dict):
        return f"a dict of {', '.join(map(str, x)) or 'nothing'}"
    if isinstance(x, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in x) or 'nothing'}"
    return f"a {type(x).__name__}"


def _finite(x: Tensor, name: str) -> None:
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise ValueError(f"{name} has NaN or infinite entries, first in row {row}")


def _baselines(on: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    given = baselines if isinstance(baselines, tuple) else (baselines,) * (len(on) if _plain(baselines) else 1)
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} baselines")
    return tuple(_baseline(x, b, "baselines" if len(on) == 1 else f"baselines[{i}]") for i, (x, b) in
                 enumerate(zip(on, given, strict=True)))  # fmt: skip


def _plain(baseline: Any) -> bool:
    return baseline is None or isinstance(number_of(baseline), (int, float))


def _baseline(x: Tensor, baseline: Any, name: str) -> Tensor:
    if baseline is None:
        return torch.zeros_like(x[:1]).expand(x.shape)
    if isinstance(baseline, Tensor):
        check_plain(baseline, name)
        value = baseline.detach().to(x.device)
    elif _plain(baseline):
        value = tensor_of(number_of(baseline), x.device)
    else:
        raise TypeError(f"{name} must be None, a number or a tensor, not {_kind(baseline)}")
    _finite(value.reshape(1, -1), name)
    if value.dim() and value.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; {tuple(x.shape)} (a row per input), {(1, *x.shape[1:])} (one row) "
            "or a number is needed"
        )
    cast = value.to(x.dtype)
    if not x.is_floating_point() and not bool((cast == value).all()):
        raise ValueError(f"{name} must be whole numbers, as the input has dtype {x.dtype}, and such as it can hold")
    if not bool(cast.isfinite().all()):
        raise ValueError(f"{name} has numbers that {x.dtype} cannot hold, which is the dtype of the inputs")
    return cast.expand(x.shape)


def _masks(on: tuple[Tensor, ...], feature_mask: Any) -> tuple[Tensor, ...]:
    """Player labels for every input, with a batch dimension of 1 or of all rows."""
    if feature_mask is None:
        masks, start = [], 0
        for x in on:
            size = x[0].numel()
            masks.append(torch.arange(start, start + size, device=x.device).view(1, *x.shape[1:]))
            start += size
        return tuple(masks)
    given = tuple(feature_mask) if isinstance(feature_mask, (tuple, list)) else (feature_mask,)
    if not all(isinstance(mask, Tensor) for mask in given):
        raise TypeError(f"feature_mask must be a tensor or a tuple of tensors, not {_kind(feature_mask)}")
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} feature masks")
    result = []
    for i, (x, mask) in enumerate(zip(on, given, strict=True)):
        name = "feature_mask" if len(on) == 1 else f"feature_mask[{i}]"
        if not mask.is_complex():
            check_plain(mask, name)
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


def output_number(name: str, names: Sequence[str] | None, words: Sequence[str] = (PREDICTED,)) -> int | str:
    """Return the number of an output by its name; words such as "predicted" stay as they are, unless an output is
    called so.

    >>> output_number("dog", ["cat", "dog"]), output_number("predicted", None)
    (1, 'predicted')
    """
    if name in (names or ()):
        return list(names or ()).index(name)
    if name in words:
        return name
    known = list(names or ()) or "not known; give them as output_names=[…]"
    raise BadInput(f"there is no output {name!r}: output_names are {known}")


@dataclass(frozen=True)
class Selection:
    """The outputs of each row that are explained, Captum's `target`; or their differences from others."""

    chosen: Tensor  # (rows, *selected): positions among the flattened outputs of a row
    outputs: torch.Size  # the outputs of a row
    against: Tensor | None = None  # the same of the outputs that are subtracted, for a `Contrast`

    @staticmethod
    def of(values: Tensor, target: Target) -> Selection:
        """Select among outputs (rows, …): None selects all of them, where a single one counts as a scalar, and
        "predicted" each row's largest."""
        if isinstance(target, Contrast):
            return Selection.of(values, target.target)._rather_than(values, target)
        return Selection._one(values, target, "target")

    @staticmethod
    def _one(values: Tensor, target: Any, option: str) -> Selection:
        rows, outputs = values.shape[0], values.shape[1:]
        number = torch.arange(outputs.numel()).view(1, *outputs).expand(values.shape)
        if target is None:
            return Selection(number.reshape(rows) if outputs.numel() == 1 else number, outputs)
        if isinstance(target, str) and target == PREDICTED:
            return Selection(values.reshape(rows, -1).argmax(1).cpu(), outputs)
        try:
            return Selection(_chosen(number, target), outputs)
        except (IndexError, TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ValueError(
                f"{option} {shown(target)} does not fit outputs of shape {tuple(values.shape)}: {line_of(error)}"
            ) from error

    def _rather_than(self, values: Tensor, contrast: Contrast) -> Selection:
        """Return the differences of what is selected from other outputs."""
        if self.outputs.numel() < 2:
            raise BadInput(
                "versus compares two outputs, and the model has one: leave it out (a single logit says already why yes "
                "and not no)"
            )
        versus = contrast.versus
        if not isinstance(versus, str) or versus != SECOND:
            others = Selection._one(values, versus, "versus").chosen
        elif self.chosen.dim() > 1:
            raise BadInput('versus="second" is beside one output of each row: give one as target, such as "predicted"')
        else:
            flat = values.reshape(len(values), -1).detach().cpu().double()
            others = flat.scatter(1, self.chosen[:, None], -torch.inf).argmax(1)
        if others.dim() > 1:
            raise BadInput(f"versus {shown(versus)} is several outputs of a row, and one is needed")
        others = others.reshape(-1, *[1] * (self.chosen.dim() - 1)).expand(self.chosen.shape)
        if isinstance(versus, (int, tuple)) and isinstance(contrast.target, (int, tuple)) and others.equal(self.chosen):
            raise BadInput(f"target and versus are the same output, {shown(versus)}: their difference is 0")
        return replace(self, against=others)

    def differences(self) -> Tensor | None:
        """Return the pairs of outputs whose differences are selected, (pairs, 2); None if outputs themselves are."""
        return None if self.against is None else self._pairs()[0]

    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Return all pairs of outputs, and which of them are selected: (pairs, 2) and (rows, selected)."""
        assert self.against is not None
        both = torch.stack([self.chosen, self.against], -1).reshape(len(self.chosen), -1, 2)
        pairs, numbers = torch.unique(both.reshape(-1, 2), dim=0, return_inverse=True)
        return pairs, numbers.view(both.shape[:2])

    def captum_targets(self) -> Iterator[Any]:
        """Yield what Captum takes for `target`, for one selected output after the other: a number or a tuple of
        numbers if it is the same in all rows, else one for each row; None if the model has a single output. Of
        `differences`, a target is the number of a pair."""
        pairs = None if self.against is None else self._pairs()
        whole = self if pairs is None else Selection(pairs[1], pairs[0].shape[:1])
        for column in whole.chosen.reshape(len(whole.chosen), -1).T:
            places = torch.stack(torch.unravel_index(column, whole.outputs), 1).tolist() if whole.outputs else []
            each = [place[0] if len(place) == 1 else tuple(place) for place in places]
            yield each[0] if len(set(each)) == 1 else each or None

    def rows(self, part: Any) -> Selection:
        """Return the selection for some of the rows: a slice or indices."""
        own = part.cpu() if isinstance(part, Tensor) else part
        return replace(self, chosen=self.chosen[own], against=None if self.against is None else self.against[own])

    @property
    def idle(self) -> Tensor:
        """True for rows of which nothing is explained: an output rather than the same one, (rows,)."""
        if self.against is None:
            return torch.zeros(len(self.chosen), dtype=torch.bool)
        return (self.chosen == self.against).reshape(len(self.chosen), -1).all(1)

    def repeated(self, number: int) -> Selection:
        """Return the selection for all rows, `number` times over."""
        times = (number, *[1] * (self.chosen.dim() - 1))
        against = None if self.against is None else self.against.repeat(times)
        return replace(self, chosen=self.chosen.repeat(times), against=against)

    def __call__(self, values: Tensor) -> Tensor:
        """(*any, rows, *outputs) → (*any, rows, *selected)."""
        lead = values.shape[: values.dim() - 1 - len(self.outputs)]
        flat = values.reshape(*lead, len(self.chosen), self.outputs.numel())
        selected = self._at(flat, self.chosen)
        return selected if self.against is None else selected - self._at(flat, self.against)

    def _at(self, flat: Tensor, places: Tensor) -> Tensor:
        lead, index = flat.shape[:-2], places.reshape(len(places), -1).to(flat.device)
        return flat.gather(-1, index.expand(*lead, *index.shape)).reshape(*lead, *places.shape)


def _chosen(number: Tensor, target: Any) -> Tensor:
    """Those of the outputs' numbers (rows, *outputs) that Captum's target selects: an index (or a tuple of them) for
    all rows, or a tensor or list with one for each row."""
    target = torch.from_numpy(target) if isinstance(target, np.ndarray) else number_of(target)
    if isinstance(target, Tensor):
        check_plain(target, "a tensor of targets")
        if target.is_floating_point() or target.dtype == torch.bool or target.dim() > 1:
            raise TypeError("a tensor of targets has an integer for each row, or one for all")
        target = int(target) if target.numel() == 1 else target.tolist()
    if not isinstance(target, list):
        return number[(slice(None), *_place(target))]
    if len(target) != len(number):
        raise ValueError(f"there are {len(target)} targets for {len(number)} rows")
    places = [_place(each) for each in target]
    if number.dim() != 2 and any(len(place) == 1 for place in places):
        raise ValueError("an integer for each row needs outputs with one dimension beside the rows")
    return torch.stack([number[(row, *place)] for row, place in enumerate(places)])


def _place(target: Any) -> tuple[Any, ...]:
    """The place of an output: an integer, or a tuple of them."""
    place = tuple(map(number_of, target)) if isinstance(target, tuple) else (number_of(target),)
    if not all(isinstance(index, int) and not isinstance(index, bool) for index in place):
        raise TypeError("an integer, a tuple of integers, a tensor or a list is needed")
    return place


@dataclass(frozen=True)
class Origin:
    """The rows and players of a game, as they are numbered in the request that the game was taken from."""

    rows: Tensor
    players: Tensor
    everybody: int  # the number of players there


@dataclass(frozen=True)
class Request:
    """An `attribute` call, understood: its games, what is selected of the outputs, and the outputs at both ends, which
    are evaluated once."""

    function: Callable[..., Tensor]
    witness: Witness  # the same function, watched while it is evaluated
    games: list[Game]
    selections: list[Selection]
    full: Tensor  # f(x), selected: (rows, *selected)
    empties: Tensor  # f of each baseline: (baselines, rows, *selected)
    grouped: bool  # the players were given by a mask
    keys: tuple[str, ...] | None = None  # keywords of the inputs, if they were given by these
    origins: list[Origin] | None = None  # where rows and players were left out

    @staticmethod
    def of(
        function: Callable[..., Tensor], arguments: Arguments, *, at_once: int | None = None, rounding: float = 0.0
    ) -> Request:
        """Check everything that can be wrong before any work is done. At most `at_once` rows are evaluated at once. The
        function may round more than its outputs' dtype does: to this relative precision."""
        check_positive(internal_batch_size=at_once)
        parts = games(arguments)
        if arguments.names:
            function = forward_of(function, names=arguments.names)
        scale = scale_of(function)
        try:
            if scale is not None:
                _decide(scale, function, parts, at_once)
            witness, parts, ends = _opened(function, parts, at_once, rounding)
        except SeveralOutputs:
            function = forward_of(function)
            witness, parts, ends = _opened(function, parts, at_once, rounding)
        except (RuntimeError, IndexError, TypeError) as error:
            if why := misfit(error, function, arguments.inputs):
                raise BadInput(why) from error
            raise
        full, empties = torch.cat([end[0] for end in ends]), torch.cat([end[1] for end in ends], 1)
        if scale is not None:
            scale.check(torch.cat([full[None], empties]))
        whole = Selection.of(full, arguments.target)
        selections, start = [], 0
        for game in parts:
            selections.append(whole.rows(slice(start, start + game.rows)))
            start += game.rows
        grouped = arguments.feature_mask is not None
        return Request(function, witness, parts, selections, whole(full), whole(empties), grouped, arguments.keys)

    def of_function(self, function: Callable[..., Tensor], *, again: bool = False) -> Request:
        """Return the same request to another model: a surrogate, say, whose values are a prior. It is called in the
        same way, and this is the request itself if it is the same model, unless that is to be evaluated again."""
        function = like(self.function, function)
        if function is self.function and not again:
            return self
        witness = Witness(function, self.games[0].has_rows, self.witness.rounding)
        ends = [game.ends(witness, game.rows_at_once) for game in self.games]
        try:
            full = torch.cat([s(end[0]) for s, end in zip(self.selections, ends, strict=True)])
            empties = torch.cat([s(end[1]) for s, end in zip(self.selections, ends, strict=True)], 1)
        except RuntimeError as error:
            outputs = tuple(ends[0][0].shape[1:])
            raise ValueError(
                f"the model of the prior has outputs of shape {outputs}, and the model that is explained of shape "
                f"{tuple(self.selections[0].outputs)}: they must be the same outputs"
            ) from error
        return replace(self, function=function, witness=witness, full=full, empties=empties)

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
        """Yield each game with the rows it has, and what is selected of its outputs."""
        start = 0
        for game, select in zip(self.games, self.selections, strict=True):
            yield slice(start, start + game.rows), game, select
            start += game.rows

    def apart(self) -> Iterator[Request]:
        """Yield a request for each game."""
        for rows, game, select in self.parts():
            full, empties = self.full[rows], self.empties[:, rows]
            yield replace(self, games=[game], selections=[select], full=full, empties=empties)

    @property
    def selection(self) -> Selection:
        """The selection for all rows."""
        first, every = self.selections[0], [select.against for select in self.selections]
        against = None if first.against is None else torch.cat([own for own in every if own is not None])
        return replace(first, chosen=torch.cat([select.chosen for select in self.selections]), against=against)

    def evaluators(self, at_once: int | None, progress: Any, missing: Missing = "raise") -> Iterator[Evaluator]:
        """Yield an evaluator of coalitions for each game. Coalitions without a finite value are an error, or NaN with
        `missing="drop"`."""
        for (rows, game, select), origin in zip(self.parts(), self._origins(), strict=True):
            yield Evaluator(
                self.witness, game, select, self.empty[rows].cpu().double(), self.full[rows].cpu().double(),
                at_once or game.rows_at_once, progress, origin.rows, origin.players, origin.everybody,
                game.group_averages(self.empties[:, rows].cpu().double()), missing,
            )  # fmt: skip

    def _origins(self) -> list[Origin]:
        if self.origins is not None:
            return self.origins
        return [Origin(torch.arange(rows.start, rows.stop), torch.arange(game.count), game.count)
                for rows, game, _ in self.parts()]  # fmt: skip

    def check_ends(self) -> None:
        """Refuse rows whose outputs with none of the players, or with all of them, are not finite."""
        ends = torch.stack([self.empty, self.full]).cpu()
        bad = ~ends.isfinite().reshape(*ends.shape[:2], -1)
        rows = bad.any(2).any(0).nonzero()[:, 0].tolist()
        if rows:
            end = int(bad[:, rows[0]].any(1).nonzero()[0])
            value = ends.reshape(bad.shape)[end, rows[0]][bad[end, rows[0]]][0]
            players = next(game.count for part, game, _ in self.parts() if rows[0] < part.stop)
            count = int(bad.any(2).any(1).sum())
            raise UndefinedCoalitions(rows, count, 2, range(players if end else 0), players, float(value))

    def rows_of(self, part: Any) -> Request:
        """Return the request for some of the rows (a slice or indices), where all rows have the same players."""
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
        """Return values of `beside_each_baseline`, (players, baselines · rows, *selected), averaged over the
        baselines."""
        number = len(self.empties)
        if number == 1:
            return values
        apart = [v.unflatten(1, (number, game.rows)) for v, game in zip(values, self.games, strict=True)]
        return [game.averaged(v.movedim(1, 0)) for v, game in zip(apart, self.games, strict=True)]

    def silenced(self, values: list[Tensor]) -> list[Tensor]:
        """Return values with those of idle players exactly 0, where a method gives them rounding."""
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
        """Return Σ values − (f(x) − f(baseline)), (rows, *selected)."""
        return torch.cat([v.sum(0) for v in values]) - self.total.to(values[0])

    def answer(self, values: list[Tensor]) -> Any:
        """Return values (players, rows, *selected) of each game in the shape of the inputs: the result of
        `attribute`."""
        pieces = [game.attributions(v.movedim(0, -1)) for game, v in zip(self.games, values, strict=True)]
        joined = tuple(torch.cat(rows) for rows in zip(*pieces, strict=True))
        if self.keys is not None:
            return dict(zip(self.keys, joined, strict=True))
        return joined[0] if self.games[0].single else joined

    def by_player(self, values: list[Tensor]) -> Tensor:
        """Return values (players, rows, *selected) of each game as (rows, *selected, players), where all rows have
        the same number of them."""
        numbers = sorted({game.count for game in self.games})
        if len(numbers) > 1:
            raise ValueError(f"rows have {numbers} players, so that there is no tensor of values by player")
        return torch.cat([v.movedim(0, -1) for v in values])

    def in_order(self, attributions: Any) -> tuple[Any, ...]:
        """Return attributions to the inputs, one after the other, from a result of `attribute`."""
        if isinstance(attributions, dict) and set(attributions) == set(self.keys or ()):
            return tuple(attributions[key] for key in self.keys or ())
        return attributions if isinstance(attributions, tuple) else (attributions,)

    def values_of(self, attributions: Tensors, *, whole: bool = True) -> list[Tensor]:
        """Return attributions in the shape of the inputs as values of the players of each game, (players, rows,
        *selected) in float64 on the CPU; `whole` if every entry has the value of its player, else they are added up."""
        tensors = self.in_order(attributions)
        wanted = [(*self.full.shape, *mask.shape) for mask in self.games[0].masks]
        if [tuple(x.shape) for x in tensors] != wanted:
            raise ValueError(
                f"attributions (of a prior, say) have shape {', '.join(str(tuple(x.shape)) for x in tensors)}; "
                f"{', '.join(map(str, wanted))} is needed"
            )
        return [game.values_of(tuple(x[rows].detach() for x in tensors), whole=whole) for rows, game, _ in self.parts()]


def yardstick(total: Tensor, values: Tensor) -> Tensor:
    """Return what a tolerance is relative to: |f(x) − f(baseline)|, but at least 1 % of Σ|values| (players along
    dimension 0): a smaller difference is what contributions of both signs leave, and would ask for more than anyone
    wants."""
    return torch.maximum(total.abs(), _CANCELLED * values.abs().sum(0))


def _decide(scale: Scale, function: Callable[..., Tensor], parts: list[Game], at_once: int | None) -> None:
    """Decide by the outputs at both ends what brings a model's outputs to a scale, unless that is known."""
    with DECIDING:
        if scale.kind is None:
            ends = [end for game in parts for end in game.ends(function, at_once or game.rows_at_once)]
            outputs = ends[0].shape[1:]
            scale.decide(torch.cat([end.reshape(-1, *outputs) for end in ends]))


def _opened(
    function: Callable[..., Tensor], parts: list[Game], at_once: int | None, rounding: float
) -> tuple[Witness, list[Game], list[tuple[Tensor, Tensor]]]:
    """Return a model, watched from its first evaluation on, the games as it takes them, and its outputs at their
    ends."""
    witness = Witness(function, parts[0].has_rows, rounding)
    witness.recall()
    _check_function(witness, parts[0], at_once or parts[0].rows_at_once)
    if _suits_channels_last(function, parts[0], witness.rounding):
        parts = [replace(game, channels_last=True) for game in parts]
    return witness, parts, [game.ends(witness, at_once or game.rows_at_once) for game in parts]


def _check_function(witness: Witness, game: Game, at_once: int) -> None:
    """Refuse a model in training mode, one whose evaluations of the same input differ, and one that mixes the rows of a
    batch; the witness goes on to look while the model is evaluated. The first row's baseline is evaluated beside
    another coalition, if two rows may be, and both by themselves; not if the model has passed in an earlier call."""
    if isinstance(module := module_of(witness.function), nn.Module):
        check_evaluation_mode(module)
    if witness.is_known:
        return
    first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
    half = torch.arange(game.count, device=game.device) < (game.count + 1) // 2
    both = torch.stack([torch.zeros_like(half), half])[:, None]
    with torch.no_grad():
        first.evaluate(witness, both if at_once > 1 else both[:1])
        if witness.loses_dimension and game.rows > 1:
            witness.check_two(*first.arguments(both))


@torch.no_grad()
def _suits_channels_last(function: Callable[..., Any], game: Game, rounding: float) -> bool:
    """Return True if the model has convolutions of images that a processor computes, and is the same function of images
    whose channels are last in memory. It is tried, as a model may ask for another layout (by `view`, say)."""
    model = innermost(function)
    if game.device.type != "cpu" or not isinstance(model, nn.Module):
        return False
    if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return False
    first = game.rows_of(slice(0, 1)).beside_each_baseline().rows_of(slice(0, 1))
    everybody = torch.ones(game.count, dtype=torch.bool, device=game.device)
    usual = first.evaluate(function, everybody[None, None])
    try:
        other = replace(first, channels_last=True).evaluate(function, everybody[None, None])
    except RuntimeError as error:
        log.debug("the model takes no images with their channels last in memory: %s", line_of(error))
        return False
    return alike(usual, other, rounding)
