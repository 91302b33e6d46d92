"""`explain_prompt` explains what a language model says by the parts of its prompt, whatever the model is behind.

The model is a function from a prompt to a number, or to a text that a score makes a number of: an endpoint, a client of
a provider, a chain of calls. Nothing else is known of it, and every call may take seconds and cost money: the game of
the prompt's parts is explained as any game is, within a budget of calls, and no prompt is asked for twice. Answers are
kept as they came, in a dictionary or a file, by the prompt that was asked: other parts, scores and budgets use them.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasp.errors import BadInput, Stopped, UndefinedCoalitions, line_of, tells_options
from dasp.explainer.explanation import (
    RowFacts,
    explanation_class,
    fitting_names,
    name_of_model,
    names_of_outputs,
    names_of_rows,
)
from dasp.explainer.explanation import shap_explanation_of_texts as explanation_of
from dasp.explainer.game_explainer import game_attributions, game_method
from dasp.explainer.text.token_model import by_piece
from dasp.explainer.text.tokens import Division, Strings
from dasp.games.evaluator import Missing
from dasp.games.mask_function import MaskFunction
from dasp.games.progress import working
from dasp.games.request import PREDICTED, SECOND, check_positive, contrasted, output_number
from dasp.methods.choose import Budget, Choice, choose_evaluations

__all__ = ["KeptPrompts", "explain_prompt"]

log = logging.getLogger("dasp")

_CALLS = 200  # of the function, unless said
_PATIENCE = 60.0  # seconds to wait for another process that writes
_APPLICATION = 0x44505254  # "DPRT", in the head of a file


@tells_options
def explain_prompt(
    function: Callable[[str], Any],
    prompt: str | Sequence[str],
    *,
    score: Callable[[Any], Any] | None = None,
    players: Division = "sentence",
    baselines: str = "drop",
    target: int | str | None = None,
    versus: int | str | None = None,
    output_names: Sequence[str] | None = None,
    method: str = "auto",
    tolerance: float | None = None,
    max_evaluations: int = _CALLS,
    seed: int = 0,
    workers: int = 1,
    retries: int = 2,
    missing: Missing = "raise",
    keep: MutableMapping[str, Any] | str | Path | None = None,
    key: str = "",
    show_progress: bool | None = None,
) -> Any:
    """Explain an answer of a language model by the parts of its prompt: the Shapley value of every part with its
    standard deviation, as a `shap.Explanation` whose data are the parts, which `dasp.plots.text` draws.

    Args:
        function: takes a prompt, and returns a number (such as the log-probability of an answer), a row of numbers, or
            a text.
        prompt: a text, or a list of its parts, which are then the players; the function is given one text.
        score: a function from an answer to a number, or to a row of numbers; needed where the answers are texts.
        players: "sentence", "word", or a function from a text to its pieces.
        baselines: what is in the place of an absent part: "drop" for nothing, or a text such as "…".
        target, versus, output_names: as in `explain_game`, if there are several numbers.
        method, tolerance, seed: as in `explain_game`.
        max_evaluations: the budget in calls: so many prompts are asked for at most, those of all parts and of none
            included. Of these, answers that are kept cost nothing.
        workers: how many calls may run at the same time, each in a thread of its own.
        retries: how often a call that raised an exception is repeated, after 1, 2, 4, … seconds, at most 60.
        missing: "raise" an error of one sentence if a call fails for good, or "drop" its prompt, and estimate without.
        keep: a file for the answers, or a dictionary. A prompt that is in it is not asked for again: the same call a
            second time, or after a crash, asks for nothing that was answered.
        key: of a file, what answers depend on beside the prompt, such as the version of the model; answers with
            another key are left alone.
        show_progress: as in `explain_game`.

    >>> found = explain_prompt(lambda prompt: prompt.count("please"), "Be brief. Answer, please. Or else!")
    >>> list(found.data), found.values.round(3) + 0.0, found.reason
    (['Be brief. ', 'Answer, please. ', 'Or else!'], array([0., 1., 0.]), '3 players have only 8 coalitions')
    """
    check_positive(workers=workers, max_evaluations=max_evaluations)
    if not callable(function):
        raise BadInput(f"a language model is a function from a prompt to its answer, not a {type(function).__name__}")
    if retries < 0:
        raise BadInput(f"retries must be at least 0, not {retries}")
    text = _parts(prompt, players, baselines)
    names = [text.pieces[place].strip() for place in text.players]
    if len(names) < 2:
        log.warning("the prompt has %d part, which has all of the value: players='word' divides it", len(names))
    wanted = game_method(method)
    target = output_number(target, output_names) if isinstance(target, str) else target
    versus = output_number(versus, output_names, (PREDICTED, SECOND)) if isinstance(versus, str) else versus
    explanation_class()  # so that nothing is paid where shap is not there
    budget = Budget(tolerance, max_evaluations, seed=seed, missing=missing)
    with ExitStack() as stack:
        kept = stack.enter_context(closing(KeptPrompts(function, keep, key)))
        progress = stack.enter_context(working("asking", "call", show=show_progress))
        game = MaskFunction(
            lambda masks: [_number(kept(str(text.without(mask))), score) for mask in masks.tolist()], len(names),
            names=names, batch_size=1, workers=workers, retries=retries, missing=missing,
            kept=None if keep is None else kept, progress=progress,  # type: ignore[arg-type]
        )  # fmt: skip
        choice = Choice(wanted, "it was asked for", budget)
        if wanted == "auto":
            choice = choose_evaluations(len(names), budget, game.ends)
        try:
            found = game_attributions(game, choice, budget, contrasted(target, versus))
        except UndefinedCoalitions as error:
            raise error.named(names, rows=False) from None
        log.info("%s calls, %s answers are kept", f"{kept.asked:,}", f"{kept.number:,}")
    found.warn(tolerance)
    std = None if found.std is None else [by_piece(found.std, text)]
    whole = replace(found, values=[by_piece(found.values, text)], std=std, pieces=[text.pieces])
    if found.target.dim() > 1:
        explanation = explanation_of(whole, names_of_outputs(found, output_names))
    else:
        explanation = explanation_of(whole, None, names_of_rows(found, fitting_names(output_names, target)))
    absent = "left out" if baselines == "drop" else f"replaced by {baselines!r}"
    explanation.facts = RowFacts.of(whole, name_of_model(function), absent, output_names)
    explanation = explanation[0]
    if len(text.players) == len(text.pieces):
        explanation.evaluated = found.evaluated
    return explanation


def _parts(prompt: str | Sequence[str], players: Division, baselines: str) -> Strings:
    """Return the prompt as a text of which parts may be absent."""
    if not isinstance(baselines, str):
        raise BadInput(f"baselines are 'drop' or a text, not {baselines!r}")
    absent = None if baselines == "drop" else baselines
    if not isinstance(prompt, str):
        parts = list(prompt) if isinstance(prompt, Sequence) else None
        if parts is None or not all(isinstance(part, str) for part in parts):
            raise BadInput(
                "a prompt is a text or a list of texts; of messages, give the texts: the function is given those that "
                "are there as one text"
            )
        return _checked(Strings(("".join(parts),), lambda _: parts, absent))
    if not callable(players) and players not in ("sentence", "word"):
        raise BadInput(f"players are 'sentence', 'word' or a function of a text, not {players!r}")
    return _checked(Strings((prompt,), players, absent))


def _checked(text: Strings) -> Strings:
    if not text.players:
        raise BadInput("the prompt is empty: there is nothing to explain")
    return text


def _number(answer: Any, score: Callable[[Any], Any] | None) -> Any:
    """Return the number of an answer, or its row of numbers."""
    if score is None and isinstance(answer, str):
        raise BadInput(
            f"the function answers with a text, {answer[:40]!r}: give a score, a function from an answer to a number, "
            "such as score=lambda answer: 'yes' in answer.lower()"
        )
    if score is None and not _numeric(answer):
        what = f"a {type(answer).__name__}, {line_of(repr(answer)[:40])}"
        raise BadInput(
            f"the function answers with {what}: give a score, a function from an answer to a number, such as "
            "score=lambda answer: answer['probability']"
        )
    if score is None:
        return answer
    try:
        found = score(answer)
    except Exception as error:  # of the user's own function, which would fail again
        raise BadInput(
            f"the score failed for the answer {line_of(repr(answer)[:60])}: {type(error).__name__}: {line_of(error)}"
        ) from error
    if not _numeric(found):
        raise BadInput(f"the score gives a {type(found).__name__}: let it return a number or a list of numbers")
    return found


def _numeric(value: Any) -> bool:
    """True for a number, or a row of numbers."""
    try:
        return np.asarray(value).dtype.kind in "buif"
    except ValueError:  # rows of several lengths
        return False


class KeptPrompts:
    """A function of prompts that asks for each of them once, and keeps the answers in a dictionary or in a file.

    The file is an SQLite database, which survives being killed at any moment: `answers` has the key, the prompt and the
    answer in JSON.

    >>> kept = KeptPrompts(len, {"four": 4})
    >>> kept("four"), kept("eleven"), kept.asked
    (4, 6, 1)
    """

    def __init__(
        self,
        function: Callable[[str], Any],
        keep: MutableMapping[str, Any] | str | Path | None = None,
        key: str = "",
    ) -> None:
        self.function, self.key, self.asked = function, key, 0
        self.path = "the dictionary"  # for messages
        self._lock, self._asking = Lock(), dict[str, Lock]()
        self._file: sqlite3.Connection | None = None
        if isinstance(keep, (str, Path)):
            self.path = str(keep)
            self._known: MutableMapping[str, Any] = self._opened(Path(keep))
        elif key:
            raise BadInput("key goes with a file of answers: give keep='a file', too")
        elif keep is not None and not isinstance(keep, MutableMapping):
            raise BadInput(f"keep is a file or a dictionary, not a {type(keep).__name__}")
        else:
            self._known = {} if keep is None else keep

    def __call__(self, prompt: str) -> Any:
        """Return the answer to a prompt, which is asked for if it is not known."""
        with self._lock:
            alone = self._asking.setdefault(prompt, Lock())
        with alone:  # of several threads that need the same prompt, one asks
            if prompt not in self._known:
                answer = _plain(self.function(prompt))
                with self._lock:
                    self._write(prompt, answer)
                    self._known[prompt] = answer
                    self.asked += 1
            return self._known[prompt]

    @property
    def number(self) -> int:
        """The number of answers that are kept."""
        return len(self._known)

    def read(self) -> Iterator[tuple[bytes, Any, float]]:
        """Yield nothing: answers are known by their prompts, and not by masks."""
        return iter(())

    def add(self, masks: Sequence[bytes], values: NDArray[np.float64], seconds: float) -> None:
        """Add nothing: the answer was written when it came."""

    def _opened(self, path: Path) -> dict[str, Any]:
        """Return the answers of a file, which is made if there is none."""
        try:
            self._file = sqlite3.connect(
                path.absolute(), timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            (tables,) = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (application,) = self._file.execute("PRAGMA application_id").fetchone()
            _check_own(path, bool(tables), application)
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS answers (key TEXT, prompt TEXT, answer TEXT NOT NULL, "
                "PRIMARY KEY (key, prompt))"
            )
            self._file.execute(f"PRAGMA application_id = {_APPLICATION}")
            rows = self._file.execute("SELECT prompt, answer FROM answers WHERE key = ?", [self.key]).fetchall()
            return {prompt: json.loads(answer) for prompt, answer in rows}
        except BadInput:
            self.close()
            raise
        except (sqlite3.Error, ValueError) as error:
            self.close()
            raise BadInput(
                f"{path} cannot be read as a file of answers ({line_of(error)}): remove it, or give another name"
            ) from error

    def _write(self, prompt: str, answer: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", [self.key, prompt, json.dumps(answer)]
            )
        except sqlite3.Error as error:
            raise Stopped(f"{self.path}: an answer could not be written ({line_of(error)})") from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def _check_own(path: Path, full: bool, application: int) -> None:
    if full and application != _APPLICATION:
        raise BadInput(f"{path} is not a file of answers to prompts, but somebody's own: give another name")


def _plain(answer: Any) -> Any:
    """Return an answer as JSON has it: a text, a number, or a list of numbers."""
    if isinstance(answer, (str, int, float)):
        return answer
    found = answer.tolist() if hasattr(answer, "tolist") else answer
    try:
        known = found is not None and bool(json.dumps(found))
    except (TypeError, ValueError):
        known = False
    if not known:
        raise BadInput(
            f"the function answers with a {type(answer).__name__}: let it return a text, a number or a list of numbers"
        )
    return found
