"""One worker of a job on texts: as `dasp.jobs.worker` has it, with pieces of texts instead of entries of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from dasp.errors import BadInput, OverflowingRows
from dasp.explainer import TextExplainer
from dasp.explainer.explanation import Attributions
from dasp.games.target import Selection
from dasp.jobs.hugging_face import read_tokenizer
from dasp.jobs.notes import Notes
from dasp.jobs.reading.arrow import column, lists, texts
from dasp.jobs.reading.chunks import Chunk
from dasp.jobs.worker import Task, Worker, Works, model_of, seeded, silent

__all__ = ["TextWorker", "worker_of"]

class TextWorker:
    """A model, its tokenizer and their explainer, for chunk after chunk."""

    def __init__(self, task: Task, model: nn.Module | None = None) -> None:
        assert task.texts is not None
        model = model_of(task) if model is None else model
        torch.set_num_threads(task.threads)
        own = task.explainer
        self.task, self.model = task, model.to(own["device"])
        self.explainer = TextExplainer(
            self.model, read_tokenizer(task.texts.tokenizer, task.trust), players=task.texts.players,
            baselines=task.texts.absent, method=own["method"], tolerance=own["tolerance"],
            max_evaluations=own["max_evaluations"], batch_size=own["batch_size"], seed=own["seed"],
        )  # fmt: skip

    def outputs(self, some: Sequence[str]) -> Tensor:
        """The model's outputs for texts, (texts, outputs)."""
        seeded(self.task.explainer["seed"])
        with silent():
            return self.explainer.outputs(some).reshape(len(some), -1)

    def explain(self, chunk: Chunk) -> pa.Table:
        """The rows of the output for a chunk of the input."""
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
            _table(kept.ids, rows, tolerated=self.task.tolerance is not None)
        )

    def explained(self, text: str, target: Any) -> Attributions | None:
        """A text explained, in the same way every time; None if outputs are not finite."""
        outputs = self.outputs([text])
        if not Selection.of(outputs, target)(outputs).isfinite().all():
            return None
        seeded(self.task.explainer["seed"])
        try:
            with silent():
                return self.explainer.attribute([text], target)
        except OverflowingRows:
            return None

    def _named(self, id_: Any, text: str, target: Any) -> Attributions | None:
        """The same, with the id in errors."""
        try:
            return self.explained(text, target)
        except BadInput as error:
            raise BadInput(f"the text of id {id_}: {error}") from error

    def _notes(self, some: Sequence[str], rows: list[Attributions]) -> Notes:
        infinite = sum(not bool(row.values[0].isfinite().all()) for row in rows)
        return Notes(infinite=infinite, missed=sum(map(_missed, rows)), cut=sum(map(self._is_cut, some)))

    def _is_cut(self, text: str) -> bool:
        vocabulary = self.explainer.vocabulary
        assert vocabulary is not None
        return len(vocabulary.tokenizer(text, verbose=False)["input_ids"]) > vocabulary.limit


def _missed(row: Attributions) -> bool:
    return row.missed is not None and bool(row.missed.any())


def worker_of(task: Task) -> Works:
    """The worker for a task."""
    return Worker(task) if task.texts is None else TextWorker(task)


def _table(ids: pa.Array, rows: list[Attributions], *, tolerated: bool) -> pa.Table:
    pieces = [row.pieces[0] for row in rows if row.pieces is not None]
    lengths = [len(own) for own in pieces]
    values = torch.cat([row.values[0] for row in rows]).double().numpy()
    unknown = [[torch.full_like(row.values[0], torch.nan)] for row in rows]  # one permutation has no deviation
    sd = torch.cat([(row.std or none)[0] for row, none in zip(rows, unknown, strict=True)]).double().numpy()
    return pa.table({
        "id": ids,
        "target": _column([row.target for row in rows], np.int32),
        "prediction": _column([row.prediction for row in rows], np.float32),
        "base_value": _column([row.base for row in rows], np.float32),
        "pieces": lists(texts([piece for own in pieces for piece in own]), lengths),
        "values": lists(column(values), lengths),
        "sd": lists(column(sd), lengths),
        "gap": _column([row.gap for row in rows], np.float64),
        "method": texts([row.method for row in rows]),
        "evaluations": _column([row.evaluations for row in rows], np.int64),
        **({"missed": column(np.array([_missed(row) for row in rows]))} if tolerated else {}),
    })  # fmt: skip


def _column(parts: list[Any], dtype: Any) -> pa.Array:
    return column(torch.cat([part.reshape(-1).cpu() for part in parts]).numpy().astype(dtype))
