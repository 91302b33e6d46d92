"""What `dasp.audit` says of `shap.DeepExplainer` where people found that its values do not add up, beside the truth.

    python benchmarks/audit_issues.py [--evaluations 128] [--rows 10] [--write]

Small networks with what their networks have (issues of shap/shap and meta-pytorch/captum on GitHub, by number) learn
the 8×8 digits of scikit-learn. Players are the 16 blocks of 2×2 pixels, so that all coalitions can be evaluated: the
actual error and the actual top five are exact. The audit sees 128 coalitions of a row. `--write` writes the tables of
docs/deep-explainer.md.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import shap
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

import dasp

RESULTS = Path(__file__).parent / "results"
BLACK = torch.zeros(1, 1, 8, 8)
BLOCKS = torch.arange(8)[:, None] // 2 * 4 + torch.arange(8) // 2
PLAYERS, TOP = 16, 5
_TRAINED = 1500  # images; the others are explained


class Functional(nn.Module):
    """Two convolutions with functional rectifiers and poolings, as tutorials write them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 10, 3, padding=1), nn.Conv2d(10, 20, 3, padding=1)
        self.hidden, self.last = nn.Linear(80, 50), nn.Linear(50, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = functional.relu(functional.max_pool2d(self.first(x), 2))
        x = functional.relu(functional.max_pool2d(self.second(x), 2))
        return self.last(functional.relu(self.hidden(x.flatten(1))))


def modules() -> nn.Module:
    """Return the same with a module for each of them."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 3, padding=1), nn.MaxPool2d(2),
        nn.ReLU(), nn.Flatten(), nn.Linear(80, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


class Encoder(nn.Module):
    """A layer of torch's transformer, with its two LayerNorms, over the eight rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, 32), nn.Parameter(0.3 * torch.randn(8, 32))
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.last(self.layer(self.embed(x[:, 0]) + self.place).mean(1))


class Recurrent(nn.Module):
    """An LSTM that reads the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.cells, self.last = nn.LSTM(8, 48, batch_first=True), nn.Linear(48, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.last(self.cells(x[:, 0])[0][:, -1])


class Bert(nn.Module):
    """Hugging Face's BERT with two layers, over the rows of an image as embeddings of tokens."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertModel  # noqa: PLC0415 (takes seconds)

        config = BertConfig(
            vocab_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            attn_implementation="eager",
        )  # fmt: skip
        self.embed, self.bert, self.last = nn.Linear(8, 32), BertModel(config, False), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.last(self.bert(inputs_embeds=self.embed(x[:, 0])).last_hidden_state.mean(1))


class Softmax(nn.Module):
    """Attention as BERT's first code had it, with `nn.Softmax` as a module, and no LayerNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(8, 32), nn.Parameter(0.3 * torch.randn(8, 32))
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.softmax, self.hidden, self.relu = nn.Softmax(-1), nn.Linear(32, 32), nn.ReLU()
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        x = self.embed(x[:, 0]) + self.place
        scores = self.query(x) @ self.key(x).mT / 32**0.5
        return self.last(self.relu(self.hidden(x + self.softmax(scores) @ self.value(x))).mean(1))


ISSUES: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "CNN with `F.relu`": ("shap/shap#3938", Functional),
    "the same with `nn.ReLU` modules": ("(as advised there)", modules),
    "transformer with LayerNorm": ("shap/shap#4251, #3438", Encoder),
    "LSTM": ("shap/shap#3949, #3415", Recurrent),
    "BERT": ("shap/shap#3881", Bert),
    "attention with `nn.Softmax`": ("meta-pytorch/captum#519, shap/shap#1506", Softmax),
}


def trained(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> nn.Module:
    """Train a model, and return it in evaluation mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(epochs):
        for part in torch.randperm(_TRAINED).split(50):
            optimizer.zero_grad()
            functional.cross_entropy(model(images[part]), labels[part]).backward()
            optimizer.step()
    return model.eval()


def deep(model: nn.Module, rows: Tensor) -> Tensor:
    """Return DeepExplainer's values for the predicted class, without its check that they add up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, _ = shap.DeepExplainer(model, BLACK).shap_values(rows, ranked_outputs=1, check_additivity=False)
    return torch.as_tensor(values)[..., 0]


def by_player(values: Tensor) -> Tensor:
    """Return values of pixels added up by block, (rows, players)."""
    flat = torch.zeros(len(values), PLAYERS, dtype=torch.float64)
    return flat.index_add(1, BLOCKS.flatten(), values.double().flatten(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--evaluations", type=int, default=128)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="write the tables of the page")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_digits()
    images, labels = torch.tensor(digits.images).float()[:, None] / 16, torch.tensor(digits.target)
    rows = images[_TRAINED : _TRAINED + chosen.rows]
    table, verdicts = [], []
    for name, (issue, build) in ISSUES.items():
        start = time.process_time()
        torch.manual_seed(0)
        model = trained(build(), images, labels, chosen.epochs)
        with torch.no_grad():
            right = float((model(images[_TRAINED:]).argmax(1) == labels[_TRAINED:]).float().mean())
        values = deep(model, rows)
        arguments = {"baselines": BLACK, "target": "predicted", "feature_mask": BLOCKS}
        exact = dasp.ExactShapley(model).attribute(rows, **arguments)[:, 0, ::2, ::2].flatten(1).double()
        given = by_player(values)
        error = ((given - exact).square().mean(1) / exact.square().mean(1)).sqrt().median()
        total = exact.sum(1)
        gap = ((given.sum(1) - total).abs() / total.abs()).median()
        places, sizes = given.abs().topk(TOP, 1).indices, exact.abs()
        belonging = sizes.gather(1, places) >= sizes.topk(TOP, 1).values[:, -1:] * (1 - 1e-5)
        report = dasp.audit(model, values, rows, evaluations=chosen.evaluations, **arguments)
        assert report.top is not None
        low, middle, high = (
            float(x.median()) for x in (report.relative.low, report.relative.middle, report.relative.high)
        )
        own = (given - exact).square().mean(1).sqrt()
        held = int(((report.rmse.low <= own * 1.001) & (own * 0.999 <= report.rmse.high)).sum())
        print(f"{name} ({issue}), accuracy {right:.2f}, {time.process_time() - start:.0f} s of processor time")
        all_right, some = float(belonging.all(1).double().mean()), float(belonging.sum(1).double().mean())
        print(
            f"  actual: the sum is off by {gap:.0%} of f(x) − f(black), values by {error:.0%} of their size; "
            f"the top five are right in {all_right:.0%} of the rows, {some:.1f} of them belong there; intervals held "
            f"the actual error in {held} of {len(rows)} rows"
        )
        print(f"  audit:  {report.verdict}", flush=True)
        verdicts.append([name, report.verdict])
        table.append([
            name, issue, f"{100 * gap:.0f} %", f"{100 * error:.0f} %",
            f"{100 * middle:.0f} % ({100 * low:.0f} to {100 * high:.0f})", f"{100 * all_right:.0f} %",
            f"{100 * report.top.right.mean():.0f} %",
        ])  # fmt: skip
    if chosen.write:
        head = [
            "network", "issue", "its sum is off by", "its values, actually", "audited", "top five right, actually",
            "audited",
        ]  # fmt: skip
        _write("audit-issues", [head, *table])
        _write("audit-verdicts", [["network", "the audit's verdict"], *verdicts])


def _write(name: str, rows: list[list[str]]) -> None:
    day = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    about = {"by": "benchmarks/audit_issues.py", "version": dasp.__version__, "date": day}
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        stream.writelines(f"# {key}: {value}\n" for key, value in about.items())
        csv.writer(stream, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
