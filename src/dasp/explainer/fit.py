"""Rows that do not fit in the dtype that a model computes in: numbers that it cannot hold, and differences from the
baseline that are lost in rounding.

A time in seconds since 1970 as float32 is a multiple of 128, so that a minute more or less is nothing to a model. Its
values are then right for what the model is given, and 0 for what people meant. That is worth a sentence, and numbers
that become infinite are an error.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dasp.errors import BadInput

__all__ = ["check_range", "lost_column"]

_LOST = 0.01  # of a column's largest difference from its baseline
_SAME = 1e-12  # of a column's largest number: what has no difference in double precision either


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
