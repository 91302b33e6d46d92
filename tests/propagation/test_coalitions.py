"""First-layer moments against the enumeration of all coalitions."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import Tensor, nn

from dasp.games.request import Arguments, games
from dasp.propagation.coalitions import SizedCoalitions, bernoulli, column_count, sketch, spaced_sizes
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from dasp.propagation.values import Contributions

ROWS = 2
CHANNELS = torch.arange(5).expand(2, 5)  # a player is a position, over both channels
PIXELS = torch.arange(6).view(2, 3).expand(3, 2, 3)  # of three channels
BLOCKS = torch.tensor([[0, 0, 1], [2, 0, 1]])

FIRST_LAYERS = {
    "dense": (nn.Linear(6, 5), (6,), None),
    "dense, groups": (nn.Linear(6, 5), (6,), torch.tensor([0, 1, 0, 2, 3, 1])),
    "conv1d, padding and stride": (nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 4), None),
    "conv1d, groups across channels": (nn.Conv1d(2, 3, 3, padding=1), (2, 5), CHANNELS),
    "conv2d, padding": (nn.Conv2d(1, 2, 2, padding=1), (1, 2, 3), None),
    "conv2d, blocks": (nn.Conv2d(1, 2, 2, padding=1), (1, 2, 3), BLOCKS),
    "conv2d, pixels": (nn.Conv2d(3, 4, 2, stride=(1, 2), padding=1), (3, 2, 3), PIXELS),
    "average": (nn.AvgPool1d(2), (2, 4), None),
}


@functools.cache
def traced(layer: nn.Module, shape: torch.Size, dtype: torch.dtype) -> torch.fx.GraphModule:
    """The layer's graph, which shares its weights."""
    return trace(layer, (torch.zeros(ROWS, *shape, dtype=dtype),), RULES)


def meeting(layer: nn.Module, x: Tensor, baseline: Tensor, mask: Tensor | None) -> Contributions:
    """The values after the first layer, as a function of who takes part."""
    (game,) = games(Arguments(x, baseline, feature_mask=mask))
    lifted = lift(traced(layer, x.shape[1:], x.dtype), game.toggled(), game.count)
    (contributions,) = lifted.exact(*game.toggled())
    assert isinstance(contributions, Contributions)
    return contributions


@pytest.fixture(params=FIRST_LAYERS, ids=str)
def setting(request):
    layer, shape, mask = FIRST_LAYERS[request.param]
    generator = torch.Generator().manual_seed(0)

    def draw(dtype):
        x, b = torch.randn(2, ROWS, *shape, generator=generator, dtype=torch.float64).to(dtype)
        return layer.to(dtype).eval(), x, b, mask

    return draw


def outputs_of_all_coalitions(layer, x, baseline, mask, count):
    """(2^N, N) members and (2^N, rows, units) outputs."""
    mask = torch.arange(x[0].numel()).view(x.shape[1:]) if mask is None else mask.expand(x.shape[1:])
    members = torch.tensor(list(itertools.product([False, True], repeat=count)))
    with torch.no_grad():
        outputs = torch.stack([layer(torch.where(m[mask], x, baseline)).flatten(1) for m in members])
    return members, outputs


