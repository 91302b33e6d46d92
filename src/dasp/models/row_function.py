"""Functions of arrays: what people explain that is neither a module nor a function of tensors.

`RowFunction` gives a function its rows as arrays or as tensors, whichever it takes, and makes a tensor of its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

from dasp.errors import BadInput, line_of

__all__ = ["RowFunction", "as_tensors", "class_names", "is_plain_function"]

_PROBABILITIES = ("predict_proba", "predict_log_proba")
_OTHER_FORM = (TypeError, AttributeError)  # what a function of tensors says of an array, and the other way round


def is_plain_function(model: Any) -> bool:
    """True for a function that may be one of arrays: neither a module nor one that says its dtype, as ours do."""
    return not isinstance(model, nn.Module) and not isinstance(getattr(model, "dtype", None), torch.dtype)


class RowFunction:
    """A function of rows as a function of tensors.

    It is given the rows in the form that people have them in; if it fails with that, in the other one. What it takes at
    first, it is given from then on. It may return tensors, arrays, tables, or a list of numbers.

    Args:
        function: a function of arrays or tensors.
        arrays_first: True if people have arrays, False if they have tensors; None to be told by `prefer`.

    >>> RowFunction(lambda x: np.hypot(x[:, 0], x[:, 1]), arrays_first=True)(torch.tensor([[3.0, 4.0]]))
    tensor([5.])
    """

    def __init__(self, function: Callable[..., Any], *, arrays_first: bool | None = None) -> None:
        self.wrapped_function = function
        self._arrays_first = arrays_first
        self._form: Callable[[Tensor], Any] | None = None

    def prefer(self, *, arrays: bool) -> None:
        """Say in which form people have rows, unless that is known."""
        if self._arrays_first is None:
            self._arrays_first = arrays

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return what the function gives, as tensors on the device of the first argument."""
        device = next((x.device for x in tree_leaves((args, keywords)) if isinstance(x, Tensor)), None)
        if self._form is not None:
            return self._called(self._form, args, keywords, device)
        forms = [_array, _tensor] if self._arrays_first else [_tensor, _array]
        errors: list[Exception] = []
        for form in forms:
            try:
                found = self._called(form, args, keywords, device)
            except Exception as error:  # noqa: BLE001 (a function may raise anything)
                errors.append(error)
            else:
                self._form = form
                return found
        raise errors[1] if isinstance(errors[0], _OTHER_FORM) else errors[0]

    def _called(self, form: Callable[[Tensor], Any], args: Any, keywords: Any, device: torch.device | None) -> Any:
        args, keywords = tree_map_only(Tensor, form, (args, keywords))
        return as_tensors(self.wrapped_function(*args, **keywords), device)


def _array(x: Tensor) -> np.ndarray:
    """The numbers as an array of its own, into which a function may write."""
    x = x.detach().cpu()
    return np.array((x.float() if x.dtype == torch.bfloat16 else x).numpy())


def _tensor(x: Tensor) -> Tensor:
    return x


def as_tensors(found: Any, device: torch.device | None = None) -> Any:
    """Return what a function gave with tensors in place of arrays, tables and lists of numbers.

    >>> as_tensors([1.5, 2.5])
    tensor([1.5000, 2.5000], dtype=torch.float64)
    """
    leaves = tree_leaves(found)
    if isinstance(found, (list, tuple)) and all(isinstance(x, (bool, int, float, np.number)) for x in leaves):
        return _as_tensor(found, device)
    return tree_map(lambda x: x if isinstance(x, Tensor) or x is None else _as_tensor(x, device), found)


def _as_tensor(numbers: Any, device: torch.device | None) -> Any:
    """Numbers as a tensor; what are none stays as it is."""
    numbers = numbers.toarray() if hasattr(numbers, "toarray") else numbers  # a sparse matrix
    try:
        array = np.array(numbers)  # a copy: torch warns of arrays that cannot be written to
    except ValueError as error:  # of lists of different lengths
        raise BadInput(f"the function returns no numbers of one shape: {line_of(error)}") from error
    objects = array.flat if array.dtype == object else ()
    is_text = array.dtype.kind in "US" or any(isinstance(one, (str, bytes)) for one in objects)
    if is_text:  # of classes, though they may be called "0" and "1"
        raise BadInput("the function returns text, and numbers are needed: explain predict_proba, say, for predict")
    if array.dtype == object:
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            return numbers
    if array.dtype.kind not in "fiubc":
        return numbers
    if array.dtype.kind == "u" or array.dtype == np.longdouble or not array.dtype.isnative:
        array = array.astype(np.float64)
    return torch.from_numpy(array).to(device)


def class_names(function: Any) -> list[str] | None:
    """Return the classes that a method like scikit-learn's `predict_proba` has columns for, or None.

    >>> from sklearn.linear_model import LogisticRegression
    >>> class_names(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"]).predict_proba)
    ['no', 'yes']
    """
    classes = getattr(getattr(function, "__self__", None), "classes_", None)
    if getattr(function, "__name__", "") not in _PROBABILITIES or not isinstance(classes, np.ndarray):
        return None
    return [str(name) for name in classes]
