"""GradientShapley against the exact values: without error where gradients say all, else by its own standard errors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dasp import BayesianShapley, ExactShapley, Explainer, GradientDASP, PermutationShapley
from dasp.attribution.gradient_shapley import FewGradients, GradientShapley, Neighbourhood, _likely
from dasp.games.request import Arguments, Request, games


def network(inputs: int, outputs: int = 1, activation: type[nn.Module] = nn.Tanh) -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Linear(inputs, 24), activation(), nn.Linear(24, 16), activation(), nn.Linear(16, outputs)]
    model = nn.Sequential(*layers).double().eval()
    model.load_state_dict({name: 2 * parameter for name, parameter in model.state_dict().items()})
    return model


def rows(number: int, inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(number, inputs, generator=torch.Generator().manual_seed(seed)).double()


class Quadratic(nn.Module):
    """x'Ax + b'x for each of some outputs: all squares, products of two and linear terms."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.a, self.b = torch.randn(outputs, inputs, inputs).double(), torch.randn(outputs, inputs).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ri,oij,rj->ro", x, self.a, x) + x @ self.b.T


@pytest.mark.parametrize("n_pairs", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("groups", [None, torch.tensor([0, 0, 1, 2, 2, 3])], ids=["entries", "groups"])
def test_quadratic_functions_are_exact(n_pairs, groups):
    model, x, background = Quadratic(6, 3), rows(3, 6), rows(4, 6, seed=1)
    for absent in (None, background[:3], background):
        truth = ExactShapley(model).attribute(x, absent, feature_mask=groups)
        values = GradientShapley(model).attribute(x, absent, feature_mask=groups, n_pairs=n_pairs)
        torch.testing.assert_close(values, truth)
    if n_pairs > 1:
        _, std = GradientShapley(model).attribute(x, feature_mask=groups, n_pairs=n_pairs, return_std=True)
        assert float(std.max()) < 1e-10


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
@pytest.mark.parametrize("groups", [None, torch.arange(10) // 2], ids=["entries", "groups"])
def test_honest_standard_deviations(activation, groups):
    """Errors of several seeds together, as those of one may all be to the same side."""
    model, x = network(10, 2, activation), rows(4, 10)
    truth = ExactShapley(model).attribute(x, feature_mask=groups)
    found = [
        GradientShapley(model).attribute(x, feature_mask=groups, n_pairs=128, seed=seed, return_std=True)
        for seed in range(6)
    ]
    z = torch.stack([(values - truth) / std for values, std in found])
    assert 0.3 < float(z.square().mean()) < 1.7
    assert float((z.abs() < 1.96).double().mean()) > 0.85


def test_errors_vanish_with_more_pairs_where_the_trapezoid_stays_wrong():
    """A single step through kinks: v(S ∪ i) − v(S) is far from the mean of the slopes at its ends."""
    model, x = lambda x: (x.sum(1) - 0.6).relu() + (0.3 - x[:, 0]).relu(), torch.tensor([[1.0, 0.5, -0.5, 0.25]])
    truth = ExactShapley(model).attribute(x)
    few, many = (GradientShapley(model).attribute(x, n_pairs=n) for n in (64, 8192))
    error = (many - truth).abs().max()
    assert error < 0.02
    assert error < (few - truth).abs().max()


@pytest.mark.parametrize("outputs", [1, 3])
def test_values_add_up(outputs):
    model, x = network(6, outputs, nn.ReLU), rows(3, 6)
    wanted = (model(x) - model(0 * x)).detach()
    values = GradientShapley(model).attribute(x, n_pairs=5)
    torch.testing.assert_close(values.sum(-1), wanted[:, 0] if outputs == 1 else wanted)


def test_backgrounds_are_averages_over_baselines():
    model, x, background = network(7), rows(2, 7), rows(5, 7, seed=4)
    each = torch.stack([ExactShapley(model).attribute(x, row) for row in background])
    truth = each.mean(0)
    values, std = GradientShapley(model).attribute(x, background, n_pairs=64, return_std=True)
    assert float(((values - truth) / std).abs().max()) < 4.5
    assert (values - truth).square().mean() < (each - truth).square().mean() / 10


def test_all_outputs_are_those_of_each():
    model, x = network(6, 3), rows(2, 6)
    values, std = GradientShapley(model).attribute(x, n_pairs=16, return_std=True)
    for target in range(3):
        own = GradientShapley(model).attribute(x, target=target, n_pairs=16, return_std=True)
        torch.testing.assert_close(own, (values[:, target], std[:, target]))


@pytest.mark.parametrize("tolerance", [None, 0.1])
@pytest.mark.parametrize("absent", [None, rows(3, 7, seed=5)], ids=["zero", "background"])
def test_the_same_for_any_batch_size_and_any_rows_beside(tolerance, absent):
    model, x = network(7, 2), rows(4, 7)
    options = {"n_pairs": 12, "tolerance": tolerance, "return_std": True}

    def attribute(inputs, **more):
        return GradientShapley(model).attribute(inputs, absent, **{**options, **more})

    with pytest.warns(UserWarning, match="with 12 pairs") if tolerance else pytest.MonkeyPatch.context():
        values, std = attribute(x)
        for size in (2, 10):
            torch.testing.assert_close(attribute(x, internal_batch_size=size), (values, std), rtol=1e-9, atol=1e-12)
        alone = [attribute(x[part]) for part in (slice(0, 2), slice(2, 4))]
        torch.testing.assert_close(torch.cat([a[0] for a in alone]), values, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(torch.cat([a[1] for a in alone]), std, rtol=1e-9, atol=1e-12)
        assert torch.equal(attribute(x)[0], values)
        assert not torch.equal(attribute(x, seed=1)[0], values)


def test_rows_stop_at_the_tolerance():
    model, x = network(7), rows(4, 7)
    evaluated = 0

    def counted(x):
        nonlocal evaluated
        evaluated += len(x)
        return model(x)

    values, std = GradientShapley(counted).attribute(x, n_pairs=4000, tolerance=0.2, return_std=True)
    wanted = 0.2 * values.abs().amax(1)
    assert bool((std.amax(1) <= wanted).all())
    assert evaluated < 4 * 2 * 4000


def test_several_inputs_and_further_arguments():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = network(7)

        def forward(self, a, b, factor):
            return self.model(torch.cat([a, b.flatten(1)], 1)) * factor[:, None]

    a, b, factor = rows(2, 3), rows(2, 4, seed=1).view(2, 2, 2), torch.tensor([2.0, -1.0]).double()
    masks = (torch.tensor([0, 1, 1]), torch.tensor([[1, 2], [3, 3]]))
    truth = ExactShapley(Two().eval()).attribute((a, b), None, None, factor, masks)
    values, std = GradientShapley(Two().eval()).attribute((a, b), None, None, factor, masks, n_pairs=256,
                                                          return_std=True)  # fmt: skip
    for found, error, wanted in zip(values, std, truth, strict=True):
        assert found.shape == wanted.shape
        assert float(((found - wanted) / error).abs().max()) < 4.5


def test_an_input_that_is_not_used_has_no_value():
    values = GradientShapley(lambda a, b: a.prod(1)).attribute((rows(2, 2), rows(2, 3)))
    torch.testing.assert_close(values[0], rows(2, 2).prod(1, keepdim=True).expand(2, 2) / 2)
    assert not values[1].any()


def test_masks_of_rows():
    model, x, masks = network(4), rows(2, 4), torch.tensor([[0, 0, 1, 2], [0, 1, 1, 1]])
    together = GradientShapley(model).attribute(x, feature_mask=masks)
    for row in range(2):
        alone = GradientShapley(model).attribute(x[row : row + 1], feature_mask=masks[row])
        torch.testing.assert_close(together[row : row + 1], alone)


def test_players_without_effect_get_nothing():
    model = network(5, activation=nn.ReLU)
    values, std = GradientShapley(lambda x: model(x * torch.tensor([1, 1, 0, 1, 1]))).attribute(
        rows(2, 5), torch.tensor([1.0, 0, 1, float(rows(2, 5)[1, 3]), 0]), n_pairs=20, return_std=True
    )
    assert not values[:, 2].any()
    assert not std[:, 2].any()
    assert values[1, 3] == 0 != values[0, 3]


def test_gradients_may_be_switched_off_around_it():
    model, x = network(5), rows(2, 5)
    values = GradientShapley(model).attribute(x)
    with torch.no_grad():
        torch.testing.assert_close(GradientShapley(model).attribute(x), values)
    assert not values.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_as_a_prior():
    model, x = network(12, activation=nn.ReLU), rows(3, 12)
    truth = ExactShapley(model).attribute(x)
    prior = BayesianShapley(model, GradientShapley(model), prior_options={"n_pairs": 256})
    ours, none = (method.attribute(x, max_evaluations=40) for method in (prior, BayesianShapley(model)))
    assert (ours - truth).square().mean() < (none - truth).square().mean()


def test_better_than_permutations_for_many_players():
    """One gradient tells about all players: for as many evaluations, with a backward pass counted as two."""
    model, x = network(60), rows(2, 60)
    truth = PermutationShapley(model).attribute(x, n_permutations=1500)
    ours = GradientShapley(model).attribute(x, n_pairs=59)
    theirs = PermutationShapley(model).attribute(x, n_permutations=3, seed=1)
    assert (ours - truth).square().mean() < (theirs - truth).square().mean() / 2


def test_what_cannot_be_differentiated_is_refused():
    x = rows(2, 4)
    embedding = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 1)).eval()
    with pytest.raises(TypeError, match="gradients need floating-point inputs, not torch.int64"):
        GradientShapley(embedding).attribute(torch.ones(2, 4, dtype=torch.int64))
    with torch.inference_mode(), pytest.raises(RuntimeError, match="inference mode"):
        GradientShapley(network(4)).attribute(x)
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
    for model in (lambda x: (x > 0).sum(1), lambda x: x.detach().sum(1), lambda x: x.detach() @ weight):
        with pytest.raises(ValueError, match="no derivative with respect to its inputs"):
            GradientShapley(model).attribute(x)
    with pytest.raises(ValueError, match="all gradients of an output of the model are zero"):
        GradientShapley(lambda x: x.round().sum(1)).attribute(3 * x)
    with pytest.raises(ValueError, match="NaN or infinite"):
        GradientShapley(lambda x: x.abs().sqrt().sum(1)).attribute(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_pairs": 0}, "n_pairs must be at least 1"),
        ({"n_pairs": 1, "return_std": True}, "at least 2 pairs"),
        ({"tolerance": -1.0}, "tolerance must be positive"),
        ({"internal_batch_size": 0}, "internal_batch_size must be at least 1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        GradientShapley(network(4)).attribute(rows(1, 4), **options)


def noisy_picture(noise: float, side: int = 40):
    """Values that are alike among neighbours and large in one corner, and the same with noise."""
    generator = torch.Generator().manual_seed(0)
    place = torch.cartesian_prod(torch.arange(side), torch.arange(side)).double()
    rough = torch.randn(side**2, generator=generator, dtype=torch.float64)
    smooth = torch.sin(place[:, 0] / 3) * torch.cos(place[:, 1] / 4)
    truth = (smooth + 0.3 * rough) * torch.exp(-place.sum(1) / side)
    seen = truth + noise * torch.randn(truth.shape, generator=generator, dtype=torch.float64)
    (game,) = games(Arguments(torch.ones(1, 1, side, side)))
    return truth[:, None], seen[:, None], Neighbourhood.of(game)


def test_noise_is_taken_out_where_neighbours_show_it():
    truth, seen, near = noisy_picture(0.3)
    variance = torch.full_like(seen, 0.3**2)
    likely, left = _likely(seen, variance, None, near)
    error, before = (likely - truth).square().mean().sqrt(), (seen - truth).square().mean().sqrt()
    assert error < 0.6 * before
    assert 0.9 < ((likely - truth).abs() <= 1.96 * left.sqrt()).double().mean() < 0.99
    anywhere, _ = _likely(seen, variance, None, Neighbourhood.of(games(Arguments(torch.ones(1, 1600)))[0]))
    assert error < (anywhere - truth).square().mean().sqrt() < before


def test_without_noise_nothing_is_taken_out():
    truth, _, near = noisy_picture(0.0)
    for prior in (None, torch.randn_like(truth)):
        likely, left = _likely(truth, torch.zeros_like(truth), prior, near)
        torch.testing.assert_close(likely, truth)
        assert bool((left == 0).all())


def test_a_prior_is_believed_as_far_as_it_is_borne_out():
    truth, seen, near = noisy_picture(0.3)
    variance, generator = torch.full_like(seen, 0.3**2), torch.Generator().manual_seed(1)
    other = torch.randn(truth.shape, generator=generator, dtype=torch.float64)

    def error(prior):
        likely, left = _likely(seen, variance, prior, near)
        assert ((likely - truth).abs() <= 1.96 * left.sqrt()).double().mean() > 0.88
        return float((likely - truth).square().mean().sqrt())

    without, good, poor = error(None), error(truth + 0.03 * other), error(other)
    assert good < 0.05 < without
    assert poor < 1.1 * without  # and costs little


def test_on_a_prior_both_are_nearer_than_each():
    model, x = network(100, 1, nn.ReLU), rows(2, 100)
    truth = PermutationShapley(model).attribute(x, n_permutations=1500)
    prior = GradientDASP(model, rank=0)

    def error(values):
        return float((values - truth).square().mean().sqrt())

    both, std = GradientShapley(model, prior).attribute(x, n_pairs=40, return_std=True)
    assert error(both) < min(error(prior.attribute(x)), error(GradientShapley(model).attribute(x, n_pairs=40)))
    assert ((both - truth).abs() <= 1.96 * std).double().mean() > 0.85
    given = GradientShapley(model, prior.attribute(x)).attribute(x, n_pairs=40)
    torch.testing.assert_close(given, both, atol=1e-4, rtol=1e-3)
    with pytest.raises(TypeError, match="prior must be an Attribution"):
        GradientShapley(model, "GradientDASP")


def test_colours_that_are_players_of_their_own_are_not_mixed_up():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 1)).eval()
    with torch.no_grad():
        model[0].weight *= torch.tensor([3.0, 1.0, 0.1]).view(1, 3, 1, 1)  # the last says little of the first
    x = torch.randn(1, 3, 10, 10)
    truth = PermutationShapley(model).attribute(x, n_permutations=400)
    values, std = GradientShapley(model).attribute(x, n_pairs=64, return_std=True)
    assert (values - truth).square().mean().sqrt() < 0.3 * truth.square().mean().sqrt()
    assert ((values - truth).abs() <= 2 * std)[:, 0].double().mean() > 0.85


class Rounded(nn.Module):
    """A part of it has no gradient, which only evaluations show."""

    def forward(self, x):
        return x.round().sum(1) + 0.1 * x.sum(1)


def test_gradients_have_to_add_up_to_be_believed():
    x = 2 * rows(1, 80)
    steep = network(80, 2, nn.ReLU)
    assert FewGradients.of(Request.of(steep, Arguments(x))) is not None
    assert FewGradients.of(Request.of(steep, Arguments(x, rows(5, 80, 1), background=True))) is not None
    for silent in (
        Rounded(),
        lambda x: x[:, :40].detach().abs().sum(1) + x[:, 40:].abs().sum(1),
        lambda x: torch.stack([x.sum(1), x.round().sum(1)], 1),
        lambda x: x.abs().sqrt().sum(1),  # whose slope at the baseline is infinite
        lambda x: torch.as_tensor(x.numpy().sum(1)),
    ):
        assert FewGradients.of(Request.of(silent, Arguments(x))) is None
    found = Explainer(Rounded().eval()).attribute(x)
    assert found.method.startswith("bayesian_shapley")
    torch.testing.assert_close(found.values.double(), x.round() + 0.1 * x, atol=1e-4, rtol=1e-4)


def test_rows_in_parts_are_the_same(monkeypatch):
    model, x = network(80, 1, nn.ReLU), rows(5, 80)
    whole = GradientShapley(model).attribute(x, n_pairs=12)
    monkeypatch.setattr("dasp.attribution.gradient_shapley._NUMBERS_AT_ONCE", 160)  # two rows
    torch.testing.assert_close(GradientShapley(model).attribute(x, n_pairs=12), whole)
