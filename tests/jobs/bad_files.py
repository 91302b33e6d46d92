"""The files of test_bad_input's table: each wrong in one way."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from explain_files import FACTORY, rows, write_csv
from PIL import Image
from torch import nn


def write_bad_files(here: Path) -> None:
    """All files of the table."""
    x = rows()
    (here / "small.py").write_text(FACTORY + _UNTRACEABLE)
    sys.modules.pop("small", None)  # of another folder
    _text_files(here, x)
    _parquet_files(here, x)
    _numpy_files(here, x)
    _images(here)
    torch.save(nn.Linear(4, 3), here / "pickled.pt")
    torch.save(nn.Linear(5, 3).state_dict(), here / "other.pt")
    for name in ("damaged.pt2", "damaged.pt", "model.h5", "model.onnx", "damaged.safetensors", "rows.xlsx"):
        (here / name).write_bytes(b"\x08\x00nothing of use")
    (here / "folder.parquet").mkdir()


_UNTRACEABLE = """

class Untraceable(nn.Module):
    def forward(self, x):
        return x[:, :3] if float(x.sum()) > 0 else x[:, 1:]
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
        "labelled.csv": "a,b,c,d,large,half,missing\n1,2,3,4,9,0.5,\n", "taken.csv": "a,b,c,prediction\n1,2,3,4\n",
        "id.csv": "id,b,c,d\n1,2,3,4\n", "target.csv": "a,b,c,target\n1,2,3,4\n",
        "text.parquet": "a,b\n1,2\n", "empty.parquet": "", "text.npy": "a,b\n1,2\n", "text.npz": "a,b\n1,2\n",
        "broken.json": '{"one": ["a",', "list.json": '["a", "b"]', "flat.json": '{"one": "a"}',
        "skips.json": '{"one": ["a", "b"], "two": ["c"]}', "twice.json": '{"one": ["a", "b"], "two": ["a", "c", "d"]}',
        "strange.json": '{"one": ["a", "b", "c", "d"], "two": ["z"]}',
        "names.json": '{"one": ["a"], "one": ["b", "c", "d"]}',
        "taken.json": '{"one": ["a", "b"], "gap": ["c", "d"]}', "one.json": '{"one": ["a", "b", "c", "d"]}',
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


def _numpy_files(here: Path, x: np.ndarray) -> None:
    nan = x.copy()
    nan[5, 3] = np.nan
    nans = np.zeros((2, 4, 4), np.float32)
    nans[0, 1, 2] = np.nan
    arrays = {
        "rows": x, "flat": x[0], "strings": np.array([["a"]]), "complex": x.astype(complex), "none": x[:0],
        "cube": x.reshape(-1, 2, 2), "nan": nan, "nans": nans, "wide": rows(3, 12), "narrow": x[:1, :3],
        "gap": np.array([0, 0, 2, 2]), "negative": np.array([-1, 0, 1, 1]), "short": np.array([0, 1, 2]),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(here / f"{name}.npy", array)
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
