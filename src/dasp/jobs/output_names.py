"""The names of a model's outputs: those of --output-names, or those that the config of a Hugging Face model has. What
can be known without torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dasp.errors import BadInput
from dasp.jobs.model_files import CONFIG
from dasp.jobs.options import Options
from dasp.jobs.reading.classes import said, wrong_with

__all__ = ["check_number", "names_of_outputs"]

_PLACEHOLDER = re.compile(r"LABEL_\d+")


def names_of_outputs(options: Options) -> tuple[str, ...] | None:
    """The names of all outputs in their order, if they are known."""
    if options.output_names is None:
        return _of_config(Path(options.model) / CONFIG)
    names = tuple(name.strip() for name in options.output_names.split(","))
    wrong = wrong_with(names)
    if wrong:
        raise BadInput(f"--output-names: {wrong}")
    return names


def check_number(options: Options, names: tuple[str, ...] | None, outputs: int) -> None:
    """Refuse names that are more or fewer than a model's outputs."""
    if names is None or len(names) == outputs:
        return
    number = f"{len(names)} name{'s' * (len(names) > 1)}"
    has = f"the model has {outputs} output{'s' * (outputs > 1)}; {said(None, outputs)}"
    if options.output_names is None:
        raise BadInput(f"{Path(options.model) / CONFIG} has {number}, but {has}: name them by --output-names")
    raise BadInput(f"--output-names has {number}, but {has}")


def _of_config(file: Path) -> tuple[str, ...] | None:
    """The names that a config has for all outputs, unless they are placeholders, or nothing to tell outputs by."""
    try:
        config: Any = json.loads(file.read_text(encoding="utf-8"))
        labels = {int(place): str(name).strip() for place, name in config["id2label"].items()}
        names = tuple(labels[place] for place in range(len(labels)))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):  # no model, or no such names
        return None
    return None if not names or all(map(_PLACEHOLDER.fullmatch, names)) or wrong_with(names) else names
