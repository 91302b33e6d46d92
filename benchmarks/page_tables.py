"""The tables of the documentation, made from the data in benchmarks/results.

    python benchmarks/page_tables.py        writes them into README.md and docs/**/*.md

A page has a table between two comments, `<!-- table: name -->` and `<!-- /table -->`; what stands between them is
replaced. The name is that of a CSV file, whose first lines say who measured it and when, or of a function below, which
makes a table out of several files. Numbers are never typed into a page: a test compares the pages with this script.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dasp.evaluation import Result
from real_results import BUDGETS, TIME, Results, Row, best, geometric_mean, ratio
from reproduction.claims import standings
from reproduction.comparison_methods import BACKPROPAGATION, OURS, SAMPLING, display_name
from reproduction.outcome import largest_budgets

_HERE = Path(__file__).parent
DATA = _HERE / "results"
PAGES = [_HERE.parent / "README.md", *sorted((_HERE.parent / "docs").rglob("*.md"))]
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)
EXPERIMENTS = ("parkinsons", "dna", "mnist")

Rows = list[list[str]]


def filled(page: str) -> str:
    """A page with all of its tables made anew."""
    return TABLE.sub(lambda match: f"{match[1]}\n{table(match[2])}\n\n{match[3]}", page)


def table(name: str) -> str:
    """A table by the name that pages have for it."""
    if name in MADE:
        return MADE[name]()
    about, rows = read(DATA / f"{name}.csv")
    return f"{markdown(rows)}\n\n{_source(about)}"


def read(file: Path) -> tuple[dict[str, str], Rows]:
    """What a file says about itself, and its rows, the head first."""
    lines = file.read_text().splitlines()
    notes = [line for line in lines if line.startswith("# ")]
    about = dict(note.removeprefix("# ").split(": ", 1) for note in notes)
    return about, list(csv.reader(lines[len(notes) :]))


def markdown(rows: Rows) -> str:
    """A table in Markdown; the head first."""
    head, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _source(about: dict[str, str]) -> str:
    by = about["by"]
    command = f"`{by}`" if by.startswith(("benchmarks/", "python -m ")) else by
    return f"*Measured by {command}, version {about['version']}, {about['date']}.*"


# Runs of version 0.2 at the size "standard", of which only what was published is kept.


def _standard(*, methods: bool, rows: dict[str, str] | None = None) -> Rows:
    """The paper's experiments: kinds of methods in rows, experiments in columns."""
    _, (_, *cells) = read(DATA / "paper-standard.csv")
    experiments = list(dict.fromkeys(cell[1] for cell in cells))
    found = {(row, experiment): rest for row, experiment, *rest in cells}

    def text(row: str, experiment: str) -> str:
        error, method, time = found[row, experiment]
        inside = [part for part in (method if methods else "", time) if part]
        return f"{error} ({', '.join(inside)})" if inside else error

    named = rows or {row: row for row in dict.fromkeys(cell[0] for cell in cells)}
    return [["", *experiments], *([label, *(text(row, e) for e in experiments)] for row, label in named.items())]


def _paper_standard() -> str:
    return f"{markdown(_standard(methods=True))}\n\n{_source(read(DATA / 'paper-standard.csv')[0])}"


def _readme() -> str:
    rows = {
        "best backpropagation": "best backpropagation (DeepLIFT)",
        "best sampling": "best sampling (permutations)",
        "`GradientDASP`, 300 evaluations": "`GradientDASP`, 300 evaluations",
        "`BayesianShapley`, on `GradientDASP` for DNA and MNIST": "`BayesianShapley`",
    }
    return markdown(_standard(methods=False, rows=rows))


