"""One object, many threads: the answers are those of one thread, to the bit."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

from dasp import DASP, BayesianShapley, DeepLiftRevealCancel, Explainer, GradientDASP

THREADS = 4


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(40, 40), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(40, 2)).eval()


def rows(number: int) -> torch.Tensor:
    return torch.randn(number, 40, generator=torch.Generator().manual_seed(number))


KINDS = {
    "DASP": (DASP, {"coalition_sizes": 1}),
    "GradientDASP": (GradientDASP, {"nodes": 2}),
    "DeepLiftRevealCancel": (DeepLiftRevealCancel, {}),
    "BayesianShapley": (
        lambda model: BayesianShapley(model, GradientDASP(model), prior_options={"nodes": 2}),
        {"max_evaluations": 200},
    ),
}


def together(run):
    """What every thread finds; the others begin while the first one traces."""
    start = Barrier(THREADS)

    def begun(number):
        start.wait()
        time.sleep(0.04 * number)
        return run(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begun, range(THREADS)))


@pytest.fixture(autouse=True)
def one_thread_each():
    torch.set_num_threads(1)


@pytest.mark.parametrize("kind", KINDS)
def test_first_calls_in_threads_are_those_of_one(kind):
    make, options = KINDS[kind]
    alone = make(network())
    wanted = [alone.attribute(rows(1 + number % 2), target=0, **options) for number in range(THREADS)]
    shared = make(network())  # nothing is traced yet
    found = together(lambda number: shared.attribute(rows(1 + number % 2), target=0, **options))
    assert all(map(torch.equal, found, wanted))


def test_several_models_are_traced_in_threads():
    wanted = GradientDASP(network()).attribute(rows(2), target=0, nodes=2)
    methods = [GradientDASP(network()) for _ in range(THREADS)]
    for found in together(lambda number: methods[number].attribute(rows(2), target=0, nodes=2)):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("method", ["auto", "gradient", "BayesianShapley on GradientDASP"])
def test_an_explainer_chooses_once_for_all_threads(method):
    options = {} if method == "gradient" else {"max_evaluations": 200}
    explainer = Explainer(network(), method=method, **options)
    state = torch.get_rng_state()
    found = together(lambda number: explainer.attribute(rows(1 + number % 2), target=0))
    assert torch.equal(torch.get_rng_state(), state)
    assert all("cannot" not in result.reason for result in found)
    assert len({result.method for result in found}) == 1
    for number, result in enumerate(found):
        assert torch.equal(result.values, explainer.attribute(rows(1 + number % 2), target=0).values)
