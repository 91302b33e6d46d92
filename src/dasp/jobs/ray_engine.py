"""A job on Ray: chunks are explained by workers, here or on other machines, with the same results to the bit.

Three processes take part. The job's own (`on_ray`) starts a driver and takes what it sends. The driver (`_drive`) talks
to Ray: it starts or finds one. Ray ends a process that talks to it when a part of Ray itself ends, and can keep it
waiting for minutes; so the driver is not the job's own process, which notices, says so, and cleans up. The workers
(`_Remote`) have a model each. Which of them does what is up to the `_Pool`: a chunk is what is done, and done again if
its worker dies. A chunk whose worker dies several times is tried row by row, so that the row can be named.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dasp.errors import BadInput, Stopped, line_of
from dasp.jobs.checkpoint import packed, unpacked
from dasp.jobs.reading.chunks import Chunk, Reader
from dasp.jobs.worker import AnyWorker, Task, explained_table, worker_of

__all__ = ["Order", "on_ray"]

_ANSWER, _START = 10, 120  # seconds that a running Ray has to answer in, and one here to start
_END = 12  # seconds that it has to end in
_PATIENCE = 5  # seconds in which Ray must be able to end
_OBJECT_STORE = 256 * 2**20  # bytes, of a Ray that is started here
_AHEAD = 2  # chunks that a worker is given, so that it need not wait for the next one
_TRIES = 2  # of a chunk whose worker dies, before its rows are tried one by one; three times that in all
_STARTS = 30  # of workers that die one after the other before they have done anything


@dataclass(frozen=True)
class Order:
    """The chunks that are to be explained on Ray."""

    task: Task
    reader: Reader
    done: frozenset[int]  # chunks that are done already
    address: str | None  # of a running Ray
    workers: int | None  # at most


def on_ray(order: Order) -> Iterator[tuple[int, pa.Table]]:
    """Explain chunks by workers on Ray, each with a model of its own; they come in any order, with their numbers.

    The machines must see the files by the same paths, from the same folder.
    """
    if order.address:
        _check_address(order.address)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    driver = context.Process(target=_drive, args=(there, order), name="dasp on Ray")
    driver.start()
    there.close()
    started = False
    try:
        with _ends_with_ray():
            _check_started(here, order.address)
        started = True
        while (message := _received(here)) is not None:
            yield message
    finally:
        here.close()  # which tells the driver to end, too
        _end(driver, _END if started else 0)


def _check_address(address: str) -> None:
    """Refuse an address where nobody listens, which Ray itself notices after many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdecimal():  # not a word, such as auto
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
        except (OSError, OverflowError, UnicodeError) as error:
            raise BadInput(f"--ray-address {address}: {line_of(error)}") from error


def _check_started(here: Any, address: str | None) -> None:
    if not here.poll(_START):
        raise Stopped(
            f"the process that talks to Ray did not begin within {_START} seconds; run the same command again"
        )
    here.recv()  # when the driver has begun
    seconds = _ANSWER if address else _START
    what = f"--ray-address {address}" if address else "Ray cannot be started here"
    if not here.poll(seconds):
        refused = BadInput if address else Stopped  # a machine that is busy now need not be so the next time
        raise refused(f"{what}: no answer within {seconds} seconds")
    if error := here.recv():
        raise BadInput(f"{what}: {error}")


@contextmanager
def _ends_with_ray() -> Iterator[None]:
    """Say so if the driver is there no longer: it has sent nothing more, or a part of a message (`OSError`)."""
    try:
        yield
    except (EOFError, OSError) as error:
        raise Stopped("Ray has ended; run the same command again to go on where it stopped") from error


def _received(here: Any) -> tuple[int, pa.Table] | None:
    """Return the number and the rows of a chunk that the driver sends, or None at the end."""
    with _ends_with_ray():
        message = here.recv()
    if message is None:
        return None
    kind, number, content = message
    if kind == "rows":
        return number, unpacked(content)
    raise {"bad": BadInput, "stopped": Stopped}.get(kind, RuntimeError)(content)


def _end(driver: Any, seconds: float) -> None:
    """Wait for the driver to end, and leave nothing of the Ray that it has started: its processes are in its group."""
    wait([driver.sentinel], seconds)
    with suppress(AttributeError, ProcessLookupError, PermissionError):  # no groups on Windows; nothing is left
        os.killpg(driver.pid, signal.SIGKILL)
    driver.kill()
    driver.join()


