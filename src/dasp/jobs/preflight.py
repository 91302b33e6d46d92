"""The check of a job before torch is imported, which takes seconds: most mistakes are found here.

Model, data and all other files are looked at once, and what is known of them goes to the plan of the job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dasp.errors import BadInput
from dasp.jobs.absent_inputs import Normalization, check_player_names, players_of_file
from dasp.jobs.options import Options
from dasp.jobs.reading.chunks import open_data, open_like
from dasp.jobs.reading.source import Source
from dasp.jobs.reading.tables import (
    PREDICTED,
    TABLES,
    TableHeader,
    TableSource,
    outputs_listed,
    read_header,
    wrong_with,
)
from dasp.models.model_files import CONFIG, check_model, files_in, is_factory

__all__ = ["Preflight", "check_output_number", "names_of_outputs", "preflight"]

SECOND = "second"
_PICKLES = (".joblib", ".pkl", ".pickle")  # of models that may take columns of texts
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
_PLACEHOLDER = re.compile(r"LABEL_\d+")


@dataclass(frozen=True)
class Preflight:
    """A job whose files are open and whose options make sense, before any row was read."""

    options: Options
    source: Source
    normalization: Normalization | None
    target: int | str | None  # an output, "predicted", the name of a column, or None if --target was not given
    label: str | None  # the column with a target for each row
    versus: int | str | None  # the output that is subtracted, "predicted" or "second"
    mask: Any  # the player of every entry, or None
    names: tuple[str, ...] | None  # of the players; None for images and other arrays
    classes: tuple[str, ...] | None  # the names of the outputs, if they are known
    like: dict[str, Source]  # the files of --baselines and --background

    def in_order(self, order: Callable[[tuple[str, ...]], tuple[str, ...]]) -> Preflight:
        """Return the same with the columns of a table in a model's own order."""
        table = self.source
        if not isinstance(table, TableSource):
            return self
        names = order(table.names)
        columns = [table.names.index(name) for name in names]
        return replace(
            self,
            source=replace(table, names=names),
            normalization=self.normalization and self.normalization.only(columns),
            mask=None if self.mask is None else self.mask[columns],
            names=names if self.mask is None and self.names is not None else self.names,
            like={
                name: replace(one, names=names) if isinstance(one, TableSource) else one
                for name, one in self.like.items()
            },
        )


def preflight(options: Options) -> Preflight:
    """Open all that is read, and refuse what can be refused by its names, columns and shapes."""
    check_model(options.model, options.weights, trust=options.trust)
    _check_text_model(options.model, options.tokenizer, texts=options.text is not None)
    classes = names_of_outputs(options)
    header = _header(options, classes)
    target = _target(options, classes, header)
    label = target if isinstance(target, str) and target != PREDICTED else None
    texts = options.text is not None
    columns = [options.text] if options.text is not None else _list(options.columns)
    raw = Path(options.model).suffix.lower() in _PICKLES and not texts
    source = open_data(
        options.data, columns, _list(options.drop), options.id, label,
        limit=options.limit, text=texts, classes=classes, header=header, raw=raw,
    )  # fmt: skip
    normalization = Normalization.of(options.mean, options.std, source.shape)
    files, (mask, names) = options.files(), (None, None if texts else source.names)
    if "players" in files:
        mask, names = players_of_file(files["players"], source.names, source.shape, options.limit)
    if options.players is None or "players" in files:
        check_player_names(names)
    if source.names is None and not texts and options.output.suffix.lower() == ".csv":
        raise BadInput(
            f"--output is {options.output}, but rows of shape {source.shape} have no columns for a CSV file; a name "
            "that ends in .parquet is needed"
        )
    inputs = None if source.names is None else list(source.names)
    like: dict[str, Source] = {
        name: open_like(files[name], inputs, source.shape, f"--{name}", options.limit, raw=raw)
        for name in ("baselines", "background")
        if name in files
    }
    if options.output.exists() and not options.output.is_file():
        raise BadInput(f"{options.output}: is not a file, and cannot be replaced")
    versus = _versus(options, classes)
    if raw:
        source, like = _labelled(options, source, like)
    return Preflight(options, source, normalization, target, label, versus, mask, names, classes, like)