def _libraries_standard() -> str:
    about, (_, *cells) = read(DATA / "libraries-standard.csv")
    budgets = list(dict.fromkeys(cell[2] for cell in cells))
    found = {(*cell[:2], cell[2]): ", ".join(filter(None, cell[4:])) for cell in cells}
    errors = {(*cell[:2], cell[2]): cell[3] for cell in cells}
    rows = [["budget of evaluations", *budgets]]
    for experiment, whose in dict.fromkeys((cell[0], cell[1]) for cell in cells):
        keys = [(experiment, whose, budget) for budget in budgets]
        rows.append([f"{experiment}, {whose}", *(f"{errors[k]} ({found[k]})" if k in errors else "" for k in keys)])
    return f"{markdown(rows)}\n\n{_source(about)}"


# The run that is kept whole.


@cache
def _about() -> dict[str, Any]:
    return json.loads((DATA / "reproduced" / "about.json").read_text())


@cache
def results(folder: str, experiment: str) -> tuple[Result, ...]:
    """All results of an experiment, without attributions."""
    _, (head, *rows) = read(DATA / folder / f"{experiment}.csv")
    return tuple(Result(**{name: _number(name, text) for name, text in zip(head, row, strict=True)}) for row in rows)


def _number(name: str, text: str) -> Any:
    if name == "method":
        return text
    if name in ("number", "evaluations", "paper_evaluations"):
        return int(text) if text else None
    return float(text) if text else math.nan


def _measured(command: str) -> str:
    about = _about()
    return f"*Measured by `{command}`, version {about['version']}, {about['date']}, threads: {about['threads']}.*"


def _experiments() -> str:
    rows = [["", "data", "rows explained", "players", "network", "standard error of the truth"]]
    for one in _about()["experiments"].values():
        quality = ", ".join(f"{name} {value:.3f}" for name, value in one["network"].items())
        error = one["standard error of the truth"]
        truth = f"{error:.2g}" if error else "0 (exact)"
        rows.append([one["title"], one["data"], str(one["rows"]), str(one["players"]), quality, truth])
    return f"{markdown(rows)}\n\n{_measured(_command())}"


def _command() -> str:
    return f"python -m reproduction demo --size {_about()['size']}"


_KINDS = {
    "best backpropagation": BACKPROPAGATION,
    "Occlusion": ("occlusion",),
    "best sampling": SAMPLING,
    "`DASP`, the paper's": ("dasp_rank_0",),
    "`GradientDASP`": ("gradient_dasp",),
    "best of ours": OURS,
}


def _reproduced() -> str:
    rows = [["smallest RMSE of any budget", *(one["title"] for one in _about()["experiments"].values())]]
    for kind, names in _KINDS.items():
        row = [kind]
        for experiment in EXPERIMENTS:
            best = min((r for r in results("reproduced", experiment) if r.method in names), key=lambda r: r.rmse)
            row.append(f"{best.rmse:.3g} ({best.evaluations:,} evaluations{_named(best, names)})")
        rows.append(row)
    errors = [one["standard error of the truth"] for one in _about()["experiments"].values()]
    rows.append(["standard error of the truth", *(f"{error:.2g}" if error else "0 (exact)" for error in errors)])
    return f"{markdown(rows)}\n\n{_measured(_command())}"


def _named(result: Result, names: tuple[str, ...]) -> str:
    return f", {display_name(result.method)}" if len(names) > 1 else ""


def _methods(experiment: str) -> str:
    """Every method with the most evaluations that it had."""
    rows = [["method", "evaluations", "RMSE", "rank correlation"]]
    for result in sorted(largest_budgets(results("reproduced", experiment)).values(), key=lambda r: r.rmse):
        correlation = "–" if math.isnan(result.spearman) else f"{result.spearman:.3f}"
        rows.append([display_name(result.method), f"{result.evaluations:,}", f"{result.rmse:.3g}", correlation])
    return f"{markdown(rows)}\n\n{_measured(_command())}"


def _claims() -> Rows:
    return read(DATA / "reproduced" / "claims.csv")[1][1:]


def _claims_of(experiment: str) -> str:
    rows = [["the paper, or its authors' notebook", "found here", "holds?"]]
    rows += [[paper, found, f"**{verdict}**"] for name, paper, found, verdict in _claims() if name == experiment]
    return f"{markdown(rows)}\n\n{_measured(_command())}"


