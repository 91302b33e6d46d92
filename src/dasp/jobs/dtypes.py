"""The dtype that the rows of a job are read in: that of the model's input, as far as the model tells."""

from __future__ import annotations

import re

import torch
from torch import fx, nn

from dasp.errors import BadInput, Fraction
from dasp.explainer.rows import device_of, input_dtype, takes_integers
from dasp.jobs.evaluated import Evaluated
from dasp.jobs.options import Options
from dasp.jobs.reading.chunks import Survey, survey
from dasp.jobs.reading.source import Source
from dasp.jobs.worker import outputs_of

__all__ = ["surveyed"]

_DTYPES, _WHOLE = ("float16", "float32", "float64"), "int64"


def surveyed(model: nn.Module, source: Source, options: Options) -> tuple[str, Survey]:
    """The dtype of the rows that the model takes, by NumPy's name, and what is known of them.

    A module with an embedding takes whole numbers, or floats of which it makes some whole itself. It is given whole
    numbers where all entries are whole and it takes them, and floats otherwise.
    """

    def seen(dtype: str) -> Survey:
        return survey(source, options.data, dtype, fail=options.on_bad_row == "fail")

    if isinstance(model, Evaluated):
        return model.dtype, seen(model.dtype)
    if not takes_integers(model):
        floats = _floats(model, options)
        return floats, seen(floats)
    if isinstance(model, fx.GraphModule):
        return _WHOLE, seen(_WHOLE)
    whole: Survey | Fraction
    try:
        whole = seen(_WHOLE)
    except Fraction as error:
        whole = error
    if isinstance(whole, Survey) and not _mistyped(model, whole):
        return _WHOLE, whole
    floats = _floats(model, options)
    real = seen(floats)
    if not _mistyped(model, real):
        return floats, real
    if isinstance(whole, Fraction):
        raise whole
    return _WHOLE, whole


def _floats(model: nn.Module, options: Options) -> str:
    dtype = str(input_dtype(model)).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise BadInput(f"{options.model}: computes in {dtype}; models in {', '.join(_DTYPES)} can be explained")
    return dtype


def _mistyped(model: nn.Module, seen: Survey) -> bool:
    """Whether a model fails on rows because of their dtype."""
    try:
        outputs_of(model, torch.from_numpy(seen.example), device_of(model))
    except Exception as error:  # noqa: BLE001 (whatever else a model fails by is told when it is tried)
        return re.search("dtype|scalar type|Input type", str(error)) is not None
    return False
