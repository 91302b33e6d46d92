"""Flip single bits of the parts of an interrupted job, and resume it: no flipped part may count as done.

    python benchmarks/flips.py [--flips 3000] [--seed 0]

Every round flips a bit in each of 50 parts, at a random place, and runs the job to its end. What is accepted with
changed content would show in the number of rows that were done before, and in the bytes of the output.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

from dasp.jobs import run
from dasp.jobs.checkpoint import Checkpoint

PARTS, CHUNK, FLIPPED = 60, 4, 50
MODEL = """
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
"""


def resumed() -> int:
    """Run the job; how many rows were done before."""
    found = run("flipped_model:build", "rows.npy", "out.parquet", chunk=CHUNK, threads=1, show_progress=False)
    return found.rows - found.new_rows


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
        with patch.object(Checkpoint, "finish", side_effect=KeyboardInterrupt):
            try:
                resumed()
            except KeyboardInterrupt:
                shutil.copytree("out.parquet.parts", "kept")
        assert resumed() == PARTS * CHUNK
        whole = Path("out.parquet").read_bytes()
        flips = accepted = finished = other = rounds = 0
        while flips < arguments.flips:
            Path("out.parquet").unlink(missing_ok=True)
            shutil.copytree("kept", "out.parquet.parts")
            damaged = chance.sample(sorted(Path("out.parquet.parts").glob("*.part")), FLIPPED)
            for file in damaged:
                flip(file, chance)
            accepted += resumed() // CHUNK - (PARTS - FLIPPED)
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
