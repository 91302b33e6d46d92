"""The workers of a job: one has the model, and makes chunks of explained rows from chunks of rows.

What it makes of a chunk depends on nothing but the chunk, so that it does not matter which worker does it, or when.
Rows are entries of arrays (`Worker`) or pieces of texts (`TextWorker`).
"""

from __future__ import annotations

import json
import logging
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from dasp.errors import BadInput, OverflowingRows, UnexplainedRows
from dasp.explainer import Explainer, TextExplainer
from dasp.explainer.explanation import Attributions
from dasp.games.request import Request, Selection
from dasp.jobs.absent_inputs import Normalization
from dasp.jobs.identity import fingerprint
from dasp.jobs.reading.chunks import Chunk
from dasp.jobs.reading.source import column, lists, muted, texts
from dasp.jobs.summary import Notes
from dasp.models.calling import Scale
from dasp.models.loading import load_model, read_tokenizer
from dasp.models.raw_pipeline import RawPipeline
from dasp.models.wrappers import BlackBox
from dasp.players import named

__all__ = [
    "AnyWorker", "Task", "TextTask", "TextWorker", "Worker", "explained_table", "outputs_of", "worker_of",
]  # fmt: skip

# Why a row cannot be explained.
_INFINITE = "the model's output for {} is not finite"
_OVERFLOW = "squares in {} overflow"
_UNDEFINED = "the model's output for coalitions of {} is not finite"


@dataclass(frozen=True)
class TextTask:
    """The options of a task whose rows are texts."""

    tokenizer: Path  # its folder
    players: str
    baselines: str | None  # in the place of an absent piece


@dataclass(frozen=True)
class Task:
    """All that a worker has to know. It can be sent to another machine that has the same files."""

    model: str
    weights: Path | None
    trust: bool
    parameters: str  # their fingerprint
    target: int | str | None  # an output, the predicted one, or None: the targets of the rows, or the only output
    versus: int | str | None  # the output that is subtracted, if there is one
    output: str | int | Scale | None  # what is explained of the model's result
    names: tuple[str, ...] | None  # of the players; None for images and other arrays
    mask: Any  # the player of every entry, or None
    absent: dict[str, Any]  # baselines or background
    skip: bool  # rows whose output is not finite
    threads: int | None  # of torch; None as long as they are not chosen
    explainer: dict[str, Any]  # further options of an `Explainer`
    tolerance: float | None = None  # the user's, if there is one
    masks: str | None = None  # --players, if each row has players of its own
    with_data: bool = False  # True if the rows are written, too
    interactions: bool = False  # True if those of pairs of players are written, too
    inputs: tuple[str, ...] | None = None  # names of the entries, if they have some
    texts: TextTask | None = None  # if the rows are texts
    normalization: Normalization | None = None  # that the model expects
    labels: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of columns with texts, by their numbers


class AnyWorker(Protocol):
    """A worker, whatever its rows are."""

    model: nn.Module

    def explain(self, chunk: Chunk) -> pa.Table:
        """Return the rows of the output for a chunk of the input."""


