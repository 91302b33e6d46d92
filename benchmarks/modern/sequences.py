"""Networks for sequences, sets and graphs: (rows, places, numbers) in, or words; a number out."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from modern.tasks import FEATURES, LENGTH, WIDTH, WORDS, Task, places, ring

_HIDDEN = 24


def encoder(width: int, layers: int, *, norm_first: bool, activation: str = "relu") -> nn.Module:
    """Layers of a Transformer with two heads."""
    layer = nn.TransformerEncoderLayer(
        width, 2, 2 * width, 0.0, activation=activation, batch_first=True, norm_first=norm_first
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot nest tensors if norms come first
        return nn.TransformerEncoder(layer, layers)


class Recurrent(nn.Module):
    """The last state of a recurrent network (of a bidirectional one, both ends)."""

    def __init__(self, task: Task, kind: type[nn.RNNBase], *, both: bool = False) -> None:
        super().__init__()
        arguments: dict[str, Any] = {"batch_first": True, "bidirectional": both}
        self.body = kind(WIDTH, _HIDDEN, **arguments)  # type: ignore[call-arg,arg-type]
        self.both = both
        self.head = nn.Linear((1 + both) * _HIDDEN, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        states = self.body(x)[0]
        last = torch.cat([states[:, -1, :_HIDDEN], states[:, 0, _HIDDEN:]], 1) if self.both else states[:, -1]
        return self.head(last)


class Encoder(nn.Module):
    """A Transformer on words or vectors, read from the mean of its tokens or from a token of its own."""

    def __init__(self, task: Task, layers: int, *, norm_first: bool, own_token: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH) if task.x.is_floating_point() else nn.Embedding(WORDS, WIDTH)
        self.register_buffer("places", places(LENGTH, WIDTH))
        self.answer = nn.Parameter(torch.randn(1, 1, WIDTH) / 2) if own_token else None
        self.body = encoder(WIDTH, layers, norm_first=norm_first)
        self.head = nn.Linear(WIDTH, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        tokens = self.embed(x) + self.places
        if self.answer is None:
            return self.head(self.body(tokens).mean(1))
        tokens = torch.cat([self.answer.expand(x.shape[0], -1, -1), tokens], 1)
        return self.head(self.body(tokens)[:, 0])


class _Block(nn.Module):
    """A block of a causal Transformer, written out: every token sees those before it."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.three(self.before(x)).chunk(3, 2)
        )
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.feed(self.after(x))


class Decoder(nn.Module):
    """Blocks of a causal Transformer; the last token answers."""

    def __init__(self, task: Task, layers: int) -> None:
        super().__init__()
        self.register_buffer("places", places(LENGTH, WIDTH))
        self.body = nn.Sequential(*(_Block() for _ in range(layers)))
        self.head = nn.Linear(WIDTH, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        return self.head(self.body(x + self.places)[:, -1])


class TemporalCNN(nn.Module):
    """Causal convolutions, each reaching twice as far as the one before, beside shortcuts."""

    def __init__(self, task: Task, width: int = _HIDDEN) -> None:
        super().__init__()
        self.first = nn.Conv1d(WIDTH, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 2, dilation=2**i) for i in range(4))
        self.head = nn.Linear(width, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        x = self.first(x.transpose(1, 2))
        for i, layer in enumerate(self.layers):
            x = x + torch.relu(layer(nn.functional.pad(x, (2**i, 0))))
        return self.head(x[:, :, -1])


class GraphConvolution(nn.Module):
    """Two rounds of means over the neighbours of a graph that is always the same, and the mean of its nodes."""

    def __init__(self, task: Task, width: int = _HIDDEN) -> None:
        super().__init__()
        self.register_buffer("neighbours", ring())
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width)
        self.head = nn.Linear(width, task.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        x = torch.relu(self.neighbours @ self.first(x))
        x = torch.relu(self.neighbours @ self.second(x))
        return self.head(x.mean(1))


class DeepSets(nn.Module):
    """A network of the sum and the maximum of what another makes of each point."""

    def __init__(self, task: Task, width: int = _HIDDEN) -> None:
        super().__init__()
        self.each = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width))
        self.all = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, task.outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        points = self.each(x)
        return self.all(torch.cat([points.mean(1), points.amax(1)], 1))
