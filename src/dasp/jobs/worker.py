"""One worker of a job: it has the model, and makes chunks of explained rows from chunks of rows.

What it makes of a chunk depends on nothing but the chunk, so that it does not matter which worker does it, or when.
"""

from __future__ import annotations

import json
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from dasp.errors import BadInput, OverflowingRows
from dasp.explainer import Explainer
from dasp.explainer.result import Attributed
from dasp.games.request import Request
from dasp.jobs.evaluated import Evaluated
from dasp.jobs.identity import fingerprint
from dasp.jobs.models import load_model
from dasp.jobs.notes import Notes
from dasp.jobs.reading.arrow import column, texts
from dasp.jobs.reading.chunks import Chunk
from dasp.players import named

__all__ = ["Task", "Texts", "Worker", "Works", "explained", "model_of", "outputs_of", "seeded", "silent"]


@dataclass(frozen=True)
class Texts:
    """How texts are explained."""

    tokenizer: Path  # its folder
    players: str
    absent: str | None


@dataclass(frozen=True)
class Task:
    """All that a worker has to know; can be sent to another machine that has the same files."""

    model: str
    weights: Path | None
    trust: bool
    parameters: str  # their fingerprint
    target: int | str | None  # an output, the predicted one, or None: the targets of the rows, or the only output
    names: tuple[str, ...] | None  # of the players; None for images and other arrays
    mask: Any  # the player of every entry, or None
    absent: dict[str, Any]  # baselines or background
    skip: bool  # rows whose output is not finite
    threads: int
    explainer: dict[str, Any]  # further options of an `Explainer`
    tolerance: float | None = None  # the user's, if there is one
    masks: str | None = None  # --players, if each row has players of its own
    with_data: bool = False  # whether the rows are written, too
    inputs: tuple[str, ...] | None = None  # names of the entries, if they have some
    texts: Texts | None = None  # if the rows are texts


class Works(Protocol):
    """A worker, whatever its rows are."""

    model: nn.Module

    def explain(self, chunk: Chunk) -> pa.Table:
        """The rows of the output for a chunk of the input."""


