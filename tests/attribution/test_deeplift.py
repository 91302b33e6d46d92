"""DeepLIFT against slow versions of its rules, Captum's Rescale, and exact Shapley values where it should have them."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from captum.attr import DeepLift
from torch import Tensor, nn

from dasp import DeepLiftRevealCancel, ExactShapley, UnsupportedOperation, rmse

NONLINEAR = ["revealcancel", "rescale", "mixed"]


class Net(nn.Module):
    """A function as a model."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *inputs):
        return self.function(*inputs)


def dense(*widths: int, seed: int = 0, activation=nn.ReLU) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), activation()]
    return nn.Sequential(*layers[:-1]).double().eval()


def randomized(model: nn.Module) -> nn.Module:
    """With statistics and scales of batch norms that matter, of both signs."""
    torch.manual_seed(3)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    return model.double().eval()


# By hand.


def test_minimum():
    """x₁ − ReLU(x₁ − x₂): both are needed, Rescale gives all to one of them (section 3.5 of the paper)."""
    model = Net(lambda x: x[:, 0] - torch.relu(x[:, 0] - x[:, 1]))
    x = torch.tensor([[3.0, 3.0], [5.0, 2.0], [1.0, 4.0]])
    halves = torch.tensor([[1.5, 1.5], [1.0, 1.0], [0.5, 0.5]])
    torch.testing.assert_close(DeepLiftRevealCancel(model).attribute(x), halves)
    one = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    torch.testing.assert_close(DeepLiftRevealCancel(model, rule="rescale").attribute(x), one)


def test_one_unit():
    """ReLU(1 + 2x₁ − 3x₂ + x₃) at (2, 2, 1): Δ⁺ = 5 and Δ⁻ = −6 from 1.

    y⁺ = ½(6 − 1) + ½(0 − 0) = 2.5,  y⁻ = ½(0 − 1) + ½(0 − 6) = −3.5
    """
    weights = torch.tensor([2.0, -3.0, 1.0])
    model = Net(lambda x: torch.relu(1 + (x * weights).sum(1)))
    result = DeepLiftRevealCancel(model).attribute(torch.tensor([[2.0, 2.0, 1.0]]))
    torch.testing.assert_close(result, torch.tensor([[2.5 * 4 / 5, -3.5, 2.5 / 5]]))


def test_parts_that_cancel_go_to_both_parts_in_halves():
    """h = ReLU(1 + x₁ − x₂) at (1, 1) has h⁺ = ½(2 − 1) + ½(1 − 0) = 1 and h⁻ = −1. ReLU(−3 + 2h + 4x₃ − 3x₄) has

        Δ⁺ = 4,  y⁺ = ½(3 − 0) + ½(0 − 0) = 4·⅜,        Δ⁻ = −3,  y⁻ = ½(0 − 0) + ½(0 − 3) = −3·½

    and h, which does not differ from its reference, the mean of both multipliers: 2·½(⅜ + ½).
    """
    weights = torch.tensor([2.0, 4.0, -3.0])

    def function(x):
        hidden = torch.relu(1 + x[:, :1] - x[:, 1:2])
        return torch.relu(torch.cat([hidden, x[:, 2:]], 1) @ weights - 3)

    result = DeepLiftRevealCancel(Net(function)).attribute(torch.ones(1, 4))
    torch.testing.assert_close(result, torch.tensor([[0.875, -0.875, 1.5, -1.5]]))


def test_where_nothing_differs_the_derivative_is_taken():
    """In single precision too, where 0.7 + 0.1 − 0.8 is not quite 0, and small differences are lost in rounding."""
    weights = torch.tensor([0.7, 0.1, -0.8])
    model = Net(lambda x: torch.sigmoid(3 + x @ weights))
    slope = torch.sigmoid(torch.tensor(3.0)) * torch.sigmoid(torch.tensor(-3.0))
    for x in (torch.ones(1, 3), torch.tensor([[1e-7, 1e-7, 1e-7]]), torch.tensor([[1e-7, 2e-7, 0.0]])):
        for rule in NONLINEAR if float(x.max()) < 1 else ["rescale"]:
            result = DeepLiftRevealCancel(model, rule=rule).attribute(x)
            torch.testing.assert_close(result / x.max(), weights * x / x.max() * slope, rtol=1e-4, atol=1e-6)


