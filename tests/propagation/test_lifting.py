"""Models as people write them: what is exact before players meet, what is refused, and what a lifted graph outlives."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from dasp import DASP, ExactShapley, GradientDASP, UnsupportedOperation, UntraceableModel, propagate
from dasp.propagation.gaussian import Gaussian, rectified_moments
from dasp.propagation.rules import RULES


class Net(nn.Module):
    """A function of the input and two layers."""

    def __init__(self, function, inputs: int = 4, outputs: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.function = nn.Linear(inputs, 5), nn.Linear(5, outputs), function
        self.double().eval()

    def forward(self, x, *extra):
        return self.function(self, x, *extra)


X = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

# Nothing is random before the last layer, which is linear: all of these are exact.
APART = {
    "comparison": lambda m, x: m.first((x > 0.1) * 1.0 + (x <= 0.5) * x),
    "where": lambda m, x: m.first(torch.where(x != 0.2, x * 2, 3.0)),
    "rounding": lambda m, x: m.first(torch.floor(x * 3) + torch.sign(x) + torch.round(x) - torch.ceil(2 * x)),
    "remainders": lambda m, x: m.first(torch.frac(x) + torch.trunc(3 * x) + x % 0.3 + torch.fmod(x, 0.4)),
    "not": lambda m, x: m.first(
        torch.where(
            torch.logical_or(torch.logical_not(x >= 0) | ~(x == 0), (x < 1) & torch.logical_and(x > 0, x < 2)), x, -x
        )
    ),
    "cast": lambda m, x: m.first((x * 3).long().double()),
    "softmax": lambda m, x: m.first(torch.stack([x, x**2], 2).softmax(2)[:, :, 0]),
    "layer norm": lambda m, x: m.first(F.layer_norm(torch.stack([x, x**2, -x], 2), (3,))[:, :, 0]),
    "own maximum": lambda m, x: m.first(torch.stack([x, 0.3 - x], 2).amax(2)),
    "own maximum, kept": lambda m, x: m.first(torch.stack([x, 0.3 - x], 2).max(2, keepdim=True)[0].squeeze(2)),
    "one entry with itself": lambda m, x: m.first(x * torch.sin(x) + x / (1 + x**2)),
    "beside a constant": lambda m, x: m.first(F.pad(torch.cat([x, x.new_ones(x.shape[0], 2)], 1), (0, -2), value=1.0)),
}


@pytest.mark.parametrize("name", APART)
def test_within_players_everything_is_exact(name):
    model = Net(APART[name])
    torch.testing.assert_close(DASP(model).attribute(X, 0.7), ExactShapley(model).attribute(X, 0.7))


# Close to exact: the values are random, but the model is written in a way that needs care.
RANDOM = {
    "detach": lambda m, x: m.last((h := torch.relu(m.first(x))) - 0.5 * h.detach()),
    "squeeze": lambda m, x: m.last(torch.relu(m.first(x)))[:, :1].squeeze(),
    "cube": lambda m, x: m.last(0.1 * m.first(x) ** 3),
    "hidden sizes": lambda m, x: m.last(torch.relu(m.first(x)).view(x.shape[0], 1, 5).expand(x.shape[0], 3, 5).mean(1)),
    "input meets hidden": lambda m, x: m.last(torch.relu(m.first(x)) + F.pad(x, (0, 1))),
    "leaky by where": lambda m, x: m.last(torch.where((h := m.first(x)) > 0, h, 0.1 * h)),
    "times its condition": lambda m, x: m.last((h := m.first(x)) * (h > 0)),
    "swish by hand": lambda m, x: m.last((h := m.first(x)) * torch.sigmoid(h)),
    "count of conditions": lambda m, x: 0.1 * (m.first(x) > 0).sum(1, keepdim=True),
    "players' condition and random value": lambda m, x: m.last(torch.where(x[:, :1] > 0, torch.relu(m.first(x)), 0.0)),
    "conditions of players": lambda m, x: ((x[:, :1] > 0) & (x[:, 1:2] > 0)) * 0.3,
    "bilinear form of players": lambda m, x: F.bilinear(x, x, 0.1 * torch.ones(1, 4, 4, dtype=x.dtype)),
    "max of constants": lambda m, x: m.last(torch.maximum(m.first(x), torch.zeros(1, dtype=x.dtype))),
}


@pytest.mark.parametrize("name", RANDOM)
@pytest.mark.parametrize("rows", [1, 3])
def test_models_as_people_write_them(name, rows):
    model, x = Net(RANDOM[name]), X[:rows]
    output = model(X)
    target = None if output.dim() == 1 else 0
    exact = ExactShapley(lambda x: model(x).view(len(x), -1)).attribute(x, target=0)
    for method in (DASP(model, rank="full"), GradientDASP(model)):
        torch.testing.assert_close(method.attribute(x, target=target), exact, atol=0.06, rtol=0.2)


REFUSED = {
    "integers": lambda m, x: m.last((m.first(x) * 3).long().double()),
    "rounded": lambda m, x: m.last(torch.floor(m.first(x))),
    "condition as an index": lambda m, x: m.last.weight[:, (m.first(x) > 0).long()[:, 0]].T,
    "count as an index": lambda m, x: F.embedding((m.first(x) > 0).sum(1), torch.eye(6, dtype=x.dtype)),
    "count of a dtype": lambda m, x: (m.first(x) > 0).sum(1, dtype=torch.int32) * 1.0,
    "truth of a number": lambda m, x: m.last(torch.logical_not(m.first(x)).double()),
    "random weights": lambda m, x: F.linear(torch.ones(2, 5, dtype=x.dtype), m.first(x)).T,
    "random weights and values": lambda m, x: F.linear(x, torch.relu(m.first(x))[:1, :4]),
    "random weights and players": lambda m, x: F.linear(x, x[:1].exp()),
    "random grid": lambda m, x: F.grid_sample(x.view(-1, 1, 2, 2), x.view(-1, 1, 2, 2), align_corners=True).flatten(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gaussian_is_refused(name):
    with pytest.raises(UnsupportedOperation, match="test_lifting.py"):  # row by row, as some mix those of a batch
        DASP(Net(REFUSED[name])).attribute(X, internal_batch_size=1)


def test_a_view_across_rows_takes_a_baseline_for_all_rows():
    model = Net(lambda m, x: m.first(x.view(-1).view(-1, 4)))
    torch.testing.assert_close(DASP(model).attribute(X, X[:1] + 1), ExactShapley(model).attribute(X, X[:1] + 1))


@pytest.mark.parametrize("options", [{"mode": "sum"}, {"mode": "mean"}, {"mode": "sum", "padding_idx": 2}], ids=str)
def test_tokens_in_a_bag_are_exact(options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(6, 3, **options), nn.Linear(3, 2)).double().eval()
    tokens, baseline = torch.tensor([[1, 2, 3, 5], [0, 4, 4, 1]]), torch.tensor([[2, 0, 1, 2]])
    exact = ExactShapley(model).attribute(tokens, baseline, target=1)
    torch.testing.assert_close(DASP(model).attribute(tokens, baseline, target=1), exact)


def test_integer_inputs_that_are_looked_up_and_moved():
    torch.manual_seed(0)
    embedding, order = nn.Embedding(6, 3).to(torch.bfloat16), torch.tensor([2, 0, 1])

    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.last = embedding, nn.Linear(9, 2).to(torch.bfloat16)

        def forward(self, tokens):
            return self.last(self.embedding(tokens[:, order]).flatten(1))

    model, tokens = Tokens().eval(), torch.tensor([[1, 2, 3], [3, 5, 1]])
    exact = ExactShapley(model).attribute(tokens, target=0)
    for method in (DASP(model), GradientDASP(model, rank=0)):
        torch.testing.assert_close(method.attribute(tokens, target=0), exact, atol=0.03, rtol=0.05)


def test_a_norm_of_nothing_is_not_a_number_problem():
    model = Net(lambda m, x: (F.linear(x, m.first.weight) ** 2).sum(1).sqrt())
    assert bool(torch.isfinite(DASP(model).attribute(X)).all())


def test_constant_arguments_are_told_from_batches_once():
    model = Net(lambda m, x, e: torch.tanh(m.first(x)).sum(1) * e.sum())
    x, constant = torch.randn(5, 4, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    method = GradientDASP(model)
    whole = method.attribute(x, additional_forward_args=constant, nodes=4)
    parts = method.attribute(x, additional_forward_args=constant, nodes=4, internal_batch_size=60)
    torch.testing.assert_close(parts, whole)


def test_replaced_layers_and_revived_weights_are_seen():
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1)).double().eval()
    x, groups = torch.randn(2, 8, dtype=torch.float64), torch.arange(8) // 2
    kept = model[0].weight.detach().clone()
    with torch.no_grad():
        model[0].weight[:, 4:] = 0
    method = GradientDASP(model, rank=0)
    method.attribute(x, feature_mask=groups, nodes=4)
    with torch.no_grad():
        model[0].weight.copy_(kept)
    fresh = GradientDASP(model, rank=0).attribute(x, feature_mask=groups, nodes=4)
    torch.testing.assert_close(method.attribute(x, feature_mask=groups, nodes=4), fresh)
    model[2] = nn.Linear(4, 1).double().eval()
    fresh = GradientDASP(model, rank=0).attribute(x, feature_mask=groups, nodes=4)
    torch.testing.assert_close(method.attribute(x, feature_mask=groups, nodes=4), fresh)


def test_inference_mode_is_refused_where_derivatives_are_needed():
    model = Net(lambda m, x: m.last(torch.relu(m.first(x))))
    with torch.inference_mode():
        assert bool(DASP(model).attribute(X, target=0).any())
        with pytest.raises(RuntimeError, match="no_grad"):
            GradientDASP(model).attribute(X, target=0)


def test_second_derivatives_are_refused():
    mean = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(rectified_moments(mean, torch.ones(3))[0].sum(), mean)
    assert bool(torch.isfinite(first).all())
    with pytest.raises(NotImplementedError, match="once"):
        torch.autograd.grad(rectified_moments(mean, torch.ones(3))[0].sum(), mean, create_graph=True)


def test_a_loop_over_rows_is_refused():
    model = Net(lambda m, x: m.last(torch.relu(torch.stack([m.first(row) for row in x]))))
    with pytest.raises(UntraceableModel, match=r"exactly 2 row\(s\)"):
        DASP(model).attribute(X, target=0)


def test_constants_made_of_random_values():
    model = Net(lambda m, x: torch.ones_like(m.first(x)))
    assert not bool(DASP(model).attribute(X, target=0).any())
    assert not bool(GradientDASP(model).attribute(X, target=0).any())


def test_every_exact_rule_is_tried():
    """Ops that only act on exact pairs are in the tables above."""
    exact_only = {str(op).split(".")[1] for op, rule in RULES.items() if rule.gaussian is None}
    assert exact_only == {
        "embedding", "floor", "ceil", "round", "trunc", "frac", "remainder", "fmod",
    }  # fmt: skip


def test_propagate_keeps_what_it_is_given():
    model = Net(lambda m, x: x)
    result = propagate(model, X, X.abs(), rank="full")
    assert isinstance(result, Gaussian)
    torch.testing.assert_close(result.total_variance, X.abs())


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
@pytest.mark.parametrize("norm", [nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.Identity()])
def test_normalized_networks_end_in_probabilities(norm, last):
    """In single precision; both ends of the integral have no noise, so the sum is that of the model."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), norm, nn.Tanh(), nn.Linear(6, 3), last).eval()
    x = X.float()
    exact = ExactShapley(model).attribute(x, target=1)
    for method in (DASP(model, rank="full"), GradientDASP(model, rank="full")):
        torch.testing.assert_close(method.attribute(x, target=1), exact, atol=0.06, rtol=0.2)
    difference = (model(x) - model(torch.zeros_like(x)))[:, 1]
    torch.testing.assert_close(GradientDASP(model).attribute(x, target=1).sum(1), difference, atol=0.011, rtol=0)


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.LogSoftmax(1), nn.Sigmoid()])
def test_convolutional_networks_end_in_probabilities(last):
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 3), last
    model, x = nn.Sequential(*layers).double().eval(), torch.randn(2, 1, 3, 3, dtype=torch.float64)
    certain = propagate(model, x, torch.zeros_like(x))
    torch.testing.assert_close(certain.mean, model(x))
    assert not bool(certain.total_variance.any())
    difference = (model(x) - model(torch.zeros_like(x)))[:, 1]
    sums = GradientDASP(model).attribute(x, target=1).flatten(1).sum(1)
    torch.testing.assert_close(sums, difference, atol=0.011, rtol=0)


class Divided(nn.Module):
    """A layer's result by a function of it and of its norm."""

    def __init__(self, function) -> None:
        super().__init__()
        self.layer, self.function = nn.Linear(3, 4), function

    def forward(self, x):
        y = self.layer(x)
        return self.function(y, y.norm(dim=-1, keepdim=True))


def test_a_norm_keeps_the_options_of_its_operations():
    model, x = Divided(lambda y, norm: y / torch.add(norm, 1.0, alpha=5)).eval(), torch.randn(2, 3)
    torch.testing.assert_close(propagate(model, x, torch.zeros_like(x)).mean, model(x))


def test_whole_numbers_of_a_random_value_are_refused():
    model = Divided(lambda y, norm: y - (3 * y).long() / 3.0).eval()
    with pytest.raises(UnsupportedOperation):
        GradientDASP(model).attribute(torch.randn(2, 3), target=0)
