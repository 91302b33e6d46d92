"""The scripts of the gallery on the site, as texts that a browser shows: links to them lead out of `docs`."""
# ruff: noqa: INP001  # a hook of MkDocs, not a module

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

FOLDER = Path(__file__).parents[1] / "examples" / "gallery"


def on_files(files: Files, config: Any) -> Files:
    """Add a text for every script."""
    for script in sorted(FOLDER.glob("*.py")):
        files.append(File.generated(config, f"scripts/{script.stem}.txt", content=script.read_text()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to scripts there."""
    for script in FOLDER.glob("*.py"):
        markdown = markdown.replace(f"(../examples/gallery/{script.name})", f"(scripts/{script.stem}.txt)")
    return markdown
