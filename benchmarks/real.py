"""Is the default the best answer for its time on real networks? `Explainer` and `TextExplainer` as they are, every
single method of ours and every peer, on trained networks that come inside packages of PyPI (see `real_games.py`).

    DASP_DATA=folder python benchmarks/real.py [GAME …] [--only default|methods|peers] [--quick] [--memory]
                                               [--table] [--save FILE]

What is measured replaces the same rows of benchmarks/results/real.csv, game by game, so that single games can be played
again and a run that was stopped goes on where it is told to. Games that are named are played in that order. `--quick`
does without equal evaluations, and `--table` only prints what the file has. Networks that cannot be had are skipped
with the reason.

* **default**: `Explainer(model, baselines=…)` on one input, with nothing else said; and with a budget of 64, 128, 256
  and 1,024 evaluations.
* **methods**, **peers**: each with as many samples as fit into the seconds of the default, and with the same
  evaluations (a gradient counts as three).

Errors are the rms error of the values relative to the rms of the true ones; the squared standard error of the truth is
taken off both. `stated` is the rms of the standard deviations, relative in the same way, `coverage` the share of 95 %
intervals that hold the truth, whose own error is added to theirs. Seconds are the processor's, of one thread, for a
second call: what is done once for an object (choosing, tracing) is in `first_seconds` only. A call of more than a
minute is not repeated, and has it all. `--memory` measures the peak memory of a first default call in a process of its
own, above what the process had before. A ratio of errors has a floor: nobody minds a thousandth, and half of the
truth's own error cannot be told from none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp import Explainer, TextExplainer
from dasp.attribution.captum_adapter import estimated
from dasp.games.request import Request
from dasp.methods import METHODS, Method
from real_games import GAMES, RealGame, Setting, Truth
from real_networks import Unavailable
from real_results import BUDGETS, FILE, OWN, TIME, Results, Row, best, geometric_mean, ratio

SINGLE = (
    "gradient_dasp_rank_0", "gradient_dasp", "gradient_shapley", "bayesian_shapley",
    "bayesian_shapley_on_gradient_dasp", "gradient_shapley_on_gradient_dasp", "permutation_shapley",
)  # fmt: skip
_GRADIENTS = {"gradient_dasp_rank_0", "gradient_dasp", "gradient_shapley", "bayesian_shapley_on_gradient_dasp",
              "gradient_shapley_on_gradient_dasp"}  # fmt: skip
_LONG = {"photo-49", "photo-pixels"}  # left out by --quick
_ENOUGH, _TOO_MUCH = 0.8, 1.1  # times the default's seconds are equal seconds
_TRIES = 14
_MOMENT, _MOST_TIMES = 1, 6  # seconds in which a call is repeated, and how often
_LONG_CALL = 60  # seconds: one that takes longer is not repeated
_MOST_MEMORY = 14 * 2**30


class Exhausted(Exception):
    """A call took more processor time than it may."""


@dataclass(frozen=True)
class Board:
    """A game that is set up: what it is, what is asked, and what is true."""

    game: RealGame
    setting: Setting
    request: Request
    truth: Truth

    @staticmethod
    def of(game: RealGame) -> Board:
        """Set up a game; its truth is computed unless it is kept."""
        setting = game.make()
        request = setting.request()
        return Board(game, setting, request, game.truth(request))

    def row(self, what: str, budget: str, method: str, values: Tensor, std: Tensor | None = None, **more: float) -> Row:
        """Return the measurement of values (players, rows), with their standard deviations if there are any."""
        truth, size = self.truth, self.truth.size
        difference = values.detach().cpu().double().reshape(truth.values.shape) - truth.values
        square = difference.square().mean() - truth.error.square().mean()
        if std is not None:
            std = std.detach().cpu().double().reshape(truth.values.shape)
            held = difference.abs() <= 1.96 * (std.square() + truth.error.square()).sqrt() + 1e-6 * size
            more |= {"stated": float(std.square().mean().sqrt()) / size, "coverage": float(held.double().mean())}
        return Row(
            self.game.name, self.game.network, self.game.players, self.request.players, truth.relative_error, what,
            budget, method, float(square.clamp(min=0).sqrt()) / size, **more,
        )  # fmt: skip


# The default.


def explain(setting: Setting, request: Request, explainer: Any) -> tuple[Tensor, Tensor, str, float]:
    """Return values and standard deviations (players, rows), the method, and the evaluations for a row."""
    if setting.text is not None:
        found = explainer.attribute([setting.text[1]])
        values, std = (torch.as_tensor(part[0]).reshape(-1, 1) for part in (found.values, found.std))
    else:
        found = explainer.attribute(setting.x)
        (values,), (std,) = (request.values_of(part) for part in (found.values, found.std))
    evaluations = math.nan if found.evaluations is None else float(found.evaluations.double().mean())
    return values, std, found.choices[0].method, evaluations


def explainer_of(setting: Setting, **budget: Any) -> Any:
    """Return the explainer that a user would make."""
    if setting.text is not None:
        return TextExplainer(setting.text[0], target=setting.target, **budget)
    off = {"background" if setting.background else "baselines": setting.baselines}
    mask = {} if setting.mask is None else {"feature_mask": setting.mask}
    return Explainer(setting.model, **off, **mask, target=setting.target, **budget)


def default(board: Board, budgets: tuple[int, ...], patience: float) -> list[Row]:
    """Measure the default with its own budget, and with numbers of evaluations."""
    rows = []
    for budget in (None, *budgets):
        options = {} if budget is None else {"max_evaluations": budget}
        name = OWN if budget is None else str(budget)
        explainer = explainer_of(board.setting, **options)
        run = partial(explain, board.setting, board.request, explainer)
        try:
            first, answer = _timed(run, patience)
            seconds, (values, std, method, evaluations) = (
                (first, answer) if first > _LONG_CALL else _least(run, patience)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, the next game is played
            print(f"{board.game.name}: the default fails: {_line(error)}", flush=True)
            if budget is None:
                return []
            continue
        rows.append(
            board.row(
                "default", name, method, values, std, seconds=seconds, first_seconds=first, evaluations=evaluations
            )
        )
    return rows


# Single methods and peers.


def _peers() -> dict[str, Method]:
    """Return other libraries' methods; shap and shapiq take seconds to import."""
    from real_peers import PEERS  # noqa: PLC0415

    return PEERS


