"""Is the default answer the best one we have for the time it takes? `Explainer` against every single method of ours,
each with as much of its budget as fits into the time that the default took, on networks that nothing was chosen by.

    DASP_DATA=folder python benchmarks/default.py [NETWORK …]

Errors are relative to the size of the values, over all rows; the sampled truth's standard error is taken off. Times are
processor seconds of one thread for each row, without first calls.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from calibration import STORE, Played
from dasp import Explainer
from dasp.attribution.captum_adapter import estimated
from dasp.methods import METHODS
from zoo import CASES

_SINGLE = {  # with growing budgets, of which the largest in time counts
    "bayesian_shapley": ("max_evaluations", (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
    "bayesian_shapley_on_gradient_dasp": ("max_evaluations", (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
    "gradient_dasp": ("nodes", (1, 3, 7, 15, 31)),
    "gradient_dasp_rank_0": ("nodes", (1, 3, 7, 15, 31)),
    "dasp_rank_0": ("coalition_sizes", (2, 4, 8, 16)),
    "dasp": ("coalition_sizes", (2, 4, 8, 16)),
    "permutation_shapley": ("n_permutations", (1, 2, 4, 8, 16, 32, 64, 128)),
    "gradient_shapley": ("n_pairs", (2, 4, 8, 16, 32, 64, 128, 256)),
}
_MOST_FULL_RANK = 20
_IN_TIME = 1.1  # times the default's time counts as equal: that much is noise


def _timed(function: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """The least processor time of some calls after a first one, and the last result."""
    result, times = function(), []
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return min(times), result


def _error(values: Tensor, played: Played) -> float:
    """Relative to the values; both (players, rows)."""
    square = (values.double() - played.truth).square().mean() - played.error.square().mean()
    return float((square.clamp(min=0) / played.truth.square().mean()).sqrt())


def single(played: Played, model: Any, most: float) -> dict[str, tuple[float, int]]:
    """The error of every method with the largest budget that takes no more than `most` seconds."""
    result = {}
    players = played.truth.shape[0]
    for name, (option, budgets) in _SINGLE.items():
        if name == "dasp" and players > _MOST_FULL_RANK:
            continue
        try:
            method = METHODS[name].make(model)
            for budget in budgets:
                seconds, estimate = _timed(partial(estimated, method, played.request, **{option: budget}), 2)
                if seconds > most * _IN_TIME:
                    break
                found = estimate.values[0].detach().cpu().view(played.truth.shape)
                result[name] = _error(found, played), budget
        except (NotImplementedError, TypeError, RuntimeError, ValueError):
            continue  # no rules or gradients, or a budget that is too small or too large for the game
    return result


def main() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    print(f"{'network':34}{'players':>8}  {'default':32}{'ms':>7}{'error':>8}{'stated':>8}   best single in time")
    ratios = []
    for case in CASES:
        if case.development or (sys.argv[1:] and case.name not in sys.argv[1:]):
            continue
        played, model = Played.of(case), case.network.trained(STORE)
        explainer = Explainer(model)
        seconds, answer = _timed(partial(explainer.run, played.request))
        (values,), (stated,) = (played.request.values_of(x) for x in (answer.values, answer.std))
        error, size = _error(values, played), played.truth.square().mean().sqrt()
        others = single(played, model, seconds)
        best = min(others, key=lambda name: others[name][0])
        ratios.append(error / max(others[best][0], 1e-3))  # nobody minds a thousandth
        print(
            f"{case.name:34}{len(values):8}  {answer.method:32}{1e3 * seconds / values.shape[1]:7.1f}{error:8.3f}"
            f"{float(stated.square().mean().sqrt() / size):8.3f}   {others[best][0]:.3f} {best}, {others[best][1]}",
            flush=True,
        )
    median = sorted(ratios)[len(ratios) // 2]
    print(f"default at most {max(ratios):.2f} times the best single method's error, median {median:.2f}")


if __name__ == "__main__":
    main()
