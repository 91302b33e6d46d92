"""Every rule against an oracle; one line per op.

- JACOBIAN: for ops that are affine in the random value, mean f(μ), variance J²v, factors Jf, to rounding.
- QUADRATURE: for elementwise ops, float64 integration on a fine grid.
- SAMPLING: for everything else, Monte Carlo, with a tolerance from its own standard error plus the stated errors of the
  approximation: of the mean and of the factors in units of the output's standard deviation, of the variance as a factor
  by which it may be too large or too small. They are those of the worst entry, and a fifth larger than measured.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from dasp.propagation.coalitions import bernoulli
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.lifting import lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import exported, trace
from dasp.propagation.values import Toggled

aten = torch.ops.aten


class Lambda(nn.Module):
    """A function as a module; its tensors are constants."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


# Constants of the cases, made before anything is traced.
_SHAPES = [
    (3,),
    (5,),
    (6,),
    (6, 3),
    (3, 6),
    (4, 6),
    (4, 1),
    (4, 2),
    (4, 3),
    (3, 1, 6),
    (2, 4, 3),
    (2,),
    (4,),
    (2, 3, 3),
]
_CONSTANTS = {
    shape: torch.randn(*shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64) for shape in _SHAPES
}


def weights(*shape: int) -> Tensor:
    return _CONSTANTS[shape]


@dataclass(frozen=True)
class Case:
    name: str
    model: nn.Module | Callable[[Tensor], Tensor]
    shape: tuple[int, ...]
    oracle: str
    shift: float = 0.0  # added to the means
    error: float = 0.0  # of a known approximation: of the mean
    scale: float = 1.0  # of the standard deviations
    spread: float | None = None  # the factor by which the variance may be off; 1 + 2·error if it is not stated
    shared: float | None = None  # of the factors; 2·error if it is not stated

    @property
    def module(self) -> nn.Module:
        module = self.model if isinstance(self.model, nn.Module) else Lambda(self.model)
        return module.double().eval()


def structural(name, function, shape=(4, 6)):
    return Case(name, function, shape, "JACOBIAN")


def elementwise(name, function, shift=0.0, error=2e-4, scale=1.0):
    return Case(name, function, (5, 4), "QUADRATURE", shift, error, scale)


def sampled(name, function, shape=(4, 6), error=0.0, shift=0.0, scale=1.0, spread=None, shared=None):
    return Case(name, function, shape, "SAMPLING", shift, error, scale, spread, shared)


def batch_norm(module):
    for name, value in module.named_buffers():
        if "running" in name:
            value.uniform_(0.5, 2)
    return module


torch.manual_seed(0)
INDEX = torch.tensor([2, 0, 1])
CONDITION = torch.tensor([True, False, True, True, False, True])

