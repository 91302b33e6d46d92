"""DASP against exact values and the axioms that it must satisfy to the last bit."""

from __future__ import annotations

import copy
import functools
import itertools

import pytest
import torch
from captum.attr import IntegratedGradients, ShapleyValues
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from dasp import DASP, ExactShapley, GradientDASP, rmse
from dasp.games.request import Arguments, games
from dasp.propagation.graph_cache import GraphCache
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace

RANKS = [0, 2, "full"]


def mlp(*widths: int, seed: int = 0, activation=nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1]).double().eval()


# Networks that are traced once, with weights drawn anew for every example: from the smallest to three hidden layers.
WIDTHS = [(2, 1, 1), (5, 6, 3), (8, 3, 6, 2, 2)]


@functools.cache
def method(widths, rank, activation=nn.ReLU):
    return DASP(mlp(*widths, activation=activation), rank=rank)


@st.composite
def settings_of_networks(draw, ranks=RANKS, activation=nn.ReLU):
    """A method on a network with new weights, inputs and baselines."""
    widths, rank = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from(ranks))
    drawn = method(widths, rank, activation)
    torch.manual_seed(draw(st.integers(0, 10_000)))
    for layer in drawn.model[::2]:
        layer.reset_parameters()
    x, baseline = torch.randn(2, 2, widths[0], dtype=torch.float64)
    return drawn, x, baseline


some = settings(max_examples=40, deadline=None)


@some
@given(settings_of_networks())
def test_zero_variance_reproduces_the_model(setting):
    """Where input and baseline agree there is no variance; all attributions are 0 and every pass gives f."""
    dasp, x, _ = setting
    attributions, delta = dasp.attribute(x, x, return_convergence_delta=True)
    assert bool((attributions == 0).all())
    assert bool((delta == 0).all())


@some
@given(settings_of_networks(), st.data())
def test_null_players_get_nothing(setting, data):
    dasp, x, baseline = setting
    player = data.draw(st.integers(0, x.shape[1] - 1))
    with torch.no_grad():
        dasp.model[0].weight[:, player] = 0
    attributions = dasp.attribute(x, baseline, target=0)
    assert bool((attributions[:, player] == 0).all())


@some
@given(settings_of_networks(ranks=[0, "full"]))
def test_exchangeable_players_get_the_same(setting):
    dasp, x, baseline = setting
    with torch.no_grad():
        dasp.model[0].weight[:, 1] = dasp.model[0].weight[:, 0]
    x[:, 1], baseline[:, 1] = x[:, 0], baseline[:, 0]
    attributions = dasp.attribute(x, baseline, target=0)
    torch.testing.assert_close(attributions[:, 0], attributions[:, 1], rtol=1e-10, atol=1e-10)


@some
@given(settings_of_networks(activation=nn.Identity), st.data())
def test_linear_networks_are_exact_for_any_sizes(setting, data):
    dasp, x, baseline = setting
    sizes = data.draw(st.none() | st.integers(1, x.shape[1]))
    attributions = dasp.attribute(x, baseline, coalition_sizes=sizes)
    exact = ExactShapley(dasp.model).attribute(x, baseline)
    torch.testing.assert_close(attributions, exact, rtol=1e-9, atol=1e-9)


def test_correlations_make_the_values_more_accurate():
    model = mlp(10, 64, 32, 1)
    for layer in model[::2]:
        layer.weight.data *= 2
    x = torch.randn(6, 10, dtype=torch.float64)
    exact = ExactShapley(model).attribute(x)
    full, diagonal, gradients = (
        rmse(method.attribute(x), exact).mean()
        for method in (DASP(model, rank="full"), DASP(model), IntegratedGradients(model))
    )
    assert full < diagonal < gradients


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(2, 6), nn.Linear(6, 2)

    def forward(self, a, b, scale, flag=True):
        hidden = torch.relu(self.first(a) + self.second(b) * scale)
        return self.last(hidden if flag else -hidden)


def test_tuples_of_inputs_and_constant_arguments():
    torch.manual_seed(0)
    model = TwoInputs().double().eval()
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    extra = (torch.rand(4, 1, dtype=torch.float64), False)
    arguments = {"baselines": (0.5, b[:1] / 2), "target": 1, "additional_forward_args": extra}
    exact = ExactShapley(model).attribute((a, b), **arguments)
    actual = DASP(model, rank="full").attribute((a, b), **arguments)
    assert isinstance(actual, tuple)
    assert [part.shape for part in actual] == [a.shape, b.shape]
    for part, truth in zip(actual, exact, strict=True):
        torch.testing.assert_close(part, truth, atol=0.05, rtol=0.1)


