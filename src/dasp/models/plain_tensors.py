"""Tensors that are plain numbers in memory, and what others have to be made first."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check_plain", "is_plain"]

_DTYPES = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
}  # fmt: skip


def is_plain(x: Tensor) -> bool:
    """Return True for a tensor of real numbers in rows and columns that are there.

    >>> is_plain(torch.ones(2)), is_plain(torch.ones(2).to_sparse())
    (True, False)
    """
    return not _obstacle(x)


def check_plain(x: Tensor, name: str) -> None:
    """Refuse a tensor that is none of plain numbers, by its name, in a sentence that says what to do.

    >>> check_plain(torch.ones(2, device="meta"), "inputs")
    Traceback (most recent call last):
        ...
    TypeError: inputs: a tensor on the meta device has no numbers; give one on the cpu or another device
    """
    if obstacle := _obstacle(x):
        raise TypeError(obstacle.format(name=name))


def _obstacle(x: Tensor) -> str:
    if x.is_nested:
        return "{name}: nested tensors have rows of several lengths; give torch.nested.to_padded_tensor(x, 0.0)"
    if x.is_quantized:
        return "{name} has dtype " + f"{x.dtype}; floating point, integer or bool is needed: give x.dequantize()"
    if x.layout != torch.strided:
        return "{name}: a tensor of layout " + f"{x.layout} has no entries where it is 0; give x.to_dense()"
    if x.is_meta:
        return "{name}: a tensor on the meta device has no numbers; give one on the cpu or another device"
    if x.dtype not in _DTYPES:
        return "{name} has dtype " + f"{x.dtype}; floating point, integer or bool is needed"
    return ""
