"""How a model is called, and which of its results is meant.

People's models take keywords and return tuples, dictionaries or objects; everything here works on functions of tensors
by position that give one tensor. `forward_of` makes the one of the other, once for each model and question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from dasp.errors import BadInput

__all__ = ["Forward", "Names", "Output", "forward_of", "innermost", "like", "one_tensor", "unwrapped"]

Output = None | str | int | tuple[str | int, ...]
"""Which of a model's results: its name or index, or several of them on the way to a nested one; None: the only one."""
Names = tuple[str | None, ...]
"""The keyword of each argument, or None for its position; () if all have positions."""

_MOST_LISTED = 20  # results that a message names


class _Called:
    """What is asked of a model; see `forward_of`."""

    model: Callable[..., Any]
    output: Output
    names: Names

    def _call(self, model: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        given = list(zip(self.names or (None,) * len(args), args, strict=True))
        keywords = keywords | {name: x for name, x in given if name is not None}
        return one_tensor(model(*(x for name, x in given if name is None), **keywords), self.output)


class Forward(_Called, nn.Module):
    """A module as a function of arguments by position that gives one tensor."""

    def __init__(self, model: nn.Module, output: Output = None, names: Names = ()) -> None:
        super().__init__()
        self.model, self.output, self.names = model, output, names
        self.training = model.training

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        """Call the module; what only runs it in another way is left out of a graph."""
        model = unwrapped(self.model) if torch.compiler.is_exporting() else self.model
        return self._call(model, args, keywords)


class _Function(_Called):
    """The same for any other callable."""

    def __init__(self, model: Callable[..., Any], output: Output, names: Names) -> None:
        self.model, self.output, self.names = model, output, names

    def __call__(self, *args: Any, **keywords: Any) -> Tensor:
        return self._call(self.model, args, keywords)


_MADE: WeakValueDictionary[Any, Any] = WeakValueDictionary()  # they hold their models, so that ids stay what they are


def forward_of(model: Callable[..., Any], output: Output = None, names: Names = ()) -> Callable[..., Tensor]:
    """The model as a function of arguments by position, of which some have keywords, that gives one tensor: that of its
    results which `output` names. The same one whenever it is asked for, so that its graphs are shared.

    >>> forward_of(lambda x, scale: {"twice": 2 * x, "scaled": scale * x}, "scaled", (None, "scale"))(torch.ones(2), 3)
    tensor([3., 3.])
    """
    key = (id(model), output, names)
    made = _MADE.get(key)
    if made is None:
        made = Forward(model, output, names) if isinstance(model, nn.Module) else _Function(model, output, names)
        made = _MADE.setdefault(key, made)
    return made


def like(function: Callable[..., Any], model: Callable[..., Any]) -> Callable[..., Any]:
    """Another model with the arguments of `function`. Which of its results is meant is its own affair."""
    if not isinstance(function, _Called) or function is model or function.output is not None:
        return model
    return forward_of(model, names=function.names)


def unwrapped(model: Any) -> Any:
    """The module that a compiled or a parallel one runs."""
    if isinstance(original := getattr(model, "_orig_mod", None), nn.Module):
        return unwrapped(original)
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(model.module)
    return model


def innermost(model: Any) -> Any:
    """The user's own model, of whatever was made of it here or by torch."""
    inside = unwrapped(model.model if isinstance(model, _Called) else model)
    return model if inside is model else innermost(inside)


def one_tensor(result: Any, output: Output = None) -> Tensor:
    """The tensor that is meant among what a model returned: by name or index; else the only one, or the only one of
    floating point.

    >>> one_tensor((torch.zeros(2), torch.tensor([1, 2])))
    tensor([0., 0.])
    """
    if output is None:
        return result if isinstance(result, Tensor) else _only(result)
    found = result
    for step in output if isinstance(output, tuple) else (output,):
        parts = _parts(found)
        if step in parts:
            found = parts[step]
        elif isinstance(step, int) and -len(parts) <= step < len(parts):
            found = list(parts.values())[step]  # of a dictionary, too
        else:
            raise BadInput(f"the model returns no {output!r}: {_listed(result)}")
    if not isinstance(found, Tensor):
        raise BadInput(f"output={output!r} of the model is a {type(found).__name__}, not a tensor: {_listed(result)}")
    return found


def _only(result: Any) -> Tensor:
    tensors = list(_tensors(result).values())
    chosen = tensors if len(tensors) == 1 else [x for x in tensors if x.is_floating_point()]
    if len(chosen) != 1:
        raise BadInput(f"one tensor is needed to explain: {_listed(result)}")
    return chosen[0]


def _parts(result: Any) -> dict[Any, Any]:
    """The parts of a result by their names or indices."""
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, tuple) and (names := getattr(result, "_fields", None)):
        return dict(zip(names, result, strict=True))
    if isinstance(result, (tuple, list)):
        return dict(enumerate(result))
    if is_dataclass(result) and not isinstance(result, type):
        return {field.name: getattr(result, field.name) for field in fields(result)}
    return {}


def _tensors(result: Any, way: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Tensor]:
    """All tensors in a result, by the way to them."""
    if isinstance(result, Tensor):
        return {way: result}
    return {at: x for name, part in _parts(result).items() for at, x in _tensors(part, (*way, name)).items()}


def _listed(result: Any) -> str:
    """What a model returned, and what to do."""
    if isinstance(result, Tensor):
        return (
            f"it returns one tensor of shape {tuple(result.shape)}, so leave `output` out; `target` chooses among its "
            "entries"
        )
    ways = _tensors(result).items()
    found = [f"{(way[0] if len(way) == 1 else way)!r} {tuple(x.shape)}" for way, x in ways]
    if not found:
        return f"it returns a {type(result).__name__} without tensors in it"
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return f"it returns {', '.join(found[:_MOST_LISTED])}{more}; give one of them as output="
