"""The reason in plain words why rows do not fit a model, where torch speaks of matrices and scalar types."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import line_of
from dasp.models.calling import innermost
from dasp.models.wrappers import device_of, input_dtype, takes_integers

__all__ = ["misfit"]

_Convolution = nn.modules.conv._ConvNd
_OF_DTYPES = "dtype|scalar type|Input type|not implemented for '|bool tensor"
_CASTS = {torch.float32: "x.float()", torch.float64: "x.double()"}


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