def test_where_there_is_no_derivative_nothing_is_attributed():
    model = Net(lambda x: (x**2).sum(1).sqrt())
    result = DeepLiftRevealCancel(model).attribute(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    torch.testing.assert_close(result, torch.tensor([[0.0, 0.0], [1.8, 3.2]]))


# Against slow versions.


def slowly(model: nn.Sequential, x: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """RevealCancel for one row and output of a dense ReLU network, unit by unit as in sections 3.5.1 and 3.5.3."""
    layers = [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in model[::2]]

    def relu(v: float) -> float:
        return max(v, 0.0)

    def on(v: float) -> float:
        return float(v > 0)

    references, values, slopes = [baseline], [x], []
    for weight, bias in layers[:-1]:
        reference, value, pairs = [], [], []
        for w, b in zip(weight, bias, strict=True):
            x0 = b + sum(w[i] * references[-1][i] for i in range(len(w)))
            terms = [w[i] * (values[-1][i] - references[-1][i]) for i in range(len(w))]
            up, down = sum(t for t in terms if t > 0), sum(t for t in terms if t < 0)
            high = (relu(x0 + up) - relu(x0) + relu(x0 + up + down) - relu(x0 + down)) / 2
            low = (relu(x0 + down) - relu(x0) + relu(x0 + up + down) - relu(x0 + up)) / 2
            reference.append(relu(x0))
            value.append(relu(x0 + up + down))
            pairs.append(
                (
                    high / up if up else (on(x0) + on(x0 + down)) / 2,
                    low / down if down else (on(x0) + on(x0 + up)) / 2,
                )
            )
        references.append(np.array(reference))
        values.append(np.array(value))
        slopes.append(pairs)
    positive = negative = np.ones(1)
    for k in reversed(range(len(layers))):
        weight = layers[k][0]
        multipliers = np.zeros(weight.shape[1])
        for i in range(weight.shape[1]):
            change = values[k][i] - references[k][i]
            for j in range(weight.shape[0]):
                term = weight[j, i] * change
                side = positive[j] if term > 0 else negative[j] if term < 0 else (positive[j] + negative[j]) / 2
                multipliers[i] += weight[j, i] * side
        if k == 0:
            return multipliers * (x - baseline)
        positive = np.array([m * up for m, (up, _) in zip(multipliers, slopes[k - 1], strict=True)])
        negative = np.array([m * down for m, (_, down) in zip(multipliers, slopes[k - 1], strict=True)])
    raise AssertionError


@pytest.mark.parametrize("seed", range(5))
def test_dense_networks_unit_by_unit(seed):
    model = dense(6, 9, 7, 5, 1, seed=seed)
    x, baseline = torch.randn(2, 3, 6, dtype=torch.float64)
    expected = np.stack([slowly(model, *row) for row in zip(x.numpy(), baseline.numpy(), strict=True)])
    result = DeepLiftRevealCancel(model).attribute(x, baseline)
    torch.testing.assert_close(result, torch.as_tensor(expected), rtol=1e-10, atol=1e-10)


def captum(model: nn.Module, x: Tensor, baseline: Tensor, target: int) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its hooks, and that it needs gradients
        return DeepLift(model).attribute(x, baseline, target=target).detach()


CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(2, 5, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(5, 4, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
    nn.Linear(4, 6), nn.Sigmoid(), nn.Linear(6, 2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("model", "shape"),
    [(dense(7, 12, 8, 2), (7,)), (dense(7, 12, 8, 2, activation=nn.Tanh), (7,)), (CONVOLUTIONS, (2, 7, 6))],
    ids=["ReLU", "tanh", "convolutions"],
)
def test_rescale_is_captums(model, shape):
    torch.manual_seed(1)
    model = model.double().eval()
    x, baseline = torch.randn(2, 4, *shape, dtype=torch.float64)
    result = DeepLiftRevealCancel(model, rule="rescale").attribute(x, baseline, target=1)
    torch.testing.assert_close(result, captum(model, x, baseline, 1), rtol=1e-5, atol=1e-8)
    assert rmse(DeepLiftRevealCancel(model).attribute(x, baseline, target=1), result).min() > 1e-6


def test_folded_batch_norm_changes_nothing():
    """Nor do other ways to write a scale and a sum."""
    model = randomized(nn.Sequential(nn.Conv1d(2, 5, 3), nn.BatchNorm1d(5), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2)))
    folded = nn.Sequential(nn.utils.fuse_conv_bn_eval(model[0], model[1]), *model[2:]).eval()
    first, second = folded[0].weight.detach().split(1, 1)
    bias, conv, head = folded[0].bias.detach()[:, None], nn.functional.conv1d, model[3:].eval()
    written = Net(lambda x: head(torch.relu(bias - 2 * conv(x[:, :1], first / -2) + conv(x[:, 1:], second))))
    x, baseline = torch.randn(2, 3, 2, 6, dtype=torch.float64)
    expected = DeepLiftRevealCancel(folded).attribute(x, baseline)
    for other in (model, written):
        torch.testing.assert_close(DeepLiftRevealCancel(other).attribute(x, baseline), expected, rtol=1e-9, atol=1e-9)


# Where it is exact, and where it is close.


def test_two_inputs_of_a_unit_are_exact():
    """One of each sign: the game of RevealCancel is the game."""
    weights = torch.tensor([[1.0, 2.0, 0.5], [-2.0, -1.0, -0.5]], dtype=torch.float64)
    model = Net(lambda x: torch.relu(x @ weights + 0.2).sum(1))
    x = torch.rand(5, 2, dtype=torch.float64)
    torch.testing.assert_close(DeepLiftRevealCancel(model).attribute(x), ExactShapley(model).attribute(x))


def test_revealcancel_is_closer_to_shapley_values_than_rescale():
    model, errors = dense(8, 24, 16, 1), []
    methods = [DeepLiftRevealCancel(model), DeepLiftRevealCancel(model, rule="rescale"), ExactShapley(model)]
    for _ in range(20):
        for layer in model[::2]:
            layer.reset_parameters()  # the same graph for all networks
        x, baseline = torch.randn(2, 4, 8, dtype=torch.float64)
        *both, exact = (method.attribute(x, baseline) for method in methods)
        assert rmse(*both).min() > 1e-4
        errors.append([float((rmse(values, exact) / exact.std(1)).mean()) for values in both])
    revealcancel, rescale = torch.tensor(errors).mean(0)
    assert revealcancel < 0.85 * rescale


# The whole interface.


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Linear(16, 3)

    def forward(self, x):
        hidden = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.last(torch.relu(hidden + self.second(hidden)).mean((2, 3)).repeat(1, 4))


NETWORKS = {
    "dense": (dense(6, 16, 16, 3), (6,)),
    "conv1d": (nn.Sequential(nn.Conv1d(4, 8, 5), nn.ReLU(), nn.Conv1d(8, 8, 3, 2), nn.ELU(), nn.MaxPool1d(2),
                             nn.Flatten(), nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 20)),
    "conv2d": (nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Dropout(),
                             nn.Conv2d(6, 6, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)),
               (2, 7, 8)),
    "residual": (Residual(), (2, 6, 6)),
}  # fmt: skip


@functools.cache
def on_network(name, dtype):
    return DeepLiftRevealCancel(randomized(copy.deepcopy(NETWORKS[name][0])).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nonlinear", NONLINEAR)
@pytest.mark.parametrize("name", NETWORKS)
def test_contributions_sum_to_the_difference(name, nonlinear, dtype):
    method, shape = on_network(name, dtype), NETWORKS[name][1]
    model, method.rule = method.model, nonlinear  # the graph is the same for all rules
    x, baseline = torch.randn(2, 4, *shape, dtype=dtype, generator=torch.Generator().manual_seed(4))
    result, delta = method.attribute(x, baseline, return_convergence_delta=True)
    assert result.shape == (4, 3, *shape)
    assert result.dtype == dtype
    total = (model(x) - model(baseline)).detach()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(result.flatten(2).sum(2), total, rtol=tolerance, atol=10 * tolerance)
    assert delta.abs().max() < 10 * tolerance


def test_mixed_is_rescale_for_convolutions_and_revealcancel_for_dense_layers():
    torch.manual_seed(0)  # others have rows whose units all stay on one side, where the rules agree
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 1)
    ).double().eval()  # fmt: skip
    convolutions, head = model[:4].eval(), model[3:].eval()
    x, baseline = torch.randn(2, 3, 2, 6, dtype=torch.float64)

    def values(part, rule):
        return DeepLiftRevealCancel(part, rule=rule).attribute(x, baseline)

    torch.testing.assert_close(values(convolutions, "mixed"), values(convolutions, "rescale"))
    hidden = model[:3](x).detach(), model[:3](baseline).detach()
    parts = [DeepLiftRevealCancel(head, rule=rule).attribute(*hidden) for rule in ("mixed", "revealcancel")]
    torch.testing.assert_close(*parts)
    results = [values(model, rule) for rule in NONLINEAR]
    assert all(rmse(a, b).min() > 1e-6 for a, b in itertools.combinations(results, 2))


def test_groups_have_the_sum_of_their_entries():
    model = dense(6, 9, 7, 2)
    x, baseline = torch.randn(2, 2, 6, dtype=torch.float64)
    entries = DeepLiftRevealCancel(model).attribute(x, baseline, target=[1, 0])
    mask = torch.tensor([[0, 1, 0, 2, 2, 1], [4, 4, 5, 5, 5, 6]])
    groups = DeepLiftRevealCancel(model).attribute(x, baseline, target=[1, 0], feature_mask=mask)
    for row, player in itertools.product(range(2), range(7)):
        members = mask[row] == player
        expected = entries[row, members].sum().expand(int(members.sum()))
        torch.testing.assert_close(groups[row, members], expected)


def test_several_inputs_and_constant_arguments():
    first, second = nn.Linear(3, 6).double(), nn.Linear(2, 6).double()
    model = Net(lambda a, b, scale, flag: torch.relu(first(a) + second(b) * scale) * (2 if flag else 1))
    a, b, scale = (torch.randn(4, n, dtype=torch.float64) for n in (3, 2, 1))
    result, delta = DeepLiftRevealCancel(model).attribute(
        (a, b), (0.5, b.flip(0)), target=2, additional_forward_args=(scale, True), return_convergence_delta=True
    )
    assert [part.shape for part in result] == [a.shape, b.shape]
    assert delta.abs().max() < 1e-12
    joint = Net(lambda x, scale: torch.relu(first(x[:, :3]) + second(x[:, 3:]) * scale) * 2)
    both, baselines = torch.cat([a, b], 1), torch.cat([torch.full_like(a, 0.5), b.flip(0)], 1)
    expected = DeepLiftRevealCancel(joint).attribute(both, baselines, target=2, additional_forward_args=scale)
    torch.testing.assert_close(torch.cat(result, 1), expected)


def test_an_output_that_does_not_depend_on_the_inputs():
    model = Net(lambda x: torch.ones_like(x) * 3)
    assert bool((DeepLiftRevealCancel(model).attribute(torch.rand(2, 3)) == 0).all())


def test_gradients_may_be_off_but_not_inference_mode():
    model, x = dense(3, 4, 1), torch.rand(2, 3, dtype=torch.float64)
    expected = DeepLiftRevealCancel(model).attribute(x)
    with torch.no_grad():
        torch.testing.assert_close(DeepLiftRevealCancel(model).attribute(x), expected)
    with torch.inference_mode(), pytest.raises(RuntimeError, match="DeepLiftRevealCancel differentiates"):
        DeepLiftRevealCancel(model).attribute(x)


# Softmax.


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3, 7])
@pytest.mark.parametrize("scale", [1, 30, 1000])
def test_softmax_is_complete_at_any_size(classes, scale, logarithm):
    last = nn.LogSoftmax(-1) if logarithm else nn.Softmax(-1)
    model = nn.Sequential(dense(6, 9, classes), last.double()).eval()
    x, baseline = scale * torch.randn(2, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for rule in NONLINEAR:
        _, delta = DeepLiftRevealCancel(model, rule=rule).attribute(x, baseline, return_convergence_delta=True)
        assert delta.abs().max() <= 1e-12 * scale


def test_softmax_of_two_is_the_sigmoid_of_their_difference():
    x, baseline = 2 * torch.randn(2, 6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    difference = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        difference.weight.copy_(torch.tensor([[1.0, -1.0]]))
    alone = nn.Sequential(difference, nn.Sigmoid()).eval()
    for rule in NONLINEAR:
        actual, expected = (
            DeepLiftRevealCancel(model, rule=rule).attribute(x, baseline, target=0)
            for model in (nn.Softmax(1).eval(), alone)
        )
        torch.testing.assert_close(actual, expected)


def test_softmax_of_three_has_the_weights_of_exponentials_rescaled():
    torch.manual_seed(3)
    x, baseline = torch.randn(2, 1, 3, dtype=torch.float64)
    actual = DeepLiftRevealCancel(nn.Softmax(1).eval(), rule="rescale").attribute(x, baseline, target=0)[0]
    (x,), (b,) = x.tolist(), baseline.tolist()

    def sigmoid(d):
        return 1 / (1 + math.exp(-d))

    sums = [math.exp(end[1]) + math.exp(end[2]) for end in (x, b)]
    odds = [end[0] - math.log(total) for end, total in zip((x, b), sums, strict=True)]
    slope = (sigmoid(odds[0]) - sigmoid(odds[1])) / (odds[0] - odds[1])
    of_sum = (math.log(sums[0]) - math.log(sums[1])) / (sums[0] - sums[1])
    expected = [slope * (x[0] - b[0]), *(-slope * of_sum * (math.exp(x[k]) - math.exp(b[k])) for k in (1, 2))]
    assert actual.tolist() == pytest.approx(expected)


def test_masked_attention_has_contributions_and_what_is_common_has_none():
    class Attention(nn.Module):
        def forward(self, x):
            scores = (x @ x.transpose(1, 2)).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
            return (scores.softmax(-1) @ x).sum(2)

    x = torch.randn(3, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    result, delta = DeepLiftRevealCancel(Attention().eval()).attribute(x, return_convergence_delta=True)
    assert delta.abs().max() < 1e-12
    assert not result[:, 0, 1:].any()  # the first position sees itself only
    shifted = DeepLiftRevealCancel(nn.Softmax(1).eval(), rule="rescale").attribute(x[0] * 0 + 3.0, x[0] * 0)
    torch.testing.assert_close(shifted.sum(2), torch.zeros(5, 4, dtype=torch.float64))


# Errors.


class Unusual(nn.Module):
    def forward(self, x):
        chosen = x.cumprod(1)
        return torch.lgamma(chosen) * x.argmax(1, keepdim=True)


def test_operations_without_a_rule_are_listed_with_the_users_lines():
    with pytest.raises(UnsupportedOperation) as caught:
        DeepLiftRevealCancel(Unusual().eval()).attribute(torch.rand(2, 3))
    message = str(caught.value)
    assert "3 operation(s)" in message
    assert "differences" in message
    assert "chosen = x.cumprod(1)" in message
    assert message.count("test_deeplift.py") == 3
    assert "BayesianShapley" in message


def test_integer_results_and_indices_have_no_rule():
    def indices(x):
        return nn.functional.adaptive_max_pool1d(x[:, None], 2, return_indices=True)[1] * 1.0

    for function, name in ((lambda x: x.long() * 1.0, "_to_copy"), (indices, "max_pool")):
        with pytest.raises(UnsupportedOperation, match=name):
            DeepLiftRevealCancel(Net(function)).attribute(torch.rand(2, 4))


def test_bad_arguments():
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout()).eval()
    with pytest.raises(ValueError, match="revealcancel, rescale, mixed, not linear"):
        DeepLiftRevealCancel(model, rule="linear")
    with pytest.raises(TypeError, match="floating point"):
        DeepLiftRevealCancel(Net(lambda x: x * 2.0)).attribute(torch.ones(2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="training mode"):
        DeepLiftRevealCancel(nn.Sequential(nn.Linear(4, 2), nn.Dropout()))
    method = DeepLiftRevealCancel(model)
    model.train()
    with pytest.raises(ValueError, match="training mode"):
        method.attribute(torch.ones(1, 4), target=0)


def test_the_order_of_rectifying_and_pooling_is_the_users():
    """With the same reference everywhere, a pooled difference has one part only, and RevealCancel would be Rescale."""
    torch.manual_seed(0)
    convolution = nn.Conv2d(1, 3, 3)
    last = nn.Linear(12, 1)
    first, after = (
        nn.Sequential(convolution, *middle, nn.Flatten(), last).eval()
        for middle in ((nn.ReLU(), nn.MaxPool2d(2)), (nn.MaxPool2d(2), nn.ReLU()))
    )
    x = torch.randn(2, 1, 6, 6)
    torch.testing.assert_close(first(x), after(x))
    revealed, mixed = (DeepLiftRevealCancel(first, rule=rule).attribute(x) for rule in ("revealcancel", "mixed"))
    assert float((revealed - mixed).abs().max()) > 1e-3
    assert float((revealed - DeepLiftRevealCancel(after).attribute(x)).abs().max()) > 1e-3
