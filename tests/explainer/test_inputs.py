"""Inputs as people have them: several of them, further arguments, outputs by name, and what does not fit."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import IntegratedGradients, KernelShap
from torch import nn

from dasp import ExactShapley, Explainer
from dasp.errors import BadInput

X, Y = torch.linspace(-1, 2, 12).view(3, 4), torch.linspace(1, -1, 6).view(3, 2)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(2, 6), nn.Linear(6, 2)
        self.eval()

    def forward(self, x, y, *, mask=None):
        hidden = torch.relu(self.first(x) + self.second(y))
        return {"logits": self.last(hidden if mask is None else hidden * mask), "hidden": hidden}


MASK = (torch.arange(18).view(3, 6) % 4 > 0).float()


@pytest.mark.parametrize("method", [None, IntegratedGradients])
def test_a_dictionary_of_inputs_has_one_of_explanations(method):
    names, model = {"x": list("abcd")}, TwoInputs()
    own = "auto" if method is None else method(model)
    explainer = Explainer(model, {"x": X[:2], "y": Y[:2]}, method=own, output="logits", feature_names=names)
    tables = {"y": pd.DataFrame(Y.numpy(), columns=["e", "f"]), "x": X.numpy()}
    found = explainer(tables, additional_forward_args={"mask": MASK})
    assert {key: part.values.shape for key, part in found.items()} == {"y": (3, 2, 2), "x": (3, 4, 2)}
    assert (found["x"].feature_names, found["y"].feature_names) == (list("abcd"), list("ef"))
    together = sum(part.values.sum(1) for part in found.values()) + found["x"].base_values
    prediction = model(X, Y, mask=MASK)["logits"].detach().numpy()
    np.testing.assert_allclose(together, prediction, atol=0.02)


def test_a_tuple_of_inputs():
    model = TwoInputs()
    explainer = Explainer(model, output=0, baselines=(X[0], 0.5), feature_mask=([0, 0, 1, 1], [2, 2]), batch_size=2)
    x, y = explainer((X, Y), target=1, additional_forward_args={"mask": MASK})
    exact = ExactShapley(model, output="logits").attribute(
        (X, Y), (X[:1], 0.5), 1, {"mask": MASK}, (torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2]))
    )
    np.testing.assert_allclose(x.values, exact[0][:, [0, 2]], atol=1e-6)
    np.testing.assert_allclose(y.values, exact[1][:, [0]], atol=1e-6)
    with pytest.raises(BadInput, match="player 1 of feature_mask is in several inputs"):
        Explainer(model, output=0, feature_mask=([0, 0, 1, 1], [1, 2]))((X, Y))


def test_several_inputs_in_parts():
    """Some methods explain row by row."""
    model = TwoInputs()
    whole = Explainer(model, output=0, method=KernelShap(model)).attribute((X, Y))
    assert [part.shape for part in whole.values] == [(3, 2, 4), (3, 2, 2)]


def test_a_tuple_of_numbers_or_names_is_one_row():
    explainer = Explainer(nn.Linear(2, 1).eval(), baselines=(1.0, 2.0), feature_names=("a", "b"), feature_mask=(0, 1))
    assert explainer(Y).feature_names == ["a", "b"]


def test_outputs_that_are_not_named():
    with pytest.raises(BadInput, match=r"'logits' \(2, 2\), 'hidden' \(2, 6\); give one of them as output="):
        Explainer(TwoInputs()).attribute((X, Y))
    explainer = Explainer(lambda x: (x.prod(1), x), output=0)
    torch.testing.assert_close(explainer.attribute(Y).values.sum(1), Y.prod(1))


LINEAR, EMBEDDED = nn.Linear(4, 1), nn.Sequential(nn.Embedding(9, 3), nn.Flatten(), nn.Linear(12, 1))
IMAGES = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 1))


@pytest.mark.parametrize(
    ("model", "rows", "message"),
    [
        (LINEAR, torch.ones(2, 5), "5 columns, and the model takes 4: leave out what is no input, such as the label"),
        (LINEAR, torch.ones(2, 3), "3 columns, and the model takes 4: give it all that it was trained on"),
        (LINEAR, torch.ones(2, 4, dtype=torch.int64), r"dtype torch.int64, and .* torch.float32: .* x.float\(\)"),
        (LINEAR, torch.ones(2, 2, 3), r"shape \(2, 3\), and the model takes 4 numbers"),
        (LINEAR, [["a", "b", "c", "d"]], "must be numbers, not text: encode"),
        (LINEAR, pd.DataFrame({"a": [1], "b": ["x"], "c": [2], "d": [3]}), "column 'b' .*: encode"),
        (EMBEDDED, torch.ones(2, 4), r"looks its inputs up in an embedding: .* x.long\(\)"),
        (IMAGES, torch.ones(2, 8, 8, 3), r"8 channels, .* takes 3 .*, so give it x.permute\(0, 3, 1, 2\)"),
        (IMAGES, torch.ones(2, 1, 8, 8), "1 channels, and the model takes 3 of them, in dimension 1$"),
        (IMAGES, torch.ones(2, 8, 8), r"shape \(8, 8\), and the model takes 3 dimensions"),
    ],
)
def test_rows_that_do_not_fit(model, rows, message):
    with pytest.raises(BadInput, match=message) as caught:
        Explainer(model.eval())(rows)
    assert "\n" not in str(caught.value)


def test_errors_of_the_model_itself_are_its_own():
    def failing(x):
        raise RuntimeError("own")

    with pytest.raises(RuntimeError, match="own"):
        Explainer(failing).attribute(X)


def test_what_zeros_are_is_said_once_for_raw_tables(caplog):
    table = pd.DataFrame({"pay": [0.1, 0.2, 0.3], "age": [40.0, 41.0, 45.0], "a": 0.0, "b": 1.0})
    model = nn.Linear(4, 1).eval()
    with caplog.at_level(logging.WARNING, "dasp"):
        explainer = Explainer(model)
        explainer(table)
        explainer(table)
        (record,) = caplog.records
        assert "an absent feature is 0" in record.message
        assert "is 42 on average" in record.message
        assert "background=" in record.message
        caplog.clear()
        for given in ({"background": table}, {"baselines": 0}):
            Explainer(model, **given)(table)
        Explainer(model)((table - table.mean()) / (table.std() + 1))
        assert not caplog.records