def _verdicts() -> str:
    """How many claims hold, by experiment; what is not in the paper does not count."""
    kinds = ("yes", "no", "not enough rows to say", "not enough evaluations to say")
    rows = [["", "claims", "hold", "do not hold", "not enough rows to say", "not enough evaluations to say"]]
    for name, one in _about()["experiments"].items():
        count = Counter(c[3] for c in _claims() if c[0] == name and not c[1].startswith("(not in the paper)"))
        rows.append([one["title"], str(count.total()), *(str(count[kind]) for kind in kinds)])
    return f"{markdown(rows)}\n\n{_measured(_command())}"


def _libraries() -> str:
    """The best of ours at each budget, and the best of the others."""
    rows = [["", "budget of evaluations", "best of ours", "RMSE", "best peer", "RMSE"]]
    for experiment in EXPERIMENTS:
        found = results("libraries", experiment)
        about = _about()["experiments"][experiment]
        for n, standing in enumerate(standings(found, about["budgets"])):
            peers = [r for r in found if r.method not in (*OURS, "exact_shapley") and r.evaluations <= standing.budget]
            both = (standing.best, min(peers, key=lambda r: r.rmse))
            cells = [cell for r in both for cell in (display_name(r.method), f"{r.rmse:.3g}")]
            rows.append([about["title"] if n == 0 else "", f"{standing.budget:,}", *cells])
    return f"{markdown(rows)}\n\n{_measured(_command().replace('demo', 'benchmark'))}"


# Public games: a row of the file is a family at a number of evaluations.

_PLAYED = {
    "resnet18-14": "ResNet-18, 14 superpixels",
    "vit-16": "ViT, 16 patches",
    "vit-9": "ViT, 9 patches",
    "sentiment-14": "sentiment, 14 words",
    "adult-local-14": "adult, local, 14 columns",
    "bike-local-12": "bike, local, 12 columns",
    "adult-uncertainty-14": "adult, uncertainty, 14",
    "bike-global-12": "bike, global, 12",
    "california-data-15": "California, values of 15 data",
    "adult-features-14": "adult, selection of 14 features",
    "soum-15": "sums of unanimity games, 15",
    "dataset-val-14": "values of 14 data sets",
}
_LEAST, _MOST = 0.9, 0.98  # of 95 % intervals that should hold
_MUCH_WORSE = 1.05


@dataclass(frozen=True)
class _Played:
    """Errors of a family at a number of evaluations, and how often intervals held the truth."""

    family: str
    evaluations: int
    error: float
    before: float
    peer_error: float
    peer: str
    coverage: float
    largest: float

    @property
    def worse(self) -> bool:
        return self.error > _MUCH_WORSE * self.before

    @property
    def ahead(self) -> bool:
        return self.error < self.peer_error


def _played() -> list[_Played]:
    _, (_, *rows) = read(DATA / "public-games.csv")
    return [
        _Played(family, int(budget), *(float(x) for x in errors), peer, float(all_), float(largest))
        for family, budget, *errors, peer, all_, largest in rows
    ]


def _by_family(head: str, cell: Callable[[_Played], str]) -> str:
    """Families in rows, evaluations in columns."""
    found = {(one.family, one.evaluations): cell(one) for one in _played()}
    budgets = sorted({budget for _, budget in found})
    rows = [[head, *(f"{budget:,}" for budget in budgets)]]
    rows += [
        [_PLAYED.get(family, family), *(found.get((family, budget), "–") for budget in budgets)]
        for family in dict.fromkeys(family for family, _ in found)
    ]
    return f"{markdown(rows)}\n\n{_source(read(DATA / 'public-games.csv')[0])}"


def _marked(text: str, mark: object) -> str:
    return f"**{text}**" if mark else text


