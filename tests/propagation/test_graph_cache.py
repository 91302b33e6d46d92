"""Graphs are kept as long as they give the model's outputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dasp import DASP, DeepLiftRevealCancel, GradientDASP, UntraceableModel, propagate
from dasp.propagation import graph_cache
from dasp.propagation.graph_cache import GraphCache, ModelOutputs

FACTOR = {"of": 1.0}  # of `Changing`, in a place that nobody looks at


class Changing(nn.Module):
    """Depends on a global variable, an object, a function's closure and a number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
        self.settings, self.cap = SimpleNamespace(scale=1.0), 9.0
        self.double().eval()

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).clamp(max=self.cap)) * self.settings.scale * FACTOR["of"]


class Counting(Changing):
    """Counts its calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


@pytest.fixture
def traces(monkeypatch):
    """How often a model was traced."""
    made = []
    trace = graph_cache.trace
    monkeypatch.setattr(graph_cache, "trace", lambda *args, **kwargs: made.append(args[0]) or trace(*args, **kwargs))
    return made


def rows(number: int = 3) -> torch.Tensor:
    return torch.randn(number, 4, generator=torch.Generator().manual_seed(1)).double()


def by_a_global(model, monkeypatch):
    monkeypatch.setitem(FACTOR, "of", 3.0)


def by_an_object(model, monkeypatch):
    model.settings.scale = 3.0


def by_a_hook(model, monkeypatch):
    model.last.register_forward_hook(lambda module, given, output: 3 * output)


def by_a_weight(model, monkeypatch):
    model.last.weight = nn.Parameter(3 * model.last.weight.detach())
    model.last.bias = nn.Parameter(3 * model.last.bias.detach())


@pytest.mark.parametrize("change", [by_a_global, by_an_object, by_a_hook, by_a_weight])
@pytest.mark.parametrize(
    "kind", [DASP, GradientDASP, DeepLiftRevealCancel, None], ids=lambda kind: kind and kind.__name__
)
def test_a_change_that_nobody_sees_shows_in_the_outputs(kind, change, monkeypatch):
    model, x = Changing(), rows()

    def found():
        if kind is None:
            return propagate(model, x, torch.ones_like(x)).mean
        return kind(model).attribute(x, target=0)

    before = found()
    change(model, monkeypatch)
    torch.testing.assert_close(found(), 3 * before)


def test_a_setting_matters_though_the_outputs_at_hand_are_the_same(traces):
    model, x = Changing(), rows()
    GradientDASP(model).attribute(x, target=0)
    model.cap = 5.0  # which no unit reaches
    GradientDASP(model).attribute(x, target=0)
    assert len(traces) == 2


def test_a_model_that_counts_its_calls_is_not_traced_at_each_of_them(traces):
    model, x = Counting(), rows()
    for _ in range(5):
        GradientDASP(model).attribute(x, target=0)
        propagate(model, x, torch.ones_like(x))
    assert model.calls > 5
    assert len(traces) == 1
    model.cap = 0.1
    nothing = torch.zeros_like(x)
    torch.testing.assert_close(propagate(model, x, nothing).mean, model(x))


class Forgetful(nn.Module):
    """Its graph is that of another function, as it knows when it is exported."""

    def forward(self, x):
        return x.sum(1) if torch.compiler.is_exporting() else 2 * x.sum(1)


def test_a_graph_of_another_function_is_refused():
    with pytest.raises(UntraceableModel, match="other outputs than the model itself"):
        propagate(Forgetful().eval(), rows(), torch.ones(3, 4).double())
    with pytest.raises(UntraceableModel, match="other outputs than the model itself"):
        DASP(Forgetful().eval()).attribute(rows())


class Cancelling(nn.Module):
    """What is left of large numbers."""

    def forward(self, x):
        return (x + 300).square().sum(1) - 360_000


def test_rounding_is_no_change():
    model, x = Cancelling().eval(), rows(20).float()
    graph = GraphCache.of(model).traced(model, (x,))
    other_order = model(x.flip(1))
    assert ((other_order - model(x)).abs() > torch.finfo().eps ** 0.75 * model(x).abs().max()).any()
    assert ModelOutputs(lambda function: function(x), other_order).agree(graph)
    assert not ModelOutputs(lambda function: function(x), 1.05 * other_order).agree(graph)


def test_autocast_has_graphs_of_its_own(traces):
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval(), rows().float()
    with torch.no_grad():
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                torch.testing.assert_close(propagate(model, x, torch.zeros_like(x)).mean, model(x))
            torch.testing.assert_close(propagate(model, x, torch.zeros_like(x)).mean, model(x))
    assert len(traces) == 2


class Remembering(Changing):
    """Keeps its last output, in an object and as a number."""

    def forward(self, x):
        output = super().forward(x)
        if not torch.compiler.is_exporting():
            self.last_output, self.last_norm = SimpleNamespace(value=output), float(output.norm())
        return output


def test_what_a_model_writes_down_itself_is_no_setting(traces):
    model, x = Remembering(), rows()
    for scale in (1, 2, 3):
        GradientDASP(model).attribute(scale * x, target=0)
    assert len(traces) == 1


class Configured(Changing):
    """Has its numbers in lists and dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.caps = {"upper": [9.0, 8.0]}

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).clamp(max=min(self.caps["upper"])))


def test_a_setting_in_a_list_of_a_dictionary_matters(traces):
    model, x = Configured(), rows()
    for cap in (8.0, 7.0, 7.0):
        model.caps["upper"][1] = cap  # which no unit reaches
        propagate(model, x, torch.zeros_like(x))
    assert len(traces) == 2


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_are_traced_once(kind, traces):
    model, x = kind(4, 3, batch_first=True).eval(), rows().float()[:, None]
    for _ in range(3):
        GradientDASP(model, output=0).attribute(x, target=(0, 0))
    assert len(traces) == 1
