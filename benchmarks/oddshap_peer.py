"""shapiq's OddSHAP for `large_budgets`, run by a Python that has it: games come and values go through pipes.

A question is a line with the numbers of players, of evaluations and the seed. The worths of coalitions are asked back
as a line with their number and a byte for each member; a number of 0 is followed by the values and the seconds.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> None:
    ask, answer = sys.stdout.buffer, sys.stdin.buffer

    def worth(coalitions: np.ndarray) -> np.ndarray:
        ask.write(f"{len(coalitions)}\n".encode() + np.ascontiguousarray(coalitions, dtype=bool).tobytes())
        ask.flush()
        return np.frombuffer(answer.read(8 * len(coalitions)))

    try:
        import lightgbm  # noqa: F401, PLC0415  # without it, OddSHAP is another method
        from shapiq.approximator.regression.oddshap import OddSHAP  # noqa: PLC0415
    except ImportError as error:
        ask.write(f"{error}\n".encode())
        return
    ask.write(b"ready\n")
    ask.flush()
    for line in answer:
        players, budget, seed = map(int, line.split())
        start = time.process_time()
        values = OddSHAP(players, random_state=seed).approximate(budget, worth)
        seconds = time.process_time() - start
        ask.write(b"0\n" + np.array([*(values[(i,)] for i in range(players)), seconds]).tobytes())
        ask.flush()


if __name__ == "__main__":
    main()