def test_groups_share_a_value_and_rows_may_have_masks_of_their_own():
    model = mlp(6, 8, 2)
    x = torch.randn(3, 6, dtype=torch.float64)
    masks = torch.tensor([[0, 0, 1, 1, 2, 2], [3, 9, 9, 9, 3, 7], [0, 0, 1, 1, 2, 2]])
    method = DASP(model, rank="full")
    together = method.attribute(x, target=0, feature_mask=masks)
    for row in range(3):
        alone = method.attribute(x[row : row + 1], target=0, feature_mask=masks[row])
        torch.testing.assert_close(together[row : row + 1], alone)
        for player in masks[row].unique():
            assert together[row, masks[row] == player].unique().numel() == 1
    exact = ExactShapley(model).attribute(x, target=0, feature_mask=masks)
    torch.testing.assert_close(together, exact, atol=0.05, rtol=0.1)


TARGETS = [0, 2, (1,), [0, 2, 1], [(0,), (2,), (1,)], torch.tensor([2, 0, 1]), torch.tensor(1)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_targets_select_as_in_captum(target):
    model, x = mlp(4, 6, 3), torch.randn(3, 4, dtype=torch.float64)
    captum = ShapleyValues(model).attribute(x, target=target)
    torch.testing.assert_close(
        ExactShapley(model).attribute(x, target=target).float(), captum.float(), rtol=1e-4, atol=1e-5
    )
    everything = DASP(model).attribute(x)
    assert everything.shape == (3, 3, 4)
    chosen = {str([0, 2, 1]): [0, 2, 1], str(torch.tensor([2, 0, 1])): [2, 0, 1]}
    column = [0, 2, 1] if "(0,)" in str(target) else chosen.get(str(target))
    column = column or [int(torch.as_tensor(target))] * 3
    selected = torch.stack([everything[row, c] for row, c in enumerate(column)])
    torch.testing.assert_close(DASP(model).attribute(x, target=target), selected)


def test_outputs_of_more_dimensions():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Unflatten(1, (2, 3))).double().eval()
    x = torch.randn(2, 4, dtype=torch.float64)
    exact = ExactShapley(model).attribute(x)
    assert exact.shape == (2, 2, 3, 4)
    method = DASP(model)
    torch.testing.assert_close(method.attribute(x)[:, 1, 2], method.attribute(x, target=(1, 2)))
    assert method.attribute(x, target=1).shape == (2, 3, 4)


@pytest.mark.parametrize("rank", RANKS)
def test_result_does_not_depend_on_the_batch_size(rank, capsys):
    model, x = mlp(5, 8, 8, 2), torch.randn(3, 5, dtype=torch.float64)
    method = DASP(model, rank=rank)
    whole = method.attribute(x, target=0)
    for size in (1, 7, 1000):
        part = method.attribute(x, target=0, internal_batch_size=size, show_progress=True)
        torch.testing.assert_close(part, whole)
    torch.testing.assert_close(method.attribute(x[1:2], target=0), whole[1:2])
    assert "DASP" in capsys.readouterr().err


def test_the_first_layer_runs_once(monkeypatch):
    """Player i is taken out by subtraction; the layer is not run again for every player and size."""
    model, x = mlp(6, 4, 1), torch.randn(1, 6, dtype=torch.float64)
    method = DASP(model)
    method.attribute(x)
    calls = []
    first = model[0].weight
    linear = torch.ops.aten.linear.default
    rule = RULES[linear]
    original = rule.linear

    def counted(data, weight, *rest):
        value, weights = original(data, weight, *rest)
        return value, lambda t, power: (calls.append(1) if weight is first else None, weights(t, power))[1]

    monkeypatch.setitem(RULES, linear, type(rule)(rule.gaussian, rule.tracker, counted))
    method._lifted = None
    method.attribute(x)
    assert len(calls) <= 2


def test_convergence_delta_is_the_completeness_gap():
    model, x = mlp(4, 6, 2), torch.randn(2, 4, dtype=torch.float64)
    attributions, delta = DASP(model).attribute(x, target=1, return_convergence_delta=True)
    with torch.no_grad():
        expected = attributions.sum(1) - (model(x) - model(torch.zeros_like(x)))[:, 1]
    torch.testing.assert_close(delta, expected)
    _, every = DASP(model).attribute(x, return_convergence_delta=True)
    torch.testing.assert_close(every[:, 1], delta)


