"""Images are given to convolutions with their channels last in memory, where the model takes them so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dasp import BayesianShapley, GradientShapley
from dasp.games.request import Arguments, Request


class Seen(nn.Module):
    """A small network of images that notes the layouts it is given; `head` turns (rows, 4, 6, 6) into columns."""

    def __init__(self, head: nn.Module, channels: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head, self.last = nn.Conv2d(channels, 4, 3), head, nn.Linear(144, 2)
        self.layouts: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.layouts.append(x.stride(1) == 1 and x.stride(3) == x.shape[1])
        return self.last(self.head(self.first(x).relu()))


class View(nn.Module):
    """As many networks have it: it asks for rows of memory."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1)


class Strided(nn.Module):
    """What nobody should write: another function of another layout."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_strided(x, (len(x), 144), (144, 1))


def network(head: nn.Module, channels: int = 3) -> Seen:
    return Seen(head, channels).eval()


def images(channels: int = 3) -> Tensor:
    return torch.randn(2, channels, 8, 8, generator=torch.Generator().manual_seed(1))


def blocks() -> Tensor:
    rows = torch.arange(8) // 2
    return (4 * rows[:, None] + rows).expand(1, 1, 8, 8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("estimator", [BayesianShapley, GradientShapley])
def test_convolutions_get_channels_last_and_values_stay(estimator, channels):
    model, x = network(nn.Flatten(), channels), images(channels)
    found = estimator(model).attribute(x, target=0, feature_mask=blocks())
    assert all(model.layouts[-2:])

    def function(x: Tensor) -> Tensor:  # of which nothing is known
        return model(x)

    plain = estimator(function).attribute(x, target=0, feature_mask=blocks())
    assert not any(model.layouts[-2:])
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("head", [View(), Strided()], ids=["that views", "that reads memory"])
def test_a_model_that_needs_the_usual_layout_gets_it(head):
    model, x = network(head), images()
    values = BayesianShapley(model).attribute(x, target=0, feature_mask=blocks(), max_evaluations=64)
    assert not any(model.layouts[-2:])
    plain = BayesianShapley(network(nn.Flatten())).attribute(x, target=0, feature_mask=blocks(), max_evaluations=64)
    torch.testing.assert_close(values, plain, rtol=1e-4, atol=1e-5)


def test_other_models_are_left_alone():
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).eval()
    assert not Request.of(model, Arguments(images())).games[0].channels_last
