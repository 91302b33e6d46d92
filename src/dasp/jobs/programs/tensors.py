"""Tensors of a program's archive: plain numbers, viewed with given sizes and strides."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dasp.jobs.programs.archive import Archive, NotUnderstood
from dasp.jobs.programs.fields import PLAIN, choice, fields, identifier, integer, listed
from dasp.jobs.programs.sizes import META

__all__ = ["Tensors"]


class Tensors:
    """The tensors of one folder, "weights" or "constants", by name; those that share a part share its memory."""

    def __init__(self, archive: Archive, folder: str) -> None:
        self._archive, self._folder = archive, f"data/{folder}"
        self._prefix = {"weights": "weight_", "constants": "tensor_"}[folder]
        (self._described,) = fields(archive.json(f"{self._folder}/model_{folder}_config.json"), "config")
        self._parts: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of this name, on its device."""
        part, is_parameter, pickled, meta = fields(
            self._described[identifier(name)], "path_name", "is_param", "use_pickle", "tensor_meta"
        )
        if pickled or meta is None or not str(part).startswith(self._prefix):
            raise NotUnderstood("pickled objects")
        kind, sizes, gradient, device, strides, offset, layout = fields(meta, *META)
        dtype: torch.dtype = PLAIN["as_scalar_type"](kind)
        PLAIN["as_layout"](layout)
        tensor = _viewed(self._numbers(part).view(dtype), _lengths(sizes), _lengths(strides), _lengths([offset])[0])
        tensor = tensor.to(PLAIN["as_device"](device))
        if not PLAIN["as_bool"](is_parameter):
            return tensor
        return nn.Parameter(tensor, requires_grad=PLAIN["as_bool"](gradient))

    def _numbers(self, part: str) -> Tensor:
        if part not in self._parts:
            content = bytearray(self._archive.bytes(f"{self._folder}/{part}"))
            self._parts[part] = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0).byte()
        return self._parts[part]


def _lengths(data: Any) -> list[int]:
    found = []
    for kind, value in map(choice, listed(data)):
        if kind != "as_int" or integer(value) < 0:
            raise NotUnderstood("a weight without a definite size")
        found.append(value)
    return found


def _viewed(numbers: Tensor, sizes: list[int], strides: list[int], offset: int) -> Tensor:
    """A view that stays within what is there, and is no larger."""
    if len(sizes) != len(strides):
        raise ValueError("a tensor has as many strides as sizes")
    count = math.prod(sizes)
    last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if count > len(numbers) or (count and last >= len(numbers)):
        raise ValueError(f"a tensor of shape {tuple(sizes)} has only {len(numbers)} numbers")
    return numbers.as_strided(sizes, strides, offset) if count else numbers.new_empty(sizes)
