"""Engines, which explain chunks in this process or by workers on Ray; the results are the same, to the bit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import pyarrow as pa

from dasp.errors import BadInput, Stopped, line_of
from dasp.jobs.cluster import drive
from dasp.jobs.parts import unpacked
from dasp.jobs.pool import Order
from dasp.jobs.reading.chunks import Reader
from dasp.jobs.worker import Works, explained

__all__ = ["Explained", "Order", "locally", "on_ray"]

_ANSWER, _START = 10, 120  # seconds that a running Ray has to answer in, and one here to start
_END = 12  # seconds that it has to end in


@dataclass(frozen=True)
class Explained:
    """The explained rows of a chunk."""

    number: int
    table: pa.Table


def locally(worker: Works, reader: Reader, done: frozenset[int]) -> Iterator[Explained]:
    """Explain one chunk after the other by a worker in this process."""
    for chunk in reader.chunks(done):
        yield Explained(chunk.number, explained(worker, chunk))


def on_ray(order: Order) -> Iterator[Explained]:
    """Explain chunks by workers on Ray, each with a model of its own; they come in any order.

    The machines must see the files by the same paths, from the same folder.
    """
    if order.address:
        _check_address(order.address)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    driver = context.Process(target=drive, args=(there, order), name="dasp on Ray")
    driver.start()
    there.close()
    started = False
    try:
        _check_started(here, order.address)
        started = True
        while (message := here.recv()) is not None:
            yield _received(*message)
    except (EOFError, ConnectionError) as error:
        raise Stopped("Ray has ended; run the same command again to go on where it stopped") from error
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
        raise BadInput(f"{what}: no answer within {seconds} seconds")
    if error := here.recv():
        raise BadInput(f"{what}: {error}")


def _received(kind: str, number: int, content: Any) -> Explained:
    if kind == "rows":
        return Explained(number, unpacked(content))
    raise {"bad": BadInput, "stopped": Stopped}.get(kind, RuntimeError)(content)


def _end(driver: Any, seconds: float) -> None:
    """Wait for the driver to end, and leave nothing of the Ray that it has started: its processes are in its group."""
    wait([driver.sentinel], seconds)
    with suppress(AttributeError, ProcessLookupError, PermissionError):  # no groups on Windows; nothing is left
        os.killpg(driver.pid, signal.SIGKILL)
    driver.kill()
    driver.join()
