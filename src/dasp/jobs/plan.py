"""The plan of a job: model and data are read and tried, so that errors come before the first row is explained."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp import players
from dasp.errors import BadInput, line_of
from dasp.explainer.conversion import MultilayerPerceptron
from dasp.explainer.explanation import Attributions
from dasp.explainer.misfit import far_from_zero
from dasp.explainer.rows import device_of
from dasp.games.target import PREDICTED
from dasp.jobs import groups
from dasp.jobs.dtypes import surveyed
from dasp.jobs.evaluated import Evaluated
from dasp.jobs.identity import PARAMETERS, fingerprint
from dasp.jobs.inputs import check_apart, contents
from dasp.jobs.models import load_model
from dasp.jobs.opened import Opened, open_files
from dasp.jobs.options import Options, name_of
from dasp.jobs.output import Job
from dasp.jobs.output_names import check_number
from dasp.jobs.reading.chunks import Reader, Survey
from dasp.jobs.reading.classes import said
from dasp.jobs.reading.normalized import file_of
from dasp.jobs.reading.source import Source
from dasp.jobs.reading.tables import Table
from dasp.jobs.worker import Task, Worker, Works, outputs_of

__all__ = [
    "CHOSEN", "WHY", "Plan", "Say", "check_device", "chosen_target", "description", "plan", "quiet", "threads_of",
]  # fmt: skip

_CHUNK_ROWS, _CHUNK_ENTRIES = 256, 2**20
_LISTED = 10

CHOSEN, WHY = "the method that was chosen", "why"  # in the identity of a job
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A model, its rows, and how they are to be explained."""

    survey: Survey
    reader: Reader
    task: Task
    worker: Works  # one, which has tried it
    contents: dict[str, str]  # checksums of what is read, before the rows were
    outputs: Tensor  # the model's for the first rows
    absent: dict[str, Any]  # what an absent input is, for who reads the output
    settled: dict[str, Any]  # options that were chosen, which may be others the next time
    why: str  # they were chosen
    classes: tuple[str, ...] | None = None  # the names of the outputs, if they are known


