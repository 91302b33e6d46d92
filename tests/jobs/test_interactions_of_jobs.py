"""`dasp explain --interactions`: pairs of players from the evaluations at hand, or a sentence why not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from explain_files import dasp, rows, write_csv, write_good_files
from test_resume import stopping

from dasp import Explainer
from dasp.attribution import exact
from dasp.jobs import plan

PAIRS = ("interactions", "interactions_std")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_good_files(tmp_path)
    np.save(tmp_path / "wide.npy", rows(6, 12))
    np.save(tmp_path / "wider.npy", rows(4, 31))
    np.save(tmp_path / "pictures.npy", rows(4, 16).reshape(4, 1, 4, 4))
    return tmp_path


def explained(*arguments, output="out.parquet"):
    done = dasp("explain", *arguments, "--interactions", "--threads", 1, "-o", output)
    assert done.code == 0, done.err
    return pq.read_table(output)


@pytest.mark.parametrize(
    ("model", "data", "options"),
    [
        ("single", "rows.npy", {"method": "exact"}),
        ("build", "rows.npy", {"method": "exact", "target": 1}),
        ("wide", "wide.npy", {"method": "bayesian", "max_evaluations": 100, "target": 0}),
        ("wide", "wide.npy", {"method": "bayesian", "max_evaluations": 600, "tolerance": 0.02, "target": 2}),
    ],
)
def test_they_are_those_of_an_explainer(here, model, data, options):
    given = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    table = explained(f"small:{model}", data, *given)
    x = torch.from_numpy(np.load(data))
    import small  # noqa: PLC0415 (it was written into this folder)

    found = Explainer(getattr(small, model)(), **options).attribute(x).interactions()
    pairs = list(combinations(range(x.shape[1]), 2))
    for name, expected in zip(PAIRS, (found.values, found.error_std), strict=True):
        assert str(table[name].type) == f"fixed_size_list<element: float>[{len(pairs)}]"
        listed = np.stack([expected[:, one, other] for one, other in pairs], 1)
        np.testing.assert_allclose(table[name].to_pylist(), listed, rtol=1e-4, atol=1e-6)
    assert np.abs(table["interactions"].to_pylist()).max() > 1e-3
    assert np.any(table["interactions_std"].to_pylist()) == (options["method"] == "bayesian")


def test_groups_are_players(here):
    (here / "groups.json").write_text('{"one": ["b", "d"], "two": ["a"], "three": ["c"]}')
    table = explained("small:single", "rows.csv", "--players", "groups.json")
    import small  # noqa: PLC0415

    x = torch.from_numpy(np.load("rows.npy"))
    found = Explainer(small.single(), feature_mask=torch.tensor([1, 0, 2, 0])).attribute(x).interactions()
    listed = found.values[:, [0, 0, 1], [1, 2, 2]]
    np.testing.assert_allclose(table["interactions"].to_pylist(), listed, rtol=1e-4, atol=1e-6)


def test_values_are_the_same_without_them(here):
    whole = explained("small:build", "rows.csv")
    assert dasp("explain", "small:build", "rows.csv", "--threads", 1, "-o", "other.parquet").code == 0
    assert whole.drop_columns(list(PAIRS)).equals(pq.read_table("other.parquet"))


def test_resumed_they_are_the_same_bytes(here, monkeypatch):
    arguments = ["small:wide", "wide.npy", "--method", "bayesian", "--max-evaluations", 100, "--chunk", 2]
    explained(*arguments, output="whole.parquet")
    arguments += ["--interactions", "--threads", 1, "-o", "out.parquet"]
    with monkeypatch.context() as patch:
        stopping(patch, after=2)
        assert dasp("explain", *arguments).code == 130
    refused = dasp("explain", *[part for part in arguments if part != "--interactions"])
    assert "--interactions was True, and is False now" in refused.err
    assert "resumed: 4 of 6 rows were done before" in dasp("explain", *arguments).out
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


def test_rows_without_evaluations(here, monkeypatch):
    """Where no evaluations are kept, nothing is known; where no two players do anything, all is."""
    table = rows(4)
    table[1, 1:] = table[2] = 0
    write_csv(here / "idle.csv", table)
    monkeypatch.setattr(exact, "MOST_KEPT", 1)
    found = explained("small:single", "idle.csv")
    for name in PAIRS:
        assert found[name].to_pylist() == [None, [0.0] * 6, [0.0] * 6, None]
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(here)
    found = explained("small:single", "idle.csv", output="kept.parquet")
    assert [not any(row) for row in found["interactions"].to_pylist()] == [False, True, True, False]


def test_chunks_are_as_large_as_evaluations_are_kept(here, monkeypatch):
    monkeypatch.setattr(plan, "MOST_KEPT", 16 * 7)
    table = explained("small:single", "rows.csv", "--method", "exact")
    assert b'"chunk": 7' in pq.read_schema("out.parquet").metadata[b"dasp"]
    assert table["interactions"].null_count == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("build rows.csv --method gradient", "GradientDASP has none: give --method bayesian or exact"),
        ("build rows.csv --method permutation", "Permutations has none: give --method bayesian or exact"),
        ("build rows.csv -o out.csv", "--interactions writes lists; a name that ends in .parquet is needed"),
        ("build rows.csv --text a", "--interactions is for numbers, and --text names texts: leave it out"),
        ("build wider.npy", "30 players at most, and there are 31: group inputs by --players, or leave it out"),
        ("build rows.npy --players window:4", "needs two players, and there is only one: leave it out"),
        ("pictures pictures.npy --players superpixel:4", "every row has its own: give block:N instead"),
        ("build rows.csv --method exact --chunk 2000000", "give --chunk 1048576 or less"),
    ],
)
def test_what_cannot_be_done_is_refused_first(here, arguments, why):
    model, *others = arguments.split()
    output = [] if "-o" in others else ["-o", "out.parquet"]
    result = dasp("explain", f"small:{model}", *others, "--interactions", *output)
    assert result.code == 2
    assert why in result.err.splitlines()[-1]
    assert "--interactions" in result.err
    assert not list(here.glob("out.*"))


def test_more_evaluations_than_can_be_kept_are_refused(here, monkeypatch):
    monkeypatch.setattr(plan, "MOST_KEPT", 15)
    result = dasp("explain", "small:build", "rows.csv", "--method", "exact", "--interactions", "-o", "out.parquet")
    assert result.code == 2
    assert "keeps 15 evaluations at most, and a row takes 16: give --method bayesian" in result.err
