"""Waiting: what is seen, when, and by whom. No test waits for the clock: time is what `Clock` says."""

from __future__ import annotations

import io
import logging
import pickle
import threading
from contextlib import redirect_stderr

import pytest
import torch
from torch import nn

from dasp import DASP, BayesianShapley, ExactShapley, Explainer, GradientDASP, GradientShapley, PermutationShapley
from dasp.games import progress
from dasp.games.progress import Work, working


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watches(monkeypatch):
    """All that is watched; nothing is told by itself, only when the test says so."""
    found = []

    def begin(watch):
        found.append(watch)

    monkeypatch.setattr(progress._Watch, "begin", begin)
    return found


def test_what_is_done_and_how_long_it_will_take():
    clock = Clock()
    work = Work("explaining", "row", 100, done=20, clock=clock)
    assert work.left is None
    work.update(20)
    clock.now = 10.0
    assert work.left == 30  # what was done before took none of this time
    assert work.line() == "explaining: 40 of 100 rows in 10 s, 30 s to go"
    assert "40/100 [00:10<00:30]" in work.bar(79)
    assert len(work.bar(79)) <= 79


def test_what_may_end_earlier_takes_at_most_so_long():
    clock = Clock()
    work = Work("BayesianShapley", "evaluation", 2000, at_most=True, clock=clock)
    work.update(500)
    clock.now = 3600.0
    assert work.line() == "BayesianShapley: 500 of at most 2,000 evaluations in 1 h 0 min, at most 3 h 0 min to go"
    assert "at most" in work.bar(79)


def test_work_that_cannot_tell_says_how_long_it_takes():
    clock = Clock()
    work = Work("tracing the model", clock=clock)
    clock.now = 75.0
    assert work.line() == work.bar(79) == "tracing the model: 1 min 15 s"


def test_a_bar_on_a_terminal_appears_and_vanishes(watches):
    with redirect_stderr(Terminal()) as terminal, working("explaining", "row", 4, show=None) as work:
        (watch,) = watches
        assert watch.patience == 2
        assert terminal.getvalue() == ""
        with working("tracing the model"):
            watch.tell()
        assert terminal.getvalue() == "\rexplaining: tracing the model: 0 s"
        work.update()
        watch.tell()
        assert "1/4" in terminal.getvalue()
    shown = terminal.getvalue()
    assert shown.endswith("\r")
    assert not shown.split("\r")[-2].strip()
    watch.tell()  # as a thread that wakes up too late
    assert terminal.getvalue() == shown


def test_a_bar_that_is_asked_for_comes_at_once_and_stays(watches):
    with redirect_stderr(io.StringIO()) as stream, working("counting", "row", 4, show=True) as work:  # nobody looks
        assert watches[0].patience == 0
        work.update(4)
    assert "100%" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_elsewhere_there_is_a_line_in_the_log(watches, caplog, capsys):
    with caplog.at_level(logging.INFO, "dasp"), working("explaining", "row", 4, show=None) as work:
        (watch,) = watches
        assert watch.patience == 30
        work.update()
        with working("choosing a method"):
            watch.tell()
    assert caplog.messages == ["explaining: 1 of 4 rows in 0 s, 0 s to go; choosing a method: 0 s"]
    assert capsys.readouterr() == ("", "")


def test_nothing_is_seen_of_what_is_not_to_be_seen(watches):
    with redirect_stderr(Terminal()) as terminal, working("explaining", show=False), working("tracing the model"):
        pass
    assert not watches
    assert terminal.getvalue() == ""


def test_work_inside_of_other_work_is_a_part_of_it(watches):
    with working("explaining", show=None):
        with working("GradientDASP", "node", 8, show=None), working("tracing the model", show=True):
            assert [work.name for work in watches[0].works] == ["explaining", "GradientDASP", "tracing the model"]
        assert [work.name for work in watches[0].works] == ["explaining"]
    with pytest.raises(ZeroDivisionError), working("failing", show=None):
        raise ZeroDivisionError
    assert len(watches) == 2
    assert watches[1].works == []


def test_the_thread_that_looks_at_the_clock_tells_and_ends(monkeypatch):
    said, lines = threading.Event(), []

    def say(line):
        lines.append(line)
        said.set()

    monkeypatch.setattr(progress, "_LINE", 0.001)
    with working("tracing the model", show=None, say=say):
        (thread,) = [each for each in threading.enumerate() if each.name == "dasp progress"]
        assert thread.daemon
        assert said.wait(60)  # though the work itself is blocked
    number = len(lines)
    thread.join(60)
    assert not thread.is_alive()
    assert len(lines) == number


def test_one_bar_at_a_time(watches):
    def work():
        with working("another", show=None):
            watches[1].tell()

    with redirect_stderr(Terminal()) as terminal, working("first", show=None):
        watches[0].tell()
        other = threading.Thread(target=work)
        other.start()
        other.join()
    assert "first" in terminal.getvalue()
    assert "another" not in terminal.getvalue()
    with redirect_stderr(terminal), working("later", show=None):
        watches[2].tell()
    assert "later" in terminal.getvalue()


def test_many_threads_may_count():
    work = Work("counting", "row")
    threads = [threading.Thread(target=lambda: [work.update() for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.done == 4000


@pytest.fixture
def works(monkeypatch):
    """All work that is done."""
    found = []
    made = Work.__init__

    def remember(self, *arguments, **options):
        made(self, *arguments, **options)
        found.append(self)

    monkeypatch.setattr(Work, "__init__", remember)
    return found


def network(inputs=5):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


ESTIMATORS = {
    "exact": (ExactShapley, {}, True),
    "dasp": (DASP, {}, True),
    "bayesian": (BayesianShapley, {"max_evaluations": 20}, True),
    "bayesian to a tolerance": (BayesianShapley, {"max_evaluations": 32, "tolerance": 0.9}, False),
    "permutation": (PermutationShapley, {"n_permutations": 3}, True),
    "gradients": (GradientShapley, {"n_pairs": 8}, True),
    "gradient dasp": (GradientDASP, {"nodes": 4}, True),
    "adaptive": (GradientDASP, {}, False),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_know_how_much_there_is_to_do(name, works):
    kind, options, everything = ESTIMATORS[name]
    kind(network()).attribute(torch.rand(3, 5) + 1, target=0, **options)
    (work,) = [each for each in works if each.total is not None]
    assert work.at_most is not everything
    assert 0 < work.done <= work.total
    if everything:
        assert work.done == work.total


def test_an_explainer_tells_about_its_rows(works, watches):
    Explainer(network(), method="gradient").attribute(torch.rand(3, 5), target=0)
    names = [work.name for work in works]
    assert names == [
        "evaluating the rows", "explaining", "choosing a method", "tracing the model", "GradientDASP",
        "checking the values", "audit",
    ]  # fmt: skip
    assert (works[1].done, works[1].total) == (3, 3)
    assert [watch.patience for watch in watches] == [30] * 3  # one after the other, not for each part


def test_an_explainer_that_is_to_be_silent_is(watches):
    with redirect_stderr(Terminal()) as terminal:
        Explainer(network(), show_progress=False).attribute(torch.rand(3, 5), target=0)
        GradientDASP(network()).attribute(torch.rand(3, 5), target=0)
    assert not watches
    assert terminal.getvalue() == ""


def test_methods_can_be_saved_all_the_same(watches):
    explainer = BayesianShapley(network(), GradientDASP(network()))
    explainer.attribute(torch.rand(1, 5), target=0, show_progress=True)
    assert pickle.loads(pickle.dumps(explainer)).attribute(torch.rand(1, 5), target=0).shape == (1, 5)