class Worker:
    """A model and its explainer, for chunk after chunk."""

    def __init__(self, task: Task, model: nn.Module | None = None) -> None:
        model = _model_of(task) if model is None else model
        self.task, self.model = task, model
        mask = None if task.mask is None else torch.from_numpy(task.mask)
        given: dict[str, Any] = {name: torch.from_numpy(np.asarray(value)) for name, value in task.absent.items()}
        if task.normalization is not None:
            given |= {"mean": task.normalization.mean, "std": task.normalization.std}
        explained: Any = model
        if isinstance(model, RawPipeline):
            model.know(task.inputs, task.labels)
        if isinstance(model, BlackBox):
            model.use_threads(task.threads or torch.get_num_threads())
            explained = model.to(task.explainer["device"]).function
        self.explainer = Explainer(
            explained, feature_mask=mask, versus=task.versus, output=task.output, show_progress=False, **given,
            **task.explainer,
        )  # fmt: skip
        self.use_threads(task.threads)

    def use_threads(self, number: int | None) -> None:
        """Compute with so many of torch's threads from now on; of a function that has its own, torch needs one."""
        _use_threads(number)
        own = isinstance(self.model, BlackBox) and self.model.module is None
        self.explainer.threads = 1 if own else number

    def explain(self, chunk: Chunk) -> pa.Table:
        """Return the rows of the output for a chunk of the input; those with players of their own one by one."""
        if self.task.masks is None:
            return self._explain(chunk)
        alone = [Notes.off(self._explain_alone(chunk.only(row))) for row in np.eye(len(chunk.values), dtype=bool)]
        tables = [table for _, table in alone if len(table)]
        return sum((notes for notes, _ in alone), Notes()).on(pa.concat_tables(tables) if tables else pa.table({}))

    def _explain_alone(self, row: Chunk) -> pa.Table:
        """Return a row with players of its own, explained."""
        try:
            assert row.data is not None
            self.use_players_of(row.data)
        except BadInput as error:
            raise BadInput(f"--players {self.task.masks}, the row of id {row.ids[0]}: {error}") from error
        return self._explain(row)

    def use_players_of(self, data: Any) -> None:
        """Explain a row by its own players, which are those of the picture in the file."""
        assert self.task.masks is not None
        self.explainer.inputs.masks = {None: named(self.task.masks)(torch.from_numpy(data.astype(np.float64)))}

    def _explain(self, chunk: Chunk) -> pa.Table:
        request = self.prepare(torch.from_numpy(chunk.values), chunk.targets)
        result, reasons = self.explained(request)
        good = np.array([not reason for reason in reasons])
        lost = chunk.ids.filter(column(~good)).to_pylist()
        if lost and not self.task.skip:
            why = next(filter(None, reasons)).format(f"the row of id {lost[0]}")
            raise BadInput(f"{why}; --on-bad-row skip leaves such rows out")
        notes = Notes.of_rows(lost, reasons.count(_OVERFLOW), reasons.count(_UNDEFINED))
        if result is None:
            return notes.on(pa.table({}))
        table = self._table(chunk.only(good) if lost else chunk, result)
        if self.task.interactions:
            for name, own in _interaction_columns(result, request.games[0].count).items():
                table = table.append_column(name, own)
        return (notes + self._notes(result)).on(table)

    def explained(self, request: Request) -> tuple[Attributions | None, list[str]]:
        """Explain those of the rows that can be, if there are any; and say of each row why it cannot be, or nothing."""
        reasons = ["" if finite else _INFINITE for finite in request.full.isfinite().tolist()]
        while "" in reasons:
            rows = torch.tensor([row for row, reason in enumerate(reasons) if not reason])
            try:
                return self.run(request if len(rows) == len(reasons) else request.rows_of(rows)), reasons
            except UnexplainedRows as error:
                why = _OVERFLOW if isinstance(error, OverflowingRows) else _UNDEFINED
                for row in rows[list(error.rows)].tolist():
                    reasons[row] = why
        return None, reasons

    def outputs(self, x: Tensor) -> Tensor:
        """Return the model's outputs for rows, (rows, outputs)."""
        self._seed()
        parts = x.split(self.task.explainer["batch_size"] or len(x))
        return torch.cat([outputs_of(self.explainer.model, part, self.explainer.device) for part in parts]).cpu()

    def prepare(self, x: Tensor, target: Any = None, versus: Any = None) -> Request:
        """Return a request for some rows, with the task's target and versus, or with those that are given for each
        row."""
        self._seed()
        return self.explainer.prepare(
            x, self.task.target if target is None else target, versus=self.task.versus if versus is None else versus
        )

    def run(self, request: Request) -> Attributions:
        """Explain the rows, in the same way every time."""
        self._seed()
        with _silent():
            return self.explainer.run(request)

    def _seed(self) -> None:
        _seed_all(self.task.explainer["seed"])

    def _notes(self, result: Attributions) -> Notes:
        infinite = (~result.values.isfinite()).flatten(1).any(1).sum()
        missed = self._missed(result)
        return Notes(infinite=int(infinite), missed=0 if missed is None else int(missed.sum()), gaps=result.unbalanced)

    def _missed(self, result: Attributions) -> Tensor | None:
        """Return True for each row that missed the user's tolerance; None if there is none, as the method's own is not
        theirs."""
        if self.task.tolerance is None:
            return None
        return torch.zeros(len(result.gap), dtype=torch.bool) if result.missed is None else result.missed

    def _table(self, chunk: Chunk, result: Attributions) -> pa.Table:
        rows, missed = len(chunk.values), self._missed(result)
        assert result.evaluations is not None
        columns = {
            "id": chunk.ids,
            "target": column(result.target.numpy().astype(np.int32)),
            **({} if result.versus is None else {"versus": column(result.versus.numpy().astype(np.int32))}),
            "prediction": _column(result.prediction),
            "base_value": _column(result.base.expand(result.prediction.shape)),
            **self._players("", "values", result.values),
            **({} if result.std is None else self._players("error_std:", "error_std", result.std)),
            "gap": _column(result.gap),
            "method": texts([result.method] * rows),
            "evaluations": _column(result.evaluations),
            **({} if missed is None else {"missed": _column(missed)}),
            **self._data(chunk),
        }
        if self.task.masks is not None:
            (mask,) = self.explainer.inputs.masks.values()
            columns["players"] = _lists(mask.expand(chunk.values.shape).reshape(rows, -1).numpy().astype(np.int32))
        shape = str(list(chunk.values.shape[1:]))
        about = {"shape": shape} if self.task.names is None and self.task.mask is None else {}
        about |= {"data shape": shape} if self.task.inputs is None else {}
        about |= {"players": json.dumps(self.task.mask.ravel().tolist())} if self.task.mask is not None else {}
        return pa.table(columns, metadata=about or None)

    def _data(self, chunk: Chunk) -> dict[str, pa.Array]:
        """Return the rows as the file has them, if they are to be written."""
        if chunk.data is None or not self.task.with_data:
            return {}
        flat = chunk.data.reshape(len(chunk.data), -1)
        if self.task.inputs is None:
            return {"data": _lists(flat)}
        return {f"data:{name}": self._entries(name, flat[:, i]) for i, name in enumerate(self.task.inputs)}

    def _entries(self, name: str, numbers: Any) -> pa.Array:
        """Return a column of the data, with its labels if it has texts."""
        labels = self.task.labels.get(name)
        return column(numbers) if labels is None else texts([labels[int(place)] for place in numbers])

    def _players(self, prefix: str, together: str, values: Tensor) -> dict[str, pa.Array]:
        """Return a column for each player, or one with lists if they have no names."""
        flat = self._flat(values)
        if self.task.names is None:
            return {together: _lists(flat)}
        return {prefix + name: column(flat[:, i]) for i, name in enumerate(self.task.names)}

    def _flat(self, values: Tensor) -> Any:
        """Return the values of the players, (rows, players)."""
        flat = values.detach().cpu().reshape(len(values), -1).numpy()
        if self.task.mask is None:
            return flat
        return flat[:, np.unique(self.task.mask.ravel(), return_index=True)[1]]  # an entry of each player


