"""Coalitions without a finite value are named, and refused or left out; never NaN for everything in silence."""

from __future__ import annotations

import pickle

import pytest
import torch
from tqdm import tqdm

from dasp import (
    BayesianShapley,
    ExactShapley,
    Explainer,
    GradientShapley,
    PermutationShapley,
    TextExplainer,
    audit,
)
from dasp.errors import UndefinedCoalitions
from dasp.games.idle_players import Active
from dasp.games.request import Arguments, Request

X = torch.tensor([[1.0, 1, 1, 1, 1, 1], [1, 2, 1, 0, 3, 1], [1, 1, 1, 1, 1, 1]])


def pole(x):
    """Not finite where the second feature is 2 and the fifth 0: in coalitions of row 1 with player 1, without 4."""
    return x.sum(1) + torch.where((x[:, 1] == 2) & (x[:, 4] == 0), torch.nan, 0.0)


METHODS = {
    "exact": (ExactShapley, {}),
    "permutation": (PermutationShapley, {}),
    "bayesian": (BayesianShapley, {"max_evaluations": 20}),
    "all of bayesian": (BayesianShapley, {"max_evaluations": 64}),
    "gradient": (GradientShapley, {"n_pairs": 32}),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_first_coalition_is_named(name):
    method, options = METHODS[name]
    with pytest.raises(UndefinedCoalitions) as caught:
        method(pole).attribute(X, **options)
    error = caught.value
    assert error.rows == (1,)
    assert 1 in error.present
    assert 3 not in error.present  # which is idle in this row, and was no player of the game that was played
    assert {4}.isdisjoint(error.present) or name == "gradient"
    assert error.players == 6
    assert 0 < error.count <= error.asked
    said = "players" if len(error.present) > 1 else "player"
    assert f"the first is nan, of the {said} {', '.join(map(str, error.present))} of 6 in row 1" in str(error)
    same = pickle.loads(pickle.dumps(error))
    assert (str(same), same.rows) == (str(error), (1,))
    assert "in row 4" in str(error.after(3))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("end", ["full", "empty"])
def test_both_ends_must_be_finite(name, end):
    method, options = METHODS[name]

    def model(x):
        return x.sum(1) / ((x == 1).all(1) if end == "full" else (x == 0).all(1)).logical_not()

    with pytest.raises(UndefinedCoalitions, match="of (none of the|all 6) players in row 0") as caught:
        method(model).attribute(X, **options)
    assert caught.value.rows == ((0, 2) if end == "full" else (0, 1, 2))
    assert len(caught.value.present) == (6 if end == "full" else 0)
    assert "missing" not in str(caught.value)  # they cannot be left out


def test_a_row_with_one_busy_player_is_not_nan_in_silence():
    x = torch.zeros(2, 4)
    x[1, 2] = 1
    with pytest.raises(UndefinedCoalitions, match="all 4 players in row 1"):
        ExactShapley(lambda x: 1 / (1 - x.sum(1))).attribute(x)


def test_rows_are_counted_from_the_first_one():
    x = torch.cat([X[:1], X])
    with pytest.raises(UndefinedCoalitions, match="in row 2"):
        Explainer(pole, method="permutation").attribute(x)
    mask = torch.arange(6).repeat(4, 1)
    mask[0] //= 2  # rows with players of their own are explained one by one
    with pytest.raises(UndefinedCoalitions, match="in row 2"):
        ExactShapley(pole).attribute(x, feature_mask=mask)
    with pytest.raises(UndefinedCoalitions, match="in row 2"):
        Explainer(pole, torch.zeros(3, 6), method="exact").attribute(x)
    with pytest.raises(UndefinedCoalitions, match="in row 2"):
        Explainer(pole, method="bayesian", max_evaluations=64, batch_size=1).attribute(x)


def test_an_automatic_method_and_an_audit_say_it_too():
    with pytest.raises(UndefinedCoalitions, match="in row 1"):
        Explainer(pole).attribute(X)
    with pytest.raises(UndefinedCoalitions, match="in row 1"):
        audit(pole, torch.ones(3, 6), X, evaluations=40)


def test_pieces_of_texts_are_named():
    def model(texts):
        return torch.tensor([torch.nan if text.strip() == "bad" else len(text) for text in texts])

    with pytest.raises(UndefinedCoalitions, match="of the player bad of 3 in row 1"):
        TextExplainer(model)(["a good film", "a bad film"])


def test_several_outputs():
    def model(x):
        return torch.stack([x.sum(1), pole(x)], 1)

    assert ExactShapley(model).attribute(X, target=0).isfinite().all()
    with pytest.raises(UndefinedCoalitions, match="in row 1"):
        ExactShapley(model).attribute(X)


def evaluator(missing):
    request = Active.of(Request.of(pole, Arguments(X[1:2]))).request
    (found,) = request.evaluators(None, tqdm(disable=True), missing)
    return found


def test_what_is_left_out_is_nan():
    coalitions = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 0, 1, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    found = evaluator("drop").worth(coalitions)[:, 0]  # player 3 is idle
    assert found.isnan().tolist() == [True, False, False, False]
    assert found[1:].tolist() == [6, 5, 0]
    halves = evaluator("drop").halves(coalitions)[:, :, 0]
    assert halves.isnan().tolist() == [[True, False, True, False]] * 2  # of a pair, both
    with pytest.raises(UndefinedCoalitions, match="1 of 4 coalitions .* of the players 0, 1 of 6 in row 0"):
        evaluator("raise").worth(coalitions)


def test_infinity_is_left_out_as_nan():
    request = Request.of(lambda x: 1 / (x.sum(1) - 2), Arguments(torch.ones(1, 3)))
    (found,) = request.evaluators(None, tqdm(disable=True), "drop")
    worth = found.worth(torch.tensor([[1, 1, 0], [1, 0, 0]]).bool())[:, 0]
    assert worth.isnan().tolist() == [True, False]