def _public_games() -> str:
    """Geometric means over families, and in how many of them we are behind."""
    cells = _played()
    budgets = sorted({one.evaluations for one in cells})
    at = [[one for one in cells if one.evaluations == budget] for budget in budgets]

    def mean(figure: Callable[[_Played], float]) -> list[float]:
        return [math.exp(sum(math.log(figure(one)) for one in some) / len(some)) for some in at]

    own, before, peer = mean(lambda one: one.error), mean(lambda one: one.before), mean(lambda one: one.peer_error)

    def ratios(others: list[float]) -> list[str]:
        return [f"{ours / other:.2f}" for ours, other in zip(own, others, strict=True)]

    def count(is_one: Callable[[_Played], bool]) -> list[str]:
        return [f"{sum(map(is_one, some))} of {len(some)}" for some in at]

    rows = [
        ["evaluations", *(f"{budget:,}" for budget in budgets)],
        ["`BayesianShapley`", *(f"{x:.3f}" for x in own)],
        ["before", *(f"{x:.3f}" for x in before)],
        ["in times of before", *ratios(before)],
        ["best peer of each family", *(f"{x:.3f}" for x in peer)],
        ["in times of the best peer", *ratios(peer)],
        ["families with more than 1.05 of the error before", *count(lambda one: one.worse)],
        ["families where a peer is ahead", *count(lambda one: not one.ahead)],
        ["families whose intervals held less than 90 %", *count(lambda one: one.coverage < _LEAST)],
        ["more than 98 %", *count(lambda one: one.coverage > _MOST)],
        ["of the two largest values, less than 90 %", *count(lambda one: one.largest < _LEAST)],
    ]
    return f"{markdown(rows)}\n\n{_source(read(DATA / 'public-games.csv')[0])}"


def _public_games_errors() -> str:
    return _by_family("error now (before)", lambda one: _marked(f"{one.error:.3f} ({one.before:.3f})", one.worse))


def _public_games_peers() -> str:
    return _by_family("best peer", lambda one: _marked(f"{one.peer_error:.3f} {one.peer}", not one.ahead))


def _public_games_coverage() -> str:
    def held(share: float) -> str:
        return _marked(f"{100 * share:.0f}", share < _LEAST)

    return _by_family("% of all values · of the two largest", lambda one: f"{held(one.coverage)} · {held(one.largest)}")


def _public_games_pairs() -> str:
    there = (DATA / "public-games-pairs.csv").exists()
    return _methods_of("public-games-pairs") if there else "*Not measured yet: `benchmarks/public_games.py --publish`.*"


def _methods_of(name: str) -> str:
    """Methods in rows, evaluations in columns; a number, and milliseconds if there are any."""
    about, (_, *cells) = read(DATA / f"{name}.csv")
    budgets = list(dict.fromkeys(cell[1] for cell in cells))
    rows = [["error (milliseconds)", *(f"{int(budget):,}" for budget in budgets)]]
    for method in dict.fromkeys(cell[0] for cell in cells):
        own = [cell for cell in cells if cell[0] == method]
        found = {cell[1]: _plain(cell[2]) + (f" ({_plain(cell[3])})" if cell[3] else "") for cell in own}
        rows.append([method, *(found[budget] for budget in budgets)])
    return f"{markdown(rows)}\n\n{_source(about)}"


def _plain(number: str) -> str:
    """To three digits, without powers of ten."""
    value = float(number)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# Real networks: a row of the file is a game by a method with a budget.

_REAL, _REAL_BEFORE = "real", "real-before"
_RIVALS = {"method": "single method of ours", "peer": "peer"}


def _real() -> str:
    """Each game: the default, and the best of the others in its time; bold where one of them is ahead."""
    results = Results.of(DATA / f"{_REAL}.csv")
    head = ["network", "players", "truth ±", "default", "error", "stated", "held", "seconds (first)", "MB"]
    rows = [[*head, *(f"best {name} in that time" for name in _RIVALS.values())]]
    rows += [
        [
            row.network, f"{row.players:,} {row.kind}", _error(row.truth_error), _method_name(row.method),
            _error(row.error), _error(row.stated), f"{100 * row.coverage:.0f} %",
            f"{_plain(str(row.seconds))} ({_plain(str(row.first_seconds))})", _or_dash(row.memory, "{:,.0f}"),
            *(_rival(row, results.of_game(row.game, what, TIME)) for what in _RIVALS),
        ]
        for row in results.defaults()
    ]  # fmt: skip
    return f"{markdown(rows)}\n\n{_source(read(DATA / f'{_REAL}.csv')[0])}"


