"""Everything that can be wrong with a job, found before the first row is explained."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dasp.errors import BadInput
from dasp.explain import players
from dasp.explain.data import Reader, Survey, open_data, survey
from dasp.explain.job import Options, fingerprint
from dasp.explain.models import load_model
from dasp.explain.worker import PREDICTED, Task, Worker, outputs_of
from dasp.rows import input_dtype

__all__ = ["Plan", "Say", "plan"]

_CHUNK_ROWS, _CHUNK_ENTRIES = 256, 2**20
_LISTED = 10
_EXPLAINER = ("method", "tolerance", "max_evaluations", "error_bars", "batch_size", "device", "seed")

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A model, rows, and how they are explained."""

    survey: Survey
    reader: Reader
    task: Task
    worker: Worker  # one, which has tried it
    files: list[Path]  # of the data


def plan(options: Options, threads: int | None, say: Say) -> Plan:
    """Read model and data, and try to explain two rows. `threads` are those of a job that was begun."""
    model = load_model(options.model, weights=options.weights, trust=options.trust)
    wanted = input_dtype(model)
    dtype = "int64" if wanted is None else str(wanted).removeprefix("torch.")
    target = _target(options.target)
    label = target if isinstance(target, str) and target != PREDICTED else None
    source = open_data(options.data, _list(options.columns), _list(options.drop), options.id, label)
    mask, names = players.groups(options.groups, source.names, source.shape)
    seen = survey(source, options.data, dtype, fail=options.on_bad_row == "fail")
    say(_description(options.data, source.shape, seen))
    absent = players.absent(options.baseline, options.background, source.names, source.shape, dtype, seen.mean)
    outputs = _outputs(model, seen, options)
    task = Task(
        model=options.model, weights=options.weights, trust=options.trust, parameters=fingerprint(model),
        target=_chosen(target, label, outputs, seen, say), names=names, mask=mask, absent=absent,
        threads=options.threads or threads or torch.get_num_threads(),
        explainer={name: getattr(options, name) for name in _EXPLAINER},
    )  # fmt: skip
    size = options.chunk or max(1, min(_CHUNK_ROWS, _CHUNK_ENTRIES // max(1, seen.mean.size)))
    return Plan(seen, Reader(source, size, dtype, seen.integer_ids), task, _tried(task, model, seen, say), source.files)


def _list(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _target(text: str | None) -> int | str | None:
    """An output, "predicted", the name of a column, or None if the user did not say."""
    try:
        number = None if text is None else int(text)
    except ValueError:
        return text
    if number is not None and number < 0:
        raise BadInput(f"--target is {number}; outputs are counted from 0")
    return number


def _description(data: Path, shape: tuple[int, ...], seen: Survey) -> str:
    inputs = f"{shape[0]} inputs" if len(shape) == 1 else f"shape {shape}"
    text = f"{data}: {seen.rows:,} rows of {inputs}"
    if seen.bad:
        few = ", ".join(map(str, seen.bad[:_LISTED])) + (", …" if len(seen.bad) > _LISTED else "")
        text += f"; {len(seen.bad):,} left out, with missing or infinite entries: row {few} (the first is 0)"
    return text


def _outputs(model: nn.Module, seen: Survey, options: Options) -> int:
    """How many outputs the model has."""
    x = torch.from_numpy(seen.example)
    if options.device is not None:
        model.to(options.device)
    device = next((parameter.device for parameter in model.parameters()), None)
    try:
        outputs = outputs_of(model, x, device)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(
            f"{options.model} does not take rows of {options.data}, of shape {tuple(x.shape[1:])}: {_line(error)}"
        ) from error
    return outputs.shape[1]


def _chosen(target: int | str | None, label: str | None, outputs: int, seen: Survey, say: Say) -> int | str | None:
    """The target that workers are given; None: from the rows, or the only output."""
    largest = seen.targets[1] if seen.targets else target if isinstance(target, int) else 0
    if largest >= outputs:
        where = f"column {label!r} has {largest}" if label else f"--target is {largest}"
        raise BadInput(f"{where}, but the model has {outputs} output{'s' * (outputs > 1)}, counted from 0")
    if label is not None:
        say(f"target: column {label!r}, of {outputs} outputs")
        return None
    if outputs == 1:
        return None
    if isinstance(target, int):
        return target
    say(f"target: the largest of {outputs} outputs, of each row ({PREDICTED})")
    return PREDICTED


def _tried(task: Task, model: nn.Module, seen: Survey, say: Say) -> Worker:
    """A worker that has explained two rows."""
    x = torch.from_numpy(seen.example)
    target: Any = task.target if isinstance(task.target, int) else torch.zeros(len(x), dtype=torch.long)
    try:
        with _quiet():
            worker = Worker(task, model)
            worker.attribute(x, None if task.target is None and seen.targets is None else target)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{task.model} cannot be explained: {_line(error)}") from error
    say(f"method: {worker.explainer.method} ({_line(worker.explainer.reason)})")
    return worker


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch.export prints of a model that it cannot trace; the error says enough."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)


def _line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 300 else line[:300] + " …"
