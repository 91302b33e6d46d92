"""Rows to explain as people have them: arrays, tables and tensors, as tensors of the model's dtype."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput

__all__ = ["Rows", "input_dtype"]


@dataclass(frozen=True)
class Rows:
    """A tensor with a row per sample, and the names of its columns, if they have any."""

    tensor: Tensor
    names: list[str] | None = None

    @staticmethod
    def of(
        given: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        names: Sequence[str] | None = None,
        what: str = "X",
    ) -> Rows:
        """From a tensor, an array, a DataFrame or nested lists. Floating-point numbers become `dtype`, as do all
        numbers of arrays and tables (a tensor of integers stays what it is). The columns of a table are put in the
        order of `names`. `what` the rows are is said in errors.

        >>> Rows.of(np.array([[1, 2]]), torch.float32).tensor
        tensor([[1., 2.]])
        """
        own = None
        if isinstance(given, Tensor):
            tensor = given.detach()
            whole = not tensor.is_floating_point()
        else:
            if hasattr(given, "columns") and hasattr(given, "to_numpy"):
                given, own = _columns(given, names, what)
            tensor, whole = _from_array(given, what), False
        if tensor.dim() < 2:
            raise BadInput(f"{what} has shape {tuple(tensor.shape)}: rows are needed, of one or more features")
        return Rows(tensor.to(device=device, dtype=None if whole else dtype), own)


def _columns(table: Any, names: Sequence[str] | None, what: str) -> tuple[np.ndarray, list[str]]:
    own = [str(name) for name in table.columns]
    if names is not None and own != list(names):
        missing = [name for name in names if name not in own]
        if missing or len(own) != len(names):
            extra = [name for name in own if name not in names]
            raise BadInput(
                f"the columns of {what} are not those of the background: missing {missing}, not expected {extra}"
            )
        table, own = table.iloc[:, [own.index(name) for name in names]], list(names)
    for name, kind in zip(own, table.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "fiub":
            raise BadInput(f"column {name!r} of {what} has no numbers, but {kind}: encode it as the model expects")
    return table.to_numpy(dtype=float if len(set(table.dtypes)) > 1 else None), own


def _from_array(given: Any, what: str) -> Tensor:
    try:
        array = np.array(given)
    except ValueError as error:
        raise BadInput(f"{what} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise BadInput(f"{what} must be numbers, not {array.dtype}")
    return torch.from_numpy(array)


def input_dtype(model: Any) -> torch.dtype | None:
    """What numbers become for a model: the dtype of its weights; None, to be left as they are, if it looks numbers up
    in an embedding. A function gets torch's default."""
    if not isinstance(model, nn.Module):
        return torch.get_default_dtype()
    if any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules()):
        return None
    weights = (*model.parameters(), *model.buffers())
    return next((x.dtype for x in weights if x.is_floating_point()), torch.get_default_dtype())
