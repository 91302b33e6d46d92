"""Prompts of a language model behind any function: values, calls, kept answers and errors."""

from __future__ import annotations

import math
import sqlite3
from threading import Lock

import numpy as np
import pytest

import dasp
from dasp import explain_game, explain_prompt
from dasp.errors import BadInput, FailedCall

PROMPT = "You are a doctor. Be brief. Answer yes or no. The patient smokes. He is old. He runs."


class Model:
    """An endpoint that answers with a text, and counts what it is asked."""

    def __init__(self, fails=lambda prompt: False):
        self.asked, self.fails, self.lock = [], fails, Lock()

    def __call__(self, prompt):
        with self.lock:
            self.asked.append(prompt)
        if self.fails(prompt):
            raise ConnectionError("429 Too many requests\ntry later")
        worry = 2 * ("smokes" in prompt) + ("old" in prompt) * ("doctor" in prompt)
        return f"{'yes' if worry else 'no'}, {worry} of 3{'' if 'brief' in prompt else ', and so on'}"


def worry(answer):
    return float(answer.split()[1])


def test_values_are_those_of_the_game_of_the_parts():
    model = Model()
    found = explain_prompt(model, PROMPT, score=worry)
    assert "".join(found.data) == PROMPT
    assert found.values == pytest.approx([0.5, 0, 0, 2, 0.5, 0], abs=1e-9)
    assert not found.error_std.any()
    assert found.base_values == 0
    assert len(model.asked) == len(set(model.asked)) == 64
    game = explain_game(lambda masks: [worry(Model()(dropped(mask))) for mask in masks], 6)
    assert found.values == pytest.approx(game.values)
    assert found.interactions().values[0, 4] == pytest.approx(1)
    axes = dasp.plots.text(found)
    assert axes.texts[0].get_text() == "You are a doctor."
    labels = [label.get_text() for label in dasp.plots.waterfall(found).get_yticklabels()]
    assert labels[-1] == "The patient smokes."  # which is no name and data, too


def dropped(mask):
    parts = [part + " " for part in PROMPT.replace(". ", ".|").split("|")]
    left = "".join(part for part, there in zip(parts, mask, strict=True) if there)
    return left.strip()


@pytest.mark.parametrize("in_file", [False, True])
def test_answers_are_kept_and_cost_nothing_again(in_file, tmp_path):
    keep = tmp_path / "answers.db" if in_file else {}
    model = Model()
    first = explain_prompt(model, PROMPT, score=worry, keep=keep)
    again = Model()
    second = explain_prompt(again, PROMPT, score=worry, keep=keep)
    assert not again.asked
    assert np.array_equal(first.values, second.values)
    length = explain_prompt(again, PROMPT, score=len, keep=keep)  # another score of the same answers
    halves = explain_prompt(again, [PROMPT[:44], PROMPT[44:]], score=worry, keep=keep)  # other parts of the same prompt
    assert len(again.asked) == len(set(again.asked)) <= 2
    assert length.values[1] == pytest.approx(-len(", and so on"))
    assert halves.values.sum() == pytest.approx(3)
    if in_file:
        newer = Model()
        explain_prompt(newer, PROMPT[:44], score=worry, keep=keep, key="version 2")
        assert len(newer.asked) == 8
        explain_prompt(again, PROMPT, score=worry, keep=keep)
        assert len(again.asked) <= 2
    else:
        assert keep[PROMPT] == "yes, 3 of 3"


def test_the_budget_is_one_of_calls():
    words = " ".join(f"word{i}" for i in range(14))
    asked = []

    def length(prompt):
        asked.append(prompt)
        return math.sqrt(len(prompt.split()))

    found = explain_prompt(length, words, players="word", max_evaluations=40, workers=4)
    assert len(asked) <= 40
    assert found.values.sum() == pytest.approx(math.sqrt(14))
    assert found.error_std.max() > 0
    assert np.abs(found.values - math.sqrt(14) / 14).max() < 4 * found.error_std.max()


def test_a_part_that_comes_twice_is_asked_once():
    model = Model()
    explain_prompt(model, "Why? Why? Why? Why?", score=len)
    assert len(model.asked) == len(set(model.asked))
    replaced = []
    explain_prompt(lambda prompt: replaced.append(prompt) or 1.0, "One. Two.", baselines="(something)")
    assert set(replaced) == {"One. Two.", "(something) Two.", "One. (something)", "(something) (something)"}


def test_several_numbers_have_targets():
    both = explain_prompt(
        Model(), PROMPT, score=lambda answer: [worry(answer), len(answer)], output_names=["worry", "length"]
    )
    assert both.shape == (6, 2)
    assert list(both.output_names) == ["worry", "length"]
    one = explain_prompt(
        Model(),
        PROMPT,
        score=lambda answer: [worry(answer), len(answer)],
        output_names=["worry", "length"],
        target="worry",
    )
    assert one.values == pytest.approx(both.values[:, 0])
    assert one.output_names == "worry"


