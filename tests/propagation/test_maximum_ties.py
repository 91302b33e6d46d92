"""Maxima of units that are alike: the moments and their derivatives where the difference of two entries has next to no
variance. What is left over of a unit by a nonlinearity vanishes there, and its root is differentiated."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dasp import GradientDASP, PermutationShapley
from dasp.propagation.gaussian import Gaussian, maximum_moments, rectified_moments

DTYPES = [torch.float32, torch.float64]


class LargestEntry(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(-1, keepdim=True)


def two_and_two(activation: nn.Module) -> nn.Module:
    """The maximum of two units and of two copies of them: the second player does nothing."""
    linear = nn.Linear(2, 4)
    with torch.no_grad():
        linear.weight.copy_(torch.tensor([[-0.517, 0], [-0.517, 0], [0.027, 0], [0.027, 0]]))
        linear.bias.fill_(0.0736)
    return nn.Sequential(linear, activation, LargestEntry()).eval()


ACTIVATIONS = [
    nn.LeakyReLU(-0.4), nn.LeakyReLU(0.1), nn.PReLU(init=0.3), nn.ReLU(), nn.ReLU6(), nn.Hardtanh(-0.1, 0.09),
    nn.Hardswish(), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.Softplus(),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_the_only_player_gets_everything(activation: nn.Module, dtype: torch.dtype) -> None:
    model = two_and_two(activation).to(dtype)
    x = torch.ones(1, 2, dtype=dtype)
    with torch.no_grad():
        change, largest = (model(x) - model(0 * x)).item(), model[:2](x).abs().max().item()
    values = GradientDASP(model).attribute(x, target=0)
    assert values[0, 1] == 0
    assert values[0, 0].item() == pytest.approx(change, abs=0.02 * largest)


def drawing(side: int) -> Tensor:
    """Two overlapping rectangles on an empty ground."""
    quarter = side // 4
    x = torch.zeros(1, 1, side, side)
    x[..., quarter - 1 : 3 * quarter, quarter : 2 * quarter + 1] = 1
    x[..., 2 * quarter + 1 : side - 1, 1 : 3 * quarter + 1] = 0.5
    return x


def test_random_networks_on_a_flat_drawing() -> None:
    """Thirty networks with 16 blocks of 5×5 pixels; the sampled values are good to about 3 %."""
    x, block = drawing(20), torch.arange(20) // 5
    mask = (block[:, None] * 4 + block)[None, None]
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.LeakyReLU(0.1), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Linear(4 * 8 * 8, 1)
    ).eval()
    ours, sampled = GradientDASP(model), PermutationShapley(model)
    errors = []
    for seed in range(30):
        torch.manual_seed(seed)
        for layer in (model[0], model[4]):
            layer.reset_parameters()
        truth = sampled.attribute(x, target=0, feature_mask=mask, n_permutations=150)
        values = ours.attribute(x, target=0, feature_mask=mask)
        errors.append(((values - truth).norm() / truth.norm()).item())
    assert max(errors) < 0.5
    assert sorted(errors)[15] < 0.2


def far(dtype: torch.dtype) -> Tensor:
    """Means in standard deviations, as far out as the density is a normal number."""
    return torch.linspace(0, 12.5 if dtype == torch.float32 else 37, 400, dtype=dtype)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_left_over_keeps_its_relative_accuracy(dtype: torch.dtype, side: int) -> None:
    """With Mills' ratio M = c/φ: residual = φ(M(1 + a²) − a − φ((1 − aM)² + M²)), which is 2φ/a³ far out."""
    at = far(dtype)
    mean, variance = (side * at).requires_grad_(), torch.ones_like(at).requires_grad_()
    residual = rectified_moments(mean, variance)[2]
    by_mean, by_variance = torch.autograd.grad(residual.sum(), (mean, variance))
    a = at.double()
    mills = math.sqrt(math.pi / 2) * torch.special.erfcx(a * math.sqrt(0.5))
    pdf = torch.exp(-a * a / 2) / math.sqrt(2 * math.pi)
    tail = pdf * mills
    expected = pdf * (mills * (1 + a * a) - a - pdf * ((1 - a * mills) ** 2 + mills**2))
    for actual, wanted, rtol in (
        (residual, expected, 0.25),  # a⁴ times the rounding of the density
        (by_mean, -2 * side * pdf * (1 - a * mills - tail * (2 - a * mills)), 0.01),
        (by_variance, tail - tail**2 - pdf**2, 1e-3),
    ):
        torch.testing.assert_close(actual.double(), wanted, rtol=rtol, atol=0)
        torch.testing.assert_close(actual[:100].double(), wanted[:100], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_root_of_what_is_left_over_has_a_slope(dtype: torch.dtype, side: int) -> None:
    """d√v = dv/(2√v) vanishes far out, as √φ does, and is nowhere infinite, for a maximum of certain units too."""
    mean = (side * torch.linspace(0, 60, 3000, dtype=dtype)).requires_grad_()
    certain = Gaussian(torch.zeros_like(mean), torch.zeros_like(mean), torch.zeros(1, 3000, dtype=dtype))
    for own in (0.0, torch.finfo(dtype).tiny):
        value = Gaussian(mean, torch.full_like(mean, own), torch.ones(1, 3000, dtype=dtype))
        left = maximum_moments(value, certain).variance
        (slope,) = torch.autograd.grad(left.sum(), mean)
        root = slope / (2 * left.sqrt())
        assert bool((slope[left == 0].abs() < 1e3 * torch.finfo(dtype).tiny).all())
        assert bool((root[left > 0].abs() < 0.3).all())
        assert bool((root[(left > 0) & (mean.abs() > 9)].abs() < 1e-6).all())


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_written_out_for_the_compiler(dtype: torch.dtype, whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The moments that are fused by hand are those that torch.compile is given, at a tie (mean 0) too."""
    found = []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        mean = torch.linspace(-14, 14, 2001, dtype=dtype).requires_grad_()
        mean.data[1000] = 0
        variance = torch.full_like(mean, 0.9).requires_grad_()
        moments = rectified_moments(mean, variance, whole=whole)
        gradients = [torch.autograd.grad(x.sum(), (mean, variance), retain_graph=True) for x in moments]
        found.append([*moments, *(g for pair in gradients for g in pair)])
    for by_hand, written_out in zip(*found, strict=True):
        torch.testing.assert_close(by_hand, written_out, rtol=1e-4, atol=10 * torch.finfo(dtype).eps)


def tied(dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    """Mean, variance and factors of six pairs: tied for all that is shared, in one of both, or nearly."""
    mean = torch.tensor([[0.3] * 6, [0.3, 0.3, 0.5, 0.3 + 1e-3, 0.3, 0.3]], dtype=dtype)
    variance = torch.tensor([[0.2, 0, 0.1, 0.2, 1e-3, 0.4], [0.1, 0.3, 0, 0.2, 1e-3, 0.4]], dtype=dtype)
    factors = torch.tensor([[0.7, 0.7, 0.7, 0.7, 0.7, 0.2], [0.7, 0.7, 0.7, 0.7, 0.71, 0.9]], dtype=dtype)
    return mean, variance, torch.stack([factors, -2 * factors])


def parts(mean: Tensor, variance: Tensor, factors: Tensor) -> tuple[Tensor, ...]:
    a, b = (Gaussian(mean[i], variance[i], factors[:, i]) for i in range(2))
    result = maximum_moments(a, b)
    assert result.factors is not None
    return result.mean, result.variance, result.factors


def test_gradients_at_and_near_ties() -> None:
    mean, variance, factors = (x.requires_grad_() for x in tied())
    assert torch.autograd.gradcheck(lambda m, f: parts(m, variance, f), (mean, factors), eps=1e-6, atol=1e-5)
    positive = (variance + 0.01).detach().requires_grad_()
    assert torch.autograd.gradcheck(parts, (mean, positive, factors), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e-6])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_differences_have_no_scale(scale: float, dtype: torch.dtype) -> None:
    """max(sA, sB) = s·max(A, B), however small s is beside what A and B have in common, which is not scaled. So ties
    shrink, the derivative in the variance grows like 1/s, and those in mean and factors stay."""
    large = [x.requires_grad_() for x in tied(torch.float64)]
    small = [(s * x.detach()).to(dtype).requires_grad_() for x, s in zip(large, (scale, scale**2, scale), strict=True)]
    for k, power in enumerate((1, 2, 1)):  # mean, variance, factors
        wanted, actual = parts(*large)[k], parts(*small)[k]
        tolerance = {"rtol": 1e-3, "atol": 1e-3 if dtype == torch.float32 else 1e-8}
        torch.testing.assert_close(actual.double() / scale**power, wanted, **tolerance)
        gradients = torch.autograd.grad(actual.sum(), small)
        expected = torch.autograd.grad(wanted.sum(), large)
        for g, e, p in zip(gradients, expected, (1, 2, 1), strict=True):
            torch.testing.assert_close(g.double() * scale ** (p - power), e, **tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_that_are_certain_beside_each_other(dtype: torch.dtype) -> None:
    """θ = 0: the maximum of a unit and its copy is the unit, and each has half of the derivative."""
    mean, _, factors = (x.to(dtype)[..., :1, :1].requires_grad_() for x in tied())
    zero = torch.zeros_like(mean).requires_grad_()
    unit = Gaussian(mean, zero, factors)
    copy = Gaussian(mean.detach().clone().requires_grad_(), zero, factors.detach().clone().requires_grad_())
    result = maximum_moments(unit, copy)
    for actual, wanted in ((result.mean, mean), (result.factors, factors), (result.variance, zero)):
        assert actual is not None
        assert torch.equal(actual, wanted)
    for value, sources in ((result.mean, (unit.mean, copy.mean)), (result.factors, (unit.factors, copy.factors))):
        assert value is not None
        for gradient in torch.autograd.grad(value.sum(), sources, retain_graph=True):
            assert torch.equal(gradient, torch.full_like(gradient, 0.5))
