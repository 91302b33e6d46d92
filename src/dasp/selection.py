"""Which method explains a model best: by its number of players, what that costs, and whether moments can be propagated.

Measured by `benchmarks/selection.py` (one thread; error relative to the size of the true values, and ms per row). ReLU
networks of 128 and 64 units on a function of N inputs, one of tanh on the breast cancer data, a small convolutional one
on digits whose players are blocks of pixels:

    N             Exact      DASP, full rank      GradientDASP     BayesianShapley on GradientDASP (2,048 evaluations)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dasp.attribution.game import Game
from dasp.errors import BadInput
from dasp.methods import METHODS

__all__ = ["SHORT_NAMES", "Choice", "choose", "method_name"]

EXACT_PLAYERS = 14
FULL_RANK_PLAYERS = 20
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
    `max_evaluations`."""
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
