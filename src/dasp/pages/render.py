"""The look of all pages: one file, no network, and no script but our own.

What is explained comes from outside: names of columns, texts, paths. Jinja escapes what is written into the page, JSON
is written so that it cannot end its element, scripts put it in as text only, and the browser is told to run nothing
but the script of this file, and to load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dasp.formatting import number, within

__all__ = ["render", "rounded"]

_DIGITS = 5


def render(template: str, *, script: str = "", room: str = "", **values: Any) -> str:
    """Return a page from a template.

    Args:
        template: the name of its file.
        script: the file of JavaScript that the page runs, if any.
        room: the package whose folder has the template, if it is not ours; it may extend our "page.html".
        values: what the template shows.
    """
    code = _ours(script) if script else Markup()
    page = _environment(room).get_template(template)
    return page.render(style=_ours("style.css"), script=code, policy=_policy(code), **values)


@cache
def _environment(room: str) -> Environment:
    """Return what reads templates, and keeps those that it has read."""
    folders = [PackageLoader("dasp.pages", "templates"), *([PackageLoader(room, ".")] if room else [])]
    environment = Environment(
        loader=ChoiceLoader(folders), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"breakable": _breakable, "count": "{:,}".format, "json": _json}
    environment.filters |= {"number": number, "within": _within}
    return environment


def _ours(name: str) -> Markup:
    """Return a file of ours, which is written into the page as it is."""
    return Markup((files("dasp.pages") / "templates" / name).read_text(encoding="utf-8"))  # noqa: S704


def rounded(value: float, digits: int = _DIGITS) -> float | None:
    """Return a number with few digits, which are enough to draw it; None for what is not finite.

    >>> rounded(1234.5678), rounded(float("nan"))
    (1234.6, None)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _policy(script: str) -> str:
    """Return what the browser may do: show pictures that are in the page, and run our script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def _json(value: Any) -> Markup:
    """Return JSON for an element of a page, which nothing in it can end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (escaped above)


def _breakable(name: str) -> Markup:
    """Return a name that may go on in the next line behind an underscore and the like."""
    return Markup(re.sub(r"([_./:-])", r"\1<wbr>", str(escape(name))))  # noqa: S704 (escaped before)


def _within(value: float, half: float | None) -> str:
    return within(value, half).removeprefix("+")
