"""Run the notebooks of `docs/notebooks` and save what they print and draw: `make notebooks`.

The first code cell of a notebook has the tag "parameters": plain assignments, whose names stand in its metadata under
`small`, with the values at which the tests run the notebook.
"""
# ruff: noqa: INP001  # a script, not a module

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parent / "notebooks"
_SECONDS = 600  # for a cell, for the kernel to start, and for what a cell shows to arrive
_KEPT = {"alt", "small", "tags"}  # of a cell's metadata; `alt` describes its figure, which nbconvert reads
_LOST = re.compile(r" at 0x[0-9a-f]+")  # addresses in memory, which differ from run to run


def main() -> None:
    """Run all notebooks, or those that are named, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="table, image, sequence, text; all by default")
    names = parser.parse_args().names
    for path in [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb")):
        started = time.perf_counter()
        notebook = nbformat.read(path, as_version=4)
        with kernel() as manager:
            run(notebook, manager)
        tidy(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.perf_counter() - started:.0f} s, {path.stat().st_size / 1000:.0f} KB", flush=True)


@contextmanager
def kernel() -> Iterator[KernelManager]:
    """Start a Python that runs cells, in a folder of its own; no port is opened."""
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}  # its own shows figures
    environment["OMP_NUM_THREADS"] = "1"  # the last digits of a trained network depend on the number of threads
    with TemporaryDirectory() as folder:
        manager = KernelManager(kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json")
        manager.start_kernel(env=environment, cwd=folder)
        try:
            yield manager
        finally:
            manager.shutdown_kernel(now=True)


def run(notebook: Any, manager: KernelManager) -> None:
    """Run all cells, and raise what one of them raises."""
    patience = dict.fromkeys(["timeout", "startup_timeout", "iopub_timeout"], _SECONDS)
    client = NotebookClient(notebook, km=manager, coalesce_streams=True, **patience)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()


def parameters(notebook: Any) -> Any:
    """The cell with the numbers that a run can be made smaller by."""
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    return cell


def make_small(notebook: Any) -> None:
    """Replace the numbers of the first code cell by those of its metadata."""
    cell = parameters(notebook)
    for name, value in cell.metadata["small"].items():
        cell.source, count = re.subn(rf"^{name} = .*$", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"{name} is assigned {count} times in the cell of parameters, and not once")


def tidy(notebook: Any) -> None:
    """Leave out what changes from run to run and from machine to machine, so that changes of meaning can be seen."""
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = nbformat.from_dict({"kernelspec": python, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        for name in set(cell.metadata) - _KEPT:
            del cell.metadata[name]
        for output in cell.get("outputs", ()):
            for kind, shown in output.get("data", {}).items():
                if kind == "text/plain":
                    output.data[kind] = _LOST.sub("", shown)


if __name__ == "__main__":
    main()