def _interaction_columns(result: Attributions, players: int) -> dict[str, pa.Array]:
    """Return the interactions of all pairs of players, in the order of `itertools.combinations`, and their standard
    deviations; null for rows of which no evaluations were kept."""
    evaluated = result.evaluated or [None] * len(result.gap)
    kept = torch.tensor([row is not None for row in evaluated])
    parts = torch.zeros(2, len(evaluated), players, players, dtype=torch.float64)
    if kept.any():
        found = replace(result, evaluated=[row for row in evaluated if row is not None]).interactions()
        parts[:, kept] = torch.stack([torch.from_numpy(part) for part in (found.values, found.error_std)]).view_as(
            parts[:, kept]
        )
    first, second = torch.triu_indices(players, players, 1)
    pairs = parts[:, :, first, second].float().numpy()
    unknown = column(~kept.numpy())
    return {
        name: pa.FixedSizeListArray.from_arrays(column(part.reshape(-1)), part.shape[1], mask=unknown)
        for name, part in zip(("interactions", "interactions_std"), pairs, strict=True)
    }


class TextWorker:
    """A model, its tokenizer and their explainer, for chunk after chunk."""

    def __init__(self, task: Task, model: nn.Module | None = None) -> None:
        assert task.texts is not None
        model = _model_of(task) if model is None else model
        own = task.explainer
        self.task, self.model = task, model.to(own["device"])
        with muted():
            self.explainer = TextExplainer(
                self.model, read_tokenizer(task.texts.tokenizer, task.trust), players=task.texts.players,
                baselines=task.texts.baselines, method=own["method"], tolerance=own["tolerance"],
                max_evaluations=own["max_evaluations"], error_bars=own["error_bars"], batch_size=own["batch_size"],
                versus=task.versus, output=task.output, seed=own["seed"], show_progress=False,
            )  # fmt: skip
        self.use_threads(task.threads)

    def use_threads(self, number: int | None) -> None:
        """Compute with so many of torch's threads from now on."""
        _use_threads(number)
        self.explainer.threads = number

    def outputs(self, some: Sequence[str]) -> Tensor:
        """Return the model's outputs for texts, (texts, outputs)."""
        for text in some:
            self._is_cut(text)  # a text that the tokenizer fails at is refused here, once and in one line
        _seed_all(self.task.explainer["seed"])
        with _silent():
            return self.explainer.outputs(some).reshape(len(some), -1)

    def explain(self, chunk: Chunk) -> pa.Table:
        """Return the rows of the output for a chunk of the input."""
        ids = chunk.ids.to_pylist()
        given = [self.task.target] * len(ids) if chunk.targets is None else chunk.targets.tolist()
        found = [self._named(*each) for each in zip(ids, chunk.values[:, 0], given, strict=True)]
        there = np.array([each is not None for each in found])
        lost = [id_ for id_, each in zip(ids, found, strict=True) if each is None]
        if lost and not self.task.skip:
            raise BadInput(
                f"the model's output for the text of id {lost[0]} is not finite; --on-bad-row skip leaves such rows out"
            )
        rows, notes = [each for each in found if each is not None], Notes.of_rows(lost)
        if not rows:
            return notes.on(pa.table({}))
        kept = chunk.only(there)
        return (notes + self._notes(kept.values[:, 0].tolist(), rows)).on(
            _text_table(kept.ids, rows, tolerated=self.task.tolerance is not None)
        )

    def explained(self, text: str, target: Any) -> Attributions | None:
        """Explain a text, in the same way every time; None if outputs are not finite."""
        outputs = self.outputs([text])
        if not Selection.of(outputs, target)(outputs).isfinite().all():
            return None
        _seed_all(self.task.explainer["seed"])
        try:
            with _silent():
                return self.explainer.attribute([text], target)
        except UnexplainedRows:
            return None

    def _named(self, id_: Any, text: str, target: Any) -> Attributions | None:
        """Explain a text, with its id in errors."""
        try:
            return self.explained(text, target)
        except BadInput as error:
            raise BadInput(f"the text of id {id_}: {error}") from error

    def _notes(self, some: Sequence[str], rows: list[Attributions]) -> Notes:
        infinite = sum(not bool(row.values[0].isfinite().all()) for row in rows)
        return Notes(infinite=infinite, missed=sum(map(_text_missed, rows)), cut=sum(map(self._is_cut, some)))

    def _is_cut(self, text: str) -> bool:
        vocabulary = self.explainer.vocabulary
        assert vocabulary is not None
        with muted():
            return len(vocabulary.encoded(text)["input_ids"]) > vocabulary.limit


