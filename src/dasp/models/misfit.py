"""The reasons why rows do not fit a model, in plain words, where torch speaks of matrices and scalar types.

- They are no plain numbers in memory (`check_plain`): sparse, nested, quantised, complex, or on the meta device.
- They have another shape, dtype or device than the model computes with (`misfit`).
- The model's dtype cannot hold them (`check_range`), or loses how they differ from the baseline (`lost_column`). A time
  in seconds since 1970 as float32 is a multiple of 128, so that a minute more or less is nothing to a model: its values
  are then right for what the model is given, and 0 for what people meant.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import BadInput, line_of
from dasp.models.calling import innermost
from dasp.models.wrappers import device_of, input_dtype, takes_integers

__all__ = ["check_plain", "check_range", "is_plain", "lost_column", "misfit"]

_Convolution = nn.modules.conv._ConvNd
_OF_DTYPES = "dtype|scalar type|Input type|not implemented for '|bool tensor"
_CASTS = {torch.float32: "x.float()", torch.float64: "x.double()"}
_DTYPES = {
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
}  # fmt: skip
_LOST = 0.01  # of a column's largest difference from its baseline
_SAME = 1e-12  # of a column's largest number: what has no difference in double precision either


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


def misfit(error: Exception, model: Any, x: Any) -> str:
    """Return what is wrong with rows on which a model fails with an error; "" if that cannot be told.

    >>> misfit(RuntimeError("mat1 and mat2 …"), nn.Linear(4, 1), torch.ones(2, 5)).partition(":")[0]
    'the rows have 5 columns, and the model takes 4'
    """
    own = innermost(model)
    if not isinstance(x, Tensor):
        return ""
    if re.search("expected device|same device|on different devices", str(error)):
        return (
            f"the rows are on the device {x.device}, and the model computes on {device_of(own) or 'another'}: move one"
        )
    looks_up = takes_integers(own)
    if re.search(_OF_DTYPES, str(error)) and (why := _misfit_of_dtype(error, own, x, looks_up=looks_up)):
        return why
    if not isinstance(own, nn.Module) or x.dim() < 2:
        return ""
    first = next((m for m in own.modules() if isinstance(m, (nn.Linear, _Convolution, nn.RNNBase))), None)
    if isinstance(first, _Convolution):
        return _misfit_of_channels(x, first)
    size = first.in_features if isinstance(first, nn.Linear) else getattr(first, "input_size", None)
    if looks_up or size is None or size in (x.shape[-1], x[0].numel()):
        return ""
    if x.dim() > 2:
        return (
            f"the rows have the shape {tuple(x.shape[1:])}, and the model takes {size} numbers along the last dimension"
        )
    hint = (
        "leave out what is no input, such as the label" if x.shape[1] > size else "give it all that it was trained on"
    )
    return f"the rows have {x.shape[1]} columns, and the model takes {size}: {hint}"


def _misfit_of_dtype(error: Exception, own: Any, x: Tensor, *, looks_up: bool) -> str:
    dtype = input_dtype(own)
    if looks_up and x.is_floating_point():
        wanted, computes = "whole numbers, x.long()", "looks its inputs up in an embedding"
    elif not isinstance(own, nn.Module):
        wanted, computes = (
            "numbers of another dtype (x.float(), say), or convert them there",
            f"fails: {line_of(error)}",
        )
    elif not looks_up and x.dtype != dtype:
        wanted, computes = f"floating-point numbers, {_CASTS.get(dtype, f'x.to({dtype})')}", f"computes in {dtype}"
    else:
        return ""
    return f"the rows have dtype {x.dtype}, and the model {computes}: give it {wanted}"


def _misfit_of_channels(x: Tensor, first: Any) -> str:
    wanted, shape = first.in_channels, tuple(x.shape)
    dimensions = first.weight.dim()
    if x.dim() != dimensions:
        return (
            f"rows have the shape {shape[1:]}, and the model takes {dimensions - 1} dimensions: channels, then places"
        )
    if shape[1] == wanted:
        return ""
    order = (0, dimensions - 1, *range(1, dimensions - 1))
    hint = f"; they come last here, so give it x.permute{order}" if shape[-1] == wanted else ""
    return f"the rows have {shape[1]} channels, and the model takes {wanted} of them, in dimension 1{hint}"


def check_range(given: Tensor, taken: Tensor, what: str) -> None:
    """Refuse finite numbers that are infinite in the model's dtype.

    >>> check_range(torch.tensor([[1e300]], dtype=torch.float64), torch.tensor([[1e300]]), "X")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: X has 1e+300 in row 0, more than torch.float32 can hold, in which the model computes: scale \
the rows, or take model.double()
    """
    if not taken.is_floating_point() or taken.dtype == given.dtype:
        return
    beyond = taken.isinf() & ~given.to(taken.device).isinf()
    if bool(beyond.any()):
        place = tuple(beyond.nonzero()[0].tolist())
        raise BadInput(
            f"{what} has {float(given[place]):g} in row {place[0]}, more than {taken.dtype} can hold, in which the "
            "model computes: scale the rows, or take model.double()"
        )


def lost_column(rows: Tensor, off: Tensor, dtype: torch.dtype) -> int | None:
    """Return the first entry of a row whose differences from the baseline are not what they are as `dtype`; None if
    there is none. `off` is a number, a row, or several rows, of which each stands beside some of the rows.

    >>> lost_column(torch.tensor([[3, 1_700_000_060]]), torch.tensor([0, 1_700_000_000]), torch.float32)
    1
    """
    if rows.dtype == dtype or _holds(dtype, rows.dtype):
        return None
    off = off.to(rows.device)
    if off.dim() == rows.dim():
        off = off[torch.arange(len(rows), device=rows.device) % len(off)]
    given = (rows - off).double()
    kept = rows.to(dtype).double() - off.to(dtype).double()
    given, loss, size = (x.abs().flatten(1).amax(0) for x in (given, kept - given, rows.double()))
    rounded = rows.is_floating_point() or off.is_floating_point()
    lost = (loss > _LOST * given) & (given > (_SAME * size if rounded else 0))
    return int(lost.nonzero()[0]) if bool(lost.any()) else None


def _holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """True if every number of a dtype is one of the other, too."""
    if narrow.is_floating_point:
        return torch.promote_types(wide, narrow) == wide
    digits = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}.get(wide, 0)
    return narrow == torch.bool or torch.iinfo(narrow).bits <= digits
