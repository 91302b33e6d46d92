"""The plan of a job on texts, as `dasp.jobs.plan` has it; only that each text has players and a method of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dasp.errors import BadInput, line_of
from dasp.jobs.identity import fingerprint
from dasp.jobs.inputs import check_apart, contents
from dasp.jobs.models import load_model
from dasp.jobs.opened import open_files
from dasp.jobs.options import Options
from dasp.jobs.output import Job
from dasp.jobs.plan import Plan, Say, check_device, chosen_target, description, quiet, threads_of
from dasp.jobs.reading.chunks import TEXT, Reader, survey
from dasp.jobs.text_worker import TextWorker
from dasp.jobs.worker import Task, Texts

__all__ = ["plan_texts"]

_CHUNK = 16  # texts, of which each takes hundreds of evaluations


def plan_texts(options: Options, earlier: Job, say: Say) -> Plan:
    """Read model, tokenizer and texts, and explain a text as a trial; the threads are those of an `earlier` job."""
    opened = open_files(options)
    if options.device is not None:
        check_device(options.device)
    model = load_model(options.model, weights=options.weights, trust=options.trust)
    check_apart(options, model)
    read = contents(options, model)
    seen = survey(opened.source, options.data, TEXT, fail=options.on_bad_row == "fail")
    for line in description(options.data, "texts", seen, "nothing in them"):
        say(line)
    texts = Texts(options.tokenizer or Path(options.model), options.players or "word", options.absent)
    task = Task(
        model=options.model, weights=options.weights, trust=options.trust, parameters=fingerprint(model), target=None,
        names=None, mask=None, absent={}, skip=options.on_bad_row == "skip", threads=threads_of(options, earlier),
        explainer=options.of_explainer(), tolerance=options.tolerance, texts=texts,
    )  # fmt: skip
    some = seen.example[:, 0].tolist()
    try:
        with quiet():
            worker = TextWorker(task, model)
            outputs = worker.outputs(some)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{options.model} does not take the texts of {options.data}: {line_of(error)}") from error
    worker.task = task = replace(task, target=chosen_target(opened, outputs.shape[1], seen, say))
    _try(worker, sorted(some, key=len))
    explainer = worker.explainer
    say(f"method: {explainer.requested_method}, by {texts.players}; an absent one is: {explainer.baselines}")
    told = {"from": f"--absent {explainer.baselines}", "what": "text"}
    reader = Reader(opened.source, options.chunk or _CHUNK, TEXT, seen.integer_ids)
    why = "the coalitions of each text are evaluated"
    return Plan(seen, reader, task, worker, read, outputs, told, {}, why, opened.classes)


def _try(worker: TextWorker, texts: list[str]) -> None:
    """Explain the shortest text that can be explained."""
    model = worker.task.model
    try:
        with quiet():
            found = next(filter(None, (worker.explained(text, worker.task.target) for text in texts)), None)
    except BadInput:
        raise
    except Exception as error:
        raise BadInput(f"{model} cannot be explained: {line_of(error)}") from error
    if found is None:
        raise BadInput(f"{model}: its outputs for the first texts are not finite")
    if worker.task.explainer["error_bars"] and found.std is None:
        raise BadInput("one permutation has no error bars: give more --max-evaluations")
