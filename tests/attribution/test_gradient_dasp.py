"""GradientDASP: exact where moments are exact, complete everywhere, and its options."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dasp import DASP, ExactShapley, GradientDASP, rmse, spearman
from dasp.attribution.base import rows_at_once
from dasp.attribution.gradient_dasp import clustered, fejer, gauss, k_means
from dasp.games.request import Arguments, Request, games
from dasp.propagation.coalitions import bernoulli, sketch


class Quadratic(nn.Module):
    """Σ_j a_j (w_j·x + b_j)²: its expectation needs mean and variance only, so propagation is exact."""

    def __init__(self, inputs: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.last = nn.Linear(inputs, 4), nn.Linear(4, 2)
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x) ** 2)


def relu_network(*widths: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double().eval()


def coalition_values(model, x, baseline, target):
    """v(S) for all coalitions of one row, by their bits."""
    n = x.shape[1]
    members = torch.tensor(list(itertools.product([0, 1], repeat=n)), dtype=torch.bool)
    with torch.no_grad():
        outputs = model(torch.where(members, x, baseline))[:, target]
    return {frozenset(np.flatnonzero(m).tolist()): v.item() for m, v in zip(members.numpy(), outputs, strict=True)}


def semivalue(values, n, weight):
    """Σ over sizes s of weight(s)·Σ over coalitions S of size s without i of v(S ∪ i) − v(S)."""
    result = []
    for i in range(n):
        others = [S for S in values if i not in S]
        result.append(sum(weight(len(S)) * (values[S | {i}] - values[S]) for S in others))
    return torch.tensor(result, dtype=torch.float64)


def interaction(values, n):
    """The Shapley interaction index of all pairs (Grabisch & Roubens 1999)."""
    result = torch.zeros(n, n, dtype=torch.float64)
    for i, j in itertools.permutations(range(n), 2):
        for S in values:
            if not S & {i, j}:
                weight = math.factorial(len(S)) * math.factorial(n - len(S) - 2) / math.factorial(n - 1)
                result[i, j] += weight * (values[S | {i, j}] - values[S | {i}] - values[S | {j}] + values[S])
    return result


def beta_weight(n, alpha, beta):
    def function(a, b):
        return math.gamma(a) * math.gamma(b) / math.gamma(a + b)

    return lambda s: function(s + beta, n - 1 - s + alpha) / function(beta, alpha)


INDICES = {
    "shapley": lambda n: lambda s: 1 / (n * math.comb(n - 1, s)),
    "banzhaf": lambda n: lambda s: 0.5 ** (n - 1),
    (1.0, 1.0): lambda n: lambda s: 1 / (n * math.comb(n - 1, s)),
    (4.0, 1.0): lambda n: beta_weight(n, 4, 1),
    (1.0, 2.5): lambda n: beta_weight(n, 1, 2.5),
}


@functools.cache
def on_quadratic(players, rank):
    return GradientDASP(Quadratic(players), rank=rank)


@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("nodes", [None, 6])
@pytest.mark.parametrize("rank", [0, "full"])
def test_indices_are_exact_where_moments_are(index, nodes, rank):
    method, n = on_quadratic(5, rank), 5
    x, baseline = torch.randn(2, 1, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = semivalue(coalition_values(method.model, x, baseline, 1), n, INDICES[index](n))
    actual = method.attribute(x, baseline, target=1, nodes=nodes, index=index, tolerance=1e-8)
    torch.testing.assert_close(actual[0], expected, rtol=1e-4, atol=1e-5)


def test_interactions_are_exact_where_moments_are():
    model, n = Quadratic(5), 5
    x, baseline = torch.randn(2, 2, n, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    method = GradientDASP(model)
    actual = method.interactions(x, baseline, target=0)
    for row in range(2):
        part = slice(row, row + 1)
        expected = interaction(coalition_values(model, x[part], baseline[part], 0), n)
        torch.testing.assert_close(actual[row], expected, rtol=1e-8, atol=1e-8)
    some = method.interactions(x, baseline, target=0, players=[3, 1], internal_batch_size=3)
    torch.testing.assert_close(some, actual[:, [3, 1]], rtol=1e-8, atol=1e-8)


def test_interactions_and_indices_of_a_relu_network():
    model, n = relu_network(6, 24, 12, 1), 6
    x, baseline = torch.randn(4, n, dtype=torch.float64) * 2, torch.zeros(1, n, dtype=torch.float64)
    method = GradientDASP(model)
    pairs, banzhaf = method.interactions(x, nodes=16), method.attribute(x, index="banzhaf")
    values = [coalition_values(model, row[None], baseline, 0) for row in x]
    truth = torch.stack([interaction(v, n) for v in values])
    assert rmse(pairs, truth).mean() < 0.5 * rmse(0 * truth, truth).mean()
    assert spearman(pairs, truth).mean() > 0.7
    assert spearman(banzhaf, torch.stack([semivalue(v, n, INDICES["banzhaf"](n)) for v in values])).min() > 0.9


# Networks that are traced once, with weights drawn anew for every example: from the smallest to three hidden layers.
WIDTHS = [(2, 1, 2), (5, 8, 2), (8, 4, 7, 2, 2)]


@functools.cache
def on_network(widths, rank):
    return GradientDASP(relu_network(*widths), rank=rank)


@st.composite
def settings_of_networks(draw):
    """A method on a network with new weights, inputs and baselines."""
    widths, rank = draw(st.sampled_from(WIDTHS)), draw(st.sampled_from([0, "full"]))
    method = on_network(widths, rank)
    torch.manual_seed(draw(st.integers(0, 999)))
    for layer in method.model[::2]:
        layer.reset_parameters()
    x, baseline = torch.randn(2, 3, widths[0], dtype=torch.float64)
    return method, x, baseline


some = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-7])  # most networks reach the first, hardly one the last
@some
@given(setting=settings_of_networks())
def test_values_sum_to_the_difference_and_there_is_a_warning_of_each_row_that_does_not(setting, tolerance):
    method, x, baseline = setting
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values, delta = method.attribute(x, baseline, target=0, tolerance=tolerance, return_convergence_delta=True)
    with torch.no_grad():
        outputs = torch.stack([method.model(x), method.model(baseline)])[..., 0]
    total, rounding = outputs[0] - outputs[1], 10 * torch.finfo(torch.float64).eps * outputs.abs().amax(0)
    torch.testing.assert_close(delta, values.sum(1) - total, rtol=1e-9, atol=1e-12)
    beyond = delta.abs() > tolerance * torch.maximum(total.abs(), values.abs().sum(1) / 100) + rounding
    messages = [str(w.message) for w in caught]
    if bool(beyond.any()):
        (message,) = messages
        assert message.startswith(f"{int(beyond.sum())} row(s) did not reach the tolerance {tolerance:g} with as many")
        assert f"by up to {float(delta.abs().max()):.3g}. Raise" in message
    else:
        assert messages == []


@some
@given(settings_of_networks())
def test_null_and_exchangeable_players(setting):
    method, x, baseline = setting
    weight = method.model[0].weight
    with torch.no_grad():
        weight[:, 0] = 0
        weight[:, -1] = weight[:, x.shape[1] // 2]
    x[:, -1], baseline[:, -1] = x[:, x.shape[1] // 2], baseline[:, x.shape[1] // 2]
    values = method.attribute(x, baseline, target=1, nodes=5)
    if x.shape[1] > 2:
        assert bool((values[:, 0] == 0).all())
    torch.testing.assert_close(values[:, -1], values[:, x.shape[1] // 2], rtol=1e-9, atol=1e-9)


def test_linear_networks_are_exact_with_one_node():
    model = nn.Sequential(nn.Linear(40, 5), nn.Linear(5, 2)).double().eval()
    x = torch.randn(3, 40, dtype=torch.float64)
    weights = (model[1].weight @ model[0].weight)[1].detach()
    for rank in (0, 7, "auto"):
        torch.testing.assert_close(GradientDASP(model, rank=rank).attribute(x, target=1, nodes=1), weights * x)


def test_the_slope_is_the_derivative():
    """The value of one node against finite differences of the propagated mean in one player's probability."""
    model, x = relu_network(4, 6, 5, 1), torch.randn(1, 4, dtype=torch.float64)
    (slopes,) = GradientDASP(model, rank="full").attribute(x, index="banzhaf")
    total = slopes.sum()
    step = 1e-5

    def expectation(q):
        method = GradientDASP(model, rank="full")
        (game,) = games(Arguments(x))
        frontier = method.lift(game).frontier(*game.toggled())
        probabilities = torch.full((1, 4), q, dtype=torch.float64)
        signs = sketch(4, 4)[:, None].double()
        return frontier.map(lambda c: bernoulli(c, probabilities, signs)).propagated().mean.item()

    difference = (expectation(0.5 + step) - expectation(0.5 - step)) / (2 * step)
    assert total.item() == pytest.approx(difference, rel=1e-6)


