"""The map of the package, drawn from its source: `python docs/architecture.py` writes docs/images/rooms.svg and fills
the tables of docs/architecture.md.

Rooms, what they hold and how they import each other are read from the files; the walk of a call is recorded while the
call runs. A test compares both with what is committed, so the page stays true.
"""
# ruff: noqa: INP001  # a script, not a module

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import dasp
from dasp.games.computing import computing

HERE = Path(__file__).parent
PAGE, PICTURE = HERE / "architecture.md", HERE / "images" / "rooms.svg"
SOURCE = Path(dasp.__file__).parent
FILLED = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)

ROOMS = (
    "cli", "pages", "jobs", "explainer", "plots", "evaluation", "methods", "attribution", "games", "propagation",
    "models", "players",
)  # fmt: skip
"""From the top to the bottom: a room imports only from those below it (`tests/test_layers.py`)."""
EVERYWHERE = {"errors", "formatting"}  # imported by nearly all rooms, so not drawn

_ALT = "The rooms of the package from top to bottom, and which of them import which"
_STYLE = (
    "text{font:15px system-ui,sans-serif;fill:#222}.name{font-weight:600}.small{font-size:12px;fill:#555}"
    "rect{fill:#eef1fb;stroke:#4051b5}path{fill:none;stroke:#4051b5;stroke-opacity:.45}circle{fill:#4051b5}"
)
_WIDTH, _ROW, _BOX, _ARCS = 960, 44, 620, 60  # pixels


def files_of(room: str) -> list[Path]:
    """The Python files of a room, without `__init__`."""
    files = [*(SOURCE / room).rglob("*.py"), SOURCE / f"{room}.py"]
    return sorted(file for file in files if file.exists() and file.stem != "__init__")


def named(room: str) -> list[str]:
    """The files of a room by their names, with the folder inside of the room that they are in."""
    return [file.relative_to(SOURCE / room).with_suffix("").as_posix() if file.parent != SOURCE else room
            for file in files_of(room)]  # fmt: skip


def sentence_of(room: str) -> str:
    """The first paragraph of a room's docstring, on one line."""
    folder = SOURCE / room / "__init__.py"
    text = ast.get_docstring(ast.parse((folder if folder.exists() else SOURCE / f"{room}.py").read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


def imported_rooms(room: str) -> list[str]:
    """The rooms that files of a room import, from the top to the bottom."""
    found = set()
    for file in files_of(room):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dasp":
                found |= {f"{node.module}.{name.name}".split(".")[1] for name in node.names}
            elif isinstance(node, ast.Import):
                found |= {name.name.split(".")[1] for name in node.names if name.name.startswith("dasp.")}
    return [other for other in ROOMS if other in found - {room}]


def picture() -> str:
    """The rooms as boxes, one below the other, with an arc on the right for each import between them."""
    height = _ROW * len(ROOMS) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{_ALT}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>',
    ]
    for place, room in enumerate(ROOMS):
        y = 10 + place * _ROW
        files = named(room)
        shown = ", ".join(files[:9]) + (f", … ({len(files)} files)" if len(files) > 9 else "")
        lines += [
            f'<rect x="10" y="{y}" width="{_BOX}" height="{_ROW - 8}" rx="6"/>',
            f'<text class="name" x="22" y="{y + 23}">{room}</text>',
            f'<text class="small" x="130" y="{y + 23}">{escape(shown[:72] + ("…" if len(shown) > 72 else ""))}</text>',
        ]
        for other in imported_rooms(room):
            below = ROOMS.index(other)
            start, end = y + (_ROW - 8) / 2 + 5, 10 + below * _ROW + (_ROW - 8) / 2 - 5
            reach = 10 + _BOX + _ARCS + 22 * (below - place)
            lines += [
                f'<path d="M{10 + _BOX} {start:g} C{reach} {start:g} {reach} {end:g} {10 + _BOX} {end:g}"/>',
                f'<circle cx="{10 + _BOX}" cy="{end:g}" r="3"/>',
            ]
    return "\n".join([*lines, "</svg>", ""])


def table_of_rooms() -> str:
    """The rooms in a table: what they are for, and their files."""
    rows = [f"| `{room}` | {sentence_of(room)} | {', '.join(named(room))} |" for room in ROOMS]
    return "\n".join(["| room | what it is | files |", "|---|---|---|", *rows, ""])


def walked(call: Callable[[], Any]) -> list[tuple[str, list[str]]]:
    """The modules that a call runs through in the order in which it comes to them, each with its first functions."""
    seen: dict[str, list[str]] = {}

    def noted(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(str(SOURCE))
            and not re.search(r"(^|\.)[_<]", code.co_qualname)
        ):
            module = Path(code.co_filename).relative_to(SOURCE).with_suffix("").as_posix()
            functions = seen.setdefault(module, [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)

    sys.setprofile(noted)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [(module, functions[:4]) for module, functions in seen.items()]


def walk() -> str:
    """The walk of `GradientDASP.attribute` on a small network, as a numbered list."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).eval()
    dasp.GradientDASP(model).attribute(torch.ones(2, 6))  # what is imported on the way is no part of the walk
    fresh = torch.nn.Sequential(*model)
    with computing(1):  # with more, it would be found out how many suit the model
        steps = walked(lambda: dasp.GradientDASP(fresh.eval()).attribute(torch.ones(2, 6)))
    return "\n".join([*(f"1. `{module}`: {', '.join(f'`{name}`' for name in names)}" for module, names in steps), ""])


def filled(text: str) -> str:
    """The page with its generated parts as they are now."""
    parts = {"rooms": table_of_rooms, "walk": walk}
    return FILLED.sub(lambda found: f"{found[1]}\n{parts[found[2]]()}\n{found[3]}", text)


def main() -> None:
    """Write the picture and the page."""
    PICTURE.write_text(picture())
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
