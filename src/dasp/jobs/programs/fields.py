"""Values of JSON that are what they should be: of one type, bounded, and without a field that is not known."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import Any

import torch

from dasp.jobs.programs.archive import NotUnderstood

__all__ = ["PLAIN", "choice", "fields", "identifier", "integer", "listed", "text"]

_SHORT = reprlib.Repr()  # which does not write out what it leaves out
_SHORT.maxstring = 60
_IDENTIFIER = re.compile(r"[A-Za-z0-9_.]{1,1000}")


def fields(data: Any, *required: str, optional: tuple[str, ...] = ()) -> list[Any]:
    """The required values of an object that has these fields and no others.

    >>> fields({"name": "x", "kind": 1}, "name", optional=("kind",))
    ['x']
    """
    if not isinstance(data, dict):
        raise TypeError(f"{_short(data)} where fields should be")
    if unknown := data.keys() - {*required, *optional}:
        raise NotUnderstood(f"a field {_short(min(unknown))}")
    return [data[name] for name in required]


def choice(data: Any) -> tuple[str, Any]:
    """The kind and the value of an object with a single field.

    >>> choice({"as_int": 3})
    ('as_int', 3)
    """
    if not isinstance(data, dict) or len(data) != 1:
        raise TypeError(f"{_short(data)} where one value of a kind should be")
    return next(iter(data.items()))


def listed(data: Any) -> list[Any]:
    """A list."""
    return _of(list, data)


def integer(data: Any) -> int:
    """An integer of 64 bits."""
    if not -(2**63) <= _of(int, data) < 2**63:
        raise NotUnderstood("a number of more than 64 bits")
    return int(data)


def text(data: Any) -> str:
    """A string that can be printed."""
    if not _of(str, data).isprintable() or len(data) > 1000:
        raise NotUnderstood("text that is too long or cannot be printed")
    return str(data)


def _number(data: Any) -> float:
    if data in ("Infinity", "-Infinity", "NaN"):
        return float(data)
    return float(integer(data)) if type(data) is int else float(_of(float, data))


def identifier(data: Any) -> str:
    """A name of a value, parameter or buffer.

    >>> identifier("layers.0.weight")
    'layers.0.weight'
    """
    if not _IDENTIFIER.fullmatch(_of(str, data)):
        raise NotUnderstood(f"a value named {_short(data)}")
    return str(data)


def _complex(data: Any) -> complex:
    return complex(*map(_number, fields(data, "real", "imag")))


def _dtype(data: Any) -> torch.dtype:
    if integer(data) not in _DTYPES:
        raise NotUnderstood(f"numbers of the unknown type {data}")
    return _DTYPES[data]


def _layout(data: Any) -> torch.layout:
    if integer(data) != _STRIDED:
        raise NotUnderstood("tensors that are sparse or packed")
    return torch.strided


def _device(data: Any) -> torch.device:
    kind, index = fields(data, "type", "index")
    if kind not in _DEVICES:
        raise NotUnderstood(f"the device {_short(kind)}")
    return torch.device(kind) if index is None else torch.device(kind, integer(index))


def _none(data: Any) -> None:
    _of(bool, data)


def _boolean(data: Any) -> bool:
    return _of(bool, data)


def _memory_format(data: Any) -> torch.memory_format:
    if integer(data) not in _MEMORY:
        raise NotUnderstood(f"an order of entries {data}")
    return _MEMORY[data]


PLAIN: dict[str, Callable[[Any], Any]] = {  # readers of values, by what torch calls their kinds
    "as_none": _none, "as_bool": _boolean, "as_int": integer, "as_float": _number, "as_complex": _complex,
    "as_string": text, "as_scalar_type": _dtype, "as_layout": _layout, "as_device": _device,
    "as_memory_format": _memory_format,
}  # fmt: skip
_DEVICES = ("cpu", "cuda", "mps", "xpu")
_STRIDED = 7
_MEMORY = dict(
    enumerate((torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format), start=1)
)
_DTYPES = dict(
    enumerate(
        (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
         torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.bfloat16),
        start=1,
    )
)  # fmt: skip


def _of(kind: type, data: Any) -> Any:
    if type(data) is not kind:  # True is no number here
        raise TypeError(f"{_short(data)} where a value of type {kind.__name__} should be")
    return data


def _short(data: Any) -> str:
    return _SHORT.repr(data)[:60]