def _drive(there: Any, order: Order) -> None:
    """Send None when this process is there, None or an error when Ray is, then chunks or an error, then None."""
    _alone()
    over = threading.Event()
    threading.Thread(target=_watch, args=(there, over), daemon=True).start()
    with suppress(ConnectionError):  # nobody is interested any longer
        there.send(None)
        try:
            _connect(order)
        except BadInput as error:
            there.send(str(error))
            return
        there.send(None)
        try:
            for number, content in _Pool(order, over).results():
                there.send(("rows", number, content))
            there.send(None)
        except BadInput as error:
            there.send(("bad", -1, str(error)))
        except Stopped as error:
            there.send(("stopped", -1, str(error)))
        except Exception:  # noqa: BLE001 - raised again where the job runs
            there.send(("failed", -1, f"a worker failed:\n{traceback.format_exc()}"))
    import ray  # noqa: PLC0415

    ray.shutdown()
    if over.is_set():
        _end_all()


def _alone() -> None:
    """Leave the terminal, with all processes to come: what is typed there, and written, is the job's own."""
    with suppress(AttributeError):  # there are no sessions on Windows
        os.setsid()
    with Path(os.devnull).open("wb") as nowhere:
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)


def _watch(there: Any, over: threading.Event) -> None:
    """Wait for the end of the job's process, which closes the connection, and end in any case."""
    with suppress(EOFError, OSError):
        there.recv()
    over.set()
    time.sleep(_PATIENCE)
    _end_all()


def _end_all() -> None:
    """End this process and all of the Ray that it has started; Ray itself leaves some behind."""
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _connect(order: Order) -> None:
    """Connect to the Ray at an address, or start a small one that ends with the job, even if another Ray runs here."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do by default, and warns about
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    threads = order.task.threads or 1
    own: dict[str, Any] = {}
    if order.address is None:
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "10")  # nobody will start it again
        own = {"num_cpus": max(os.cpu_count() or 1, threads), "object_store_memory": _OBJECT_STORE,
               "include_dashboard": False}  # fmt: skip
    import ray  # noqa: PLC0415

    try:
        ray.init(order.address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except Exception as error:
        raise BadInput(line_of(error)) from error


class _Remote:
    """A worker of the pool. It sends errors back as data: Ray would print them in its own way, or try again."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.worker: AnyWorker

    def load(self) -> tuple[str, Any]:
        """Make the model ready."""
        return self._answer(self._load)

    def explain(self, content: bytes) -> tuple[str, Any]:
        """Return the explained rows of a chunk."""
        return self._answer(lambda: packed(explained_table(self.worker, pickle.loads(content))).to_pybytes())  # noqa: S301

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

    def _answer(self, act: Any) -> tuple[str, Any]:
        try:
            return "done", act()
        except BadInput as error:
            return "bad", str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - raised again where the job runs
            return "failed", traceback.format_exc()


class _Pool:
    """Workers on Ray, each with the calls that it has to answer, in their order: a chunk's, or None to load a model."""

    def __init__(self, order: Order, over: threading.Event) -> None:
        import ray  # noqa: PLC0415

        self.ray, self.order, self.over = ray, order, over
        self.again: deque[Chunk] = deque()  # chunks whose worker died
        self.new = order.reader.chunks(order.done)
        self.deaths: Counter[int] = Counter()  # of workers, by the chunk that they had
        self.failed_starts = 0
        self.calls: dict[Any, deque[tuple[Any, Chunk | None]]] = {}
        threads = order.task.threads or 1
        cpus = [node["Resources"].get("CPU", 0) for node in self._nodes()]
        if max(cpus) < threads:
            raise BadInput(
                f"each worker of this job has {threads} threads, but no machine of the Ray cluster has more than "
                f"{max(cpus):g} CPUs: give fewer --threads"
            )
        self.number = order.workers or max(1, int(sum(cpus)) // threads)

    def results(self) -> Iterator[tuple[int, bytes]]:
        """Yield the explained rows of all chunks, as they come."""
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
        """Give chunks to all who can take some. Return True if there is something to wait for."""
        for ahead in range(_AHEAD):
            for worker, calls in self.calls.items():
                loading = any(chunk is None for _, chunk in calls)
                if len(calls) <= ahead and not loading and (chunk := self._next()):
                    calls.append((worker.explain.remote(pickle.dumps(chunk)), chunk))
        return any(chunk for calls in self.calls.values() for _, chunk in calls) or self._more()

    def _next(self) -> Chunk | None:
        return self.again.popleft() if self.again else next(self.new, None)

    def _more(self) -> bool:
        """Return True if chunks are left for workers that are still loading."""
        chunk = self._next()
        if chunk:
            self.again.appendleft(chunk)
        return chunk is not None

    def _answered(self, worker: Any) -> Iterator[tuple[int, bytes]]:
        """Yield the result of the first of a worker's calls."""
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
        """Return the row that ends a worker which explains them one by one, or None if it lives."""
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
        remote = self.ray.remote(num_cpus=self.order.task.threads or 1, num_gpus=gpus, max_restarts=0)(_Remote)
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
