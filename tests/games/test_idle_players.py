"""Players whose entries equal their baseline get exactly 0, and no evaluations."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    GradientDASP,
    PermutationShapley,
)
from dasp.games.idle_players import Active
from dasp.games.request import Arguments, Request

ALL = [DASP, GradientDASP, DeepLiftRevealCancel, ExactShapley, PermutationShapley, BayesianShapley]


def network(inputs: int = 8, outputs: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, outputs)).double().eval()


def rows_with_idle_players() -> tuple[torch.Tensor, torch.Tensor]:
    """Four rows: nobody idle, three idle, all but one idle, all idle."""
    off = torch.randn(8, generator=torch.Generator().manual_seed(0)).double()
    x = off + torch.randn(4, 8, generator=torch.Generator().manual_seed(1)).double()
    x[1, [0, 3, 7]] = off[[0, 3, 7]]
    x[2, torch.arange(8) != 4] = off[torch.arange(8) != 4]
    x[3] = off
    return x, off


@pytest.mark.parametrize("method", ALL)
def test_their_value_is_exactly_zero(method):
    x, off = rows_with_idle_players()
    values = method(network()).attribute(x, off)
    assert torch.equal(values == 0, (x == off)[:, None].expand(-1, 2, -1))


@pytest.mark.parametrize("method", [PermutationShapley, BayesianShapley])
def test_the_others_are_right(method):
    x, off = rows_with_idle_players()
    exact = ExactShapley(network()).attribute(x, off)
    values, std = method(network()).attribute(x, off, return_std=True)
    torch.testing.assert_close(values, exact, rtol=0.05, atol=0.05)
    assert torch.equal((std == 0) & (values == 0), (x == off)[:, None].expand(-1, 2, -1))


def test_the_exact_values_are_those_of_the_definition():
    """A player that is idle in the game of all players has the value 0 there, too: evaluate them all."""
    x, off = rows_with_idle_players()
    model, n = network(), 8
    value = torch.zeros(4, n).double()
    orders = [torch.randperm(n, generator=torch.Generator().manual_seed(i)) for i in range(400)]
    for order in orders:
        present = torch.zeros(n, dtype=torch.bool)
        before = model(torch.where(present, x, off))[:, 0]
        for player in order:
            present[player] = True
            after = model(torch.where(present, x, off))[:, 0]
            value[:, player] += (after - before) / len(orders)
            before = after
    found = ExactShapley(model).attribute(x, off, target=0)
    torch.testing.assert_close(found, value.detach(), rtol=0, atol=0.1)
    torch.testing.assert_close(found.sum(1), (model(x) - model(off))[:, 0].detach())


def test_they_cost_no_evaluations():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += len(x)
        return network()(x)[:, 0]

    x, off = rows_with_idle_players()
    ExactShapley(counted).attribute(x[1:2], off)
    assert calls == 2**5 + 4 + 2  # to check the model, and rows of its largest batch


def test_a_player_is_idle_only_if_it_is_beside_every_baseline():
    x, off = rows_with_idle_players()
    background = torch.stack([off, off, off])
    background[2, 0] += 1
    busy = [
        len(part.players) for part in Active.of(Request.of(network(), Arguments(x, background, background=True))).parts
    ]
    assert sorted(busy) == [2, 6, 8]
    together = ExactShapley(network()).attribute(x[:2], background, target=0)
    each = torch.stack([ExactShapley(network()).attribute(x[:2], row, target=0) for row in background])
    torch.testing.assert_close(together, each.mean(0))


def test_groups_priors_and_rows_with_masks_of_their_own():
    x, off = rows_with_idle_players()
    mask = torch.tensor([[0, 0, 1, 1, 2, 2, 3, 3]]).repeat(4, 1)
    mask[1] = torch.tensor([0, 1, 1, 0, 2, 2, 3, 0])  # player 0 of this row is idle
    exact = ExactShapley(network()).attribute(x, off, 1, feature_mask=mask)
    assert (exact[1, [0, 3, 7]] == 0).all()
    assert (exact[1, [1, 2]] != 0).all()
    model = network()
    values = BayesianShapley(model, GradientDASP(model)).attribute(x, off, 1, feature_mask=mask)
    torch.testing.assert_close(values, exact)


def test_a_picture_with_a_black_border_keeps_its_neighbours():
    """The players that are left still have their places."""
    image = torch.zeros(1, 1, 6, 6)
    image[..., 1:5, 1:5] = torch.rand(4, 4)
    (game,) = Active.of(Request.of(lambda x: x.sum((1, 2, 3)), Arguments(image))).request.games
    assert game.count == 16
    assert game.coordinates.tolist() == [[y, x] for y in range(1, 5) for x in range(1, 5)]


@pytest.mark.parametrize("method", [PermutationShapley, BayesianShapley])
def test_rows_with_many_different_idle_players_play_together(method):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 8, generator=generator).double()
    x[torch.rand(40, 8, generator=generator) < 0.2] = 0
    request = Request.of(network(), Arguments(x, target=0))
    assert len(Active.of(request).parts) == 1
    assert len(Active.of(request, apart=True).parts) > 20
    exact = ExactShapley(network()).attribute(x, target=0)
    options = {"max_evaluations": 200} if method is BayesianShapley else {}
    values, std = method(network()).attribute(x, target=0, return_std=True, **options)
    assert torch.equal(values == 0, x == 0)
    assert torch.equal(std == 0, x == 0)
    torch.testing.assert_close(values.sum(1), exact.sum(1))
    torch.testing.assert_close(values, exact, rtol=0.1, atol=0.1)


def test_rounding_of_a_model_is_not_to_be_explained():
    """A row that equals its baseline, whose outputs differ in the last digit by the place in the batch."""

    class Uneven(nn.Module):
        def forward(self, x):
            return x.sum(1) + 1 + torch.arange(len(x)) * torch.finfo(x.dtype).eps

    x = torch.ones(3, 4, dtype=torch.float64)
    x[:2] = 2.0
    values = GradientDASP(Uneven()).attribute(x, torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(values, x - 1)
