"""A zoo of small trained networks, in families, for studies that need many: gentle and hard-trained perceptrons,
convolutional and residual networks, Transformers and recurrent networks, on data that come with scikit-learn, on MNIST
and Parkinsons (DASP_DATA) and on a task of words.

Half of the cases is for development (choosing constants), the other half, other data or seeds, for reporting only.
Everything that was trained is kept in results/cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache

import sklearn.datasets
import torch
from torch import Tensor, nn

from networks import Residual
from reproduction.mnist import MNIST
from reproduction.parkinsons import Parkinsons
from reproduction.store import Store

_GREY = 0.05  # a shade that no pixel has: else pixels that have it are no players
_WORDS, _LENGTH = 24, 16
_NOT, _VERY = 1, 2  # words that turn or double the next one


@dataclass(frozen=True)
class Data:
    """Rows and labels (numbers of classes, or real values), shuffled; the last fifth is not trained on."""

    x: Tensor
    y: Tensor

    @property
    def outputs(self) -> int:
        """How many outputs a network needs."""
        return 1 if self.y.is_floating_point() else int(self.y.max()) + 1

    @property
    def cut(self) -> int:
        """How many rows are for training."""
        return len(self.x) * 4 // 5


@cache
def data(name: str) -> Data:
    """Load data by their name."""
    if name == "words":
        x, y = _words()
    elif name.startswith("mnist"):
        x, y = MNIST().data().train
        x, y = x[:12_000], y[:12_000]
        if name != "mnist":
            x = nn.functional.avg_pool2d(x, 2)
    elif name.startswith("parkinsons"):
        x, y = Parkinsons().data().train
        x, y = _standard(x[:, :12] if name.endswith("12") else x), _standard(y)
    else:
        table = getattr(sklearn.datasets, f"load_{name}")()
        x, y = torch.tensor(table.data).float(), torch.tensor(table.target)
        x = x.view(-1, 1, 8, 8) / 8 - 1 if name == "digits" else _standard(x[:, :16])
        y = _standard(y.float()) if name == "diabetes" else y.long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return Data(x[order], y[order])


def _standard(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.std(0)


def _words() -> tuple[Tensor, Tensor]:
    """Sentences of words with a weight each; "not" turns the next one, "very" doubles it. Word 0 is nothing."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(_WORDS, generator=generator)
    weights[: _VERY + 1] = 0
    x = torch.randint(1, _WORDS, (12_000, _LENGTH), generator=generator)
    modifiers = torch.rand(x.shape, generator=generator) < 0.3
    x = torch.where(modifiers, torch.randint(_NOT, _VERY + 1, x.shape, generator=generator), x)
    before = torch.nn.functional.pad(x, (1, 0))[:, :-1]
    factor = torch.where(before == _NOT, -1.0, torch.where(before == _VERY, 2.0, 1.0))
    return x, _standard((weights[x] * factor).sum(1))


@dataclass(frozen=True)
class Network:
    """What a network is and how it is trained."""

    kind: str
    data: str
    seed: int
    softmax: bool = False

    @property
    def name(self) -> str:
        """A name for files and tables."""
        return f"{self.kind}-{self.data}-{self.seed}"

    def trained(self, store: Store) -> nn.Module:
        """The network in evaluation mode, trained unless it was before."""
        torch.manual_seed(self.seed)
        rows = data(self.data)
        model = _KINDS[self.kind](rows)
        weights = store.keep(f"zoo/{self.name}", asdict(self), lambda: _train(model, rows, *_TRAINING[self.kind]))
        model.load_state_dict(weights)
        return (nn.Sequential(model, nn.Softmax(1)) if self.softmax else model).eval()


def _train(model: nn.Module, rows: Data, steps: int, rate: float, decay: float) -> dict[str, Tensor]:
    loss = nn.MSELoss() if rows.outputs == 1 else nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    model.train()
    for _ in range(steps):
        batch = torch.randint(rows.cut, (64,))
        outputs = model(rows.x[batch])
        optimizer.zero_grad()
        loss(outputs[:, 0] if rows.outputs == 1 else outputs, rows.y[batch]).backward()
        optimizer.step()
        schedule.step()
    return dict(model.state_dict())


def _mlp(rows: Data, widths: tuple[int, ...], dropout: float) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    size = rows.x[0].numel()
    for width in widths:
        layers += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(dropout)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, rows.outputs))


def _conv(rows: Data) -> nn.Module:
    side = rows.x.shape[-1] // 2
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(16 * side**2, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, rows.outputs),
    )  # fmt: skip


def _prelu(rows: Data) -> nn.Module:
    """Like the networks of MTCNN: PReLU, and pools of three that reach over the edge."""
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, 1, 1), nn.PReLU(12), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(12, 24, 3), nn.PReLU(24), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(24, 32, 2), nn.PReLU(32), nn.Flatten(), nn.LazyLinear(64), nn.PReLU(64), nn.Linear(64, rows.outputs),
    )  # fmt: skip
    model(rows.x[:1])  # so that it knows its sizes
    return model


def _resnet(rows: Data, blocks: int) -> nn.Module:
    stages = [(8, 8, 1), (8, 16, 2), (16, 32, 2)]
    body = [Residual(a, b, s) if i == 0 else Residual(b, b, 1) for a, b, s in stages for i in range(blocks)]
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), *body,
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, rows.outputs),
    )  # fmt: skip


