"""Statistics over all rows of an output, from one pass over it, and the sentences that the page makes of them.

    importance of a player = mean |value| over n rows,   ± √( t² s²/n + 1.96² Σσ²/n² )

with the spread s of |value| over the rows (other rows of the same kind would have another mean), Student's quantile t,
and the standard deviations σ of the values themselves. The second term alone is the inner interval. The mean
interaction of two players has its interval in the same way, but keeps its sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.display import half_of_mean, uncertain
from dasp.formatting import INTERVAL, display_name, number, shown
from dasp.jobs.options import name_of
from dasp.jobs.record import AbsentInputs
from dasp.jobs.summary import word_of
from dasp.pages.contents import Contents, OutputRows

__all__ = [
    "Fact", "Pair", "Player", "Statistics", "Verdict", "absent_of", "capital", "facts", "options_of", "statistics_of",
    "target_of", "verdict",
]  # fmt: skip

_FEW = 8  # outputs that are listed
_GOOD = 0.25  # of the typical size of a value: errors beyond it are a warning


@dataclass(frozen=True)
class Player:
    """The importance of a player, or of a word, over all rows."""

    name: str
    mean: float  # the mean |value|
    half: float  # half of its 95 % interval
    inner: float | None  # half of the interval from errors alone; None if these are not known
    number: int  # the number of rows

    @property
    def uncertain(self) -> bool:
        """True if the interval includes 0."""
        return self.number > 1 and bool(uncertain(self.mean, self.half))


@dataclass(frozen=True)
class Pair:
    """The mean interaction of two players over the rows of which it is known."""

    players: tuple[int, int]
    mean: float
    half: float  # half of its 95 % interval
    number: int  # the number of rows

    @property
    def uncertain(self) -> bool:
        """True if the interval includes 0."""
        return bool(uncertain(self.mean, self.half))


@dataclass
class _Sums:
    """Sums over rows, of one player or pair, or of many at once."""

    signed: bool = False
    number: Any = 0
    sizes: Any = 0.0  # Σ|v|, or Σv if they are signed
    squares: Any = 0.0
    variances: Any = 0.0  # Σσ²

    def add(self, values: NDArray[Any], std: NDArray[Any] | None) -> None:
        """Add rows of players; values that are not finite do not count."""
        finite = np.isfinite(values)
        there = np.where(finite, values, 0.0)
        self.number = self.number + finite.sum(0)
        self.sizes = self.sizes + (there if self.signed else np.abs(there)).sum(0)
        self.squares = self.squares + np.square(there).sum(0)
        if std is not None:
            self.variances = self.variances + np.square(np.where(finite & np.isfinite(std), std, 0.0)).sum(0)

    def players(self, names: list[str], *, errors: bool) -> list[Player]:
        """Return the mean of |v| of each player with the halves of both intervals; NaN where there is no value."""
        return [
            Player(name, mean, half, inner if errors else None, n)
            for name, (mean, half, inner, n) in zip(names, self._means(), strict=True)
        ]

    def pairs(self) -> list[Pair]:
        """Return the mean of each pair of players."""
        means = self._means()
        players = range(math.isqrt(2 * len(means)) + 1)  # N(N − 1)/2 pairs
        return [
            Pair(pair, mean, half, n) for pair, (mean, half, _, n) in zip(combinations(players, 2), means, strict=True)
        ]

    def _means(self) -> list[tuple[float, float, float, int]]:
        """Return means, halves of both intervals and numbers of rows; NaN where there is no value."""
        columns = np.broadcast_arrays(self.number, self.sizes, self.squares, self.variances)
        found = []
        for count, sizes, squares, variances in np.reshape(columns, (4, -1)).T:
            n = int(count)
            mean = sizes / n if n else math.nan
            inner = INTERVAL * math.sqrt(variances) / n if n else math.nan
            spread = math.sqrt(max(squares / n - mean**2, 0.0) * n / (n - 1)) if n > 1 else 0.0
            half = half_of_mean(n, spread, inner) if n else math.nan
            found.append((float(mean), half, inner, n))
        return found


@dataclass
class Statistics:
    """The statistics of an output. Arrays have an entry for each row."""

    rows: int = 0
    players: list[Player] = field(default_factory=list)  # in the order of their numbers; of texts, the largest first
    deviation: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the largest of each row
    typical: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the root mean square of each row's deviations
    size: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # the root mean square of its values
    gap: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    change: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # prediction − base
    evaluations: NDArray[Any] = field(default_factory=lambda: np.zeros(0))
    missed: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    targets: list[int] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    counts: NDArray[Any] = field(default_factory=lambda: np.zeros(0))  # players of each row
    pairs: list[Pair] = field(default_factory=list)  # of the players, if their interactions were written

    @property
    def largest(self) -> list[Player]:
        """The players, from the most to the least important."""
        return [self.players[place] for place in self.order]

    @property
    def order(self) -> list[int]:
        """The numbers of the players, from the most to the least important; those without a value come last."""
        return np.argsort([-player.mean for player in self.players], kind="stable").tolist()  # NaN is last


def statistics_of(contents: Contents) -> Statistics:
    """Go through all rows once."""
    sums, words, pairs = _Sums(), dict[str, _Sums](), _Sums(signed=True)
    parts: dict[str, list[Any]] = {}
    targets, methods = set[int](), set[str]()
    rows = 0
    for some in contents.rows(data=False):
        rows += len(some)
        targets |= set(some.target.tolist())
        methods |= set(some.method)
        for name, part in _row_arrays(some).items():
            parts.setdefault(name, []).append(part)
        if some.pieces is not None:
            _add_words(words, some)
        elif not contents.own_players:
            sums.add(some.values, some.std)
        if some.interactions is not None:
            pairs.add(some.interactions, some.interactions_std)
    arrays = {name: np.concatenate(several) for name, several in parts.items()}
    if contents.is_text:
        often = {word: own for word, own in words.items() if int(np.sum(own.number)) > 1}
        several = [own.players([word], errors=contents.has_errors)[0] for word, own in often.items()]
        players = sorted(several, key=lambda player: -player.mean)
    elif not contents.own_players:
        names = [shown(name) for name in contents.player_names] or [f"input {i}" for i in range(len(sums.sizes))]
        players = sums.players(names, errors=contents.has_errors)
    else:
        players = []
    return Statistics(
        rows=rows, players=players, targets=sorted(targets), methods=sorted(methods),
        pairs=pairs.pairs() if contents.has_interactions else [], **arrays,
    )  # fmt: skip


def _row_arrays(some: OutputRows) -> dict[str, NDArray[Any]]:
    none = np.full(len(some), np.nan)
    found = {
        "deviation": some.largest_std(),
        "typical": none if some.std is None else _root_mean_squares(some.std),
        "size": _root_mean_squares(some.values),
        "gap": some.gap,
        "change": some.prediction - some.base,
        "counts": np.array([len(one) for one in some.values]),
    }
    if some.evaluations is not None:
        found["evaluations"] = some.evaluations
    if some.missed is not None:
        found["missed"] = some.missed
    return found


def _root_mean_squares(rows: Any) -> NDArray[Any]:
    """Return the root mean square of each row."""
    if isinstance(rows, np.ndarray):
        return np.sqrt(np.square(rows).mean(1))
    return np.array([np.sqrt(np.square(one).mean()) if len(one) else 0.0 for one in rows])


def _add_words(words: dict[str, _Sums], some: OutputRows) -> None:
    """Add the values of pieces of texts to the sums of their words."""
    assert some.pieces is not None
    for i, pieces in enumerate(some.pieces):
        for j, piece in enumerate(pieces):
            word = word_of(piece)
            if word is not None:
                std = None if some.std is None else np.array([some.std[i][j]])
                words.setdefault(word, _Sums()).add(np.array([some.values[i][j]]), std)


@dataclass(frozen=True)
class Fact:
    """A fact on the page: its name, its value, and a remark."""

    name: str
    value: str
    more: str = ""


@dataclass(frozen=True)
class Verdict:
    """A sentence on how far the values may be off; `good` if they are close."""

    text: str
    good: bool


def verdict(contents: Contents, known: Statistics) -> Verdict:
    """Say how far the values may be off, which a reader has to know first."""
    if not contents.has_errors or not np.isfinite(known.deviation).any():
        return Verdict(
            "The errors of these values are not known: the method states none. With the method “auto”, every value has "
            "an error bar; dasp.audit measures how far values are off.",
            good=False,
        )
    unknown = int((~np.isfinite(known.deviation)).sum())
    if not unknown and not known.deviation.any():
        exact = list(known.methods) == ["exact_shapley"]
        how = "every combination of inputs was evaluated" if exact else "their error bars are 0"
        return Verdict(f"These Shapley values are exact: {how}.", good=True)
    half, share = INTERVAL * float(np.nanmedian(known.typical)), _share(known)
    text = (
        "These values are estimates. In a typical row, the true Shapley value is within "
        f"±{number(half, digits=2)} of the value shown, with a probability of 95\u00a0%: that is "
        f"{number(100 * share, digits=2)} % of the typical size of a value."
    )
    if unknown:
        text += f" The errors of {unknown:,} of {known.rows:,} rows are not known."
    return Verdict(text, good=share <= _GOOD and not unknown)


def _share(known: Statistics) -> float:
    """Return the typical half of an interval, relative to the typical size of a value."""
    there = (known.size > 0) & np.isfinite(known.typical)
    return float(np.median(INTERVAL * known.typical[there] / known.size[there])) if there.any() else 1.0


def facts(contents: Contents, known: Statistics) -> Iterator[Fact]:
    """List what was explained, how, and with which errors."""
    record = contents.record
    left_out = record.skipped.number + contents.result.notes.left_out
    rows = _count_of_rows(known.rows) + (f", {left_out:,} left out" if left_out else "")
    if contents.files["MODEL"]:
        yield Fact("Model", contents.files["MODEL"])
    yield Fact("Data", contents.files["DATA"] or rows, rows if contents.files["DATA"] else "")
    if contents.result.outputs != 1:
        yield Fact("Explained output", target_of(contents, known), "the difference of the two" * contents.compares)
    yield Fact("Inputs with a value", *_players(contents, known))
    if absent := absent_of(record.absent):
        yield Fact("An absent input is", absent)
    yield Fact("Method", ", ".join(map(display_name, known.methods)), capital(shown(record.reason)))
    if len(known.evaluations):
        low, middle, high = (int(x) for x in np.percentile(known.evaluations, (0, 50, 100)))
        same = "the same for every row" if low == high else f"from {low:,} to {high:,}"
        yield Fact("Evaluations for a row", f"{middle:,}", same if known.rows > 1 else "")
    if np.isfinite(known.gap).any():
        gap = float(np.nanmax(np.abs(known.gap), initial=0.0))
        sizes = float(np.nanmax(np.abs(known.change), initial=0.0))
        beside = f"at most, where the output changes by up to {number(sizes)}; values that add up can still be wrong"
        yield Fact("The values miss their sum by", number(gap, digits=2), beside)
    tolerance = record.options.get("tolerance")
    if tolerance is not None:
        missed = f"{int(known.missed.sum()):,} of {known.rows:,} rows missed it" if len(known.missed) else ""
        yield Fact("Tolerance", f"{tolerance:g}", missed)


def _count_of_rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows:,} rows"


def capital(text: str) -> str:
    """Return a text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]


