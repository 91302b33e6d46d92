"""A model as a file: a program of torch.export, with the model in it and nothing of the data.

`torch.export.save` writes the inputs that a model was exported with into the file, and of each tensor the whole memory
that it is a view of. Exported with `table[:2]`, a model of 27 kB takes the table along, and whoever has the file can
read it there. Here no inputs are written, and of weights, buffers and constants just their own numbers.
"""

from __future__ import annotations

import copy
import logging
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.errors import BadInput, UntraceableModel, line_of
from dasp.formatting import in_bytes, shortened
from dasp.models.calling import unwrapped
from dasp.models.wrappers import converted, encoder_and_network, own_dtype, takes_integers
from dasp.propagation.tracing import program_of

__all__ = ["alone", "save", "without_data"]

log = logging.getLogger("dasp")

_ENDING = ".pt2"
_MOST_NAMES = 200  # characters
_SMALL = 2**10  # bytes of constants, such as the numbers in a formula, that nobody needs to be told of


def save(model: nn.Module | Callable[..., Any], example: Any, path: str | Path) -> Path:
    """Save a model as a `.pt2` file for `dasp explain`: a program of torch.export for any number of rows.

    Nothing of the data goes into the file. (`torch.export.save` would write the rows that the model was exported with,
    and with `table[:2]` the whole table behind them.) Tensors that are neither parameters nor buffers are part of the
    model, and are written; if they are large, the log "dasp" says so.

    Args:
        model: a module in evaluation mode, or another model that `Explainer` takes as a network.
        example: a row or more as the model takes them: a tensor, an array or a data frame; of several inputs, a tuple.
            Only shapes and dtypes count.
        path: the file to write, which ends in `.pt2`.

    Returns:
        The path.

    >>> network = nn.Sequential(nn.Linear(3, 2), nn.ReLU()).eval()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(network, torch.zeros(1, 3), Path(folder, "network.pt2")).name
    'network.pt2'
    """
    path = Path(path)
    if path.suffix.lower() != _ENDING:
        raise BadInput(f"{path}: a saved program is called {path.with_suffix(_ENDING).name}: give a name that ends so")
    module = _module(model)
    arguments = example if isinstance(example, tuple) else (example,)
    program = _program(module, tuple(_rows(module, one) for one in arguments))
    _write(without_data(program), path)
    _tell(program, module, path)
    return path


def without_data(program: ExportedProgram) -> ExportedProgram:
    """Return a program without the inputs that it was exported with, and whose tensors own their memory."""
    bare = copy.copy(program)
    bare.example_inputs = None
    own: dict[Any, Any] = {}  # so that weights that are shared stay so

    def taken(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return value
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        return own.setdefault(key, alone(value))

    bare._state_dict, bare._constants = (
        {name: taken(value) for name, value in part.items()} for part in (program.state_dict, program.constants)
    )
    return bare


def alone(value: Any) -> Any:
    """Return a tensor as a copy if it is a view of more memory, all of which a pickle would have; anything else as it
    is.

    >>> table = torch.arange(1000.0)
    >>> alone(table[:2]).untyped_storage().nbytes(), alone(table) is table
    (8, True)
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return value
    if value.untyped_storage().nbytes() <= value.nbytes:
        return value
    copied = value.detach().clone(memory_format=torch.contiguous_format)
    return nn.Parameter(copied, value.requires_grad) if isinstance(value, nn.Parameter) else copied


def _module(model: Any) -> nn.Module:
    encoder, _ = encoder_and_network(model)
    if encoder is not None:
        raise BadInput(
            "a pipeline that encodes its columns is no program: save it by joblib.dump(pipeline, 'model.joblib'), "
            "which dasp explain --trust reads"
        )
    module = converted(model)
    if not isinstance(module, nn.Module):
        raise BadInput(
            f"a {type(module).__name__} has no graph to save: name a factory package.module:build in its place, or "
            "give the module that it calls"
        )
    return unwrapped(module)


def _rows(module: nn.Module, given: Any) -> Any:
    """Return an argument as a tensor with memory of its own; numbers that are no tensor get the model's dtype."""
    if isinstance(given, Tensor):
        return given.detach().clone()
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    try:
        rows = torch.tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"example: rows as the model takes them are needed, as a tensor or an array of numbers, not a "
            f"{type(given).__name__} ({line_of(error)})"
        ) from error
    dtype = own_dtype(module)
    return rows if dtype is None or takes_integers(module) else rows.to(dtype)


def _program(module: nn.Module, arguments: tuple[Any, ...]) -> ExportedProgram:
    if not any(isinstance(one, Tensor) and one.dim() for one in arguments) or any(
        isinstance(one, Tensor) and one.dim() and not len(one) for one in arguments
    ):
        raise BadInput("example: a row at least is needed, as the model takes them: give x[:1]")
    try:
        with torch.no_grad():
            module(*arguments)
    except Exception as error:
        shapes = ", ".join(str(tuple(one.shape)) for one in arguments if isinstance(one, Tensor))
        raise BadInput(f"the model does not take the example, of shape {shapes}: {line_of(error)}") from error
    try:
        return program_of(module, arguments)
    except UntraceableModel as error:
        raise BadInput(f"{error.summary}: such a model is given as a factory package.module:build") from error


def _write(program: ExportedProgram, path: Path) -> None:
    """Write a program beside its place, and put it there in one step."""
    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
            beside = Path(folder) / path.name
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # torch's own, of weights that are stored transposed
                torch.export.save(program, beside)
            beside.replace(path)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {line_of(error)}") from error


def _tell(program: ExportedProgram, module: nn.Module, path: Path) -> None:
    """Say in the log if a file lacks the names of the columns, or is larger than the parameters and buffers of its
    model, and why."""
    if names := getattr(module, "feature_names", None):
        order = ", ".join(names)
        log.warning(
            "%s does not have the names of the columns that the model was fitted with: rows must have them in that "
            "order, %s; joblib.dump(model, 'model.joblib') keeps them",
            path, order if len(order) <= _MOST_NAMES else shortened(order, _MOST_NAMES),
        )  # fmt: skip
    known = {id(tensor): tensor.nbytes for tensor in (*module.parameters(), *module.buffers())}
    others = {name: value for name, value in program.constants.items()
              if isinstance(value, Tensor) and name not in dict(module.named_buffers())}  # fmt: skip
    more = sum(value.nbytes for value in others.values())
    if more > _SMALL:
        largest = max(others, key=lambda name: others[name].nbytes)
        log.warning(
            "%s has %s, of which the model's parameters and buffers are %s: the rest is in tensors that the model "
            "keeps besides, the largest %r of shape %s; whoever has the file can read them",
            path, in_bytes(path.stat().st_size), in_bytes(sum(known.values())), largest, tuple(others[largest].shape),
        )  # fmt: skip
