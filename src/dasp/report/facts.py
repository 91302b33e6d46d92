"""What was explained, how, and how far the values may be off, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from dasp.jobs.options import name_of
from dasp.jobs.record import AbsentInputs
from dasp.report.contents import Contents
from dasp.report.importance import Known
from dasp.words import INTERVAL, number

__all__ = ["Fact", "Verdict", "facts", "options_of", "verdict"]

_FEW = 8
_GOOD = 0.25  # of the typical size of a value: errors beyond it are a warning


@dataclass(frozen=True)
class Fact:
    """A line of the page: what, how much, and what else is to be said of it."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Verdict:
    """How far the values may be off, in a sentence."""

    text: str
    good: bool


def verdict(contents: Contents, known: Known) -> Verdict:
    """What a reader has to know first."""
    if not contents.has_errors or not np.isfinite(known.deviation).any():
        return Verdict(
            "The errors of these values are not known: the method states none. With the method “auto”, every value has "
            "an error bar; dasp.audit measures how far values are off.",
            good=False,
        )
    unknown = int((~np.isfinite(known.deviation)).sum())
    if not unknown and not known.deviation.any():
        how = "all coalitions of players were evaluated" if known.methods == ["Exact"] else "their error bars are 0"
        return Verdict(f"These Shapley values are exact: {how}.", good=True)
    half, share = INTERVAL * float(np.nanmedian(known.typical)), _share(known)
    text = (
        f"These values are estimates. The true Shapley value lies within ±{number(half, digits=2)} of a value, in the "
        f"median over rows, with a probability of 95 %: that is {number(100 * share, digits=2)} % of the typical size "
        "of a value."
    )
    if unknown:
        text += f" The errors of {unknown:,} of {known.rows:,} rows are not known."
    return Verdict(text, good=share <= _GOOD and not unknown)


def _share(known: Known) -> float:
    """The typical half of an interval, beside the typical size of a value."""
    there = (known.size > 0) & np.isfinite(known.typical)
    return float(np.median(INTERVAL * known.typical[there] / known.size[there])) if there.any() else 1.0


def facts(contents: Contents, known: Known) -> Iterator[Fact]:
    """What there is to know about the whole."""
    record = contents.record
    left_out = record.skipped.number + contents.result.notes.left_out
    rows = _of_rows(known.rows) + (f", {left_out:,} left out" if left_out else "")
    yield Fact("Model", contents.files["MODEL"], f"parameters {record.parameters[:12]}")
    yield Fact("Data", contents.files["DATA"], rows)
    yield Fact("Explained output", _target(contents, known), "")
    yield Fact("Players", *_players(contents, known))
    yield Fact("An absent input is", _absent(record.absent), "")
    yield Fact("Method", ", ".join(known.methods), _capital(record.reason))
    if len(known.evaluations):
        low, middle, high = (int(x) for x in np.percentile(known.evaluations, (0, 50, 100)))
        same = "the same for every row" if low == high else f"from {low:,} to {high:,}"
        yield Fact("Evaluations for a row", f"{middle:,}", same if known.rows > 1 else "")
    if np.isfinite(known.deviation).any():
        yield Fact("Largest interval of a row", *_errors(known))
    gap = float(np.nanmax(np.abs(known.gap), initial=0.0))
    sizes = float(np.nanmax(np.abs(known.change), initial=0.0))
    beside = f"the output changes by up to {number(sizes)}"
    yield Fact("Largest completeness gap", number(gap, digits=2), f"{beside}; values that add up can still be wrong")
    tolerance = record.options.get("tolerance")
    missed = f"{int(known.missed.sum()):,} of {known.rows:,} rows missed it" if len(known.missed) else ""
    yield Fact("Tolerance", "none was asked for" if tolerance is None else f"{tolerance:g}", missed)


def _of_rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _target(contents: Contents, known: Known) -> str:
    outputs = contents.result.outputs
    if outputs == 1:
        return "the only one"
    if len(known.targets) == 1:
        named = contents.output(known.targets[0]) if contents.outputs else f"number {known.targets[0]}"
        return f"{named}, of {outputs} outputs" if outputs else named
    listed = ", ".join(map(contents.output, known.targets[:_FEW])) + (", …" if len(known.targets) > _FEW else "")
    given = contents.record.options.get("target")
    how = "the largest of each row" if given in (None, "predicted") else f"by the column {given!r}"
    return f"{how} ({listed})"


def _players(contents: Contents, known: Known) -> tuple[str, str]:
    counts = known.counts
    low, high = int(counts.min()), int(counts.max())
    told = f"{low:,}" if low == high else f"from {low:,} to {high:,}"
    shape = contents.shape
    if contents.is_text:
        return told, "pieces of a text"
    if shape is not None:
        each = ": each channel of a pixel is one" if contents.image and shape[0] > 1 and contents.mask is None else ""
        each = "" if contents.own_players else each
        return told, f"in rows of {' × '.join(map(str, shape))}{each}"
    return told, "columns" if contents.mask is None else f"groups of {len(contents.mask):,} columns"


def _absent(absent: AbsentInputs) -> str:
    given = " ".join(f"{name} {value}" for name, value in absent.options.items())
    if absent.kind == "text":
        return f"replaced by: {absent.options['absent']}"
    if absent.kind == "background":
        return f"taken from the rows of the {given}, and outputs are averaged"
    if absent.value is not None:
        return f"{number(absent.value)} ({given})"
    return "the average of its column (baselines mean)" if given == "baselines mean" else given


def _errors(known: Known) -> tuple[str, str]:
    halves = INTERVAL * known.deviation
    most = float(np.nanmax(halves, initial=0.0))
    if not np.nan_to_num(halves, nan=1.0).any():
        return "0", "the values are exact"
    return f"±{number(float(np.nanmedian(halves)), digits=2)}", f"in the median; ±{number(most, digits=2)} at most"


def options_of(contents: Contents) -> dict[str, str]:
    """The options of the job that were not left at their defaults, and the versions."""
    record = contents.record
    versions = {name: version for name, version in asdict(record.software).items() if version is not None}
    given = {name: value for name, value in {**record.options, **record.files}.items() if value not in (None, False)}
    digests = {"the model's parameters": record.parameters, "the model's outputs": record.outputs}
    return {**versions, **{name_of(name): str(value) for name, value in given.items()}, **digests}
