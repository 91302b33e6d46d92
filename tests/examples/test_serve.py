"""The service of `examples/serve.py`, by a clock that the tests turn."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from torch import nn

import serve
from dasp import Explainer
from dasp.attribution import refinement

PLAYERS, SECONDS = 14, 40


class Slow(nn.Module):
    """A network that takes a second for a row, by a clock of its own; and waits while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(PLAYERS, 8), nn.Tanh(), nn.Linear(8, 1))
        self.now, self.free, self.entered = 0.0, Event(), Event()
        self.free.set()

    def forward(self, x):
        self.entered.set()
        self.free.wait()
        self.now += len(x)
        return self.body(x)[:, 0]


@pytest.fixture
def model(monkeypatch):
    made = Slow().eval()
    monkeypatch.setattr(refinement.time, "perf_counter", lambda: made.now)
    return made


@pytest.fixture
def client(model):
    """Of a service whose answers take 40 seconds of the model's clock."""
    background = torch.zeros(1, PLAYERS)
    explainer = Explainer(model, background, max_seconds=SECONDS, tolerance=1e-9, threads=1, show_progress=False)
    with TestClient(serve.service(explainer, background, patience=0.001)) as found:
        yield found


def ask(client, row=None):
    return client.post("/explain", json={"row": [0.5] * PLAYERS if row is None else row})


def test_an_answer_takes_the_time_that_is_promised(client, model):
    assert client.get("/health").json() == {"ready": True}
    for _ in range(3):
        before = model.now
        answer = ask(client).json()
        assert 0.5 * SECONDS < model.now - before < 1.2 * SECONDS
        assert abs(sum(answer["values"]) - (answer["prediction"] - answer["base_value"])) < 1e-4
        assert len(answer["values"]) == len(answer["error_std"]) == PLAYERS
        assert answer["method"] == "bayesian_shapley"
        assert 10 < answer["evaluations"] < SECONDS


def test_who_cannot_be_answered_in_time_is_told_so(client, model):
    model.free.clear()
    model.entered.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, client)
        try:
            assert model.entered.wait(60)
            refused = ask(client)
        finally:
            model.free.set()
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert first.result().status_code == 200
    assert ask(client).status_code == 200  # its turn was given back


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([1.0] * 3, "the row has 3 numbers; 14 are needed"),
        ([1e39] * PLAYERS, "finite"),
        (["text"] * PLAYERS, "valid number"),
    ],
)
def test_rows_that_cannot_be_explained(client, row, message):
    refused = ask(client, row)
    assert refused.status_code == 422
    assert message in refused.text
    assert ask(client).status_code == 200


def test_a_service_is_what_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve_small.py").write_text(
        "from torch import nn\n\n\ndef build():\n    return nn.Sequential(nn.Linear(4, 8), nn.Tanh())\n"
    )
    np.save("rows.npy", np.zeros((5, 4), np.float32))
    for name, value in {"MODEL": "serve_small:build", "BACKGROUND": "rows.npy", "TARGET": "1"}.items():
        monkeypatch.setenv(f"DASP_{name}", value)
    threads = torch.get_num_threads()
    with TestClient(serve.app()) as client:
        answer = ask(client, [1.0, 2.0, 3.0, 4.0]).json()
    torch.set_num_threads(threads)
    assert (answer["method"], answer["evaluations"]) == ("exact_shapley", 5 * 16)


def test_an_explainer_is_the_same_after_a_pickle_and_in_threads():
    """What a server that forks or spawns its workers rests on: also if it has explained before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(PLAYERS, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    explainer = Explainer(
        model, torch.zeros(3, PLAYERS), method="bayesian", max_evaluations=60, target=0, show_progress=False
    )
    rows = torch.rand(4, PLAYERS).split(1)
    wanted = [explainer.attribute(row).values for row in rows]
    with ThreadPoolExecutor(4) as pool:
        for which in (explainer, pickle.loads(pickle.dumps(explainer))):
            found = pool.map(which.attribute, rows)
            assert all(torch.equal(one.values, other) for one, other in zip(found, wanted, strict=True))