def others(board: Board, what: str, methods: dict[str, Method], own: Row, budgets: tuple[int, ...]) -> list[Row]:
    """Measure methods in the time of the default, and at equal evaluations."""
    rows: list[Row] = []
    game = board.request.games[0]
    for name, method in methods.items():
        if not method.possible(game) or (not board.setting.differentiable and name in _NEED_GRADIENTS):
            continue
        start = time.process_time()
        try:
            rows += _measured(board, what, name, method, own, budgets)
        except Exception as error:  # noqa: BLE001  # a method that fails on a network is left out
            print(f"{board.game.name}: {name} left out: {_line(error)}", flush=True)
        print(f"{board.game.name}: {name} {time.process_time() - start:.1f} s", file=sys.stderr, flush=True)
    return rows


def _measured(board: Board, what: str, name: str, method: Method, own: Row, budgets: tuple[int, ...]) -> list[Row]:
    made, game, seconds = method.make(board.setting.model), board.request.games[0], own.seconds

    def run(number: int | None) -> tuple[float, Any]:
        options = method.options if number is None else {**method.options, method.samples: number}
        call = partial(estimated, made, board.request, **options)
        spent, result = _timed(call, max(5.0, 4 * seconds))
        times = [spent]
        while len(times) < _MOST_TIMES and sum(times) < _MOMENT:  # the default's second call has its design already,
            times.append(_timed(call)[0])  # and one slow call of a quick method would end the search
        return min(times), result

    def row(budget: str, number: int | None, spent: float, estimate: Any) -> Row:
        (values,), std = estimate.values, None if estimate.std is None else estimate.std[0]
        return board.row(what, budget, name, values, std, seconds=spent, evaluations=method.cost(game, number))

    if method.samples is None:
        run(None)
        spent, estimate = run(None)
        fits = [TIME] * (spent <= _TOO_MUCH * seconds) + [str(b) for b in budgets if method.cost(game) <= b]
        return [row(budget, None, spent, estimate) for budget in fits]
    rows = []
    fewest, most = max(1, method.fewest(game)), method.most(game)
    run(fewest)  # what is done once
    with contextlib.suppress(Exhausted):
        found = _in_time(run, fewest, most, seconds)
        as_many = None if math.isnan(own.evaluations) else method.number(game, int(own.evaluations), with_prior=False)
        if as_many is not None and (found is None or as_many > found[0]):  # more may take less: other linear algebra
            spent, estimate = run(as_many)
            found = (as_many, spent, estimate) if spent <= _TOO_MUCH * seconds else found
        if found is not None:
            rows.append(row(TIME, *found))
    for budget in budgets:
        if (number := method.number(game, budget)) is not None:
            with contextlib.suppress(Exhausted):
                rows.append(row(str(budget), number, *run(number)))
    return rows


