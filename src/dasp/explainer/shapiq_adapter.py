"""Our estimators in shapiq's interface, and explanations as its `InteractionValues`, for its figures and its benchmark.

    ShapiqApproximator(n)(budget, game)       one of our estimators as an approximator of shapiq's
    interaction_values(explanation)           an explanation of ours as shapiq's `InteractionValues`

The other way round, a game or an imputer of shapiq's is explained by `explain_game(game)`. This module imports shapiq,
and nothing else of this package imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dasp.errors import BadInput
from dasp.explainer.explanation import Attributions
from dasp.explainer.game_explainer import game_attributions, game_method
from dasp.games.mask_function import MaskFunction
from dasp.methods.choose import Budget, Choice, choose_evaluations

try:
    from shapiq import InteractionValues
    from shapiq.approximator import Approximator
except ImportError as error:
    raise ImportError("approximators and interaction values of shapiq need it: pip install shapiq") from error

__all__ = ["ShapiqApproximator", "interaction_values"]

_ORDERS = {"SV": 1, "BV": 1, "SII": 2, "k-SII": 2}  # of the indices, at most


class ShapiqApproximator(Approximator):  # type: ignore[misc]
    """One of our estimators as an approximator of shapiq's: a budget and a game go in, `InteractionValues` come out.

    Args:
        n: the number of players.
        max_order: 1, or 2 for pairwise interactions.
        index: "SV" (Shapley values), "BV" (Banzhaf values), "SII" or "k-SII" (Shapley interactions of up to two
            players). All of them come from the same evaluations.
        method: "auto", "exact", "bayesian" or "permutation", as in `explain_game`. Interactions and Banzhaf values need
            one of the first three.
        top_order: leave out all but the interactions of `max_order`.
        random_state: the seed for the choice of coalitions; None is 0, so that answers are always the same.
        others: further options of shapiq's own approximators, which ours have no use for.

    The budget is a number of coalitions, those of nobody and of everybody included. A budget of 2^n gives exact values.

    >>> glove = lambda masks: masks[:, 0] & masks[:, 1:].any(1)
    >>> found = ShapiqApproximator(3, max_order=2, index="k-SII")(budget=100, game=glove)
    >>> found.estimated, found.estimation_budget, round(found[(0, 1)], 3)
    (False, 8, 0.5)
    """

    valid_indices = tuple(_ORDERS)

    def __init__(
        self,
        n: int,
        max_order: int = 1,
        index: str = "SV",
        *,
        method: str = "auto",
        top_order: bool = False,
        random_state: int | None = None,
        **others: Any,  # noqa: ARG002
    ) -> None:
        if index in _ORDERS and not 1 <= max_order <= _ORDERS[index]:
            raise BadInput(f"{index} can be had of the orders 1 to {_ORDERS[index]} here, not {max_order}")
        super().__init__(n, max_order, index, top_order=top_order, random_state=random_state)
        self.method = game_method(method)

    def approximate(
        self,
        budget: int,
        game: Callable[[Any], Any],
        **others: Any,  # noqa: ARG002
    ) -> Any:
        """Return the `InteractionValues` of a game by at most `budget` evaluations of coalitions, none twice."""
        asked = MaskFunction(game, self.n)
        allowed = Budget(max_evaluations=int(budget), seed=self._random_state or 0)
        choice = Choice(self.method, "it was asked for", allowed)
        if self.method == "auto":
            choice = replace(choose_evaluations(self.n, allowed), budget=allowed)  # all of it: there is no tolerance
        found = game_attributions(asked, choice, allowed)
        if len(found.values.shape) != 2:
            raise BadInput("an approximator of shapiq's explains one output: the game gives several")
        return InteractionValues(
            _scores(found, self.index, self._interaction_lookup), index=self.approximation_index, n_players=self.n,
            min_order=self.min_order, max_order=self.max_order, baseline_value=float(found.base),
            estimated=asked.asked < 2**self.n, estimation_budget=asked.asked, target_index=self.index,
        )  # fmt: skip


def interaction_values(explanation: Any, max_order: int = 1) -> Any:
    """Return an explanation of one row and one output as shapiq's `InteractionValues`: Shapley values ("SV"), or with
    `max_order=2` also all pairwise interactions ("k-SII"), from the same evaluations.

    >>> from dasp.explainer import explain_game
    >>> found = explain_game(lambda masks: masks[:, 0] & masks[:, 1], 3)
    >>> interaction_values(found, max_order=2)[(0, 1)]
    1.0
    """
    values = np.asarray(explanation.values, dtype=float)
    if values.ndim != 1:
        raise BadInput(
            f"values of shape {values.shape} are of several rows or outputs, and shapiq's InteractionValues of one: "
            "choose by explanation[row], and an output by explanation[…, output]"
        )
    if max_order not in (1, 2):
        raise BadInput(f"explanations have the orders 1 and 2, not {max_order}")
    scores: dict[tuple[int, ...], float] = {(i,): float(value) for i, value in enumerate(values)}
    if max_order == 2:
        scores |= _pairs(explanation.interactions().values)
    base = float(np.asarray(explanation.base_values).reshape(()))
    return InteractionValues(
        {(): base, **scores}, index="SV" if max_order == 1 else "SII", n_players=len(values), min_order=0,
        max_order=max_order, baseline_value=base, target_index="SV" if max_order == 1 else "k-SII",
        estimated=explanation.method != "exact_shapley",
    )  # fmt: skip


def _scores(found: Attributions, index: str, wanted: Mapping[tuple[int, ...], int]) -> dict[tuple[int, ...], float]:
    """Return what an index gives to each of the wanted coalitions of up to two players."""
    single = found.banzhaf().values if index == "BV" else found.values.numpy()
    scores: dict[tuple[int, ...], float] = {(i,): float(value) for i, value in enumerate(single[0])}
    scores[()] = float(found.base)
    if any(len(players) == 2 for players in wanted):
        scores |= _pairs(found.interactions().values[0])
    return {players: scores[players] for players in wanted}


def _pairs(matrix: np.ndarray) -> dict[tuple[int, ...], float]:
    return {(i, j): float(matrix[i, j]) for i, j in combinations(range(len(matrix)), 2)}
