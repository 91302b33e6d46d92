"""Inputs as people have them: several of them, further arguments, outputs by name, and what does not fit."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import IntegratedGradients, KernelShap
from torch import nn

from dasp import ExactShapley, Explainer, audit
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


def leads_to(explanation, prediction, atol=1e-6):
    """True if base and values lead to the prediction, in the explanation and in each of its parts."""
    for part in (explanation, *explanation.parts.values()):
        start = 0 if part.is_row else 1
        axes = tuple(range(start, np.ndim(part.values) - (np.ndim(prediction) - start)))
        np.testing.assert_allclose(part.values.sum(axes) + part.base_values, prediction, atol=atol)
    return len(explanation.parts) == 2


@pytest.mark.parametrize("method", [None, IntegratedGradients])
def test_a_dictionary_of_inputs_has_one_explanation_with_parts(method):
    names, model = {"x": list("abcd")}, TwoInputs()
    own = "auto" if method is None else method(model)
    explainer = Explainer(model, {"x": X[:2], "y": Y[:2]}, method=own, output="logits", feature_names=names)
    tables = {"y": pd.DataFrame(Y.numpy(), columns=["e", "a"]), "x": X.numpy()}
    found = explainer(tables, additional_forward_args={"mask": MASK})
    assert found.values.shape == (3, 6, 2)
    assert found.feature_names == ["e", "y: a", "x: a", "b", "c", "d"]
    np.testing.assert_array_equal(found.data, np.concatenate([Y, X], 1).astype(float))
    assert found["x"].feature_names == ["x: a", "b", "c", "d", "y"]
    assert found["y"].feature_names == ["e", "y: a", "x"]
    np.testing.assert_array_equal(found["x"].base_values, found.base_values)
    prediction = model(X, Y, mask=MASK)["logits"].detach().numpy()
    assert leads_to(found, prediction, 0.02)
    assert leads_to(found[1:, :, 1], prediction[1:, 1], 0.02)
    assert leads_to(found[..., 0][2], prediction[2, 0], 0.02)
    assert leads_to(found[2][:, 0], prediction[2, 0], 0.02)
    assert leads_to(found[2], prediction[2], 0.02)
    assert found[:, 0].parts == found[2][0].parts == found.abs.mean(0).parts == {}
    if method is None:
        pairs = found.interactions()
        assert pairs.feature_names == found.feature_names
        assert pairs.values.shape == (3, 6, 6, 2)
        with pytest.raises(BadInput, match="needs evaluations of coalitions"):
            found["x"].interactions()


def test_a_tuple_of_inputs():
    model = TwoInputs()
    explainer = Explainer(model, output=0, baselines=(X[0], 0.5), feature_mask=([0, 3, 3, 0], [2, 2]), batch_size=2)
    found = explainer((X, Y), target=1, additional_forward_args={"mask": MASK})
    exact = ExactShapley(model, output="logits").attribute(
        (X, Y), (X[:1], 0.5), 1, {"mask": MASK}, (torch.tensor([0, 3, 3, 0]), torch.tensor([2, 2]))
    )
    assert found.feature_names == ["x: group 0", "y", "x: group 1"]  # in the order of their numbers
    np.testing.assert_allclose(
        found.values, torch.stack([exact[0][:, 0], exact[1][:, 0], exact[0][:, 1]], 1), atol=1e-6
    )
    np.testing.assert_allclose(found["x"].values, found.values[:, [0, 2, 1]])
    assert found["y"].feature_names == ["y", "x"]
    assert leads_to(found, model(X, Y, mask=MASK)["logits"][:, 1].detach().numpy())
    report = audit(
        model, found, (X, Y), (X[:1], 0.5), 1, {"mask": MASK}, (torch.tensor([0, 3, 3, 0]), torch.tensor([2, 2])),
        output=0,
    )  # fmt: skip
    assert float(report.rmse.high.max()) < 1e-6
    assert report.stated_base is not None
    with pytest.raises(BadInput, match="player 1 of feature_mask is in several inputs"):
        Explainer(model, output=0, feature_mask=([0, 0, 1, 1], [1, 2]))((X, Y))


def test_an_image_beside_a_table():
    """The part that is an image is one; what the table contributes is in its base."""
    torch.manual_seed(0)
    convolution, last = nn.Conv2d(1, 2, 3), nn.Linear(10, 1)

    def model(image, person):
        return last(
            torch.cat([torch.relu(convolution(image)).flatten(1), person.prod(1, keepdim=True).expand(-1, 2)], 1)
        )

    image, people = (
        torch.rand(3, 1, 4, 4),
        pd.DataFrame({"age": [1.0, 2.0, 3.0], "height": [3.0, 1.0, 2.0]}, dtype=np.float32),
    )
    explainer = Explainer(model, players={"image": "block:2"})
    found = explainer({"image": image, "person": people})
    assert found.feature_names == [f"image: block {i}" for i in range(4)] + ["age", "height"]
    np.testing.assert_allclose(found.data[:, 0], image[:, 0, :2, :2].mean((1, 2)))
    assert found["image"].values.shape == (3, 4, 4, 1)
    assert found["person"].feature_names == ["age", "height", "image"]
    prediction = model(image, torch.tensor(people.to_numpy()).float())[:, 0].detach().numpy()
    assert leads_to(found, prediction)
    assert leads_to(found[1:], prediction[1:])
    by_pixel = Explainer(model, method="bayesian", max_evaluations=40)((image, torch.tensor(people.to_numpy()).float()))
    assert (
        by_pixel.feature_names[5:]
        == [*(f"image: 0, {i}, {j}" for i in range(4) for j in range(4)), "person: 0", "person: 1"][5:]
    )
    assert leads_to(by_pixel, prediction)
    assert by_pixel["image"].error_std.shape == (3, 4, 4, 1)
    with pytest.raises(BadInput, match="players are for the inputs 'picture', and X has"):
        Explainer(model, players={"picture": "block:2"})({"image": image, "person": people})


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
