"""The plan of a job: model and data are read and tried, so that errors come before the first row is explained.

The rows are read in the dtype of the model's input, as far as the model tells. Of texts, each has players and a method
of its own.
"""

from __future__ import annotations

import io
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from dasp import players
from dasp.errors import BadInput, Fraction, line_of
from dasp.explainer.explanation import Attributions
from dasp.explainer.inputs import far_from_zero
from dasp.formatting import display_name
from dasp.games.counting import Threads
from dasp.games.evaluator import MOST_KEPT
from dasp.games.progress import working
from dasp.games.request import PREDICTED
from dasp.jobs.absent_inputs import absent_record, absent_values, check_player_names
from dasp.jobs.identity import FilesRead, check_not_read, fingerprint
from dasp.jobs.options import Options
from dasp.jobs.preflight import Preflight, check_output_number
from dasp.jobs.reading.chunks import TEXT, Reader, Survey, survey
from dasp.jobs.reading.source import Source
from dasp.jobs.reading.tables import TableSource, labels_of, outputs_listed
from dasp.jobs.record import AbsentInputs, JobRecord
from dasp.jobs.worker import AnyWorker, Task, TextTask, TextWorker, Worker, outputs_of
from dasp.methods import METHODS
from dasp.models.calling import Scale, forward_of, scale_of
from dasp.models.loading import read_model
from dasp.models.model_files import data_within
from dasp.models.raw_pipeline import RawPipeline
from dasp.models.wrappers import BlackBox, MultilayerPerceptron, device_of, input_dtype, takes_integers

__all__ = ["Opened", "Plan", "Say", "opened", "plan", "waiting"]

_CHUNK_ROWS, _CHUNK_ENTRIES = 256, 2**20
_CHUNK_TEXTS = 16  # of which each takes hundreds of evaluations
_LISTED = 10
_MOST_PAIRED = 30  # players whose pairs are written
_EVALUATIONS = 2048  # of a row by BayesianShapley, if no other number is given
_ALONE = Threads(1, "the text has one piece")
_SHOW = {"auto": None, "yes": True, "no": False}
_DTYPES, _WHOLE = ("float16", "float32", "float64"), "int64"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """A model, its rows, and how they are to be explained."""

    survey: Survey
    reader: Reader
    task: Task
    worker: AnyWorker  # one, which has tried it
    files: FilesRead  # hashed before the rows were read
    outputs: Tensor  # the model's for the first rows
    absent: AbsentInputs
    method: dict[str, Any]  # options that were chosen, which may be others the next time
    reason: str  # for their choice
    classes: tuple[str, ...] | None = None  # the names of the outputs, if they are known


@dataclass(frozen=True)
class Opened:
    """A model and its rows, read, with the task of explaining them, of which no method is chosen yet."""

    model: nn.Module
    survey: Survey
    dtype: str  # NumPy's name for that of the rows
    task: Task


def plan(checked: Preflight, earlier: JobRecord | None, say: Say) -> Plan:
    """Read model and data, and explain two rows as a trial. What an `earlier` job with the same output had chosen, its
    threads and its method, is chosen again."""
    options = checked.options
    checked, model = _read(checked, say)
    check_not_read(options, model)
    files = FilesRead.of(options, model)
    parameters = fingerprint(model)
    planned = _plan_rows if options.text is None else _plan_texts
    return planned(checked, model, parameters, files, earlier, say)


def opened(checked: Preflight, say: Say) -> tuple[Opened, FilesRead]:
    """Read model and data, which are rows of numbers, without explaining any; and hash what was read."""
    checked, model = _read(checked, say)
    files = FilesRead.of(checked.options, model)
    return _opened_rows(checked, model, fingerprint(model), None, say), files


