"""The files of a job, opened: what is wrong with them is said before torch is imported, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dasp.errors import BadInput
from dasp.jobs import groups
from dasp.jobs.model_files import check_model, check_text_model
from dasp.jobs.options import Options
from dasp.jobs.output_names import names_of_outputs
from dasp.jobs.reading.chunks import open_data, open_like
from dasp.jobs.reading.classes import PREDICTED
from dasp.jobs.reading.normalized import Normalized, Scaling, file_of
from dasp.jobs.reading.source import Source
from dasp.jobs.reading.tables import TABLES, Table, column_types

__all__ = ["Opened", "open_files"]


@dataclass(frozen=True)
class Opened:
    """The rows of a job, and what is asked of them, before any of them was read."""

    options: Options
    source: Source
    target: int | str | None  # an output, "predicted", the name of a column, or None if --target was not given
    label: str | None  # the column with a target for each row
    mask: Any  # the player of every entry, or None
    names: tuple[str, ...] | None  # of the players; None for images and other arrays
    classes: tuple[str, ...] | None  # the names of the outputs, if they are known

    def in_order(self, order: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Opened:
        """The same with the columns of a table in a model's own order."""
        table = file_of(self.source)
        if not isinstance(table, Table):
            return self
        ordered: Source = replace(table, names=order(table.names))
        if isinstance(self.source, Normalized):
            columns = [table.names.index(name) for name in order(table.names)]
            ordered = Normalized(ordered, self.source.scaling.only(columns))
        return _opened(self.options, ordered, self.target, self.label, self.classes)


def open_files(options: Options) -> Opened:
    """Open all that is read, and refuse what can be refused by its names, columns and shapes."""
    check_model(options.model, options.weights, trust=options.trust)
    check_text_model(options.model, options.tokenizer, texts=options.text is not None)
    classes = names_of_outputs(options)
    target = _target(options, classes)
    label = target if isinstance(target, str) and target != PREDICTED else None
    texts = options.text is not None
    columns = [options.text] if options.text is not None else _list(options.columns)
    source = open_data(
        options.data, columns, _list(options.drop), options.id, label, limit=options.limit, text=texts, classes=classes
    )
    if options.normalize:
        source = Normalized(source, Scaling.of(options.normalize).of_shape(source.shape))
    opened = _opened(options, source, target, label, classes)
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


def _opened(
    options: Options, source: Source, target: int | str | None, label: str | None, classes: tuple[str, ...] | None
) -> Opened:
    if options.text is not None:
        return Opened(options, source, target, label, None, None, classes)
    mask, names = groups.groups(options.groups, source.names, source.shape, options.limit)
    if options.players is None:
        groups.check_names(names)
    return Opened(options, source, target, label, mask, names, classes)


def _list(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _target(options: Options, classes: tuple[str, ...] | None) -> int | str | None:
    """The index of an output, "predicted", the name of a column, or None if --target was not given."""
    text = options.target
    if classes and text in classes and not _is_column(options):
        return classes.index(text)
    try:
        number = None if text is None else int(text)
    except ValueError:
        return text
    if number is not None and number < 0:
        raise BadInput(f"--target is {number}; outputs are counted from 0")
    return number


def _is_column(options: Options) -> bool:
    """Whether --target is a column of the data though a model's config has it as a name, too. What the user calls an
    output by --output-names is an output."""
    if options.output_names is not None or options.data.suffix.lower() not in TABLES:
        return False
    return options.target in column_types(options.data, options.limit)
