"""The reproduction is a client of the library: it imports what `dasp` offers to everybody, and nothing else."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

import reproduction

FOLDER = Path(reproduction.__file__).parent
# The modules that users import from; of each, the names in `__all__`.
PUBLIC = {
    "dasp",
    "dasp.errors",
    "dasp.evaluation",
    "dasp.methods",
    "dasp.players",
    "dasp.plots",
    "dasp.propagation",
    "dasp.pages.render",
    "dasp.rules",
}


def imports(file):
    """The modules of dasp that a file imports from, with the names; "" for a module itself."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.split(".")[0] == "dasp")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dasp":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.stem)
def test_only_what_is_public_is_imported(file):
    for module, name in imports(file):
        assert module in PUBLIC, f"{file.name} imports {module}, which is not public"
        assert not name or name in importlib.import_module(module).__all__, f"{file.name} imports {module}.{name}"


def test_the_library_knows_neither_it_nor_its_peers():
    files = (Path(importlib.import_module("dasp").__file__).parent).rglob("*.py")
    forbidden = re.compile(r"^\s*(from|import) (reproduction|shapiq)", re.MULTILINE)
    assert [file.name for file in files if forbidden.search(file.read_text())] == ["shapiq_adapter.py"]
