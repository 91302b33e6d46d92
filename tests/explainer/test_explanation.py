"""What an explanation is judged by."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

from dasp import Explainer
from dasp.explainer.explanation import unbalanced_rows


def hard(copies: int) -> nn.Module:
    """A network of four inputs, each written `copies` times, that moments are poor at: it is small and steep."""
    torch.manual_seed(26)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 1)).double().eval()
    first = nn.Linear(4 * copies, 6).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
        first.weight.copy_(model[0].weight.repeat(1, copies) / copies)
        first.bias.copy_(model[0].bias)
    model[0] = first
    return model.eval()


@pytest.mark.parametrize("copies", [1, 25])
def test_a_gap_is_measured_by_players_not_by_their_entries(copies, caplog):
    """A player of 25 entries counts once: the warning does not depend on how many entries a player has."""
    mask = torch.arange(4).repeat(copies) if copies > 1 else None
    x = torch.ones(1, 4 * copies).double()
    with caplog.at_level(logging.WARNING, logger="dasp"):
        result = Explainer(hard(copies), method="dasp_rank_0", feature_mask=mask).attribute(x)
    share = abs(float(result.gap)) / float(result.values[0, :4].abs().sum())
    assert share == pytest.approx(0.282, abs=1e-3)
    assert result.unbalanced == 1
    assert "miss prediction − base by more than 10 %" in caplog.text


def test_all_outputs_of_a_row_count_together():
    values = torch.tensor([[[1.0, 10.0]], [[1.0, 10.0]]])  # two players, one row, two outputs
    assert unbalanced_rows(values, torch.tensor([[0.5, 0.0]])) == 0
    assert unbalanced_rows(values, torch.tensor([[0.5, 2.0]])) == 1


def test_rows_that_miss_the_tolerance_are_counted(caplog):
    x = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 1)).eval()
    explainer = Explainer(model, method="bayesian", tolerance=1e-9, max_evaluations=60)
    with caplog.at_level(logging.WARNING, logger="dasp"):
        result = explainer.attribute(x)
    assert result.missed.all()
    assert (result.evaluations == 60).all()
    assert "6 of 6 rows did not reach the tolerance 1e-09" in caplog.text
    exact = Explainer(model, method="exact", tolerance=1e-9).attribute(x)
    assert exact.missed is None
    assert (exact.evaluations == 2**12).all()


class Product(nn.Module):
    """A product of all inputs, which no moments of second order know."""

    def forward(self, x):
        return x.prod(1)


def test_what_propagation_is_off_by_is_known_from_evaluations(caplog):
    with caplog.at_level(logging.INFO, "dasp"):
        good = Explainer(nn.Linear(12, 1).eval(), method="gradient").attribute(torch.rand(2, 12))
        poor = Explainer(Product().eval(), baselines=-1.0, method="gradient").attribute(torch.full((1, 9), 1.0))
    assert float(good.propagation_error.high) < 0.01
    assert float(poor.propagation_error.low) > 0.2
    levels = [record.levelno for record in caplog.records if "coalitions of the first row" in record.message]
    assert levels == [logging.INFO, logging.WARNING]
    assert Explainer(nn.Linear(12, 1).eval()).attribute(torch.rand(2, 12)).propagation_error is None


def test_the_check_of_propagated_values_never_costs_the_answer():
    """Players of their own in each row, rows without effect, constant outputs, and coalitions without a value."""
    masks = torch.stack([torch.arange(12) // 3, torch.arange(12) // 4]).view(2, 1, 3, 4)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(12, 1)).eval()
    own = Explainer(linear, feature_mask=masks, method="gradient").attribute(torch.rand(2, 1, 3, 4))
    assert float(own.propagation_error.high.max()) < 0.01
    idle = Explainer(nn.Linear(5, 1).eval(), method="gradient").attribute(torch.zeros(1, 5))
    assert idle.propagation_error is None

    class Undefined(nn.Module):
        def forward(self, x):
            return torch.log(x[:, 0] + 2 * x[:, 1] - 1.5 * x[:, 2] + 1)

    found = Explainer(Undefined().eval(), method="gradient").attribute(torch.ones(1, 3))
    assert found.propagation_error is None