def test_correlations_help_and_all_are_better_than_nothing():
    model = relu_network(10, 64, 32, 1)
    x = torch.randn(8, 10, dtype=torch.float64) * 2
    exact = ExactShapley(model).attribute(x)
    diagonal, full = (rmse(GradientDASP(model, rank=r).attribute(x, nodes=16), exact).mean() for r in (0, "full"))
    algorithm = rmse(DASP(model, rank="full").attribute(x), exact).mean()
    assert algorithm < full < diagonal


def test_groups_tuples_targets_and_masks_per_row():
    torch.manual_seed(0)

    class TwoInputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Conv1d(2, 4, 3, padding=1), nn.Linear(3, 4), nn.Linear(4, 3)

        def forward(self, a, b, scale):
            return self.last(torch.tanh(self.first(a).mean(2) + self.second(b) * scale) ** 2)

    model = TwoInputs().double().eval()
    a, b = torch.randn(2, 2, 5, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)
    arguments = {
        "baselines": (0, b.flip(0)),
        "target": [2, 0],
        "additional_forward_args": torch.rand(2, 1, dtype=torch.float64),
        "feature_mask": (torch.arange(5).expand(2, 5), torch.tensor([[5, 5, 6], [4, 5, 5]])),
    }
    exact = ExactShapley(model).attribute((a, b), **arguments)
    actual = GradientDASP(model).attribute((a, b), **arguments)
    for part, truth in zip(actual, exact, strict=True):
        torch.testing.assert_close(part, truth, atol=0.01, rtol=0.2)