GRID = (
    1.5
    * torch.rand(1, 3, 4, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    * torch.tensor([1, -1])
)
TENSOR = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
TOKENS = torch.tensor([[2, 0, 3, 2]])
TWICE, PAIR = torch.tensor([2, 0, 2, 1]), torch.tensor([1, 1])


def places(x: Tensor, index: Tensor) -> Tensor:
    return index.view(1, -1, 1).expand(x.shape[0], -1, x.shape[2])


def reduced(x: Tensor, index: Tensor, source: Tensor, reduce: str, own: bool = True) -> Tensor:
    return x.scatter_reduce(1, places(source, index), source, reduce, include_self=own)


def assigned(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1] = 0.0
    y[:, INDEX, 2] = weights(3)
    y[:, 3, ::2] = 2 * x[:, 1, 3:]
    return y


def filled(x: Tensor) -> Tensor:
    y = x.clone()
    y[y < 0.2] = -1.0
    return y


def layer_norm_by_hand(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt((x - mean).pow(2).mean(-1, keepdim=True) + 1e-6)


def rms_norm_by_hand(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def trilinear(random: str, x: Tensor) -> Tensor:
    """The op that a bilinear layer is made of."""
    first, last = (x, weights(3)) if random == "first" else (weights(6), x)
    return aten._trilinear(first.expand(x.shape[0], 6), TENSOR, last.expand(x.shape[0], 3), [1, 3], [0], [1, 2], [2, 3])


MASK = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])  # the second sees nothing
SLOPES = torch.tensor([[0.0, -1.0, -torch.inf], [0.5, 0.0, -1.0], [-torch.inf] * 3], dtype=torch.float64)


def attention(x: Tensor, fixed: str = "", **options) -> Tensor:
    """Attention with two heads among three tokens: queries, keys and values from x, or some of them constants."""
    parts = (x[:, i : i + 3].unflatten(2, (2, 3)).transpose(1, 2) for i in (0, 3, 6))
    constant = weights(2, 3, 3).expand(x.shape[0], 2, 3, 3)
    query, key, value = (constant if name in fixed else part for name, part in zip("qkv", parts, strict=True))
    if options.get("enable_gqa"):
        key, value = key[:, :1], value[:, :1]
    return F.scaled_dot_product_attention(query, key, value, **options)


def attended(name, error=0.13, spread=1.9, **options):
    return sampled(f"attention{name}", lambda x: attention(x, **options), (9, 6), error, 0.0, 0.5, spread, shared=0.1)


class Recurrent(nn.Module):
    """A recurrent network, or a cell step by step, with a step's entries in units of their own: without factors,
    moments are near only where units have little in common. Networks whose units mix are in test_recurrent."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        for name, weight in network.named_parameters():
            if "weight_hh" in name:
                weight.data = 0.2 * torch.eye(weight.shape[1]).repeat(len(weight) // weight.shape[1], 1)
            elif "weight" in name:
                nn.init.eye_(weight)

    def forward(self, x: Tensor) -> Tensor:
        if isinstance(self.network, nn.RNNBase):
            return self.network(x)[0]
        state = None
        for step in range(x.shape[1]):
            state = self.network(x[:, step], state)
        return torch.cat(state, 1) if isinstance(state, tuple) else state


CASES = [
    # structural
    structural("view", lambda x: x.view(x.shape[0], -1)),
    structural("reshape", lambda x: x.transpose(1, 2).reshape(x.shape[0], -1)),
    structural("unsafe view", lambda x: aten._unsafe_view(x, [x.shape[0], 24])),
    structural("flatten", lambda x: torch.flatten(x, 1)),
    structural("unflatten", lambda x: x.unflatten(2, (2, 3))),
    structural("permute", lambda x: x.permute(0, 2, 1)),
    structural("transpose", lambda x: x.transpose(-1, -2)),
    structural("transpose batch", lambda x: x.transpose(0, 1).contiguous().transpose(0, 1)),
    structural("t", lambda x: x.t().t(), (4,)),
    structural("movedim", lambda x: x.movedim(1, 2)),
    structural("squeeze all", lambda x: x.unsqueeze(1).squeeze()),
    structural("squeeze", lambda x: x.unsqueeze(1).squeeze(1)),
    structural("squeeze dims", lambda x: x.unsqueeze(1).unsqueeze(1).squeeze((1, 2))),
    structural("unsqueeze", lambda x: x.unsqueeze(-1)),
    structural("expand", lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1)),
    structural("repeat", lambda x: x.repeat(1, 2, 1)),
    structural("slice", lambda x: x[:, 1:4:2, ::3]),
    structural("select", lambda x: x[:, 2]),
    structural("narrow", lambda x: x.narrow(2, 1, 3)),
    structural("index", lambda x: x[:, INDEX]),
    structural("index_select", lambda x: x.index_select(1, INDEX)),
    structural("gather", lambda x: x.gather(1, INDEX.view(1, 3, 1).expand(x.shape[0], 3, 6))),
    structural("repeat_interleave", lambda x: x.repeat_interleave(2, 1)),
    structural("in place", lambda x: (2 * x).add_(1.0)),
    structural("shaped like another", lambda x: 2 * x[:, :1].expand_as(x).reshape_as(x).flatten(1).view_as(x)),
    structural("split", lambda x: torch.cat(x.split(2, 1)[::-1], 1)),
    structural("split sizes", lambda x: torch.cat(x.split([1, 3], 1)[::-1], 1)),
    structural("chunk", lambda x: torch.cat(x.chunk(3, 2)[::-1], 2)),
    structural("unbind", lambda x: torch.stack(x.unbind(1)[::-1], 2)),
    structural("cat with a constant", lambda x: torch.cat([x, torch.ones_like(x)], 1)),
    structural("stack", lambda x: torch.stack([x, torch.ones_like(x)], 1)),
    structural("flip", lambda x: x.flip(1)),
    structural("roll", lambda x: x.roll(2, 2)),
    structural("diagonal", lambda x: x.diagonal(0, 1, 2)),
    structural("unfold", lambda x: x.unfold(2, 3, 2)),
    structural("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), (4, 2, 3)),
    structural("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), (1, 4, 6)),
    structural("channel_shuffle", lambda x: F.channel_shuffle(x, 2), (4, 2, 3)),
    structural("im2col", lambda x: F.unfold(x, (2, 3), padding=1, stride=2), (1, 4, 3)),
    structural("pad", lambda x: F.pad(x, (1, 2), value=3.0)),
    structural("pad reflect", lambda x: F.pad(x, (1, 2), mode="reflect")),
    structural("constant_pad_nd", lambda x: aten.constant_pad_nd(x, [1, 2], 3.0)),
    structural("clone", lambda x: x.clone()),
    structural("alias", aten.alias),
    sampled("detach", aten.detach),
    structural("contiguous", lambda x: x.transpose(1, 2).contiguous()),
    structural("dropout", nn.Dropout()),
    structural("dropout 2d", nn.Dropout2d(), (2, 3, 3)),
    structural("alpha dropout", nn.AlphaDropout()),
    structural("to", lambda x: x.to(torch.float64)),
    structural("cast", lambda x: x.float().double() * 0 + x),
    structural("where", lambda x: torch.where(CONDITION, x, 2.0)),
    structural("masked_fill", lambda x: x.masked_fill(CONDITION, 1.5)),
    # affine
    structural("linear", nn.Linear(6, 3)),
    structural("linear without bias", nn.Linear(6, 3, bias=False)),
    structural("addmm", lambda x: torch.addmm(weights(3), x, weights(6, 3), beta=0.5, alpha=2), (6,)),
    structural(
        "addmm, constant first", lambda x: torch.addmm(weights(3)[:, None], weights(3, 6), x.t(), alpha=2).t(), (6,)
    ),
    structural("mm", lambda x: torch.mm(x, weights(6, 3)), (6,)),
    structural("mm, constant first", lambda x: torch.mm(weights(3, 6), x.t()).t(), (6,)),
    structural("matmul", lambda x: x @ weights(6, 3)),
    structural("bmm", lambda x: torch.bmm(x, weights(6, 3).expand(x.shape[0], 6, 3))),
    structural("baddbmm", lambda x: torch.baddbmm(weights(3), x, weights(6, 3).expand(x.shape[0], 6, 3), alpha=3)),
    structural("einsum", lambda x: torch.einsum("bij,kj->bki", x, weights(3, 6))),
    structural("conv1d", nn.Conv1d(4, 4, 3, stride=2, padding=1, dilation=2, groups=2)),
    structural("conv1d same", nn.Conv1d(4, 2, 3, padding="same")),
    structural("conv2d", nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), groups=2), (2, 5, 4)),
    structural("conv2d same", nn.Conv2d(2, 2, 3, padding="same"), (2, 5, 4)),
    structural("conv3d", nn.Conv3d(1, 2, 2, dilation=(1, 2, 1)), (1, 3, 4, 3)),
    structural("conv3d same", nn.Conv3d(1, 2, 3, padding="same"), (1, 2, 2, 3)),
    structural("conv_transpose1d", nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1)),
    structural("conv_transpose2d", nn.ConvTranspose2d(2, 4, 3, stride=2, groups=2), (2, 2, 3)),
    structural("conv_transpose3d", nn.ConvTranspose3d(1, 2, 2, dilation=2), (1, 2, 2, 2)),
    structural(
        "convolution", lambda x: aten.convolution(x, weights(2, 4, 3), weights(2), [1], [1], [1], False, [0], 1)
    ),
    structural("batch norm 1d", batch_norm(nn.BatchNorm1d(4))),
    structural("batch norm 2d", batch_norm(nn.BatchNorm2d(2, affine=False)), (2, 3, 2)),
    structural("batch norm of rows", batch_norm(nn.BatchNorm1d(6)), (6,)),
    structural("sum", lambda x: x.sum((1, 2))),
    structural("sum keepdim", lambda x: x.sum(1, keepdim=True)),
    structural("mean", lambda x: x.mean((-1, 1), keepdim=True)),
    structural("mean of one", lambda x: x.mean(2)),
    structural("cumsum", lambda x: x.cumsum(1)),
    structural("avg_pool1d", nn.AvgPool1d(3, stride=2, padding=1)),
    structural("avg_pool2d", nn.AvgPool2d(2), (2, 4, 6)),
    structural("avg_pool2d border", nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 4, 6)),
    structural("avg_pool2d ceil", nn.AvgPool2d((3, 2), (2, 3), (1, 0), ceil_mode=True), (1, 4, 6)),
    structural("avg_pool2d divisor", nn.AvgPool2d(2, divisor_override=3), (2, 4, 6)),
    structural("avg_pool3d", nn.AvgPool3d(2, padding=1), (1, 2, 4, 4)),
    structural("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(4)),
    structural("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, 4)), (2, 5, 6)),
    structural("global average pool", nn.AdaptiveAvgPool2d(1), (2, 5, 6)),
    structural("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d(2), (1, 3, 3, 2)),
    structural("col2im", lambda x: F.fold(x, (3, 4), 2, padding=(1, 0), stride=(2, 1)), (4, 6)),
    structural(
        "bilinear, first random", lambda x: F.bilinear(x, weights(4, 3).expand(x.shape[0], 4, 3), TENSOR, weights(2))
    ),
    structural(
        "bilinear, second random", lambda x: F.bilinear(weights(4, 6).expand(x.shape[0], 4, 6), x, TENSOR), (4, 3)
    ),
    *(
        structural(f"trilinear, random {at}", lambda x, at=at: trilinear(at, x), shape)
        for at, shape in (("first", (6,)), ("last", (3,)))
    ),
    # indexing
    structural("index_put", lambda x: aten.index_put(x, [None, INDEX], weights(3, 6))),
    structural(
        "index_put into a constant", lambda x: aten.index_put(weights(4, 6).expand_as(x), [None, INDEX], x[:, 1:])
    ),
    structural("index_put of both", lambda x: aten.index_put(x[:, :3], [None, INDEX[:1]], 2 * x[:, 3:])),
    structural("index_put adds", lambda x: aten.index_put(torch.ones_like(x), [None, TWICE], x, True)),
    structural("index_put adds a constant", lambda x: aten.index_put(x, [None, TWICE], weights(4, 6), True)),
    structural("index_put adds to random", lambda x: aten.index_put(x[:, :2], [None, PAIR], x[:, 2:], True)),
    structural("assigned", assigned),
    structural("index_add", lambda x: torch.ones_like(x).index_add(1, TWICE, x, alpha=-2)),
    structural("index_add a constant", lambda x: x.index_add(1, TWICE, weights(4, 6).expand_as(x))),
    structural("index_add to random", lambda x: x[:, :2].index_add(1, PAIR, x[:, 2:], alpha=-2)),
    structural("scatter_add", lambda x: torch.ones_like(x).scatter_add(1, places(x, TWICE), x)),
    structural("scatter_add to random", lambda x: x[:, :2].scatter_add(1, places(x, PAIR), x[:, 2:])),
    structural("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x))),
    structural("fft", lambda x: torch.fft.fft(x, norm="ortho").imag),
    structural("ifft", lambda x: torch.fft.ifft(torch.view_as_complex(x.unflatten(2, (3, 2))), dim=1).imag),
    structural("irfft", lambda x: torch.fft.irfft(torch.view_as_complex(x.unflatten(2, (3, 2))), n=5)),
    structural("scatter_reduce to a sum", lambda x: reduced(torch.ones_like(x), TWICE, x, "sum")),
    structural("scatter_reduce to a mean", lambda x: reduced(torch.ones_like(x), TWICE, x, "mean")),
    structural("mean of the sources alone", lambda x: reduced(torch.ones_like(x), TWICE, x, "mean", own=False)),
    structural("mean with a constant", lambda x: reduced(x, TWICE, weights(4, 6).expand_as(x), "mean")),
    structural("mean of both", lambda x: reduced(x[:, :2], PAIR, x[:, 2:], "mean")),
    structural("sum of the sources alone", lambda x: reduced(x[:, :2], PAIR, x[:, 2:], "sum", own=False)),
    structural("scatter", lambda x: torch.ones_like(x).scatter(1, places(x, INDEX), x[:, 1:])),
    structural("scatter a number", lambda x: x.scatter(1, places(x, INDEX), 3.0)),
    structural(
        "embedding_bag of weights",
        lambda x: F.embedding_bag(TOKENS.expand_as(x), weights(4, 6), mode="sum", per_sample_weights=x),
        (4,),
    ),
    structural("index_copy", lambda x: torch.ones_like(x).index_copy(1, INDEX, x[:, 1:])),
    structural("index_fill", lambda x: x.index_fill(1, INDEX, 3.0)),
    structural("select_scatter", lambda x: x[:, :3].select_scatter(x[:, 3], 1, 1)),
    structural("slice_scatter", lambda x: x[:, :3].slice_scatter(weights(6).expand_as(x)[:, :2], 1, 0, 3, 2)),
    sampled("copy", lambda x: aten.copy(torch.ones_like(x), x)),  # of which torch has no Jacobian
    structural("neg", lambda x: -x),
    structural("scalars", lambda x: 2 - (x * 2.0 + 1 - 0.5) / 3),
    structural("scalars in place", lambda x: x.clone().mul_(2).add_(1).sub_(0.5).div_(3)),
    structural("mul.Scalar", lambda x: aten.mul.Scalar(x, 2.5)),
    structural("add.Scalar", lambda x: aten.add.Scalar(x, 2.5, 3)),
    structural("sub.Scalar", lambda x: aten.sub.Scalar(x, 2.5, 3)),
    structural("div.Scalar", lambda x: aten.div.Scalar(x, 2.5)),
    structural("rsub.Scalar", lambda x: torch.rsub(x, 2.5, alpha=3)),
    structural("lerp", lambda x: torch.lerp(x[:, :2], 2 * x[:, 2:], 0.3)),
    structural("lerp to a constant", lambda x: torch.lerp(x, weights(6), weights(4, 6))),
    structural("lerp to itself", lambda x: torch.lerp(x, x, 0.3)),
    structural("lerp by a random weight", lambda x: torch.lerp(weights(6), weights(4, 6), x)),
    structural("rsub.Tensor", lambda x: aten.rsub.Tensor(x, weights(6), alpha=3)),
    # resampling
    *(
        structural(f"upsample nearest {name}", function, shape)
        for name, shape, function in (
            ("1d", (4, 3), lambda x: F.interpolate(x, scale_factor=2)),
            ("2d", (1, 2, 3), lambda x: F.interpolate(x, scale_factor=1.5)),
            ("3d", (1, 2, 2, 3), lambda x: F.interpolate(x, (3, 1, 4))),
            ("1d to a size", (4, 3), lambda x: aten.upsample_nearest1d(x, [5])),
            ("2d to a size", (1, 2, 3), lambda x: aten.upsample_nearest2d(x, [3, 2])),
            ("3d to a size", (1, 2, 2, 3), lambda x: aten.upsample_nearest3d(x, [3, 1, 4])),
            ("exact", (1, 2, 3), lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact")),
        )
    ),
    *(
        structural(f"upsample {name}", function, shape)
        for name, shape, function in (
            ("linear 1d", (2, 5), lambda x: F.interpolate(x, scale_factor=1.5, mode="linear")),
            ("bilinear 2d", (1, 3, 4), lambda x: F.interpolate(x, scale_factor=(2, 0.6), mode="bilinear")),
            ("corners", (1, 3, 4), lambda x: F.interpolate(x, (5, 7), mode="bilinear", align_corners=True)),
            ("bicubic 2d", (1, 4, 5), lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic")),
            ("trilinear 3d", (1, 2, 3, 2), lambda x: F.interpolate(x, scale_factor=2, mode="trilinear")),
            ("bilinear smoothed", (1, 5, 6), lambda x: F.interpolate(x, (2, 4), mode="bilinear", antialias=True)),
            ("bicubic smoothed", (1, 5, 6), lambda x: F.interpolate(x, (2, 4), mode="bicubic", antialias=True)),
            ("linear 1d to a size", (2, 5), lambda x: aten.upsample_linear1d(x, [7], False, 1.5)),
            ("bilinear 2d to a size", (1, 3, 4), lambda x: aten.upsample_bilinear2d(x, [5, 3], False, None, 0.7)),
            ("bicubic 2d to a size", (1, 4, 5), lambda x: aten.upsample_bicubic2d(x, [6, 8], True)),
            ("trilinear 3d to a size", (1, 2, 3, 2), lambda x: aten.upsample_trilinear3d(x, [3, 2, 4], False)),
            ("bilinear smoothed to a size", (1, 5, 6), lambda x: aten._upsample_bilinear2d_aa(x, [2, 4], False)),
            ("bicubic smoothed to a size", (1, 5, 6), lambda x: aten._upsample_bicubic2d_aa(x, [2, 4], False)),
        )
    ),
    *(
        structural(
            f"grid_sample {mode} {padding} {corners}",
            lambda x, how=(mode, padding, corners): F.grid_sample(x, GRID.expand(x.shape[0], 3, 4, 2), *how),
            (2, 4, 5),
        )
        for mode, padding, corners in (
            ("bilinear", "zeros", False),
            ("bilinear", "border", True),
            ("bilinear", "reflection", False),
            ("nearest", "border", False),
            ("bicubic", "zeros", True),
            ("bicubic", "border", False),
            ("bicubic", "reflection", True),
            ("bicubic", "reflection", False),
        )
    ),
    structural(
        "grid_sampler_2d", lambda x: aten.grid_sampler_2d(x, GRID.expand(x.shape[0], 3, 4, 2), 0, 0, True), (1, 3, 3)
    ),
    structural(
        "grid_sampler_3d",
        lambda x: aten.grid_sampler_3d(x, GRID.view(1, 2, 2, 2, 3).expand(x.shape[0], 2, 2, 2, 3), 0, 2, False),
        (1, 2, 3, 2),
    ),
    structural("add a constant", lambda x: x + weights(6)),
    structural("add, more entries", lambda x: x.unsqueeze(1) + weights(3, 1, 6)),
    structural("constant plus", lambda x: torch.add(weights(4, 6), x, alpha=3)),
    structural("add alpha", lambda x: torch.add(x, weights(6), alpha=3)),
    structural("in-place", lambda x: x.mul(1.0).add_(1).mul_(2).sub_(3).div_(4)),
    structural("sub", lambda x: x - 2),
    structural("rsub", lambda x: 2 - x),
    structural("sub a constant", lambda x: torch.sub(weights(6), x, alpha=2)),
    structural("mul", lambda x: x * weights(4, 1)),
    structural("mul, constant first", lambda x: 3 * x),
    structural("div", lambda x: x / (1 + weights(6) ** 2)),
    structural("residual", lambda x: x[:, :2] + 2 * x[:, 2:]),
    structural("difference", lambda x: x[:, :2] - x[:, 2:]),
    structural("same value twice", lambda x: x + x),
    structural("same value away", lambda x: torch.sub(x, x, alpha=3)),
    structural("weighted sum", lambda x: torch.add(x[:, :2], x[:, 2:], alpha=-2)),
    # elementwise
    elementwise("relu", nn.ReLU(), error=1e-7),
    elementwise("relu in place", lambda x: (x + 0).relu_(), error=1e-7),
    elementwise("relu function", F.relu, error=1e-7),
    elementwise("relu, far below", F.relu, shift=-8, error=1e-7),
    elementwise("relu, far above", F.relu, shift=8, error=1e-7),
    elementwise("leaky_relu", nn.LeakyReLU(0.2), error=1e-7),
    elementwise("leaky_relu, falling below", nn.LeakyReLU(-0.4), error=1e-7),
    elementwise("prelu", nn.PReLU(5), error=1e-7),
    elementwise("prelu, one slope", nn.PReLU(), error=1e-7),
    elementwise("abs", torch.abs, error=1e-7),
    elementwise("hardtanh", nn.Hardtanh(-0.5, 2), error=1e-7),
    elementwise("relu6", nn.ReLU6(), error=1e-7, scale=2),
    elementwise("clamp", lambda x: x.clamp(-0.4, 0.85), error=1e-7),
    elementwise("clamp from below", lambda x: x.clamp(min=-0.4), error=1e-7),
    elementwise("clamp from above", lambda x: x.clamp(max=0.3), error=1e-7),
    elementwise("clamp_min", lambda x: torch.clamp_min(x, 0.2), error=1e-7),
    elementwise("clamp_max", lambda x: torch.clamp_max(x, 0.2), error=1e-7),
    elementwise("clamp between tensors", lambda x: x.clamp(weights(4) - 0.5, weights(4) + 0.4), error=1e-7),
    elementwise("clamp below a tensor", lambda x: x.clamp(max=weights(4)), error=1e-7),
    elementwise("clamp_min of a tensor", lambda x: torch.clamp_min(x, weights(4)), error=1e-7),
    elementwise("clamp_max of a tensor", lambda x: torch.clamp_max(x, weights(4)), error=1e-7),
    elementwise("clamp by itself", lambda x: torch.clamp(x, max=0.9 - 2 * x), error=1e-6),
    elementwise("rrelu", nn.RReLU(), error=1e-7),
    elementwise("threshold", nn.Threshold(0.3, 0.5), error=1e-3),
    elementwise("hardshrink", nn.Hardshrink(0.4), error=1e-3),
    elementwise("softshrink", nn.Softshrink(0.4), error=1e-7),
    elementwise("tanhshrink", nn.Tanhshrink()),
    elementwise("softsign", nn.Softsign(), error=1e-6),
    elementwise("hardsigmoid", nn.Hardsigmoid(), error=1e-7, scale=2),
    elementwise("hardswish", nn.Hardswish(), error=1e-7, scale=2),
    elementwise("elu", nn.ELU(0.7), error=1e-6),
    elementwise("elu, far above", nn.ELU(), shift=8, error=1e-6),
    elementwise("elu, far below", nn.ELU(), shift=-8, error=1e-6),
    elementwise("selu", nn.SELU(), error=1e-6),
    elementwise("celu", nn.CELU(2.0), error=1e-6),
    elementwise("gelu", nn.GELU()),
    elementwise("gelu tanh", nn.GELU(approximate="tanh")),
    elementwise("silu", nn.SiLU()),
    elementwise("silu, wide", nn.SiLU(), scale=4, error=2e-3),
    elementwise("sigmoid", nn.Sigmoid()),
    elementwise("sigmoid, wide", nn.Sigmoid(), scale=4, error=2e-3),
    elementwise("tanh", nn.Tanh()),
    elementwise("tanh, wide", nn.Tanh(), scale=3, error=1e-2),
    elementwise("softplus", nn.Softplus(2.0)),
    elementwise("log_sigmoid", nn.LogSigmoid()),
    elementwise("mish", nn.Mish()),
    elementwise("erf", torch.erf),
    elementwise("atan", torch.atan, error=5e-4),
    elementwise("exp", torch.exp, error=1e-6, scale=0.5),
    elementwise("expm1", torch.expm1, error=1e-6, scale=0.5),
    elementwise("exp2", torch.exp2, error=1e-6, scale=0.5),
    elementwise("power of a number", lambda x: 1.5**x, error=1e-6, scale=0.5),
    elementwise("sinh", torch.sinh, error=1e-6, scale=0.5),
    elementwise("cosh", torch.cosh, error=1e-6, scale=0.5),
    elementwise("asinh", torch.asinh),
    elementwise("erfc", torch.erfc),
    elementwise("square", torch.square, error=1e-7),
    elementwise("times itself", lambda x: x * x, error=1e-7),
    elementwise("pow 2", lambda x: x**2, error=1e-7),
    elementwise("pow 1", lambda x: x**1, error=1e-7),
    elementwise("pow 3", lambda x: x**3, error=2e-2),
    elementwise("pow 4", lambda x: x**4, error=5e-2, scale=0.5),
    elementwise("pow −2", lambda x: x**-2, shift=6, scale=0.1, error=2e-2),
    elementwise("reciprocal", torch.reciprocal, shift=6, scale=0.1, error=2e-2),
    elementwise("one over", lambda x: 1 / x, shift=6, scale=0.1, error=2e-2),
    elementwise("sqrt", torch.sqrt, shift=6, scale=0.1, error=2e-2),
    elementwise("rsqrt", torch.rsqrt, shift=6, scale=0.1, error=2e-2),
    elementwise("log", torch.log, shift=6, scale=0.1, error=2e-2),
    elementwise("log1p", torch.log1p, shift=6, scale=0.1, error=2e-2),
    elementwise("log2", torch.log2, shift=6, scale=0.1, error=2e-2),
    elementwise("log10", torch.log10, shift=6, scale=0.1, error=2e-2),
    elementwise("xlogy", lambda x: torch.xlogy(weights(4), x), shift=6, scale=0.1, error=2e-2),
    elementwise("pow of a parameter", lambda x: x ** weights(4), shift=6, scale=0.1, error=2e-2),
    elementwise("sin", torch.sin, error=1e-7),
    elementwise("cos", torch.cos, error=1e-7),
    elementwise("divided by itself", lambda x: x / x, shift=6, error=1e-7),
    # conditions; the oracle's own grid is as near to a step as 10⁻³
    *(
        elementwise(name, function, error=1e-3)
        for name, function in (
            ("gt", lambda x: (x > 0.3).to(x.dtype)),
            ("ge", lambda x: (x >= weights(4)).double()),
            ("gt of tensors", lambda x: (weights(4) > x).double()),
            ("lt", lambda x: (x < -0.5).double()),
            ("lt of tensors", lambda x: (x < weights(4)).double()),
            ("le", lambda x: (x <= 0.3).double()),
            ("le of tensors", lambda x: (x <= weights(4)).double()),
            ("ge of a number", lambda x: (x >= 0.3).double()),
            ("sign", torch.sign),
            ("sgn", torch.sgn),
            ("heaviside", lambda x: torch.heaviside(x, weights(4))),
            ("not", lambda x: (~(x > 0.3)).double()),
            ("logical_not", lambda x: torch.logical_not(x > 0.3).double()),
            ("and of one value", lambda x: ((x > -0.5) & (x < 1)).double()),
            ("or of one value", lambda x: torch.logical_or(x < -0.5, x > 1).double()),
            ("leaky by where", lambda x: torch.where(x > 0, x, 0.1 * x)),
            ("elu by where", lambda x: torch.where(x > 0, x, x.exp() - 1)),
            ("functions by where", lambda x: torch.where(2 * x - 1 > weights(4), x**2, x.tanh())),
            ("numbers by where", lambda x: torch.where(x > 0, x.new_ones(()), -x.new_ones(()))),
            ("times a condition", lambda x: x * (x > 0)),
            ("times a number", lambda x: (x > 0.3).double() * x),
            ("both sides", lambda x: x * (x > 0) + 0.1 * x * (x <= 0)),
            ("masked_fill of itself", lambda x: x.masked_fill(x < 0, -2.0)),
            ("assigned by mask", filled),
            ("swish by hand", lambda x: x * torch.sigmoid(x)),
            ("gelu by hand", lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5))),
            ("mish by hand", lambda x: x * torch.tanh(torch.log(1 + torch.exp(x)))),
        )
    ),
    structural("eq", lambda x: (x == 0.3).double()),
    structural("eq of tensors", lambda x: (x == weights(6)).double()),
    structural("ne", lambda x: (x != 0.3).double()),
    structural("ne of tensors", lambda x: (x != weights(6)).double()),
    structural("isnan", lambda x: x.isnan().double()),
    structural("isinf", lambda x: x.isinf().double()),
    structural("where of both", lambda x: torch.where(CONDITION, x, 2 * x + 1)),
    structural("masked_fill by a tensor", lambda x: x.masked_fill(CONDITION, torch.tensor(2.0))),
    sampled("count", lambda x: (x > 0).sum(2).double() / 6, error=0.02),
    sampled("gt of random", lambda x: (x[:, :2] > x[:, 2:]).double()),
    sampled(
        "choice by another",
        lambda x: torch.where(x[:, :2] > 0, x[:, 2:], -1.0),
        error=0.02,
        spread=1.35,
        shared=0.17,
        scale=2,
    ),
    sampled(
        "condition times another", lambda x: (x[:, :2] > 0) * x[:, 2:], error=0.02, spread=1.6, shared=0.2, scale=2
    ),
    sampled("and", lambda x: ((x[:, :2] > 0) & (x[:, 2:] > 0)).double(), error=0.05, spread=1.8, shared=0.2, scale=2),
    sampled(
        "logical_and",
        lambda x: torch.logical_and(x[:, :2] > 0, x[:, 2:] > 0).double(),
        error=0.05,
        spread=1.8,
        shared=0.2,
        scale=2,
    ),
    sampled("or", lambda x: ((x[:, :2] > 0) | (x[:, 2:] > 0)).double(), error=0.04, spread=1.4, shared=0.19, scale=2),
    sampled("xor", lambda x: ((x[:, :2] > 0) ^ (x[:, 2:] > 0)).double(), error=0.04, spread=1.1, shared=0.23, scale=2),
    sampled(
        "logical_xor",
        lambda x: torch.logical_xor(x[:, :2] > 0, x[:, 2:] > 0).double(),
        error=0.04,
        spread=1.1,
        shared=0.23,
        scale=2,
    ),
    sampled("any", lambda x: (x > 1).any(2).double(), error=0.05),
    sampled("any of two dims", lambda x: torch.any(x > 2, (1, 2), True).double(), error=0.04),
    # maxima
    sampled("fmax", lambda x: torch.fmax(x[:, :2], x[:, 2:])),
    sampled("fmin", lambda x: torch.fmin(x[:, :2], x[:, 2:])),
    sampled("clamp by another", lambda x: torch.clamp(x[:, :2], x[:, 2:] - 1, x[:, 2:] + 1), error=0.12),
    sampled("maximum", lambda x: torch.maximum(x[:, :2], x[:, 2:])),
    sampled("maximum with a constant", lambda x: torch.maximum(x, weights(6))),
    sampled("max other", lambda x: torch.max(weights(4, 6), x)),
    sampled("maximum, broadcast", lambda x: torch.maximum(x.unsqueeze(1), weights(3, 1, 6))),
    sampled("maximum of random, broadcast", lambda x: torch.maximum(x[:, :1], x[:, 1:])),
    sampled("maximum of the same", lambda x: torch.maximum(x, x)),
    sampled("minimum", lambda x: torch.minimum(x[:, :2], x[:, 2:])),
    sampled("min other", lambda x: torch.min(x[:, :2], x[:, 2:])),
    sampled("spectrum", lambda x: torch.fft.rfft(x)[..., 1:3].abs(), shift=2, error=0.1, spread=1.5),
    sampled("maxima at places", lambda x: reduced(torch.zeros_like(x), TWICE, x, "amax", own=False), spread=1.01),
    sampled(
        "minima at places", lambda x: reduced(x[:, :2], PAIR, x[:, 2:], "amin"), error=0.02, spread=1.2, shared=0.03
    ),
    sampled("products at places", lambda x: reduced(torch.ones_like(x), TWICE, x, "prod")),
    sampled("amax", lambda x: x.amax(2), error=0.05, spread=1.5, shared=0.17),
    sampled("amax of two dims", lambda x: x.amax((1, 2), keepdim=True), error=0.13, spread=1.85, shared=0.14),
    sampled("amin", lambda x: x.amin(1), error=0.1),
    sampled("max dim", lambda x: x.max(1).values, error=0.1),
    sampled("min dim", lambda x: x.min(1, keepdim=True)[0], error=0.1),
    sampled("max_pool1d", nn.MaxPool1d(2)),
    sampled("max_pool1d overlap", nn.MaxPool1d(3, 2, padding=1, dilation=1), error=0.1),
    sampled("max_pool1d dilated", nn.MaxPool1d(2, 1, dilation=3)),
    sampled("max_pool2d", nn.MaxPool2d(2), (2, 4, 4), error=0.08, spread=1.65, shared=0.1),
    sampled("max_pool2d border", nn.MaxPool2d(3, 2, 1), (1, 4, 5), error=0.05, spread=1.6, shared=0.15),
    sampled("max_pool2d ceil", nn.MaxPool2d(2, 2, ceil_mode=True), (1, 3, 5), error=0.07),
    sampled(
        "max_pool2d ceil, overlapping",
        nn.MaxPool2d(3, 2, ceil_mode=True),
        (1, 4, 6),
        error=0.14,
        spread=2.1,
        shared=0.16,
    ),
    sampled("max_pool3d", nn.MaxPool3d(2), (1, 2, 2, 4), error=0.08, spread=1.8, shared=0.11),
    sampled("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(4)),
    sampled("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((2, 3)), (1, 3, 6), error=0.07, spread=1.45, shared=0.15),
    sampled("adaptive_max_pool3d", nn.AdaptiveMaxPool3d(1), (1, 2, 2, 2), error=0.06, spread=1.5, shared=0.09),
    # products
    sampled("product", lambda x: x[:, :2] * x[:, 2:]),
    sampled("quotient", lambda x: x[:, :2] / (x[:, 2:] + 8), error=0.01, scale=0.5),
    sampled("product of matrices", lambda x: x[:, :2] @ x[:, 2:].transpose(1, 2), error=0.01, scale=0.4),
    sampled("bmm of random", lambda x: torch.bmm(x[:, :2], x[:, 2:].transpose(1, 2)), error=0.01, scale=0.4),
    sampled(
        "baddbmm of random",
        lambda x: torch.baddbmm(x[:, 4:, :2], x[:, :2], x[:, 2:4].transpose(1, 2)),
        (6, 6),
        error=0.01,
        scale=0.4,
    ),
    sampled("power of random", lambda x: x[:, :2] ** x[:, 2:], error=0.01, scale=0.1, shift=4),
    sampled("bilinear", lambda x: F.bilinear(x[:, :2], x[:, 2:, :3], TENSOR, weights(2)), error=0.03, scale=0.4),
    sampled("cdist", lambda x: torch.cdist(x, weights(3, 6).expand(x.shape[0], 3, 6)), error=0.09),
    sampled("cdist of random", lambda x: torch.cdist(x[:, :2], x[:, 2:]), error=0.07),
    sampled("cdist of order 1", lambda x: torch.cdist(x[:, :2], x[:, 2:], p=1.0), error=0.05),
    sampled("cdist from itself", lambda x: torch.cdist(x, x), error=0.08),
    sampled("pairwise distance", lambda x: F.pairwise_distance(x[:, 0], x[:, 1]), error=0.08),
    # softmax: its variance is off by a factor of two where much noise of many entries competes: log-odds are not normal
    sampled("softmax of two", nn.Softmax(1), (2,), error=0.01),
    sampled("softmax", nn.Softmax(2), error=0.23, spread=1.6, shared=0.1),
    sampled("softmax, wide", nn.Softmax(1), error=0.25, spread=2.5, shared=0.24, scale=1.2),
    sampled("softmax, in double", lambda x: x.softmax(1, dtype=torch.float64), error=0.2, spread=2.2, shared=0.17),
    sampled("softmax, masked", lambda x: x.masked_fill(CONDITION, -torch.inf).softmax(2), error=0.01),
    structural("softmax of one", lambda x: x[:, :1].softmax(1)),
    sampled("inner softmax", lambda x: aten._softmax(x, 1, False), error=0.2, spread=2.2, shared=0.17),
    sampled("safe softmax", lambda x: aten._safe_softmax(x, 1), error=0.2, spread=2.2, shared=0.17),
    sampled("log_softmax", nn.LogSoftmax(1), error=0.06, spread=1.6, shared=0.07),
    structural("log_softmax of one", lambda x: x[:, :1].log_softmax(1)),
    sampled("inner log_softmax", lambda x: aten._log_softmax(x, 1, False), error=0.06, spread=1.6, shared=0.07),
    sampled("logaddexp", lambda x: torch.logaddexp(x[:, :2], x[:, 2:]), error=0.01),
    sampled("logaddexp with a constant", lambda x: torch.logaddexp(weights(6), x), error=0.01),
    sampled("logsumexp", lambda x: x.logsumexp(2), error=0.1),
    sampled("logsumexp of two dims", lambda x: x.logsumexp((1, 2), keepdim=True), error=0.06, spread=1.5, shared=0.07),
    sampled("logsumexp, masked", lambda x: x.masked_fill(CONDITION, -torch.inf).logsumexp(2), error=0.01),
    # attention
    attended(""),
    attended(", causal", is_causal=True),
    attended(", masked", attn_mask=MASK),
    attended(", additive mask", attn_mask=SLOPES),
    attended(", scaled", scale=0.2),
    attended(", shared keys", enable_gqa=True),
    attended(", fixed queries", fixed="q"),
    attended(", fixed keys", fixed="k", error=0.24),
    attended(", fixed values", fixed="v", error=0.2, spread=2.5),
    structural("attention to values", lambda x: attention(x, fixed="qk", attn_mask=MASK), (9, 6)),
    structural(
        "attention to shared values", lambda x: attention(x, fixed="qk", enable_gqa=True, is_causal=True), (9, 6)
    ),
    # norms
    sampled("layer norm", nn.LayerNorm(6), error=0.03, spread=1.4, shared=0.17, scale=0.3),
    # bounded values of six entries are far from normal: their variance is up to two thirds too large
    sampled("layer norm, as much noise as signal", nn.LayerNorm(6), error=0.06, spread=1.8, shared=0.37),
    sampled("rms norm, as much noise as signal", lambda x: F.rms_norm(x, (6,)), error=0.08, spread=1.5, shared=0.25),
    sampled("layer norm of two dims", nn.LayerNorm((4, 6)), error=0.01, scale=0.3),
    sampled(
        "layer norm, weighted",
        lambda x: F.layer_norm(x, (6,), weights(6), weights(6), 0.1),
        error=0.02,
        spread=1.3,
        shared=0.09,
        scale=0.3,
    ),
    sampled("rms norm", lambda x: F.rms_norm(x, (6,), weights(6)), error=0.06, scale=0.3),
    sampled("group norm", nn.GroupNorm(2, 4), error=0.02, scale=0.3),
    sampled("group norm of images", nn.GroupNorm(2, 4), (4, 2, 3), error=0.02, scale=0.3),
    sampled("instance norm", nn.InstanceNorm1d(4, affine=True), error=0.03, spread=1.4, shared=0.17, scale=0.3),
    structural("instance norm, running", batch_norm(nn.InstanceNorm1d(4, track_running_stats=True))),
    sampled("var", lambda x: x.var(1), error=0.01),
    sampled("var of two dims", lambda x: torch.var(x, (1, 2), correction=0, keepdim=True), error=0.01),
    sampled("std", lambda x: x.std(2, keepdim=True), error=0.1),
    sampled("std of two dims", lambda x: torch.std(x, (1, 2), correction=2), error=0.01),
    sampled("norm", lambda x: x.norm(dim=2), error=0.06),
    sampled("norm of order 1", lambda x: x.norm(1, dim=2), error=0.1),
    sampled("norm of order 3", lambda x: x.norm(3, dim=2), error=0.06, spread=1.7, shared=0.1, scale=0.5),
    sampled(
        "norm of order infinity", lambda x: x.norm(torch.inf, dim=2, keepdim=True), error=0.2, spread=2.2, shared=0.14
    ),
    sampled("normalize", lambda x: F.normalize(x, dim=1), (24,), error=0.01, scale=0.3),
    sampled("normalize few", lambda x: F.normalize(x, dim=2), error=0.06, scale=0.3),
    sampled("over its norm", lambda x: x / x.norm(dim=2)[:, :, None], error=0.06, scale=0.3),
    sampled("over its norm and more", lambda x: x / (x.norm(dim=2, keepdim=True) + 0.1), error=0.06, scale=0.3),
    sampled("rms norm by hand", rms_norm_by_hand, error=0.06, scale=0.3),
    sampled("layer norm by hand", layer_norm_by_hand, error=0.03, spread=1.4, shared=0.17, scale=0.3),
    sampled(
        "layer norm by its variance",
        lambda x: (x - x.mean(2, keepdim=True)) / (x.var(2, keepdim=True) + 0.1).sqrt(),
        error=0.02,
        spread=1.3,
        shared=0.1,
        scale=0.3,
    ),
    sampled(
        "layer norm by its deviation",
        lambda x: (x - x.mean(2, keepdim=True)) / (x.std(2, keepdim=True, unbiased=False) + 0.1),
        error=0.02,
        spread=1.4,
        shared=0.13,
        scale=0.3,
    ),
    sampled("var and mean", lambda x: torch.cat(torch.var_mean(x, 2, keepdim=True), 2), error=0.01),
    structural("norm of order 0", lambda x: x.norm(0, dim=2)),
    sampled("cosine with one vector", lambda x: F.cosine_similarity(x[:, 0], weights(6), 1), error=0.1, scale=0.5),
    sampled(
        "cosine_similarity", lambda x: F.cosine_similarity(x[:, :2], x[:, 2:], 2), error=0.05, spread=1.5, shared=0.17
    ),
    sampled(
        "cosine with a constant",
        lambda x: F.cosine_similarity(weights(6), x, -1),
        error=0.02,
        spread=1.5,
        shared=0.11,
        scale=0.5,
    ),
    sampled("prod", lambda x: x.prod(2), error=0.1, scale=0.4, shift=1),
    sampled("prod keepdim", lambda x: x.prod(1, keepdim=True), error=0.02, spread=1.7, shared=0.18, scale=0.4),
    # recurrent networks
    sampled("LSTM", Recurrent(nn.LSTM(4, 1, batch_first=True)), (3, 4), error=0.03, spread=1.7, shared=0.14),
    sampled("GRU", Recurrent(nn.GRU(4, 1, batch_first=True)), (3, 4), error=0.07, spread=1.3, shared=0.07),
    sampled("RNN", Recurrent(nn.RNN(4, 4, batch_first=True)), (3, 4), error=0.02, spread=1.1, shared=0.03),
    sampled(
        "RNN of ReLUs",
        Recurrent(nn.RNN(4, 4, nonlinearity="relu", batch_first=True)),
        (3, 4),
        error=0.02,
        spread=1.05,
        shared=0.02,
        shift=1,
    ),
    sampled("LSTM cell", Recurrent(nn.LSTMCell(4, 1)), (3, 4), error=0.03, spread=1.3, shared=0.13),
    sampled("GRU cell", Recurrent(nn.GRUCell(4, 1)), (3, 4), error=0.03, spread=1.1, shared=0.03),
    sampled("RNN cell", Recurrent(nn.RNNCell(4, 4)), (3, 4), error=0.02, spread=1.1, shared=0.03),
    sampled(
        "RNN cell of ReLUs",
        Recurrent(nn.RNNCell(4, 4, nonlinearity="relu")),
        (3, 4),
        error=0.02,
        spread=1.05,
        shared=0.02,
        shift=1,
    ),
    structural("addmm, random bias", lambda x: torch.addmm(x[:, :2], x[:, 2:], weights(4, 2)), (6,)),
]


def random_input(case: Case, rank: int, rows: int = 2) -> Gaussian:
    generator = torch.Generator().manual_seed(1)
    shape = (rows, *case.shape)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)
    mean = draw(*shape) + case.shift
    variance = case.scale**2 * draw(*shape).abs() / (1 + rank)
    return Gaussian(mean, variance, case.scale * draw(rank, *shape) / (1 + rank) if rank else None)


@functools.cache
def program(name: str) -> torch.export.ExportedProgram:
    (case,) = (case for case in CASES if case.name == name)
    return exported(case.module, (random_input(case, 0).mean,))


@functools.cache
def traced(name: str) -> torch.fx.GraphModule:
    return trace(program(name), (), RULES)


def lifted(case: Case, value):
    shape = (value.mean if isinstance(value, Gaussian) else value.on).shape
    return lift(traced(case.name), (value,), shape[1:].numel())


def run(case: Case, x: Gaussian) -> Gaussian:
    return lifted(case, x)(x)


def by_jacobian(case: Case, x: Gaussian) -> Gaussian:
    mean = case.module(x.mean)
    jacobian = torch.autograd.functional.jacobian(case.module, x.mean).reshape(mean.numel(), -1)
    factors = None if x.factors is None else (x.factors.flatten(1) @ jacobian.T).view(x.rank, *mean.shape)
    return Gaussian(mean, (jacobian**2 @ x.variance.flatten()).view(mean.shape), factors)


def by_quadrature(case: Case, x: Gaussian) -> Gaussian:
    z = torch.linspace(-12, 12, 48001, dtype=torch.float64).view(-1, 1, 1, 1)
    weight = torch.exp(-z * z / 2) / torch.exp(-z * z / 2).sum()
    deviation = x.total_variance.sqrt()
    values = torch.cat(
        [case.module((x.mean + deviation * at).flatten(0, 1)).unflatten(0, (len(at), -1)) for at in z.split(3000)]
    )
    mean = (weight * values).sum(0)
    total = (weight * (values - mean) ** 2).sum(0)
    slope = (weight * z * values).sum(0) / deviation  # Stein
    return x.through(mean, slope, total - slope**2 * x.total_variance)


def assert_close(actual: Tensor, expected: Tensor, tolerance: Tensor | float, what: str) -> None:
    assert actual.shape == expected.shape, what
    excess = (actual - expected).abs() - tolerance
    assert bool((excess <= 0).all()), f"{what}: off by {excess.max().item():.3g} more than allowed"


SAMPLED = {"SAMPLING": [pytest.mark.slow]}  # which take a quarter of the time of `make quick`


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=SAMPLED.get(case.oracle, [])) for case in CASES]
)
def test_moments(case: Case, rank: int) -> None:
    x = random_input(case, rank)
    actual = run(case, x)
    assert bool((actual.variance >= 0).all())
    if case.oracle == "SAMPLING":
        check_by_sampling(case, x, actual)
        return
    expected = {"JACOBIAN": by_jacobian, "QUADRATURE": by_quadrature}[case.oracle](case, x)
    error = case.error or 1e-10
    unit = expected.total_variance.max().sqrt() + 1e-3
    assert_close(actual.mean, expected.mean, error * unit, "mean")
    assert_close(actual.total_variance, expected.total_variance, 5 * error * unit**2, "variance")
    if rank:
        assert_close(actual.factors, expected.factors, 5 * error * unit, "factors")


def check_by_sampling(case: Case, x: Gaussian, actual: Gaussian) -> None:
    # As many samples as make five standard errors of the mean half the error that is allowed, and not fewer
    # than meet what is rare.
    samples = round(min(max((10 / case.error) ** 2, 20_000), 60_000)) if case.error else 60_000
    generator = torch.Generator().manual_seed(2)
    shape = x.mean.shape
    own = torch.randn(samples, *shape, generator=generator, dtype=torch.float64)
    shared = torch.randn(samples, x.rank, generator=generator, dtype=torch.float64)
    value = x.mean + own * x.variance.sqrt()
    if x.factors is not None:
        value = value + torch.tensordot(shared, x.factors, dims=1)
    y = case.module(value.flatten(0, 1)).unflatten(0, (samples, shape[0]))
    centred = y - y.mean(0)
    total, deviation = y.var(0), y.std(0)
    error = deviation / samples**0.5
    assert_close(actual.mean, y.mean(0), 5 * error + case.error * deviation + 1e-5, "mean")
    second = (centred**2).std(0) / samples**0.5
    spread = 1 + 2 * case.error if case.spread is None else case.spread
    nearest = actual.total_variance.clamp(total / spread, total * spread)
    assert_close(actual.total_variance, nearest, 5 * second + 1e-5, "variance")
    if x.factors is not None:
        products, squares = (  # means over samples, without a tensor of samples × rank × entries
            torch.tensordot(shared**power, centred**power, dims=([0], [0])) / samples for power in (1, 2)
        )
        noise = ((squares - products**2) / samples).sqrt()
        shared = 2 * case.error if case.shared is None else case.shared
        assert_close(actual.factors, products, 5 * noise + shared * deviation + 1e-5, "factors")


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_zero_variance_is_the_op(case: Case, rank: int) -> None:
    mean = random_input(case, 0).mean
    zeros = torch.zeros_like(mean)
    result = run(case, Gaussian(mean, zeros, zeros.expand(rank, *zeros.shape) if rank else None))
    torch.testing.assert_close(result.mean, case.module(mean), rtol=1e-14, atol=1e-14)
    assert bool((result.total_variance == 0).all())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_certain_coalition_is_the_model(case: Case) -> None:
    """Players on or off for certain: the exact pair, and the Gaussian made of it, give f(x_S)."""
    on, off = random_input(case, 0).mean, random_input(case, 1).variance + case.shift
    count = on[0].numel()
    member = torch.rand(2, count, generator=torch.Generator().manual_seed(3)).double().round()
    players = torch.arange(1, 2 * count + 1).view(on.shape)
    graph = lifted(case, Toggled(on, off, players))
    result = graph.frontier(Toggled(on, off, players)).map(lambda met: bernoulli(met, member)).propagated()
    expected = case.module(torch.where(member.view(on.shape) > 0, on, off))
    torch.testing.assert_close(result.mean, expected, rtol=1e-12, atol=1e-12)


def check_gradients(outputs: Callable[[Tensor, Tensor], Tensor], *inputs: Tensor, step: float, atol: float) -> None:
    """What torch.autograd.gradcheck checks, all entries at once: the rows of a batch are copies of the only row, of
    which each has another entry moved, or gives another output its gradients."""

    def rows(*values: Tensor) -> Tensor:
        return outputs(*values).reshape(len(values[0]), -1)

    size = rows(*inputs).numel()
    copies = [value.detach().repeat(size, *[1] * (value.dim() - 1)).requires_grad_() for value in inputs]
    gradients = torch.autograd.grad(rows(*copies).diagonal().sum(), copies, materialize_grads=True)
    for i, value in enumerate(inputs):
        moved = [other.expand(value.numel(), *other.shape[1:]) for other in inputs]
        steps = step * torch.eye(value.numel(), dtype=value.dtype).view_as(moved[i])
        with torch.no_grad():
            above, below = (rows(*moved[:i], value + sign * steps, *moved[i + 1 :]) for sign in (1, -1))
        torch.testing.assert_close(gradients[i].flatten(1), ((above - below) / (2 * step)).T, rtol=1e-3, atol=atol)


def repeated(factors: Tensor | None, rows: int) -> Tensor | None:
    """Factors of one row, for as many."""
    return None if factors is None else factors.expand(-1, rows, *factors.shape[2:])


SMOOTH = [case for case in CASES if case.oracle == "QUADRATURE" and case.name != "divided by itself"]


@pytest.mark.parametrize(("rank", "certain"), [(0, False), (2, True)])
@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_gradients(case: Case, rank: int, certain: bool) -> None:
    """Autograd against finite differences; at zero variance, one-sided as variance cannot be negative."""
    x = random_input(case, rank, rows=1)
    graph = lifted(case, x)

    def outputs(mean: Tensor, variance: Tensor) -> Tensor:
        result = graph(Gaussian(mean, variance, repeated(x.factors, len(mean))))
        return torch.stack([result.mean, result.total_variance], 1)

    if not certain:
        check_gradients(outputs, x.mean, x.variance, step=1e-5, atol=2e-4)
        return
    x = Gaussian(x.mean, torch.zeros_like(x.mean), None if rank == 0 else torch.zeros_like(x.factors))
    mean, variance = x.mean.clone().requires_grad_(), x.variance.clone().requires_grad_()
    result = outputs(mean, variance)
    step = 1e-5
    with torch.no_grad():
        by_mean = (outputs(x.mean + step, x.variance) - outputs(x.mean - step, x.variance)) / (2 * step)
        by_variance = (outputs(x.mean, x.variance + step) - outputs(x.mean, x.variance)) / step
    for part in range(2):
        gradients = torch.autograd.grad(result[:, part].sum(), (mean, variance), retain_graph=True)
        torch.testing.assert_close(gradients[0], by_mean[:, part], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(gradients[1], by_variance[:, part], rtol=1e-3, atol=2e-3)


PAIRWISE = [case for case in CASES if case.oracle == "SAMPLING"]


@pytest.mark.parametrize("case", PAIRWISE, ids=lambda case: case.name)
def test_gradients_of_maxima_and_products(case: Case) -> None:
    x = random_input(case, 2, rows=1)
    graph = lifted(case, x)

    def outputs(mean: Tensor, variance: Tensor) -> Tensor:
        return graph(Gaussian(mean, variance, repeated(x.factors, len(mean)))).mean

    check_gradients(outputs, x.mean, x.variance, step=1e-6, atol=1e-5)
    mean, zero = x.mean.clone().requires_grad_(), torch.zeros_like(x.variance).requires_grad_()
    gradients = torch.autograd.grad(outputs(mean, zero).sum(), (mean, zero), allow_unused=True)
    assert all(bool(torch.isfinite(g).all()) for g in gradients if g is not None)


# Cases that are written with other ops than those whose rules they reach.
DECOMPOSED = ["and of one value", "cast", "cdist", "or", "var and mean", "xor"]


def test_every_rule_has_a_case() -> None:
    """Ops with a Gaussian rule must be reached by a case; those that only act on exact pairs are in test_lifting.
    An op that has a rule is never decomposed, so that the ops which a case is written with are enough to know, and
    take a tenth of the time that its graph takes."""
    graphs = [traced(name).graph for name in DECOMPOSED]
    with torch.no_grad():
        graphs += [make_fx(case.module, pre_dispatch=True)(random_input(case, 0).mean).graph for case in CASES]
    reached = {node.target for graph in graphs for node in graph.nodes}
    missing = {str(op) for op, rule in RULES.items() if rule.gaussian is not None and op not in reached}
    assert not missing, sorted(missing)
