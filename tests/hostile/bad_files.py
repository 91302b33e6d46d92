"""The files of the table of commands: each wrong in one way."""

from __future__ import annotations

import io
import json
import os
import py_compile
import shutil
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from explain_files import FACTORY, dasp, rows, write_csv
from PIL import Image, PngImagePlugin
from small_language import bert_tokenizer
from torch import nn


def write_bad_files(here: Path) -> None:
    """All files of the table."""
    x = rows()
    (here / "small.py").write_text(FACTORY + _UNTRACEABLE)
    sys.modules.pop("small", None)  # of another folder
    (here / "torn.py").write_text("def build(): ...")
    compiled = Path(py_compile.compile(str(here / "torn.py"), doraise=True))  # as it is left where the disk is full
    compiled.write_bytes(compiled.read_bytes()[:50])
    _text_files(here, x)
    _parquet_files(here, x)
    _numpy_files(here, x)
    _forged_arrays(here)
    _images(here)
    _odd_images(here)
    _special_files(here)
    _folders_of_language(here)
    torch.save(nn.Linear(4, 3), here / "pickled.pt")
    torch.save(nn.Linear(5, 3).state_dict(), here / "other.pt")
    _programs(here)
    _onnx_models(here)
    for name in ("damaged.pt2", "damaged.pt", "model.h5", "model.onnx", "model.ts", "damaged.safetensors", "rows.xlsx"):
        (here / name).write_bytes(b"\x08\x00nothing of use")
    (here / "folder.parquet").mkdir()
    (here / "folder.csv.json").mkdir()