def test_the_model_is_left_as_it_is():
    model, x = mlp(4, 6, 2), torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    before = copy.deepcopy(model.state_dict())
    flags = [p.requires_grad for p in model.parameters()]
    attributions = DASP(model, rank="full").attribute(x, target=0)
    assert not attributions.requires_grad
    assert x.grad is None
    assert flags == [p.requires_grad for p in model.parameters()]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_later_changes_of_the_weights_are_seen():
    model, x = mlp(4, 6, 2), torch.randn(2, 4, dtype=torch.float64)
    method = DASP(model)
    before = method.attribute(x, target=0)
    with torch.no_grad():
        model[2].weight.mul_(2)
    torch.testing.assert_close(method.attribute(x, target=0), 2 * before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_dtype_is_the_models(dtype):
    model, x = mlp(4, 6, 2).to(dtype), torch.randn(2, 4).to(dtype)
    with torch.no_grad():
        attributions = DASP(model, rank="full").attribute(x, target=0)
    assert attributions.dtype == dtype
    exact = ExactShapley(model).attribute(x, target=0)
    torch.testing.assert_close(attributions, exact, atol=0.05, rtol=0.1)


def test_exported_programs():
    model, x = mlp(4, 6, 2), torch.randn(3, 4, dtype=torch.float64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.testing.assert_close(DASP(program).attribute(x, target=0), DASP(model).attribute(x, target=0))
    static = torch.export.export(model, (x,))
    with pytest.raises(ValueError, match="dynamic batch"):
        DASP(static)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.last = nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, tokens):
        hidden = torch.tanh(self.norm(self.embedding(tokens)))  # within a token: exact
        return self.last(hidden.mean(1))


def test_integer_inputs_stay_exact_within_a_token():
    torch.manual_seed(0)
    model = Tokens().double().eval()
    tokens = torch.randint(1, 7, (2, 4))
    attributions = DASP(model).attribute(tokens, target=0)
    exact = ExactShapley(model.double()).attribute(tokens, target=0)
    torch.testing.assert_close(attributions.double(), exact.double(), rtol=1e-5, atol=1e-6)


def test_values_that_stay_apart_are_exact():
    """Elementwise functions, scaling, patches: nothing random before the last layer, which is linear."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3, stride=3), nn.Tanh(), nn.Flatten(), nn.Softplus(), nn.Linear(12, 2)
    ).double().eval()  # fmt: skip
    x = torch.randn(2, 2, 9, dtype=torch.float64)
    patches = (torch.arange(9) // 3).expand(2, 9)
    attributions = DASP(model).attribute(x, 0.3, target=0, feature_mask=patches)
    torch.testing.assert_close(attributions, ExactShapley(model).attribute(x, 0.3, target=0, feature_mask=patches))


class Shapes(nn.Module):
    """The batch moves, sizes are taken from values, constants are made of them, and a layer is used twice."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(12, 2)

    def forward(self, x):
        rows = x.shape[0]
        h = torch.relu(self.layer(x.transpose(0, 1)))  # (3, rows, 4)
        h = torch.relu(self.layer(h)) + h
        h = torch.cat([h, torch.ones_like(h[:, :, :0])], 2)
        return self.last(h.transpose(0, 1).reshape(rows, -1))


def test_the_batch_may_move():
    torch.manual_seed(0)
    model, x = Shapes().double().eval(), torch.randn(2, 3, 4, dtype=torch.float64)
    exact = ExactShapley(model).attribute(x, target=0)
    torch.testing.assert_close(DASP(model, rank="full").attribute(x, target=0), exact, atol=0.05, rtol=0.2)


class Ignorant(nn.Module):
    def forward(self, x):
        return x.new_ones(x.shape[0], 2)


def test_a_model_that_ignores_its_input():
    assert bool((DASP(Ignorant().eval()).attribute(torch.randn(2, 3), target=0) == 0).all())


def test_trace_is_kept_for_the_same_signature():
    model, x = mlp(4, 6, 2), torch.randn(2, 4, dtype=torch.float64)
    method = DASP(model)
    method.attribute(x, target=0)
    graphs = GraphCache.of(model)
    assert (len(graphs._traced), len(graphs._lifted)) == (1, 1)
    method.attribute(x[:1], target=1)
    GradientDASP(model).attribute(x, target=1)
    assert (len(graphs._traced), len(graphs._lifted)) == (1, 1)
    method.attribute(x, target=1, feature_mask=torch.tensor([0, 0, 1, 2]))
    assert (len(graphs._traced), len(graphs._lifted)) == (1, 2)
    for groups in torch.combinations(torch.arange(3), 4, with_replacement=True)[1:8]:
        method.attribute(x, target=1, feature_mask=groups)
    assert (len(graphs._traced), len(graphs._lifted)) == (1, 4)


def test_players_are_numbered_through_the_batch():
    (game,) = games(Arguments(torch.randn(2, 3)))
    (value,) = game.toggled()
    assert value.players.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_known_ops_stay_whole():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1)).eval()
    graph = trace(model, (torch.randn(2, 1, 4, 4),), RULES).graph
    targets = [str(node.target) for node in graph.nodes if node.op == "call_function"]
    assert [t.split(".")[1] for t in targets if "sym" not in t] == [
        "conv2d", "batch_norm", "max_pool2d", "flatten", "linear",
    ]  # fmt: skip
