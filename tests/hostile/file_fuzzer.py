"""Files of every kind that `dasp explain` reads, damaged at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from damaged_files import NAMES, damaged, network, samples
from fuzzer import Subject

from dasp.jobs.absent_inputs import players_of_file
from dasp.jobs.reading.chunks import Reader, open_data, open_like, read_all, survey
from dasp.models.loading import load_model

LIMIT = 2**26  # bytes that --max-unpacked allows
SUFFIXES = {"csv": ".csv", "npy": ".npy", "npz": ".npz", "parquet": ".parquet", "image": ".png", "json": ".json",
            "mask": ".npy", "pt": ".pt"}  # fmt: skip


def table(file: Path, chance: random.Random) -> None:
    """Read a data file as a job does: survey, chunks, and as a background."""
    id_ = chance.choice((None, "n")) if file.suffix in (".csv", ".parquet") else None
    drop = ["n"] if file.suffix in (".csv", ".parquet") and id_ is None else None
    path = file.parent if file.suffix == ".png" else file
    source = open_data(path, drop=drop, id_=id_, limit=LIMIT)
    dtype = chance.choice(("float32", "float32", "float64", "int64"))
    seen = survey(source, file, dtype, fail=chance.random() < 0.1)
    for chunk in Reader(source, chance.choice((1, 4, 1000)), dtype, seen.integer_ids).chunks():
        if len(chunk.values) + len(chunk.bad) == 0:
            raise AssertionError("an empty chunk")
    if chance.random() < 0.3:
        like = open_like(path, list(NAMES), source.shape, "--background", LIMIT)
        read_all(like, path, "float32", "--background", LIMIT)


def players(file: Path, _: random.Random) -> None:
    """Read a file of players."""
    mask, names = players_of_file(file, NAMES, (4,), LIMIT)
    if names is None or set(mask.tolist()) != set(range(len(names))):
        raise AssertionError(f"the players {mask} are not those that are called {names}")


def weights(file: Path, _: random.Random) -> None:
    """Read a state dict, which is not trusted."""
    load_model(network(), weights=file)


READERS: dict[str, Callable[[Path, random.Random], None]] = {
    **dict.fromkeys(("csv", "npy", "npz", "parquet", "image"), table),
    **dict.fromkeys(("json", "mask"), players),
    "pt": weights,
}


def _valid(kind: str, folder: Path) -> Iterator[Path]:
    for content in samples(kind):
        file = folder / f"a{SUFFIXES[kind]}"
        file.write_bytes(content)
        yield file


def _damaged(kind: str, valid: list[bytes], folder: Path, chance: random.Random, bait: str) -> Path:
    file = folder / f"a{SUFFIXES[kind]}"
    file.write_bytes(damaged(chance.choice(valid), chance, valid, bait))
    return file


def subjects() -> list[Subject]:
    """All kinds of files."""
    return [
        Subject(kind, partial(_valid, kind), partial(_damaged, kind, samples(kind)), read, torch_warns=kind == "pt")
        for kind, read in READERS.items()
    ]
