"""`dasp explain … --text`: a column of texts, explained by their words, tokens or sentences."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from explain_files import besides_random, dasp
from small_language import bert_tokenizer, classifier

from dasp import TextExplainer
from dasp.jobs.summary import Summary
from dasp.jobs.worker import TextWorker

TEXTS = ["A good film is never too long.", "the lazy dog", "They say: really?\nThe quick, quick fox.", "a film. a dog."]
LONG = "the quick brown fox does not jump over the lazy dog they say " * 2
FACTORY = """
import torch

from dasp.models.loading import load_model


def build():
    return load_model("language")


class Poles(torch.nn.Module):
    \"\"\"Infinite where a text has a dog.\"\"\"

    def __init__(self):
        super().__init__()
        self.inner = build()

    def forward(self, input_ids, attention_mask):
        logits = self.inner(input_ids, attention_mask).logits
        return torch.where((input_ids == DOG).any(1)[:, None], torch.inf, logits)
"""


@pytest.fixture(scope="module")
def language():
    """A tokenizer and a model."""
    tokenizer = bert_tokenizer(model_max_length=48)
    return tokenizer, classifier("bert", tokenizer)


@pytest.fixture(scope="module")
def saved(language, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts") / "language"
    for part in language:
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def here(saved, language, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved, "language")
    dog = language[0]("dog", add_special_tokens=False)["input_ids"][-1]
    Path("talking.py").write_text(FACTORY.replace("DOG", str(dog)))
    sys.modules.pop("talking", None)
    data = pd.DataFrame({"name": list("abcd"), "stars": [1, 2, 3, 4], "review": TEXTS, "label": [0, 2, 1, 1]})
    data.to_csv("reviews.csv", index=False)
    data.to_parquet("reviews.parquet")
    return tmp_path


def done(*arguments, output="out.parquet"):
    result = dasp("explain", *arguments, "--text", "review", "-o", output, "--overwrite")
    assert (result.code, besides_random(result.err)) == (0, "")
    return pd.read_parquet(output)


def refused(*arguments):
    result = dasp("explain", *arguments, "-o", "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert not Path("out.parquet").exists()
    assert not Path("out.parquet.parts").exists()
    return result.err


@pytest.mark.parametrize(
    ("players", "absent"), [("word", "mask"), ("token", "drop"), ("sentence", "pad"), ("word", "so")]
)
def test_values_are_those_of_a_text_explainer(here, language, players, absent):
    tokenizer, model = language
    how = ["--players", players, "--baselines", absent, "--target", "1", "--max-evaluations", "64"]
    table = done("language", "reviews.csv", *how, "--chunk", "3")
    expected = TextExplainer(model, tokenizer, players=players, baselines=absent, max_evaluations=64)(TEXTS, target=1)
    assert list(table)[:4] == ["id", "target", "prediction", "base_value"]
    assert list(table)[4:] == ["pieces", "values", "error_std", "gap", "method", "evaluations"]
    for i, text in enumerate(TEXTS):
        assert "".join(table["pieces"][i]) == text
        assert list(table["pieces"][i]) == list(expected[i].data)
        np.testing.assert_array_equal(table["values"][i], expected[i].values)
        np.testing.assert_array_equal(table["error_std"][i], expected[i].error_std)
    np.testing.assert_array_equal(table["base_value"], expected.base_values)
    outputs = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.detach()[:, 1]
    torch.testing.assert_close(torch.tensor(table["prediction"].to_numpy()), outputs)
    together = table["values"].map(sum) - (table["prediction"] - table["base_value"])
    np.testing.assert_allclose(together, table["gap"], atol=1e-6)


def test_what_is_sampled_follows_the_seed(here, language):
    pd.DataFrame({"review": [LONG]}).to_csv("long.csv", index=False)
    options = ["--max-evaluations", "120", "--tolerance", "1e-9", "--batch-size", "7"]
    result = dasp("explain", "language", "long.csv", "--text", "review", "-o", "out.parquet", *options, "--seed", "3")
    assert "1 of 1 rows did not reach --tolerance 1e-09" in result.out
    table = pd.read_parquet("out.parquet")
    options_of_explainer = {"max_evaluations": 120, "tolerance": 1e-9, "seed": 3, "batch_size": 7}
    expected = TextExplainer(language[1], language[0], **options_of_explainer)(LONG, target="predicted")
    np.testing.assert_array_equal(table["values"][0], expected.values)
    assert (table["method"][0], table["error_std"][0].min() > 0) == ("bayesian_shapley", True)
    assert (done("language", "long.csv", *options)["values"][0] != table["values"][0]).any()


def test_folder_and_factory_and_kind_of_file_are_all_the_same(here):
    how = ["--id", "name", "--target", "label", "--players", "sentence"]
    table = done("language", "reviews.csv", *how)
    assert list(table["id"]) == list("abcd")
    assert list(table["target"]) == [0, 2, 1, 1]
    shutil.copytree("language", "words", ignore=lambda *_: ["model.safetensors", "config.json"])
    for name in Path("language").glob("tokenizer*"):
        name.unlink()
    for model, data in [("language", "reviews.parquet"), ("talking:build", "reviews.csv")]:
        again = done(model, data, *how, "--tokenizer", "words")
        pd.testing.assert_frame_equal(again, table)


def test_a_job_goes_on_where_it_was(here, monkeypatch):
    command = ["explain", "language", "reviews.csv", "--text", "review", "--chunk", "1", "-o"]
    assert dasp(*command, "whole.parquet").code == 0
    explain, left = TextWorker.explain, [0, 0]

    def interrupted(worker, chunk):
        left.pop() if left else (_ for _ in ()).throw(KeyboardInterrupt)
        return explain(worker, chunk)

    monkeypatch.setattr(TextWorker, "explain", interrupted)
    assert dasp(*command, "out.parquet").code == 130
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert "resumed: 2 of 4 rows were done before" in dasp(*command, "out.parquet").out
    assert Path("out.parquet").read_bytes() == Path("whole.parquet").read_bytes()


@pytest.mark.parametrize(("file", "name"), [("words/tokenizer.json", "--tokenizer"), ("language/extra.json", "MODEL")])
def test_model_and_tokenizer_are_part_of_the_job(here, file, name):
    shutil.copytree("language", "words")
    command = ["explain", "language", "reviews.csv", "--text", "review", "--tokenizer", "words", "-o", "out.parquet"]
    assert dasp(*command).code == 0
    path = Path(file)
    path.write_text(path.read_text() + "\n" if path.exists() else "{}")
    result = dasp(*command)
    assert (result.code, f"{name} has changed" in result.err) == (2, True)


def test_the_job_tells_what_an_absent_piece_was(here):
    done("language", "reviews.csv")
    job = json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])
    assert job["absent"]["options"] == {"baselines": "mask"}
    assert job["software"]["transformers"]


# Bad rows


def test_empty_texts_are_left_out(here):
    pd.DataFrame({"review": ["a good film", "", " \n", None, "the dog"]}).to_parquet("gaps.parquet")
    assert "column 'review' is missing or empty in row 1" in refused("language", "gaps.parquet", "--text", "review")
    assert list(done("language", "gaps.parquet", "--on-bad-row", "skip")["id"]) == [0, 4]


def test_outputs_that_are_not_finite(here):
    command = ["talking:Poles", "reviews.csv", "--tokenizer", "language", "--target", "0", "--chunk", "3"]
    command += ["--text", "review"]
    result = dasp("explain", *command, "-o", "out.parquet")
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1)
    assert "the model's output for the text of id 1 is not finite" in result.err
    result = dasp("explain", *command, "-o", "out.parquet", "--on-bad-row", "skip")
    assert "left out, as the model's output is not finite: 2 rows (id 1, 3)" in result.out
    assert list(pd.read_parquet("out.parquet")["id"]) == [0, 2]


def test_texts_that_are_too_long_are_cut_off(here):
    pd.DataFrame({"review": ["the dog", LONG * 4]}).to_csv("long.csv", index=False)
    result = dasp("explain", "language", "long.csv", "--text", "review", "-o", "out.parquet", "--max-evaluations", "99")
    assert (result.code, result.err) == (0, "")
    assert "warning: 1 of 2 texts are longer than the model takes" in result.out
    assert pd.read_parquet("out.parquet")["values"][1][-1] == 0


# Models


def test_weights_that_are_not_there(here, language):
    language[1].bert.save_pretrained("language")
    assert "has no weights for" in refused("language", "reviews.csv", "--text", "review")


def test_models_that_can_run_code(here):
    config = json.loads(Path("language/config.json").read_text())
    for more in ({"attn_implementation": "somebody/kernels"}, {"quantization_config": {"quant_method": "x"}}):
        Path("language/config.json").write_text(json.dumps(config | more))
        assert "give --trust" in refused("language", "reviews.csv", "--text", "review")
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForSequenceClassification": "own.M"}}
    Path("language/config.json").write_text(json.dumps(config | own))
    Path("language/own.py").write_text("raise SystemExit(7)")
    assert "with code of its own, which can run any code" in refused("language", "reviews.csv", "--text", "review")
    Path("language/config.json").write_text(json.dumps(config))
    Path("language/model.safetensors").rename("language/pytorch_model.bin")
    assert "without a .safetensors file, and so a pickle" in refused("language", "reviews.csv", "--text", "review")


def test_pickles_are_read_if_they_are_trusted(here, language):
    before = done("language", "reviews.csv", "--players", "sentence")
    Path("language/model.safetensors").unlink()
    torch.save(language[1].state_dict(), "language/pytorch_model.bin")
    pd.testing.assert_frame_equal(done("language", "reviews.csv", "--players", "sentence", "--trust"), before)


def test_the_output_is_not_among_the_models_files(here):
    result = dasp("explain", "language", "reviews.csv", "--text", "review", "-o", "language/out.parquet")
    assert (result.code, "is in a folder that is read (MODEL)" in result.err) == (2, True)


def test_transformers_is_missing(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    expected = "dasp: transformers is missing: pip install 'torch-dasp[text]'\n"
    assert refused("language", "reviews.csv", "--text", "review") == expected


# The summary


def test_words_that_come_again_are_summarised():
    pieces = [["Good, ", "dog "], ["“good” ", "film "], ["dog.", "s" * 50], ["s" * 50, "!?"]]
    values = [[1.0, -4.0], [-3.0, 9.0], [1.0, 9.0], [9.0, 9.0]]
    summary = Summary()
    summary.add(pa.table({"base_value": [0.0] * 4, "pieces": pieces, "values": values, "gap": [0.0] * 4}))
    title, *lines = summary.lines(20, plain=True)
    assert title == "most important of what occurs twice or more, by the mean of |value|:"
    assert [line.split() for line in lines] == [["dog", "2.500"], ["good", "2.000"]]


def test_the_difference_of_two_probabilities(here, language):
    """It is decided on the first texts what makes probabilities of the outputs, and is the same in every chunk."""
    options = ("--versus", "second", "--model-output", "probability", "--chunk", "1", "--report", "page.html")
    result = dasp("explain", "language", "reviews.csv", "--text", "review", *options, "-o", "out.parquet")
    assert result.code == 0, result.err
    table = pd.read_parquet("out.parquet")
    tokenizer, model = language
    truth = TextExplainer(model, tokenizer, output=lambda out: out.logits.softmax(1)).attribute(TEXTS)
    order = truth.prediction.argsort(1, descending=True)
    assert np.array_equal(table[["target", "versus"]], order[:, :2])
    for i, (target, versus) in enumerate(order[:, :2].tolist()):
        np.testing.assert_allclose(table["values"][i], truth.values[i][target] - truth.values[i][versus], atol=1e-5)
    assert "rather than" in Path("page.html").read_text()
