"""One list of options: the command line, the job's identity and the Explainer's options follow from it."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from inspect import signature
from pathlib import Path

import pytest
import torch
import typer.main
from explain_files import dasp
from torch import nn

from dasp import Explainer
from dasp.cli import app
from dasp.jobs.identity import FilesRead, check_free, fingerprint, record_of
from dasp.jobs.options import OPTIONS, Options, name_of
from dasp.jobs.record import AbsentInputs

# A value other than the default for every option; files are written by the fixture.
OTHER = {
    "model": "other:build", "weights": Path("w.pt"), "trust": True, "target": "1", "output_names": "no,yes",
    "versus": "0", "model_output": "probability", "data": Path("other.csv"),
    "tokenizer": Path("words"), "columns": "a,b", "drop": "c", "text": "t", "id": "n",
    "on_bad_row": "skip", "mean": "0.5", "std": "2", "max_unpacked": "2G",
    "baselines": "0.5", "background": Path("b.npy"), "players": "window:2",
    "method": "dasp", "tolerance": 0.1, "max_evaluations": 9, "max_seconds": 2.5,
    "error_bars": True, "seed": 1,
    "output": Path("other.parquet"), "with_data": True, "interactions": True, "report": Path("page.html"),
    "safe_csv": True, "metrics": Path("metrics.json"),
    "overwrite": True,
    "device": "cpu", "batch_size": 5, "chunk": 7, "threads": 3, "show_progress": "no",
    "engine": "ray", "workers": 2, "ray_address": "auto",
}  # fmt: skip


@pytest.fixture
def options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "other.csv", "w.pt", "b.npy", "g.json"):
        (tmp_path / name).write_text(name)
    (tmp_path / "words").mkdir()
    return Options(model="small:build", data=Path("rows.csv"), output=Path("out.parquet"))


def job_of(options):
    model = nn.Linear(2, 1)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    files = FilesRead.of(options, model).checksums
    return record_of(options, fingerprint(model), torch.zeros(2, 1), files, [], AbsentInputs("baselines"), {}, "")


def needed(options, name):
    """The same with what an option cannot do without."""
    options = replace(options, engine="ray") if OPTIONS[name].ray else options
    options = replace(options, with_data=True) if name == "report" else options  # as it has by itself
    options = replace(options, output=Path("out.csv")) if name == "safe_csv" else options
    return replace(options, text="t") if OPTIONS[name].texts else options


def changed(options, name):
    return replace(needed(options, name), **{name: OTHER[name]})


def test_every_option_is_said_once():
    assert list(OPTIONS) == [field.name for field in fields(Options)]
    assert set(OTHER) == set(OPTIONS)
    assert len({option.help for option in OPTIONS.values()}) == len(OPTIONS)
    for option in OPTIONS.values():
        assert option.help[0].isupper()
        assert option.help.endswith((".", "…"))


def test_the_command_line_has_the_same_options():
    (command,) = [info for info in app.registered_commands if info.callback.__name__ == "explain"]
    found = {param.name: param for param in typer.main.get_command_from_info(
        command, pretty_exceptions_short=True, rich_markup_mode="rich").params}  # fmt: skip
    assert [name for name in found if name != "help"] == list(OPTIONS)
    for field in fields(Options):
        param = found[field.name]
        if field.default is MISSING:
            assert param.required
        else:
            assert param.default == field.default
        if not OPTIONS[field.name].positional:
            assert name_of(field.name) in param.opts
            assert not param.secondary_opts  # no --no-trust


def test_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = dasp("explain", "--help")
    assert result.code == 0
    shown = " ".join(result.out.replace("│", " ").split())
    for name, option in OPTIONS.items():
        assert name_of(name) in shown
        assert f"─ {option.panel} ─" in shown
        assert option.help in shown


def test_what_is_given_to_an_explainer(options):
    accepted = signature(Explainer).parameters
    given = options.of_explainer()
    assert {"method", "seed", "device"} < set(given) <= set(accepted)
    for name, value in given.items():
        assert value == accepted[name].default, name


@pytest.mark.parametrize("name", OTHER)
def test_options_and_identity(options, name):
    assert (job_of(changed(options, name)) != job_of(needed(options, name))) == OPTIONS[name].identity


@pytest.mark.parametrize(
    ("name", "file"), [("weights", "w.pt"), ("background", "b.npy"), ("baselines", "b.npy"), ("players", "g.json")]
)
def test_files_count_by_their_content(options, name, file):
    kind = Path if isinstance(OTHER[name], Path) else str
    given = replace(options, **{name: kind(file)})
    before = job_of(given)
    copy = Path(f"copy{Path(file).suffix}")
    copy.write_text(Path(file).read_text())
    assert job_of(replace(given, **{name: kind(copy)})) == before
    copy.write_text("another")
    now = job_of(replace(given, **{name: kind(copy)}))
    with pytest.raises(ValueError, match=f"{name_of(name)} has changed"):
        check_free(before, None, now, options.output, Path("parts"))


def test_words_and_numbers_are_no_files(options, tmp_path):
    for word in ("zero", "mean", "0.5"):
        (tmp_path / word).mkdir()
        assert job_of(replace(options, baselines=word)).options["baselines"] == word
