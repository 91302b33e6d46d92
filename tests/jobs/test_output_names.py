"""Names of outputs: a target by name is the target by number, and the output file has the names."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from explain_files import dasp, rows, write_good_files
from hypothesis import given
from hypothesis import strategies as st
from small_language import bert_tokenizer, classifier

from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.options import Options
from dasp.jobs.preflight import names_of_outputs
from dasp.jobs.reading.tables import target_numbers, wrong_with

NAMES = ["benign", "malignant", "it's unclear"]
NAMED = ["--output-names", " benign, malignant,it's unclear"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


@pytest.fixture
def labelled(here):
    """Rows with their classes by number and by name, as CSV and Parquet."""
    numbers = np.arange(50) % 3
    table = pd.DataFrame(rows(50), columns=list("abcd"))
    for kind, classes in {"numbers": numbers, "names": [NAMES[i] for i in numbers]}.items():
        table.assign(label=classes).to_csv(f"{kind}.csv", index=False)
        table.assign(label=classes).to_parquet(f"{kind}.parquet")
    table.assign(label=pd.Categorical([NAMES[i] for i in numbers])).to_parquet("categories.parquet")
    return table


def explained(*arguments, output="out.parquet"):
    result = dasp("explain", *arguments, "-o", output, "--overwrite")
    assert result.code == 0, result.err
    return (pd.read_csv if output.endswith(".csv") else pd.read_parquet)(output), result.out


def result_of(file="out.parquet"):
    return json.loads(pq.read_metadata(file).metadata[b"dasp result"])


def test_a_target_by_name_is_that_by_number(here):
    by_number, said = explained("small:build", "rows.csv", "--target", "1")
    assert "target:" not in said
    assert result_of()["output_names"] == []
    for data, target in [("rows.csv", "malignant"), ("rows.csv", "1")]:
        by_name, said = explained("small:build", data, "--target", target, *NAMED)
        assert "target: output 1, 'malignant'" in said
        pd.testing.assert_frame_equal(by_name, by_number)
        assert result_of()["output_names"] == NAMES
    arrays, _ = explained("small:build", "rows.npy", "--target", "malignant", *NAMED)
    np.testing.assert_array_equal(arrays.target, by_number.target)


def test_the_names_are_beside_a_csv_file(here):
    explained("small:build", "rows.csv", *NAMED, output="out.csv")
    assert json.loads(Path("out.csv.json").read_text())["result"]["output_names"] == NAMES
    explained("small:single", "rows.csv", "--output-names", "risk", "--target", "risk")
    assert result_of()["output_names"] == ["risk"]


@pytest.mark.parametrize("data", ["names.csv", "names.parquet", "categories.parquet", "numbers.csv", "numbers.parquet"])
def test_a_column_of_classes(labelled, data):
    expected, _ = explained("small:build", "numbers.csv", "--target", "label")
    found, said = explained("small:build", data, "--target", "label", "--chunk", "7", *NAMED)
    assert "target: column 'label', of 3 outputs" in said
    assert list(found.target) == list(np.arange(50) % 3)
    pd.testing.assert_frame_equal(found, expected, atol=1e-6)  # gaps are rounding, which may depend on the chunk


def test_what_a_column_of_classes_may_have_instead_of_names(labelled):
    texts = [" malignant", "", "NA", "2", "1.0", "True", "benign"]
    labelled[:7].assign(label=texts).to_csv("mixed.csv", index=False)
    found, _ = explained("small:build", "mixed.csv", "--target", "label", "--on-bad-row", "skip", *NAMED)
    assert list(found.id) == [0, 3, 4, 5, 6]
    assert list(found.target) == [1, 2, 1, 1, 0]
    twice, _ = explained("small:build", "names.csv", "--target", "label", "--id", "label", *NAMED)
    assert [NAMES[i] for i in twice.target] == list(twice.id)


def test_an_output_goes_before_a_column_of_its_name(here):
    by_number, _ = explained("small:build", "rows.csv", "--target", "2")
    by_name, _ = explained("small:build", "rows.csv", "--target", "a", "--output-names", "x,y,a")
    pd.testing.assert_frame_equal(by_name, by_number)


def test_other_names_do_not_mix(here, monkeypatch):
    command = ["explain", "small:build", "rows.csv", "--chunk", "8", "--target", "x", "-o", "out.parquet"]
    commit = Checkpoint.commit

    def stop(self, number, table):
        commit(self, number, table)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", stop)
        assert dasp(*command, "--output-names", "x,y,z").code == 130
    result = dasp(*command, "--output-names", "y,x,z")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "--output-names was x,y,z, and is y,x,z now" in result.err
    assert "resumed: 8 of 50 rows" in dasp(*command, "--output-names", "x,y,z").out
    assert set(pd.read_parquet("out.parquet").target) == {0}
    assert result_of()["output_names"] == ["x", "y", "z"]


@given(st.lists(st.text(max_size=3) | st.sampled_from(["0", "1", "1.0", "true", "nan"]), min_size=1, max_size=4))
def test_names_that_are_allowed_are_found(names):
    names = [name.strip() for name in names]
    if wrong_with(names) is None:
        np.testing.assert_array_equal(target_numbers(names, names, 0), np.arange(len(names)))
        numbers = [str(i) for i in range(len(names))]
        np.testing.assert_array_equal(target_numbers(numbers, names, 0), np.arange(len(names)))  # which no name changes


LABELS = {
    "names": ({"0": "bad", "1": " fair", "2": "good"}, ("bad", "fair", "good")),
    "names in another order": ({"2": "good", "0": "bad", "1": "fair"}, ("bad", "fair", "good")),
    "own numbers": ({"0": 0, "1": 1}, ("0", "1")),
    "placeholders": ({"0": "LABEL_0", "1": "LABEL_1"}, None),
    "other numbers": ({"0": "1", "1": "2"}, None),
    "a name twice": ({"0": "a", "1": "a"}, None),
    "a gap": ({"0": "a", "2": "b"}, None),
    "no numbers": ({"a": 0, "b": 1}, None),
    "a list": (["a", "b"], None),
    "nothing": ({}, None),
    "no text": ({"0": "a", "1": "\ud800"}, None),
}


@pytest.mark.parametrize("case", LABELS)
def test_names_of_a_config(tmp_path, case):
    labels, expected = LABELS[case]
    options = Options(model=str(tmp_path), data=Path("rows.csv"), output=tmp_path / "out.parquet")
    assert names_of_outputs(options) is None
    for text in ("[", "[]", "3", "{}"):
        (tmp_path / "config.json").write_text(text)
        assert names_of_outputs(options) is None
    (tmp_path / "config.json").write_text(json.dumps({"id2label": labels}))
    assert names_of_outputs(options) == expected


@pytest.fixture
def language(tmp_path, monkeypatch):
    """A classifier of texts whose config has names, and texts with classes."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("small", None)
    tokenizer = bert_tokenizer(model_max_length=48)
    model = classifier("bert", tokenizer)
    name_outputs(tokenizer, model, ["negative", "neutral", "positive"])
    texts = ["A good film is never too long.", "the lazy dog", "a film. a dog."]
    data = pd.DataFrame({"review": texts, "label": ["positive", "negative", "neutral"], "fair": [1, 1, 0]})
    data.to_csv("reviews.csv", index=False)
    return tokenizer, model


