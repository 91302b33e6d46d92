"""Many threads evaluate models at the same time; one exports them alone."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from dasp.models.export_lock import evaluation_lock, export_lock


def test_who_exports_is_alone():
    """Threads that want to export in the middle of evaluating do not wait for each other for ever."""
    inside, others = set(), []

    def run(number):
        meeting.wait()
        for step in range(20):
            with evaluation_lock():
                inside.add(number)
                time.sleep(0.0005)
                inside.remove(number)
                if step % 5 == number:
                    with export_lock(), evaluation_lock(), export_lock():
                        others.extend(inside)
                        time.sleep(0.0005)
                        others.extend(inside)

    meeting = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(run, number) for number in range(4)]:
            done.result(30)
    assert not others


def test_many_evaluate_at_the_same_time():
    meeting = threading.Barrier(3, timeout=30)

    def run():
        with evaluation_lock():
            meeting.wait()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run) for _ in range(3)]:
            done.result()