def _in_time(
    run: Callable[[int], tuple[float, Any]], fewest: int, most: int | None, seconds: float
) -> tuple[int, float, Any] | None:
    """Return the number of samples that takes about so many seconds, what it took and the result; None if not even the
    fewest fit."""
    number, found, too_many = fewest, None, math.inf
    for _ in range(_TRIES):
        try:
            spent, result = run(number)
        except Exhausted:
            spent = math.inf
        if spent <= _TOO_MUCH * seconds:
            found = (number, spent, result)
            if spent >= _ENOUGH * seconds or number == most:
                break
            wanted = number * min(16.0, max(2.0, 0.95 * seconds / max(spent, 1e-6)))  # a call costs something itself
        else:
            too_many, wanted = number, 0.9 * number * max(seconds / spent, 0.1)
        if found is not None and too_many < math.inf:
            wanted = math.sqrt(found[0] * too_many)
        wanted = max(fewest, int(min(wanted, most or wanted)))
        if wanted == number or (found is not None and wanted <= found[0]):
            break
        number = wanted
    return found


def _timed(function: Callable[[], Any], patience: float = math.inf) -> tuple[float, Any]:
    """Return the processor seconds of a call and its result; it is interrupted when patience ends."""
    with _patience(patience):
        start = time.process_time()
        result = function()
        return time.process_time() - start, result


def _least(function: Callable[[], Any], patience: float) -> tuple[float, Any]:
    """Return the least processor seconds of one to three calls, as quick ones vary, and the last result."""
    times: list[float] = []
    while not times or (len(times) < 3 and sum(times) < 1):
        seconds, result = _timed(function, patience)
        times.append(seconds)
    return min(times), result


