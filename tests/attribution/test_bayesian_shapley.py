"""BayesianShapley: exact in the limit, honest before, and the same for any batch."""

from __future__ import annotations

import math

import pytest
import torch
from captum.attr import InputXGradient, IntegratedGradients
from test_posterior import enumerated
from torch import nn

from dasp import DASP, BayesianShapley, ExactShapley, GradientDASP, PermutationShapley, rmse
from dasp.attribution.bayesian import bayesian_shapley, regression


def network(players: int, outputs: int = 1, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Linear(players, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, outputs)
    return nn.Sequential(*layers).double().eval()


def rows(number: int, players: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(number, players, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("players", [10, 12])
@pytest.mark.parametrize("prior", [False, True])
def test_budget_for_all_coalitions_is_exact(players, prior):
    model, x = network(players), rows(2, players)
    method = BayesianShapley(model, torch.randn(2, players) if prior else None)
    values, std = method.attribute(x, max_evaluations=2**players, return_std=True)
    torch.testing.assert_close(values, ExactShapley(model).attribute(x), rtol=0, atol=1e-8)
    assert bool((std == 0).all())
    almost = method.attribute(x, max_evaluations=2**players - 2)
    torch.testing.assert_close(almost, values, rtol=0, atol=1e-3)
    assert not torch.equal(almost, values)


def test_exact_by_definition():
    model, x = network(5), rows(1, 5)
    values = BayesianShapley(model).attribute(x, max_evaluations=32)
    torch.testing.assert_close(values[0], enumerated(model, x[0]), rtol=0, atol=1e-10)


@pytest.mark.parametrize("prior", [None, "gradient", "full"])
def test_converges_with_honest_error_bars(prior):
    errors, inside, stated = [], [], []
    for seed in range(6):
        model, x = network(13, seed=seed), rows(5, 13, seed)
        truth = ExactShapley(model).attribute(x)
        chosen = {None: None, "gradient": GradientDASP(model), "full": DASP(model, rank="full")}[prior]
        results = [BayesianShapley(model, chosen).attribute(x, max_evaluations=budget, seed=seed, return_std=True)
                   for budget in (50, 200, 1000)]  # fmt: skip
        errors.append(torch.stack([rmse(values, truth).mean() for values, _ in results]))
        inside.append(torch.stack([((values - truth).abs() <= 1.96 * std).double().mean() for values, std in results]))
        stated.append(torch.stack([std.square().mean().sqrt() for _, std in results]))
    first, second, third = torch.stack(errors).mean(0)
    assert third < second / 2
    assert second < first
    covered = torch.stack(inside).mean(0)  # 390 pairs
    assert bool((covered > 0.87).all())
    assert bool((covered < 0.995).all())
    assert bool(((torch.stack(stated).mean(0) / torch.stack(errors).mean(0)).log().abs() < math.log(1.6)).all())


def test_a_good_prior_is_not_lost_and_a_wrong_one_is_overcome():
    model, x = network(16), rows(8, 16)
    truth = ExactShapley(model).attribute(x)
    prior = DASP(model, rank="full")
    good = prior.attribute(x)
    for budget in (36, 72, 288):
        error = rmse(BayesianShapley(model, prior).attribute(x, max_evaluations=budget), truth).mean()
        assert error < 1.25 * rmse(good, truth).mean()
    for wrong in (-good, good.roll(1, 1), 3 * good, torch.randn_like(good)):
        error, flat = (rmse(BayesianShapley(model, p).attribute(x, max_evaluations=1500), truth).mean()
                       for p in (wrong, None))  # fmt: skip
        assert error < 1.1 * flat


def test_linear_models_need_few_evaluations():
    model = nn.Linear(9, 2).double().eval()
    x = rows(3, 9)
    values, std = BayesianShapley(model).attribute(x, max_evaluations=40, return_std=True)
    torch.testing.assert_close(values, x[:, None] * model.weight.detach(), rtol=0, atol=1e-6)
    assert float(std.max()) < 1e-4


@pytest.mark.parametrize("prior", [None, torch.zeros(2, 11), torch.ones(2, 11)])
def test_constant_outputs_get_nothing(prior):
    method = BayesianShapley(lambda x: x[:, 0] * 0 + 3, prior)
    values, std = method.attribute(torch.ones(2, 11), max_evaluations=60, return_std=True)
    assert bool(torch.isfinite(values).all() & torch.isfinite(std).all())
    assert float(values.abs().max()) < 1e-2
    assert float(values.sum().abs()) < 1e-6


@pytest.mark.parametrize("factor", [1e-160, 1e160])
def test_units_do_not_matter(factor):
    model, x = network(12), rows(2, 12)
    prior = DASP(model, rank="full").attribute(x)
    values, std = BayesianShapley(model, prior).attribute(x, max_evaluations=100, return_std=True)
    scaled = BayesianShapley(lambda x: model(x) * factor, prior * factor)
    values_scaled, std_scaled = scaled.attribute(x, max_evaluations=100, return_std=True)
    torch.testing.assert_close(values_scaled / factor, values)
    torch.testing.assert_close(std_scaled / factor, std)


def test_attributions_always_sum_to_the_difference():
    model, x = network(14, outputs=3), rows(4, 14)
    baseline = rows(4, 14, seed=2)
    for budget in (10, 33, 500):
        values = BayesianShapley(model, torch.randn(4, 3, 14)).attribute(x, baseline, max_evaluations=budget)
        torch.testing.assert_close(values.sum(-1), (model(x) - model(baseline)).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tolerance", [None, 0.15])
def test_the_same_for_any_batch_size_and_any_rows_beside(tolerance, monkeypatch):
    monkeypatch.setattr(regression, "_MOST_SETS", 100)  # quick
    model, x = network(12, outputs=2), rows(5, 12)
    method = BayesianShapley(model, GradientDASP(model))
    options = {"max_evaluations": 3000, "tolerance": tolerance, "return_std": True}
    values, std = method.attribute(x, **options)
    for other in (method.attribute(x, internal_batch_size=7, **options), method.attribute(x, **options)):
        torch.testing.assert_close(other, (values, std), rtol=0, atol=1e-10)
    alone = method.attribute(x[3:4], **options)
    torch.testing.assert_close(alone, (values[3:4], std[3:4]), rtol=0, atol=1e-9)
    assert not torch.equal(method.attribute(x, seed=1, **options)[0], values)


def test_all_outputs_from_the_same_evaluations():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += len(x)
        return model(x)

    model, x = network(12, outputs=3), rows(2, 12)
    values = BayesianShapley(counted).attribute(x, max_evaluations=100)
    assert calls <= 2 * 100 + 4 + 3 + 2  # and those that the model is checked by
    for target in range(3):
        one = BayesianShapley(model).attribute(x, target=target, max_evaluations=100)
        torch.testing.assert_close(values[:, target], one)
    mixed = BayesianShapley(model).attribute(x, target=[2, 0], max_evaluations=100)
    torch.testing.assert_close(mixed, torch.stack([values[0, 2], values[1, 0]]))


@pytest.mark.parametrize("budget", [10, 11, 37, 250])
def test_never_more_evaluations_than_allowed(budget):
    model, x, most = network(10), rows(1, 10), 0

    def counted(x):
        nonlocal most
        most += len(x)
        return model(x)

    BayesianShapley(counted).attribute(x, max_evaluations=budget)
    assert budget - 1 <= most <= budget + 4 + 3 + budget // 40  # and those that the model is checked by


def test_rows_stop_when_they_are_certain():
    model, x = network(14), rows(6, 14)
    evaluated = 0

    def counted(x):
        nonlocal evaluated
        evaluated += len(x)
        return model(x)

    options = {"max_evaluations": 4000, "tolerance": 0.1, "return_std": True}
    values, std = BayesianShapley(counted).attribute(x, **options)
    wanted = 0.1 * torch.maximum((model(x) - model(0 * x))[:, 0].abs(), 0.01 * values.abs().sum(1))
    assert bool((std.amax(1) <= wanted).all())
    assert evaluated < 6 * 4000
    with pytest.warns(UserWarning, match=r"row\(s\) did not reach the tolerance 0.0001 with 200 evaluations"):
        BayesianShapley(model).attribute(x, max_evaluations=200, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients")
def test_groups_are_players():
    model, x = network(12), rows(3, 12)
    groups = torch.tensor([0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 7])
    truth = ExactShapley(model).attribute(x, feature_mask=groups)
    for prior in (None, GradientDASP(model), DASP(model), IntegratedGradients(model), InputXGradient(model), truth):
        method = BayesianShapley(model, prior)
        values = method.attribute(x, feature_mask=groups, max_evaluations=254)
        assert torch.equal(values[:, 2], values[:, 4])
        torch.testing.assert_close(values, truth, rtol=0, atol=0.01)


def test_entries_of_a_group_add_up_where_a_prior_knows_no_groups():
    model = nn.Linear(12, 1).double().eval()
    x, groups = rows(2, 12), torch.arange(12) // 2 % 5
    values = BayesianShapley(model, IntegratedGradients(model)).attribute(x, feature_mask=groups, max_evaluations=10)
    torch.testing.assert_close(values, ExactShapley(model).attribute(x, feature_mask=groups))


def test_masks_of_rows():
    model, x = network(9), rows(2, 9)
    masks = torch.stack([torch.arange(9), torch.arange(9) // 3])
    values, std = BayesianShapley(model, GradientDASP(model)).attribute(
        x, feature_mask=masks, max_evaluations=100, return_std=True
    )
    own = BayesianShapley(model, GradientDASP(model)).attribute(x[:1], max_evaluations=100)
    torch.testing.assert_close(values[:1], own)
    torch.testing.assert_close(values[1:], ExactShapley(model).attribute(x[1:], feature_mask=masks[1]))
    assert bool((std[1] == 0).all())


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(20, 6)
        self.body = nn.Sequential(nn.Linear(4 * 6 + 8, 20), nn.ReLU(), nn.Linear(20, 2))

    def forward(self, words, numbers, shift):
        return self.body(torch.cat([self.embedding(words).flatten(1), numbers], 1)) + shift[:, None]


def test_several_inputs_of_different_types():
    model = TwoInputs().eval()
    inputs = torch.randint(1, 20, (3, 4)), torch.randn(3, 8)
    shift = torch.randn(3)
    truth = ExactShapley(model).attribute(inputs, additional_forward_args=shift, target=1)
    for prior in (None, GradientDASP(model), truth):
        values, std = BayesianShapley(model, prior).attribute(
            inputs, additional_forward_args=shift, target=1, max_evaluations=600, return_std=True
        )
        for part, exact, error in zip(values, truth, std, strict=True):
            assert part.shape == exact.shape == error.shape
            torch.testing.assert_close(part, exact, rtol=0, atol=0.05)
            assert part.dtype == torch.float32


@pytest.mark.parametrize("prior", [None, DASP, GradientDASP])
def test_backgrounds(prior):
    model, x, background = network(11), rows(3, 11), rows(4, 11, seed=9)
    truth = torch.stack([ExactShapley(model).attribute(x, row[None]) for row in background]).mean(0)
    torch.testing.assert_close(ExactShapley(model).attribute(x, background), truth)
    method = BayesianShapley(model, None if prior is None else prior(model))
    values, std = method.attribute(x, background, max_evaluations=600, return_std=True)
    torch.testing.assert_close(values, truth, rtol=0, atol=5 * float(std.max()))
    torch.testing.assert_close(values, truth, rtol=0, atol=0.01)


def test_priors_of_captum_for_all_outputs():
    model, x = network(10, outputs=3), rows(2, 10)
    prior = IntegratedGradients(model)
    values = BayesianShapley(model, prior).attribute(x, max_evaluations=80)
    by_tensor = torch.stack([prior.attribute(x, target=target) for target in range(3)], 1)
    torch.testing.assert_close(values, BayesianShapley(model, by_tensor).attribute(x, max_evaluations=80))


def test_neighbours_share_errors_on_a_grid():
    """A prior that is off by something smooth is mended with fewer evaluations where players have places."""
    grid = 16
    place = torch.arange(grid).double()
    wave = torch.sin(place[:, None] / 3) * torch.cos(place / 4)
    weights = torch.randn(grid, grid, generator=torch.Generator().manual_seed(0)).double()

    def model(image):
        linear = (image.reshape(-1, grid, grid) * (weights + wave)).sum((1, 2))
        return linear + 0.5 * torch.sin(image.reshape(len(image), -1).sum(1))

    prior, truth = weights[None], (weights + wave)[None]
    flat = BayesianShapley(model, prior.view(1, -1)).attribute(torch.ones(1, grid * grid).double(), max_evaluations=300)
    image = BayesianShapley(model, prior[:, None]).attribute(torch.ones(1, 1, grid, grid).double(), max_evaluations=300)
    assert rmse(image[:, 0], truth) < 0.7 * rmse(flat.view(1, grid, grid), truth)


def test_many_players():
    weights = torch.linspace(-1, 1, 20_000).double()
    values, std = BayesianShapley(lambda x: torch.tanh(x @ weights), weights[None]).attribute(
        torch.ones(1, 20_000).double(), max_evaluations=130, return_std=True
    )
    assert values.shape == std.shape == (1, 20_000)
    assert bool(torch.isfinite(values).all() & (std > 0).all())


@pytest.mark.parametrize(
    ("prior", "options", "error", "message"),
    [
        (None, {"max_evaluations": 9}, ValueError, "max_evaluations must be at least 10"),
        (None, {"max_evaluations": 0}, ValueError, "max_evaluations must be at least 1"),
        (None, {"tolerance": 0.0}, ValueError, "tolerance must be positive"),
        (None, {"internal_batch_size": 0}, ValueError, "internal_batch_size"),
        ("DASP", {}, TypeError, "prior must be an Attribution, a tensor or None, not a str"),
        (torch.zeros(2, 5), {}, ValueError, r"prior.* have shape \(2, 5\); \(2, 6\) is needed"),
        (torch.full((2, 6), math.nan), {}, ValueError, "the prior has NaN"),
        ((torch.zeros(2, 6), torch.zeros(2, 6)), {}, ValueError, "prior.* have shape"),
    ],
)
def test_bad_options(prior, options, error, message):
    model, x = network(6), rows(2, 6)
    with pytest.raises(error, match=message):
        BayesianShapley(model, prior).attribute(x, **{"max_evaluations": 20, **options})


ESTIMATORS = [ExactShapley, BayesianShapley, PermutationShapley]


@pytest.mark.parametrize("method", ESTIMATORS)
def test_results_have_no_graph(method):
    assert not method(network(6)).attribute(rows(2, 6).requires_grad_()).requires_grad


@pytest.mark.parametrize("method", ESTIMATORS)
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sum(1) > 1.5, lambda x: (100 * x.sum(1)).to(torch.uint8), lambda x: x.sum(1).to(torch.bfloat16) + 1],
    ids=["bool", "uint8", "bfloat16"],
)
def test_outputs_of_low_precision_are_added_up_in_a_higher_one(method, function):
    x = torch.tensor([[0.75, 0.5, 0.75]])
    background = torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.5], [1.0, 1.0, 0.5]]).repeat(100, 1)
    options = {PermutationShapley: {"n_permutations": 3}}.get(method, {})
    values = method(function).attribute(x, background, **options)
    precise = method(lambda x: function(x).float()).attribute(x, background, **options)
    torch.testing.assert_close(values, precise, rtol=1e-6, atol=1e-6)
    assert float(values.abs().max()) > 0


@pytest.mark.parametrize("method", ESTIMATORS)
def test_never_more_rows_at_once_than_allowed(method):
    model, most = network(5), 0

    def spied(x):
        nonlocal most
        most = max(most, len(x))
        return model(x)

    method(spied).attribute(rows(20, 5), internal_batch_size=8)
    assert most <= 8


def test_no_tolerance_is_reached_with_fewer_pairs_than_players():
    """The width of the prior must not pass for knowledge."""
    first = lambda x: x[:, 0]
    with pytest.warns(UserWarning, match="did not reach the tolerance"):
        BayesianShapley(first).attribute(torch.ones(1, 400), tolerance=0.1, max_evaluations=400)
    values, std = BayesianShapley(first).attribute(
        torch.ones(1, 400), tolerance=0.1, max_evaluations=4000, return_std=True
    )
    assert abs(float(values[0, 0]) - 1) < 5 * float(std[0, 0]) + 1e-3


def test_clusters_of_a_background_for_the_prior():
    model, x, background = network(11), rows(2, 11), rows(20, 11, seed=3)
    method = BayesianShapley(model, GradientDASP(model), prior_options={"background_clusters": 3})
    values = method.attribute(x, background, max_evaluations=200)
    torch.testing.assert_close(values, ExactShapley(model).attribute(x, background), rtol=0, atol=0.05)


def test_two_players_need_four_evaluations():
    with pytest.raises(ValueError, match="at least 4, not 3"):
        BayesianShapley(lambda x: x.prod(1)).attribute(torch.ones(1, 2), max_evaluations=3)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_models_that_squeeze_their_output(method):
    model, x = network(5), rows(1, 5)
    squeezed = method(lambda x: model(x).squeeze())
    torch.testing.assert_close(squeezed.attribute(x, internal_batch_size=1), method(model).attribute(x))


@pytest.mark.parametrize("prior", [False, True])
def test_calls_do_not_depend_on_earlier_ones(prior):
    model, x = network(9), rows(3, 9)
    masks = torch.stack([torch.arange(9), torch.arange(9) // 2, torch.arange(9)])  # two games
    calls = [
        {"max_evaluations": 100},
        {"max_evaluations": 300, "seed": 1},
        {"tolerance": 0.05, "max_evaluations": 300},
        {"max_evaluations": 30, "feature_mask": masks},
    ]

    def fresh():
        return BayesianShapley(model, GradientDASP(model) if prior else None)

    method = fresh()
    for options in [*calls, *calls]:
        torch.testing.assert_close(method.attribute(x, **options), fresh().attribute(x, **options), rtol=0, atol=0)


def test_many_rows_are_done_in_parts(monkeypatch):
    model, x = network(9), rows(7, 9)
    whole = BayesianShapley(model).attribute(x, max_evaluations=100)
    monkeypatch.setattr(bayesian_shapley, "_NUMBERS_AT_ONCE", 2 * 49)
    torch.testing.assert_close(BayesianShapley(model).attribute(x, max_evaluations=100), whole)
