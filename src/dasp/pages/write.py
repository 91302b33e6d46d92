"""The report from beginning to end: read an output of `dasp explain`, and write its page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dasp
from dasp.errors import BadInput, line_of
from dasp.formatting import INTERVAL, display_name, shown, within
from dasp.jobs.options import check_page
from dasp.pages.contents import Contents, read
from dasp.pages.explained_rows import contents_of
from dasp.pages.render import render, rounded
from dasp.pages.rows import MOST_ROWS, ImageRows, PageRows, page_rows, shade, size_picture
from dasp.pages.statistics import (
    Pair,
    Player,
    Statistics,
    absent_of,
    capital,
    facts,
    options_of,
    statistics_of,
    target_of,
    verdict,
)

__all__ = ["report", "write_report"]

_REGIONS = 8  # of images, that have bars
_BARS = 15  # players that are seen at once; all others are below a fold
_MOST_BARS = 500
_MOST_PAIRED = 12  # players of the heat map
_TOLD = 3  # pairs in words
_NAME = 40  # characters of the page's name that the file has before it is whole: no system's names are too short for it


def write_report(output: Path, page: Path, *, most: int = MOST_ROWS) -> int:
    """Write the page of an output of `dasp explain`, with at most so many of its rows; return how many it shows."""
    check_page(page)
    return _write(read(output), page, most)


def report(
    explanations: Any,
    path: str | Path,
    *,
    title: str | None = None,
    ids: Sequence[Any] | None = None,
    target: Any = None,
    interactions: bool = False,
    rows: int | None = None,
) -> Path:
    """Write a page for people about explanations, in one file that needs no network: how far the values may be off,
    which players matter over all rows, and every row with its waterfall, picture, text or series. It is the page of
    `dasp report`.

    Args:
        explanations: an explanation of an `Explainer`, `TextExplainer` or `explain_game` (or any `shap.Explanation`),
            or a list of them, whose rows follow each other. Of a model with several inputs, the page has the players
            of all of them.
        path: the page, which ends in `.html`.
        title: of the page. By default it names the model.
        ids: names of the rows. By default they are counted from 0.
        target: the output to show, by its number or name, if all outputs are explained. By default the largest of
            each row.
        interactions: show which pairs of players interact, too, where evaluations of coalitions were kept.
        rows: how many rows the page shows at most. By default up to 10,000, as far as they have room in some 7 MB.

    Returns:
        The path.

    >>> import tempfile, torch
    >>> explanation = dasp.Explainer(lambda x: x[:, 0] * x[:, 1])(torch.tensor([[2.0, 3.0], [1.0, 5.0]]))
    >>> report(explanation, Path(tempfile.mkdtemp(), "page.html"), ids=["Ada", "Bob"]).name
    'page.html'
    """
    page = Path(path)
    check_page(page)
    if rows is not None and rows < 1:
        raise BadInput(f"rows is {rows}; at least 1 is needed")
    contents = contents_of(explanations, title=title, ids=ids, target=target, interactions=interactions)
    _write(contents, page, MOST_ROWS if rows is None else rows)
    return page


def _write(contents: Contents, page: Path, most: int) -> int:
    """Write a page, and return how many rows it shows."""
    known = statistics_of(contents)
    rows = page_rows(contents, known, most)
    text = _page(contents, known, rows)
    temporary = page.with_name(f".{page.name[:_NAME]}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(page)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise BadInput(f"{page}: cannot be written: {line_of(error)}") from error
    return len(rows.rows)


def _page(contents: Contents, known: Statistics, rows: PageRows) -> str:
    bars = _bars(contents, known, rows.kind)
    there = [player for player in bars if player.number]
    longest = max((player.mean for player in there), default=0.0)
    scale = min(2 * longest, max((player.mean + player.half for player in there), default=0.0)) or 1.0
    estimated = bool(np.nan_to_num(known.deviation).any())
    return render(
        "report.html",
        script="report.js",
        title=f"Explanation of {contents.files['MODEL']}" if contents.title is None else shown(contents.title),
        contents=contents,
        known=known,
        kind=rows.kind,
        estimated=estimated,
        verdict=verdict(contents, known),
        warnings=[capital(line.removeprefix("warning: ")) for line in _warnings(contents, known)],
        facts=list(facts(contents, known)),
        explained="" if contents.result.outputs == 1 or contents.compares else target_of(contents, known),
        absent=absent_of(contents.record.absent),
        methods=", ".join(map(display_name, known.methods)),
        options=options_of(contents),
        bars=bars[:_BARS],
        more=bars[_BARS:_MOST_BARS],
        left=max(0, len(bars) - _MOST_BARS),
        scale=scale,
        sizes=_sizes(contents, known) if rows.kind == "image" else None,
        pairs=_heat_map(known, rows.names) if known.pairs else None,
        shown=len(rows.rows),
        version=dasp.__version__,
        data={
            "kind": rows.kind,
            "players": [player.name for player in known.players] if rows.kind == "table" else [],
            "pairs": rows.names,
            "rows": rows.rows,
            "swarm": rows.swarm,
            "profile": _profile(known, rows.kind),
            "outputs": {target: contents.output(target) for target in known.targets},
            "compares": contents.compares,
        },
    )


def _warnings(contents: Contents, known: Statistics) -> list[str]:
    record, zeros = contents.record, contents.record.absent.warning
    return [*([zeros] if zeros else []), *contents.result.notes.lines(known.rows, record.options.get("tolerance"))]


def _bars(contents: Contents, known: Statistics, kind: str) -> list[Player]:
    """Return the players that have bars, from the most to the least important; of images those that are regions."""
    if kind in ("sequence", "series") or (kind == "image" and (contents.mask is None or contents.own_players)):
        return []
    if kind == "text" and known.rows == 1:
        return _pieces(contents if contents.sentences is None else contents.sentences)
    if kind != "image":
        return known.largest
    assert contents.mask is not None
    own, mask = ImageRows(contents), contents.mask
    return [replace(known.players[place], name=own.place(mask, place)) for place in known.order[:_REGIONS]]


def _pieces(contents: Contents) -> list[Player]:
    """Return the pieces of the only text, from the most to the least important: each of them by itself, also where two
    are the same word."""
    some = next(contents.rows())
    assert some.pieces is not None
    errors = [None] * len(some.pieces[0]) if some.std is None else [INTERVAL * float(one) for one in some.std[0]]
    found = [
        Player(shown(piece), abs(float(value)), half or 0.0, half, 1)
        for piece, value, half in zip(some.pieces[0], some.values[0], errors, strict=True)
        if piece.strip()
    ]
    return sorted(found, key=lambda player: -player.mean)


def _sizes(contents: Contents, known: Statistics) -> dict[str, Any]:
    """Return the size of the values at every place of an image, on average over all rows, as a picture."""
    if known.players:
        assert contents.image is not None
        means = np.array([player.mean for player in known.players])
        address, most = size_picture(means, contents.mask, contents.image)
    else:
        address, most = ImageRows(contents).mean_picture()
    return {"address": address, "most": most}


def _heat_map(known: Statistics, names: list[str]) -> dict[str, Any]:
    """Return the mean interactions of the players whose interactions are the largest, a line of cells for each."""
    there = [pair for pair in known.pairs if pair.number]
    total = np.zeros(len(names))
    for pair in there:
        total[list(pair.players)] += abs(pair.mean)
    order = np.argsort(-total, kind="stable")[:_MOST_PAIRED].tolist() if there else []
    by_players = {pair.players: pair for pair in there}
    limit = max((abs(pair.mean) for pair in there), default=0.0) or 1.0

    def cell(one: int, other: int) -> dict[str, Any] | None:
        pair = by_players.get((min(one, other), max(one, other)))
        return None if pair is None else _cell(pair, names, limit)

    largest = sorted(there, key=lambda pair: -abs(pair.mean))[:_TOLD]
    return {
        "names": [names[player] for player in order],
        "lines": [[cell(one, other) for other in order] for one in order],
        "largest": [_cell(pair, names, limit) for pair in largest if pair.mean],
        "rows": there[0].number if there else 0,
        "left": len(names) - len(order),
        "limit": limit,
        "doubted": any(pair.uncertain for pair in there),
    }


def _cell(pair: Pair, names: list[str], limit: float) -> dict[str, Any]:
    return {
        "names": [names[player] for player in pair.players],
        "mean": pair.mean,
        "said": within(pair.mean, pair.half),
        "colour": shade(pair.mean / limit),
        "unsure": pair.uncertain,
    }


def _profile(known: Statistics, kind: str) -> list[list[float | None]]:
    """Return the mean |value| of every place of a sequence or series, with half of its interval."""
    if kind not in ("sequence", "series"):
        return []
    return [[rounded(player.mean), rounded(player.half)] for player in known.players]
