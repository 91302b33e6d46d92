"""The report from beginning to end: read an output, and write the page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import dasp
from dasp.errors import BadInput, line_of
from dasp.jobs.options import check_page
from dasp.report import pictures
from dasp.report.contents import Contents, read
from dasp.report.details import MOST_ROWS, Details, details_of
from dasp.report.facts import facts, options_of, verdict
from dasp.report.importance import Known, known_of
from dasp.report.page import render, rounded

__all__ = ["write_report"]

_BARS = 15  # players that are seen at once; all others are below a fold
_MOST_BARS = 500


def write_report(output: Path, page: Path, *, most: int = MOST_ROWS) -> int:
    """Write the page of an output of `dasp explain`, with at most so many of its rows; returns how many these are."""
    check_page(page)
    contents = read(output)
    known = known_of(contents)
    details = details_of(contents, known, most)
    text = _page(contents, known, details)
    temporary = page.with_name(f".{page.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(page)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BadInput(f"{page}: cannot be written: {line_of(error)}") from error
    return len(details.rows)


def _page(contents: Contents, known: Known, details: Details) -> str:
    bars = [] if _has_places(details.kind) else known.largest
    there = [player for player in bars if player.number]
    longest = max((player.mean for player in there), default=0.0)
    scale = min(2 * longest, max((player.mean + player.half for player in there), default=0.0)) or 1.0
    estimated = bool(np.nan_to_num(known.deviation).any())
    return render(
        "report.html",
        script="report.js",
        title=f"Why {contents.files['MODEL']} said that",
        contents=contents,
        known=known,
        kind=details.kind,
        estimated=estimated,
        verdict=verdict(contents, known),
        warnings=[_capital(line.removeprefix("warning: ")) for line in _warnings(contents, known)],
        facts=list(facts(contents, known)),
        options=options_of(contents),
        bars=bars[:_BARS],
        more=bars[_BARS:_MOST_BARS],
        left=max(0, len(bars) - _MOST_BARS),
        scale=scale,
        sizes=_sizes(contents, known, details.kind),
        shown=len(details.rows),
        version=dasp.__version__,
        data={
            "kind": details.kind,
            "players": [player.name for player in known.players] if details.kind == "table" else [],
            "rows": details.rows,
            "swarm": details.swarm,
            "profile": _profile(known, details.kind),
            "outputs": {target: contents.output(target) for target in known.targets},
        },
    )


def _warnings(contents: Contents, known: Known) -> list[str]:
    record, zeros = contents.record, contents.record.absent.warning
    return [*([zeros] if zeros else []), *contents.result.notes.lines(known.rows, record.options.get("tolerance"))]


def _capital(line: str) -> str:
    return line[:1].upper() + line[1:]


def _has_places(kind: str) -> bool:
    return kind in ("image", "sequence", "series")


def _sizes(contents: Contents, known: Known, kind: str) -> dict[str, Any] | None:
    """The mean |value| of every place of an image as a picture."""
    if kind != "image" or not known.players or contents.image is None:
        return None
    means = pictures.map_of(np.array([player.mean for player in known.players]), contents.mask, contents.image)
    most = float(means.max()) or 1.0
    halves = [player.half for player in known.players]
    grown = pictures.enlarged(pictures.mapped(means, most), pictures.factor_of(*means.shape))
    return {"address": pictures.address(grown), "most": most, "half": float(np.median(halves))}


def _profile(known: Known, kind: str) -> list[list[float | None]]:
    """The mean |value| of every place of a sequence or series, with the half of its interval."""
    if kind not in ("sequence", "series"):
        return []
    return [[rounded(player.mean), rounded(player.half)] for player in known.players]
