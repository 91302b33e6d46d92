"""Which method explains a model best: by its number of players, and by whether moments can be propagated through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dasp.errors import BadInput
from dasp.methods import METHODS

__all__ = ["SHORT_NAMES", "Choice", "choose", "method_name"]

EXACT_PLAYERS = 10
FULL_RANK_PLAYERS = 32

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
        raise BadInput(f"there is no method {method!r}; there are {', '.join(['auto', *SHORT_NAMES, *METHODS])}")
    return name


@dataclass(frozen=True)
class Choice:
    """A method of `METHODS`, and why."""

    method: str
    reason: str


def choose(players: int, obstacle: Callable[[str], str | None], *, evaluate: bool) -> Choice:
    """The method for a number of players. `obstacle` says why moments cannot be propagated by a method, if so, and is
    asked only if that matters; `evaluate` asks for evaluations on top, which give error bars.

    >>> choose(5, lambda method: None, evaluate=False).method
    'Exact'
    >>> choose(100, lambda method: None, evaluate=True).method
    'BayesianShapley on GradientDASP'
    """
    if players <= EXACT_PLAYERS:
        return Choice("Exact", f"{players} players have only {2**players} coalitions")
    few = players <= FULL_RANK_PLAYERS
    name = "DASP, full rank" if few else "GradientDASP"
    reason = f"{players} players are {'not more' if few else 'more'} than {FULL_RANK_PLAYERS}"
    if (why_not := obstacle(name)) is not None:
        return Choice("BayesianShapley", f"moments cannot be propagated: {why_not}")
    if not evaluate:
        return Choice(name, reason)
    on = "BayesianShapley on DASP" if few else "BayesianShapley on GradientDASP"
    return Choice(on, f"{reason}, and a tolerance, error bars or evaluations were asked for")