class Worker:
    """A model and its explainer, for chunk after chunk."""

    def __init__(self, task: Task, model: nn.Module | None = None) -> None:
        model = model_of(task) if model is None else model
        torch.set_num_threads(task.threads)
        self.task, self.model = task, model
        mask = None if task.mask is None else torch.from_numpy(task.mask)
        given: dict[str, Any] = {name: torch.from_numpy(np.asarray(value)) for name, value in task.absent.items()}
        explained: Any = model
        if isinstance(model, Evaluated):
            model.use_threads(task.threads)
            explained = model.to(task.explainer["device"]).function
        self.explainer = Explainer(explained, feature_mask=mask, **given, **task.explainer)

    def explain(self, chunk: Chunk) -> pa.Table:
        """The rows of the output for a chunk of the input; those with players of their own one by one."""
        if self.task.masks is None:
            return self._explain(chunk)
        alone = [Notes.off(self._explain_alone(chunk.only(row))) for row in np.eye(len(chunk.values), dtype=bool)]
        tables = [table for _, table in alone if len(table)]
        return sum((notes for notes, _ in alone), Notes()).on(pa.concat_tables(tables) if tables else pa.table({}))

    def _explain_alone(self, row: Chunk) -> pa.Table:
        """A row with players of its own."""
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
        result, finite = self.explained(request)
        large = request.full.isfinite().cpu() & ~finite
        lost = chunk.ids.filter(column(~finite.numpy())).to_pylist()
        if lost and not self.task.skip:
            what, why = ("squares in", "overflow") if large[~finite][0] else ("the model's output for", "is not finite")
            raise BadInput(f"{what} the row of id {lost[0]} {why}; --on-bad-row skip leaves such rows out")
        notes = Notes.of_rows(lost, int(large.sum()))
        if result is None:
            return notes.on(pa.table({}))
        return self._table(chunk.only(finite.numpy()) if lost else chunk, result, notes + self._notes(result))

    def explained(self, request: Request) -> tuple[Attributed | None, Tensor]:
        """Those of the rows explained that can be, if there are any, and which these are."""
        finite = request.full.isfinite().cpu()
        while finite.any():
            rows = finite.nonzero()[:, 0]
            try:
                return self.run(request if finite.all() else request.rows_of(rows)), finite
            except OverflowingRows as error:
                finite[rows[list(error.rows)]] = False
        return None, finite

    def outputs(self, x: Tensor) -> Tensor:
        """The model's outputs for rows, (rows, outputs)."""
        self._seed()
        parts = x.split(self.task.explainer["batch_size"] or len(x))
        return torch.cat([outputs_of(self.model, part, self.explainer.device) for part in parts]).cpu()

    def prepare(self, x: Tensor, target: Any = None) -> Request:
        """What is asked of some rows: the task's target, or one that is given for each row."""
        self._seed()
        return self.explainer.prepare(x, self.task.target if target is None else target)

    def run(self, request: Request) -> Attributed:
        """The rows explained, in the same way every time."""
        self._seed()
        with silent():
            return self.explainer.run(request)

    def _seed(self) -> None:
        seeded(self.task.explainer["seed"])

    def _notes(self, result: Attributed) -> Notes:
        infinite = (~result.values.isfinite()).flatten(1).any(1).sum()
        missed = self._missed(result)
        return Notes(infinite=int(infinite), missed=0 if missed is None else int(missed.sum()), gaps=result.unbalanced)

    def _missed(self, result: Attributed) -> Tensor | None:
        """Which rows missed the user's tolerance; None if there is none, as the method's own is not theirs."""
        if self.task.tolerance is None:
            return None
        return torch.zeros(len(result.gap), dtype=torch.bool) if result.missed is None else result.missed

    def _table(self, chunk: Chunk, result: Attributed, notes: Notes) -> pa.Table:
        rows, missed = len(chunk.values), self._missed(result)
        assert result.evaluations is not None
        columns = {
            "id": chunk.ids,
            "target": column(result.target.numpy().astype(np.int32)),
            "prediction": _column(result.prediction),
            "base_value": _column(result.base.expand(result.prediction.shape)),
            **self._players("", "values", result.values),
            **({} if result.std is None else self._players("sd:", "sd", result.std)),
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
        return notes.on(pa.table(columns, metadata=about or None))

    def _data(self, chunk: Chunk) -> dict[str, pa.Array]:
        """The rows as the file has them, if they are wanted."""
        if chunk.data is None or not self.task.with_data:
            return {}
        flat = chunk.data.reshape(len(chunk.data), -1)
        if self.task.inputs is None:
            return {"data": _lists(flat)}
        return {f"data:{name}": column(flat[:, i]) for i, name in enumerate(self.task.inputs)}

    def _players(self, prefix: str, together: str, values: Tensor) -> dict[str, pa.Array]:
        """A column for each player, or one with lists if they have no names."""
        flat = self._flat(values)
        if self.task.names is None:
            return {together: _lists(flat)}
        return {prefix + name: column(flat[:, i]) for i, name in enumerate(self.task.names)}

    def _flat(self, values: Tensor) -> Any:
        """The values of the players, (rows, players)."""
        flat = values.detach().cpu().reshape(len(values), -1).numpy()
        if self.task.mask is None:
            return flat
        return flat[:, np.unique(self.task.mask.ravel(), return_index=True)[1]]  # an entry of each player


def model_of(task: Task) -> nn.Module:
    """The model of a task, which must be the one that it was planned with."""
    torch.set_num_threads(task.threads)
    model = load_model(task.model, weights=task.weights, trust=task.trust)
    if fingerprint(model) != task.parameters:
        raise BadInput(
            f"{task.model}: has other parameters every time it is made; give --weights, or fix the seed in it"
        )
    return model


def seeded(seed: int) -> None:
    """Start the global generators anew, for models and methods that use them."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - Captum's
    torch.manual_seed(seed)


def explained(worker: Works, chunk: Chunk) -> pa.Table:
    """The rows of the output for a chunk, which may have none; an error says in which rows it was."""
    if not len(chunk.values):
        return pa.table({})
    try:
        return worker.explain(chunk)
    except Exception as error:
        error.add_note(f"while the rows with ids {chunk.ids[0]} to {chunk.ids[-1]} were explained")
        raise


def outputs_of(model: nn.Module, x: Tensor, device: Any = None) -> Tensor:
    """The model's outputs for rows that it is given at once, (rows, outputs)."""
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
    """A list for each row."""
    return pa.FixedSizeListArray.from_arrays(column(rows.reshape(-1)), rows.shape[1])


def _column(values: Tensor) -> pa.Array:
    return column(values.detach().cpu().reshape(-1).numpy())


@contextmanager
def silent() -> Iterator[None]:
    """Without warnings, one for each chunk: what is to be said of it is in its `Notes`."""
    log = logging.getLogger("dasp")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