def _method_name(identifier: str) -> str:
    from real_peers import PEERS  # noqa: PLC0415  # shap and shapiq take seconds

    return PEERS[identifier].name if identifier in PEERS else display_name(identifier)


def _error(number: float) -> str:
    return "0" if number == 0 else f"{number:.3f}"


def _or_dash(number: float, form: str) -> str:
    return "–" if math.isnan(number) else form.format(number)


def _rival(row: Row, rivals: list[Row]) -> str:
    if not rivals:
        return "–"
    rival = best(rivals)
    return _marked(f"{_error(rival.error)} {_method_name(rival.method)}", ratio(row, rival) > 1)


def _real_summary() -> str:
    """The default's error in times of the best other's, over games, at equal time and equal evaluations."""
    results = Results.of(DATA / f"{_REAL}.csv")
    rows = [["the default against the best", "in its time", *(f"{budget:,} evaluations" for budget in BUDGETS)]]
    counts = []
    for what, name in _RIVALS.items():
        means, ahead = [], []
        for budget in (TIME, *map(str, BUDGETS)):
            both = [
                ratio(row, best(rivals))
                for row in results.defaults("own" if budget == TIME else budget)
                if (rivals := results.of_game(row.game, what, budget))
            ]
            means.append(f"{geometric_mean(both):.2f}" if both else "–")
            ahead.append(f"{sum(x <= 1 for x in both)} of {len(both)}" if both else "–")
        rows.append([f"{name}: ratio of errors, geometric mean", *means])
        counts.append([f"{name}: games where the default is as near or nearer", *ahead])
    return f"{markdown([*rows, *counts])}\n\n{_source(read(DATA / f'{_REAL}.csv')[0])}"


def _real_before() -> str:
    """The default as it was, and as it is."""
    before, now = (Results.of(DATA / f"{name}.csv") for name in (_REAL_BEFORE, _REAL))
    after = {row.game: row for row in now.defaults()}
    rows = [["network", "players", "default before", "error before", "now", "seconds before", "now"]]
    for row in before.defaults():
        new = after.get(row.game)
        error, seconds = ("–", "–") if new is None else (_error(new.error), _plain(str(new.first_seconds)))
        rows.append([
            row.network, f"{row.players:,} {row.kind}", _method_name(row.method), _error(row.error), error,
            _plain(str(row.first_seconds)), seconds,
        ])  # fmt: skip
    return f"{markdown(rows)}\n\n{_source(read(DATA / f'{_REAL_BEFORE}.csv')[0])}"


MADE: dict[str, Callable[[], str]] = {
    "real": _real,
    "real-summary": _real_summary,
    "real-before": _real_before,
    "paper-standard": _paper_standard,
    "readme": _readme,
    "libraries-standard": _libraries_standard,
    "experiments": _experiments,
    "reproduced": _reproduced,
    "verdicts": _verdicts,
    "libraries": _libraries,
    "public-games": _public_games,
    "public-games-errors": _public_games_errors,
    "public-games-peers": _public_games_peers,
    "public-games-coverage": _public_games_coverage,
    "public-games-methods": lambda: _methods_of("public-games-methods"),
    "public-games-pairs": _public_games_pairs,
    **{f"claims-{name}": lambda name=name: _claims_of(name) for name in EXPERIMENTS},
    **{f"methods-{name}": lambda name=name: _methods(name) for name in EXPERIMENTS},
}


if __name__ == "__main__":
    for page in PAGES:
        text = page.read_text()
        if text != filled(text):
            page.write_text(filled(text))
            print(page.name)