def test_failures_are_one_sentence_and_answers_stay(tmp_path):
    keep = tmp_path / "answers.db"
    model = Model(fails=lambda prompt: "runs" in prompt and "old" not in prompt)
    with pytest.raises(FailedCall) as caught:
        explain_prompt(model, PROMPT, score=worry, keep=keep, retries=0)
    message = str(caught.value)
    assert "\n" not in message
    assert "ConnectionError: 429 Too many requests" in message
    assert "answers are kept in" in message
    assert "answers.db" in message
    good = len(model.asked) - 1
    assert caught.value.kept == good > 0
    later = Model()
    explain_prompt(later, PROMPT, score=worry, keep=keep)
    assert len(later.asked) == 64 - good
    without = explain_prompt(model, PROMPT, score=worry, retries=0, missing="drop")
    assert without.values[3] == pytest.approx(2, abs=0.3)


def test_a_failed_call_is_repeated(monkeypatch):
    monkeypatch.setattr("dasp.games.mask_function._FIRST_PAUSE", 0.001)
    seen = set()

    def first_time(prompt):
        again = prompt in seen
        seen.add(prompt)
        return not again and "brief" in prompt

    found = explain_prompt(Model(fails=first_time), PROMPT, score=worry)
    assert found.values[3] == pytest.approx(2)


def somebodys(path):
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE own (x)")
    return path


def test_a_score_that_fails_is_neither_repeated_nor_left_out(monkeypatch):
    monkeypatch.setattr("dasp.games.mask_function._FIRST_PAUSE", 1e9)  # seconds, which nobody waits
    model, scored = Model(), []

    def score(answer):
        scored.append(answer)
        return {}["worry"]

    with pytest.raises(BadInput, match=r"^the score failed for the answer 'no, 0 of 3, and so on': KeyError: 'worry'$"):
        explain_prompt(model, PROMPT, score=score, retries=2, missing="drop")
    assert len(model.asked) == len(scored) == 1


@pytest.mark.parametrize(
    ("options", "cure"),
    [
        ({"budget": 50}, "explain_prompt has no option 'budget': here it is max_evaluations"),
        ({"absent": "…"}, "explain_prompt has no option 'absent': here it is baselines"),
        ({"colour": 1}, "explain_prompt has no option 'colour': its options are function, prompt, score, players"),
    ],
)
def test_an_option_by_another_name_is_told_its_own(options, cure):
    model = Model()
    with pytest.raises(TypeError, match=cure):
        explain_prompt(model, PROMPT, score=worry, **options)
    assert not model.asked


REFUSED = {
    r"answers with a dict, \{'p': 0.5\}: give a score, .* score=lambda": lambda folder: explain_prompt(
        lambda prompt: {"p": 0.5}, PROMPT
    ),
    r"answers with a list, \[1, \[2\]\]: give a score": lambda folder: explain_prompt(lambda prompt: [1, [2]], PROMPT),
    "the score gives a dict: let it": lambda folder: explain_prompt(lambda prompt: {}, PROMPT, score=dict),
    "give a score, a function from an answer to a number": lambda folder: explain_prompt(Model(), PROMPT),
    "is a function from a prompt": lambda folder: explain_prompt("gpt", PROMPT),
    "the prompt is empty": lambda folder: explain_prompt(len, "  "),
    "those that are there as one text": lambda folder: explain_prompt(len, [{"role": "user", "content": "Hi"}]),
    "players are 'sentence', 'word'": lambda folder: explain_prompt(len, PROMPT, players="token"),
    "answers with a NoneType": lambda folder: explain_prompt(lambda prompt: None, PROMPT),
    "the score failed for the answer 'no, 0 of 3, and so on': ZeroDivisionError": lambda folder: explain_prompt(
        Model(), PROMPT, score=lambda answer: 1 / worry(answer)
    ),
    "the score gives a str": lambda folder: explain_prompt(Model(), PROMPT, score=str.upper),
    "answers with a object": lambda folder: explain_prompt(lambda prompt: object(), PROMPT),
    "give keep='a file', too": lambda folder: explain_prompt(len, PROMPT, key="2"),
    "keep is a file or a dictionary": lambda folder: explain_prompt(len, PROMPT, keep=3),
    "but somebody's own": lambda folder: explain_prompt(len, PROMPT, keep=somebodys(folder / "own.db")),
    "cannot be read as a file of answers": lambda folder: explain_prompt(len, PROMPT, keep=broken(folder)),
    "max_evaluations must be": lambda folder: explain_prompt(len, PROMPT, max_evaluations=3),
}


def broken(folder):
    (folder / "broken.db").write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 20)
    return folder / "broken.db"


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused_in_one_sentence(message, tmp_path):
    with pytest.raises(BadInput, match=message) as caught:
        REFUSED[message](tmp_path)
    assert "\n" not in str(caught.value)