def _read(checked: Preflight, say: Say) -> tuple[Preflight, nn.Module]:
    options = checked.options
    if (line := data_within(Path(options.model))) is not None:
        say(f"warning: {line}")
    if options.device is not None:
        _check_device(options.device)
    with waiting(options, "reading the model"):
        model = read_model(options.model, weights=options.weights, trust=options.trust)  # whose name was checked
    if isinstance(model, (MultilayerPerceptron, RawPipeline)):
        checked = checked.in_order(model.in_order)
    labels = labels_of(checked.source)
    if isinstance(model, RawPipeline):
        model.know(checked.source.names, labels)
    elif labels:
        raise BadInput(
            f"{options.data}: column {min(labels)!r} has texts, and the model takes numbers: leave it out by --drop, "
            "or save the pipeline that encodes it"
        )
    return checked, model


def _opened_rows(checked: Preflight, model: nn.Module, parameters: str, earlier: JobRecord | None, say: Say) -> Opened:
    options, source, shape = checked.options, checked.source, checked.source.shape
    with waiting(options, "reading the data"):
        dtype, seen = _surveyed(model, source, options)
    what = f"rows of {shape[0]} inputs" if len(shape) == 1 else f"rows of shape {shape}"
    for line in _description(options.data, what, seen):
        say(line)
    absent = absent_values(options, source, checked.like, dtype, seen.mean)
    mask, names, masks = _players(checked)
    if options.interactions:
        _check_pairs(_number_of_players(source, mask), masks)
    outputs = _outputs(model, seen, source, options)
    before, fixed = _chosen_before(options, parameters, earlier), _threads(options, earlier, model)
    task = Task(
        model=options.model, weights=options.weights, trust=options.trust, parameters=parameters,
        target=_chosen_target(checked, outputs, seen, say), versus=checked.versus, output=_output_of(options),
        names=names, mask=mask, absent=absent,
        skip=options.on_bad_row == "skip", threads=None if fixed is None else fixed.number,
        explainer={**options.of_explainer(), **before}, tolerance=options.tolerance, masks=masks,
        with_data=options.with_data, interactions=options.interactions, inputs=source.names,
        normalization=checked.normalization, labels=labels_of(source),
    )  # fmt: skip
    return Opened(model, seen, dtype, task)


def _number_of_players(source: Source, mask: Any) -> int:
    return int(np.prod(source.shape)) if mask is None else int(mask.max()) + 1