class _Tokens(nn.Module):
    """Rows of an image, or words, as vectors."""

    def __init__(self, rows: Data, width: int) -> None:
        super().__init__()
        words = not rows.x.is_floating_point()
        self.embed = nn.Embedding(_WORDS, width) if words else nn.Linear(rows.x.shape[-1], width)
        self.words = words

    def forward(self, x: Tensor) -> Tensor:
        """(rows, tokens, width)."""
        return self.embed(x if self.words else x.flatten(1, 2))


class _Transformer(nn.Module):
    def __init__(self, rows: Data) -> None:
        super().__init__()
        self.embed = _Tokens(rows, 32)
        self.places = nn.Parameter(torch.randn(rows.x.shape[-1 if not rows.x.is_floating_point() else -2], 32) / 4)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, rows.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        return self.head(self.body(self.embed(x) + self.places).mean(1))


class _Recurrent(nn.Module):
    def __init__(self, rows: Data, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = _Tokens(rows, 16)
        self.body = kind(16, 32, batch_first=True)  # type: ignore[call-arg,arg-type]
        self.head = nn.Linear(32, rows.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(rows, outputs)."""
        return self.head(self.body(self.embed(x))[0][:, -1])


_KINDS: dict[str, Callable[[Data], nn.Module]] = {
    "gentle": lambda rows: _mlp(rows, (32, 32), 0.2),
    "hard": lambda rows: _mlp(rows, (256, 256, 64), 0.0),
    "conv": _conv,
    "prelu": _prelu,
    "resnet8": lambda rows: _resnet(rows, 1),
    "resnet20": lambda rows: _resnet(rows, 3),
    "transformer": _Transformer,
    "lstm": lambda rows: _Recurrent(rows, nn.LSTM),
    "gru": lambda rows: _Recurrent(rows, nn.GRU),
}
_TRAINING = {  # steps, rate, decay
    "gentle": (800, 3e-3, 1e-2), "hard": (3000, 1e-2, 0.0), "conv": (800, 3e-3, 1e-3), "resnet8": (400, 1e-2, 1e-3),
    "prelu": (800, 3e-3, 1e-3),
    "resnet20": (400, 1e-2, 1e-3), "transformer": (1200, 2e-3, 1e-3), "lstm": (1000, 5e-3, 1e-3),
    "gru": (1000, 5e-3, 1e-3),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A network with its players and what it is compared with."""

    family: str
    network: Network
    development: bool
    blocks: int | None = None  # along each side of an image; 0: rows of an image
    background: int = 0  # rows

    @property
    def name(self) -> str:
        """A name for files and tables."""
        players = "" if self.blocks is None else f"-{self.blocks}"
        return f"{self.network.name}{players}" + (f"-background{self.background}" if self.background else "")

    def arguments(self, rows: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Inputs that were not trained on, baselines and feature mask."""
        known = data(self.network.data)
        x = known.x[known.cut : known.cut + rows]
        if self.background:
            return x, known.x[: self.background], None
        off = torch.zeros_like(x[:1]) + (_GREY if x.dim() == 4 else 0)
        return x, off, self._mask(x.shape[-1])

    def _mask(self, side: int) -> Tensor | None:
        if self.blocks is None:
            return None
        place = torch.arange(side)
        if self.blocks == 0:
            return place[:, None].expand(1, side, side).clone()
        group = place * self.blocks // side
        return (group[:, None] * self.blocks + group)[None]


def _cases() -> list[Case]:
    """Development first: other data or seeds than those for reporting."""
    result = []
    for kind in ("gentle", "hard"):
        for name, seed, development in (
            ("diabetes", 0, True), ("breast_cancer", 0, True), ("digits", 0, True),
            ("wine", 0, False), ("parkinsons", 0, False), ("digits", 1, False),
        ):  # fmt: skip
            blocks = 4 if name == "digits" else None
            result.append(Case(f"tabular {kind}", Network(kind, name, seed), development, blocks))
        for name, development in (
            ("diabetes", True), ("breast_cancer", True), ("wine", False), ("parkinsons12", False),
        ):  # fmt: skip
            result.append(Case(f"{kind}, background", Network(kind, name, 2), development, None, 25))
    for seed, development in ((0, True), (1, False)):
        digits, images = Network("conv", "digits", seed), Network("conv", "mnist14", seed)
        small, deep = Network("resnet8", "mnist14", seed), Network("resnet20", "mnist14", seed)
        result += [
            Case("conv, pixels", digits, development), Case("conv, pixels", images, development),
            Case("conv, blocks", digits, development, 4), Case("conv, blocks", images, development, 7),
            Case("conv, blocks", Network("prelu", "mnist14", seed), development, 7),
            Case("ResNet, pixels", small, development), Case("ResNet, pixels", deep, development),
            Case("ResNet, blocks", small, development, 4), Case("ResNet, blocks", deep, development, 7),
            Case("Transformer, tokens", Network("transformer", "mnist", seed), development, 0),
            Case("Transformer, tokens", Network("transformer", "words", seed), development),
            Case("LSTM, GRU, tokens", Network(("lstm", "gru")[seed], "mnist14", seed), development, 0),
            Case("LSTM, GRU, tokens", Network(("gru", "lstm")[seed], "words", seed), development),
            Case("softmax", Network("hard", ("breast_cancer", "wine")[seed], 3, softmax=True), development),
            Case("softmax", Network("conv", ("digits", "mnist14")[seed], 3, softmax=True), development, (4, 7)[seed]),
        ]  # fmt: skip
    return result


CASES = _cases()
