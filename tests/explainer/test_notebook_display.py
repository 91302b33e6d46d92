"""What notebooks show of explanations."""

from __future__ import annotations

import base64
import copy
import pickle
import re
import sys
import warnings

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from torch import nn

from dasp import Explainer
from dasp.explainer.explanation import Explanation
from dasp.players import blocks

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own
    import shap


@pytest.fixture(scope="module")
def found():
    """All outputs of a few rows."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    names = ["<age>", "b", "c", "d"]
    return Explainer(model, feature_names=names, output_names=["cat", "dog"])(torch.rand(5, 4))


def picture(explanation):
    """The words and the picture that a notebook shows."""
    match = re.fullmatch(
        r'<img alt="([^"]*)" style="max-width:100%" src="data:image/png;base64,([^"]*)">', explanation._repr_html_()
    )
    assert base64.b64decode(match[2]).startswith(b"\x89PNG")
    return match[1]


def test_parts_of_an_explanation_are_of_its_class(found):
    dog = found[:, :, "dog"]
    parts = [found, dog, dog[0], dog[:, 1], dog[:3], dog.abs, dog.mean(0), dog + 1, copy.deepcopy(dog)]
    assert all(type(part) is Explanation for part in [*parts, pickle.loads(pickle.dumps(dog))])
    assert all(isinstance(part, shap.Explanation) for part in parts)
    assert np.array_equal(dog.values, found.values[:, :, 1])
    assert dog.output_names == "dog"


def test_a_row_is_a_waterfall_and_rows_are_bars(found):
    figures = plt.get_fignums()
    row, rows = found[0][:, "dog"], found[:, :, "dog"]
    words = picture(row)
    assert words.startswith("Values of 4 features, which add ")
    assert "&lt;age&gt; " in words
    assert picture(rows).startswith("Mean |value| of 4 features over 5 rows. The largest: ")
    assert plt.get_fignums() == figures
    assert found._repr_html_() is None  # several outputs have no one picture: the text is shown


def test_tensors_are_shown_too():
    explainer = Explainer(nn.Linear(3, 1).eval())
    assert "over 4 rows" in picture(explainer.attribute(torch.rand(4, 3), target=0))
    assert picture(explainer.attribute(torch.rand(1, 3), target=0)).startswith("Values of 3 features")


def test_images_are_shown_as_images():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 1)).eval()
    images = Explainer(model, feature_mask=blocks((3, 4, 4), 2))(torch.rand(2, 3, 4, 4), target=0)
    assert "of 2 image" in picture(images)
    assert "of 1 image" in picture(images[1])


def test_texts_are_highlighted():
    pieces = np.array([["a <b>", "c"]], dtype=object)
    shown = Explanation(np.array([[1.0, -1.0]]), np.zeros(1), pieces)._repr_html_()
    assert shown.startswith('<p dir="auto"><span')
    assert "a &lt;b&gt;" in shown


def test_plots_of_shap_take_it(found):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # shap's own
        shap.plots.waterfall(found[0][:, "dog"], show=False)
        shap.plots.bar(found[:, :, "dog"], show=False)
    plt.close("all")


def test_without_matplotlib_the_text_is_shown(found, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("dasp.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert found[0][:, "dog"]._repr_html_() is None
