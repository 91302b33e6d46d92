"""Valid files of every kind that `dasp explain` reads, and random damage to them; for fuzz.py."""

from __future__ import annotations

import io
import json
import random
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

NAMES = ("a", "b", "c", "d")
LARGEST = 2**18  # bytes


def samples(kind: str) -> list[bytes]:
    """Valid files of a kind."""
    x = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    return {"csv": _csv, "npy": _npy, "npz": _npz, "parquet": _parquet, "image": _images, "json": _json, "mask": _masks,
            "pt": _weights}[kind](x)  # fmt: skip


def _csv(x: np.ndarray) -> list[bytes]:
    lines = [",".join([*(f"{v:g}" for v in row), f"p{i}"]) for i, row in enumerate(x)]
    text = "\n".join(["a,b,c,d,n", *lines, "1,,nan,inf,", '"1",2,3,4,"a ""quoted"", id"']) + "\n"
    return [text.encode(), text.replace(",", ";").replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode(),
            b"a,b,c,d,n\nTrue,1,2,3,\xc3\xa9\nFalse,1,2,3,\xe2\x82\xac\n"]  # fmt: skip


def _saved(save: Callable[..., None], *arrays: Any) -> bytes:
    stream = io.BytesIO()
    save(stream, *arrays)
    return stream.getvalue()


def _npy(x: np.ndarray) -> list[bytes]:
    arrays = x, np.asfortranarray(x), x.astype(">f8"), (x * 9).astype(np.int16), x.reshape(9, 2, 2), x > 0
    return [_saved(np.save, array) for array in arrays]


def _npz(x: np.ndarray) -> list[bytes]:
    return [_saved(save, array) for save in (np.savez, np.savez_compressed) for array in (x, x.astype(np.int64))]


def _parquet(x: np.ndarray) -> list[bytes]:
    columns = dict(zip(NAMES, x.T, strict=True))
    tables = [
        pa.table({**columns, "n": [f"p{i}" for i in range(9)]}),
        pa.table({**columns, "a": pa.array([1, None] * 4 + [3]), "n": pa.array(range(9), pa.timestamp("us", "UTC"))}),
        pa.table({**columns, "b": pa.array(x[:, 0] > 0), "n": pa.array([b"x"] * 9)}),
    ]
    how = [{"compression": "none", "use_dictionary": False}, {"compression": "zstd"}, {"data_page_version": "2.0"},
           {"compression": "none", "store_schema": False, "row_group_size": 4}]  # fmt: skip
    return [_saved(lambda stream, t=t, h=h: pq.write_table(t, stream, **h)) for t in tables for h in how]


def _images(x: np.ndarray) -> list[bytes]:
    exif = Image.Exif()
    exif[0x0112] = 6
    grey = Image.fromarray((np.abs(x) * 60).astype(np.uint8).repeat(2, 1))
    images = grey, grey.convert("RGB"), grey.convert("RGBA"), grey.convert("P"), grey.convert("1"), grey.convert("LA")
    found = [_saved(image.save, "PNG") for image in images]
    found += [_saved(image.save, "TIFF") for image in images]
    for image in images[:2]:
        found += [_saved(image.save, kind) for kind in ("BMP", "GIF", "JPEG", "WEBP", "EPS")]
        for kind in ("PNG", "JPEG", "TIFF", "WEBP"):
            stream = io.BytesIO()
            image.save(stream, kind, exif=exif)
            found.append(stream.getvalue())
    for compression in ("tiff_lzw", "tiff_deflate", "jpeg", "packbits"):
        stream = io.BytesIO()
        images[1].save(stream, "TIFF", compression=compression)
        found.append(stream.getvalue())
    return found


def _json(_: np.ndarray) -> list[bytes]:
    return [b'{"one": ["a", "b"], "two": ["c", "d"]}', '{"größe": ["a"], "\\u00e9": ["b", "c", "d"]}'.encode()]


def _masks(_: np.ndarray) -> list[bytes]:
    return [_saved(np.save, np.array([0, 1, 1, 0], dtype)) for dtype in ("i8", ">u2", "i1")]


