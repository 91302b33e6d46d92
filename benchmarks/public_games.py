"""BayesianShapley without a prior against shapiq's approximators, on 93 public games that were not made here.

    DASP_DATA=folder python benchmarks/public_games.py [--peer PYTHON | --no-peers] [--half tune|report|all] [--seeds 4]
                                                       [--save FILE] [--before FILE] [--publish]

The tables of docs/benchmarks.md are made anew by these two commands:

    DASP_DATA=folder python benchmarks/public_games.py --peer PYTHON --publish
    python benchmarks/page_tables.py

The games are precomputed ones of shapiq in twelve families: image classifiers by superpixels and patches, sentiment by
words, tabular models, data valuation, sums of unanimity games. All 2^N values of each are known, so every error is
exact. Constants may be chosen on the games with even numbers (tune); what is published is of those with odd ones.

Errors are the rms error of a game's values relative to the rms of the values themselves, and the root mean square of
that over games and seeds. Times are the processor's for one game by itself. A call of ours evaluates four coalitions
more than its budget, by which it checks the model and nothing else. "Best peer" is, for each cell by itself, the one
that turned out best; each has its own line in the list of all. "Paired" ones evaluate every coalition with its
complement, which shapiq leaves to the user. Left out are SPEX, which needs more than 600 evaluations, and ProxySPEX,
whose search takes six seconds a game. ShaplEIG, which takes five at 64 evaluations, plays on nine patches only; what
its authors published for nine patches is less than it has on these games. Pairwise Shapley interaction indices are
compared in the same way, on one game of each of ten families.

--peer names a Python that has shapiq 1.8 (`shapiq_peer.py` says how to make one); what it found is kept in
results/cache and computed once. --save writes our figures to a file, and --before compares with those of a file.
--publish compares with benchmarks/results/public-games-before.json, the figures of the estimator before it had the
process, and writes what the page shows to benchmarks/results/public-games*.csv.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dasp
from dasp import BayesianShapley, Explainer
from reproduction.store import Store, checksum
from shapiq_peer import Peer

BUDGETS = (32, 64, 128, 256, 512, 1024)
PATCHES, PATCHES_BUDGETS, PUBLISHED = "vit-9", (16, 32, 64), (8.0, 2.3, 0.48)  # ShaplEIG's MSE × 10³
PAIR_GAMES, PAIR_BUDGETS = 10, (64, 128, 256, 512)
HALVES = {"tune": slice(0, None, 2), "report": slice(1, None, 2), "all": slice(None)}
STORE = Store(Path("results") / "cache")
PUBLISHED_IN = Path(__file__).parent / "results"
BEFORE = PUBLISHED_IN / "public-games-before.json"

Options = dict[str, Any]
Rival = tuple[str, Options]  # an approximator of shapiq
Figures = dict[str, float]
Cells = dict[tuple[str, int], Figures]  # by family and budget

_PAIRED: Options = {"pairing_trick": True}
VALUES: dict[str, Rival] = {
    "OwenSamplingSV": ("OwenSamplingSV", {}),
    "StratifiedSamplingSV": ("StratifiedSamplingSV", {}),
    "PermutationSamplingSV": ("PermutationSamplingSV", {}),
    "SVARM": ("SVARM", {}),
    "SVARM paired": ("SVARM", _PAIRED),
    "UnbiasedKernelSHAP": ("UnbiasedKernelSHAP", {}),
    "UnbiasedKernelSHAP paired": ("UnbiasedKernelSHAP", _PAIRED),
    "KernelSHAP": ("KernelSHAP", {}),
    "KernelSHAP paired": ("KernelSHAP", _PAIRED),
    "LeverageSHAP": ("LeverageSHAP", {}),
    "kADDSHAP": ("kADDSHAP", {}),
    "kADDSHAP paired": ("kADDSHAP", _PAIRED),
    "PolySHAP": ("PolySHAP", {}),
    "PolySHAP paired": ("PolySHAP", _PAIRED),
    "OddSHAP": ("OddSHAP", {}),
    "RegressionMSR": ("RegressionMSR", {"index": "SV"}),
    "ProxySHAP": ("ProxySHAP", {"index": "SV", "max_order": 1}),
    "ProxySHAP adjusted": ("ProxySHAP", {"index": "SV", "max_order": 1, "adjustment": True}),
}
_PAIRS: Options = {"index": "SII", "max_order": 2}
INTERACTIONS: dict[str, Rival] = {
    "PermutationSamplingSII": ("PermutationSamplingSII", _PAIRS),
    "SHAPIQ": ("SHAPIQ", _PAIRS),
    "SHAPIQ paired": ("SHAPIQ", _PAIRS | _PAIRED),
    "SVARMIQ": ("SVARMIQ", _PAIRS),
    "SVARMIQ paired": ("SVARMIQ", _PAIRS | _PAIRED),
    "KernelSHAPIQ": ("KernelSHAPIQ", _PAIRS),
    "KernelSHAPIQ paired": ("KernelSHAPIQ", _PAIRS | _PAIRED),
    "InconsistentKernelSHAPIQ": ("InconsistentKernelSHAPIQ", _PAIRS),
    "InconsistentKernelSHAPIQ paired": ("InconsistentKernelSHAPIQ", _PAIRS | _PAIRED),
    "ProxySHAP": ("ProxySHAP", _PAIRS),
    "ProxySHAP adjusted": ("ProxySHAP", _PAIRS | {"adjustment": True}),
}
ON_PATCHES: dict[str, Rival] = {"ShaplEIG": ("ShaplEIG", {"show_progress": False})}


@dataclass(frozen=True)
class Games:
    """The games of a family. Entry b of a column is the worth of the coalition whose members are the bits of b."""

    name: str
    table: Tensor  # (2^players, games)
    budgets: tuple[int, ...]  # evaluations to measure at
    known: dict[int, Tensor] = field(default_factory=dict, init=False)

    @staticmethod
    def all() -> list[Games]:
        """All families of the file."""
        folder = os.environ.get("DASP_DATA")
        if folder is None:
            raise SystemExit("DASP_DATA must name a folder with games/public_games.npz")
        families: dict[str, dict[int, Tensor]] = defaultdict(dict)
        with np.load(Path(folder) / "games" / "public_games.npz") as file:
            for name in file.files:
                family, number = name.rsplit("/", 1)
                families[family][int(number)] = torch.tensor(file[name], dtype=torch.float64)
        result = []
        for family, games in families.items():
            table = torch.stack([games[number] for number in range(len(games))], 1)
            wanted = {*BUDGETS, *PATCHES_BUDGETS} if family == PATCHES else BUDGETS
            result.append(Games(family, table, tuple(budget for budget in sorted(wanted) if budget < len(table))))
        return result

    def half(self, which: str) -> Games:
        """The games with even numbers (tune), with odd ones (report), or all."""
        return replace(self, table=self.table[:, HALVES[which]])

    @property
    def players(self) -> int:
        """How many there are."""
        return len(self.table).bit_length() - 1

    def worth(self, present: Tensor) -> Tensor:
        """The games as a model of rows of zeros and ones, (coalitions, games)."""
        return self.table[(present > 0).long() @ 2 ** torch.arange(self.players)]

    def truth(self, size: int = 1) -> Tensor:
        """Exact Shapley values (games, players), or interactions (games, pairs) for size 2."""
        if size not in self.known:
            self.known[size] = shapley_values(self.table) if size == 1 else shapley_interactions(self.table)
        return self.known[size]


def walsh_coefficients(table: Tensor) -> Tensor:
    """The coefficients c_A of v(z) = Σ_A c_A Π_{j∈A} z_j, z = ±1, by the Walsh–Hadamard transform; as tables are."""
    coefficients = table
    for player in range(len(table).bit_length() - 1):
        parts = coefficients.view(-1, 2, 2**player, table.shape[1])
        out, in_ = parts[:, 0], parts[:, 1]
        coefficients = torch.stack([out + in_, in_ - out], 1).div(2).view_as(table)
    return coefficients


def shapley_values(table: Tensor) -> Tensor:
    """R_i = Σ_{A∋i, |A| odd} 2c_A/|A|, (games, players)."""
    members, size = _subsets(table)
    weights = torch.where(size % 2 == 1, 2 / size, 0)
    return walsh_coefficients(table).T @ (members * weights[:, None])


def shapley_interactions(table: Tensor) -> Tensor:
    """I_ij = Σ_{A∋i,j, |A| even} 4c_A/(|A| − 1), (games, pairs), in the order of `itertools.combinations`."""
    members, size = _subsets(table)
    weights = torch.where((size % 2 == 0) & (size > 0), 4 / (size - 1), 0)
    first, second = torch.triu_indices(members.shape[1], members.shape[1], 1)
    return walsh_coefficients(table).T @ (members[:, first] * members[:, second] * weights[:, None])


def _subsets(table: Tensor) -> tuple[Tensor, Tensor]:
    """Members of all subsets as zeros and ones, and their sizes."""
    bits = torch.arange(len(table))[:, None] >> torch.arange(len(table).bit_length() - 1) & 1
    return bits.to(table.dtype), bits.sum(1).to(table.dtype)


def ours(games: Games, budget: int, seed: int, size: int = 1) -> tuple[Tensor, Tensor]:
    """Values and standard deviations of players, (games, players), or of pairs."""
    x = torch.ones(1, games.players, dtype=torch.float64)
    if size == 2:
        explainer = Explainer(games.worth, method="bayesian", max_evaluations=budget, seed=seed)
        found = explainer.attribute(x).interactions()[0]
        first, second = np.triu_indices(games.players, 1)
        values, std = (
            torch.tensor(part[first, second].reshape(len(first), -1).T) for part in (found.values, found.error_std)
        )
        return values, std
    values, std = BayesianShapley(games.worth).attribute(
        x, torch.zeros_like(x), max_evaluations=budget, seed=seed, return_std=True
    )
    return values[0], std[0]


def figures_of_ours(games: Games, budget: int, seeds: int, size: int = 1) -> Figures:
    """Errors, coverage and milliseconds."""
    one, seconds, found = replace(games, table=games.table[:, :1]), [], []
    for seed in range(seeds):
        start = time.process_time()
        ours(one, budget, seed, size)
        seconds.append(time.process_time() - start)
        found.append(ours(games, budget, seed, size))
    values, std = (torch.stack(part) for part in zip(*found, strict=True))
    truth = games.truth(size)
    rounding = 1e-12 * truth.abs().amax(1, keepdim=True)
    held = ((values - truth).abs() <= 1.96 * std + rounding).double()
    largest = truth.abs().topk(2).indices.expand(seeds, -1, -1)
    return {
        **errors(values, truth), "coverage": float(held.mean()),
        "coverage of the largest": float(held.gather(2, largest).mean()), "milliseconds": 1e3 * float(np.mean(seconds)),
    }  # fmt: skip


def errors(found: Tensor, truth: Tensor) -> Figures:
    """Relative RMSE, and the mean squared error as it is; found is (seeds, games, …), truth (games, …)."""
    squares = (found - truth).square().mean(2)
    return {"error": float((squares / truth.square().mean(1)).mean().sqrt()), "mse": float(squares.mean())}


@dataclass
class Peers:
    """Approximators of shapiq; their Python is started when something is asked that is not kept."""

    python: str
    peer: Peer | None = None

    def figures(self, families: list[Games], half: str, name: str, rival: Rival, seeds: int, size: int = 1) -> Cells:
        """Figures of an approximator; all games are played, and those of a half counted."""
        cells = {}
        for games in families:
            kept, truth = self.kept(games, name, rival, seeds, size), games.half(half).truth(size)
            for budget, values, seconds in zip(games.budgets, kept["values"], kept["seconds"], strict=True):
                found = values[:, HALVES[half]]
                cells[games.name, budget] = errors(found, truth) | {"milliseconds": 1e3 * float(seconds.mean())}
            if kept["most evaluations"] > 1:
                print(f"{games.name}: {name} evaluates up to {kept['most evaluations']:.2f} times its budget")
            for failure in kept["failures"]:
                print(f"{games.name}: {failure}")
        return cells

    def kept(self, games: Games, name: str, rival: Rival, seeds: int, size: int) -> dict[str, Any]:
        """What an approximator answers: values (budgets, seeds, games, coalitions of a size) and its seconds."""
        key = {"games": checksum(games.table), "options": rival, "budgets": games.budgets, "seeds": seeds}
        file = f"public_games/{games.name}-{name.replace(' ', '-')}"
        return STORE.keep(file, key | {"size": size}, partial(self._play, games, rival, seeds, size))

    def _play(self, games: Games, rival: Rival, seeds: int, size: int) -> dict[str, Any]:
        method, options = rival
        print(f"{games.name}: {method} {options or ''}", file=sys.stderr, flush=True)
        if self.peer is None:
            self.peer = Peer(self.python)
        if tuple(map(int, self.peer.version.split(".")[:2])) < (1, 8):
            raise ImportError(f"shapiq 1.8 is needed, not {self.peer.version}")
        self.peer.require(method)
        budgets, count = games.budgets, math.comb(games.players, size)
        values = torch.full((len(budgets), seeds, games.table.shape[1], count), torch.nan, dtype=torch.float64)
        seconds, evaluations = torch.full(values.shape[:3], torch.nan), torch.zeros(values.shape[:3])
        failures = set()
        bits = 2 ** np.arange(games.players)
        for b, s, g in np.ndindex(*values.shape[:3]):
            table = games.table[:, g].numpy()
            try:
                answer = self.peer(
                    method, lambda members, table=table: table[members @ bits], games.players, budgets[b], s, size,
                    **options,
                )  # fmt: skip
            except RuntimeError as error:
                failures.add(f"{budgets[b]} evaluations: {error}")
                continue
            values[b, s, g], seconds[b, s, g] = torch.tensor(answer.values), answer.seconds
            evaluations[b, s, g] = answer.evaluations
        over = (evaluations / torch.tensor(budgets)[:, None, None]).max()
        return {
            "values": values, "seconds": seconds, "version": self.peer.version, "most evaluations": float(over),
            "failures": sorted(failures),
        }  # fmt: skip


def geometric_mean(numbers: Iterable[float]) -> float:
    """Of numbers that are not negative."""
    return math.exp(np.mean([math.log(max(number, 1e-300)) for number in numbers]))


def best(rivals: dict[str, Cells], cell: tuple[str, int]) -> tuple[float, str]:
    """The least error of a rival, and whose it is; one that failed has none."""
    return min((np.nan_to_num(cells[cell]["error"], nan=np.inf), name) for name, cells in rivals.items())


def show_errors(budgets: tuple[int, ...], own: Cells, before: Cells, rivals: dict[str, Cells]) -> None:
    """A table for each budget with a line for each family, losses marked; then in how many cells we are ahead."""
    marked = ["behind the best peer"] * bool(rivals) + ["more than 1.05 of before"] * bool(before)
    print("\nRelative RMSE" + f" (* {' or '.join(marked)})" * bool(marked))
    for budget in budgets:
        title, cells = f"{budget} evaluations", [cell for cell in own if cell[1] == budget]
        print(
            f"\n{title:22}   ours" + "   before  ratio" * bool(before) + "     peer  ratio   best peer" * bool(rivals)
        )
        errors_of_ours = [own[cell]["error"] for cell in cells]
        earlier = [before[cell]["error"] if before else math.nan for cell in cells]
        peers = [best(rivals, cell) if rivals else (math.nan, "") for cell in cells]
        columns = errors_of_ours, earlier, [error for error, _ in peers]
        means = *map(geometric_mean, columns), ""  # whose ratios are the geometric means of the ratios
        names = [*(family for family, _ in cells), "geometric mean"]
        rows = [*zip(*columns, [peer for _, peer in peers], strict=True), means]
        for name, (error, error_before, error_of_peer, peer) in zip(names, rows, strict=True):
            line = f"{name:22}{error:7.3f}"
            line += _against(error, error_before, 1.05) if before else ""
            line += f"{_against(error, error_of_peer, 1)}   {peer}" if rivals else ""
            print(line.rstrip())
    cells = [cell for cell in own if cell[1] in budgets]
    print()
    if before:
        worse = [own[cell]["error"] > 1.05 * before[cell]["error"] for cell in cells]
        print(f"more than 1.05 of the error before in {sum(worse)} of {len(cells)} cells")
    for kind, some in {"all peers": rivals, "the peers as shapiq has them": _as_they_come(rivals)}.items():
        if some:
            ahead = [own[cell]["error"] < best(some, cell)[0] for cell in cells]
            print(f"ahead of the best of {kind} ({len(some)}) in {sum(ahead)} of {len(ahead)} cells")


def _against(error: float, other: float, most: float) -> str:
    return f"{other:9.3f}{error / other:6.2f}{'*' if error > most * other else ' '}"


def _as_they_come(rivals: dict[str, Cells]) -> dict[str, Cells]:
    return {name: cells for name, cells in rivals.items() if " " not in name}


def show_methods(budgets: tuple[int, ...], methods: dict[str, Cells]) -> None:
    """Every method by itself: the geometric mean of its errors over families, and the mean of its milliseconds."""
    print("\nGeometric mean of the relative RMSE, and milliseconds of processor time for a game\n")
    print(f"{'':32}" + "".join(f"{budget:>16}" for budget in budgets))
    for name, cells in methods.items():
        line = f"{name:32}"
        for budget in budgets if cells else ():
            figures = [figures for cell, figures in cells.items() if cell[1] == budget]
            milliseconds = np.mean([figure["milliseconds"] for figure in figures])
            line += f"{geometric_mean(figure['error'] for figure in figures):9.3g}{milliseconds:7.1f}"
        print(line)


def show_coverage(budgets: tuple[int, ...], own: Cells, figure: str, title: str, range_: tuple[float, float]) -> None:
    """How many of the intervals hold the truth; marked where they are fewer or more than they should be."""
    least, most = range_
    wide = f", + above {most:.0%}" if most < 1 else ""
    print(f"\nPer cent of {title} within 95 % intervals (* below {least:.0%}{wide})\n")
    print(f"{'':22}" + "".join(f"{budget:>7}" for budget in budgets))
    inside = []
    for family in dict.fromkeys(name for name, _ in own):
        line = f"{family:22}"
        for budget in budgets:
            held = own.get((family, budget), {}).get(figure, math.nan)
            line += f"{100 * held:6.0f}{'*' if held < least else '+' if held > most else ' '}"
            inside += [least <= held <= most] * (not math.isnan(held))
        print(line.replace("nan", "  –"))
    print(f"{sum(inside)} of {len(inside)} cells as they should be")


def show_patches(methods: dict[str, Cells]) -> None:
    """ViT with nine patches, where ShaplEIG has published its error."""
    print(f"\nViT, nine patches: MSE × 10³ at {' · '.join(map(str, PATCHES_BUDGETS))} evaluations\n")
    for name, cells in methods.items():
        if cells:
            print(f"{name:32}" + "".join(f"{1e3 * cells[PATCHES, budget]['mse']:10.3g}" for budget in PATCHES_BUDGETS))
    print(f"{'ShaplEIG, as published':32}" + "".join(f"{mse:10.3g}" for mse in PUBLISHED))


def interactions(families: list[Games], half: str, seeds: int, peers: Peers | None) -> tuple[Cells, dict[str, Cells]]:
    """Pairwise Shapley interaction indices of the first game of a half, of ten families with ten players or more."""
    number = HALVES[half].start or 0
    games = [
        Games(f"{family.name}/{number}", family.table[:, number : number + 1], PAIR_BUDGETS)
        for family in families
        if family.players >= 10
    ][:PAIR_GAMES]
    print(
        f"\n== Pairwise Shapley interaction indices, {len(games)} games, {seeds} seeds. An error of 1 is that of zeros"
    )
    try:
        own = {(g.name, budget): figures_of_ours(g, budget, seeds, 2) for g in games for budget in g.budgets}
    except NotImplementedError as error:
        own = {}
        print(f"without ours: {error}")
    rivals = found(peers, games, "all", INTERACTIONS, seeds, 2)
    if own:
        show_errors(PAIR_BUDGETS, own, {}, rivals)
        show_coverage(PAIR_BUDGETS, own, "coverage", "all pairs", (0.9, 0.98))
        show_coverage(PAIR_BUDGETS, own, "coverage of the largest", "the two largest pairs of a game", (0.9, 1))
    show_methods(PAIR_BUDGETS, {"ours": own, **rivals} if own else rivals)
    return own, rivals


def found(
    peers: Peers | None, families: list[Games], half: str, rivals: dict[str, Rival], seeds: int, size: int = 1
) -> dict[str, Cells]:
    """Figures of peers, without those that are missing."""
    result: dict[str, Cells] = {}
    missing: dict[str, list[str]] = defaultdict(list)
    for name, rival in rivals.items() if peers else ():
        try:
            result[name] = peers.figures(families, half, name, rival, seeds, size)
        except ImportError as error:
            missing[str(error)].append(name)
    for reason, names in missing.items():
        print(f"without {', '.join(names)}: {reason}")
    return result


def saved(file: Path, half: str, seeds: int) -> Cells:
    """Figures of an earlier version, which must be of the same games and seeds."""
    content = json.loads(file.read_text())
    if (content["half"], content["seeds"]) != (half, seeds):
        raise SystemExit(f"{file} is of half {content['half']} with {content['seeds']} seeds: ask for the same")
    return {(cell["family"], cell["budget"]): cell["figures"] for cell in content["cells"]}


def save(file: Path, own: Cells, half: str, seeds: int) -> None:
    """Keep our figures for a comparison with a later version."""
    cells = [{"family": family, "budget": budget, "figures": figures} for (family, budget), figures in own.items()]
    content = {"version": dasp.__version__, "half": half, "seeds": seeds, "cells": cells}
    file.write_text(json.dumps(content, indent=1))


def publish(folder: Path, own: Cells, before: Cells, rivals: dict[str, Cells], on_patches: dict[str, Cells]) -> None:
    """Write what docs/benchmarks.md shows: every cell, every method by budget, and the nine patches."""
    cells = []
    for (family, budget), figures in own.items():
        if budget in BUDGETS:
            error, peer = best(rivals, (family, budget))
            errors_of_all = figures["error"], before[family, budget]["error"], error
            held = figures["coverage"], figures["coverage of the largest"]
            cells.append([family, budget, *(f"{x:.6g}" for x in errors_of_all), peer, *(f"{x:.4f}" for x in held)])
    head = ["family", "evaluations", "error", "before", "best peer's", "best peer", "coverage", "of the two largest"]
    _write(folder / "public-games.csv", [head, *cells])
    methods = {"BayesianShapley": own, "BayesianShapley before": before} | rivals
    _write(folder / "public-games-methods.csv", _by_method(methods, BUDGETS))
    patches = {name: [1e3 * cells[PATCHES, b]["mse"] for b in PATCHES_BUDGETS] for name, cells in
               (methods | on_patches).items()} | {"ShaplEIG, as published": list(PUBLISHED)}  # fmt: skip
    head = ["method", *(f"{budget} evaluations" for budget in PATCHES_BUDGETS)]
    _write(folder / "public-games-patches.csv", [head, *([name, *(f"{x:.3g}" for x in row)] for name, row in
           sorted(patches.items(), key=lambda item: item[1][-1]))])  # fmt: skip


def publish_pairs(folder: Path, own: Cells, rivals: dict[str, Cells]) -> None:
    """Write what the page shows of interactions: every method by budget, and how many of our intervals held."""
    rows = _by_method({"BayesianShapley": own} | rivals, PAIR_BUDGETS)
    for figure, title in {"coverage": "held, %", "coverage of the largest": "held of the two largest, %"}.items():
        rows += [
            [
                title,
                str(budget),
                f"{100 * np.mean([x[figure] for (_, other), x in own.items() if other == budget]):.0f}",
                "",
            ]
            for budget in PAIR_BUDGETS
        ]
    _write(folder / "public-games-pairs.csv", rows)


def _by_method(methods: dict[str, Cells], budgets: tuple[int, ...]) -> list[list[Any]]:
    rows: list[list[Any]] = [["method", "evaluations", "geometric mean of the errors", "milliseconds"]]
    for name, cells in methods.items():
        for budget in budgets:
            some = [figures for (_, other), figures in cells.items() if other == budget]
            mean, time_ = geometric_mean(x["error"] for x in some), np.mean([x["milliseconds"] for x in some])
            rows.append([name, str(budget), f"{mean:.3g}", f"{time_:.1f}"])
    return rows


def _write(file: Path, rows: list[list[Any]]) -> None:
    about = {
        "by": "benchmarks/public_games.py --publish", "version": dasp.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }  # fmt: skip
    with file.open("w", newline="") as stream:
        stream.writelines(f"# {name}: {text}\n" for name, text in about.items())
        csv.writer(stream, lineterminator="\n").writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--peer", default=sys.executable, help="a Python that has shapiq 1.8 and what it needs")
    parser.add_argument("--no-peers", action="store_true", help="our own figures only")
    parser.add_argument("--half", choices=HALVES, default="report", help="which games count")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--save", type=Path, help="a file to write our figures to")
    parser.add_argument("--before", type=Path, help="a file with our figures of an earlier version")
    parser.add_argument("--publish", action="store_true", help="write the data of docs/benchmarks.md")
    chosen = parser.parse_args()
    if chosen.publish:
        if chosen.no_peers or chosen.half != "report":
            parser.error("what is published is of --half report, with peers")
        chosen.before = chosen.before or BEFORE
    torch.set_num_threads(1)
    before = saved(chosen.before, chosen.half, chosen.seeds) if chosen.before else {}
    families = Games.all()
    halves = [games.half(chosen.half) for games in families]
    ours(halves[0], BUDGETS[0], 0)  # what is imported when it is first needed is not to be timed
    own = {(g.name, budget): figures_of_ours(g, budget, chosen.seeds) for g in halves for budget in g.budgets}
    if chosen.save:
        save(chosen.save, own, chosen.half, chosen.seeds)
    number = sum(games.table.shape[1] for games in halves)
    print(f"{number} games ({chosen.half}) of {len(halves)} families, {chosen.seeds} seeds, dasp {dasp.__version__}")
    peers = None if chosen.no_peers else Peers(chosen.peer)
    rivals = found(peers, families, chosen.half, VALUES, chosen.seeds)
    patches = [replace(games, budgets=PATCHES_BUDGETS) for games in families if games.name == PATCHES]
    on_patches = found(peers, patches, chosen.half, ON_PATCHES, chosen.seeds)
    methods = {"BayesianShapley": own} | ({"BayesianShapley before": before} if before else {}) | rivals
    show_errors(BUDGETS, own, before, rivals)
    show_methods(BUDGETS, methods)
    show_coverage(BUDGETS, own, "coverage", "all values", (0.9, 0.98))
    show_coverage(BUDGETS, own, "coverage of the largest", "the two largest values of a game", (0.9, 1))
    show_patches(methods | on_patches)
    pairs = interactions(families, chosen.half, chosen.seeds, peers)
    if chosen.publish:
        publish(PUBLISHED_IN, own, before, rivals, on_patches)
        publish_pairs(PUBLISHED_IN, *pairs)


if __name__ == "__main__":
    main()
