"""The options of an `attribute` call beside its arguments: how many of something, a seed, a tolerance, a time.

People give numbers of Python's and of NumPy's, and tensors of one number, and mean the same by them. What is no such
number is refused, in a sentence that names the option: also where the option would not have mattered, as it may matter
for the next rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput, line_of
from dasp.games.evaluator import Missing

__all__ = ["check_replicates", "number_of", "positive_number", "read_options", "shown", "tensor_of", "whole_number"]

_SEEDS = 0, 2**64 - 1  # what the generators of torch and of NumPy take
_WHOLE = 2**63  # beyond, whole numbers are no int64
_HUGE = 10**300


def number_of(value: Any) -> Any:
    """Return a number of NumPy's, or a tensor or array of one number without dimensions, as Python's own; anything else
    as it is.

    >>> number_of(np.int64(3)), number_of("3")
    (3, '3')
    """
    if isinstance(value, Tensor):
        return value.item() if value.dim() == 0 and not value.is_meta else value
    return value.item() if isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0 else value


def tensor_of(number: float, device: torch.device | None = None) -> Tensor:
    """Return a number as a tensor: of whole numbers as far as they go, else in double precision."""
    if not isinstance(number, float) and not -_WHOLE <= number < _WHOLE:
        number = float(min(max(number, -_HUGE), _HUGE))
    return torch.tensor(number, dtype=torch.float64 if isinstance(number, float) else None, device=device)


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return the whole number that is meant by an option's value.

    >>> whole_number("nodes", np.int64(3), 1), whole_number("nodes", 1e3, 1)
    (3, 1000)
    >>> whole_number("nodes", "3", 1)
    Traceback (most recent call last):
        ...
    TypeError: nodes must be a whole number, at least 1, not '3'
    """
    number = number_of(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    wanted = f"{name} must be a whole number" + (f", at least {least}" if least is not None else "")
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{wanted}, not {shown(value)}")
    if isinstance(number, float):
        raise ValueError(f"{wanted}, not {number}")  # noqa: TRY004 (its value, not its type, is wrong)
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, not {number}")
    return number


def positive_number(name: str, value: Any, *, zero: bool = False) -> float:
    """Return the positive number that is meant by an option's value; or 0, if that is one, too."""
    number = number_of(value)
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise TypeError(f"{name} must be a positive number, not {shown(value)}")
    if not (0 < number < _HUGE or (zero and number == 0)):
        raise ValueError(f"{name} must be positive{' and finite' if number > 0 else ''}, not {number}")
    return float(number)


def check_replicates(number: Any, unit: str) -> None:
    """Refuse a number of samples that says nothing of their error."""
    if whole_number(f"the number of {unit}", number) < 2:
        raise ValueError(f"a standard error needs at least 2 {unit}")


def read_options(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call as they are meant, or say which of them cannot be. None stands for what is the
    default where that is None.

    >>> read_options({"nodes": None, "seed": np.int64(3)}, {"nodes": None, "seed": 0})
    {'nodes': None, 'seed': 3}
    """
    result = dict(given)
    for name, value in given.items():
        if name in _READERS and not (value is None and defaults.get(name) is None):
            result[name] = _READERS[name](name, value)
    return result


def shown(value: Any) -> str:
    """Return a value as it is written, but only the type of a long one."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"


def _at_least_one(name: str, value: Any) -> int:
    return whole_number(name, value, 1, _WHOLE - 1)


def _missing(name: str, value: Any) -> Any:
    if not isinstance(value, str) or value not in get_args(Missing):
        raise ValueError(f"{name} must be 'raise' or 'drop', not {shown(value)}")
    return value


def _switch(name: str, value: Any) -> Any:
    switch = number_of(value)
    if switch is not None and not isinstance(switch, (bool, int)):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return switch


def _device(name: str, value: Any) -> torch.device:
    try:
        if isinstance(value, (str, int, torch.device)) and not isinstance(value, bool):
            return torch.empty(0, device=value).device
    except (RuntimeError, AssertionError, ValueError, OverflowError) as error:
        raise BadInput(f"{name} {shown(value)} cannot be used: {line_of(error)}") from error
    raise BadInput(f"{name} must be the name of a device, such as 'cpu' or 'cuda:0', not {shown(value)}")


_READERS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(
        (
            "max_evaluations",
            "evaluations",
            "n_permutations",
            "n_pairs",
            "nodes",
            "internal_batch_size",
            "batch_size",
            "background_clusters",
            "threads",
            "workers",
        ),
        _at_least_one,
    ),
    "device": _device,
    "seed": lambda name, value: whole_number(name, value, *_SEEDS),
    "tolerance": positive_number,
    "max_seconds": lambda name, value: positive_number(name, value, zero=True),
    "missing": _missing,
    "show_progress": _switch,
}
