"""Approximators of shapiq in a Python of their own: games come and values go through pipes.

shapiq 1.8 needs Python 3.12 and its approximators need further packages, which our own Python may not have:

    python3.12 -m venv folder && folder/bin/pip install 'shapiq[proxy,shapleig]>=1.8'

Whoever imports this file has `Peer`, which starts it as a script in the other Python. The script first writes a line
about itself. A question is then a line of JSON: which approximator with which options, players, evaluations, seed, and
the size of the coalitions whose index is wanted (1: values, 2: interactions of pairs). The script asks back what
coalitions are worth by a line "worth" with their number and a byte for each player of each of them. It ends with
"done" and the seconds, and eight bytes for each number, or with "failed" and why.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import combinations
from typing import Any

import numpy as np

# Without these packages, shapiq puts other models in their place: then they are other methods.
NEEDED = {"OddSHAP": "lightgbm", "ProxySHAP": "xgboost", "ProxySPEX": "lightgbm", "RegressionMSR": "xgboost",
          "SPEX": "sparse_transform", "ShaplEIG": "botorch"}  # fmt: skip

Worth = Callable[[np.ndarray], np.ndarray]  # of coalitions, bool (coalitions, players)


@dataclass(frozen=True)
class Answer:
    """What an approximator found, in the order of `itertools.combinations` of the players."""

    values: np.ndarray
    seconds: float  # of processor time, without the game's
    evaluations: int  # that it asked for, repeated ones included


class Peer:
    """A Python with shapiq that answers questions."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603  # a Python that the caller names
            [python, "-W", "ignore", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.ask, self.answer = self.process.stdin, self.process.stdout
        about = json.loads(self.answer.readline() or json.dumps({"failed": f"{python} could not be started"}))
        if "failed" in about:
            raise ImportError(about["failed"])
        self.version: str = about["version"]
        self.approximators: list[str] = about["approximators"]

    def require(self, approximator: str) -> None:
        """Raise an ImportError unless there is an approximator of that name, with all that it needs."""
        if approximator not in self.approximators:
            raise ImportError(f"shapiq {self.version} with what is installed beside it has no {approximator}")

    def __call__(
        self, approximator: str, worth: Worth, players: int, budget: int, seed: int, size: int = 1, **options: Any
    ) -> Answer:
        """Let an approximator play a game. A question that it fails at is a RuntimeError with its words."""
        question = {"approximator": approximator, "players": players, "budget": budget, "seed": seed, "size": size}
        self._send(json.dumps(question | {"options": options}).encode() + b"\n")
        evaluations = 0
        while (line := self.answer.readline().decode().split(maxsplit=1))[0] == "worth":
            number = int(line[1])
            members = np.frombuffer(self.answer.read(number * players), dtype=bool).reshape(number, players)
            self._send(np.ascontiguousarray(worth(members), dtype=np.float64).tobytes())
            evaluations += number
        if line[0] == "failed":
            raise RuntimeError(f"{approximator}: {line[1].strip()}")
        count = len(list(combinations(range(players), size)))
        return Answer(np.frombuffer(self.answer.read(8 * count)), float(line[1]), evaluations)

    def close(self) -> None:
        """Let the other Python end."""
        self.ask.close()
        self.process.wait()
        self.answer.close()

    def _send(self, content: bytes) -> None:
        self.ask.write(content)
        self.ask.flush()


def serve() -> None:
    """Answer questions from standard input."""
    ask, answer = os.fdopen(os.dup(1), "wb"), sys.stdin.buffer
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # LightGBM writes there

    def tell(line: str, content: bytes = b"") -> None:
        ask.write(line.encode() + b"\n" + content)
        ask.flush()

    def worth(coalitions: np.ndarray) -> np.ndarray:
        rows = np.atleast_2d(np.ascontiguousarray(coalitions, dtype=bool))
        tell(f"worth {len(rows)}", rows.tobytes())
        return np.frombuffer(answer.read(8 * len(rows))).copy()

    try:
        known = importlib.import_module("shapiq.approximator")
    except ImportError as error:
        return tell(json.dumps({"failed": str(error)}))
    there = [name for name in known.__all__ if find_spec(NEEDED.get(name, "shapiq")) is not None]
    tell(json.dumps({"version": version("shapiq"), "approximators": there}))
    for line in answer:
        question = json.loads(line)
        players, size = question["players"], question["size"]
        try:
            method = getattr(known, question["approximator"])
            start = time.process_time()
            found = method(n=players, random_state=question["seed"], **question["options"]).approximate(
                question["budget"], worth
            )
            seconds = time.process_time() - start
        except Exception as error:  # noqa: BLE001  # whatever it is, the caller wants to know
            tell(f"failed {type(error).__name__}: {' '.join(str(error).split())}")
        else:
            values = np.array([found[part] for part in combinations(range(players), size)], dtype=np.float64)
            tell(f"done {seconds}", values.tobytes())
    return None


if __name__ == "__main__":
    serve()
