"""Workers on Ray, and who does what: a chunk is what is done, and done again if its worker dies.

A chunk whose worker dies several times is tried row by row, so that the row can be named.
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dasp.errors import BadInput, Stopped, line_of
from dasp.jobs.parts import packed
from dasp.jobs.reading.chunks import Chunk, Reader
from dasp.jobs.text_worker import worker_of
from dasp.jobs.worker import Task, Works, explained

__all__ = ["Order", "Pool"]

_AHEAD = 2  # chunks that a worker is given, so that it need not wait for the next one
_TRIES = 2  # of a chunk whose worker dies, before its rows are tried one by one; three times that in all
_STARTS = 30  # of workers that die one after the other before they have done anything


@dataclass(frozen=True)
class Order:
    """What is to be done on Ray."""

    task: Task
    reader: Reader
    done: frozenset[int]  # chunks that are done already
    address: str | None  # of a running Ray
    workers: int | None  # at most


class _Remote:
    """A worker of the pool. It sends errors back as data: Ray would print them in its own way, or try again."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.worker: Works

    def load(self) -> tuple[str, Any]:
        """Make the model ready."""
        return self._told(self._load)

    def explain(self, content: bytes) -> tuple[str, Any]:
        """The rows of a chunk."""
        return self._told(lambda: packed(explained(self.worker, pickle.loads(content))).to_pybytes())  # noqa: S301

    def one_by_one(self, content: bytes) -> Iterator[None]:
        """Explain each row of a chunk alone, to see which of them ends this process."""
        chunk: Chunk = pickle.loads(content)  # noqa: S301 - written by the driver
        for row in np.eye(len(chunk.values), dtype=bool):
            with suppress(Exception):
                self.worker.explain(chunk.only(row))
            yield

    def _load(self) -> None:
        os.chdir(self.folder)
        self.worker = worker_of(self.task)

    def _told(self, act: Any) -> tuple[str, Any]:
        try:
            return "done", act()
        except BadInput as error:
            return "bad", str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - raised again where the job runs
            return "failed", traceback.format_exc()


class Pool:
    """Workers on Ray, each with the calls that it has to answer, in their order: a chunk's, or None to load a model."""

    def __init__(self, order: Order, over: threading.Event) -> None:
        import ray  # noqa: PLC0415

        self.ray, self.order, self.over = ray, order, over
        self.again: deque[Chunk] = deque()  # chunks whose worker died
        self.new = order.reader.chunks(order.done)
        self.deaths: Counter[int] = Counter()  # of workers, by the chunk that they had
        self.failed_starts = 0
        self.calls: dict[Any, deque[tuple[Any, Chunk | None]]] = {}
        threads = order.task.threads
        cpus = [node["Resources"].get("CPU", 0) for node in self._nodes()]
        if max(cpus) < threads:
            raise BadInput(
                f"each worker of this job has {threads} threads, but no machine of the Ray cluster has more than "
                f"{max(cpus):g} CPUs: give fewer --threads"
            )
        self.number = order.workers or max(1, int(sum(cpus)) // threads)

    def results(self) -> Iterator[tuple[int, bytes]]:
        """The explained rows of all chunks, as they come."""
        for _ in range(self.number):
            self._start()
        while self._hand_out():
            firsts = {calls[0][0]: worker for worker, calls in self.calls.items() if calls}
            ready, _ = self.ray.wait(list(firsts), timeout=1)
            if self.over.is_set():
                return
            if not ready:
                self._check_alive()
            for call in ready:
                yield from self._answered(firsts[call])

    def _hand_out(self) -> bool:
        """Give chunks to all who can take some; whether there is something to wait for."""
        for ahead in range(_AHEAD):
            for worker, calls in self.calls.items():
                loading = any(chunk is None for _, chunk in calls)
                if len(calls) <= ahead and not loading and (chunk := self._next()):
                    calls.append((worker.explain.remote(pickle.dumps(chunk)), chunk))
        return any(chunk for calls in self.calls.values() for _, chunk in calls) or self._more()

    def _next(self) -> Chunk | None:
        return self.again.popleft() if self.again else next(self.new, None)

    def _more(self) -> bool:
        """Whether chunks are left for workers that are still loading."""
        chunk = self._next()
        if chunk:
            self.again.appendleft(chunk)
        return chunk is not None

    def _answered(self, worker: Any) -> Iterator[tuple[int, bytes]]:
        """What the first of a worker's calls has come to."""
        call, chunk = self.calls[worker][0]
        try:
            kind, content = self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            self._died(worker, error)
            return
        if kind != "done":
            raise BadInput(content) if kind == "bad" else RuntimeError(content)
        self.calls[worker].popleft()
        self.failed_starts = 0
        if chunk is not None:
            yield chunk.number, content

    def _died(self, worker: Any, error: Exception) -> None:
        """Do again what a worker had to do; what it did when it died may be the reason."""
        self._check_alive()
        chunks = [chunk for _, chunk in self.calls.pop(worker)]
        self._stop(worker)
        self.again.extendleft(chunk for chunk in reversed(chunks) if chunk)
        if chunks[0] is None:
            self.failed_starts += 1
            if self.failed_starts == _STARTS:
                raise Stopped(f"{_STARTS} workers on Ray ended before they had done anything: {line_of(error)}")
        else:
            self.deaths[chunks[0].number] += 1
            if self.deaths[chunks[0].number] % _TRIES == 0:
                self._check_rows(chunks[0])
        self._start()

    def _check_rows(self, chunk: Chunk) -> None:
        """Refuse a row that ends its worker every time."""
        row = self._deadly(chunk)
        if row is not None:
            alone = np.arange(len(chunk.values)) == row
            if self._deadly(chunk.only(alone)) is not None:
                raise BadInput(f"the row of id {chunk.ids[row]} ends its worker every time: leave it out of the data")
        elif self.deaths[chunk.number] >= 3 * _TRIES:
            raise BadInput(
                f"the rows with ids {chunk.ids[0]} to {chunk.ids[-1]} end their worker every time, though each alone "
                "does not: give a smaller --chunk"
            )

    def _deadly(self, chunk: Chunk) -> int | None:
        """Which row ends a worker that explains them one by one; None if it lives."""
        worker, count = self._worker(), None
        try:
            self.ray.get(worker.load.remote())
            count = 0  # before, its end would say nothing of the rows
            for one in worker.one_by_one.options(num_returns="streaming").remote(pickle.dumps(chunk)):
                self.ray.get(one)
                count += 1
        except self.ray.exceptions.RayError:
            return count
        finally:
            self._stop(worker)
        return None

    def _worker(self) -> Any:
        gpus = 1 if str(self.order.task.explainer.get("device")).startswith("cuda") else 0
        remote = self.ray.remote(num_cpus=self.order.task.threads, num_gpus=gpus, max_restarts=0)(_Remote)
        return remote.remote(self.order.task, Path.cwd())

    def _start(self) -> None:
        worker = self._worker()
        self.calls[worker] = deque([(worker.load.remote(), None)])

    def _stop(self, worker: Any) -> None:
        with suppress(Exception):  # it is dead
            self.ray.kill(worker)

    def _nodes(self) -> list[Any]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _check_alive(self) -> None:
        """Stop if the Ray of this machine has ended: there is nobody who would start another worker."""
        if self.ray.get_runtime_context().get_node_id() not in [node["NodeID"] for node in self._nodes()]:
            raise Stopped("Ray has ended on this machine; run the same command again to go on where it stopped")