def target_of(contents: Contents, known: Statistics) -> str:
    """Say which of several outputs are explained."""
    outputs = contents.result.outputs
    if len(known.targets) == 1:
        named = contents.output(known.targets[0])
        named = named if contents.result.output_names or contents.compares else f"number {known.targets[0]}"
        return f"{named}, of {outputs} outputs" if outputs else named
    listed = ", ".join(map(contents.output, known.targets[:_FEW])) + (", …" if len(known.targets) > _FEW else "")
    given = contents.record.options.get("target")
    how = "the largest of each row" if given in (None, "predicted") else f"by the column {shown(repr(given))}"
    if contents.record.absent.kind == "explainer" and given is None:  # it may be the largest, or any other
        how = "one for each row"
    if contents.compares:
        how = "two of each row"
    return f"{how} ({listed})"


def _players(contents: Contents, known: Statistics) -> tuple[str, str]:
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


def absent_of(absent: AbsentInputs) -> str:
    """Say what stood for an absent input."""
    given = shown(" ".join(f"{name} {value}" for name, value in absent.options.items()))
    if absent.kind == "text":
        return f"replaced by: {shown(absent.options.get('baselines', '?'))}"
    if absent.kind == "explainer":
        return shown(absent.options["is"])
    if absent.kind == "background":
        return f"averaged over the rows of {shown(absent.options.get('background', 'a background'))}"
    if absent.value is not None:
        return number(absent.value)
    return "the average of its column" if given == "baselines mean" else given


def options_of(contents: Contents) -> dict[str, str]:
    """Return the options of the job that were not left at their defaults, and the versions."""
    record = contents.record
    versions = {name: version for name, version in asdict(record.software).items() if version is not None}
    given = {name: value for name, value in {**record.options, **record.files}.items() if value not in (None, False)}
    digests = {"the model's parameters": record.parameters, "the model's outputs": record.outputs}
    told = {**versions, **{name_of(name): str(value) for name, value in given.items()}, **digests}
    return {name: shown(text) for name, text in told.items() if text}