@pytest.mark.parametrize("rank", [0, 3, "full"])
@pytest.mark.parametrize("nodes", [None, 6])
def test_result_does_not_depend_on_the_batch_size(rank, nodes, capsys):
    model, x = relu_network(7, 9, 4, 2), torch.randn(4, 7, dtype=torch.float64)
    method = GradientDASP(model, rank=rank)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = method.attribute(x, nodes=nodes)
        for size in (1, 20, 5000):
            part = method.attribute(x, nodes=nodes, internal_batch_size=size, show_progress=True)
            torch.testing.assert_close(part, whole)
        torch.testing.assert_close(method.attribute(x[2:3], nodes=nodes), whole[2:3])
    assert whole.shape == (4, 2, 7)
    assert "GradientDASP" in capsys.readouterr().err


def test_the_seed_decides_the_sketch():
    model, x = relu_network(40, 9, 4, 1), torch.randn(2, 40, dtype=torch.float64)
    method = GradientDASP(model, rank=4)
    first, again, other = (method.attribute(x, nodes=3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_backgrounds_are_averages():
    model, x = relu_network(4, 8, 2), torch.randn(2, 4, dtype=torch.float64)
    background = torch.randn(5, 4, dtype=torch.float64)
    method = GradientDASP(model)
    each = torch.stack([method.attribute(x, row[None], target=[1, 0], nodes=8) for row in background])
    actual, delta = method.attribute(x, background, target=[1, 0], nodes=8, return_convergence_delta=True)
    torch.testing.assert_close(actual, each.mean(0))
    assert delta.shape == (2,)
    one = method.attribute(x[:1], background, target=1, nodes=8)
    torch.testing.assert_close(one, actual[:1])
    summary = method.attribute(x, background, target=[1, 0], nodes=8, background_clusters=5)
    torch.testing.assert_close(summary, actual)
    square = torch.randn(4, 4, dtype=torch.float64)  # as many rows as a mask has entries
    grouped = method.attribute(square, background, target=0, nodes=8, feature_mask=torch.tensor([0, 0, 1, 2]))
    assert torch.equal(grouped[:, 0], grouped[:, 1])
    rough = method.attribute(x, background, target=[1, 0], nodes=8, background_clusters=2)
    assert rmse(rough, actual).mean() < actual.abs().mean()
    with pytest.raises(ValueError, match="background_clusters"):
        method.attribute(x, target=0, background_clusters=3)


def test_clusters_of_separated_points():
    rows = torch.cat([torch.zeros(6, 2), torch.ones(2, 2) * 10])
    centres, shares = k_means(rows, 2)
    assert sorted(zip(centres[:, 0].tolist(), shares, strict=True)) == [(0, 0.75), (10, 0.25)]
    request = Request.of(lambda x: x.float().sum(1), Arguments.given(rows[:1], rows))
    torch.testing.assert_close(clustered(request, 2).empty, request.empty)
    with pytest.raises(ValueError, match="at least 1"):
        clustered(request, 0)
    with pytest.raises(ValueError, match="needs a background"):
        clustered(Request.of(lambda x: x.sum(1), Arguments.given(rows)), 2)
    with pytest.raises(TypeError, match="integers have no mean"):
        clustered(Request.of(lambda x: x.float().sum(1), Arguments.given(rows[:1].long(), rows.long())), 2)


def test_the_cap_is_warned_of():
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Tanh()).double().eval()
    model[0].weight.data = torch.tensor([[400.0, -401.0]], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"1 row\(s\) did not reach the tolerance 1e-12"):
        GradientDASP(model, rank=0).attribute(torch.ones(1, 2, dtype=torch.float64), tolerance=1e-12)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nodes": 0}, "nodes"),
        ({"tolerance": 0}, "tolerance"),
        ({"index": "owen"}, "index"),
        ({"index": (1, 0)}, "index"),
        ({"index": [1, 2]}, "index"),
        ({"internal_batch_size": -5}, "internal_batch_size"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        GradientDASP(relu_network(3, 2, 1)).attribute(torch.ones(1, 3, dtype=torch.float64), **arguments)


def test_bad_interactions():
    method, x = GradientDASP(relu_network(3, 4, 2)), torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="choose a target"):
        method.interactions(x)
    with pytest.raises(ValueError, match="players must be from 0 to 2"):
        method.interactions(x, target=0, players=[3])
    with pytest.raises(ValueError, match="same players"):
        method.interactions(x, target=0, feature_mask=torch.tensor([[0, 1, 1], [0, 0, 1]]))
    with pytest.raises(ValueError, match="rank"):
        GradientDASP(relu_network(3, 2, 1), rank="some")


def test_a_failing_compiler_is_warned_of(monkeypatch):
    model, x = relu_network(3, 4, 1), torch.randn(2, 3, dtype=torch.float64)

    def broken(module, **_):
        def fail(*_):
            raise RuntimeError("no compiler here")

        return fail

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.warns(UserWarning, match="torch.compile failed.*no compiler here"):
        actual = GradientDASP(model, compile=True).attribute(x, nodes=3)
    torch.testing.assert_close(actual, GradientDASP(model).attribute(x, nodes=3))


def test_gauss_is_exact_for_polynomials_and_the_weight():
    for alpha, beta in ((1, 1), (4, 1), (1.5, 2.5), (0.5, 0.5)):
        places, weights = gauss(5, (alpha, beta))
        for power in range(9):
            moment = math.prod((beta + k) / (alpha + beta + k) for k in range(power))
            assert (weights * places**power).sum() == pytest.approx(moment, rel=1e-10)
    expected = np.polynomial.legendre.leggauss(7)
    np.testing.assert_allclose(gauss(7)[0], (expected[0] + 1) / 2, atol=1e-12)
    np.testing.assert_allclose(gauss(7)[1], expected[1] / 2, atol=1e-12)


def test_fejer_is_nested_and_converges_through_poles_at_the_ends():
    for level in (2, 3, 4):
        np.testing.assert_allclose(fejer(level + 1)[0][1::2], fejer(level)[0])
    places, weights = fejer(5)
    assert (weights / np.sqrt(places)).sum() == pytest.approx(2, rel=1e-3)
    assert (weights * np.exp(places)).sum() == pytest.approx(math.e - 1, rel=1e-7)


def test_colouring_keeps_players_of_a_column_apart():
    (game,) = games(Arguments(torch.zeros(1, 1, 8, 8)))
    signs = sketch(10, 64, game.coordinates)  # room for 3×3
    assert signs.shape == (9, 64)
    for column in signs:
        ys, xs = (v[column != 0] for v in game.coordinates.T)
        for i, j in itertools.combinations(range(len(ys)), 2):
            assert max(abs(ys[i] - ys[j]), abs(xs[i] - xs[j])) >= 3
    assert games(Arguments(torch.zeros(1, 5)))[0].coordinates is None
    assert games(Arguments(torch.zeros(1, 2, 5), feature_mask=torch.arange(5)))[0].coordinates.flatten().tolist() == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert games(Arguments(torch.zeros(1, 1, 2, 2), feature_mask=torch.tensor([[0, 0], [0, 1]])))[0].coordinates is None


def test_the_dtype_is_the_models():
    model, x = relu_network(4, 6, 2).float(), torch.randn(2, 4)
    assert GradientDASP(model).attribute(x, target=0).dtype == torch.float32
    with torch.no_grad():
        assert not GradientDASP(model).attribute(x, target=0).requires_grad


class Ignorant(nn.Module):
    def forward(self, x):
        return x.new_ones(x.shape[0], 2)


def test_a_model_that_ignores_its_input():
    assert bool((GradientDASP(Ignorant().eval()).attribute(torch.randn(2, 3), target=0) == 0).all())


def counted(method, x, background, **options):
    """The nodes beside each baseline, and the values."""
    request = Request.of(method.forward_func, Arguments.given(x, background))
    estimate = method.explain(request, **options)
    each = method.profile(rank=method.rank).each(request.games[0])
    return int(estimate.evaluations[0]) // each // len(background), estimate.values[0][:, 0]


def test_nodes_that_would_change_nothing_are_not_taken():
    """Where outputs hardly differ from those of the baseline, and where it is one baseline of many that does not add
    up, what is missing is the sketches' doing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(400, 10), nn.Softmax(1)).eval()
    x, background = torch.randn(1, 1, 12, 12), torch.randn(8, 1, 12, 12)
    method = GradientDASP(model)
    for rows in (background[:1], background):
        nodes, values = counted(method, x, rows)
        most = method.explain(Request.of(model, Arguments.given(x, rows)), nodes=31).values[0][:, 0]
        assert nodes <= 15
        assert float((values - most).norm() / most.norm()) < 0.05
    assert counted(method, x, background[:1], tolerance=1e-6)[0] == 63  # who insists gets all of them


def test_deep_networks_are_propagated_in_smaller_parts():
    def rows(depth):
        layers = [layer for _ in range(depth) for layer in (nn.Linear(64, 64), nn.ReLU())]
        (game,) = games(Arguments(torch.randn(1, 64)))
        lifted = GradientDASP(nn.Sequential(*layers).eval()).lift(game)
        return rows_at_once(lifted.frontier(*game.toggled()))

    assert rows(100) < rows(4) / 2  # as many numbers are kept of all layers together
    assert rows(4) == rows(2)  # shallow ones fill a processor's cache
