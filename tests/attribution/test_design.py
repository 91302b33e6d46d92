"""The design that begins with single players and halves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from dasp.attribution.bayesian.design import MOST_CHOSEN, MOST_OPENED, Pairs, pair_count


def opened(players, number, seed=0):
    return Pairs.draw(players, number, seed, opening=True)


def codes(pairs):
    """Every smaller coalition, and every larger one, as a number."""
    rows = pairs.members.tolist()
    there = [sum(1 << j for j, member in enumerate(row) if member) for row in rows]
    return there, [2**pairs.players - 1 - code for code in there]


@pytest.mark.parametrize("players", [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 20, 33, 50, 64])
@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_longer_designs_begin_with_shorter_ones_and_repeat_nothing(players, seed):
    longest = opened(players, 6 * players, seed)
    assert len(longest) == min(6 * players, pair_count(players))
    for number in (1, players - 1, players, players + 1, 2 * players + 3, 5 * players):
        shorter = opened(players, number, seed)
        assert len(shorter) == min(number, pair_count(players))
        assert torch.equal(longest.members[: len(shorter)], shorter.members)
    there, others = codes(longest)
    assert len({*there, *others, 0, 2**players - 1}) == 2 * len(longest) + 2
    assert int(longest.sizes.min()) == 1
    assert 2 * int(longest.sizes.max()) <= players
    assert bool(longest.members[2 * longest.sizes == players, -1].all())  # of two halves, always the same one


@pytest.mark.parametrize("players", [3, 4, 9, 14, 33, MOST_OPENED])
def test_single_players_come_first_and_then_halves(players):
    pairs = opened(players, 3 * players)
    before = 0 if players <= 24 else round(players / 6)  # of many, some others come first
    assert sorted(codes(pairs)[0][before : before + players]) == [2**j for j in range(players)]
    later = torch.cat([pairs.sizes[:before], pairs.sizes[before + players :]])
    if len(later) == 2 * players:  # else there are no more pairs
        share = float((later >= players // 2 - 1).double().mean())
        assert share > 0.6
        assert share < 1 or players < 8


@pytest.mark.parametrize("players", [2, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("seed", [0, 7])
def test_all_pairs_are_all_coalitions(players, seed):
    there, others = codes(opened(players, 10**6, seed))
    assert len(there) == pair_count(players)
    assert {*there, *others} == set(range(1, 2**players - 1))


@pytest.mark.parametrize(("players", "number"), [(12, 2047), (14, 1500), (40, 3000)])
def test_what_is_drawn_after_the_chosen_ones_is_new(players, number):
    pairs = opened(players, number)
    there, others = codes(pairs)
    assert len({*there, *others}) == 2 * number
    for shorter in (MOST_CHOSEN, MOST_CHOSEN + 200):
        assert torch.equal(opened(players, shorter).members, pairs.members[:shorter])
    spread = torch.bincount(pairs.sizes[MOST_CHOSEN:].long(), minlength=players // 2 + 1)
    assert int((spread > 0).sum()) >= players // 4  # of all sizes that have pairs left


@pytest.mark.parametrize("players", [16, 23, 40, 64])
def test_halves_are_nearly_orthogonal(players):
    """Random halves have a mean square of z·z' of N²/(N−1), which is what drawing them gives."""
    pairs = opened(players, 3 * players)
    generator = np.random.default_rng(0)

    def overlaps(members):
        sign = 2 * members.double() - 1
        first, second = torch.triu_indices(len(sign), len(sign), 1)
        return float((sign @ sign.T)[first, second].square().mean())

    halves = pairs.members[pairs.sizes == players // 2]
    assert len(halves) > players / 2
    drawn = torch.zeros(400, players, dtype=torch.bool)
    for row in drawn:
        row[torch.from_numpy(generator.permutation(players)[: players // 2])] = True
    assert overlaps(drawn) == pytest.approx(players**2 / (players - 1), rel=0.1)
    assert overlaps(halves) < 0.8 * overlaps(drawn)


def test_players_are_alike():
    """No player is in many more coalitions than another."""
    for players in (10, 15, 40):
        share = opened(players, 6 * players).members.double().mean(0)
        assert float(share.max() - share.min()) < 0.2


def test_a_design_depends_on_its_seed_alone():
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)
    first = {(n, seed): opened(n, 100, seed).members for n, seed in itertools.product((9, 20, 50), (0, 1))}
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    for (n, seed), members in reversed(first.items()):
        assert torch.equal(opened(n, 100, seed).members, members)
    for n in (9, 20, 50):
        assert not torch.equal(first[n, 0], first[n, 1])


@pytest.mark.parametrize(("players", "number"), [(1, 5), (2, 5), (3, 0), (20, 0)])
def test_the_smallest_designs(players, number):
    pairs = opened(players, number)
    assert pairs.members.shape == (min(number, pair_count(players)), players)
