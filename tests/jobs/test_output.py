"""What `dasp explain` writes besides the values: the data, what an absent input was, CSV files, and a summary."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from explain_files import besides_random, dasp, rows, write_good_files
from PIL import Image

from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.output import format_of
from dasp.jobs.record import AbsentInputs
from dasp.jobs.summary import Summary
from dasp.players import superpixels


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def done(*arguments, output="out.parquet"):
    """The command, which must succeed; its output as a table."""
    result = dasp("explain", *arguments, "-o", output, "--overwrite")
    assert (result.code, besides_random(result.err)) == (0, "")
    return pd.read_parquet(output) if output.endswith("parquet") else pd.read_csv(output)


def images(folder, number=3, channels=3, size=8):
    """So many images of random colours, and their pixels from 0 to 1."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (number, size, size, channels), dtype=np.uint8)
    for i, image in enumerate(pixels):
        Image.fromarray(image.squeeze()).save(folder / f"{i}.png")
    return np.moveaxis(pixels, 3, 1).astype(np.float32) / np.float32(255)


COLOURS = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2))
"""


# The data


def test_the_data_stands_beside_the_values(here):
    (here / "groups.json").write_text('{"one": ["d", "a"], "two": ["b", "c"]}')
    table = done("small:build", "rows.csv", "--with-data", "--columns", "b,a,d,c", "--players", "groups.json")
    data = pd.read_csv("rows.csv")
    assert list(table)[-5:] == ["evaluations", "data:b", "data:a", "data:d", "data:c"]
    for name in "abcd":
        assert (table[f"data:{name}"] == data[name]).all()
    alone = done("small:build", "rows.csv", "--columns", "b,a,d,c", "--players", "groups.json")
    pd.testing.assert_frame_equal(alone, table[list(alone)])


def test_the_data_is_as_the_file_has_it(here):
    """Without the rows that are left out, and before it is normalised."""
    x = rows(50)
    x[3] = np.nan
    pd.DataFrame(x, columns=list("abcd")).to_csv("gaps.csv", index=False)
    table = done(
        "small:build", "gaps.csv", "--with-data", "--on-bad-row", "skip", "--mean", "1", "--std", "2", "--chunk", "7"
    )
    data = table[[f"data:{name}" for name in "abcd"]].to_numpy()
    np.testing.assert_array_equal(data.astype(np.float32), x[[i for i in range(50) if i != 3]])


def test_the_data_of_arrays_is_a_list(here):
    pixels = images(here / "images", channels=1, size=4)
    np.save("halves.npy", np.arange(4).repeat(4).reshape(4, 4) // 2)
    table = done("small:pictures", "images", "--with-data", "--players", "halves.npy")
    np.testing.assert_array_equal(np.stack(table["data"]), pixels.reshape(3, 16))
    assert np.stack(table["values"]).shape == (3, 2)
    assert json.loads(pq.read_schema("out.parquet").metadata[b"data shape"]) == [1, 4, 4]


# What is absent


def job():
    return json.loads(pq.read_schema("out.parquet").metadata[b"dasp"])


def test_what_an_absent_input_was_is_told(here):
    x = rows(50)
    np.save("few.npy", x[:3])
    np.save("many.npy", x[:20])
    done("small:build", "rows.csv")
    assert job()["absent"] == asdict(AbsentInputs("baselines", {"baselines": "zero"}, value=0))
    done("small:build", "rows.csv", "--baselines", "0.5")
    told = asdict(AbsentInputs("baselines", {"baselines": "0.5"}, value=0.5)) | {"shape": [4]}
    assert job()["absent"] == told
    done("small:build", "rows.npy", "--baselines", "mean")
    told = job()["absent"]
    np.testing.assert_allclose(told["values"], x.mean(0, dtype=np.float64), rtol=1e-6)
    done("small:build", "rows.npy", "--background", "few.npy")
    told = job()["absent"]
    assert (told["options"], told["kind"], told["shape"]) == ({"background": "few.npy"}, "background", [3, 4])
    np.testing.assert_array_equal(np.float32(told["values"]), x[:3])
    done("small:build", "rows.npy", "--background", "many.npy")
    told = job()["absent"]
    assert (told["values"] is None, told["shape"], len(told["sha256"])) == (True, [20, 4], 64)


def test_everything_is_normalised_alike(here):
    x, mean, deviation = rows(50), np.array([1.0, 2, 3, 4]), np.array([2.0, 3, 4, 5])
    scale = ("--mean", "1,2,3,4", "--std", "2,3,4,5")
    pd.DataFrame(x[:5], columns=list("abcd")).to_csv("some.csv", index=False)
    pd.DataFrame(x[:1], columns=list("abcd")).to_csv("one.csv", index=False)
    for name, raw in {
        "x": x,
        "some": x[:5],
        "one": x[:1],
        "zero": np.zeros((1, 4)),
        "half": np.full((1, 4), 0.5),
    }.items():
        np.save(f"{name}.npy", (raw.astype(np.float64) - mean) / deviation)
    for given, same in {
        (): ("--baselines", "zero.npy"),
        ("--baselines", "0.5"): ("--baselines", "half.npy"),
        ("--baselines", "mean"): ("--baselines", "mean"),
        ("--baselines", "one.csv"): ("--baselines", "one.npy"),
        ("--background", "some.csv"): ("--background", "some.npy"),
    }.items():
        table = done("small:build", "rows.csv", *scale, *given).drop(columns="method").to_numpy()
        expected = done("small:build", "x.npy", *same).drop(columns="method").to_numpy()
        np.testing.assert_allclose(table, expected, atol=1e-5, err_msg=str(given))


def test_images_are_normalised_by_channel(here):
    (here / "colours.py").write_text(COLOURS)
    pixels = torch.from_numpy(images(here / "images"))
    mean, deviation = (torch.tensor(x).view(3, 1, 1) for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    np.save("x.npy", ((pixels - mean) / deviation).numpy())
    np.save("grey.npy", ((torch.full((1, 3, 8, 8), 0.5) - mean) / deviation).numpy())
    table = done(
        "colours:build",
        "images",
        "--mean",
        "imagenet",
        "--std",
        "imagenet",
        "--baselines",
        "0.5",
        "--players",
        "block:4",
    )
    expected = done("colours:build", "x.npy", "--baselines", "grey.npy", "--players", "block:4")
    np.testing.assert_allclose(np.stack(table["values"]), np.stack(expected["values"]), atol=1e-6)
    np.testing.assert_allclose(table["base_value"], expected["base_value"], atol=1e-6)


# Players by a rule


def test_players_by_a_rule(here):
    np.save("halves.npy", np.array([0, 0, 1, 1]))
    ruled = done("small:build", "rows.csv", "--players", "window:2")
    listed = done("small:build", "rows.csv", "--players", "halves.npy")
    names = list(pd.read_csv("rows.csv"))
    windows = [f"{names[0]}…{names[1]}", f"{names[2]}…{names[3]}"]
    assert list(ruled)[4:6] == windows
    np.testing.assert_array_equal(ruled[windows], listed[["group0", "group1"]])
    assert list(done("small:build", "rows.csv", "--players", "window:3"))[4:6] == [f"{names[0]}…{names[2]}", names[3]]
    pd.DataFrame(rows(50), columns=["age", "city_a", "city_b", "cat"]).to_csv("hot.csv", index=False)
    (here / "groups.json").write_text('{"age": ["age"], "city": ["city_a", "city_b"], "cat": ["cat"]}')
    ruled = done("small:build", "hot.csv", "--players", "prefix:city")
    pd.testing.assert_frame_equal(ruled, done("small:build", "hot.csv", "--players", "groups.json"))


def test_superpixels_are_each_row_s_own(here):
    (here / "colours.py").write_text(COLOURS)
    (here / "images").mkdir()
    for i, colours in enumerate(np.random.default_rng(0).integers(0, 256, (3, 3, 3, 3), dtype=np.uint8)):
        squares = np.roll(colours.repeat(6, 0).repeat(6, 1), 2 * i, axis=1)
        Image.fromarray(squares).save(f"images/{i}.png")
    command = [
        "colours:build",
        "images",
        "--players",
        "superpixel:9",
        "--method",
        "bayesian",
        "--max-evaluations",
        "60",
    ]
    table = done(*command, "--target", "0", "--chunk", "2")
    shape = json.loads(pq.read_schema("out.parquet").metadata[b"shape"])
    assert shape == [3, 18, 18]
    masks = [np.array(mask) for mask in table["players"]]
    assert [len(np.unique(mask)) > 4 for mask in masks] == [True] * 3
    assert any((masks[0] != mask).any() for mask in masks[1:])
    for values, mask, row in zip(table["values"], masks, table.itertuples(), strict=True):
        of_player = {player: set(np.array(values)[mask == player]) for player in np.unique(mask)}
        assert all(len(found) == 1 for found in of_player.values())
        together = sum(found.pop() for found in of_player.values())
        assert together == pytest.approx(row.prediction - row.base_value, abs=1e-4)


def test_superpixels_are_those_of_the_photo_though_it_is_normalised(here):
    (here / "colours.py").write_text(COLOURS)
    (here / "images").mkdir()
    y, x = np.mgrid[:18, :18]
    pixels = np.stack([np.stack([x, y, (x + y) // 2], -1), np.stack([y, x, x], -1)]).astype(np.uint8) * 14
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(f"images/{i}.png")
    scale = ["--mean", "0.5", "--std", "0.01,1,100"]  # after which there is little but red
    options = [*scale, "--players", "superpixel:9", "--method", "bayesian", "--max-evaluations", "60"]
    table = done("colours:build", "images", *options, "--target", "0")
    expected = superpixels(pixels.transpose(0, 3, 1, 2), 9)
    np.testing.assert_array_equal(np.stack(table["players"]), expected.flatten(1))
    assert "data" not in table


def test_an_image_of_one_colour_is_named(here):
    (here / "colours.py").write_text(COLOURS)
    (here / "images").mkdir()
    squares = np.random.default_rng(0).integers(0, 256, (3, 3, 3), dtype=np.uint8).repeat(6, 0).repeat(6, 1)
    for name, image in {"a": squares, "b": np.random.default_rng(0).integers(0, 256, (18, 18, 3), np.uint8)}.items():
        Image.fromarray(image).save(f"images/{name}.png")
    result = dasp("explain", "colours:build", "images", "--players", "superpixel:9", "-o", "out.parquet")
    assert (result.code, besides_random(result.err).count("\n")) == (2, 1), result.err
    assert "--players superpixel:9, the row of id b.png: the image has only one region" in result.err


# CSV


def test_csv_has_what_parquet_has(here):
    parquet = done("small:build", "rows.csv", "--with-data")
    csv = done("small:build", "rows.csv", "--with-data", output="out.csv")
    pd.testing.assert_frame_equal(parquet, csv, check_dtype=False)
    beside = json.loads((here / "out.csv.json").read_text())
    assert (beside["rows"], beside["dasp"]) == (50, job())
    assert (
        "done before, with the same" in dasp("explain", "small:build", "rows.csv", "--with-data", "-o", "out.csv").out
    )


def test_csv_resumes_to_the_same_bytes(here, monkeypatch):
    arguments = ["explain", "small:build", "rows.csv", "--chunk", "8", "-o"]
    assert dasp(*arguments, "whole.csv").code == 0
    commit = Checkpoint.commit

    def stop(self, number, table):
        commit(self, number, table)
        if number == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", stop)
        assert dasp(*arguments, "out.csv").code == 130
    assert not (here / "out.csv.json").exists()
    assert "resumed: 24 of 50 rows" in dasp(*arguments, "out.csv").out
    for name in ("out.csv", "out.csv.json"):
        assert (here / name).read_bytes() == (here / name.replace("out", "whole")).read_bytes()
    assert not (here / "out.csv.parts").exists()


def test_csv_killed_between_its_two_files(here, monkeypatch):
    """The one beside is there, the output is not: it is written when the command is repeated."""
    arguments = ["explain", "small:build", "rows.csv", "-o", "out.csv"]
    assert dasp(*arguments).code == 0
    before = (here / "out.csv").read_bytes()
    (here / "out.csv").unlink()
    assert dasp(*arguments).code == 0
    assert (here / "out.csv").read_bytes() == before
    (here / "out.csv").write_bytes(before.replace(b"exact_shapley", b"exact_Shapley"))  # somebody has changed it
    assert "out.csv: exists, but is damaged or was not written by dasp explain" in dasp(*arguments).err
    assert dasp(*arguments, "--overwrite").code == 0
    assert (here / "out.csv").read_bytes() == before


def test_csv_writes_ids_of_any_type(here):
    table = pd.DataFrame(rows(3), columns=list("abcd")).assign(n=pd.Timedelta("1h"), m=[b"x", b"y", b"z"])
    table.to_parquet("ids.parquet")
    for name in "nm":
        found = done("small:build", "ids.parquet", "--id", name, "--columns", "a,b,c,d", output="out.csv")
        assert len(found.id) == 3


# The summary


def explained(players, deviations):
    values = {"a": [1.0, -3.0], "b" * 60: [0.5, 0.5], **{f"x{i}": [0.0, 0.1] for i in range(players - 2)}}
    bars = {f"error_std:{name}": [0.1, 0.2] for name in values} if deviations else {}
    summary = Summary()
    summary.add(pa.table({"base_value": [0.0, 0.0], **values, **bars, "gap": [0.0, 0.0]}))
    return summary


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("width", [10, 24, 40, 80, 200])
def test_the_summary_fits_the_terminal(width, plain):
    told, first, *lines, last = list(explained(12, deviations=True).lines(width, plain=plain))
    assert told == "error bars: the largest of a row is 0.15 in the median, 0.2 at most"
    assert (first, last) == ("most important, by the mean of |value|:", "  and 4 more")
    assert len(lines) == 8
    assert max(map(len, lines)) <= max(width, 18)
    assert lines[0].split()[0] == "a"
    assert all(line.isascii() for line in lines) == (plain or width < 4)
    sizes = [line.count("#" if plain else "█") for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0] > 0) == (width >= 40)


def test_the_summary_of_exact_values_has_no_error_bars(here):
    said = dasp("explain", "small:build", "rows.csv", "-o", "out.parquet").out.splitlines()
    said = said[said.index("most important, by the mean of |value|:") :]
    table = pd.read_parquet("out.parquet")
    means = table[list("abcd")].abs().mean().sort_values(ascending=False)
    assert [line.split()[0] for line in said[1:]] == list(means.index)
    np.testing.assert_allclose([float(line.split()[-1]) for line in said[1:]], means, rtol=1e-3)


# What a spreadsheet would take for a formula

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "'=1",
    "' mine",
    "-1.5",
    "+3e-5",
    "0",
    "Zürich",
    " -7",
]


def test_formulas_become_text_if_asked_and_numbers_stay(here):
    table = pd.DataFrame(rows(len(FORMULAS)), columns=["=a", "-b", "c", "+1.5"])
    table.assign(n=FORMULAS).to_csv("formulas.csv", index=False)
    command = ["small:build", "formulas.csv", "--id", "n", "--target", "0"]
    read = {"dtype": {"id": str}, "skipinitialspace": False}
    done(*command, output="plain.csv")
    done(*command, "--safe-csv", output="safe.csv")
    plain, safe = pd.read_csv("plain.csv", **read), pd.read_csv("safe.csv", **read)
    assert plain.id.tolist() == FORMULAS
    assert safe.id.tolist() == [
        "'=1+1", "'+cmd|' /C calc'!A0", "'-2+3", "'@SUM(A1)", "'\t=1", "''=1", "' mine", "-1.5", "+3e-5", "0", "Zürich",
        " -7",
    ]  # fmt: skip
    assert list(safe.columns)[4:8] == ["'=a", "'-b", "c", "+1.5"]
    np.testing.assert_array_equal(plain.iloc[:, 4:8], safe.iloc[:, 4:8])
    stored = {name: format_of(here / f"{name}.csv").read(here / f"{name}.csv") for name in ("plain", "safe")}
    assert stored["plain"].schema == stored["safe"].schema
    batches = [pa.Table.from_batches(one.batches(one.schema.names)) for one in stored.values()]
    assert batches[0].equals(batches[1])
    assert dasp("report", "safe.csv", "page.html").code == 0
