"""The house: imports between rooms go one way, down this list, and a name means one thing."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import dasp

ROOMS = (
    "__main__", "cli", "pages", "jobs", "explainer", "plots", "evaluation", "methods", "attribution", "games", "rules",
    "propagation", "models", "players", "display", "formatting", "errors",
)  # fmt: skip
SOURCE = Path(dasp.__file__).parent
ALL = sorted(SOURCE.rglob("*.py"))
FILES = [file for file in ALL if file != SOURCE / "__init__.py"]  # which has the public names of all rooms


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def modules(code: str) -> set[str]:
    """Modules, or names in them, that some code imports, wherever it does so."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their room"
            found |= {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def upwards(room: str, code: str) -> set[str]:
    rooms = {module.split(".")[1] for module in modules(code) if module.startswith("dasp.")} - {"__version__"}
    assert rooms <= set(ROOMS), "names are imported from where they are defined"
    return {other for other in rooms if ROOMS.index(other) < ROOMS.index(room)}


def twice(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_every_file_is_in_a_room():
    assert {room_of(file) for file in FILES} == set(ROOMS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(SOURCE).as_posix())
def test_imports_go_down(file):
    assert not upwards(room_of(file), file.read_text())


def test_an_import_upwards_is_seen():
    assert upwards("games", "def f():\n    from dasp.attribution.base import PlayerMethod") == {"attribution"}
    assert upwards("attribution", "from dasp.games import game\nimport dasp.propagation.rules") == set()


def test_few_modules_are_loose():
    assert len([file for file in SOURCE.glob("*.py") if file.name != "__init__.py"]) <= 6


def test_there_are_not_too_many_doors():
    assert len(ALL) <= 152


def test_no_name_of_a_file_is_there_twice():
    assert twice([file.name for file in ALL if file.name != "__init__.py"]) == []


def test_no_public_class_is_there_twice():
    trees = [ast.parse(file.read_text()) for file in ALL]
    classes = [node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    assert twice([name for name in classes if not name.startswith("_")]) == []


def test_the_library_does_not_need_the_reproduction_of_the_paper():
    """Which uses it from outside, as its users do."""
    assert not [file for file in ALL for name in modules(file.read_text()) if name.split(".")[0] == "reproduction"]


def test_no_function_has_more_than_eight_positional_parameters():
    for file in FILES:
        if "rules" not in file.stem and "rules" not in file.parts:  # rules have the signature of their op
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.FunctionDef):
                    given = [x.arg for x in (*node.args.posonlyargs, *node.args.args) if x.arg != "self"]
                    assert len(given) <= 8, (file, node.name, given)
