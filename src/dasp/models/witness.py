"""A model that is watched while it is evaluated: is every row computed by itself, and the same each time?

Coalitions are evaluated in batches, whatever stands beside them there. So a model whose rows depend on the batch (a
batch norm without running statistics, a softmax over dimension 0, a `cumsum` along it, a factor of `len(x)`) would have
values of nothing. What a batch does to a row shows where the row is evaluated again in another one, so a few rows of
those batches that are really used are evaluated again, alone or among fewer and in another order:

- of a batch that is at least twice as large as all before, the last row beside the first; of one of two rows, either
  of them alone,
- then a hundredth of all rows that are evaluated, at random places.

Their outputs have to be the same up to rounding. If they are not the same when asked for once more either, the model
draws random numbers, or remembers. The places are drawn from a generator of our own: nothing depends on chance.

A module that has passed is known as long as its tensors, hooks and attributes are the same: of its next calls, a
hundredth of the rows is evaluated again, and those of larger batches. What changes within a list or in code around it
is not noticed, but in these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dasp.models.calling import module_of
from dasp.models.export_lock import evaluation_lock
from dasp.models.misfit import is_plain

__all__ = ["Places", "Witness", "check_rows_by_themselves", "rounding_of"]

_SHARE = 100  # rows, of which one is evaluated again
_MOST = 16  # rows of a batch that are evaluated again
_TWO = 2  # rows, of which each is evaluated alone: beside each other, a batch would be the same again
_WITHIN = 10.0  # times the square root of a dtype's precision: what is rounding, relative to the largest output
_PLAIN = (bool, int, float, str, type(None))
_SINGLE = torch.finfo(torch.float32).eps ** 0.5

RANDOM = (
    "the model's outputs for the same input differ from one evaluation to the next (dropout that is always on, random "
    "numbers of its own, or something that it remembers): its Shapley values would be noise; make it deterministic "
    "(before torch.export.export, call model.eval())"
)
MIXING = (
    "the model's output for a row depends on the rows beside it in the batch, their number or their order (a batch "
    "norm without running statistics, a sum, softmax or norm over dimension 0, or dynamic quantisation): every row "
    "must be computed by itself; with internal_batch_size=1 (batch_size=1 of an Explainer) it is"
)


class Places:
    """The places of a batch that are to be evaluated again, group by group, as batches are evaluated one after the
    other; see the module's docstring. Without a `share`, only of batches that are larger than those before.

    >>> places = Places()
    >>> places.of(2), places.of(3), places.of(100)
    ([[1], [0]], [], [[99, 0]])
    """

    def __init__(self, share: int | None = _SHARE) -> None:
        self.share = share
        self.largest = self.seen = self.again = 0  # the largest batch, and rows
        self._random = Random(0)  # noqa: S311 (no secret)

    def of(self, rows: int) -> list[list[int]]:
        """Return the places of a batch of so many rows that are to be evaluated again, in groups."""
        self.seen += rows
        if rows >= 2 * self.largest and rows > 0:
            self.largest = rows
            return [[rows - 1, 0]] if rows > _TWO else [[row] for row in reversed(range(rows))]
        due = min(self.seen // self.share - self.again, _MOST, rows) if self.share else 0
        if due < 1 or rows == 1:
            return []
        self.again += due
        return [self._random.sample(range(rows), due)]


@dataclass
class _Passed:
    """A module that has passed, as it was then, with the places of its batches."""

    settings: Hashable
    places: Places


_PASSED: WeakKeyDictionary[nn.Module, _Passed] = WeakKeyDictionary()
_LOCK = Lock()


class Witness:
    """A model, of whose rows some are evaluated again.

    Args:
        function: the model, as a function of arguments by position.
        batched: True for the arguments that have a row for every row of the outputs.
        rounding: the relative precision of the function, if it rounds more than the dtype of its outputs does.

    >>> Witness(lambda x: x * x.sum(0), (True,))(torch.ones(2, 1))
    Traceback (most recent call last):
        ...
    ValueError: the model's output for a row depends on the rows beside it in the batch, ...
    """

    def __init__(self, function: Callable[..., Any], batched: tuple[bool, ...], rounding: float = 0.0) -> None:
        self.function, self.batched = function, batched
        self.rounding = max(rounding, rounding_of(function))
        self.places = Places()
        self.outputs: torch.Size | None = None  # of a row
        self.loses_dimension = False  # True if it gave a number without dimensions for one row
        self.is_known = False  # True if it has passed in an earlier call

    def recall(self) -> None:
        """Go on where an earlier call of the same module ended, if nothing was changed in it since."""
        if not isinstance(module := module_of(self.function), nn.Module):
            return
        settings = (self.batched, self.rounding, _settings(module))
        with _LOCK:
            passed = _PASSED.get(module)
            if passed is None or passed.settings != settings:
                _PASSED[module] = _Passed(settings, self.places)
            else:
                self.places, self.is_known = passed.places, True

    def forget(self) -> None:
        """Begin anew in the next call."""
        if isinstance(module := module_of(self.function), nn.Module):
            with _LOCK:
                _PASSED.pop(module, None)

    def __call__(self, *args: Any) -> Any:
        """Evaluate the model, and some of the rows again."""
        try:
            return self._watched(*args)
        except BaseException:
            self.forget()
            raise

    def _watched(self, *args: Any) -> Any:
        rows = max(len(x) for x, own in zip(args, self.batched, strict=True) if own)
        groups = [(group, self._rows(args, group)) for group in self.places.of(rows)]  # before the model writes there
        output = self.function(*args)
        if not isinstance(output, Tensor) or not is_plain(output) or output.shape[:1] not in ((rows,), ()):
            return output  # which a game says something about
        if output.dim() == 0:
            if rows > 1:
                return output
            self.loses_dimension = True
            self.forget()  # whether the number is of the row is asked in every call
        self._check_shape(output.shape[1:])
        for group, own in groups:
            first = output.detach()[group] if output.dim() else output.detach()
            check_rows_by_themselves(first, partial(self._again, own), self.rounding)
        return output

    def check_two(self, *args: Any) -> None:
        """Refuse a model that gave one number for one row if it gives one number for two rows, too, by arguments for
        two rows."""
        try:
            output = self._again(args)
        except Exception:  # noqa: BLE001 (it takes one row only, whose number that is)
            return
        if isinstance(output, Tensor) and output.numel() == 1:
            raise ValueError(
                "the model gives one number for a batch, also of 2 rows, and nobody knows what is of which row: let it "
                "return a number for each row, or explain the rows one by one"
            )

    def _rows(self, args: tuple[Any, ...], group: list[int]) -> tuple[Any, ...]:
        """Some rows of the arguments, as copies."""
        return tuple(
            x[group].detach() if own else x.clone() if isinstance(x, Tensor) else x
            for x, own in zip(args, self.batched, strict=True)
        )

    def _again(self, args: tuple[Any, ...]) -> Any:
        copies = (x.clone() if isinstance(x, Tensor) else x for x in args)
        with torch.no_grad(), evaluation_lock():
            return self.function(*copies)

    def _check_shape(self, outputs: torch.Size) -> None:
        if self.outputs is None:
            self.outputs = outputs
        if outputs != self.outputs:
            raise ValueError(
                f"the model gives a row outputs of shape {tuple(outputs)} in one batch and {tuple(self.outputs)} in "
                "another: every row must have the same outputs, whatever stands in it and beside it"
            )


def check_rows_by_themselves(first: Tensor, evaluate: Callable[[], Tensor], rounding: float = 0.0) -> None:
    """Refuse a model whose outputs for some rows of a batch were others than what they are where the rows are evaluated
    apart, or at random."""
    try:
        again = evaluate()
    except Exception as error:
        raise ValueError(f"{MIXING}; and some of the rows could not be evaluated by themselves") from error
    if not alike(first, again, rounding):
        raise ValueError(MIXING if alike(again, evaluate(), rounding) else RANDOM)


def alike(first: Tensor, again: Any, rounding: float) -> bool:
    """Return True if outputs are equal up to rounding, which may depend on the place in a batch. What is not finite is
    another matter; and some models lose the dimension of a single row."""
    if not isinstance(again, Tensor) or again.numel() != first.numel():
        return False
    again = again.detach().reshape(first.shape)
    eps = max(torch.finfo(first.dtype).eps, rounding) if first.is_floating_point() else 0.0
    precision = max(eps, min(eps**0.5, _SINGLE))  # half precision has no digits to lose half of
    first, again = first.double(), again.double()
    both = first.isfinite() & again.isfinite()
    first, again = first[both], again[both]
    if not first.numel():
        return True
    scale = torch.maximum(first.abs().max(), again.abs().max())
    return bool(((first - again).abs() <= _WITHIN * precision * scale).all())


def _settings(module: nn.Module) -> Hashable:
    """Return what tells whether a module was changed: its tensors and how often these were, its hooks, and its
    attributes, of which lists and other containers are the same though something in them was changed."""
    found: list[Hashable] = [torch.is_autocast_enabled("cpu")]
    for part in module.modules():
        hooks = (*part._forward_hooks.values(), *part._forward_pre_hooks.values(), part.__dict__.get("forward"))
        found += [id(part), *map(id, hooks)]
        found += [(name, value if type(value) in _PLAIN else id(value)) for name, value in part.__dict__.items()]
    tensors = (*module.parameters(), *module.buffers())
    return (*found, *((id(x), 0 if x.is_inference() else x._version) for x in tensors))


def rounding_of(function: Any) -> float:
    """Return the relative precision of what a module computes with: its coarsest floating-point dtype, or that of
    autocast."""
    parameters = function.parameters() if isinstance(function, nn.Module) else ()
    dtypes = {x.dtype for x in parameters if x.dtype.is_floating_point}
    if torch.is_autocast_enabled("cpu"):
        dtypes.add(torch.get_autocast_dtype("cpu"))
    return max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
