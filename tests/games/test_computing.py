"""Threads of torch: one, unless more of them pay, and as before afterwards; and memory that is kept meanwhile."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from dasp import ExactShapley, Explainer, TextExplainer
from dasp.games import computing as computing_module
from dasp.games import counting
from dasp.games.computing import computing
from dasp.games.counting import Count, suited_threads
from dasp.games.request import Arguments, Request


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


def request():
    return Request.of(network(), Arguments(torch.ones(1, 6)))


def count(seconds, at_once=1, **options):
    """That of a model whose operations take so long."""
    return Count(flops=seconds * 10 * 100e9, written=0, nonlinear=0, calls=10, at_once=at_once, depth=1, **options)


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(counting, "idle_cores", lambda: 8)


@pytest.fixture
def several():
    """Threads, as many as torch has on a machine with four cores; put back by `same_threads`."""
    torch.set_num_threads(4)


@pytest.mark.parametrize(
    ("found", "number"),
    [(count(1e-4), 1), (count(1e-4, at_once=100), 4), (count(0.01), 4), (count(0.01, seen=False), 1)],
)
def test_large_operations_have_threads(found, number):
    assert suited_threads(4, request(), lambda: found).number == number


def test_never_more_than_there_are_and_nothing_is_counted_for_one():
    assert suited_threads(1, request(), None).number == 1


@pytest.mark.parametrize(("idle", "number"), [(8, 4), (4, 4), (3, 3), (1, 1)])
def test_busy_cores_are_left_to_others(monkeypatch, idle, number):
    monkeypatch.setattr(counting, "idle_cores", lambda: idle)
    threads = suited_threads(4, request(), lambda: count(0.01))
    assert threads.number == number
    assert ("other processes" in threads.reason) is (number < 4)


@pytest.mark.parametrize(
    ("load", "idle"),
    [("0.10 0.20 0.30 1/99 7", 4), ("0.1 0.2 0.3 3/99 7", 2), ("0.1 0.2 0.3 9/99 7", 1), ("?", 4)],
)
def test_cores_that_no_other_process_uses(monkeypatch, load, idle):
    monkeypatch.undo()
    monkeypatch.setattr(counting.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(counting.Path, "read_text", lambda _: load)
    assert counting.idle_cores() == idle


def test_operations_share_the_rows_of_a_batch():
    assert count(1e-4, at_once=50).operation == pytest.approx(50 * 1e-4, rel=0.1)


def seen_by(model):
    """A model that remembers the threads it is evaluated with."""
    found = []

    def function(x):
        found.append(torch.get_num_threads())
        return model(x)

    return function, found


@pytest.mark.usefixtures("several")
def test_a_small_model_has_one_thread_and_the_user_has_theirs_afterwards(caplog):
    function, found = seen_by(network())
    with caplog.at_level(logging.INFO, "dasp"):
        explainer = Explainer(function)
        explainer.attribute(torch.rand(2, 6))
        explainer.attribute(torch.rand(2, 6))
    assert set(found) == {1}
    assert torch.get_num_threads() == 4
    assert [line for line in caplog.messages if "threads" in line] == ["threads: 1 (the model's operations are small)"]


@pytest.mark.usefixtures("several")
def test_a_large_model_has_those_of_torch(monkeypatch):
    monkeypatch.setattr(Count, "of_request", lambda *_: count(0.01))
    function, found = seen_by(network())
    explainer = Explainer(function, method="exact")
    explainer.attribute(torch.rand(2, 6), target=0)
    assert found[-1] == 4
    torch.set_num_threads(2)
    explainer.attribute(torch.rand(2, 6), target=0)
    assert found[-1] == 2  # as the user has said meanwhile
    assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize(("rate", "number"), [(100e9, 1), (1e3, 4)])
def test_estimators_by_themselves(monkeypatch, rate, number):
    monkeypatch.setattr(counting, "_FLOPS", rate)  # a processor for which even a small model is large
    function, found = seen_by(network())
    method = ExactShapley(function)
    for _ in range(2):
        method.attribute(torch.rand(2, 6), target=0)
        assert found[-1] == number
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("several")
def test_threads_that_are_asked_for():
    function, found = seen_by(network())
    Explainer(function, threads=2).attribute(torch.rand(2, 6), target=0)
    assert set(found) == {2}
    with pytest.raises(ValueError, match="threads"):
        Explainer(function, threads=0)


@pytest.mark.usefixtures("several")
def test_texts():
    found = []

    def good(texts):
        found.append(torch.get_num_threads())
        return torch.tensor([float("good" in text) for text in texts])

    TextExplainer(good)(["a good film", "a bad film"])
    assert set(found) == {1}
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("several")
def test_an_error_leaves_the_threads_as_they_were():
    with pytest.raises(ZeroDivisionError), computing(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4


@pytest.mark.usefixtures("several")
def test_each_python_thread_has_its_own_number():
    inside, leave, found = threading.Event(), threading.Event(), []

    def other():
        torch.set_num_threads(4)
        with computing(1):
            inside.set()
            leave.wait(60)
            found.append(torch.get_num_threads())
        found.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    with computing(1):
        thread.start()
        inside.wait(60)
    assert torch.get_num_threads() == 4  # though the other one still computes with one
    leave.set()
    thread.join()
    assert found == [1, 4]


def test_the_numbers_are_those_of_one_thread():
    model, x = network(), torch.rand(40, 6)
    one, two = (Explainer(model, threads=threads).attribute(x) for threads in (1, 2))
    assert torch.allclose(one.values, two.values, rtol=1e-5, atol=1e-7)


PAGES = """
import ctypes, resource, sys
from contextlib import nullcontext
from dasp.games.computing import computing

library, size = ctypes.CDLL(None), ctypes.c_size_t(2**24)
library.malloc.restype = ctypes.c_void_p
places = (ctypes.c_void_p * 8)()

def passes(number):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(number):
        for i in range(8):
            places[i] = library.malloc(size)
            ctypes.memset(places[i], 1, 2**24)
        for i in range(7, -1, -1):
            library.free(ctypes.c_void_p(places[i]))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with computing(1) if sys.argv[1] == "kept" else nullcontext():
    passes(2)
    print(passes(5))
"""


def pages_taken(what, **environment):
    """Pages that the system gave for the eight layers of 16 MB each, five times."""
    command = [sys.executable, "-c", PAGES, what]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return int(done.stdout)


@pytest.mark.skipif(computing_module._setting() is None, reason="the C library is not the GNU one, or somebody set it")
def test_memory_is_kept_while_something_is_computed():
    huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if huge.exists() and "[always]" in huge.read_text():
        pytest.skip("pages are huge here, and hardly any are taken")
    block = 2**24 // os.sysconf("SC_PAGE_SIZE")
    assert pages_taken("kept") < block < 5 * block <= pages_taken("given back")


def test_what_the_user_has_set_stays():
    assert pages_taken("kept", MALLOC_TRIM_THRESHOLD_="100000") > 20 * 2**24 // os.sysconf("SC_PAGE_SIZE")