@contextlib.contextmanager
def _patience(seconds: float) -> Iterator[None]:
    """Interrupt what takes more processor time."""

    def interrupt(*_: Any) -> None:
        raise Exhausted(f"more than {seconds:.0f} s")

    if seconds == math.inf:
        yield
        return
    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _line(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return f"{type(error).__name__}: {text[:160]}"


# Memory, in a process of its own.


def peak(name: str) -> None:
    """Print the megabytes that a first default call takes beyond what the process has."""
    (game,) = (game for game in GAMES if game.name == name)
    setting = game.make()
    request = setting.request()
    _warm_up()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    explain(setting, request, explainer_of(setting))
    print(json.dumps((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024))


def memory(name: str) -> float:
    """Return the peak memory of a first default call in MB, NaN if it fails."""
    command = [sys.executable, __file__, name, "--peak"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # this very script
    return float(done.stdout.split()[-1]) if done.returncode == 0 else math.nan


# Tables.


def show(results: Results) -> None:
    """Print a line for each game, and what they come to."""
    print(
        f"\n{'game':33}{'players':>8}{'truth':>7}  {'default':29}{'error':>7}{'stated':>7}{'held':>5}{'first s':>8}"
        f"{'again s':>8}{'evals':>7}{'MB':>7}  best single in time {'':12} ratio  best peer in time"
    )
    own, singles, peers = [], [], []
    for row in results.defaults():
        line = (
            f"{row.game:33}{row.players:8,}{row.truth_error:7.3f}  {row.method[:28]:29}{row.error:7.3f}"
            f"{row.stated:7.3f}{100 * row.coverage:5.0f}{row.first_seconds:8.2f}{row.seconds:8.3f}"
            f"{row.evaluations:7.0f}{row.memory:7.0f}"
        ).replace("    nan", "      –")
        own.append(row)
        for what, found in (("method", singles), ("peer", peers)):
            if rivals := results.of_game(row.game, what, TIME):
                rival = best(rivals)
                found.append(ratio(row, rival))
                line += f"  {rival.error:.3f} {rival.method[:24]:25}{found[-1]:5.2f}"
        print(line)
    print(f"{len(own)} games")
    for found, rivals in ((singles, "single method of ours"), (peers, "peer")):
        if found:
            print(
                f"default's error by that of the best {rivals} in its time: "
                f"geometric mean {geometric_mean(found):.2f}, "
                f"largest {max(found):.2f}, at most 1 on {sum(x <= 1 for x in found)} and at most 1.3 on "
                f"{sum(x <= 1.3 for x in found)} of {len(found)}"
            )
    for budget in map(str, BUDGETS):
        _show_evaluations(results, budget)


def _show_evaluations(results: Results, budget: str) -> None:
    ratios, behind = [], []
    for row in results.defaults(budget):
        if rivals := results.of_game(row.game, "peer", budget):
            ratios.append(ratio(row, best(rivals)))
            if ratios[-1] > 1:
                behind.append(f"{row.game} ({best(rivals).method})")
    if ratios:
        print(
            f"{budget} evaluations: default nearer than the best peer on {len(ratios) - len(behind)} of {len(ratios)}, "
            f"geometric mean of the ratio {geometric_mean(ratios):.2f}; behind on {', '.join(behind) or 'none'}"
        )


def _warm_up() -> None:
    """Import what a first call imports, so that it is nobody's time."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(80, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    Explainer(model, baselines=torch.zeros(1, 80)).attribute(torch.ones(1, 80))


def _run(game: RealGame, arguments: argparse.Namespace, results: Results) -> None:
    budgets = () if arguments.quick else BUDGETS
    wanted = arguments.only in (None, "default")
    if not wanted and not results.of_game(game.name, "default", OWN):
        print(f"{game.name}: without the default's seconds, nothing has a budget: --only default first", flush=True)
        return
    board = Board.of(game)
    if wanted and (rows := default(board, budgets, arguments.patience)):
        results.replace(rows)
    if not (own := results.of_game(game.name, "default", OWN)):
        return
    if arguments.memory:
        results.replace([replace(own[0], memory=memory(game.name))])
    for what, only in (("method", "methods"), ("peer", "peers")):
        if arguments.only in (None, only):
            methods = {name: METHODS[name] for name in SINGLE} if what == "method" else _peers()
            if rows := others(board, what, methods, own[0], budgets):
                results.replace(rows)


_NEED_GRADIENTS = _GRADIENTS | {
    "captum_deeplift", "captum_integrated_gradients", "captum_gradient_shap", "shap_gradient_explainer",
    "shap_deep_explainer",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Real networks: the default, single methods and peers.")
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"one of {', '.join(game.name for game in GAMES)}")
    parser.add_argument("--only", choices=("default", "methods", "peers"))
    parser.add_argument(
        "--quick", action="store_true", help="without equal evaluations, and without the largest photos"
    )
    parser.add_argument("--memory", action="store_true", help="also measure peak memory, in processes of their own")
    parser.add_argument("--table", action="store_true", help="print what was measured before")
    parser.add_argument("--save", type=Path, default=FILE, metavar="FILE", help="instead of results/real.csv")
    parser.add_argument("--patience", type=float, default=600, help="processor seconds that a default call may take")
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := {*arguments.games} - {game.name for game in GAMES}:
        parser.error(f"there is no game {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    os.environ.setdefault("TQDM_DISABLE", "1")
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))  # an error, and not a machine that swaps
    if arguments.peak:
        peak(arguments.games[0])
        return
    results = Results.of(arguments.save, [game.name for game in GAMES])
    if not arguments.table:
        _warm_up()
        games = {game.name: game for game in GAMES}
        usual = [name for name in games if not (arguments.quick and name in _LONG)]
        for game in (games[name] for name in arguments.games or usual):
            print(f"{datetime.now(UTC):%H:%M:%S} {game.name}", file=sys.stderr, flush=True)
            try:
                _run(game, arguments, results)
            except Unavailable as reason:
                print(f"{game.name}: skipped: {reason}", flush=True)
    show(results)


if __name__ == "__main__":
    main()
