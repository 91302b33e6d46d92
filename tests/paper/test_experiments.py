"""The paper's experiments: data that are whole or named, work that is kept, and a page with all of it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import http.server
import io
import itertools
import json
import logging
import os
import re
import threading
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from dasp.cli import main
from dasp.errors import BadInput
from dasp.evaluation import Problem, Result, Trial, compare
from dasp.methods import METHODS
from dasp.paper import benchmark as benchmarking
from dasp.paper import files, reproduce
from dasp.paper.claims import BACKPROPAGATION, OURS, SAMPLING, claims, others_on_front, standings
from dasp.paper.dna import generate
from dasp.paper.experiment import Data, Size
from dasp.paper.files import DataFile, find
from dasp.paper.mnist import FILES, MNIST
from dasp.paper.outcome import Outcome, Setting, measured
from dasp.paper.parkinsons import FILE, Parkinsons
from dasp.paper.store import Store

HERE = os.environ.get("DASP_DATA", "")
NOWHERE = "http://127.0.0.1:9/"  # nothing listens there


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data folder, an empty cache and no network."""
    monkeypatch.delenv("DASP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("dasp.paper.parkinsons.FILE", replace(FILE, url=NOWHERE))
    offline = {name: replace(file, url=NOWHERE) for name, file in FILES.items()}
    monkeypatch.setattr("dasp.paper.mnist.FILES", offline)
    return tmp_path


@pytest.fixture
def server(tmp_path):
    """A web server for the files of a folder."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=folder)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


def data_file(content: bytes, url: str, name: str = "rows.csv.gz") -> DataFile:
    return DataFile(name, url, hashlib.sha256(content).hexdigest())


def test_a_download_is_checked_and_kept(alone, server):
    folder, address = server
    content = b"1,2,3\n" * 100
    (folder / "rows.csv.gz").write_bytes(gzip.compress(content))
    assert find(data_file(content, f"{address}rows.csv.gz")) == content
    assert find(data_file(content, NOWHERE)) == content  # from the cache


def test_a_wrong_download_is_refused_and_not_kept(alone, server):
    folder, address = server
    (folder / "rows.csv.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(BadInput, match=r"rows.csv.gz: corrupt or another version \(14 bytes"):
        find(data_file(b"1,2,3", f"{address}rows.csv.gz"))
    assert not list(files.cache().rglob("*.gz"))


def test_a_download_that_breaks_off_is_named(alone):
    class Broken(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"1,2,3")

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Broken) as running:
        threading.Thread(target=running.handle_request, daemon=True).start()
        with pytest.raises(BadInput, match=r"rows.csv: the download broke off"):
            find(data_file(b"1,2,3", f"http://127.0.0.1:{running.server_address[1]}/rows.csv", "rows.csv"))


def test_a_cache_that_cannot_be_written_is_no_obstacle(alone, server, monkeypatch, caplog):
    folder, address = server
    (folder / "rows.csv").write_bytes(b"1,2,3")
    (alone / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(alone / "file"))
    with caplog.at_level(logging.WARNING):
        assert find(data_file(b"1,2,3", f"{address}rows.csv", "rows.csv")) == b"1,2,3"
    assert "cannot be written" in caplog.text


def test_nothing_anywhere(alone, caplog):
    with caplog.at_level(logging.WARNING):
        assert find(data_file(b"", NOWHERE)) is None
    assert "could not be downloaded" in caplog.text


def test_a_data_folder_that_does_not_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("DASP_DATA", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="there is no such folder"):
        find(FILE)


@pytest.mark.parametrize("damage", ["truncated", "changed", "not an archive"])
def test_damaged_files_are_named(monkeypatch, tmp_path, damage):
    content = bytes(range(256)) * 50
    archive = gzip.compress(content)
    raw = {
        "truncated": archive[:-20],
        "changed": gzip.compress(content[:-1] + b"\0"),
        "not an archive": content,
    }[damage]
    (tmp_path / "rows.csv.gz").write_bytes(raw)
    monkeypatch.setenv("DASP_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=re.escape(str(tmp_path / "rows.csv.gz")) + ".*corrupt"):
        find(data_file(content, NOWHERE))


def test_a_truncated_table_is_named(monkeypatch, tmp_path):
    (tmp_path / FILE.path).write_text("subject#,age\n1,72\n")
    monkeypatch.setenv("DASP_DATA", str(tmp_path))
    with pytest.raises(BadInput, match=r"parkinsons_updrs.csv: corrupt or another version \(18 bytes"):
        Parkinsons().data()


@pytest.mark.skipif(not HERE, reason="$DASP_DATA is not set")
def test_the_real_data():
    data = Parkinsons().data()
    assert data.stands_in_for is None
    assert data.train[0].shape == (4995, 18)
    assert data.test[0].shape == (880, 18)
    everything = torch.cat([data.train[0], data.test[0]])
    assert everything.min(0).values.eq(-1).all()
    assert everything.max(0).values.eq(1).all()
    assert data.players[:3] == ["age", "sex", "Jitter(%)"]
    images = MNIST().data()
    assert images.stands_in_for is None
    assert (len(images.train[0]), len(images.test[0])) == (60_000, 10_000)
    assert images.test[1][:5].tolist() == [7, 2, 1, 0, 4]  # known to everyone
    assert images.test[0].min() == -1
    assert images.test[0].max() == 1


def test_stand_ins_say_so(alone):
    table, images = Parkinsons().data(), MNIST().data()
    assert "Parkinsons" in table.stands_in_for
    assert "diabetes" in table.source
    assert table.train[0].shape[1] == len(table.players) == 10
    assert "MNIST" in images.stands_in_for
    assert len(images.test[0]) == 1000
    assert images.test[1].bincount().min() > 70  # all digits


def test_generated_sequences_have_their_motifs():
    sequences = generate(400, seed=3)
    assert sequences.one_hot.sum(1).eq(1).all()
    for i, places in enumerate(sequences.planted):
        kinds = {name for _, _, name in places}
        assert sequences.labels[i].tolist() == [len(kinds) == 2, "GATA" in kinds, "TAL1" in kinds]
        assert all(1 <= sum(name == kind for _, _, name in places) <= 3 for kind in kinds)
        assert all(a + length <= b for (a, length, _), (b, _, _) in itertools.pairwise(places))
    cores = [
        sequences.letters(i)[start + 3 : start + 6]
        for i, places in enumerate(sequences.planted)
        for start, _, name in places
        if name == "GATA"
    ]
    assert sum(core == "GAT" for core in cores) / len(cores) > 0.98
    background = sequences.one_hot[::4].mean((0, 2))  # without motifs
    torch.testing.assert_close(background, torch.tensor([0.27, 0.23, 0.23, 0.27]), atol=0.02, rtol=0)


def test_a_store_notices_damage_and_changes(tmp_path, caplog):
    store = Store(tmp_path)
    made = []

    def make():
        made.append(1)
        return {"x": torch.ones(3)}

    for _ in range(2):
        assert store.keep("a/b", {"k": 1.5}, make)["x"].sum() == 3
    assert len(made) == 1
    store.keep("a/b", {"k": 2}, make)
    assert len(made) == 2
    file = tmp_path / "a" / "b.pt"
    file.write_bytes(file.read_bytes()[:-10])
    with caplog.at_level(logging.WARNING):
        store.keep("a/b", {"k": 2}, make)
    assert len(made) == 3
    assert "b.pt is corrupt" in caplog.text
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b.json", "b.pt"]


class Small(Parkinsons):
    """A few rows of the stand-in, hardly trained."""

    epochs = 2
    default = Size(2, 0, (60, 300))


@pytest.fixture
def small(alone, monkeypatch):
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {"parkinsons": Small()})
    return alone / "results"


def console() -> Console:
    return Console(file=io.StringIO(), width=160)


def test_reproduction_from_data_to_page(small):
    out = console()
    page = reproduce.reproduce("all", small, out, threads=torch.get_num_threads())
    html = page.read_text()
    assert html.count('<img src="data:image/png;base64,') == 3
    assert "stand in for UCI Parkinsons" in html
    assert "http" not in html  # it needs nothing else
    for name in ("comparison.png", "force.png", "gaussianity.png", "results.csv", "results.md"):
        assert (small / "parkinsons" / name).stat().st_size > 500, name
    rows = list(csv.DictReader((small / "parkinsons" / "results.csv").read_text().splitlines()))
    exact = next(row for row in rows if row["method"] == "Exact")
    assert float(exact["rmse"]) < 1e-6
    assert {row["method"] for row in rows} >= {"DASP", "GradientDASP", "Occlusion", "KernelSHAP"}
    printed = out.file.getvalue()
    assert "about 2 minutes" in printed
    assert "stand in for" in printed
    assert str(page) in printed
    assert "left out: " in printed
    assert "BayesianShapley on DASP (more than 300 evaluations)" in html


def test_an_interrupted_reproduction_goes_on(small, monkeypatch):
    run, done = Trial.run, []

    def interrupted(trial):
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append((trial.name, trial.number))
        return run(trial)

    monkeypatch.setattr(Trial, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce("parkinsons", small, console(), threads=torch.get_num_threads())
    trained = []
    monkeypatch.setattr(Trial, "run", lambda trial: done.append((trial.name, trial.number)) or run(trial))
    monkeypatch.setattr(Small, "train", lambda *_: trained.append(1))
    page = reproduce.reproduce("parkinsons", small, console(), threads=torch.get_num_threads())
    assert not trained
    assert len(done) == len(set(done))
    number, again = len(done), page.read_text()
    reproduce.reproduce("parkinsons", small, console(), threads=torch.get_num_threads())
    assert len(done) == number
    minutes = r"[\d.]+ minutes"
    assert re.sub(minutes, "", again) == re.sub(minutes, "", page.read_text())


def test_benchmark_against_peers(small):
    out = console()
    (file,) = benchmarking.benchmark("parkinsons", small, out, threads=torch.get_num_threads())
    found = json.loads(file.read_text())
    methods = {result["method"] for result in found["results"]}
    assert methods >= {*OURS} - {"BayesianShapley on DASP"}
    assert {"shap DeepExplainer", "shapiq KernelSHAP", "captum Shapley sampling"} <= methods
    assert (file.parent / "parkinsons.png").stat().st_size > 10_000
    assert [entry["budget"] for entry in found["best of ours"]] == [60, 300]
    assert "quicker and nearer" in out.file.getvalue()


def result(method, evaluations, seconds, rmse, spearman=1.0):
    return Result(method, 4, evaluations, evaluations // 2, seconds, rmse, 0.0, spearman, 0.0)


def outcome(experiment, results, **quality):
    """Of made-up results."""
    rows = torch.zeros(2, 18)
    data = Data((rows, rows), (rows, rows), [""] * 18, "made up")
    return Outcome(experiment, data, Size(2, 0, (100,)), Problem(None, {}, rows, 0.0), quality, results, [])


BIASED = [result(name, 3, 0.1, 2.0) for name in (*BACKPROPAGATION, "Occlusion")]


def verdicts(experiment, results, **quality):
    return {claim.paper: claim.holds for claim in claims(outcome(experiment, results, **quality))}


@pytest.mark.parametrize(
    ("samplers", "holds"),
    [
        ([("Permutations", 3000, 0.4), ("Shapley sampling", 5000, 0.6), ("KernelSHAP", 5000, 0.9)], True),
        ([("Permutations", 1500, 0.4), ("Shapley sampling", 5000, 0.6), ("KernelSHAP", 5000, 0.9)], False),
        ([("Permutations", 3000, 0.4), ("Shapley sampling", 1500, 0.6), ("KernelSHAP", 5000, 0.9)], None),
    ],
)
def test_that_sampling_needs_more_is_claimed_only_where_it_was_measured(samplers, holds):
    results = [*BIASED, result("DASP", 1000, 1.0, 0.5, 0.98), *(result(n, e, 1.0, r) for n, e, r in samplers)]
    found = verdicts(Parkinsons(), results, **{"test MAE": 4.4, "test MSE": 33.0})
    assert next(held for said, held in found.items() if said.startswith("sampling needs")) is holds
    assert found["“4.0 test error (MSE)”"] is False
    assert found["the authors' notebook: MAE 4.43, MSE 35.06"] is True
    assert found["DASP is nearer to the Shapley values than every backpropagation method and Occlusion"] is True


def test_every_number_of_a_claim_counts():
    results = [*BIASED, result("DASP", 1000, 1.0, 0.5, 0.5), *(result(name, 3000, 1.0, 0.4) for name in SAMPLING)]
    found = verdicts(Parkinsons(), results, **{"test MAE": 4.4, "test MSE": 33.0})
    assert next(held for said, held in found.items() if "Spearman 0.97" in said) is False


def test_kernelshap_and_sampling_are_compared_where_both_were():
    both = [result("Shapley sampling", 900, 1.0, 0.5), result("Shapley sampling", 30_000, 1.0, 0.1)]
    for error, holds in ((0.6, True), (0.4, False)):
        results = [*BIASED, result("DASP", 1000, 1.0, 0.5), *both, result("KernelSHAP", 1000, 1.0, error)]
        found = verdicts(MNIST(), results, **{"test accuracy": 0.99})
        assert found["KernelSHAP is worse than plain sampling"] is holds


def test_what_takes_too_long_is_left_out_and_named(monkeypatch):
    rows = torch.randn(2, 18)
    data = Data((rows, rows), (rows, rows), [""] * 18, "random")
    problem = Problem.of(Parkinsons().network(data).eval(), rows)
    setting = Setting(Parkinsons(), data, Size(2, 0, (100, 1000), patience=5), problem, {})
    slow = {"Permutations": METHODS["Permutations"], "shapiq kADD": replace(METHODS["Permutations"], players=10)}
    measure = lambda trial: result(trial.name, trial.cost, 1.0, 0.5)  # 2 s for 100 evaluations, 20 s for 1,000
    found = measured(setting, slow, lambda *_: None, measure)
    assert [r.evaluations for r in found.results] == [70]
    assert found.left_out == [
        "shapiq kADD (at most 10 players)", "Permutations with 988 evaluations (more than 5 s)",
    ]  # fmt: skip


def test_the_truth_and_the_methods_draw_different_permutations():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 1)).eval()
    problem = Problem.of(model, torch.randn(2, 24), permutations=20)
    (same,) = compare(problem, {"Permutations": METHODS["Permutations"]}, [2 + 20 * 46])
    assert same.number == 20
    assert same.rmse > 0.5 * problem.standard_error


def test_points_where_a_peer_is_ahead_are_found():
    ours = [result("DASP", 100, 1.0, 0.5), result("GradientDASP", 500, 2.0, 0.3)]
    peers = [result("peer", 50, 0.1, 0.9), result("fast", 400, 0.9, 0.4), result("slow", 400, 9.0, 0.6)]
    peers.append(replace(result("few", 90, 8.0, 0.2), seconds_alone=0.1))
    ours = [replace(r, seconds_alone=0.5) for r in ours]
    table = standings(ours + peers, [100, 500, 5])
    found = [(s.budget, s.best.method, *([r.method for r in some] for some in (s.quicker, s.fewer))) for s in table]
    assert found == [(100, "DASP", ["fast"], ["few"]), (500, "GradientDASP", [], ["few"])]
    assert [r.method for r in table[0].quicker_alone] == ["few"]
    assert {r.method for r in others_on_front(ours + peers)} == {"peer", "fast", "few"}


@pytest.mark.parametrize("command", ["reproduce", "benchmark"])
def test_an_unknown_experiment_is_one_line(command, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["dasp", command, "iris"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "dasp: iris: no such experiment; there are parkinsons, dna, mnist and all\n"
