"""Which method explains a model best: by its number of players, what that costs, and whether moments can be propagated.

Measured by `benchmarks/selection.py` on one thread: the error relative to the size of the true values, and ms per row,
for ReLU networks of 128 and 64 units that learnt a function of N inputs, for one of tanh on the breast cancer data, and
for a small convolutional one on digits, whose players are blocks of pixels. The last column spends 2,048 evaluations.

    N             Exact     DASP, full rank    GradientDASP     BayesianShapley on it    standard error of the truth
    inputs  10    2         0.020     13       0.028     2      0        2
            12    6         0.021     16       0.032     2      0.001    9
            14   18         0.017     27       0.030     3      0.003   10
            16              0.011     30       0.020     3      0.006   13
            24              0.017     81       0.035     3      0.021   35               0.011
            32              0.016    306       0.027     2      0.018    9               0.009
            64              0.012  1,977       0.021    10      0.020   18               0.010
    cancer  14    7         0.009     24       0.024     3      0.001   10
            20              0.018     96       0.038     3      0.006   61
            30              0.015    331       0.020     6      0.017  106               0.010
    digits   8    7         0.021    144       0.037    18      0       20
            16              0.026    758       0.042    18      0.002  168
            32              0.022 16,873       0.035    44      0.013  273               0.004
            64                                 0.027    31      0.016  100               0.005

Up to 14 players, exact values take less time than `DASP(rank="full")`. It has about half of GradientDASP's error, and
takes ten times as long at 16 players and a hundred times at 32, as time grows with N³: it is worth that up to 20.
Evaluations on top are better than either where the model is quick; they are taken when their error bars are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dasp.errors import BadInput
from dasp.games.game import Game
from dasp.methods.table import METHODS

__all__ = ["SHORT_NAMES", "Choice", "choose", "method_name"]

EXACT_PLAYERS, FULL_RANK_PLAYERS = 14, 20  # at most; see above
MOST_EVALUATIONS = 2**17  # per row, all rows of a background together

SHORT_NAMES = {
    "exact": "Exact",
    "dasp": "DASP, full rank",
    "gradient": "GradientDASP",
    "bayesian": "BayesianShapley",
    "permutation": "Permutations",
}


def method_name(method: str) -> str:
    """The name in `METHODS` of a method by that name or a short one.

    >>> method_name("dasp")
    'DASP, full rank'
    """
    name = SHORT_NAMES.get(method, method)
    if name not in METHODS:
        names = ", ".join(map(repr, ["auto", *SHORT_NAMES, *METHODS]))
        raise BadInput(f"there is no method {method!r}; there are {names}")
    return name


@dataclass(frozen=True)
class Choice:
    """A method of `METHODS`, and why; `obstacle` if moments should have been propagated, but cannot be."""

    method: str
    reason: str
    obstacle: bool = False


def choose(
    game: Game, obstacle: Callable[[str], str | None], *, evaluate: bool = False, max_evaluations: int | None = None
) -> Choice:
    """The method for a game. `obstacle` says why moments cannot be propagated by a method, if so, and is asked only if
    that matters; `evaluate` asks for evaluations on top, which give error bars; exact values must not take more than
    `max_evaluations`.

    >>> import torch
    >>> from dasp.games.arguments import Arguments, games
    >>> (game,) = games(Arguments(torch.ones(1, 16)))
    >>> choose(game, lambda method: None).method
    'DASP, full rank'
    >>> choose(game, lambda method: "it has branches").reason
    'moments cannot be propagated through the model: it has branches'
    """
    players, rows = game.count, len(game.baselines)
    over = f" over {rows} background rows" if rows > 1 else ""
    exact = METHODS["Exact"].cost(game)
    if players <= EXACT_PLAYERS and exact <= MOST_EVALUATIONS and 2**players <= (max_evaluations or 2**players):
        return Choice("Exact", f"{players} players have only {2**players:,} coalitions{over}")
    name = "DASP, full rank"
    few = players <= FULL_RANK_PLAYERS and METHODS[name].cost(game, players) <= MOST_EVALUATIONS
    name = name if few else "GradientDASP"
    why = f"{players} players{over} are {'few enough' if few else 'too many'} to propagate every one of them by itself"
    if (because := obstacle(name)) is not None:
        return Choice("BayesianShapley", f"moments cannot be propagated through the model: {because}", obstacle=True)
    if not evaluate:
        return Choice(name, why)
    on = "BayesianShapley on DASP" if few else "BayesianShapley on GradientDASP"
    return Choice(on, f"{why}, and evaluations on top give error bars")
