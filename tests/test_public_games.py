"""The exact answers of `benchmarks/public_games.py`, against the definitions; and what the peer's pipes carry."""

from __future__ import annotations

import sys
from itertools import combinations
from math import factorial

import numpy as np
import pytest
import torch

import page_tables
from public_games import (
    BEFORE,
    BUDGETS,
    PATCHES,
    PATCHES_BUDGETS,
    Games,
    publish,
    publish_pairs,
    saved,
    shapley_interactions,
    shapley_values,
    walsh_coefficients,
)
from shapiq_peer import Peer

PLAYERS = 5
TABLE = torch.rand(2**PLAYERS, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def coalitions(others):
    return [part for size in range(len(others) + 1) for part in combinations(others, size)]


def worth(*members):
    return TABLE[sum(2**player for player in members)]


def index_by_definition(*players):
    """Shapley's weights of the discrete derivatives by some players, over all coalitions of the others."""
    others = [player for player in range(PLAYERS) if player not in players]
    result = torch.zeros(TABLE.shape[1], dtype=torch.float64)
    for coalition in coalitions(others):
        weight = factorial(len(coalition)) * factorial(len(others) - len(coalition)) / factorial(len(others) + 1)
        for part in coalitions(players):
            result += (-1) ** (len(players) - len(part)) * weight * worth(*coalition, *part)
    return result


@pytest.mark.parametrize(("size", "index"), [(1, shapley_values), (2, shapley_interactions)])
def test_indices_are_those_of_the_definition(size, index):
    expected = [index_by_definition(*players) for players in combinations(range(PLAYERS), size)]
    assert torch.allclose(index(TABLE), torch.stack(expected, 1), rtol=0, atol=1e-12)


def test_coefficients_make_the_game():
    signs = 2.0 * (torch.arange(2**PLAYERS)[:, None] >> torch.arange(PLAYERS) & 1) - 1
    for coalition in (0, 11, 31):
        products = torch.stack(
            [signs[coalition, [j for j in range(PLAYERS) if subset >> j & 1]].prod() for subset in range(2**PLAYERS)]
        )
        assert torch.allclose(products.double() @ walsh_coefficients(TABLE), TABLE[coalition])


def test_a_model_of_games_looks_them_up():
    present = torch.tensor([[0, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.float64)
    assert torch.equal(Games("random", TABLE, ()).worth(present), TABLE[[6, 31]])


def test_a_peer_answers_through_pipes():
    pytest.importorskip("shapiq")
    peer = Peer(sys.executable)
    table = TABLE[:, 0].numpy()
    try:
        found = peer("KernelSHAP", lambda members: table[members @ 2 ** np.arange(PLAYERS)], PLAYERS, 32, 0)
        assert np.allclose(found.values, shapley_values(TABLE)[0].numpy(), atol=1e-6)
        assert found.evaluations == 32
        with pytest.raises(RuntimeError, match="NoSuchMethod"):
            peer("NoSuchMethod", lambda members: table[:1], PLAYERS, 32, 0)
        with pytest.raises(ImportError, match="has no NoSuchMethod"):
            peer.require("NoSuchMethod")
    finally:
        peer.close()


def test_what_is_published_makes_the_tables_of_the_page(tmp_path, monkeypatch):
    cells = {(family, budget) for family in (PATCHES, "soum-15") for budget in {*BUDGETS, *PATCHES_BUDGETS}}
    figures = {"error": 0.5, "mse": 1e-3, "coverage": 0.95, "coverage of the largest": 0.8, "milliseconds": 2.0}
    own, before, peer, failed = (
        dict.fromkeys(sorted(cells), figures | {"error": x}) for x in (0.5, 0.4, 0.25, float("nan"))
    )
    publish(tmp_path, own, before, {"near": peer, "broken": failed}, {"ShaplEIG": own})
    publish_pairs(tmp_path, own, {"near": peer})
    monkeypatch.setattr(page_tables, "DATA", tmp_path)
    names = [name for name in page_tables.MADE if name.startswith("public-games")] + ["public-games-patches"]
    tables = {name: page_tables.table(name) for name in names}
    assert "| in times of before | 1.25 |" in tables["public-games"]
    assert "| in times of the best peer | 2.00 |" in tables["public-games"]
    assert "| families where a peer is ahead | 2 of 2 |" in tables["public-games"]
    assert "| ViT, 9 patches | **0.500 (0.400)** |" in tables["public-games-errors"]
    assert "**0.250 near**" in tables["public-games-peers"]
    assert "95 · **80**" in tables["public-games-coverage"]
    assert "| near | 0.25 (2) |" in tables["public-games-methods"]
    assert "| near | 0.25 (2) |" in tables["public-games-pairs"]
    assert "| held, % | 95 |" in tables["public-games-pairs"]
    assert "| ShaplEIG, as published | 8 | 2.3 | 0.48 |" in tables["public-games-patches"]


def test_what_was_before_is_kept():
    before = saved(BEFORE, "report", 4)
    assert {budget for _, budget in before} == {*BUDGETS, *PATCHES_BUDGETS}