def _onnx_models(here: Path) -> None:
    """Models whose tensors are in files that cannot be, or are said to be in tags that are too long."""

    def field(number: int, content: bytes, beyond: int = 0) -> bytes:
        return _varint(number << 3 | 2 | beyond << 32) + _varint(len(content)) + content

    def model(location: str, beyond: int = 0) -> bytes:
        tensor = field(8, b"w") + b"\x08\x03\x10\x01\x70\x01"  # of 3 numbers in float32, in another file
        tensor += field(13, field(1, b"location") + field(2, location.encode()), beyond)
        return b"\x08\x08" + field(7, field(5, tensor)) + field(8, b"\x10\x11")

    (here / "nul.onnx").write_bytes(model("a\0b"))
    (here / "long.onnx").write_bytes(model("long" * 100))
    (here / "tags.onnx").write_bytes(model("rows.csv", beyond=1))
    (here / "outside.onnx").write_bytes(model("../secret.bin"))


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number % 128 | 128]) + _varint(number // 128)


def _programs(here: Path) -> None:
    rows = {0: torch.export.Dim("rows")}
    training = nn.Sequential(nn.Linear(4, 3), nn.Dropout())
    torch.export.save(torch.export.export(training, (torch.ones(2, 4),), dynamic_shapes=(rows,)), here / "training.pt2")
    words = nn.Sequential(nn.Embedding(10, 3), nn.Flatten(), nn.Linear(12, 3)).eval()
    whole = torch.ones(2, 4, dtype=torch.int64)
    torch.export.save(torch.export.export(words, (whole,), dynamic_shapes=(rows,)), here / "words.pt2")
    shutil.copy(here / "words.pt2", here / "program.pt")


_UNTRACEABLE = """

class Untraceable(nn.Module):
    def forward(self, x):
        return x[:, :3] if float(x.sum()) > 0 else x[:, 1:]


def leaves():
    raise SystemExit(0)


def meta():
    with torch.device("meta"):
        return build()


class Buffered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.ones(1, device="meta"))


class Leaves(nn.Module):
    def forward(self, x):
        raise SystemExit
"""


def _text_files(here: Path, x: np.ndarray) -> None:
    write_csv(here / "rows.csv", x)
    texts = {
        "empty.csv": "", "header.csv": "a,b,c,d\n", "nameless.csv": "1,2,3,4\n5,6,7,8\n",
        "unnamed.csv": "a,,c,d\n1,2,3,4\n",
        "text.csv": "a,b,c,d\n1,2,3,4\n1,two,3,4\n", "ragged.csv": "a,b,c,d\n1,2,3,4\n1,2,3\n",
        "twice.csv": "a,b,a,d\n1,2,3,4\n", "missing.csv": "a,b,c,d\n1,2,3,4\n1,2,,4\n",
        "infinite.csv": "a,b,c,d\ninf,2,3,4\n", "huge.csv": "a,b,c,d\n1,2,1e300,4\n",
        "hopeless.csv": "a,b,c,d\n,2,3,4\n1,nan,3,4\n", "narrow.csv": "a,b,c\n1,2,3\n",
        "labelled.csv": "a,b,c,d,large,half,missing\n1,2,3,4,9,0.5,\n",
        "classes.csv": "a,b,c,d,label,lost\n1,2,3,4,no,yes\n5,6,7,8,perhaps,\n",
        "taken.csv": "a,b,c,prediction\n1,2,3,4\n", "whole.csv": "a,b,c,d\n1,2,3,4\n",
        "named.csv": "the name,a,b,c,d\nP0,1,2,3,4\n",
        "id.csv": "id,b,c,d\n1,2,3,4\n", "target.csv": "a,b,c,target\n1,2,3,4\n",
        "text.parquet": "a,b\n1,2\n", "empty.parquet": "", "text.npy": "a,b\n1,2\n", "text.npz": "a,b\n1,2\n",
        "broken.json": '{"one": ["a",', "list.json": '["a", "b"]', "flat.json": '{"one": "a"}',
        "skips.json": '{"one": ["a", "b"], "two": ["c"]}', "twice.json": '{"one": ["a", "b"], "two": ["a", "c", "d"]}',
        "strange.json": '{"one": ["a", "b", "c", "d"], "two": ["z"]}',
        "names.json": '{"one": ["a"], "one": ["b", "c", "d"]}',
        "taken.json": '{"one": ["a", "b"], "gap": ["c", "d"]}',
        "hollow.json": '{"one": [], "two": ["a", "b", "c", "d"]}', "lone.json": '{"\\ud800": ["a", "b", "c", "d"]}',
        "deep.json": '{"one": ' + "[" * 100_000, "digits.json": '{"one": [' + "9" * 5000 + "]}",
        "nested.json": '{"one": [["a"], "b", "c", "d"]}', "none.json": "{}",
        "skips.csv.json": "{}", "beside.csv.json": '{"one": ["a", "b", "c", "d"]}',
        "data.csv": "a,b,c,data:d\n1,2,3,4\n", "gap.csv": "gap_a,gap_b,c,d\n1,2,3,4\n",
        "quoted.csv": 'a,"b,c,d\n1,2,3,4\n', "lines.csv": 'a,"b\n\nx",c,d\n1,2,3,4\n1,2,k,4\n',
        "good.json": '{"one": ["a", "b"], "two": ["c", "d"]}',
    }  # fmt: skip
    for name, text in texts.items():
        (here / name).write_text(text)
    (here / "binary.csv").write_bytes(b"a,b\xff\xfe\n1,2\n")


def _parquet_files(here: Path, x: np.ndarray) -> None:
    table = pd.DataFrame(x, columns=list("abcd"))
    table.to_parquet(here / "whole.parquet")
    whole = (here / "whole.parquet").read_bytes()
    (here / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (here / "damaged.parquet").write_bytes(whole[:8] + bytes(200) + whole[208:])
    table.assign(a="text").to_parquet(here / "strings.parquet")
    table.assign(a=[[1.0]] * len(x)).to_parquet(here / "lists.parquet")
    table.assign(a=pd.Timestamp("2019-06-09")).to_parquet(here / "dates.parquet")
    table[:0].to_parquet(here / "none.parquet")
    table.assign(b=[1.0, 2.0, None, *range(len(x) - 3)]).to_parquet(here / "nulls.parquet")
    columns = [pa.array(column) for column in x.T]
    pq.write_table(pa.Table.from_arrays(columns, names=list("abad")), here / "twice.parquet")
    for name, added in {"name": {"qqqq": x[:, 0]}, "ids": {"n": ["qqqq"] * len(x)}}.items():
        plain = pa.table({**dict(zip("abcd", columns, strict=True)), **added})
        pq.write_table(plain, here / f"{name}.parquet", store_schema=False, compression="none", use_dictionary=False)
        whole = (here / f"{name}.parquet").read_bytes()
        (here / f"{name}.parquet").write_bytes(whole.replace(b"qqqq", b"\xff\xfe\xff\xfe"))


def _numpy_files(here: Path, x: np.ndarray) -> None:
    nan = x.copy()
    nan[5, 3] = np.nan
    nans = np.zeros((2, 4, 4), np.float32)
    nans[0, 1, 2] = np.nan
    arrays = {
        "rows": x, "flat": x[0], "strings": np.array([["a"]]), "complex": x.astype(complex), "none": x[:0],
        "cube": x.reshape(-1, 2, 2), "nan": nan, "nans": nans, "wide": rows(3, 12), "narrow": x[:1, :3],
        "gap": np.array([0, 0, 2, 2]), "far": np.array([0, 0, 2**33, 2**33]),
        "wrapped": np.array([0, 0, 2**64 - 1, 1], np.uint64), "hollow": x[:, :0],
        "negative": np.array([-1, 0, 1, 1]), "short": np.array([0, 1, 2]),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(here / f"{name}.npy", array)
    signalling = np.ones((2, 4), np.float32)
    signalling.view(np.uint32)[1, 2] = 0x7F800001  # a NaN that makes processors complain
    np.save(here / "signalling.npy", signalling)
    poles = x.copy()
    poles[:, 0] = 7
    np.save(here / "poles.npy", poles)
    np.save(here / "objects.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    whole = (here / "rows.npy").read_bytes()
    (here / "truncated.npy").write_bytes(whole[:-50])
    np.savez(here / "two.npz", x=x, y=x)
    np.savez(here / "zero.npz")
    np.savez(here / "fortran.npz", np.asfortranarray(x))
    np.savez(here / "damaged.npz", x=x)
    whole = (here / "damaged.npz").read_bytes()
    (here / "truncated.npz").write_bytes(whole[: len(whole) // 2])
    middle = len(whole) // 2
    (here / "damaged.npz").write_bytes(whole[:middle] + bytes(4) + whole[middle + 4 :])
    _damaged_streams(here)


def _damaged_streams(here: Path) -> None:
    np.savez_compressed(here / "stream.npz", np.arange(36_000, dtype=np.int32).reshape(-1, 4))
    whole = (here / "stream.npz").read_bytes()
    for name, place in {"stream.npz": len(whole) // 2, "start.npz": whole.index(b".npy") + 30}.items():
        (here / name).write_bytes(whole[:place] + b"\xff" * 64 + whole[place + 64 :])
    np.savez(here / "archive.npz", whole=1)
    (here / "archive.npz").rename(here / "archive.npy")


def _npy(shape: tuple[object, ...], entries: bytes = bytes(64)) -> bytes:
    """An NPY file of float32 that says of itself what it likes."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return stream.getvalue() + entries


def _npz(file: Path, content: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("x.npy", content)
    return file.read_bytes()


def _forged_arrays(here: Path) -> None:
    shapes = {"giant": (2**62, 4), "minus": (-1, 4), "true": (True, 4), "many": (1,) * 70, "vast": (0, 2**40)}
    for name, shape in shapes.items():
        (here / f"{name}.npy").write_bytes(_npy(shape))
        _npz(here / f"{name}.npz", _npy(shape))
    (here / "newer.npy").write_bytes(_npy((2, 4)).replace(b"NUMPY\x01", b"NUMPY\x07"))
    (here / "tongues.npy").write_bytes(_npy((2, 4)).replace(b"False", b"'\\d' "))
    whole = _npz(here / "version.npz", _npy((2, 4)))
    directory = whole.index(b"PK\1\2")
    (here / "version.npz").write_bytes(whole[: directory + 6] + b"\x64" + whole[directory + 7 :])
    for name, size in {"bomb.npz": 2**30, "early.npz": 2**20}.items():  # they declare more than they have
        content = _npy((1, size // 4), b"")
        whole = _npz(here / name, content)
        declared = struct.pack("<LL", len(content), len(content) + size)  # some versions of Python look at the first
        (here / name).write_bytes(whole.replace(struct.pack("<LL", len(content), len(content)), declared))
    for name, method in {"lzma.npz": zipfile.ZIP_LZMA, "bz2.npz": zipfile.ZIP_BZIP2}.items():
        whole = _npz(here / name, _npy((2, 4)), method)
        (here / name).write_bytes(whole[:80] + bytes(8) + whole[88:])


def _images(here: Path) -> None:
    def picture(file: str, mode: str = "L", size: tuple[int, int] = (4, 4)) -> None:
        (here / file).parent.mkdir(exist_ok=True)
        Image.new(mode, size).save(here / file)

    (here / "nothing").mkdir()
    (here / "nothing" / "readme.txt").write_text("no images")
    for name in ("images", "sizes", "colours", "torn", "fake"):
        picture(f"{name}/a.png")
    picture("sizes/b.png", size=(4, 5))
    picture("colours/b.png", "RGB")
    picture("deep/a.png", "I;16")
    whole = (here / "torn" / "a.png").read_bytes()
    (here / "torn" / "b.png").write_bytes(whole[: whole.index(b"IDAT") + 8])
    (here / "fake" / "b.png").write_text("no image")


def _odd_images(here: Path) -> None:
    for name in ("eps", "large", "texts", "latin"):
        (here / name).mkdir()
    Image.new("L", (4, 4)).save(here / "eps" / "a.png", format="EPS")
    Image.new("1", (12_000, 12_000)).save(here / "large" / "a.png")
    text = PngImagePlugin.PngInfo()
    text.add_text("comment", " " * 2**21, zip=True)
    Image.new("L", (4, 4)).save(here / "texts" / "a.png", pnginfo=text)
    Image.new("L", (4, 4)).save(os.fsdecode(os.fsencode(here / "latin") + b"/\xff.png"))


def _special_files(here: Path) -> None:
    (here / "pipes").mkdir()
    for name in ("pipe.csv", "pipe.parquet", "pipe.npy", "pipe.npz", "pipe.json", "pipe.html", "pipes/a.png"):
        os.mkfifo(here / name)
    (here / "loop.csv").symlink_to("loop.csv")
    (here / "dead").mkdir()
    (here / "dead" / "a.png").symlink_to("nowhere")


def _folders_of_language(here: Path) -> None:
    (here / "said.csv").write_text("n,said\n1,a good film\n2,\n")
    (here / "full.csv").write_text("n,said\n1,a good film\n2,the lazy dog\n")
    bert_tokenizer().save_pretrained(here / "words")
    (here / "repeated.csv").write_text(f"n,said\n1,{'a' * 40}b\n")
    bert_tokenizer().save_pretrained(here / "endless")
    own = json.loads((here / "endless" / "tokenizer.json").read_text())
    pattern = {"Regex": "(a+)+$"}  # which takes a time that doubles with every letter
    own["pre_tokenizer"] = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    (here / "endless" / "tokenizer.json").write_text(json.dumps(own))
    for file in ("broken/tokenizer.json", "adapter/adapter_config.json", "language/config.json"):
        (here / file).parent.mkdir()
        (here / file).write_text("{}")
    (here / "language" / "model.safetensors").write_bytes(b"\x08\x00nothing of use")


def write_outputs(here: Path) -> None:
    """Outputs of `dasp explain`, and files of values, for the table of audits."""
    write_csv(here / "done-rows.csv", rows() + 1)
    write_csv(here / "good.csv", rows(2))
    for name in ("done", "edited"):
        assert dasp("explain", "small:build", "done-rows.csv", "-o", f"{name}.csv", "--target", "0").code == 0
    (here / "edited.csv").write_text((here / "edited.csv").read_text().replace("0.", "1."))
    (here / "done-rows.csv").rename(here / "gone.csv")
    assert dasp("explain", "small:build", "gone.csv", "-o", "lost.csv").code == 0
    (here / "gone.csv").rename(here / "done-rows.csv")
    told = json.loads((here / "done.csv.json").read_text())
    pd.DataFrame(rows(1), columns=list("abcd")).assign(**{"the name": ["P77"]}).to_csv(
        here / "stranger.csv", index=False
    )
    table = pa.table({"id": [0], "base_value": [0.0], "gap": [0.0]})
    texts = {**told["dasp"], "options": {**told["dasp"]["options"], "text": "said"}}
    for name, record in (("newer", {"version": 9}), ("texts", texts)):
        metadata = {"dasp": json.dumps(record), "dasp rows": "1"}
        pq.write_table(table.replace_schema_metadata(metadata), here / f"{name}.parquet")
