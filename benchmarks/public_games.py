"""BayesianShapley without a prior against shapiq's approximators, on 93 public games that were not made here.

    DASP_DATA=folder python benchmarks/public_games.py [--peer PYTHON | --no-peers] [--half tune|report|all] [--seeds 4]
                                                       [--save FILE] [--before FILE]

The games are precomputed ones of shapiq in twelve families: image classifiers by superpixels and patches, sentiment by
words, tabular models, data valuation, sums of unanimity games. All 2^N values of each are known, so every error is
exact. Constants may be chosen on the games with even numbers (tune); what is published is of those with odd ones.

Errors are the rms error of a game's values relative to the rms of the values themselves, and the root mean square of
that over games and seeds. Times are the processor's for one game by itself. "Best peer" is, for each cell by itself,
the one that turned out best; each has its own line in the list of all. "Paired" ones evaluate every coalition with its
complement, which shapiq leaves to the user. Left out are SPEX, which needs more than 600 evaluations, and ProxySPEX,
whose search takes six seconds a game; ShaplEIG, which takes minutes, plays on nine patches only, where it was published.

--peer names a Python that has shapiq 1.8 (`shapiq_peer.py` says how to make one); what it found is kept in
results/cache and computed once. --save writes our figures to a file, and --before compares with those of a file.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dasp
from dasp import BayesianShapley
from reproduction.store import Store, checksum
from shapiq_peer import Peer

BUDGETS = (32, 64, 128, 256, 512, 1024)
PATCHES, PATCHES_BUDGETS, PUBLISHED = "vit-9", (16, 32, 64), (8.0, 2.3, 0.48)  # ShaplEIG's MSE × 10³
PAIR_GAMES, PAIR_BUDGETS = 10, (64, 128, 256, 512)
HALVES = {"tune": slice(0, None, 2), "report": slice(1, None, 2), "all": slice(None)}
STORE = Store(Path("results") / "cache")

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
ON_PATCHES: dict[str, Rival] = {"ShaplEIG": ("ShaplEIG", {"show_progress": False})}


@dataclass(frozen=True)
class Games:
    """The games of a family. Entry b of a column is the worth of the coalition whose members are the bits of b."""

    name: str
    table: Tensor  # (2^players, games)

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
        return [
            Games(family, torch.stack([games[number] for number in range(len(games))], 1))
            for family, games in families.items()
        ]

    def half(self, which: str) -> Games:
        """The games with even numbers (tune), with odd ones (report), or all."""
        return replace(self, table=self.table[:, HALVES[which]])

    @property
    def players(self) -> int:
        return len(self.table).bit_length() - 1

    @property
    def budgets(self) -> tuple[int, ...]:
        """What is measured: no more than all coalitions."""
        wanted = sorted({*BUDGETS, *PATCHES_BUDGETS}) if self.name == PATCHES else BUDGETS
        return tuple(budget for budget in wanted if budget < len(self.table))

    def worth(self, present: Tensor) -> Tensor:
        """The games as a model of rows of zeros and ones, (coalitions, games)."""
        return self.table[(present > 0).long() @ 2 ** torch.arange(self.players)]

    @cached_property
    def values(self) -> Tensor:
        """Exact Shapley values, (games, players)."""
        return shapley_values(self.table)


def interactions_of_games(table: Tensor) -> Tensor:
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
    return interactions_of_games(table).T @ (members * weights[:, None])


def shapley_interactions(table: Tensor) -> Tensor:
    """I_ij = Σ_{A∋i,j, |A| even} 4c_A/(|A| − 1), (games, pairs), in the order of `itertools.combinations`."""
    members, size = _subsets(table)
    weights = torch.where((size % 2 == 0) & (size > 0), 4 / (size - 1), 0)
    first, second = torch.triu_indices(members.shape[1], members.shape[1], 1)
    return interactions_of_games(table).T @ (members[:, first] * members[:, second] * weights[:, None])


def _subsets(table: Tensor) -> tuple[Tensor, Tensor]:
    """Members of all subsets as zeros and ones, and their sizes."""
    bits = torch.arange(len(table))[:, None] >> torch.arange(len(table).bit_length() - 1) & 1
    return bits.to(table.dtype), bits.sum(1)


def ours(games: Games, budget: int, seed: int) -> tuple[Tensor, Tensor]:
    """Values and standard deviations, (games, players)."""
    x = torch.ones(1, games.players, dtype=torch.float64)
    values, std = BayesianShapley(games.worth).attribute(
        x, torch.zeros_like(x), max_evaluations=budget, seed=seed, return_std=True
    )
    return values[0], std[0]


def figures_of_ours(games: Games, budget: int, seeds: int) -> Figures:
    """Errors, coverage and milliseconds."""
    one, seconds, found = replace(games, table=games.table[:, :1]), [], []
    for seed in range(seeds):
        start = time.process_time()
        ours(one, budget, seed)
        seconds.append(time.process_time() - start)
        found.append(ours(games, budget, seed))
    values, std = (torch.stack(part) for part in zip(*found, strict=True))
    scale = games.values.abs().amax(1, keepdim=True)
    held = ((values - games.values).abs() <= 1.96 * std + 1e-12 * scale).double()
    largest = games.values.abs().topk(2).indices.expand(seeds, -1, -1)
    return {
        **errors(values, games.values), "coverage": float(held.mean()),
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

    def figures(self, families: list[Games], half: str, name: str, rival: Rival, seeds: int) -> Cells:
        """Figures of an approximator of values; all games are played, and those of a half counted."""
        cells = {}
        for games in families:
            kept, truth = self.kept(games, name, rival, games.budgets, seeds, 1), games.half(half).values
            for budget, values, seconds in zip(games.budgets, kept["values"], kept["seconds"], strict=True):
                found = values[:, HALVES[half]]
                cells[games.name, budget] = errors(found, truth) | {"milliseconds": 1e3 * float(seconds.mean())}
        return cells

    def kept(
        self, games: Games, name: str, rival: Rival, budgets: Sequence[int], seeds: int, size: int
    ) -> dict[str, Any]:
        """What an approximator answers: values (budgets, seeds, games, coalitions of a size) and its seconds."""
        key = {"games": checksum(games.table), "options": rival, "budgets": budgets, "seeds": seeds, "size": size}
        file = f"public_games/{games.name}-{name.replace(' ', '-')}"
        return STORE.keep(file, key, partial(self._play, games, rival, budgets, seeds, size))

    def _play(self, games: Games, rival: Rival, budgets: Sequence[int], seeds: int, size: int) -> dict[str, Any]:
        method, options = rival
        print(f"{games.name}: {method} {options or ''}", file=sys.stderr, flush=True)
        if self.peer is None:
            self.peer = Peer(self.python)
        self.peer.require(method)
        count = math.comb(games.players, size)
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
    """Of positive numbers."""
    return math.exp(np.mean([math.log(number) for number in numbers]))


def best(rivals: dict[str, Cells], cell: tuple[str, int]) -> str:
    """The rival with the least error; one that failed has none."""
    return min(rivals, key=lambda name: np.nan_to_num(rivals[name][cell]["error"], nan=np.inf))


def show_errors(own: Cells, before: Cells, rivals: dict[str, Cells]) -> None:
    """A table for each budget with a line for each family, losses marked; then the sums of it."""
    print("\nRelative RMSE")
    for budget in BUDGETS:
        cells = [cell for cell in own if cell[1] == budget]
        title = f"{budget} evaluations"
        print(f"\n{title:22}   ours" + "   before  ratio" * bool(before) + "   ours/peer   best peer" * bool(rivals))
        for cell in cells:
            error = own[cell]["error"]
            line = f"{cell[0]:22}{error:7.3f}"
            if before:
                ratio = error / before[cell]["error"]
                line += f"{before[cell]['error']:9.3f}{ratio:6.2f}{'*' if ratio > 1.05 else ' '}"
            if rivals:
                name = best(rivals, cell)
                ratio = error / rivals[name][cell]["error"]
                line += f"{ratio:11.2f}{'*' if ratio >= 1 else ' '}  {rivals[name][cell]['error']:7.3f} {name}"
            print(line)
        line = f"{'geometric mean':22}{geometric_mean(own[cell]['error'] for cell in cells):7.3f}"
        if before:
            line += f"{geometric_mean(before[cell]['error'] for cell in cells):9.3f}"
            line += f"{geometric_mean(own[cell]['error'] / before[cell]['error'] for cell in cells):6.2f} "
        if rivals:
            least = {cell: rivals[best(rivals, cell)][cell]["error"] for cell in cells}
            line += f"{geometric_mean(own[cell]['error'] / least[cell] for cell in cells):11.2f} "
            line += f"  {geometric_mean(least.values()):7.3f}"
        print(line)
    print("* behind the best peer" * bool(rivals) + ", more than 1.05 of before" * bool(before))
    cells = [cell for cell in own if cell[1] in BUDGETS]
    if before:
        worse = [cell for cell in cells if own[cell]["error"] > 1.05 * before[cell]["error"]]
        print(f"{len(worse)} of {len(cells)} cells have more than 1.05 of the error before")
    for kind, names in {"all peers": rivals, "peers with their own defaults": _plain(rivals)}.items():
        if names:
            ahead = [own[cell]["error"] < rivals[best(names, cell)][cell]["error"] for cell in cells]
            print(f"ahead of the best of {len(names)} {kind} in {sum(ahead)} of {len(ahead)} cells")


def _plain(rivals: dict[str, Cells]) -> dict[str, Cells]:
    return {
        name: cells
        for name, cells in rivals.items()
        if name in VALUES and VALUES[name][1].keys() <= {"index", "max_order"}
    }


def show_methods(own: Cells, before: Cells, rivals: dict[str, Cells]) -> None:
    """Every method by itself: the geometric mean of its errors over families, and the mean of its milliseconds."""
    print("\nGeometric mean of the relative RMSE over families, and milliseconds of processor time for a game")
    print(f"\n{'':26}" + "".join(f"{budget:>16}" for budget in BUDGETS))
    for name, cells in {"BayesianShapley": own, "BayesianShapley before": before, **rivals}.items():
        line = f"{name:26}"
        for budget in BUDGETS if cells else ():
            of_budget = [figures for cell, figures in cells.items() if cell[1] == budget]
            milliseconds = np.mean([figures["milliseconds"] for figures in of_budget])
            line += f"{geometric_mean(figures['error'] for figures in of_budget):9.3g}{milliseconds:7.1f}"
        print(line)


def show_coverage(own: Cells, field: str, title: str, least: float, most: float) -> None:
    """How many of the intervals hold the truth; marked where they are fewer or more than they should be."""
    print(
        f"\nPer cent of {title} within 95 % intervals (* below {least:.0%}" + f", + above {most:.0%}" * (most < 1) + ")"
    )
    print(f"\n{'':22}" + "".join(f"{budget:>7}" for budget in BUDGETS))
    inside = []
    for family in dict.fromkeys(name for name, _ in own):
        line = f"{family:22}"
        for budget in BUDGETS:
            if (family, budget) not in own:
                line += f"{'–':>6} "
                continue
            held = own[family, budget][field]
            line += f"{100 * held:6.0f}{'*' if held < least else '+' if held > most else ' '}"
            inside.append(least <= held <= most)
        print(line)
    print(f"{sum(inside)} of {len(inside)} cells as they should be")


def show_patches(own: Cells, before: Cells, rivals: dict[str, Cells]) -> None:
    """ViT with nine patches, where ShaplEIG has published its error."""
    print(f"\nViT, nine patches: MSE × 10³ at {' · '.join(map(str, PATCHES_BUDGETS))} evaluations\n")
    for name, cells in {"BayesianShapley": own, "BayesianShapley before": before, **rivals}.items():
        if cells:
            print(f"{name:26}" + "".join(f"{1e3 * cells[PATCHES, budget]['mse']:10.3g}" for budget in PATCHES_BUDGETS))
    print(f"{'ShaplEIG, as published':26}" + "".join(f"{mse:10.3g}" for mse in PUBLISHED))


def asked(peers: Peers, families: list[Games], half: str, seeds: int) -> tuple[dict[str, Cells], dict[str, Cells]]:
    """Figures of the peers on all families, and of those that play on nine patches only."""
    found: list[dict[str, Cells]] = []
    for rivals, played in ((VALUES, families), (ON_PATCHES, [games for games in families if games.name == PATCHES])):
        found.append({})
        for name, rival in rivals.items():
            try:
                found[-1][name] = peers.figures(played, half, name, rival, seeds)
            except ImportError as error:
                print(f"without {name}: {error}")
    return found[0], found[1]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--peer", default=sys.executable, help="a Python that has shapiq 1.8 and what it needs")
    parser.add_argument("--no-peers", action="store_true", help="our own figures only")
    parser.add_argument("--half", choices=HALVES, default="report", help="which games count")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--save", type=Path, help="a file to write our figures to")
    parser.add_argument("--before", type=Path, help="a file with our figures of an earlier version")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    before = saved(chosen.before, chosen.half, chosen.seeds) if chosen.before else {}
    families = Games.all()
    halves = [games.half(chosen.half) for games in families]
    ours(halves[0], BUDGETS[0], 0)  # what is imported when it is first needed is not to be timed
    own = {(g.name, budget): figures_of_ours(g, budget, chosen.seeds) for g in halves for budget in g.budgets}
    if chosen.save:
        save(chosen.save, own, chosen.half, chosen.seeds)
    rivals: dict[str, Cells] = {}
    on_patches: dict[str, Cells] = {}
    if not chosen.no_peers:
        rivals, on_patches = asked(Peers(chosen.peer), families, chosen.half, chosen.seeds)
    number = sum(games.table.shape[1] for games in halves)
    print(f"{number} games ({chosen.half}) of {len(halves)} families, {chosen.seeds} seeds, dasp {dasp.__version__}")
    show_errors(own, before, rivals)
    show_methods(own, before, rivals)
    show_coverage(own, "coverage", "all values", 0.9, 0.98)
    show_coverage(own, "coverage of the largest", "the two largest values of a game", 0.9, 1)
    show_patches(own, before, rivals | on_patches)


if __name__ == "__main__":
    main()
