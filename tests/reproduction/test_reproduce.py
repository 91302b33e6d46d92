"""The two commands at a tiny size: from data to the page, interrupted and continued."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from rich.console import Console
from torch import nn

import dasp
from dasp.evaluation import Problem, Result, Trial, compare
from reproduction import benchmark as benchmarking
from reproduction import demo as demonstration
from reproduction.__main__ import main
from reproduction.comparison_methods import COMPARED, OURS
from reproduction.experiment import Data, Size, SizeName
from reproduction.outcome import Setting, measure
from reproduction.parkinsons import Parkinsons
from reproduction.peers import PEERS
from reproduction.store import SUBPACKAGES, checksum_of_code

PACKAGE = Path(dasp.__file__).parent
TRIALS = sys.modules[Trial.__module__]  # a function has the same name
COMPILED = "shap_permutation_explainer"  # before its first use, which takes seconds
FEW = {"saliency", "occlusion", "permutation_shapley", "dasp_rank_0", "bayesian_shapley"}


class Small(Parkinsons):
    """A few rows of the stand-in, hardly trained."""

    epochs = 2
    sizes: ClassVar = {SizeName.QUICK: Size(2, 0, (300,), at_most={COMPILED: 0}, coalitions=200)}


class Second(Small):
    """Another one with few methods, which keeps what the page says when it begins."""

    name, title = "second", "The second one"
    sizes: ClassVar = {
        SizeName.QUICK: Size(2, 0, (300,), at_most=dict.fromkeys(COMPARED.keys() - FEW, 0), coalitions=200)
    }

    def __init__(self, page):
        self.page, self.before = page, ""

    def data(self):
        self.before = self.before or self.page.read_text()
        return super().data()


@dataclass
class Runs:
    """Two runs of the same command: one is interrupted, the other goes on to the end."""

    folder: Path
    printed: list[str]
    page_after_first: str
    page: Path
    measured: list[list[tuple[str, str]]]  # the trials of each run
    trained: int


def console() -> Console:
    return Console(file=io.StringIO(), width=160)


@pytest.fixture(scope="module")
def runs(all_alone):
    folder, done, trained, printed = all_alone / "results", [], [], []
    second = Second(folder / "index.html")
    run, train = Trial.run, Small.train

    def interrupted(trial):
        if len(done[-1]) == 5:
            raise KeyboardInterrupt
        return counted(trial)

    def counted(trial):
        done[-1].append((trial.name, str(trial.number or "")))
        return run(trial)

    def command():
        out = console()
        done.append([])
        try:
            return demonstration.demo("all", folder, out, threads=torch.get_num_threads())
        finally:
            printed.append(out.file.getvalue())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstration, "EXPERIMENTS", {"parkinsons": Small(), "second": second})
        patch.setattr(TRIALS, "_ENOUGH", 1e-9)  # seconds: nothing is timed twice
        patch.setattr(Small, "train", lambda *given: trained.append(1) or train(*given))
        patch.setattr(Trial, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            command()
        assert "Still to come: Parkinsons telemonitoring, The second one." in (folder / "index.html").read_text()
        patch.setattr(Trial, "run", counted)
        page = command()
    return Runs(folder, printed, second.before, page, done, len(trained))


def table(folder):
    """Methods and numbers of samples that results were written of."""
    rows = csv.DictReader((folder / "results.csv").read_text().splitlines())
    return [(row["method"], row["number"]) for row in rows]


def test_reproduction_from_data_to_page(runs):
    html = runs.page.read_text()
    assert html.count('<img src="data:image/png;base64,') == 6
    assert "stand in for UCI Parkinsons" in html
    assert "http:" not in html
    assert "https:" not in html
    assert '<a href="first/report.html">' in html
    assert "body mass index" in (runs.folder / "first" / "report.html").read_text()
    for name in ("comparison.png", "force.png", "gaussianity.png", "results.csv", "results.md"):
        assert (runs.folder / "parkinsons" / name).stat().st_size > 500, name
    rows = list(csv.DictReader((runs.folder / "parkinsons" / "results.csv").read_text().splitlines()))
    exact = next(row for row in rows if row["method"] == "exact_shapley")
    assert float(exact["rmse"]) < 1e-6
    assert {row["method"] for row in rows} >= {"dasp_rank_0", "gradient_dasp", "occlusion", "kernel_shap"}
    printed = runs.printed[-1]
    assert "about 2 minutes" in printed
    assert "stand in for" in printed
    assert str(runs.page) in printed
    assert "left out: " in printed
    assert "BayesianShapley on DASP (more than 300 evaluations)" in html


def test_the_page_is_readable_in_a_browser(runs, look, flaws):
    page = look(runs.page.absolute())
    for summary in page.locator("summary").all():
        summary.click()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert flaws(page) == {}
    assert page.locator("img").count() == page.locator("img[alt]").count() == 6


def test_the_page_grows_with_every_experiment(runs):
    assert "Still to come: The second one." in runs.page_after_first
    assert runs.page_after_first.count('<h2 id="') == 3  # the first report, the paper, one experiment
    assert f"The first experiment is on the page: {runs.folder / 'index.html'}" in runs.printed[1]
    html = runs.page.read_text()
    assert "Still to come" not in html
    assert html.count('<h2 id="') == 4

    def first_section(page):
        return re.search(r'<h2 id="parkinsons">.*?</details>', page, re.DOTALL)[0]

    assert first_section(html) == first_section(runs.page_after_first)


def test_the_page_and_the_command_say_which_size_it_is(runs):
    for page in (runs.page.read_text(), runs.page_after_first):
        assert "<b>Size: quick.</b>" in page
        for other in ("standard", "paper"):
            assert f"<code>python -m reproduction demo --size {other}</code>" in page
    assert "Size quick (--size standard or --size paper for another)" in runs.printed[0]


def test_an_interrupted_reproduction_goes_on(runs):
    assert runs.trained == 2  # once for each experiment
    before, after = runs.measured
    assert len(before) == 5
    measured = table(runs.folder / "parkinsons") + table(runs.folder / "second")
    assert sorted(before + after) == sorted(measured)


def test_benchmark_against_peers(runs, all_alone, monkeypatch):
    monkeypatch.setattr(demonstration, "EXPERIMENTS", {"parkinsons": Small()})
    monkeypatch.setattr(TRIALS, "_ENOUGH", 1e-9)
    monkeypatch.setattr(Small, "train", None)  # it is kept
    out = console()
    (file,) = benchmarking.benchmark("parkinsons", runs.folder, out, threads=torch.get_num_threads())
    found = json.loads(file.read_text())
    methods = {result["method"] for result in found["results"]}
    assert methods >= {*OURS} - {"bayesian_shapley_on_dasp"}
    assert {*PEERS} - methods == {COMPILED}
    assert {"shap_deep_explainer", "shapiq_kernel_shap", "captum_shapley_sampling"} <= methods
    assert (file.parent / "parkinsons.png").stat().st_size > 10_000
    assert found["size"] == "quick"
    assert [entry["budget"] for entry in found["best of ours"]] == [300]
    assert "quicker and nearer" in out.file.getvalue()


@pytest.mark.parametrize("room", sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()))
def test_what_is_kept_is_valid_until_a_room_that_it_depends_on_changes(room, tmp_path):
    package = shutil.copytree(PACKAGE, tmp_path / "dasp")
    assert checksum_of_code(package=package) == checksum_of_code()
    file = max((package / room).rglob("*.py"))
    file.write_text(file.read_text() + "# changed\n")
    assert (checksum_of_code(package=package) != checksum_of_code()) is (room in SUBPACKAGES)
    moved = file.rename(file.with_name("moved.py"))
    moved.write_text(moved.read_text().removesuffix("# changed\n"))
    assert (checksum_of_code(package=package) != checksum_of_code()) is (room in SUBPACKAGES)


def test_results_depend_on_no_room_that_is_not_looked_at():
    imported = set()
    for room in SUBPACKAGES:
        for file in (PACKAGE / room).rglob("*.py"):
            imported |= set(re.findall(r"(?:from|import) dasp\.(\w+)", file.read_text()))
    assert imported <= {*SUBPACKAGES, "display", "errors", "formatting"}  # words for people
    with pytest.raises(FileNotFoundError, match="no such subpackage"):
        checksum_of_code(["experiments"])


def test_sizes_grow():
    for experiment in demonstration.EXPERIMENTS.values():
        quick, standard, paper = (experiment.sizes[name] for name in SizeName)
        for less, more in ((quick, standard), (standard, paper)):
            assert less.rows < more.rows
            assert less.permutations <= more.permutations
            assert less.budgets[-1] <= more.budgets[-1]
            assert less.patience <= more.patience
            assert less.coalitions <= more.coalitions
    everything = list(demonstration.EXPERIMENTS.values())
    assert demonstration.duration(everything[:1], SizeName.QUICK) == "about a minute"
    assert demonstration.duration(everything, SizeName.PAPER) == "hours"


def result(trial):
    return Result(trial.name, 4, trial.cost, trial.cost, 1.0, 0.5, 0.0, 1.0, 0.0)


def test_what_takes_too_long_is_left_out_and_named():
    rows = torch.randn(2, 18)
    data = Data((rows, rows), (rows, rows), [""] * 18, "random")
    problem = Problem.of(Parkinsons().network(data).eval(), rows)
    size = Size(2, 0, (100, 1000), patience=5, at_most={"kernel_shap": 200})
    setting = Setting(Parkinsons(), data, size, problem, {})
    slow = {
        "kernel_shap": COMPARED["kernel_shap"], "permutation_shapley": COMPARED["permutation_shapley"],
        "shapiq_kadd": replace(COMPARED["permutation_shapley"], players=10),
    }  # fmt: skip
    found = measure(setting, slow, lambda *_: None, result)  # 2 s for 100 evaluations, 20 s for 1,000
    assert [r.evaluations for r in found.results] == [100, 70]
    assert found.left_out == [
        "Permutations (at most 10 players)", "KernelSHAP with 1,000 evaluations (too slow for this size)",
        "Permutations with 988 evaluations (more than 5 s)",
    ]  # fmt: skip


def test_the_truth_and_the_methods_draw_different_permutations():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    problem = Problem.of(model, torch.randn(2, 24), permutations=20)
    (same,) = compare(problem, {"permutation_shapley": COMPARED["permutation_shapley"]}, [2 + 20 * 46])
    assert same.number == 20
    assert same.rmse > 0.5 * problem.standard_error


@pytest.mark.parametrize("command", ["demo", "benchmark"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["iris"], "python -m reproduction: iris: no such experiment; there are parkinsons, dna, mnist and all"),
        (["--size", "huge"], "invalid choice: 'huge'"),
        (["--threads", "0"], "0 is not a positive number"),
    ],
)
def test_what_cannot_be_run_is_refused(command, given, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, *given])
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_data_folder_that_is_not_there_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("DASP_DATA", str(tmp_path / "none"))
    with pytest.raises(SystemExit) as stopped:
        main(["demo", "parkinsons", "--output", str(tmp_path), "--threads", "1"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"python -m reproduction: DASP_DATA={tmp_path / 'none'}: there is no such folder")
    assert said.count("\n") == 1
