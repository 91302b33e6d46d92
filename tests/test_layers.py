"""Imports between rooms go one way: down this list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import dasp

ROOMS = (
    "__main__", "cli", "paper", "report", "jobs", "explainer", "plots", "evaluation", "methods", "attribution", "games",
    "propagation", "players", "errors", "words",
)  # fmt: skip
OUTSIDE = {"__init__", "former_names"}  # the public names, which are those of all rooms
SOURCE = Path(dasp.__file__).parent
FILES = [file for file in SOURCE.rglob("*.py") if file.parent != SOURCE or file.stem not in OUTSIDE]


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(code: str) -> set[str]:
    """Rooms that some code imports, wherever it does so."""
    modules = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their room"
            modules |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            modules |= {name.name for name in node.names}
    return {module.split(".")[1] for module in modules if module.startswith("dasp.")} - {"__version__"}


def upwards(room: str, code: str) -> set[str]:
    return {other for other in imported(code) if ROOMS.index(other) < ROOMS.index(room)}


def test_every_file_is_in_a_room():
    assert {room_of(file) for file in FILES} == set(ROOMS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_imports_go_down(file):
    assert not upwards(room_of(file), file.read_text())


def test_an_import_upwards_is_seen():
    assert upwards("games", "def f():\n    from dasp.attribution.base import PlayerMethod") == {"attribution"}
    assert upwards("attribution", "from dasp.games import game\nimport dasp.propagation.rules") == set()


def test_few_modules_are_loose():
    assert len([file for file in SOURCE.glob("*.py") if file.name != "__init__.py"]) <= 5


def test_files_fit_on_a_few_screens():
    assert max(len(file.read_text().splitlines()) for file in FILES) <= 300


def test_no_function_has_more_than_eight_positional_parameters():
    for file in FILES:
        if "rules" not in file.stem and "rules" not in file.parts:  # rules have the signature of their op
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    given = [x.arg for x in (*node.args.posonlyargs, *node.args.args) if x.arg != "self"]
                    assert len(given) <= 8, (file, node.name, given)