def network() -> nn.Module:
    """A small network."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)).eval()


def _weights(_: np.ndarray) -> list[bytes]:
    state = network().state_dict()
    half = {name: value.half() for name, value in state.items()}
    return [_saved(lambda stream, given=given: torch.save(given, stream)) for given in (state, half)]


# Damage.

NUMBERS = (0, 1, -1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
WORDS = (b"nan", b"-1", b"True", b"9" * 30, b"1e400", b"\xff\xfe", b"\0", b'"', b"[[[[", b"{}", b"\\ud800", b"\n", b",")
LETTERS = b"0123456789" * 4 + b".-+eE,;\t\n\r \"'[]{}:\\aF"
TOKENS: list[Any] = [
    None, True, -1, 0, 2**33, 2**70, 1e308, "", [], {}, "os:system", "ctypes:cdll", "9**9**9**9", "a'); import os #",
    "torch.ops.aten.from_file.default", "__import__('os').system('touch x')", "opaque_obj_0", "custom_obj_0", "..",
]  # fmt: skip


def damaged(content: bytes, chance: random.Random, others: list[bytes], bait: str) -> bytes:
    """The content of a file with a few mistakes; those of an archive or of JSON are made inside as well."""
    if content[:2] == b"PK" and chance.random() < 0.8:
        return _archive(content, chance, others, bait)
    if content[:1] == b"{" and chance.random() < 0.5:
        return changed_tree(content, chance, bait)
    damages = (
        _TEXT_DAMAGES if content[:32].strip().replace(b"\n", b"").isascii() and b"\0" not in content[:256] else _DAMAGES
    )
    damages = damages if chance.random() < 0.8 else _DAMAGES
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        content = chance.choice(damages)(content, chance, others)[:LARGEST]
    if content.startswith(b"\x89PNG") and chance.random() < 0.8:
        content = _with_checksums(content)
    return content


def _flipped(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    place = chance.randrange(len(content) or 1)
    return content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]


def _lettered(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    place = chance.randrange(len(content) or 1)
    return content[:place] + bytes([chance.choice(content + LETTERS)]) + content[place + chance.choice((0, 1, 1)) :]


def _cut(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _without(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + content[place + chance.choice((1, 2, 4, 8, 64)) :]


def _numbered(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    size, place = chance.choice("BHLQ"), chance.randrange(len(content) + 1)
    number = struct.pack(chance.choice("<>") + size, chance.choice(NUMBERS) % 256 ** struct.calcsize("<" + size))
    return content[:place] + number + content[place + len(number) :]


def _worded(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.choice(WORDS) + content[place + chance.choice((0, 0, 1, 3)) :]


def _repeated(content: bytes, chance: random.Random, _: list[bytes]) -> bytes:
    start, end = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    return content[:end] + content[start:end] * chance.choice((1, 2, 50)) + content[end:]


def _spliced(content: bytes, chance: random.Random, others: list[bytes]) -> bytes:
    other = chance.choice(others)
    return content[: chance.randrange(len(content) + 1)] + other[chance.randrange(len(other)) :]


_DAMAGES = (_flipped, _flipped, _flipped, _numbered, _numbered, _worded, _cut, _without, _repeated, _spliced)
_TEXT_DAMAGES = (_lettered, _lettered, _lettered, _lettered, _worded, _without, _repeated, _spliced)


def _with_checksums(content: bytes) -> bytes:
    """A PNG file whose chunks have the checksums that they need to be looked at."""
    found, place = [content[:8]], 8
    while place + 12 <= len(content):
        (size,) = struct.unpack(">L", content[place : place + 4])
        body = content[place + 4 : place + 8 + size]
        found.append(content[place : place + 4] + body + struct.pack(">L", zlib.crc32(body)))
        place += 12 + size
    return b"".join(found) + content[place:]


def _archive(content: bytes, chance: random.Random, others: list[bytes], bait: str) -> bytes:
    """An archive of which some parts are damaged, renamed, doubled or left out."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(stream, "w") as changed:
        parts = archive.infolist()
        chosen = set(chance.sample(range(len(parts)), chance.choice((1, 1, min(3, len(parts))))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about parts with one name
            for number, part in enumerate(parts):
                name, body, method = part.filename, archive.read(part), part.compress_type
                if number in chosen:
                    how = chance.random()
                    if how < 0.75:
                        body = damaged(body, chance, others, bait)
                    elif how < 0.85:
                        name = chance.choice((name.upper(), name.replace("weight", "opaque_obj"), f"../{name}", bait))
                    elif how < 0.9:
                        changed.writestr(name, body)
                    elif how < 0.95:
                        method = chance.choice((zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED))
                    else:
                        continue
                changed.writestr(name, body, method)
    return stream.getvalue()


def changed_tree(content: bytes, chance: random.Random, bait: str) -> bytes:
    """JSON of which a value or a key is another."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError):
        return content
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = [
            (node, key) for node in _nodes(tree) for key in (node if isinstance(node, dict) else range(len(node)))
        ]
        if not places:
            break
        node, key = chance.choice(places)
        if isinstance(node, dict) and chance.random() < 0.2:
            node[str(chance.choice(TOKENS))] = node.pop(key)
        else:
            copied = json.loads(json.dumps(chance.choice(places)[0]))
            node[key] = chance.choice([*TOKENS, bait, [node[key]] * 2, copied])
    return json.dumps(tree).encode()


def _nodes(tree: Any) -> Iterator[Any]:
    if isinstance(tree, (dict, list)):
        yield tree
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from _nodes(child)