def name_outputs(tokenizer, model, names):
    model.config.id2label = dict(enumerate(names))
    for part in (tokenizer, model):
        part.save_pretrained("language")


def test_names_of_a_classifier_of_texts(language):
    command = ["language", "reviews.csv", "--text", "review", "--players", "word"]
    by_number, _ = explained(*command, "--target", "2")
    assert result_of()["output_names"] == ["negative", "neutral", "positive"]
    by_name, said = explained(*command, "--target", "positive")
    assert "target: output 2, 'positive'" in said
    pd.testing.assert_frame_equal(by_name, by_number)
    assert list(explained(*command, "--target", "label")[0].target) == [2, 0, 1]
    assert set(explained(*command, "--target", "good", "--output-names", "poor,fair,good")[0].target) == {2}
    assert result_of()["output_names"] == ["poor", "fair", "good"]
    result = dasp("explain", *command, "--target", "posit", "-o", "new.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "no column 'posit'" in result.err
    assert "outputs are 'negative', 'neutral', 'positive'" in result.err

    name_outputs(*language, ["poor", "fair", "good"])  # a column that has been a target stays one
    assert list(explained(*command, "--target", "fair")[0].target) == [1, 1, 0]
    name_outputs(*language, ["LABEL_0", "LABEL_1", "LABEL_2"])
    explained(*command)
    assert result_of()["output_names"] == []


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)


def test_names_are_compared_with_few_others():
    """100,000 of them took minutes."""
    names = [Counted(f"label {i}") for i in range(2000)]
    Counted.compared = 0
    assert wrong_with(names) is None
    assert Counted.compared < 5 * len(names)
    assert wrong_with([*names, Counted("label 7")]) == "'label 7' is there twice; every output needs a name of its own"
