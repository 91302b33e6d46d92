"""Data of the experiments are whole or named; what was computed is kept, and noticed if it is damaged."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import itertools
import logging
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from dasp.errors import BadInput
from reproduction.data_files import DataFile, cache, find
from reproduction.dna import generate
from reproduction.mnist import MNIST
from reproduction.parkinsons import FILE, Parkinsons
from reproduction.store import Store

HERE = Path(os.environ.get("DASP_DATA") or "none")
NOWHERE = "http://127.0.0.1:9/"  # nothing listens there


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
        threading.Thread(target=running.serve_forever, args=[0.01], daemon=True).start()
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
    assert not list(cache().rglob("*.gz"))


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


@pytest.mark.skipif(not HERE.is_dir(), reason="$DASP_DATA is not a folder: it has the data of the paper")
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


def test_threads_make_a_thing_once_and_read_it_whole(tmp_path, caplog):
    store, made = Store(tmp_path), []
    start = threading.Barrier(8)

    def run(number):
        start.wait()
        return [keep(number, step) for step in range(6)]

    def keep(number, step):
        def make():
            made.append((number, step))
            return torch.full((1000,), float(step))

        shared = store.keep(f"shared {step}", {}, make)
        own = store.keep("changing", {"for": number}, lambda: torch.full((1000,), float(number)))
        return bool((shared == step).all() and (own == number).all())

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(8) as pool:
        assert all(itertools.chain(*pool.map(run, range(8))))
    assert len(made) == 6
    assert "corrupt" not in caplog.text
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".pt"}
