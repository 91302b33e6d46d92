"""Outputs of `dasp explain` of every kind, and their pages; small ones, of networks with random weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from explain_files import dasp
from PIL import Image
from small_language import bert_tokenizer, classifier

FACTORY = """
import torch
from torch import nn


def net(inputs, outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, outputs)).eval()


def table():
    return net(8)


def classes():
    model = net(8, 3)
    model[0].weight.data *= 10
    return model


def few():
    return net(3)


def wide():
    return net(200)


class Rivals(nn.Module):
    def forward(self, x):
        sizes = torch.linspace(2, -1, x.shape[1] - 1)
        return (x[:, 1:] * x[:, :-1] * sizes).sum(1, keepdim=True)


def rivals():
    return nn.Sequential(Rivals()).eval()


def tiny():
    model = net(8)
    model[2].weight.data *= 1e-9
    model[2].bias.data *= 0
    return model


def images():
    return nn.Sequential(nn.Flatten(), net(64, 3))


def colours():
    return nn.Sequential(nn.Flatten(), net(768))


def letters():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(4, 3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 21, 1)).eval()


def waves():
    return nn.Sequential(nn.Flatten(), net(80))
"""

LONG = "mean_concavity_of_all_cell_nuclei_in_left_breast"
EVIL = [
    "<script>document.title = 'run'</script>",
    "</style><b>bold",
    "\"quotes\" & 'more'",
    "\u202eturned round",
    "עברית",
    "</script><img src=x onerror=\"document.title = 'run'\">",
    "{{ 7 * 7 }}",
    "a\u2028line",
]
TEXTS = ["A good film is never too long.", "the lazy dog", "</p><script>document.title = 'run'</script> the quick fox"]

# What is typed after `dasp explain`, for every page.
JOBS = {
    "table": "shown:table table.csv --method bayesian --max-evaluations 100 --tolerance 0.01 --id name",
    "evil": "shown:table evil.csv --method bayesian --max-evaluations 40 --interactions",
    "pairs": "shown:rivals pairs.csv --method bayesian --max-evaluations 200 --interactions",
    "one": "shown:table one.csv",
    "classes": "shown:classes table.csv --drop name",
    "unknown": "shown:table table.csv --method gradient --drop name",
    "tiny": "shown:tiny table.csv --drop name",
    "large": "shown:few large.csv --method exact",
    "wide": "shown:wide wide.csv --method permutation --max-evaluations 1000",
    "groups": "shown:table table.csv --drop name --players groups.json",
    "images": "shown:images digits --method bayesian --max-evaluations 100",
    "blocks": "shown:images digits --players block:2 --method bayesian --max-evaluations 40",
    "superpixels": "shown:colours photos --players superpixel:8",
    "sequence": "shown:letters letters.npy --players window:1 --method bayesian --max-evaluations 100",
    "series": "shown:waves waves.npy --players window:10 --interactions",
    "text": "language reviews.csv --text review",
}


def write_files(folder: Path) -> None:
    """Models and data."""
    (folder / "shown.py").write_text(FACTORY)
    sys.modules.pop("shown", None)
    random = np.random.default_rng(0)
    names = [LONG, *(f"column {i}" for i in range(1, 8))]
    table = pd.DataFrame(random.normal(size=(40, 8)).round(3), columns=names)
    table.insert(0, "name", [f"patient-{i:03}" for i in range(40)])
    table.to_csv(folder / "table.csv", index=False)
    table.iloc[:1, 1:].to_csv(folder / "one.csv", index=False)
    table.iloc[:, 1:].set_axis(EVIL, axis=1).to_csv(folder / "evil.csv", index=False)
    (folder / "groups.json").write_text(json.dumps({"first": names[:2], "alone": names[2:3], "last": names[3:]}))
    large = pd.DataFrame(random.normal(size=(10_000, 3)).round(3), columns=["age", "weight", "height"])
    large.to_csv(folder / "large.csv", index=False)
    many = [f"feature_{i:03}_with_a_name_of_forty_characters" for i in range(200)]
    pd.DataFrame(random.normal(size=(6, 200)), columns=many).to_csv(folder / "wide.csv", index=False)
    paired = [f"{LONG}_on_the_left", *(f"input_{i:02}" for i in range(1, 14))]
    pd.DataFrame(random.normal(1, 1, (12, 14)).round(3), columns=paired).to_csv(folder / "pairs.csv", index=False)
    for kind, shape in (("digits", (8, 8)), ("photos", (16, 16, 3))):
        (folder / kind).mkdir()
        for i in range(4):
            corners = random.uniform(0, 255, (4, 4, *shape[2:]))
            pixels = corners.repeat(shape[0] // 4, 0).repeat(shape[1] // 4, 1)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / kind / f"{i}.png")
    spelled = np.eye(4, dtype=np.float32)[random.integers(0, 4, (5, 24))]
    np.save(folder / "letters.npy", spelled.transpose(0, 2, 1))
    np.save(folder / "waves.npy", np.cumsum(random.normal(size=(5, 2, 40)), 2).astype(np.float32))
    tokenizer = bert_tokenizer(model_max_length=48)
    for part in (tokenizer, classifier("bert", tokenizer)):
        part.save_pretrained(folder / "language")
    pd.DataFrame({"review": TEXTS}).to_csv(folder / "reviews.csv", index=False)


def write_page(name: str) -> Path:
    """The page of a job, in this folder; its output is beside it."""
    page = Path(f"{name}.html")
    if not page.exists():
        done = dasp("explain", *JOBS[name].split(), "-o", f"{name}.parquet", "--report", page)
        assert done.code == 0, done.err
    return page.absolute()