def moments(outputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (rows, units) and covariance (rows, units, units) under the coalitions' probabilities (2^N, rows)."""
    mean = torch.einsum("sb,sbu->bu", weights, outputs)
    centred = outputs - mean
    return mean, torch.einsum("sb,sbu,sbv->buv", weights, centred, centred)


def assert_moments(actual, mean, covariance, relative):
    torch.testing.assert_close(actual.mean.flatten(1), mean, rtol=relative, atol=relative)
    scale = covariance.diagonal(dim1=1, dim2=2).max().item() + 1e-30
    variance = actual.total_variance.flatten(1)
    torch.testing.assert_close(variance, covariance.diagonal(dim1=1, dim2=2), rtol=relative, atol=relative * scale)
    if actual.factors is not None:
        columns = actual.factors.flatten(2)
        full = torch.einsum("rbu,rbv->buv", columns, columns) + torch.diag_embed(actual.variance.flatten(1))
        torch.testing.assert_close(full, covariance, rtol=relative, atol=relative * scale)


PRECISIONS = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


@pytest.mark.parametrize(("dtype", "relative"), PRECISIONS)
@pytest.mark.parametrize("full", [False, True])
def test_probabilities(setting, dtype, relative, full):
    layer, x, baseline, mask = setting(dtype)
    contributions = meeting(layer, x, baseline, mask)
    q = torch.rand(ROWS, contributions.count, generator=torch.Generator().manual_seed(1)).to(dtype)
    members, outputs = outputs_of_all_coalitions(
        layer.double(), x.double(), baseline.double(), mask, contributions.count
    )
    weights = torch.where(members[:, None], q.double(), 1 - q.double()).prod(-1)
    layer.to(dtype)
    with torch.no_grad():
        actual = bernoulli(contributions, q, everyone(contributions.count).to(x)[:, None] if full else None)
    assert_moments(to_double(actual), *moments(outputs, weights), relative)


@pytest.mark.parametrize(("dtype", "relative"), PRECISIONS)
@pytest.mark.parametrize("full", [False, True])
def test_sizes(setting, dtype, relative, full):
    layer, x, baseline, mask = setting(dtype)
    contributions = meeting(layer, x, baseline, mask)
    count = contributions.count
    sketches = everyone(count)[None].to(x) if full else None
    members, outputs = outputs_of_all_coalitions(layer.double(), x.double(), baseline.double(), mask, count)
    layer.to(dtype)
    with torch.no_grad():
        coalitions = SizedCoalitions.of(contributions, ROWS, sketches)
        for player, size, joined in itertools.product(range(count), range(count), (0, 1)):
            matching = (members[:, player] == bool(joined)) & (members.sum(1) - joined == size)
            weights = (matching.double() / matching.sum())[:, None].expand(-1, ROWS)
            one = [torch.tensor([value]) for value in (player, size, 0, joined)]
            actual = to_double(coalitions.gaussian(*one))
            single = type(actual)(*(part[0] for part in (actual.mean, actual.variance)),
                                  None if actual.factors is None else actual.factors[0])  # fmt: skip
            mean, covariance = moments(outputs, weights)
            scale = outputs.abs().max().item() ** 2
            torch.testing.assert_close(single.mean.flatten(1), mean, rtol=relative, atol=relative)
            diagonal = covariance.diagonal(dim1=1, dim2=2)
            torch.testing.assert_close(single.total_variance.flatten(1), diagonal, rtol=relative, atol=relative * scale)
            if full:
                columns = single.factors.flatten(2)
                shared = torch.einsum("rbu,rbv->buv", columns, columns)
                torch.testing.assert_close(shared, covariance, rtol=relative, atol=relative * scale)
            if size in (0, count - 1):
                assert bool((single.total_variance == 0).all()), "a certain coalition has no variance"


@pytest.mark.parametrize(("dtype", "relative"), PRECISIONS)
@pytest.mark.parametrize("full", [False, True])
def test_sizes_of_all_players(setting, dtype, relative, full):
    layer, x, baseline, mask = setting(dtype)
    contributions = meeting(layer, x, baseline, mask)
    count = contributions.count
    members, outputs = outputs_of_all_coalitions(layer.double(), x.double(), baseline.double(), mask, count)
    layer.to(dtype)
    with torch.no_grad():
        coalitions = SizedCoalitions.of(contributions, ROWS, everyone(count)[None].to(x) if full else None)
        every = to_double(coalitions.of_all(torch.arange(count + 1)))
    assert (every.factors is not None) == full
    for size in range(count + 1):
        weights = ((members.sum(1) == size).double() / (members.sum(1) == size).sum())[:, None].expand(-1, ROWS)
        actual = Gaussian(every.mean[size], every.variance[size], every.factors[size] if full else None)
        mean, covariance = moments(outputs, weights)
        scale = outputs.abs().max().item() ** 2
        torch.testing.assert_close(actual.mean.flatten(1), mean, rtol=relative, atol=relative * scale)
        diagonal = covariance.diagonal(dim1=1, dim2=2)
        torch.testing.assert_close(actual.total_variance.flatten(1), diagonal, rtol=relative, atol=relative * scale)
        if full:
            shared = torch.einsum("rbu,rbv->buv", *[actual.factors.flatten(2)] * 2)
            torch.testing.assert_close(shared, covariance, rtol=relative, atol=relative * scale)
        if size in (0, count):
            assert bool((actual.total_variance == 0).all()), "a certain coalition has no variance"


def everyone(count):
    return sketch(count, count)


def to_double(value):
    factors = None if value.factors is None else value.factors.double()
    return type(value)(value.mean.double(), value.variance.double(), factors)


@pytest.mark.parametrize("rank", [2, 4])
def test_sketches_keep_the_variance_of_each_unit(setting, rank):
    layer, x, baseline, mask = setting(torch.float64)
    contributions = meeting(layer, x, baseline, mask)
    count = contributions.count
    q = torch.full((ROWS, count), 0.3, dtype=torch.float64)
    with torch.no_grad():
        exact = bernoulli(contributions, q).total_variance
        sketched = bernoulli(contributions, q, sketch(rank, count, seed=5).to(x)[:, None])
    torch.testing.assert_close(sketched.total_variance, exact)
    sketches = torch.stack([sketch(rank, count, seed=seed) for seed in range(2)]).to(x)
    ends = [torch.tensor(v) for v in ([0, 1], [1.0, 2.0], [0, 1], [0, 1])]
    with torch.no_grad():
        exact = SizedCoalitions.of(contributions, ROWS).gaussian(*ends).variance
        actual = SizedCoalitions.of(contributions, ROWS, sketches).gaussian(*ends)
    total = actual.variance + actual.factors.square().sum(1)
    torch.testing.assert_close(total, exact)
    with torch.no_grad():
        exact = SizedCoalitions.of(contributions, ROWS).of_all(torch.tensor([1, 2])).variance
        actual = SizedCoalitions.of(contributions, ROWS, sketches).of_all(torch.tensor([1, 2]))
    torch.testing.assert_close(actual.variance + actual.factors.square().sum(1), exact)


def test_sketched_covariance_is_right_on_average():
    layer, x = nn.Linear(6, 3).double().eval(), torch.randn(1, 6, dtype=torch.float64)
    contributions = meeting(layer, x, torch.zeros_like(x), None)
    q = torch.full((1, 6), 0.4, dtype=torch.float64)

    def covariance(signs):
        signs = contributions.entries(signs[:, None] * (q * (1 - q)).sqrt())
        columns = contributions.columns(signs).flatten(1)
        return columns.T @ columns

    with torch.no_grad():
        exact = covariance(torch.eye(6, dtype=torch.float64))
        draws = torch.stack([covariance(sketch(2, 6, seed=seed).double()) for seed in range(2000)])
    error = draws.std(0) / len(draws) ** 0.5
    assert bool(((draws.mean(0) - exact).abs() < 5 * error + 1e-12).all())


def test_spaced_sizes():
    assert spaced_sizes(5, None) == [0, 1, 2, 3, 4]
    assert spaced_sizes(9, 3) == [1, 4, 7]
    assert spaced_sizes(784, 16)[0] == 24.0


def test_column_count():
    assert column_count("full", 7) == 7
    assert column_count(3, 7) == 3
    assert column_count(30, 7) == 7
    for wrong in (-1, 2.5, "most", True, None):
        with pytest.raises(ValueError, match="rank"):
            column_count(wrong, 7)


def test_pixels_need_no_columns():
    """However many a unit sees: a column for each would not fit into memory for those of a photo."""
    layer = nn.Conv2d(3, 2, 16, stride=16).eval()
    x, mask = torch.randn(1, 3, 64, 64), torch.arange(64 * 64).view(1, 64, 64).expand(3, 64, 64)
    (game,) = games(Arguments(x, torch.zeros_like(x), feature_mask=mask))
    lifted = lift(trace(layer, (x,), RULES), game.toggled(), game.count)
    (contributions,) = lifted.exact(*game.toggled())
    assert contributions.packing == 0
    value = bernoulli(contributions, torch.full((1, game.count), 0.5))
    places = torch.einsum("ochw,bchw->bohw", layer.weight, x[..., :16, :16])
    torch.testing.assert_close(value.variance[..., 0, 0], places.square().sum((-2, -1)) / 4)