def _labelled(options: Options, source: Source, like: dict[str, Source]) -> tuple[Source, dict[str, Source]]:
    """Return the files with the labels that their columns of texts have together, as they are numbered by these."""
    tables = [one for one in (source, *like.values()) if isinstance(one, TableSource)]
    found = [table.labels_within() for table in tables]
    names = {name for own in found for name in own}
    if not names:
        return source, like
    if options.mean is not None or options.std is not None:
        raise BadInput(f"--mean and --std are for numbers, and column {min(names)!r} has texts: leave them out")
    if not like or options.baselines == "mean":
        raise BadInput(
            f"column {min(names)!r} has texts: --drop leaves it out, --id takes it as the rows' name; if the model "
            "takes it, say what an absent input is, by --background with a file of some rows, or --baselines with one "
            "of a row"
        )
    for table, own in zip(tables, found, strict=True):
        if missing := names - own.keys():
            raise BadInput(f"{table.file}: column {min(missing)!r} has numbers, and texts in another file")
    labels = {name: tuple(sorted(set().union(*(own[name] for own in found)))) for name in sorted(names)}

    def with_labels(one: Source) -> Source:
        return replace(one, labels=labels) if isinstance(one, TableSource) else one

    return with_labels(source), {name: with_labels(one) for name, one in like.items()}


def names_of_outputs(options: Options) -> tuple[str, ...] | None:
    """Return the names of all outputs in their order, if they are known: those of --output-names, or those that the
    config of a Hugging Face model has."""
    if options.output_names is None:
        return _of_config(Path(options.model) / CONFIG)
    names = tuple(name.strip() for name in options.output_names.split(","))
    if wrong := wrong_with(names):
        raise BadInput(f"--output-names: {wrong}")
    return names


def check_output_number(options: Options, names: tuple[str, ...] | None, outputs: int) -> None:
    """Refuse names that are more or fewer than a model's outputs."""
    if names is None or len(names) == outputs:
        return
    number = f"{len(names)} name{'s' * (len(names) > 1)}"
    has = f"the model has {outputs} output{'s' * (outputs > 1)}; {outputs_listed(None, outputs)}"
    if options.output_names is None:
        raise BadInput(f"{Path(options.model) / CONFIG} has {number}, but {has}: name them by --output-names")
    raise BadInput(f"--output-names has {number}, but {has}")


def _check_text_model(source: str | Path, tokenizer: Path | None, *, texts: bool) -> None:
    """Refuse a model that takes no texts where there are some, or takes nothing else; and what is no tokenizer."""
    folder = Path(source).is_dir()
    if folder and not texts:
        raise BadInput(f"{source} is a folder of a Hugging Face model, which takes texts: name their column by --text")
    if not texts:
        return
    if not folder and not is_factory(source):
        raise BadInput(
            f"{source}: a model of texts is a folder of a Hugging Face model, or a factory of a module that takes "
            "input_ids and attention_mask"
        )
    if tokenizer is None and not folder:
        raise BadInput(f"{source} has no tokenizer of its own: name the folder of one by --tokenizer")
    where = Path(source) if tokenizer is None else tokenizer
    if not where.is_dir():
        raise BadInput(f"--tokenizer: {where}: there is no such folder")
    if not any(file.name in _TOKENIZERS or file.suffix == ".model" for file in files_in(where)):
        raise BadInput(f"{where}: has no tokenizer, such as a tokenizer.json; name the folder of one by --tokenizer")


def _of_config(file: Path) -> tuple[str, ...] | None:
    """Return the names that a config has for all outputs, unless they are placeholders, or cannot be
    names."""
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
        labels = {int(place): str(name).strip() for place, name in config["id2label"].items()}
        names = tuple(labels[place] for place in range(len(labels)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # no model, or no such names
        return None
    return None if not names or all(map(_PLACEHOLDER.fullmatch, names)) or wrong_with(names) else names


def _header(options: Options, classes: tuple[str, ...] | None) -> TableHeader | None:
    """Return the header of a table if --target may be a column though a model's config has it as a name, too. What the
    user calls an output by --output-names is an output."""
    unsure = classes and options.target in classes and options.output_names is None
    return read_header(options.data, options.limit) if unsure and options.data.suffix.lower() in TABLES else None


def _target(options: Options, classes: tuple[str, ...] | None, header: TableHeader | None) -> int | str | None:
    """Return the index of an output, "predicted", the name of a column, or None if --target was not given."""
    text = options.target
    if classes and text in classes and not (header and text in header.types):
        return classes.index(text)
    try:
        number = None if text is None else int(text)
    except ValueError:
        return text
    if number is not None and number < 0:
        raise BadInput(f"--target is {number}; outputs are counted from 0")
    return number


def _versus(options: Options, classes: tuple[str, ...] | None) -> int | str | None:
    """Return the index of the output to compare with, "predicted" or "second", or None if --versus was not given."""
    text = options.versus
    if text is None or text in (classes or ()):
        return None if text is None else (classes or ()).index(text)
    if text in (PREDICTED, SECOND):
        return text
    if not text.isdecimal():
        listed = "name the outputs by --output-names" if classes is None else f"they are {', '.join(classes[:10])}"
        raise BadInput(f"--versus is {text!r}, which is none of the model's outputs: {listed}")
    return int(text)


def _list(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None
