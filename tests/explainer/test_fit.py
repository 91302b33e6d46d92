"""Functions get the dtype of the rows, modules that of their weights, and what does not fit in it is told."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from dasp import Explainer
from dasp.errors import BadInput

TIMES = np.array([[1.7e9 + 1, 3.0], [1.7e9 + 60, 4.0]])


@pytest.mark.parametrize("given", [TIMES, torch.from_numpy(TIMES), pd.DataFrame(TIMES), TIMES.tolist()])
def test_functions_get_double_precision(given):
    found = Explainer(lambda x: x[:, 0] - 1.7e9, baselines=np.array([[1.7e9, 0.0]]))(given)
    assert found.values.tolist() == [[1, 0], [60, 0]]
    assert found.values.dtype == np.float64
    found = Explainer(lambda x: x[:, 0] - 1.7e9, background=np.array([[1.7e9, 0.0], [1.7e9 + 2, 0]]))(given)
    assert found.values.tolist() == [[0, 0], [59, 0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.int32, np.uint8, np.uint16, bool])
def test_functions_get_the_dtype_of_the_rows(dtype):
    seen = set()

    def watched(x):
        seen.add(x.dtype)
        return x.double().sum(1)

    found = Explainer(watched)(np.array([[1, 0], [1, 1]]).astype(dtype))
    assert found.values.tolist() == [[1, 0], [1, 1]]
    assert seen == {torch.int64 if dtype is np.uint16 else torch.from_numpy(np.zeros(1, dtype)).dtype}


def test_whole_numbers_beyond_single_precision():
    rows = np.array([[2**40 + 1, 3], [2**40 + 60, 4]])
    found = Explainer(lambda x: x[:, 0] - 2**40, baselines=np.array([[2**40, 0]]))(rows)
    assert found.values.tolist() == [[1, 0], [60, 0]]


def test_a_baseline_between_whole_numbers():
    assert Explainer(lambda x: x[:, 0], baselines=0.5)(np.array([[1, 3]])).values.tolist() == [[0.5, 0]]


def test_a_function_in_another_dtype_is_told():
    network = nn.Linear(2, 1)
    with pytest.raises(BadInput, match=r"the rows have dtype torch.float64, .*\(x.float\(\), say\)"):
        Explainer(lambda x: network(x).exp())(np.ones((2, 2)))


@pytest.mark.parametrize(
    ("rows", "off", "lost"),
    [
        (TIMES, [1.7e9, 0.0], True),
        ([[2**24 + 1, 3]], [2**24, 0], True),
        ([[2**60 + 1, 3]], [2**60, 0], True),
        ([[0.1 + 0.2, 3.0]], [0.3, 0.0], False),  # the same but for rounding in double precision, too
        ([[1e-30, 3.0]], [0.0, 0.0], False),
        (TIMES, None, False),
        ([[1.7e9 + 1, 3.0], [1.9e9, 3.0]], [1.7e9, 0.0], False),  # what the first row loses is nothing beside the other
    ],
)
def test_differences_that_a_module_does_not_see_are_told(rows, off, lost, caplog):
    model, rows = nn.Linear(2, 1).eval(), np.array(rows)
    for given in ({"baselines": off}, {"background": None if off is None else np.array([off])}):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "dasp"):
            Explainer(model, **given).attribute(rows)
        assert ("differs from its baseline by less than torch.float32" in caplog.text) == lost
    caplog.clear()
    Explainer(nn.Linear(2, 1).double().eval(), baselines=off).attribute(rows)
    assert ("differs" in caplog.text) == (lost and rows.max() > 2**53)


@pytest.mark.parametrize("where", ["rows", "baselines", "background"])
def test_numbers_that_become_infinite_are_refused(where):
    model, large = nn.Linear(2, 1).eval(), np.array([[0.0, 1.0], [1e300, 0.0]])
    small = np.zeros((2, 2))
    rows = large if where == "rows" else small
    given = {} if where == "rows" else {where: large}
    with pytest.raises(BadInput, match=r"has 1e\+300 in row 1, more than torch.float32 can hold"):
        Explainer(model, **given)(rows)
