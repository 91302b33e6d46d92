"""Data files that can be read, odd as some are: what their rows are, and what is said of them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from explain_files import besides_random, dasp, rows, write_good_files
from PIL import EpsImagePlugin, Image

from dasp.errors import BadInput
from dasp.jobs.reading.chunks import open_data, survey

LIMIT = 2**30


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_good_files(tmp_path)
    return tmp_path


def read(path, size=3, skip=frozenset()):
    source = pickle.loads(pickle.dumps(open_data(path, limit=LIMIT)))  # as it is sent to workers
    return np.concatenate([chunk.values for chunk in source.chunks(size, skip)])


@pytest.mark.parametrize("dtype", ["f4", ">f8", "i2", "?"])
@pytest.mark.parametrize("shape", [(7, 4), (7, 2, 3)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(tmp_path, dtype, shape, order):
    x = np.asarray(np.random.default_rng(0).integers(0, 2, shape).astype(dtype), order=order)
    x = np.asfortranarray(x) if order == "F" else x
    np.save(tmp_path / "x.npy", x)
    assert np.array_equal(read(tmp_path / "x.npy"), x)
    assert np.array_equal(read(tmp_path / "x.npy", skip=frozenset({1})), x[[0, 1, 2, 6]])
    if order == "C":
        for save in (np.savez, np.savez_compressed):
            save(tmp_path / "x.npz", x)
            assert np.array_equal(read(tmp_path / "x.npz"), x)
            assert np.array_equal(read(tmp_path / "x.npz", skip=frozenset({0})), x[3:])


SHRINKING = """
import os, sys
from pathlib import Path
from dasp.errors import BadInput
from dasp.jobs.reading.chunks import open_data

chunks = open_data(Path(sys.argv[1]), limit=2**30).chunks(2000)
next(chunks)
os.truncate(sys.argv[1], 200)
try:
    print(len(next(chunks).values))
except BadInput as error:
    print(error)
