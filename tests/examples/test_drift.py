"""`examples/drift.py`: what is drift, and what is noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import drift
from dasp.jobs import run

MODEL = """
import torch
from torch import nn


def build(bias=0.0):
    model = nn.Linear(3, 1)
    model.weight.data, model.bias.data = torch.tensor([[3.0, 1.0, 0.1]]), torch.tensor([bias])
    return model


def other():
    return build(1.0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("drift")
    (here / "linear.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(800, 3)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for name, rows, model in [
            ("monday", x[:400], "build"),
            ("tuesday", x[400:], "build"),
            ("larger", x[400:] * [1, 1.5, 1], "build"),
            ("moved", np.abs(x[400:]) * [1, 0, 0] + x[400:] * [0, 1, 1], "build"),
            ("other", x[400:], "other"),
        ]:
            np.save("rows.npy", rows.astype(np.float32))
            run(f"linear:{model}", "rows.npy", f"{name}.parquet", baselines="zero", show_progress=False)
    return here


@pytest.mark.parametrize(
    ("after", "code", "said"),
    [
        ("tuesday", 0, "no drift is seen"),
        ("larger", 1, "drift of x1"),  # one column matters more
        ("moved", 1, "drift of x0"),  # one pushes elsewhere, but matters as much
        ("other", 0, "warning: not only the data may have changed: the model's parameters differ"),
    ],
)
def test_days(folder, capsys, after, code, said):
    assert drift.main([str(folder / "monday.parquet"), str(folder / f"{after}.parquet")]) == code
    printed = capsys.readouterr().out
    assert said in printed.splitlines()
    assert printed.count("*") == code


def noise(rng, error=0.0, effect=0.0):
    deviation = np.full((200, 5), error)
    values = rng.normal(size=(200, 5)) * effect + rng.normal(size=(200, 5)) * deviation
    return drift.Explained(list("abcde"), values, deviation, {})


def alarms(before, after):
    return sum(any(each.real for pair in drift.changes(before(), after()) for each in pair) for _ in range(200)) / 200


def test_false_alarms_are_as_rare_as_they_are_said_to_be():
    rng = np.random.default_rng(0)
    assert alarms(lambda: noise(rng, effect=1.0), lambda: noise(rng, effect=1.0)) < 0.08
    pairs = [drift.distance(noise(rng, effect=1.0), noise(rng, effect=1.0)) for _ in range(200)]
    assert 1 <= sum(far > usual for far, usual in pairs) <= 20  # 10 are expected


def test_larger_errors_are_no_drift():
    """Though they make |values| larger; half of the errors would be seen otherwise in every case."""
    rng = np.random.default_rng(0)
    assert alarms(lambda: noise(rng, error=0.5), lambda: noise(rng, error=1.0)) < 0.08


def test_columns_must_be_the_same(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(nn.Linear(2, 1).state_dict(), "two.pt")
    (tmp_path / "drift_two.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(2, 1)\n")
    np.save("rows.npy", np.ones((3, 2), np.float32))
    run("drift_two:build", "rows.npy", "two.parquet", weights="two.pt", show_progress=False)
    with pytest.raises(SystemExit, match="columns of .* are not the same"):
        drift.main([str(folder / "monday.parquet"), "two.parquet"])
