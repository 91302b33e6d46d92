"""Functions of data frames get the columns as they are in the background: their names, categories and dtypes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from dasp import Explainer
from dasp.errors import BadInput

SIZES = ["low", "mid", "high"]  # not in the order of the alphabet
NUMBERS = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [0.5, 0.25]})
HALVES = np.array([[-0.5, -1.0, 0.375], [0.5, 1.0, -0.375]])  # w · (x − the mean) for w = 1, 2, 3


def sizes(values: list[str], categories: list[str] = SIZES, *, ordered: bool = True) -> pd.DataFrame:
    column = pd.Categorical(values, categories=categories, ordered=ordered)
    return pd.DataFrame({"size": column, "n": np.arange(len(values), dtype=float)})


BACKGROUND = sizes(["low", "mid", "high", "low"])
FUNCTIONS = {
    "their numbers": lambda table: table["size"].cat.codes.to_numpy() * 10.0 + table["n"].to_numpy(),
    "their order": lambda table: (table["size"] > "low").to_numpy() * 10.0 + table["n"].to_numpy(),
    "their names": lambda table: (table["size"] == "high").to_numpy() * 10.0 + table["n"].to_numpy(),
}
SAME = {
    "as in the background": sizes(SIZES),
    "in another order": sizes(SIZES, ["high", "low", "mid"]),
    "that are not ordered": sizes(SIZES, ordered=False),
    "that are texts": sizes(SIZES).astype({"size": object}),
}


@pytest.mark.parametrize("kind", SAME)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_categories_are_those_of_the_background_in_their_order(kind, name):
    function = FUNCTIONS[name]
    found = Explainer(function, BACKGROUND)(SAME[kind]).values
    mean = function(BACKGROUND.assign(n=0.0)).mean()
    wanted = np.stack([function(sizes(SIZES).assign(n=0.0)) - mean, np.arange(3) - 1.5], 1)  # no interactions
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_categories_that_the_background_lacks():
    function = FUNCTIONS["their names"]
    found = Explainer(function, BACKGROUND.astype({"size": pd.CategoricalDtype(SIZES)}))(sizes(["none"], ["none"]))
    np.testing.assert_allclose(found.values, [[-2.5, -1.5]])
    with pytest.raises(BadInput, match="column 'size' of X has 'none', and its ordered categories are 'low', 'mid', "):
        Explainer(function, BACKGROUND)(sizes(["none"], ["none"]))


def test_columns_may_be_called_by_numbers():
    table = NUMBERS.set_axis([0, 1, 2], axis=1)
    function = lambda given: given[0].to_numpy() + 2 * given[1].to_numpy() + 3 * given[2].to_numpy()
    explainer = Explainer(function, table)
    np.testing.assert_allclose(explainer(table).values, HALVES)
    np.testing.assert_allclose(explainer(table[[2, 0, 1]]).values, HALVES)
    assert explainer(table).feature_names == ["0", "1", "2"]


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", "<f8"])
@pytest.mark.parametrize("kind", ["array", "table"])
def test_bytes_may_be_in_another_order(dtype, kind):
    model = nn.Linear(3, 1, bias=False).eval()
    model.weight.data = torch.tensor([[1.0, 2.0, 3.0]])
    rows = (4 * NUMBERS.to_numpy()).astype(dtype)
    if kind == "table":
        rows = pd.DataFrame({name: rows[:, i].copy() for i, name in enumerate("abc")})
    assert np.dtype(rows.dtypes.iloc[0] if kind == "table" else rows.dtype).str == dtype
    function = lambda given: np.asarray(given, dtype=float) @ np.array([1.0, 2.0, 3.0])
    for explained in (model, function):
        np.testing.assert_allclose(Explainer(explained, rows)(rows).values, 4 * HALVES, rtol=1e-6)


def test_a_column_that_is_there_twice():
    twice = pd.concat([NUMBERS, NUMBERS[["a"]]], axis=1)
    total = lambda table: np.asarray(table, dtype=float).sum(1)
    with pytest.raises(BadInput, match="^the background has two columns called 'a': give each a name of its own$"):
        Explainer(total, twice)
    with pytest.raises(BadInput, match="^X has two columns called 'a': give each a name of its own$"):
        Explainer(total, NUMBERS)(twice)
    model = nn.Linear(4, 1, bias=False).eval()
    model.weight.data = torch.tensor([[1.0, 2.0, 3.0, 0.0]])  # by their places, there is nothing to ask
    np.testing.assert_allclose(Explainer(model, twice)(twice).values, np.pad(HALVES, ((0, 0), (0, 1))), atol=1e-6)
    with pytest.raises(BadInput, match=r"^X .*has columns twice"):
        Explainer(nn.Linear(3, 1).eval(), NUMBERS)(twice)
