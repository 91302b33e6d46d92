"""From a model to an `ExportedProgram`: what calls `torch.export`, and what is the matter when that fails."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from dasp.errors import BadInput, UntraceableModel
from dasp.propagation import forward as calling
from dasp.propagation.forward import Forward, innermost, unwrapped
from dasp.propagation.shapes import of_recurrent_networks

__all__ = ["check_dynamic_batch", "exported", "is_own", "quietly", "rows_are_fixed"]

_OTHERS = ("site-packages/torch/", Path(torch.__file__).parent.as_posix(), Path(calling.__file__).as_posix())


def exported(model: nn.Module, example: tuple[Any, ...]) -> ExportedProgram:
    """The model as a program for any number of rows. Its arguments are like those of the `example`, of which tensors
    with as many rows as the first are taken as batched."""
    forward = model if isinstance(model, Forward) else Forward(unwrapped(model))
    name = type(innermost(forward)).__name__
    rows = next(len(x) for x in example if isinstance(x, Tensor))
    batched = [isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows for x in example]
    # A batch of one would be taken for a constant, so two rows are traced.
    pair = tuple(torch.cat([x[:1], x[:1]]) if own else x for x, own in zip(example, batched, strict=True))
    shapes = (tuple({0: Dim.AUTO} if own else None for own in batched),)
    try:
        with _exporting():
            program = torch.export.export(forward, pair, dynamic_shapes=shapes)
    except BadInput:
        raise
    except Exception as error:
        reason, where = _reason(error)
        raise UntraceableModel(
            f"{name} cannot be exported to a graph by torch.export: {reason}",
            "If its control flow depends on the data, write it without such branches (torch.where). BayesianShapley "
            "only evaluates the model and needs no graph.",
            where,
        ) from error
    if (fixed := _fixed_rows(program)) is None:
        return program
    with suppress(Exception), _exporting():  # by reading the code, which lets len(x) stay a variable
        program = torch.export.export(forward, pair, dynamic_shapes=shapes, strict=True)
    if _fixed_rows(program) is None:
        return program
    raise UntraceableModel(
        f"{name} becomes a graph for exactly {fixed} row(s): its forward turns the number of rows into a constant, as "
        "a loop over rows does",
        "Write it without, or use BayesianShapley, which only evaluates the model and needs no graph.",
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings, log lines and graphs that torch writes about its own work: what matters is raised."""
    known = logging.root.manager.loggerDict
    torchs = [logging.getLogger("torch"), *(logger for name, logger in known.items() if name.startswith("torch."))]
    set_ones = [one for one in torchs if isinstance(one, logging.Logger) and (one.level or one.name == "torch")]
    levels = {logger: logger.level for logger in set_ones}  # few have a level of their own, and to set one is slow
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in levels:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)


@contextmanager
def _exporting() -> Iterator[None]:
    """With a Transformer's layers as the operations that they consist of, and recurrent networks whole."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), quietly(), of_recurrent_networks():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _reason(error: Exception) -> tuple[str, str]:
    """The first line of an export error, and the user's own line of code: as it names it, or where it was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = [f'File "{f.filename}", line {f.lineno}, in {f.name}' for f in extract_tb(error.__traceback__)]
    inside = [i for i, frame in enumerate(frames) if str(calling.__file__) in frame]
    raised = frames[inside[-1] + 1 :] if inside else []
    own = [line for line in (*raised, *lines) if line.startswith("File ") and is_own(line)]
    said = lines[0] if lines else type(error).__name__
    return "what it does depends on the data" if "data-dependent" in said else said, own[-1] if own else ""


def is_own(file: str) -> bool:
    """Whether a file, or a line that names it, is the user's own: not torch's, nor what stands around the model."""
    return not any(other in file.replace("\\", "/") for other in _OTHERS)


def check_dynamic_batch(program: ExportedProgram) -> None:
    """Refuse a program that takes only one number of rows."""
    if (fixed := _fixed_rows(program)) is not None:
        raise ValueError(rows_are_fixed(fixed))


def rows_are_fixed(rows: int) -> str:
    """What to do about a program that takes only one number of rows."""
    return (
        f"the program is for exactly {rows} row(s): export it with a dynamic batch, torch.export.export(model, "
        "args, dynamic_shapes=({0: torch.export.Dim.AUTO},)), and two rows or more (a forward that turns the "
        "number of rows into a constant, as int(x.shape[0]) does, must be written without)"
    )


def _fixed_rows(program: ExportedProgram) -> int | None:
    """The only number of rows that a program takes; None if it takes any."""
    names = program.graph_signature.user_inputs
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in names]
    first = next((value for value in values if isinstance(value, Tensor)), None)
    if first is None:
        return None
    rows = first.shape[0]
    return int(rows) if isinstance(rows, int) or rows.node.expr.is_number else None
