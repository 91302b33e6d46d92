"""`dasp audit`: files of values, ours and anybody's, audited against what their records or options say."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from explain_files import dasp, write_csv, write_good_files
from PIL import Image

from dasp import ExactShapley


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The usual files, and one with the exact values of the first output."""
    here = tmp_path_factory.mktemp("audits")
    write_good_files(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.syspath_prepend(str(here))
        import small  # noqa: PLC0415

        model = small.build().eval()
        torch.save(model.state_dict(), here / "weights.pt")
        rows = torch.from_numpy(np.load(here / "rows.npy"))
        values = ExactShapley(model).attribute(rows, target=0).detach().numpy()
    np.save(here / "values.npy", values)
    write_csv(here / "values.csv", values)
    named = pd.DataFrame(values / 2, columns=list("abcd")).assign(who=[f"p{i}" for i in range(50)])
    named.iloc[::-2].to_csv(here / "named.csv", index=False)  # some, in another order
    data = pd.DataFrame(rows.numpy(), columns=list("abcd")).assign(who=named.who)
    data.to_csv(here / "people.csv", index=False)
    (here / "players.json").write_text(json.dumps({"first": ["a", "d"], "second": ["b"], "third": ["c"]}))
    write_csv(here / "far.csv", rows.numpy()[:3] + 2)
    (here / "pictures").mkdir()
    for i in range(3):
        pixels = np.random.default_rng(i).integers(1, 9, (4, 4)).astype(np.uint8)
        pixels[:, i % 2 + 1 :] += 200  # two regions
        Image.fromarray(pixels).save(here / "pictures" / f"{i}.png")
    return here


def said(*arguments):
    result = dasp("audit", *arguments)
    assert result.code == 0, result.err
    return result.out


EXACT = "these values are off by less than 1 % of their size; the top "


@pytest.mark.parametrize(
    "command",
    [
        "rows.csv -o a.csv --weights weights.pt --background far.csv",
        "people.csv -o b.csv --id who --players players.json --target 1 --safe-csv",
        "rows.parquet -o c.parquet --target predicted --versus second --model-output probability",
        "rows.npy -o d.parquet --baselines mean",
        "pictures -o e.parquet --players block:2",
        "pictures -o f.parquet --players superpixel:4",
    ],
)  # fmt: skip
def test_an_output_knows_what_it_is_of(command, folder, monkeypatch):
    monkeypatch.chdir(folder)
    model = "small:pictures" if command.startswith("pictures") else "small:build"
    if "superpixel" in command:
        pytest.importorskip("skimage")
    output = command.split()[2]
    assert dasp("explain", model, *command.split(), "--method", "exact").code == 0
    (folder / "elsewhere").mkdir(exist_ok=True)
    monkeypatch.chdir(folder / "elsewhere")  # files are looked for beside the output
    monkeypatch.syspath_prepend(str(folder))
    first, second, *numbers = said(folder / output, "--rows", "4").splitlines()
    assert first.startswith(f"{folder / output}: {EXACT}")
    assert "their base value" not in first
    assert second.startswith(f"{min(4, 3 if 'pictures' in command else 4)} rows, ")
    assert numbers[-4] == "most off:"


def test_an_output_that_is_off(folder, monkeypatch):
    """Moments, with the numbers for programs."""
    monkeypatch.chdir(folder)
    dasp("explain", "small:build", "rows.csv", "-o", "moments.csv", "--method", "gradient")
    told = json.loads(said("moments.csv", "--json", "--rows", "6", "--evaluations", "12", "--seed", "3"))
    assert told["verdict"].startswith("these values are off by about ")
    assert (told["file"], told["rows_in_file"], told["rows"], told["evaluations"]) == ("moments.csv", 50, 6, 12)
    assert len(told["ids"]) == len(told["relative"]["middle"]) == len(told["top"]["right"]) == 6
    assert told["ids"] == sorted(told["ids"], key=int)


@pytest.mark.parametrize(
    ("command", "off"),
    [
        ("values.csv --model small:build --data rows.csv --target 0", EXACT),
        ("values.npy --model small:build --data rows.npy --target 0", EXACT),
        ("values.csv --model small:build --data rows.csv --target 1", "these values are off by about "),
        (
            "named.csv --model small:build --data people.csv --id who --target 0",
            "these values are off by about 50 % of",
        ),
    ],
)
def test_anybodys_values(command, off, folder, monkeypatch):
    monkeypatch.chdir(folder)
    file, *options = command.split()
    out = said(file, *options, "--weights", "weights.pt")
    assert out.startswith(f"{file}: {off}")
    if "named" in command:
        assert "25 rows, 16 evaluations each" in out
        assert "in the row of id p" in out


def test_values_of_players_that_are_groups(folder, monkeypatch):
    monkeypatch.chdir(folder)
    dasp("explain", "small:build", "rows.csv", "-o", "g.csv", "--players", "players.json", "--target", "0")
    pd.read_csv("g.csv")[["third", "first", "second"]].to_csv("groups.csv", index=False)
    options = ["--model", "small:build", "--data", "rows.csv", "--target", "0", "--players", "players.json"]
    assert said("groups.csv", *options).startswith(f"groups.csv: {EXACT}")
    np.save("groups.npy", pd.read_csv("g.csv")[["first", "second", "third"]].to_numpy())
    assert said("groups.npy", *options).startswith(f"groups.npy: {EXACT}")
