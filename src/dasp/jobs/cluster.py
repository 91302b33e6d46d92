"""The process that talks to Ray: it starts or finds one, and sends back what its workers make of chunks.

Ray ends a process that talks to it when a part of Ray itself ends, and can keep it waiting for minutes. So this one is
not the job's own, which notices, says so, and cleans up.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from dasp.errors import BadInput, Stopped, line_of
from dasp.jobs.pool import Order, Pool

__all__ = ["drive"]

_OBJECT_STORE = 256 * 2**20  # bytes, of a Ray that is started here
_PATIENCE = 5  # seconds in which Ray must be able to end


def drive(there: Any, order: Order) -> None:
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
            for number, content in Pool(order, over).results():
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
    threads = order.task.threads
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
