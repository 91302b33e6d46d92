"""Why rows do not fit a model, said in words that tell what to do, where torch speaks of matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from dasp.explainer.rows import input_dtype, takes_integers
from dasp.propagation.forward import innermost

__all__ = ["far_from_zero", "misfit", "what_zero_is"]

_FAR = 3  # from zero: further than the mean of some rows of standardised columns
_Convolution = nn.modules.conv._ConvNd


def misfit(error: Exception, model: Any, x: Any) -> str:
    """What is wrong with rows that a model fails on with an error; nothing if that cannot be told.

    >>> import torch
    >>> misfit(RuntimeError("mat1 and mat2 …"), nn.Linear(4, 1), torch.ones(2, 5)).partition(":")[0]
    'the rows have 5 columns, and the model takes 4'
    """
    own = innermost(model)
    if not isinstance(x, Tensor) or not isinstance(own, nn.Module):
        return ""
    looks_up = takes_integers(own)
    if x.is_floating_point() == looks_up and re.search("dtype|scalar type|Input type", str(error)):
        wanted = "whole numbers, x.long()" if looks_up else "floating-point numbers, x.float()"
        computes = "looks its inputs up in an embedding" if looks_up else f"computes in {input_dtype(own)}"
        return f"the rows have dtype {x.dtype}, and the model {computes}: give it {wanted}"
    first = next((m for m in own.modules() if isinstance(m, (nn.Linear, _Convolution, nn.RNNBase))), None)
    if isinstance(first, _Convolution):
        return _channels(x, first)
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


def _channels(x: Tensor, first: Any) -> str:
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


def what_zero_is(inputs: tuple[Tensor, ...], names: Sequence[Sequence[str] | None] = ()) -> str:
    """What a baseline of zeros means for tables whose columns are far from it; nothing for standardised ones.

    >>> import torch
    >>> what_zero_is((torch.tensor([[0.1, 41.0], [-0.2, 43.0]]),)).partition(";")[0]
    'an absent feature is 0, as there is no background, and column 1 is 42 on average'
    """
    for x, columns in zip(inputs, [*names, *[None] * len(inputs)], strict=False):
        if x.dim() == 2 and x.is_floating_point() and (far := far_from_zero(x.double().mean(0).tolist(), columns)):
            return (
                f"an absent feature is 0, as there is no background, and {far}; with background=rows, some dozens of "
                "your data, absent features are what they are there"
            )
    return ""


def far_from_zero(means: Sequence[float], names: Sequence[str] | None) -> str:
    """The column that is farthest from zero on average, if one is far; nothing for standardised ones.

    >>> far_from_zero([0.1, 42.0], ["height", "age"])
    "column 'age' is 42 on average"
    """
    column = max(range(len(means)), key=lambda i: abs(means[i]))
    if abs(means[column]) <= _FAR:
        return ""
    return f"column {column if names is None else repr(names[column])} is {means[column]:.3g} on average"
