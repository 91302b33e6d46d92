"""Flip single bits of the parts of an interrupted job, and resume it: no flipped part may count as done.

    python benchmarks/flips.py [--flips 3000] [--seed 0]

Every round flips a bit in each of 50 parts, at a random place, and runs the job to its end. What is accepted with
changed content would show in the number of rows that were done before, and in the bytes of the output.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from dasp.jobs.checkpoint import Checkpoint
from dasp.jobs.options import Options
from dasp.jobs.preflight import preflight
from dasp.jobs.run import explain

PARTS, CHUNK, FLIPPED = 60, 4, 50
MODEL = """
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
"""


def resumed(options: Options) -> int:
    """Run the job; how many rows were done before."""
    said: list[str] = []
    explain(preflight(options), said.append)
    found = re.search(r"resumed: (\d+) of", " ".join(said))
    return int(found[1]) if found else 0


def flip(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    bit = chance.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)  # noqa: S311
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        Path("flipped_model.py").write_text(MODEL)
        np.save("rows.npy", np.random.default_rng(0).normal(size=(PARTS * CHUNK, 6)).astype(np.float32))
        options = Options(
            model="flipped_model:build", data=Path("rows.npy"), output=Path("out.parquet"), chunk=CHUNK, threads=1
        )
        with patch.object(Checkpoint, "finish", side_effect=KeyboardInterrupt):
            try:
                explain(preflight(options), lambda _: None)
            except KeyboardInterrupt:
                shutil.copytree("out.parquet.parts", "kept")
        assert resumed(options) == PARTS * CHUNK
        whole = Path("out.parquet").read_bytes()
        flips = accepted = finished = other = rounds = 0
        while flips < arguments.flips:
            Path("out.parquet").unlink(missing_ok=True)
            shutil.copytree("kept", "out.parquet.parts")
            damaged = chance.sample(sorted(Path("out.parquet.parts").glob("*.part")), FLIPPED)
            for file in damaged:
                flip(file, chance)
            accepted += resumed(options) // CHUNK - (PARTS - FLIPPED)
            finished += Path("out.parquet").exists()
            other += Path("out.parquet").read_bytes() != whole
            flips, rounds = flips + FLIPPED, rounds + 1
        os.chdir("/")
    print(
        f"{flips:,} flipped bits in {rounds} jobs: {accepted} parts accepted, {finished} of {rounds} jobs finished, "
        f"{other} with other bytes"
    )


if __name__ == "__main__":
    main()
