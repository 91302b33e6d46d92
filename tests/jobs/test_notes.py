"""`dasp explain`: what is said of rows that cannot be explained, or not as was asked for: once, at the end."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from explain_files import besides_random, dasp, rows, write_good_files


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def said(*arguments):
    """The warnings of a command that succeeds; nothing else may be on stderr."""
    result = dasp("explain", *arguments, "-o", "out.parquet", "--overwrite")
    assert (result.code, besides_random(result.err)) == (0, "")
    return [line for line in result.out.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize("method", ["gradient", "BayesianShapley on GradientDASP"])
def test_squares_that_overflow(here, method):
    x = rows(10, 40)
    x[[0, 6], 2] = 1e25  # also a row that the method is tried on
    np.save("large.npy", x)
    (here / "wide.py").write_text((here / "small.py").read_text() + "\n\ndef wide():\n    return build(inputs=40)\n")
    command = ["explain", "wide:wide", "large.npy", "--method", method, "--chunk", "4", "-o", "out.parquet"]
    result = dasp(*command)
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert "squares in the row of id 0 overflow; --on-bad-row skip leaves such rows out" in result.err
    result = dasp(*command, "--on-bad-row", "skip")
    assert (result.code, besides_random(result.err)) == (0, "")
    assert "left out, as the model's output is not finite or squares overflow: 2 rows (id 0, 6)" in result.out
    table = pd.read_parquet("out.parquet")
    assert list(table.id) == [1, 2, 3, 4, 5, 7, 8, 9]
    assert np.isfinite(table[["prediction", "x0", "x3"]]).all(axis=None)


def test_outputs_that_are_not_finite(here):
    x = rows(20)
    x[[5, 11, 12, 13, 14, 15], 0] = 7  # all of chunk 3, too
    np.save("pole.npy", x)
    command = ["explain", "small:Pole", "pole.npy", "--chunk", "4", "-o", "out.parquet"]
    result = dasp(*command)
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "the model's output for the row of id 5 is not finite; --on-bad-row skip" in result.err
    result = dasp(*command, "--on-bad-row", "skip")
    assert result.code == 0
    assert "resumed: 4 of 20 rows were done before" in result.out
    assert "left out, as the model's output is not finite: 6 rows (id 5, 11, 12, 13, 14, 15)" in result.out
    table = pd.read_parquet("out.parquet")
    assert list(table.id) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 16, 17, 18, 19]
    assert np.isfinite(table[["prediction", "x0", "x3"]]).all(axis=None)


def test_coalitions_that_are_not_finite(here):
    x = rows(3)
    x[1, :3] = 3, 4, 1  # not the row, but a coalition of it
    np.save("sums.npy", x)
    result = dasp("explain", "small:Surface", "sums.npy", "-o", "out.parquet")
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert "the model's output for coalitions of the row of id 1 is not finite; --on-bad-row skip" in result.err
    left_out = "warning: left out, as the model's output is not finite for coalitions of the row: 1 rows (id 1)"
    assert said("small:Surface", "sums.npy", "--on-bad-row", "skip") == [left_out]
    assert list(pd.read_parquet("out.parquet").id) == [0, 2]


@pytest.mark.parametrize(
    ("model", "method", "most"),
    [("wide", "permutation", ["--max-evaluations", "100"]), ("wide", "bayesian", ["--max-evaluations", "100"]),
     ("abrupt", "gradient", [])],
)  # fmt: skip
def test_a_tolerance_that_is_missed(here, model, method, most):
    np.save("x.npy", rows(6, 16 if model == "abrupt" else 12))
    command = [f"small:{model}", "x.npy", "--chunk", "2", "--target", "0", "--method", method, *most]
    (line,) = (line for line in said(*command, "--tolerance", "1e-6") if "did not reach --tolerance 1e-06" in line)
    if model == "wide":  # of the other, gaps of some rows are the model's own rounding
        assert line.startswith("warning: 6 of 6 rows")
    assert not any("tolerance 1e+06" in line for line in said(*command, "--tolerance", "1e6"))

    if method == "bayesian":  # says little of players that it has not seen
        command[-1] = "20"
        assert "warning: 6 of 6 rows did not reach --tolerance 1e+06" in said(*command, "--tolerance", "1e6")


def test_gaps_are_said_once(here):
    np.save("ones.npy", np.ones((5, 16), np.float32))
    (line,) = said("small:abrupt", "ones.npy", "--chunk", "2", "--method", "dasp")
    assert "the values of 5 of 5 rows miss prediction − base_value by more than 10% of their sizes" in line
    np.save("wide.npy", rows(5, 12))
    assert not said("small:wide", "wide.npy", "--method", "dasp")
