"""What `benchmarks/real.py` measures is what it says: errors, equal time, files; and its page shows it."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import nn

import real_figure
from dasp.methods import METHODS
from page_tables import DATA
from real import Board, Exhausted, _in_time, _timed, default, others, show
from real_games import GAMES, RealGame, Setting, Truth
from real_results import OWN, TIME, Results, Row, best, geometric_mean, ratio


def row(**changes):
    usual = {"game": "a", "network": "n", "kind": "k", "players": 4, "truth_error": 0.1, "what": "default",
             "budget": OWN, "method": "m", "error": 0.2}  # fmt: skip
    return Row(**{**usual, **changes})


@pytest.fixture
def board(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("real_games.STORE.folder", tmp_path)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 8), nn.Tanh(), nn.Linear(8, 2)).eval()
    setting = Setting(model, torch.ones(1, 9), torch.zeros(1, 9), target=1)
    return Board.of(RealGame("toy", "perceptron", "columns", lambda: setting))


def test_games_have_names_of_their_own_and_are_many():
    names = [game.name for game in GAMES]
    assert len(set(names)) == len(names) >= 22
    assert not any(game.permutations % 50 or (game.permutations and game.reference) for game in GAMES)


def test_errors_are_relative_and_without_that_of_the_truth(board):
    values, error = torch.tensor([[3.0], [4.0]]).double(), torch.tensor([[0.6], [0.8]]).double()
    one = Board(board.game, board.setting, board.request, Truth(values, error))
    size = (12.5 - 0.5) ** 0.5
    assert one.truth.size == pytest.approx(size)
    found = one.row("default", OWN, "m", values + 1.0, torch.ones_like(values))
    assert found.error == pytest.approx(0.5**0.5 / size)
    assert found.stated == pytest.approx(1 / size)
    assert found.coverage == 1
    assert one.row("default", OWN, "m", values + 3.0, torch.ones_like(values)).coverage == 0


def test_the_default_and_single_methods_are_measured(board, capsys):
    (own, few) = default(board, (64,), 60)
    assert (own.budget, few.budget) == (OWN, "64")
    assert own.error < 0.05
    found = others(board, "method", {name: METHODS[name] for name in ("gradient_shapley", "dasp")}, own, (64,))
    assert {(x.method, x.budget) for x in found} >= {("gradient_shapley", "64"), ("gradient_shapley", TIME)}
    results = Results(board.game, [own, few, *found])
    show(results)
    assert "toy" in capsys.readouterr().out


def test_a_method_that_fails_is_left_out(board, capsys):
    method = METHODS["gradient_shapley"]
    broken = type(method)(**{**vars(method), "make": lambda _: nonsense})  # noqa: F821
    (own,) = default(board, (), 60)
    assert others(board, "method", {"broken": broken}, own, (64,)) == []
    assert "left out: NameError" in capsys.readouterr().out


def test_samples_fill_the_time():
    number, spent, _ = _in_time(lambda number: (number * 0.01, None), 1, None, 1.0)
    assert 80 <= number <= 110
    assert spent == pytest.approx(number * 0.01)
    assert _in_time(lambda number: (number * 2.0, None), 1, None, 1.0) is None
    assert _in_time(lambda number: (number * 0.01, None), 1, 30, 1.0)[0] == 30


def test_patience_ends():
    def forever():
        while True:
            time.sleep(0)

    with pytest.raises(Exhausted):
        _timed(forever, 0.05)


def test_results_come_back_from_their_file_and_are_replaced(tmp_path):
    results = Results(tmp_path / "real.csv", [], ["b", "a"])
    results.replace([row(seconds=1.5), row(what="peer", budget=TIME, method="p", error=0.25)])
    results.replace([row(game="b"), row(error=0.5)])
    again = Results.of(tmp_path / "real.csv")
    assert [(x.game, x.what, x.error) for x in again.rows] == [
        ("b", "default", 0.2), ("a", "peer", 0.25), ("a", "default", 0.5),
    ]  # fmt: skip
    assert math.isnan(again.rows[0].seconds)
    assert best(again.rows).game == "b"
    assert again.of_game("a", "peer", TIME)[0].method == "p"


def test_ratios_have_a_floor():
    assert ratio(row(error=0.2), row(error=0.1)) == pytest.approx(2)
    assert ratio(row(error=0.01), row(error=0.0)) == 1  # both below half of the truth's own error
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)


def test_the_figure_is_drawn(tmp_path):
    real_figure.main(DATA / "real.csv", tmp_path / "real.png")
    assert 0 < (tmp_path / "real.png").stat().st_size < 100_000