def plan(options: Options, earlier: Job, say: Say) -> Plan:
    """Read model and data, and explain two rows as a trial. What an `earlier` job with the same output had chosen, its
    threads and its method, is chosen again."""
    opened = open_files(options)
    if options.device is not None:
        check_device(options.device)
    model = load_model(options.model, weights=options.weights, trust=options.trust)
    if isinstance(model, Evaluated):
        model.check_method(options.model, options.method)
    if isinstance(model, MultilayerPerceptron):
        opened = opened.in_order(model.in_order)
    source = opened.source
    check_apart(options, model)
    read = contents(options, model)
    dtype, seen = surveyed(model, source, options)
    shape = source.shape
    what = f"rows of {shape[0]} inputs" if len(shape) == 1 else f"rows of shape {shape}"
    for line in description(options.data, what, seen):
        say(line)
    absent = groups.absent(options, source, dtype, seen.mean)
    mask, names, masks = _players(opened)
    outputs = _outputs(model, seen, source, options)
    before = _chosen_before(options, model, earlier)
    task = Task(
        model=options.model, weights=options.weights, trust=options.trust, parameters=fingerprint(model),
        target=chosen_target(opened, outputs, seen, say), names=names, mask=mask, absent=absent,
        skip=options.on_bad_row == "skip",
        threads=threads_of(options, earlier),
        explainer={**options.of_explainer(), **before}, tolerance=options.tolerance, masks=masks,
        with_data=options.with_data, inputs=source.names,
    )  # fmt: skip
    entries = seen.mean.size * (
        len(absent["background"]) if "background" in absent else 1
    )  # as some methods repeat rows
    size = options.chunk or max(1, min(_CHUNK_ROWS, _CHUNK_ENTRIES // max(1, entries)))
    worker, trial = _tried(task, model, seen, say, chosen_before=bool(before))
    why = earlier.get(WHY, "") if before else line_of(trial.choices[0].reason)
    task = replace(task, explainer={**task.explainer, **trial.settings})  # which others need not choose
    if masks is not None:  # nor this one, for other numbers of players
        worker = Worker(task, model)
        trial = _try(worker, seen)
    reader = Reader(source, size, dtype, seen.integer_ids, options.with_data or masks is not None)
    first = worker.outputs(torch.from_numpy(seen.example))
    told = groups.described(options, absent) | _far_zeros(options, source, seen.mean)
    for warning in told.get("warning", "").splitlines():
        say(f"warning: {warning}")
    return Plan(seen, reader, task, worker, read, first, told, trial.settings, why, opened.classes)


def _far_zeros(options: Options, source: Source, mean: Any) -> dict[str, str]:
    """What is to be said of zeros in the place of absent inputs, where nobody asked for them and the data is far from
    them."""
    asked = options.baseline or options.background or options.normalize
    far = "" if asked or source.names is None else far_from_zero(mean.tolist(), source.names)
    if not far:
        return {}
    remedy = "--baseline mean takes the average row instead, and --background averages over some rows"
    return {"warning": f"an absent input is 0, as nothing else was said, but {far}; {remedy}"}


def threads_of(options: Options, earlier: Job) -> int:
    """The threads of a worker: those that were asked for, that an earlier job had, or that there are."""
    return options.threads or earlier.get("--threads") or (1 if options.engine == "ray" else torch.get_num_threads())


def _chosen_before(options: Options, model: nn.Module, earlier: Job) -> dict[str, Any]:
    """The method that an earlier job chose for the same model and options, which must not be chosen anew when it is
    resumed, as it depends on the model's time."""
    same = all(earlier.get(name_of(name)) == value for name, value in options.of_explainer().items())
    return earlier.get(CHOSEN, {}) if same and earlier.get(PARAMETERS) == fingerprint(model) else {}


def _players(opened: Opened) -> tuple[Any, tuple[str, ...] | None, str | None]:
    """The player of every entry, the players' names, and --players if each row has players of its own."""
    text = opened.options.players
    if text is None:
        return opened.mask, opened.names, None
    try:
        mask, names = _by_rule(text, opened.source)
    except (BadInput, ImportError) as error:
        raise BadInput(f"--players is {text}: {line_of(error)}") from error
    groups.check_names(names)
    return (mask, names, None) if mask is not None else (None, None, text)


def _by_rule(text: str, source: Source) -> tuple[Any, tuple[str, ...] | None]:
    """The player of every entry and the players' names; no players if each row has its own."""
    kind = text.strip().lower().partition(":")[0].partition(",")[0]
    if kind == "prefix":
        if source.names is None:
            raise BadInput("the data has no columns whose names could begin with something")
        mask, stems = players.prefixes(source.names, text.partition(":")[2].split(","))
        return mask.numpy(), tuple(stems)
    if kind == "channel" and source.names is not None:
        raise BadInput("rows of columns have no channels: leave it out, and every column is a player")
    masks = players.named(text)(torch.zeros(1, *source.shape))
    if kind == "superpixel":
        return None, None
    mask = masks[0].expand(source.shape)
    return mask.numpy(), None if source.names is None else _ends(source.names, mask.tolist())


def _ends(columns: tuple[str, ...], windows: list[int]) -> tuple[str, ...]:
    """The names of windows of columns: the first and the last in each."""
    first = dict(reversed(list(zip(windows, columns, strict=True))))
    last = dict(zip(windows, columns, strict=True))
    return tuple(first[i] if first[i] == last[i] else f"{first[i]}…{last[i]}" for i in last)


def check_device(device: str) -> None:
    """Refuse a device that cannot be used."""
    try:
        torch.zeros(1, device=device).item()  # there are devices that only pretend to compute
    except Exception as error:
        raise BadInput(f"--device {device} cannot be used: {line_of(error)}") from error


def description(data: Path, what: str, seen: Survey, wrong: str = "missing or infinite entries") -> Iterator[str]:
    """What is known of the data, in some lines."""
    text = f"{data}: {seen.rows:,} {what}"
    if seen.bad:
        few = ", ".join(map(str, seen.bad[:_LISTED])) + (", …" if len(seen.bad) > _LISTED else "")
        text += f"; {len(seen.bad):,} left out, with {wrong}: row {few} (the first is 0)"
    yield text
    for warning in seen.warnings():
        yield f"warning: {warning}"


def _outputs(model: nn.Module, seen: Survey, source: Source, options: Options) -> int:
    """The number of outputs that the model has."""
    x = torch.from_numpy(seen.example)
    if options.device is not None:
        model.to(options.device)
    try:
        outputs = outputs_of(model, x, device_of(model))
    except BadInput:
        raise
    except Exception as error:
        shape, table = tuple(x.shape[1:]), isinstance(file_of(source), Table)
        hint = f"; {shape[0]} columns are inputs; --columns or --drop choose them" if table else ""
        raise BadInput(
            f"{options.model} does not take rows of {options.data}, of shape {shape}: {line_of(error)}{hint}"
        ) from error
    return outputs.shape[1]


def chosen_target(opened: Opened, outputs: int, seen: Survey, say: Say) -> int | str | None:
    """The target for the workers; None: each row has its own, or there is only one output."""
    target, label, classes = opened.target, opened.label, opened.classes
    check_number(opened.options, classes, outputs)
    largest = seen.targets[1] if seen.targets else target if isinstance(target, int) else 0
    if largest >= outputs:
        where = f"column {label!r} has {largest}" if label else f"--target is {largest}"
        raise BadInput(f"{where}, but the model has {outputs} output{'s' * (outputs > 1)}; {said(classes, outputs)}")
    if label is not None:
        say(f"target: column {label!r}, of {outputs} outputs")
        return None
    if outputs == 1:
        return None
    if isinstance(target, int):
        if classes is not None:
            say(f"target: output {target}, {classes[target]!r}")
        return target
    say(f"target: the largest of {outputs} outputs, of each row ({PREDICTED})")
    return PREDICTED


def _tried(task: Task, model: nn.Module, seen: Survey, say: Say, *, chosen_before: bool) -> tuple[Worker, Attributions]:
    """A worker that has explained two rows, and their attributions."""
    x = torch.from_numpy(seen.example)
    try:
        with quiet():
            worker = Worker(task, model)
            _check_base(worker, x)
            trial = _try(worker, seen)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{task.model} cannot be explained: {line_of(error)}") from error
    reason = "as chosen before" if chosen_before else line_of(trial.reason)
    say(f"method: {trial.method} ({reason})")
    return worker, trial


def _check_base(worker: Worker, x: Tensor) -> None:
    """Refuse a model whose output is not finite where all inputs are absent: it is part of every value."""
    (name, rows), *_ = [*worker.task.absent.items(), ("baselines", np.zeros(x.shape[1:], x.numpy().dtype))]
    outputs = worker.outputs(torch.from_numpy(rows).reshape(-1, *x.shape[1:]))
    target = worker.task.target
    if not (outputs[:, target] if isinstance(target, int) else outputs).isfinite().all():
        what = "--background" if name == "background" else "--baseline"
        raise BadInput(
            f"{worker.task.model}: its output is not finite where all inputs are absent; give another {what}"
        )


def _try(worker: Worker, seen: Survey) -> Attributions:
    x = torch.from_numpy(seen.example)
    if worker.task.masks is not None:
        x = x[:1]
        worker.use_players_of(seen.data[:1])
    result, _ = worker.explained(worker.prepare(x, None if seen.targets is None else PREDICTED))
    if result is None:
        raise BadInput(f"{worker.task.model}: its outputs for the first rows are not finite, or their squares overflow")
    return result


@contextmanager
def quiet() -> Iterator[None]:
    """Hide what torch.export prints about a model that it cannot trace; the error says enough."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)
