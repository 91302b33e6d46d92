"""Models that take normalised numbers, as models of the numbers that people have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput

__all__ = ["Normalized", "normalized"]


class Normalized(nn.Module):
    """A model behind (x − mean)/std, with a mean and a deviation for each channel or column, or one for all of them.

    >>> Normalized(nn.Identity().eval(), torch.tensor([1.0, 2.0]), torch.tensor(2.0))(torch.tensor([[3.0, 2.0]]))
    tensor([[1., 0.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model, self.training = model, model.training
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor, *args: Any, **keywords: Any) -> Any:
        """The model's output."""
        return self.model(_scaled(x, self.mean, self.std), *args, **keywords)


def normalized(
    model: Callable[..., Any], mean: Any, std: Any, dtype: torch.dtype, device: torch.device | str | None
) -> tuple[Callable[..., Any], int]:
    """The model as a function of numbers that are normalised first, and how many channels that is for; 1 if for any
    number. What is None is left out."""
    centre, scale = (_numbers(name, given, absent, dtype, device)
                     for name, given, absent in (("mean", mean, 0.0), ("std", std, 1.0)))  # fmt: skip
    if bool((scale <= 0).any()):
        raise BadInput(f"std is {std!r}: positive numbers are needed")
    channels = max(centre.numel(), scale.numel())
    if min(centre.numel(), scale.numel()) not in (1, channels):
        raise BadInput(
            f"mean has {centre.numel()} numbers and std {scale.numel()}: one for each channel, or one, is needed"
        )
    if isinstance(model, nn.Module):
        return Normalized(model, centre, scale), channels
    return lambda x, *args, **keywords: model(_scaled(x, centre, scale), *args, **keywords), channels


def _scaled(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    return (x - _along_channels(mean, x)) / _along_channels(std, x)


def _along_channels(numbers: Tensor, x: Tensor) -> Tensor:
    return numbers if numbers.numel() == 1 else numbers.view(-1, *[1] * (x.dim() - 2))


def _numbers(name: str, given: Any, absent: float, dtype: torch.dtype, device: torch.device | str | None) -> Tensor:
    if hasattr(given, "__array__") and not isinstance(given, Tensor):
        given = np.array(given)  # a copy: torch warns of arrays that cannot be written to, as those of pandas are
    try:
        numbers = torch.as_tensor(absent if given is None else given, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} is {given!r}: a number, or one for each channel, is needed") from error
    if numbers.dim() > 1 or not bool(numbers.isfinite().all()):
        raise BadInput(f"{name} is {given!r}: a finite number, or one for each channel, is needed")
    return numbers
