"""`dasp explain`: what is in the output, and that being killed, resumed or spread changes no byte of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from dasp import ExactShapley
from dasp.explain.parts import Parts
from explain_files import FACTORY, dasp, rows, write_csv


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model and 50 rows, as CSV, TSV, Parquet, NPY and NPZ."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.py").write_text(FACTORY)
    monkeypatch.delitem(sys.modules, "small", raising=False)
    x = rows(50)
    write_csv(tmp_path / "rows.csv", x)
    (tmp_path / "rows.tsv").write_text((tmp_path / "rows.csv").read_text().replace(",", "\t"))
    pd.DataFrame(x, columns=list("abcd")).to_parquet(tmp_path / "rows.parquet", row_group_size=7)
    np.save(tmp_path / "rows.npy", x)
    np.savez_compressed(tmp_path / "rows.npz", x)
    return tmp_path


def build(inputs=4, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).eval()


def done(*arguments):
    """The command, which must succeed; its output as a table."""
    result = dasp("explain", *arguments, "-o", "out.parquet", "--overwrite")
    assert result.code == 0, result.err
    assert not result.err
    return pd.read_parquet("out.parquet")


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "npy", "npz"])
def test_values_are_those_of_the_method(here, kind):
    table = done("small:build", f"rows.{kind}", "--target", "1", "--chunk", "8")
    x = torch.from_numpy(rows(50))
    exact = ExactShapley(build()).attribute(x, target=1)
    names = ["x0", "x1", "x2", "x3"] if kind in ("npy", "npz") else list("abcd")
    assert list(table) == ["id", "target", "prediction", "base_value", *names, "gap", "method"]
    assert np.allclose(table[names], exact, atol=1e-5)
    assert np.allclose(table.prediction, build()(x).detach()[:, 1], atol=1e-5)
    assert np.allclose(table.prediction - table.base_value, table[names].sum(axis=1), atol=1e-5)
    assert list(table.id) == list(range(50))
    assert set(table.method) == {"Exact"}
    assert not (here / "out.parquet.parts").exists()


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
    skipped = json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])["skipped rows"]
    assert skipped == [3, 17, 18, 40]


def test_baselines(here):
    x = torch.from_numpy(rows(50))
    np.save("one.npy", x[:1].numpy())
    pd.DataFrame(x[:9].numpy()[:, ::-1], columns=list("dcba")).to_csv("some.csv", index=False)  # in another order
    model = build()
    expected = {
        ("--baseline", "mean"): model(x.mean(0, keepdim=True)),
        ("--baseline", "0.5"): model(torch.full((1, 4), 0.5)),
        ("--baseline", "one.npy"): model(x[:1]),
        ("--background", "some.csv"): model(x[:9]).mean(0, keepdim=True),
        ("--background", "some.csv", "--baseline", "mean"): model(x[:9].mean(0, keepdim=True)),
    }
    for arguments, base in expected.items():
        table = done("small:build", "rows.csv", "--target", "2", *arguments)
        assert np.allclose(table.base_value, base[0, 2].item(), atol=1e-5), arguments
        assert np.allclose(table.gap, 0, atol=1e-5)


def test_groups(here):
    (here / "groups.json").write_text('{"one": ["d", "a"], "two": ["b"], "three": ["c"]}')
    np.save("groups.npy", np.array([0, 1, 2, 0]))
    exact = ExactShapley(build()).attribute(
        torch.from_numpy(rows(50)), target=0, feature_mask=torch.tensor([0, 1, 2, 0])
    )
    named = done("small:build", "rows.csv", "--target", "0", "--groups", "groups.json")
    numbered = done("small:build", "rows.csv", "--target", "0", "--groups", "groups.npy")
    assert np.allclose(named[["one", "two", "three"]], exact[:, :3], atol=1e-5)
    assert np.allclose(numbered[["group0", "group1", "group2"]], exact[:, :3], atol=1e-5)
    assert np.allclose(named[["one", "two", "three"]].sum(axis=1), named.prediction - named.base_value, atol=1e-5)


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
    assert np.stack(done("small:pictures", "images", "--groups", "blocks.npy")["values"]).shape == (5, 4)


def test_standard_deviations(here):
    np.save("wide.npy", rows(3, 12))
    table = done("small:wide", "wide.npy", "--max-evaluations", "100", "--method", "bayesian", "--target", "0")
    assert (table[[f"sd:x{i}" for i in range(12)]] >= 0).all(axis=None)


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
    program = done("model.pt2", "rows.csv", "--target", "1")
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
    assert lines[3].startswith("out.parquet: 50 rows; 50 in ")
    assert lines[4:] == []


def stopping(monkeypatch, after):
    """Stop as a kill would, when some chunks are written."""
    commit = Parts.commit

    def stop(self, number, table):
        commit(self, number, table)
        if number + 1 == after:
            raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "commit", stop)


def test_resumes_where_it_was(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        result = dasp(*arguments, "out.parquet")
    assert (result.code, result.err) == (130, "dasp: interrupted; the same command goes on where it was\n")
    assert not (here / "out.parquet").exists()
    (here / "out.parquet.parts" / "000001.arrow").write_bytes(b"torn")  # done again
    (here / "out.parquet.parts" / "000005.arrow.writing").write_bytes(b"torn")
    result = dasp(*arguments, "out.parquet")
    assert "resumed: 16 of 50 rows were done before" in result.out
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
    assert not (here / "out.parquet.parts").exists()
    assert "done before, with the same" in dasp(*arguments, "out.parquet").out


def test_killed_while_parts_are_removed(here):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    assert dasp(*arguments).code == 0
    (here / "out.parquet.parts").mkdir()
    job = pq.read_schema("out.parquet").metadata[b"dasp"]
    (here / "out.parquet.parts" / "job.json").write_bytes(job)
    assert "done before, with the same" in dasp(*arguments).out
    assert not (here / "out.parquet.parts").exists()


CHANGES = {
    "--target": (["--target", "1"], "--target was not given, and is 1 now"),
    "--tolerance": (["--tolerance", "0.1"], "--tolerance was not given, and is 0.1 now"),
    "--chunk": (["--chunk", "9"], "--chunk was 8, and is 9 now"),
    "--baseline": (["--baseline", "mean"], "--baseline was zero, and is mean now"),
    "--seed": (["--seed", "1", "--method", "dasp"], "--method was auto, and is dasp now (--seed changed as well)"),
}


@pytest.mark.parametrize("finished", [False, True])
def test_changed_options_do_not_mix(here, monkeypatch, finished):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    with monkeypatch.context() as patch:
        if not finished:
            stopping(patch, after=3)
        dasp(*arguments)
    for changed, expected in CHANGES.values():
        result = dasp(*arguments, *changed)
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert expected in result.err
        assert "--overwrite to begin anew" in result.err
    whole = (here / "rows.csv").read_text()
    (here / "rows.csv").write_text(whole.replace("a,b", "e,b"))
    assert "DATA is another one now" in dasp(*arguments).err
    (here / "rows.csv").write_text(whole)
    (here / "small.py").write_text(FACTORY + "# changed\n")
    assert "MODEL is another one now" in dasp(*arguments).err
    assert dasp(*arguments, "--overwrite").code == 0


def test_models_that_differ_every_time_do_not_mix(here, monkeypatch):
    arguments = ["explain", "small:unseeded", "rows.csv", "--chunk", "8", "-o", "out.parquet"]
    torch.manual_seed(1)
    with monkeypatch.context() as patch:
        stopping(patch, after=3)
        dasp(*arguments)
    torch.manual_seed(2)
    assert "the model's parameters are others now" in dasp(*arguments).err


def test_random_methods_resume_alike(here, monkeypatch):
    np.save("wide.npy", rows(12, 12))
    for method in ("permutation", "KernelSHAP", "Shapley sampling"):
        arguments = ["explain", "small:wide", "wide.npy", "--chunk", "4", "--target", "0", "--method", method, "-o"]
        assert dasp(*arguments, "whole.parquet", "--overwrite").code == 0
        with monkeypatch.context() as patch:
            stopping(patch, after=2)
            assert dasp(*arguments, "out.parquet", "--overwrite").code == 130
        torch.manual_seed(7)
        assert dasp(*arguments, "out.parquet").code == 0
        assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


def explain_there(folder, arguments):
    os.chdir(folder)
    sys.exit(dasp(*arguments).code)


def test_killed_at_random(here):
    """SIGKILL at any moment; `benchmarks/kills.py` does it more often and with more rows."""
    np.save("many.npy", rows(400, 12))
    arguments = ["explain", "small:wide", "many.npy", "--chunk", "8", "--method", "permutation", "-o"]
    assert dasp(*arguments, "whole.parquet").code == 0
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dasp.cli", "dasp.explain.run", "explain_files"])
    chance = random.Random(0)
    for goal in (0, 6, 17, 30, 44):
        process = context.Process(target=explain_there, args=(here, [*arguments, "out.parquet"]))
        process.start()
        while len(list(here.glob("out.parquet.parts/*.arrow"))) < goal:
            assert process.is_alive()
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (here / "out.parquet").exists()
    assert dasp(*arguments, "out.parquet").code == 0
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()
    assert not (here / "out.parquet.parts").exists()


def test_import_is_light():
    code = "import sys, dasp; print([m for m in ('typer', 'pyarrow', 'ray', 'rich', 'pandas') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "[]\n"