def _text_missed(row: Attributions) -> bool:
    return row.missed is not None and bool(row.missed.any())


def worker_of(task: Task) -> AnyWorker:
    """Return the worker for a task."""
    return Worker(task) if task.texts is None else TextWorker(task)


def _text_table(ids: pa.Array, rows: list[Attributions], *, tolerated: bool) -> pa.Table:
    pieces = [row.pieces[0] for row in rows if row.pieces is not None]
    lengths = [len(own) for own in pieces]
    values = torch.cat([row.values[0] for row in rows]).double().numpy()
    unknown = [[torch.full_like(row.values[0], torch.nan)] for row in rows]  # one permutation has no deviation
    error_std = torch.cat([(row.std or none)[0] for row, none in zip(rows, unknown, strict=True)]).double().numpy()
    return pa.table({
        "id": ids,
        "target": _joined([row.target for row in rows], np.int32),
        **({} if rows[0].versus is None else {"versus": _joined([row.versus for row in rows], np.int32)}),
        "prediction": _joined([row.prediction for row in rows], np.float32),
        "base_value": _joined([row.base for row in rows], np.float32),
        "pieces": lists(texts([piece for own in pieces for piece in own]), lengths),
        "values": lists(column(values), lengths),
        "error_std": lists(column(error_std), lengths),
        "gap": _joined([row.gap for row in rows], np.float64),
        "method": texts([row.method for row in rows]),
        "evaluations": _joined([row.evaluations for row in rows], np.int64),
        **({"missed": column(np.array([_text_missed(row) for row in rows]))} if tolerated else {}),
    })  # fmt: skip