def _plan_rows(
    checked: Preflight, model: nn.Module, parameters: str, files: FilesRead, earlier: JobRecord | None, say: Say
) -> Plan:
    options, source = checked.options, checked.source
    found = _opened_rows(checked, model, parameters, earlier, say)
    task, seen, dtype, absent, masks = found.task, found.survey, found.dtype, found.task.absent, found.task.masks
    before, fixed = _chosen_before(options, parameters, earlier), _threads(options, earlier, model)
    number = _number_of_players(source, task.mask)
    entries = seen.mean.size * (
        len(absent["background"]) if "background" in absent else 1
    )  # as some methods repeat rows
    with waiting(options, "trying the model on two rows"):
        worker, trial = _tried(task, model, seen)
    method = "as chosen before" if before else line_of(trial.reason)
    say(f"method: {display_name(trial.method)} ({method})")
    if (evidence := trial.evidence()) is not None:
        say(evidence[1])
    threads = fixed or trial.choices[0].threads
    assert threads is not None
    if (scale := scale_of(worker.explainer.model)) is not None:  # is decided now, and not by others again
        task = replace(task, output=scale)
    worker.use_threads(threads.number)
    say(f"threads: {threads}")
    most = _kept_rows(options, number, trial) if options.interactions else _CHUNK_ROWS
    size = options.chunk or max(1, min(_CHUNK_ROWS, most, _CHUNK_ENTRIES // max(1, entries)))
    reason = earlier.reason if before and earlier else line_of(trial.choices[0].reason)
    task = replace(task, threads=threads.number, explainer={**task.explainer, **trial.settings})  # for others
    if masks is not None:  # nor this one, for other numbers of players
        worker = Worker(task, model)
        trial = _try(worker, seen)
    reader = Reader(source, size, dtype, seen.integer_ids, options.with_data or masks is not None)
    first = worker.outputs(torch.from_numpy(seen.example))
    warning = _far_zeros(options, source, seen.mean)
    if warning:
        say(f"warning: {warning}")
    return Plan(
        seen, reader, task, worker, files, first, absent_record(options, absent, warning, labelled=bool(task.labels)),
        trial.settings, reason,
        checked.classes,
    )  # fmt: skip


def _plan_texts(
    checked: Preflight, model: nn.Module, parameters: str, files: FilesRead, earlier: JobRecord | None, say: Say
) -> Plan:
    options = checked.options
    with waiting(options, "reading the data"):
        seen = survey(checked.source, options.data, TEXT, fail=options.on_bad_row == "fail")
    for line in _description(options.data, "texts", seen, "nothing in them"):
        say(line)
    fixed = _threads(options, earlier, model)
    texts = TextTask(options.tokenizer or Path(options.model), options.players or "word", options.baselines)
    task = Task(
        model=options.model, weights=options.weights, trust=options.trust, parameters=parameters, target=None,
        versus=checked.versus, output=_output_of(options), names=None, mask=None, absent={},
        skip=options.on_bad_row == "skip",
        threads=None if fixed is None else fixed.number, explainer=options.of_explainer(),
        tolerance=options.tolerance, texts=texts,
    )  # fmt: skip
    some = seen.example[:, 0].tolist()
    try:
        with _quiet():
            worker = TextWorker(task, model)
            outputs = worker.outputs(some)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{options.model} does not take the texts of {options.data}: {line_of(error)}") from error
    scale = worker.explainer.output
    worker.task = task = replace(
        task, target=_chosen_target(checked, outputs.shape[1], seen, say),
        output=scale if isinstance(scale, Scale) else task.output,
    )  # fmt: skip
    with waiting(options, "trying the model on a text"):
        trial = _try_texts(worker, sorted(some, key=len))
    threads = fixed or trial.choices[0].threads or _ALONE
    worker.use_threads(threads.number)
    worker.task = task = replace(task, threads=threads.number)
    explainer = worker.explainer
    method = display_name(explainer.requested_method)
    say(f"method: {method}, by {texts.players}; an absent one is: {explainer.baselines}")
    say(f"threads: {threads}")
    absent = AbsentInputs("text", {"baselines": str(explainer.baselines)})
    reader = Reader(checked.source, options.chunk or _CHUNK_TEXTS, TEXT, seen.integer_ids)
    reason = "the coalitions of each text are evaluated"
    return Plan(seen, reader, task, worker, files, outputs, absent, {}, reason, checked.classes)


def _far_zeros(options: Options, source: Source, mean: Any) -> str | None:
    """Return a warning of zeros in the place of absent inputs, where nobody asked for them and the data is far from
    them."""
    asked = options.baselines or options.background or options.mean or options.std
    far = "" if asked or source.names is None else far_from_zero(mean.tolist(), source.names)
    if not far:
        return None
    remedy = "--baselines mean takes the average row instead, and --background averages over some rows"
    return f"an absent input is 0, as nothing else was said, but {far}; {remedy}"


def _threads(options: Options, earlier: JobRecord | None, model: nn.Module) -> Threads | None:
    """Return the threads of a worker, if they were asked for, chosen by an earlier job, or need no choice."""
    before = earlier.options.get("threads") if earlier else None
    if options.threads is not None:
        return Threads(options.threads, "as asked for")
    if before:
        return Threads(before, "as chosen before")
    if options.engine == "ray":
        return Threads(1, "workers on Ray have one each")
    if isinstance(model, BlackBox) and model.module is None:
        return Threads(torch.get_num_threads(), "the model has its own")
    return None


def waiting(options: Options, name: str, unit: str = "", total: int | None = None, done: int = 0) -> Any:
    """Return the context of some work of a job, of which the user sees how far it is: see `working`."""
    say = partial(print, "dasp:", file=sys.stderr, flush=True)
    return working(name, unit, total, done=done, show=_SHOW[options.show_progress], say=say)


def _chosen_before(options: Options, parameters: str, earlier: JobRecord | None) -> dict[str, Any]:
    """Return the method that an earlier job chose for the same model and options, which must not be chosen anew when it
    is resumed, as it depends on the model's time."""
    if earlier is None or earlier.parameters != parameters:
        return {}
    same = all(earlier.options.get(name) == value for name, value in options.of_explainer().items())
    return earlier.method if same else {}


def _players(checked: Preflight) -> tuple[Any, tuple[str, ...] | None, str | None]:
    """Return the player of every entry, the players' names, and --players if each row has players of its own."""
    text = checked.options.players
    if text is None or "players" in checked.options.files():
        return checked.mask, checked.names, None
    try:
        mask, names = _by_rule(text, checked.source)
    except (BadInput, ImportError) as error:
        files = "; a file of players is a .json or .npy file" if Path(text).suffix else ""
        raise BadInput(f"--players is {text}: {line_of(error)}{files}") from error
    check_player_names(names)
    return (mask, names, None) if mask is not None else (None, None, text)


def _by_rule(text: str, source: Source) -> tuple[Any, tuple[str, ...] | None]:
    """Return the player of every entry and the players' names; no players if each row has its own."""
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
    """Return the names of windows of columns: the first and the last in each."""
    first = dict(reversed(list(zip(windows, columns, strict=True))))
    last = dict(zip(windows, columns, strict=True))
    return tuple(first[i] if first[i] == last[i] else f"{first[i]}…{last[i]}" for i in last)


def _check_pairs(number: int, masks: str | None) -> None:
    """Refuse --interactions of players that are too many, too few, or others in every row."""
    if masks is not None:
        raise BadInput(
            f"--interactions needs the same players in all rows, and with --players {masks} every row has its own: "
            "give block:N instead, or leave --interactions out"
        )
    if number > _MOST_PAIRED:
        raise BadInput(
            f"--interactions is for {_MOST_PAIRED} players at most, and there are {number:,}: group inputs by "
            "--players, or leave it out"
        )
    if number < 2:
        raise BadInput("--interactions needs two players, and there is only one: leave it out")


def _kept_rows(options: Options, number: int, trial: Attributions) -> int:
    """Return of how many rows at once the evaluations are kept, which --interactions needs; refuse methods and chunks
    of which none would be."""
    method = METHODS[trial.method]
    if not method.exact and method.samples != "max_evaluations":
        raise BadInput(
            f"--interactions needs pairs of coalitions that were evaluated, and {method.name} has none: give --method "
            "bayesian or exact, or leave it out"
        )
    wanted = 2**number if method.exact else trial.settings["max_evaluations"] or _EVALUATIONS
    each = min(2**number, wanted)
    most = MOST_KEPT // each
    if not most:
        raise BadInput(
            f"--interactions keeps {MOST_KEPT:,} evaluations at most, and a row takes {each:,}: give --method bayesian "
            f"with --max-evaluations {_EVALUATIONS}, or leave it out"
        )
    if options.chunk is not None and options.chunk > most:
        raise BadInput(
            f"--interactions keeps the evaluations of {most:,} rows at once, and --chunk is {options.chunk:,}: give "
            f"--chunk {most} or less"
        )
    return most


def _check_device(device: str) -> None:
    """Refuse a device that cannot be used."""
    try:
        torch.zeros(1, device=device).item()  # there are devices that only pretend to compute
    except Exception as error:
        raise BadInput(f"--device {device} cannot be used: {line_of(error)}") from error


def _description(data: Path, what: str, seen: Survey, wrong: str = "missing or infinite entries") -> Iterator[str]:
    """Yield some lines that describe the data."""
    text = f"{data}: {seen.rows:,} {what}"
    if seen.bad:
        few = ", ".join(map(str, seen.bad[:_LISTED])) + (", …" if len(seen.bad) > _LISTED else "")
        text += f"; {len(seen.bad):,} left out, with {wrong}: row {few} (the first is 0)"
    yield text
    for warning in seen.warnings():
        yield f"warning: {warning}"


def _outputs(model: nn.Module, seen: Survey, source: Source, options: Options) -> int:
    """Return the number of outputs that the model has."""
    x = torch.from_numpy(seen.example)
    if options.device is not None:
        model.to(options.device)
    output = _output_of(options)
    function = model if output is None else forward_of(model, output)
    try:
        outputs = outputs_of(function, x, device_of(model))
    except BadInput:
        raise
    except Exception as error:
        shape, table = tuple(x.shape[1:]), isinstance(source, TableSource)
        hint = f"; {shape[0]} columns are inputs; --columns or --drop choose them" if table else ""
        raise BadInput(
            f"{options.model} does not take rows of {options.data}, of shape {shape}: {line_of(error)}{hint}"
        ) from error
    return outputs.shape[1]


def _output_of(options: Options) -> str | int | None:
    """Return the name or the index of what is explained of the model's result."""
    text = options.model_output
    return int(text) if text is not None and text.isdecimal() else text


def _chosen_target(checked: Preflight, outputs: int, seen: Survey, say: Say) -> int | str | None:
    """Return the target for the workers; None if each row has its own, or there is only one output."""
    target, label, classes = checked.target, checked.label, checked.classes
    check_output_number(checked.options, classes, outputs)
    largest = seen.targets[1] if seen.targets else target if isinstance(target, int) else 0
    if largest >= outputs:
        where = f"column {label!r} has {largest}" if label else f"--target is {largest}"
        raise BadInput(
            f"{where}, but the model has {outputs} output{'s' * (outputs > 1)}; {outputs_listed(classes, outputs)}"
        )
    _check_versus(checked, outputs)
    if label is not None:
        say(f"target: column {label!r}, of {outputs} outputs{_less(checked)}")
        return None
    if outputs == 1:
        return None
    if isinstance(target, int):
        if classes is not None or checked.versus is not None:
            say(f"target: {_output_shown(target, classes)}{_less(checked)}")
        return target
    say(f"target: the largest of {outputs} outputs, of each row ({PREDICTED}){_less(checked)}")
    return PREDICTED


def _check_versus(checked: Preflight, outputs: int) -> None:
    """Refuse an output to compare with that the model has not."""
    versus = checked.versus
    if versus is not None and outputs == 1:
        raise BadInput("--versus compares two outputs, and the model has one: leave it out")
    if isinstance(versus, int) and versus >= outputs:
        listed = outputs_listed(checked.classes, outputs)
        raise BadInput(f"--versus is {versus}, but the model has {outputs} outputs; {listed}")


def _less(checked: Preflight) -> str:
    """Return what is subtracted from the target, as it is said behind it."""
    if checked.versus is None:
        return ""
    if isinstance(checked.versus, int):
        return f", less {_output_shown(checked.versus, checked.classes)}"
    return ", less the largest output" + " beside it" * (checked.versus != PREDICTED)


def _output_shown(number: int, classes: tuple[str, ...] | None) -> str:
    return f"output {number}" + ("" if classes is None else f", {classes[number]!r}")


def _tried(task: Task, model: nn.Module, seen: Survey) -> tuple[Worker, Attributions]:
    """Return a worker that has explained two rows, and their attributions."""
    x = torch.from_numpy(seen.example)
    try:
        with _quiet():
            worker = Worker(task, model)
            if task.output is not None:
                worker.prepare(x, None if seen.targets is None else PREDICTED)  # which decides on a scale
            _check_base(worker, x)
            trial = _try(worker, seen)
    except BadInput:
        raise
    except Exception as error:
        method = task.explainer["method"]
        if isinstance(model, BlackBox) and method != "auto":
            raise BadInput(
                f"{task.model} can be evaluated, but has no graph that --method {method} could go through "
                f"({line_of(error)}): give auto, exact, bayesian or permutation, or a factory that builds the model"
            ) from error
        raise BadInput(f"{task.model} cannot be explained: {line_of(error)}") from error
    return worker, trial


def _check_base(worker: Worker, x: Tensor) -> None:
    """Refuse a model whose output is not finite where all inputs are absent: it is part of every value."""
    (name, rows), *_ = [*worker.task.absent.items(), ("baselines", np.zeros(x.shape[1:], x.numpy().dtype))]
    outputs = worker.outputs(torch.from_numpy(rows).reshape(-1, *x.shape[1:]))
    target = worker.task.target
    if not (outputs[:, target] if isinstance(target, int) else outputs).isfinite().all():
        what = "--background" if name == "background" else "--baselines"
        raise BadInput(
            f"{worker.task.model}: its output is not finite where all inputs are absent; give another {what}"
        )


def _try(worker: Worker, seen: Survey) -> Attributions:
    x = torch.from_numpy(seen.example)
    if worker.task.masks is not None:
        x = x[:1]
        worker.use_players_of(seen.data[:1])
    request = worker.prepare(x, None if seen.targets is None else PREDICTED)
    result, _ = worker.explained(request)
    if worker.task.explainer["max_seconds"] is not None:  # much of which the first rows take once
        result, _ = worker.explained(request)
    if result is None:
        raise BadInput(f"{worker.task.model}: its outputs for the first rows are not finite, or their squares overflow")
    if METHODS[result.choices[0].method].propagates and bool(request.full[0].isfinite().all()):
        return replace(result, propagation_error=worker.explainer.propagation_error(request, result))
    return result


def _try_texts(worker: TextWorker, texts: list[str]) -> Attributions:
    """Explain the shortest text that can be explained."""
    model = worker.task.model
    try:
        with _quiet():
            found = next(filter(None, (worker.explained(text, worker.task.target) for text in texts)), None)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{model} cannot be explained: {line_of(error)}") from error
    if found is None:
        raise BadInput(f"{model}: its outputs for the first texts are not finite")
    if worker.task.explainer["error_bars"] and found.std is None:
        raise BadInput("one permutation has no error bars: give more --max-evaluations")
    return found


def _surveyed(model: nn.Module, source: Source, options: Options) -> tuple[str, Survey]:
    """Return NumPy's name for the dtype of the rows that the model takes, and the survey of them.

    A module with an embedding takes whole numbers, or floats of which it makes some whole itself. It is given whole
    numbers where all entries are whole and it takes them, and floats otherwise.
    """

    def seen(dtype: str) -> Survey:
        return survey(source, options.data, dtype, fail=options.on_bad_row == "fail")

    normalised = options.mean is not None or options.std is not None
    if isinstance(model, BlackBox):
        if normalised and model.dtype == _WHOLE:
            raise _not_whole(options)
        return model.dtype, seen(model.dtype)
    if not takes_integers(model):
        floats = _floats(model, options)
        return floats, seen(floats)
    if normalised:
        floats = _floats(model, options)
        real = seen(floats)
        if isinstance(model, fx.GraphModule) or _mistyped(model, real):
            raise _not_whole(options)
        return floats, real
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


def _not_whole(options: Options) -> BadInput:
    return BadInput(
        f"{options.model} takes whole numbers, of which --mean and --std would make fractions: leave them out"
    )


def _floats(model: nn.Module, options: Options) -> str:
    dtype = str(input_dtype(model)).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise BadInput(f"{options.model}: computes in {dtype}; models in {', '.join(_DTYPES)} can be explained")
    return dtype


def _mistyped(model: nn.Module, seen: Survey) -> bool:
    """Return True if a model fails on rows because of their dtype."""
    try:
        outputs_of(model, torch.from_numpy(seen.example), device_of(model))
    except Exception as error:  # noqa: BLE001 (whatever else a model fails by is told when it is tried)
        return re.search("dtype|scalar type|Input type", str(error)) is not None
    return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch.export prints about a model that it cannot trace; the error says enough."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(level)
