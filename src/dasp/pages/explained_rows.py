"""Explanations as the contents of a page: what a job would have written of the same rows.

From here on, a page knows no difference between the output of a job and explanations from Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

import dasp
from dasp.display import channel_axis
from dasp.errors import BadInput
from dasp.formatting import plain
from dasp.jobs.output import StoredOutput
from dasp.jobs.reading.source import column, lists, texts
from dasp.jobs.record import AbsentInputs, JobRecord, JobResult, SkippedRows, Software
from dasp.jobs.summary import Notes
from dasp.pages.contents import Contents

__all__ = ["contents_of"]

_UNKNOWN = "not known"  # the method of somebody else's explanation
_AT_ONCE = 4096  # rows
_ROUNDING = 1e-2  # of the sizes of a row's numbers together


def contents_of(
    explanations: Any, *, title: str | None, ids: Sequence[Any] | None, target: Any, interactions: bool
) -> Contents:
    """Return explanations, one or several whose rows follow each other, as the contents of a page.

    Args:
        explanations: of ours, or a `shap.Explanation`.
        title: of the page.
        ids: the names of the rows.
        target: the output to show, by its number or name, of explanations of all outputs. If not given, the largest of
            each row.
        interactions: whether those of pairs of players are shown.
    """
    given = [explanations] if hasattr(explanations, "values") and hasattr(explanations, "base_values") else explanations
    if not isinstance(given, Iterable) or isinstance(given, (str, dict)):
        raise BadInput(f"an explanation is needed, or a list of them, not a {type(given).__name__}")
    given = list(given)
    parts = [_Part.of(one, target, interactions=interactions) for one in given]
    if not parts:
        raise BadInput("there are no explanations to report: give one at least")
    first = parts[0]
    if any(part.form != first.form for part in parts):
        raise BadInput(
            "the explanations have different models, players, absent inputs, outputs or tolerances: a report has "
            "one kind of rows, so write one for each kind"
        )
    rows = sum(len(part.target) for part in parts)
    if ids is not None and len(ids) != rows:
        raise BadInput(f"there are {len(ids)} ids, but {rows} rows: every row needs one")
    names = list(range(rows)) if ids is None else [plain(one) for one in ids]
    table = pa.concat_tables([part.table() for part in parts])
    table = table.add_column(0, "id", pa.array(names))
    stored = StoredOutput(
        record=_record(parts), result=_result(parts), about=first.about, schema=table.schema, rows=rows,
        batches=lambda chosen: _batches(table, chosen),
    )  # fmt: skip
    assert isinstance(stored.record, JobRecord)
    named = title if title is not None or first.model else "Explanation"
    return Contents(
        Path("explanation"), stored, stored.record, first.labels, named, _picture(given, target), _sentences(given)
    )


def _picture(explanations: Any, target: Any) -> Contents | None:
    """Return the first of several inputs that is an image, if there is one, with its name as the title."""
    parts = [getattr(one, "parts", {}) for one in explanations]
    for name in parts[0]:
        several = [own[name] for own in parts if name in own]
        found = contents_of(several, title=name, ids=None, target=target, interactions=False)
        if found.image is not None:
            return found
    return None


def _sentences(explanations: Any) -> Contents | None:
    """Return texts by their sentences alone, if they are explained by these and by the words within them."""
    several = [getattr(one, "sentences", None) for one in explanations]
    if any(one is None for one in several):
        return None
    return contents_of(several, title="sentences", ids=None, target=None, interactions=False)


def _batches(table: pa.Table, names: list[str]) -> Iterator[pa.RecordBatch]:
    yield from table.select(names).combine_chunks().to_batches(max_chunksize=_AT_ONCE)


def _record(parts: list[_Part]) -> JobRecord:
    part = parts[0]
    options = {"tolerance": part.tolerance, "target": "predicted" if part.largest else None}
    return JobRecord(
        options=options, files={}, software=Software(dasp.__version__, str(torch.__version__)), parameters="",
        outputs="", skipped=SkippedRows(), absent=AbsentInputs("explainer", {"is": part.absent}), method={},
        reason="; ".join(dict.fromkeys(one.reason for one in parts)),
    )  # fmt: skip


def _result(parts: list[_Part]) -> JobResult:
    names = parts[0].output_names
    known = [part.missed for part in parts if part.missed is not None]
    missed = int(sum(part.sum() for part in known))
    outputs = len(names) or (1 if all(part.only for part in parts) else None)
    return JobResult(
        model=parts[0].model, outputs=outputs, output_names=names,
        notes=Notes(missed=missed),
    )  # fmt: skip


@dataclass
class _Part:
    """The rows of one explanation, of one output each."""

    explanation: Any
    values: Any  # (rows, players), (rows, *shape) with channels first, or a list of arrays for texts
    std: Any
    data: Any
    base: NDArray[Any]
    gap: NDArray[Any]
    target: NDArray[Any]
    versus: NDArray[Any] | None = None
    missed: NDArray[Any] | None = None
    evaluations: NDArray[Any] | None = None
    pieces: list[list[str]] | None = None  # of texts
    labels: tuple[str, ...] = ()  # of players that have columns
    mask: NDArray[Any] | None = None  # the player of each entry, (1 or rows, *shape)
    pairs: tuple[NDArray[Any], NDArray[Any]] | None = None  # interactions and their deviations, (rows, pairs)
    output_names: tuple[str, ...] = ()
    largest: bool = False  # the output of each row is its largest
    only: bool = False  # one output is known of, and not that there are others
    model: str = ""
    absent: str = ""
    reason: str = ""
    tolerance: float | None = None
    about: dict[str, str] = field(default_factory=dict)

    @property
    def form(self) -> Any:
        """What parts must have in common to be on one page."""
        told = self.std is None, self.versus is None, self.missed is None, self.evaluations is None, self.pairs is None
        players = self.pieces is None, self.labels, self.about, self.data is None
        return *players, self.output_names, told, self.model, self.absent, self.tolerance

    @staticmethod
    def of(one: Any, target: Any, *, interactions: bool) -> _Part:
        """Read an explanation."""
        values: Any = one.values
        base: Any = np.asarray(one.base_values, dtype=np.float64)
        facts = getattr(one, "facts", None)
        single = getattr(one, "is_row", False) or (base.ndim == 0 and np.ndim(values) == 1)
        single = single or (one.data is None and facts is not None)  # a game
        if one.data is not None and np.ndim(values) > 1 and base.shape == np.shape(values)[-1:]:
            single = single or np.shape(one.data) == np.shape(values)[:-1]  # of all outputs
        is_text = _is_text(one)
        rows = [values] if single else list(values)
        std = getattr(one, "error_std", None)
        deviations = None if std is None else [std] if single else list(std)
        base = base[None] if single else np.broadcast_to(base, (len(rows), *base.shape[1:])).copy()
        several = base.ndim == 2
        totals = np.stack([_total(row, several) + own for row, own in zip(rows, base, strict=True)])
        gap: Any = np.full(totals.shape, np.nan)
        if facts is not None:
            _check_whole(facts, rows, base, totals)
            gap = np.asarray(facts.gap, np.float64).reshape(totals.shape)
        chosen = _chosen(one, target, totals - np.nan_to_num(gap)) if several else None
        if not several and target is not None:
            raise BadInput("target chooses among all outputs, and one is explained here: leave it out")
        if chosen is not None:
            rows, base, gap = _of_outputs(rows, chosen), _of_outputs(base, chosen), _of_outputs(gap, chosen)
            deviations = None if deviations is None else _of_outputs(deviations, chosen)
        part = _Part(one, rows, deviations, None, np.array(base), np.array(gap), np.zeros(len(rows), np.int64))
        part._set_outputs(one, facts, chosen)
        part.largest = chosen is not None and target in (None, "predicted")
        data = None if one.data is None else [one.data] if single else list(one.data)
        if is_text and interactions:
            raise BadInput("a page has no interactions of pieces of texts: explanation.interactions() has those of a "
                           "prompt, where its evaluations were kept")  # fmt: skip
        if is_text:
            part.pieces = [list(map(str, row)) for row in data or ()]
        else:
            part._set_entries(one, data)
        if interactions:
            part._set_pairs(one, chosen, single=single)
        return part

    def _set_outputs(self, one: Any, facts: Any, chosen: NDArray[Any] | None) -> None:
        """Set what is known of the outputs that are explained, and of how they were."""
        named: Any = getattr(one, "output_names", None)
        self.reason = getattr(one, "reason", "")
        if named is None:
            named = ()
        if facts is None:
            if chosen is not None:
                self.target = chosen
                self.output_names = tuple(map(str, named))
            else:
                self.only, self.output_names = True, (named,) if isinstance(named, str) else ()
            return
        rows = len(self.target)
        self.model, self.absent, self.output_names = facts.model, facts.absent, facts.output_names
        place = np.arange(rows), np.zeros(rows, np.int64) if chosen is None else chosen
        self.target = np.asarray(facts.target).reshape(rows, -1)[place]
        self.versus = None if facts.versus is None else np.asarray(facts.versus).reshape(rows, -1)[place]
        self.missed, self.evaluations = facts.missed, facts.evaluations
        first = chosen is None and self.versus is None and not self.target.any()
        self.only = first and not self.output_names
        if self.missed is not None and (tolerance := one.settings["tolerance"]) is not None:
            self.tolerance = tolerance
        else:
            self.missed = None  # nobody asked for a tolerance

    def _set_entries(self, one: Any, data: Any) -> None:
        """Set the values of players that are columns, or entries of an array."""
        regions = getattr(one, "regions", None)
        stacked = np.stack([np.asarray(row, dtype=np.float64) for row in self.values])
        std = None if self.std is None else np.stack([np.asarray(row, dtype=np.float64) for row in self.std])
        if regions is not None:
            self._set_regions(regions, stacked, std)
        elif stacked.ndim == 2:
            names: Any = getattr(one, "feature_names", None)
            if names is None or len(names) != stacked.shape[1]:
                names = [f"input {i}" for i in range(stacked.shape[1])]
            self.labels = tuple(map(str, names))
            self.values, self.std = stacked, std
            self.data = None if data is None else [_cells([row[i] for row in data]) for i in range(stacked.shape[1])]
        else:
            rows = None if data is None else np.stack([np.asarray(row, dtype=np.float64) for row in data])
            self.values, self.std, self.data = _first(stacked), None if std is None else _first(std), rows
            self.data = None if rows is None or rows.shape != stacked.shape else _first(rows)
            shape = json.dumps(list(self.values.shape[1:]))
            self.about = {"shape": shape, "data shape": shape}

    def _set_regions(self, regions: Any, values: NDArray[Any], std: NDArray[Any] | None) -> None:
        """Set the values of regions of images, or windows of series, which are the same in all rows or not."""
        mask, data = np.asarray(regions.numbers), np.asarray(regions.data, dtype=np.float64)
        if regions.spread:
            mask, data = _first(mask), _first(data)
            values, std = _first(values), None if std is None else _first(std)
        alike = len(mask) == 1 or bool((mask == mask[:1]).all())
        self.data, self.about = data, {"data shape": json.dumps(list(data.shape[1:]))}
        if regions.spread:  # a value of each entry, which together are the player's
            values, std = _gathered(values, mask), None if std is None else _gathered(std, mask)
        if alike:
            self.about["players"] = json.dumps(mask[0].ravel().tolist())
            first = np.unique(mask[0].ravel(), return_index=True)[1]
            if regions.spread:
                values = values.reshape(len(values), -1)[:, first]
                std = None if std is None else std.reshape(len(std), -1)[:, first]
        else:
            self.about["shape"], self.mask = self.about["data shape"], mask
        self.values, self.std = values, std

    def _set_pairs(self, one: Any, chosen: NDArray[Any] | None, *, single: bool) -> None:
        """Set the interactions of all pairs of players."""
        found = one.interactions()
        values, std = (np.asarray(part) for part in (found.values, found.error_std))
        if single and len(values) != 1:
            values, std = values[None], std[None]
        if chosen is not None:
            values, std = np.stack(_of_outputs(values, chosen)), np.stack(_of_outputs(std, chosen))
        first, second = np.triu_indices(values.shape[1], 1)
        self.pairs = values[:, first, second], std[:, first, second]

    def table(self) -> pa.Table:
        """Return the rows as a job would have written them, without ids."""
        rows = len(self.target)
        total = np.array([np.sum(row) for row in self.distinct()])
        prediction = self.base + total - np.nan_to_num(self.gap)
        columns: dict[str, Any] = {
            "target": column(self.target.astype(np.int32)),
            **({} if self.versus is None else {"versus": column(self.versus.astype(np.int32))}),
            "prediction": column(prediction),
            "base_value": column(self.base),
            **self._values(),
            "gap": column(self.gap),
            "method": texts(self._methods()),
            **({} if self.evaluations is None else {"evaluations": column(self.evaluations.astype(np.int64))}),
            **({} if self.missed is None else {"missed": column(self.missed)}),
        }
        if self.labels and self.data is not None:
            columns |= {f"data:player {i}": one for i, one in enumerate(self.data)}
        elif self.data is not None and self.pieces is None:
            columns["data"] = _fixed(self.data)
        if self.mask is not None:
            columns["players"] = _fixed(np.broadcast_to(self.mask, (rows, *self.mask.shape[1:])).astype(np.int32))
        if self.pairs is not None:
            columns |= {"interactions": _fixed(self.pairs[0]), "interactions_std": _fixed(self.pairs[1])}
        return pa.table(columns)

    def distinct(self) -> Iterator[Any]:
        """Yield the values of the players of each row, each of them once."""
        for i, row in enumerate(self.values):
            if self.mask is None:
                yield row
            else:
                mask = self.mask[i % len(self.mask)]
                yield row.ravel()[np.unique(mask.ravel(), return_index=True)[1]]

    def _values(self) -> dict[str, Any]:
        """Return values and standard deviations as columns."""
        if self.pieces is not None:
            lengths = [len(own) for own in self.pieces]
            std = [np.full(n, np.nan) for n in lengths] if self.std is None else self.std
            return {
                "pieces": lists(texts([piece for own in self.pieces for piece in own]), lengths),
                "values": lists(column(np.concatenate(self.values).astype(np.float64)), lengths),
                "error_std": lists(column(np.concatenate(std).astype(np.float64)), lengths),
            }
        if self.labels:
            parts = {"player ": self.values, "error_std:player ": self.std}
            return {f"{name}{i}": column(np.ascontiguousarray(part[:, i]))
                    for name, part in parts.items() if part is not None for i in range(part.shape[1])}  # fmt: skip
        return {"values": _fixed(self.values), **({} if self.std is None else {"error_std": _fixed(self.std)})}

    def _methods(self) -> list[str]:
        found = [choice.method for choice in getattr(self.explanation, "choices", ())]
        rows = len(self.target)
        return found if len(found) == rows else (found[:1] or [_UNKNOWN]) * rows


def _is_text(one: Any) -> bool:
    """True if the data are pieces of texts, and no columns."""
    names = getattr(one, "feature_names", None)
    if names is None or not len(names):
        return False
    if isinstance(names[0], (list, tuple, np.ndarray)):
        return True
    alone = getattr(one, "is_row", False) and one.data is not None
    return alone and list(map(str, names)) == list(map(str, one.data))


def _check_whole(facts: Any, rows: list[Any], base: Any, totals: Any) -> None:
    """Refuse values that do not lead from the base to the prediction, as those of some columns or multiples of them."""
    fits = np.size(facts.gap) == totals.size
    if fits:
        gap, prediction = (np.asarray(part, np.float64).reshape(totals.shape) for part in (facts.gap, facts.prediction))
        sizes = np.array([float(np.abs(np.asarray(row, dtype=np.float64)).sum()) for row in rows])
        sizes = sizes.reshape(-1, *[1] * (totals.ndim - 1)) + np.abs(base) + np.abs(prediction)
        missed = np.abs(totals - gap - prediction) > _ROUNDING * sizes
        fits = not bool((missed & np.isfinite(gap) & np.isfinite(totals)).any())
    if not fits:
        raise BadInput(
            "a page says how the values of a row lead to its prediction, and these do not, as some players or outputs "
            "were left out or values changed: report the whole explanation, some of its rows, or one of its outputs"
        )


def _total(row: Any, several: bool) -> Any:
    array = np.asarray(row, dtype=np.float64)
    return array.reshape(-1, array.shape[-1]).sum(0) if several else array.sum()


def _chosen(one: Any, target: Any, predictions: NDArray[Any]) -> NDArray[Any]:
    """Return the place of the output of each row that is shown, among all that were explained."""
    rows, outputs = predictions.shape
    if target is None or target == "predicted":
        return predictions.argmax(1)
    given = getattr(one, "output_names", None)
    names = [] if given is None else list(map(str, given))
    if isinstance(target, str) and target not in names:
        listed = ", ".join(names) or "they have no names"
        raise BadInput(f"target is {target!r}, which is none of the outputs: {listed}")
    if not isinstance(target, (str, int, np.integer)):
        raise BadInput(f"target is the number or the name of an output, or 'predicted', not a {type(target).__name__}")
    number = names.index(target) if isinstance(target, str) else int(target)
    if not 0 <= number < outputs:
        raise BadInput(f"target is {number}, and outputs are 0 to {outputs - 1}")
    return np.full(rows, number)


def _of_outputs(rows: Any, chosen: NDArray[Any]) -> list[Any]:
    """Return of each row the values of one output, which is the last dimension."""
    return [np.asarray(row)[..., output] for row, output in zip(rows, chosen, strict=True)]


def _first(rows: NDArray[Any]) -> NDArray[Any]:
    """Return images with their channels first."""
    return np.moveaxis(rows, 3, 1) if rows.ndim == 4 and channel_axis(rows.shape[1:]) == 2 else rows


def _gathered(rows: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    """Return for every entry the sum over the entries of its player."""
    found = np.empty_like(rows)
    for i, row in enumerate(rows):
        own = mask[i % len(mask)].ravel()
        found[i] = np.bincount(own, weights=row.ravel())[own].reshape(row.shape)
    return found


def _cells(values: list[Any]) -> pa.Array:
    """Return what players have in every row: numbers, or texts if one of them is none."""
    there = [None if value is None or value != value else value for value in values]  # noqa: PLR0124 (NaN)
    try:
        return pa.array([None if value is None else float(value) for value in there], pa.float64())
    except (TypeError, ValueError):
        return pa.array([None if value is None else str(value) for value in there], pa.string())


def _fixed(rows: NDArray[Any]) -> pa.Array:
    """Return a list for each row."""
    flat = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return pa.FixedSizeListArray.from_arrays(column(flat.reshape(-1)), flat.shape[1])
