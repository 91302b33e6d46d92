"""Examples in docstrings, as blocks of code in the API reference.

A doctest stands between paragraphs, without a heading; Markdown would take its prompts for quotations. This extension
of griffe, which reads the docstrings for mkdocstrings, fences every paragraph that begins with a prompt.
"""
# ruff: noqa: INP001  # not part of the package

from __future__ import annotations

from typing import Any

import griffe


def fenced(text: str) -> str:
    r"""Fence every paragraph that begins with a prompt, at its own indent.

    >>> fenced("Add.\n\n>>> 1 + 1\n2").splitlines()
    ['Add.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines: list[str] = []
    indent: str | None = None  # of the block that is open
    for line in [*text.splitlines(), ""]:
        bare = line.strip()
        if indent is None and bare.startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
        if indent is not None and not bare:
            lines.append(f"{indent}```")
            indent = None
        lines.append(line.rstrip())
    return "\n".join(lines).rstrip("\n")


class Doctests(griffe.Extension):
    """Fences doctests in the docstrings of all objects."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring before it is parsed."""
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)
