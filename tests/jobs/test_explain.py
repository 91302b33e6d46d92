"""`dasp explain`: what is in the output."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from explain_files import besides_random, dasp, rows, write_csv, write_good_files
from PIL import Image
from safetensors.torch import save_file
from small_language import bert_tokenizer, classifier
from torch import nn

from dasp import ExactShapley, GradientDASP
from dasp.games import progress
from dasp.jobs.options import Options
from dasp.jobs.plan import plan
from dasp.jobs.preflight import preflight
from dasp.jobs.reading.chunks import open_data
from dasp.jobs.record import JobRecord
from dasp.models.loading import load_model


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def build(inputs=4, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).eval()


def done(*arguments):
    """The command, which must succeed; its output as a table."""
    result = dasp("explain", *arguments, "-o", "out.parquet", "--overwrite")
    assert result.code == 0, result.err
    assert not besides_random(result.err)
    return pd.read_parquet("out.parquet")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npy", "npz"])
def test_values_are_those_of_the_method(here, kind):
    table = done("small:build", f"rows.{kind}", "--target", "1", "--chunk", "8")
    x = torch.from_numpy(rows(50))
    exact = ExactShapley(build()).attribute(x, target=1)
    names = ["x0", "x1", "x2", "x3"] if kind in ("npy", "npz") else list("abcd")
    bars = [f"error_std:{name}" for name in names]
    assert list(table) == ["id", "target", "prediction", "base_value", *names, *bars, "gap", "method", "evaluations"]
    assert (table.evaluations == 2**4).all()
    assert (table[bars] == 0).all(axis=None)  # exact
    assert np.allclose(table[names], exact, atol=1e-5)
    assert np.allclose(table.prediction, build()(x).detach()[:, 1], atol=1e-5)
    assert np.allclose(table.prediction - table.base_value, table[names].sum(axis=1), atol=1e-5)
    assert list(table.id) == list(range(50))
    assert set(table.method) == {"exact_shapley"}
    assert not (here / "out.parquet.parts").exists()


def test_why_this_output_and_not_that_one(here):
    """The difference of two outputs, also of probabilities, which is another job and another page."""
    names = ("--output-names", "red,green,blue")
    table = done("small:build", "rows.csv", *names, "--target", "blue", "--versus", "red", "--report", "page.html")
    assert list(table)[:4] == ["id", "target", "versus", "prediction"]
    assert (table.target == 2).all()
    assert (table.versus == 0).all()
    x = torch.from_numpy(rows(50))
    exact = ExactShapley(build()).attribute(x)
    assert np.allclose(table[list("abcd")], exact[:, 2] - exact[:, 0], atol=1e-5)
    page = Path("page.html").read_text()
    assert "difference of two of the model’s outputs: <b>blue rather than red</b>" in page
    assert "blue rather than red, of 3 outputs" in page
    other = dasp(
        "explain", "small:build", "rows.csv", *names, "--target", "blue", "--versus", "green", "-o", "out.parquet"
    )
    assert other.code == 2
    assert "--versus was red, and is green now" in other.err
    table = done("small:build", "rows.csv", "--versus", "second", "--model-output", "probability", "--chunk", "8")
    likely = build()(x).softmax(1).detach()
    order = likely.argsort(1, descending=True)
    assert np.array_equal(table[["target", "versus"]], order[:, :2])
    assert np.allclose(table.prediction, likely.gather(1, order[:, :1])[:, 0] - likely.gather(1, order[:, 1:2])[:, 0])
    assert dasp("report", "out.parquet", "page.html").code == 0
    pairs = {f'"output {a} rather than {b}"' for a, b in set(zip(table.target, table.versus, strict=True))}
    assert len(pairs) > 1
    assert all(pair in Path("page.html").read_text() for pair in pairs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--versus", "blue"), "--versus is 'blue', which is none of the model's outputs: name the outputs by"),
        (("--versus", "3"), "--versus is 3, but the model has 3 outputs; outputs are 0 to 2"),
        (("--versus", "1", "--target", "1"), "the same output, 1: their difference is 0"),
        (("--model-output", "logit"), "if they are logits, leave it out"),
        (("--model-output", "scores"), "the model returns no 'scores': it returns one tensor"),
    ],
)
def test_what_cannot_be_compared_is_refused(here, options, message):
    result = dasp("explain", "small:build", "rows.csv", *options, "-o", "out.parquet")
    assert result.code == 2
    assert message in result.err
    single = dasp("explain", "small:single", "rows.csv", "--versus", "0", "-o", "out.parquet")
    assert "--versus compares two outputs, and the model has one" in single.err


def test_what_was_chosen_is_part_of_the_job(here):
    """It was chosen by the time that the model took, and must not be chosen anew by who goes on."""
    np.save("many.npy", rows(3, 24))
    (here / "many.py").write_text((here / "small.py").read_text() + "\ndef many():\n    return build(inputs=24)\n")
    table = done("many:many", "many.npy", "--target", "0")
    (method,) = set(table.method)
    assert method.startswith("bayesian_shapley")
    assert (table[[f"error_std:x{i}" for i in range(24)]] > 0).all(axis=None)
    job = JobRecord.from_json(json.loads(pq.read_schema("out.parquet").metadata[b"dasp"]))
    assert job.method["method"] == method
    options = Options(model="many:many", data=Path("many.npy"), output=Path("out.parquet"), target="0")
    chosen = {"method": "permutation_shapley", "tolerance": None, "max_evaluations": 200, "max_seconds": None}
    other = replace(job, method=chosen)
    assert plan(preflight(options), other, lambda _: None).task.explainer["method"] == "permutation_shapley"
    changed = plan(
        preflight(replace(options, tolerance=0.5)), other, lambda _: None
    )  # another job, which chooses by itself
    assert changed.task.explainer["method"].startswith("bayesian_shapley")
    assert "done before" in dasp("explain", "many:many", "many.npy", "--target", "0", "-o", "out.parquet").out


def test_targets(here):
    x = rows(50)
    labels = np.arange(50) % 3
    pd.DataFrame(x, columns=list("abcd")).assign(label=labels, name=[f"p{i}" for i in labels]).to_csv(
        "l.csv", index=False
    )
    outputs = build()(torch.from_numpy(x)).detach().numpy()
    table = done("small:build", "l.csv", "--target", "label", "--id", "name")
    assert list(table.target) == list(labels)
    assert list(table.id[:2]) == ["p0", "p1"]
    assert np.allclose(table.prediction, outputs[np.arange(50), labels], atol=1e-5)
    for arguments in ([], ["--target", "predicted"]):
        table = done("small:build", "l.csv", "--drop", "label,name", *arguments)
        assert list(table.target) == list(outputs.argmax(1))
    table = done("small:single", "rows.csv")
    assert set(table.target) == {0}


def test_ids_that_are_numbers_stay_numbers(here):
    write_csv(here / "ids.csv", np.hstack([rows(5), [[7], [8], [9], [10], [11]]]).astype(object), "a,b,c,d,n")
    (here / "ids.csv").write_text((here / "ids.csv").read_text().replace(".0\n", "\n"))
    assert list(done("small:build", "ids.csv", "--id", "n").id) == [7, 8, 9, 10, 11]
    (here / "ids.csv").write_text((here / "ids.csv").read_text().replace(",7\n", ",007\n"))
    assert list(done("small:build", "ids.csv", "--id", "n").id) == ["007", "8", "9", "10", "11"]


def test_ids_of_a_parquet_file_keep_their_type(here):
    columns = dict(zip("abcd", rows(3).T, strict=True))
    pq.write_table(pa.table({**columns, "n": ["7", "8", "9"]}), "ids.parquet")
    assert list(done("small:build", "ids.parquet", "--id", "n").id) == ["7", "8", "9"]


def test_true_and_false_are_numbers(here):
    x = rows(50)
    x[:, 1] = np.arange(50) % 2
    pd.DataFrame(x, columns=list("abcd")).assign(b=x[:, 1] > 0).to_csv("booleans.csv", index=False)
    np.save("x.npy", x)
    table = done("small:build", "booleans.csv")
    assert np.allclose(table[list("abcd")], done("small:build", "x.npy")[["x0", "x1", "x2", "x3"]], atol=1e-6)


def test_long_lines(here):
    x = np.full((3, 5_500), 1.0 / 3)
    write_csv(here / "long.csv", np.full(x.shape, f"{1 / 3:.200f}"), ",".join(f"x{i}" for i in range(5_500)))
    assert (here / "long.csv").stat().st_size > 3 * 2**20
    source = open_data(here / "long.csv", limit=2**30)
    (chunk,) = source.chunks(8)
    assert np.array_equal(chunk.values, x)


def test_models_that_take_integers(here):
    words = np.random.default_rng(0).integers(1, 10, (20, 4))
    np.save("words.npy", words)
    pd.DataFrame(words, columns=list("abcd")).to_csv("words.csv", index=False)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(12, 3)).eval()
    exact = ExactShapley(model).attribute(torch.from_numpy(words), target=1)
    for data, names in {"words.npy": ["x0", "x1", "x2", "x3"], "words.csv": list("abcd")}.items():
        assert np.allclose(done("small:words", data, "--target", "1")[names], exact, atol=1e-5)
    exported = torch.export.export(model, (torch.from_numpy(words),), dynamic_shapes=({0: torch.export.Dim("rows")},))
    torch.export.save(exported, "words.pt2")
    assert np.allclose(done("words.pt2", "words.csv", "--target", "1", "--trust")[names], exact, atol=1e-5)


@pytest.mark.parametrize("whole", [False, True])
def test_models_that_make_integers_of_some_columns(here, whole):
    x = rows(20)
    x[:, 3] = np.arange(20) % 5
    x = x.round() if whole else x
    pd.DataFrame(x, columns=list("abcd")).to_csv("mixed.csv", index=False)
    model = load_model("small:Mixed")
    exact = ExactShapley(model).attribute(torch.from_numpy(x), target=1)
    for options in ([], ["--on-bad-row", "skip"]):
        found = done("small:Mixed", "mixed.csv", "--target", "1", *options)[list("abcd")]
        assert np.allclose(found, exact, atol=1e-5)


def test_rows_with_missing_entries_are_left_out_and_listed(here):
    x = rows(50)
    x[[3, 17, 18]] = np.nan
    x[40, 2] = np.inf
    write_csv(here / "rows.csv", x)
    result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet", "--on-bad-row", "skip", "--chunk", "1")
    assert result.code == 0
    assert "4 left out, with missing or infinite entries: row 3, 17, 18, 40 " in result.out
    table = pd.read_parquet("out.parquet")
    assert list(table.id) == [i for i in range(50) if i not in (3, 17, 18, 40)]
    skipped = json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])["skipped"]
    assert skipped == {"number": 4, "first": [3, 17, 18, 40]}


def test_baselines(here):
    x = torch.from_numpy(rows(50))
    np.save("one.npy", x[:1].numpy())
    pd.DataFrame(x[:9].numpy()[:, ::-1], columns=list("dcba")).to_csv("some.csv", index=False)  # in another order
    model = build()
    expected = {
        ("--baselines", "mean"): model(x.mean(0, keepdim=True)),
        ("--baselines", "0.5"): model(torch.full((1, 4), 0.5)),
        ("--baselines", "one.npy"): model(x[:1]),
        ("--background", "some.csv"): model(x[:9]).mean(0, keepdim=True),
        ("--background", "some.csv", "--baselines", "mean"): model(x[:9].mean(0, keepdim=True)),
    }
    for arguments, base in expected.items():
        table = done("small:build", "rows.csv", "--target", "2", *arguments)
        assert np.allclose(table.base_value, base[0, 2].item(), atol=1e-5), arguments
        assert np.allclose(table.gap, 0, atol=1e-5)


def test_background_of_the_gradient_method(here):
    x, background = torch.from_numpy(rows(6, 12)), torch.from_numpy(rows(9, 12)[::-1].copy())
    np.save("x.npy", x)
    np.save("some.npy", background)
    table = done("small:wide", "x.npy", "--background", "some.npy", "--method", "gradient", "--target", "0")
    expected = GradientDASP(build(inputs=12)).attribute(x, background, target=0)
    assert np.allclose(table[[f"x{i}" for i in range(12)]], expected, atol=1e-4)


def test_chunks_are_small_where_the_background_is_large(here, monkeypatch):
    monkeypatch.setattr("dasp.jobs.plan._CHUNK_ENTRIES", 2**10)
    np.save("many.npy", rows(2**6))
    np.save("few.npy", rows(3))
    done("small:build", "few.npy", "--background", "many.npy", "--method", "exact")
    assert json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])["options"]["chunk"] == 2**10 // (4 * 2**6)


def test_groups(here):
    (here / "groups.json").write_text('{"one": ["d", "a"], "two": ["b"], "three": ["c"]}')
    np.save("groups.npy", np.array([0, 1, 2, 0]))
    exact = ExactShapley(build()).attribute(
        torch.from_numpy(rows(50)), target=0, feature_mask=torch.tensor([0, 1, 2, 0])
    )
    named = done("small:build", "rows.csv", "--target", "0", "--players", "groups.json")
    numbered = done("small:build", "rows.csv", "--target", "0", "--players", "groups.npy")
    assert np.allclose(named[["one", "two", "three"]], exact[:, :3], atol=1e-5)
    assert np.allclose(numbered[["group0", "group1", "group2"]], exact[:, :3], atol=1e-5)
    assert np.allclose(named[["one", "two", "three"]].sum(axis=1), named.prediction - named.base_value, atol=1e-5)


def test_one_group_has_all_of_the_difference(here):
    (here / "everything.json").write_text('{"everything": ["a", "b", "c", "d"]}')
    whole = done("small:build", "rows.csv", "--target", "0", "--players", "everything.json")
    assert np.allclose(whole["everything"], whole.prediction - whole.base_value, atol=1e-6)
    assert whole["everything"].abs().max() > 0.1


def test_images(here):
    (here / "images" / "cats").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 4), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(here / "images" / "cats" / f"{i}.png")
    table = done("small:pictures", "images", "--chunk", "2", "--method", "gradient")
    assert list(table.id) == [f"cats/{i}.png" for i in range(5)]
    assert np.stack(table["values"]).shape == (5, 16)
    x = torch.from_numpy(pixels[:, None].astype(np.float32) / 255)
    assert np.allclose(table.prediction, nn.Sequential(nn.Flatten(), build(16))(x).max(1).values.detach(), atol=1e-5)
    assert json.loads(pq.read_schema("out.parquet").metadata[b"shape"]) == [1, 4, 4]
    np.save("blocks.npy", np.arange(4).reshape(2, 2).repeat(2, 0).repeat(2, 1))
    assert np.stack(done("small:pictures", "images", "--players", "blocks.npy")["values"]).shape == (5, 4)
    assert b"shape" not in pq.read_schema("out.parquet").metadata
    (here / "images" / ".hidden").mkdir()
    (here / "images" / ".hidden" / "copy.png").write_bytes((here / "images" / "cats" / "0.png").read_bytes())
    assert len(done("small:pictures", "images", "--method", "gradient")) == 5


def test_batches(here):
    """The model is never given more rows than --batch-size says."""
    (here / "counted.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 3)\n"
        "        nn.init.ones_(self.weight)\n        nn.init.ones_(self.bias)\n\n"
        "    def forward(self, x):\n        assert len(x) <= 5\n        return super().forward(x)\n"
    )
    assert len(done("counted:Net", "rows.csv", "--batch-size", "5", "--method", "exact")) == 50


def test_standard_deviations(here):
    np.save("wide.npy", rows(3, 12))
    table = done("small:wide", "wide.npy", "--max-evaluations", "100", "--method", "bayesian", "--target", "0")
    assert (table[[f"error_std:x{i}" for i in range(12)]] >= 0).all(axis=None)


def test_weights_and_programs(here):
    model = build(outputs=2)
    x = torch.from_numpy(rows(50))
    torch.export.save(
        torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},)), here / "model.pt2"
    )
    (here / "two.py").write_text(
        "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))\n"
    )
    save_file(model.state_dict(), here / "two.safetensors")
    told = dasp("explain", "model.pt2", "rows.csv", "--target", "1", "--trust", "-o", "out.parquet")
    assert "warning: model.pt2: has 800 bytes of the inputs that it was exported with in it" in told.out
    program = pd.read_parquet("out.parquet")
    factory = done("two:build", "rows.csv", "--target", "1", "--weights", "two.safetensors")
    assert np.allclose(program[list("abcd")], factory[list("abcd")], atol=1e-6)


def test_log(here):
    result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet")
    lines = result.out.splitlines()
    assert lines[:3] == [
        "rows.csv: 50 rows of 4 inputs",
        "target: the largest of 3 outputs, of each row (predicted)",
        "method: Exact (4 players have only 16 coalitions)",
    ]
    assert lines[3] in ("threads: 1 (torch has no more)", "threads: 1 (the model's operations are small)")
    assert lines[4].startswith("out.parquet: 50 rows; 50 in ")
    assert lines[5] == "most important, by the mean of |value|:"
    assert len(lines) == 6 + 4


@pytest.mark.parametrize(
    ("show", "shown"),
    [("auto", ["dasp: reading the model: 0 s", "dasp: trying the model on two rows: 0 s",
               "dasp: explaining: 0 of 50 rows in 0 s"]), ("no", [])],
)  # fmt: skip
def test_lines_while_one_waits(here, monkeypatch, show, shown):
    """As if half a minute passed with the beginning of everything."""
    monkeypatch.setattr(progress._Watch, "begin", progress._Watch.tell)
    result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet", "--show-progress", show)
    assert result.code == 0
    lines = besides_random(result.err).splitlines()
    assert bool(lines) is bool(shown)
    assert set(shown) <= set(lines)


def test_the_commands_of_the_readme_run(here):
    """With files of those names."""
    readme = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    commands = [line.split() for line in re.findall(r"^dasp (explain .*)$", readme, flags=re.MULTILINE)]
    assert len(commands) == 4
    tokenizer = bert_tokenizer(model_max_length=48)
    for part in (tokenizer, classifier("bert", tokenizer)):
        part.save_pretrained(here / "sentiment")
    pd.DataFrame({"review": ["a good film", "not good", "a bad film"]}).to_csv(here / "reviews.csv", index=False)
    model = build()
    (here / "mypackage").mkdir()
    (here / "mypackage" / "__init__.py").touch()
    (here / "mypackage" / "models.py").write_text((here / "small.py").read_text())
    save_file(model.state_dict(), here / "model.safetensors")
    batch = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(model, (torch.zeros(2, 4),), dynamic_shapes=batch), here / "model.pt2")
    labelled = pd.DataFrame(rows(50), columns=list("abcd")).assign(label=1, patient=[f"p{i}" for i in range(50)])
    labelled.to_parquet(here / "rows.parquet")
    images = nn.Sequential(nn.Flatten(), build(inputs=16)).eval()
    program = torch.export.export(images, (torch.zeros(2, 1, 4, 4),), dynamic_shapes=batch)
    torch.export.save(program, here / "classifier.pt2")
    (here / "images").mkdir()
    for i in range(3):
        Image.fromarray((np.arange(16).reshape(4, 4) * 10 + i).astype(np.uint8)).save(here / "images" / f"{i}.png")
    for arguments in commands:
        result = dasp(*arguments, "--overwrite")
        assert (result.code, besides_random(result.err)) == (0, ""), arguments
        assert len(pd.read_parquet("explained.parquet")) in (3, 50)


def test_a_factory_without_weights_says_so(here):
    save_file(build().state_dict(), "model.safetensors")
    said = "dasp: small:build: its weights are random, unless it loads or sets them itself; --weights gives it those"
    result = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet")
    assert (result.err.count("\n"), result.err[: len(said)]) == (1, said)
    assert dasp("explain", "small:Pole", "rows.csv", "-o", "pole.parquet").err == ""  # it has none
    assert dasp("explain", "small:build", "rows.csv", "--weights", "model.safetensors", "-o", "w.parquet").err == ""
