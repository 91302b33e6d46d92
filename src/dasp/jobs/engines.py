"""Engines, which explain chunks in this process or by workers on Ray; the results are the same, to the bit."""

from __future__ import annotations

import logging
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dasp.errors import BadInput, line_of
from dasp.jobs.parts import packed, unpacked
from dasp.jobs.reading.chunks import Chunk, Reader
from dasp.jobs.worker import Task, Worker

__all__ = ["Explained", "locally", "on_ray"]

_OBJECT_STORE = 256 * 2**20  # bytes, of a Ray that is started here
_BLOCK = 2**20  # bytes, after which Ray passes chunks on


@dataclass(frozen=True)
class Explained:
    """The explained rows of a chunk."""

    number: int
    table: pa.Table


def locally(worker: Worker, reader: Reader, done: frozenset[int]) -> Iterator[Explained]:
    """Explain one chunk after the other by a worker in this process."""
    for chunk in reader.chunks(done):
        yield Explained(chunk.number, _explained(worker, chunk))


def on_ray(
    task: Task, reader: Reader, done: frozenset[int], address: str | None, workers: int | None
) -> Iterator[Explained]:
    """Explain chunks by a pool of workers on Ray Data, each with a model of its own; they come in any order.

    One task reads the data and passes chunks on as workers take them. A worker that dies is replaced, and its chunk
    done again. The machines must see the files by the same paths, from the same folder.
    """
    import ray.data  # noqa: PLC0415

    with _cluster(address, task.threads):
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        context.target_max_block_size = _BLOCK
        number = workers or max(1, int(ray.cluster_resources()["CPU"]) // task.threads)
        resources: dict[str, Any] = {"num_cpus": task.threads, "num_gpus": 1 if _on_gpu(task) else 0}
        here = Path.cwd()
        explained = (
            ray.data.from_items([{"number": 0}])
            .map_batches(partial(_read, reader=reader, done=done, folder=here), batch_format="pyarrow", num_cpus=0)
            .map_batches(
                _Pooled, fn_constructor_args=(task, here), batch_size=1, batch_format="pyarrow",
                concurrency=(1, number), **resources,
            )
        )  # fmt: skip
        for batch in explained.iter_batches(batch_size=1, batch_format="pyarrow", prefetch_batches=0):
            for row in batch.to_pylist():
                yield _received(row)


def _explained(worker: Worker, chunk: Chunk) -> pa.Table:
    if not len(chunk.values):
        return pa.table({})
    try:
        return worker.explain(chunk)
    except Exception as error:
        error.add_note(f"while the rows with ids {chunk.ids[0]} to {chunk.ids[-1]} were explained")
        raise


def _read(_: pa.Table, reader: Reader, done: frozenset[int], folder: Path) -> Iterator[pa.Table]:
    """Read all chunks, each as one row of a Ray dataset."""
    os.chdir(folder)
    try:
        for chunk in reader.chunks(done):
            yield pa.table({"number": [chunk.number], "content": [pickle.dumps(chunk)], "error": [""]})
    except BadInput as error:
        yield pa.table({"number": [-1], "content": [b""], "error": [str(error)]})


class _Pooled:
    """A worker of the pool. It sends errors back as data: Ray would print them in its own way, or try again."""

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self.folder = task, folder
        self.worker: Worker | None = None

    def __call__(self, rows: pa.Table) -> pa.Table:
        (row,) = rows.to_pylist()
        if row["error"]:
            return rows.append_column("bad", pa.array([True]))
        content, error, bad = b"", "", False
        try:
            if self.worker is None:
                os.chdir(self.folder)
                self.worker = Worker(self.task)
            table = _explained(self.worker, pickle.loads(row["content"]))  # noqa: S301 - written by _read
            content = packed(table).to_pybytes()
        except BadInput as wrong:
            error, bad = str(wrong), True
        except Exception:  # noqa: BLE001 - raised again where the job runs
            error = traceback.format_exc()
        return pa.table({"number": [row["number"]], "content": [content], "error": [error], "bad": [bad]})


def _received(row: dict[str, Any]) -> Explained:
    if row["error"]:
        raise BadInput(row["error"]) if row["bad"] else RuntimeError(f"a worker failed:\n{row['error']}")
    return Explained(row["number"], unpacked(row["content"]))


@contextmanager
def _cluster(address: str | None, threads: int) -> Iterator[None]:
    """Connect to the Ray at an address, or start a small one that ends with the job, even if another Ray runs here."""
    import ray  # noqa: PLC0415

    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do by default, and warns about
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ours = not ray.is_initialized()
    if ours:
        own = {"num_cpus": max(os.cpu_count() or 1, threads), "object_store_memory": _OBJECT_STORE,
               "include_dashboard": False}  # fmt: skip
        try:
            with _mute():
                ray.init(
                    address or "local", logging_level=logging.ERROR, log_to_driver=False, **({} if address else own)
                )
        except (ConnectionError, ValueError, RuntimeError) as error:
            what = f"--ray-address {address}" if address else "Ray cannot be started here"
            raise BadInput(f"{what}: {line_of(error)}") from error
    try:
        largest = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
        if largest < threads:
            raise BadInput(
                f"each worker of this job has {threads} threads, but no machine of the Ray cluster has more than "
                f"{largest:g} CPUs: give fewer --threads"
            )
        yield
    finally:
        if ours:
            ray.shutdown()


@contextmanager
def _mute() -> Iterator[None]:
    """Hide what Ray's own processes and C++ code write to stderr while it starts."""
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _on_gpu(task: Task) -> bool:
    return str(task.explainer.get("device")).startswith("cuda")
