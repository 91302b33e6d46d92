"""`explain_game` explains any game: a function from coalitions to values, whatever its players are.

A game is explained as a model of one row would be, whose entries are 1 for players that are present and 0 for those
that are absent. All that can be done with it is to evaluate coalitions: exact values where the budget allows for all of
them, else `BayesianShapley` without a prior. `MaskFunction` sees to it that no coalition is evaluated twice.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

import torch

from dasp.attribution.bayesian.bayesian_shapley import hidden_by_failures
from dasp.attribution.bayesian.design import Pairs
from dasp.errors import BadInput, UndefinedCoalitions, tells_options
from dasp.explainer.explanation import (
    Attributions,
    RowFacts,
    explanation_class,
    name_of_model,
    shap_explanation_of_game,
)
from dasp.games.evaluator import EvaluatedRow, Missing
from dasp.games.mask_function import KeptAnswers, MaskFunction, MaskKind
from dasp.games.progress import working
from dasp.games.request import (
    PREDICTED,
    SECOND,
    Arguments,
    Request,
    Target,
    check_positive,
    contrasted,
    games,
    output_number,
)
from dasp.methods import METHODS, find
from dasp.methods.choose import Budget, Choice, choose_evaluations

__all__ = ["explain_game", "game_attributions", "game_method"]

log = logging.getLogger("dasp")

_HIDDEN = 1e-6  # of a projection, which is no rounding
_METHODS = ("exact_shapley", "bayesian_shapley", "permutation_shapley")


@tells_options
def explain_game(
    function: Callable[[Any], Any],
    players: int | Iterable[object] | None = None,
    *,
    target: int | str | None = None,
    versus: int | str | None = None,
    output_names: Sequence[str] | None = None,
    method: str = "auto",
    tolerance: float | None = None,
    max_evaluations: int | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
    masks: MaskKind = "numpy",
    batch_size: int | None = None,
    workers: int = 1,
    retries: int = 0,
    missing: Missing = "raise",
    keep: str | Path | None = None,
    key: str = "",
    show_progress: bool | None = None,
) -> Any:
    """Explain a game: the Shapley value of every player with its standard deviation, as a `shap.Explanation` of one
    row.

    Args:
        function: takes masks (coalitions, players), True for players that are present, and returns a value for each
            coalition, (coalitions,), or several, (coalitions, outputs): an array, a tensor or a list. It is asked for
            every coalition once.
        players: their number, or a list of their names. Games and imputers of shapiq's know them by themselves.
        target: the output to explain, if there are several: its number or name, "predicted" for the largest with all
            players, or None for all.
        versus: another output, for "why this one and not that one?": what is explained is target − versus. Its number
            or name, "predicted", or "second" for the largest beside the target.
        output_names: names of the outputs, if there are several.
        method: "auto", "exact", "bayesian" or "permutation". Automatically, exact values where all coalitions are no
            more than `max_evaluations`, else `BayesianShapley`.
        tolerance: stop when the largest standard deviation is below this fraction of the largest value. Automatically
            0.05: the largest value is known to ± 10 %, unless the budget is used up before.
        max_evaluations: the largest number of coalitions to evaluate, those of all players and of none included. Of
            these, answers that are kept cost nothing. Automatically 2,048.
        max_seconds: instead, the seconds that it may take, by the time of the coalitions of all players and of none.
        seed: for the choice of coalitions, which does not depend on anything that follows.
        masks: "numpy" if the function takes an array of booleans, "torch" if it takes a tensor.
        batch_size: the most masks for a call. By default 1,024; 1 if `workers`, `retries` or `keep` say that calls are
            costly. A function that gets one mask at a time, (1, players), may return a plain number.
        workers: how many calls may run at the same time, each in a thread of its own.
        retries: how often a call that raised an exception is repeated, after 1, 2, 4, … seconds, at most 60.
        missing: "raise" an error that names the coalition if a call fails for good, or if a value is not finite; or
            "drop" such coalitions, and estimate without them. Those of all players and of none are always needed. Where
            failures follow a rule, so that the others never tell two players apart, the log says so, and their error
            bars are as wide as values are.
        keep: a file for the answers. What is in it is not asked again, also after a crash, or by another budget.
        key: what the answers of the file depend on beside the mask, such as the version of a model or of a prompt: a
            file with another key is refused, and so is one of other players.
        show_progress: None for a bar of new answers that appears after two seconds on a terminal or in a notebook, and
            elsewhere for a line every half minute in the log, "dasp"; True for a bar at once, False for nothing.

    The explanation has `values` and `error_std`, (players,) or (players, outputs), `base_values` (the value of the
    coalition of nobody), `feature_names`, `method` and `reason`; the figures of `dasp.plots` and of SHAP draw it.

    >>> glove = explain_game(lambda masks: masks[:, 0] & masks[:, 1:].any(1), ["left", "right", "another right"])
    >>> dict(zip(glove.feature_names, glove.values.round(3).tolist())), glove.reason
    ({'left': 0.667, 'right': 0.167, 'another right': 0.167}, '3 players have only 8 coalitions')
    """
    check_positive(batch_size=batch_size, workers=workers)
    if not callable(function):
        raise BadInput(f"a game is a function of masks, not a {type(function).__name__}")
    number, names = _players(_own_players(function) if players is None else players)
    if retries < 0:
        raise BadInput(f"retries must be at least 0, not {retries}")
    _check_word("masks", masks, MaskKind)
    _check_word("missing", missing, Missing)
    if key and keep is None:
        raise BadInput("key goes with a file of answers: give keep='a file', too")
    wanted = game_method(method)
    target = output_number(target, output_names) if isinstance(target, str) else target
    versus = output_number(versus, output_names, (PREDICTED, SECOND)) if isinstance(versus, str) else versus
    explanation_class()  # so that nothing is paid where shap is not there
    budget = Budget(tolerance, max_evaluations, seed=seed, max_seconds=max_seconds, missing=missing)
    with ExitStack() as stack:
        kept = None if keep is None else stack.enter_context(KeptAnswers(keep, number, names, key))
        progress = stack.enter_context(working("new answers", "answer", show=show_progress))
        game = MaskFunction(
            function, number, names=names, masks=masks, batch_size=batch_size, workers=workers, retries=retries,
            missing=missing, kept=kept, progress=progress,
        )  # fmt: skip
        choice = Choice(wanted, "it was asked for", budget)
        if wanted == "auto":
            choice = choose_evaluations(number, budget, game.ends)
        try:
            found = game_attributions(game, choice, budget, contrasted(target, versus))
        except UndefinedCoalitions as error:
            raise error.named(names, rows=False) from None
    before = "" if kept is None else f", {kept.number - game.asked:,} answers were kept before"
    log.info("%s new answers%s, %s coalitions left out", f"{game.asked:,}", before, f"{game.failed:,}")
    found.warn(tolerance)
    explanation = shap_explanation_of_game(found, names, output_names)
    explanation.facts = RowFacts.of(found, name_of_model(function), output_names=output_names)
    return explanation


def game_method(method: str) -> str:
    """Return "auto", or the identifier of a method that can explain games."""
    found = method if method == "auto" else find(method)
    if found not in ("auto", *_METHODS):
        raise BadInput(f"games are explained by 'auto', 'exact', 'bayesian' or 'permutation', not by {method!r}")
    return found


def game_attributions(game: MaskFunction, choice: Choice, budget: Budget, target: Target = None) -> Attributions:
    """Explain a game by a method, as if it were a row of ones with a baseline of zeros."""
    method = METHODS[choice.method]
    arguments = Arguments(torch.ones(1, game.players, dtype=torch.float64), target=target)
    options = choice.budget.options(method, games(arguments)[0])  # before anything is paid
    game.ends()
    request = Request.of(game, arguments, at_once=1)  # asks for nothing but both ends, which are known
    estimate = method.make(game).explain(request, **options)  # type: ignore[arg-type, attr-defined]
    _note_hidden(estimate.evaluated, game.names)
    std = None if estimate.std is None else request.answer(estimate.std)
    return Attributions(
        request.answer(estimate.values), std, request.full, request.empty, request.gaps(estimate.values),
        request.selections[0].chosen, (choice,), None if budget.tolerance is None else estimate.missed,
        evaluations=estimate.evaluations, evaluated=estimate.evaluated, versus=request.selections[0].against,
    )  # fmt: skip


def _note_hidden(evaluated: Sequence[EvaluatedRow | None] | None, names: Sequence[str] | None) -> None:
    """Say in the log which players cannot be told apart, because the coalitions that would show it have no values."""
    row = evaluated[0] if evaluated else None
    if row is None or not len(row.game.members):
        return
    own = row.game
    there = own.halves[:, :, row.row].isfinite().transpose(0, 1).flatten(1).all(1)
    hidden = hidden_by_failures(Pairs(own.members), Pairs(own.members[there]))
    if not bool(hidden.any()):
        return
    together = (hidden.abs() > _HIDDEN).double().matrix_power(len(hidden)) > 0  # of who depends on whom, any way
    groups = {tuple(own.players[each].tolist()) for each in together if bool(each.any())}
    told = [" and ".join(str(names[i]) if names else f"player {i}" for i in group) for group in sorted(groups)]
    log.warning(
        "what was left out is not random: the other coalitions cannot tell %s apart, whose error bars are as wide as "
        "values are, whatever the budget; let those calls succeed, or make one player of them",
        ", nor ".join(told),
    )


def _own_players(function: Callable[[Any], Any]) -> int | list[str]:
    """Return the players that a game of shapiq's has: their names, or else their number."""
    number = getattr(function, "n_players", None)
    if number is None:
        raise BadInput("players are missing: give explain_game their number, or a list of their names")
    return list(getattr(function, "player_name_lookup", None) or ()) or int(number)


def _players(given: int | Iterable[object]) -> tuple[int, list[str] | None]:
    """Return the number of players, and their names if they have any."""
    names = None
    if isinstance(given, Iterable) and not isinstance(given, str):
        names = [str(name) for name in given]
        number = len(names)
    else:
        try:
            number = operator.index(given)  # type: ignore[arg-type]
        except TypeError:
            raise BadInput(f"players are a number, or a list of names, not {given!r}") from None
    if number < 1:
        raise BadInput(f"a game needs at least one player, not {number}")
    return number, names


def _check_word(name: str, word: object, kind: Any) -> None:
    if word not in get_args(kind):
        raise BadInput(f"{name} is {' or '.join(map(repr, get_args(kind)))}, not {word!r}")
