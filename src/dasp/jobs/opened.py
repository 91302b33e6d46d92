"""The files of a job, opened: what is wrong with them is said before torch is imported, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dasp.errors import BadInput
from dasp.jobs import groups
from dasp.jobs.model_files import check_model, check_text_model
from dasp.jobs.options import Options
from dasp.jobs.reading.chunks import open_data, open_like
from dasp.jobs.reading.normalized import Normalized, Scaling, file_of
from dasp.jobs.reading.source import Source
from dasp.jobs.reading.tables import Table

__all__ = ["Opened", "open_files"]

_PREDICTED = "predicted"  # as `dasp.games.target` has it, which needs torch


@dataclass(frozen=True)
class Opened:
    """The rows of a job, and what is asked of them, before any of them was read."""

    options: Options
    source: Source
    target: int | str | None  # an output, "predicted", the name of a column, or None if --target was not given
    label: str | None  # the column with a target for each row
    mask: Any  # the player of every entry, or None
    names: tuple[str, ...] | None  # of the players; None for images and other arrays

    def in_order(self, order: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Opened:
        """The same with the columns of a table in a model's own order."""
        table = file_of(self.source)
        if not isinstance(table, Table):
            return self
        ordered: Source = replace(table, names=order(table.names))
        if isinstance(self.source, Normalized):
            columns = [table.names.index(name) for name in order(table.names)]
            ordered = Normalized(ordered, self.source.scaling.only(columns))
        return _opened(self.options, ordered, self.target, self.label)


def open_files(options: Options) -> Opened:
    """Open all that is read, and refuse what can be refused by its names, columns and shapes."""
    check_model(options.model, options.weights, trust=options.trust)
    check_text_model(options.model, options.tokenizer, texts=options.text is not None)
    target = _target(options.target)
    label = target if isinstance(target, str) and target != _PREDICTED else None
    texts = options.text is not None
    columns = [options.text] if options.text is not None else _list(options.columns)
    source = open_data(options.data, columns, _list(options.drop), options.id, label, limit=options.limit, text=texts)
    if options.normalize:
        source = Normalized(source, Scaling.of(options.normalize).of_shape(source.shape))
    opened = _opened(options, source, target, label)
    if opened.names is None and not texts and options.output.suffix.lower() == ".csv":
        raise BadInput(
            f"--output is {options.output}, but rows of shape {source.shape} have no columns for a CSV file; a name "
            "that ends in .parquet is needed"
        )
    inputs = None if source.names is None else list(source.names)
    for name, path in options.files().items():
        if name in ("baseline", "background"):
            open_like(path, inputs, source.shape, f"--{name}", options.limit)
    if options.output.exists() and not options.output.is_file():
        raise BadInput(f"{options.output}: is not a file, and cannot be replaced")
    return opened


def _opened(options: Options, source: Source, target: int | str | None, label: str | None) -> Opened:
    if options.text is not None:
        return Opened(options, source, target, label, None, None)
    mask, names = groups.groups(options.groups, source.names, source.shape, options.limit)
    if options.players is None:
        groups.check_names(names)
    return Opened(options, source, target, label, mask, names)


def _list(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _target(text: str | None) -> int | str | None:
    """The index of an output, "predicted", the name of a column, or None if --target was not given."""
    try:
        number = None if text is None else int(text)
    except ValueError:
        return text
    if number is not None and number < 0:
        raise BadInput(f"--target is {number}; outputs are counted from 0")
    return number