def _joined(parts: list[Any], dtype: Any) -> pa.Array:
    return column(torch.cat([part.reshape(-1).cpu() for part in parts]).numpy().astype(dtype))


def _model_of(task: Task) -> nn.Module:
    """Return the model of a task, which must be the one that it was planned with."""
    _use_threads(task.threads)
    model = load_model(task.model, weights=task.weights, trust=task.trust)
    if fingerprint(model) != task.parameters:
        raise BadInput(
            f"{task.model}: has other parameters every time it is made; give --weights, or fix the seed in it"
        )
    return model


def _use_threads(number: int | None) -> None:
    if number is not None:
        torch.set_num_threads(number)


def _seed_all(seed: int) -> None:
    """Start the global generators anew, for models and methods that use them."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - Captum's
    torch.manual_seed(seed)


def explained_table(worker: AnyWorker, chunk: Chunk) -> pa.Table:
    """Return the rows of the output for a chunk, which may have none. An error says in which rows it was."""
    if not len(chunk.values):
        return pa.table({})
    try:
        return worker.explain(chunk)
    except Exception as error:
        error.add_note(f"while the rows with ids {chunk.ids[0]} to {chunk.ids[-1]} were explained")
        raise


def outputs_of(model: Callable[..., Any], x: Tensor, device: Any = None) -> Tensor:
    """Return the model's outputs for rows that it is given at once, (rows, outputs)."""
    with torch.no_grad():
        result = model(x.to(device))
    if not isinstance(result, Tensor):
        raise BadInput(f"the model must return one tensor to explain, not a {type(result).__name__}")
    if result.dim() == 0 or len(result) != len(x):
        raise BadInput(
            f"the model must return a row for each row; for {len(x)} it gave the shape {tuple(result.shape)}"
        )
    if result.dim() > 2:
        raise BadInput(f"the model returns {tuple(result.shape[1:])} outputs a row; one dimension of them is needed")
    return result.reshape(len(x), -1)


def _lists(rows: Any) -> pa.Array:
    """Return a list for each row."""
    return pa.FixedSizeListArray.from_arrays(column(rows.reshape(-1)), rows.shape[1])


def _column(values: Tensor) -> pa.Array:
    return column(values.detach().cpu().reshape(-1).numpy())


@contextmanager
def _silent() -> Iterator[None]:
    """Give no warnings, of which there would be one for each chunk: the `Notes` of the chunk say what is needed."""
    log = logging.getLogger("dasp")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