"""


def test_an_array_that_gets_shorter_while_it_is_read(tmp_path):
    """In a process of its own, as the system would end it if the file was mapped into memory."""
    np.save(tmp_path / "x.npy", np.zeros((4000, 40)))
    command = [sys.executable, "-c", SHRINKING, "x.npy"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "x.npy: is truncated\n"), result.stderr


def test_an_array_of_another_shape_in_its_place(tmp_path):
    np.save(tmp_path / "x.npy", rows(10))
    source = open_data(tmp_path / "x.npy", limit=LIMIT)
    np.save(tmp_path / "x.npy", rows(9))
    with pytest.raises(BadInput, match="has changed while it was read"):
        next(source.chunks(2))


def test_the_limit_can_be_raised(here):
    refused = dasp("explain", "small:build", "rows.npy", "-o", "out.parquet", "--max-unpacked", "31")
    allowed = dasp("explain", "small:build", "rows.npy", "-o", "out.parquet", "--max-unpacked", "32")
    assert (refused.code, allowed.code) == (2, 0)
    raised = dasp("explain", "small:build", "rows.npy", "-o", "out.parquet", "--max-unpacked", "4GiB")
    assert "done before" in raised.out  # it is not part of what is computed


def test_repeated_ids_are_counted_and_said_once(here):
    table = pd.DataFrame(rows(6), columns=list("abcd")).assign(n=["p", "q", "p", "p", "r", "q"])
    table.to_csv("ids.csv", index=False)
    table.to_parquet("ids.parquet")
    for file in ("ids.csv", "ids.parquet"):
        result = dasp("explain", "small:build", file, "--id", "n", "-o", "out.parquet", "--chunk", "2", "--overwrite")
        assert (result.code, besides_random(result.err)) == (0, "")
        assert result.out.count("warning: 3 of 6 rows have an id that an earlier row has, too\n") == 1
        assert list(pq.read_table("out.parquet")["id"].to_pylist()) == list(table.n)
    table.assign(n=[-1, -2, 0, 1, 2, 3]).to_csv("ids.csv", index=False)  # Python's hashes of the first two are equal
    assert survey(open_data(here / "ids.csv", id_="n", limit=LIMIT), here, "float32", fail=True).repeated == 0


def folder_of(here, **images):
    (here / "images").mkdir()
    for name, (image, how) in images.items():
        image.save(here / "images" / name.replace("_", "."), **how)
    return here / "images"


def test_images_are_turned_as_they_say(here):
    pixels = np.arange(16, dtype=np.uint8).reshape(2, 8)
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned by 90° clockwise
    folder = folder_of(here, a_png=(image, {"exif": exif}), b_tiff=(image, {"exif": exif}))
    expected = np.rot90(pixels, -1) / np.float32(255)
    assert np.array_equal(read(folder), np.stack([expected[None]] * 2))


def test_what_is_lost_of_images_is_said_once(here):
    png = here / "deep.png"
    _write_deep_png(png)
    grey = Image.new("L", (2, 2))
    grey.info["transparency"] = 7
    folder = folder_of(
        here,
        a_png=(Image.new("RGB", (2, 2)), {}),
        b_png=(Image.new("RGBA", (2, 2)), {}),
        c_png=(Image.new("LA", (2, 2)), {}),
        d_gif=(Image.new("P", (2, 2)), {"transparency": 0}),
    )
    (folder / "e.png").write_bytes(png.read_bytes())
    seen = survey(open_data(folder, limit=LIMIT), folder, "float32", fail=True)
    assert list(seen.warnings()) == [
        "transparency is left out in 3 of 5 images",
        "16 bits of a colour become 8 in 1 of 5 images",
    ]
    assert read(folder).shape == (5, 3, 2, 2)


def _write_deep_png(file):
    """2 × 2 pixels of red, green and blue in 16 bits, which Pillow does not write."""
    import struct  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    def chunk(kind, content):
        return struct.pack(">L", len(content)) + kind + content + struct.pack(">L", zlib.crc32(kind + content))

    lines = (b"\0" + bytes(2 * 3 * 2)) * 2
    header = struct.pack(">LLBBBBB", 2, 2, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def test_no_program_is_started_for_an_image(here, monkeypatch):
    """PostScript by the name of an image would be given to Ghostscript, here a program that leaves a mark."""
    program = here / "bin" / "gs"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\ntouch {here}/started\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    folder = folder_of(here, a_png=(Image.new("L", (2, 2)), {"format": "EPS"}))
    result = dasp("explain", "small:pictures", folder, "-o", "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert not (here / "started").exists()
    with Image.open(folder / "a.png") as image, pytest.raises(OSError):  # noqa: PT011 - nothing comes of it
        image.load()
    assert (here / "started").exists()  # the mark works


def test_images_beyond_the_limit_are_not_decoded(here, monkeypatch):
    folder = folder_of(here, a_png=(Image.new("RGB", (300, 300)), {}))
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    with pytest.raises(BadInput, match=r"the image takes 2.1 MiB when it is read, and --max-unpacked allows 1.0 MiB"):
        open_data(folder, limit=2**20)


def test_pillows_limit_gives_way_to_ours(here, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    folder = folder_of(here, a_png=(Image.new("L", (9, 9)), {}))
    assert read(folder).shape == (1, 1, 9, 9)
    assert Image.MAX_IMAGE_PIXELS == 10


def test_ids_that_python_does_not_have(here):
    times = pa.array([0, 2**62, 1], pa.timestamp("us"))
    pq.write_table(pa.table({**dict(zip("abcd", rows(3).T, strict=True)), "t": times}), "times.parquet")
    result = dasp("explain", "small:build", "times.parquet", "--id", "t", "-o", "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "the ids of type timestamp[us] cannot be read" in result.err


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
def test_a_name_in_a_header_may_have_several_lines(here, end):
    (here / "lines.csv").write_text(f'a,"b{end}in cm",c,d\n1,2,3,4\n5,6,7,8\n', newline="")
    source = open_data(here / "lines.csv", limit=LIMIT)
    assert source.names == ("a", f"b{end}in cm", "c", "d")
    np.testing.assert_array_equal(read(here / "lines.csv"), [[1, 2, 3, 4], [5, 6, 7, 8]])
