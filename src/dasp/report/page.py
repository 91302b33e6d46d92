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
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from dasp.words import number, within

__all__ = ["render", "rounded"]

_DIGITS = 5


def render(template: str, *, script: str = "", room: str = "dasp.report", **values: Any) -> str:
    """A page from a template of a room, which may build on those of `dasp.report`; `script` is a file of JavaScript."""
    folders = [PackageLoader("dasp.report", "templates")]
    if room != "dasp.report":
        folders.insert(0, PackageLoader(room, "."))
    environment = Environment(
        loader=ChoiceLoader(folders), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "json": _json,
        "number": number,
        "within": _within,
        "count": lambda n: f"{n:,}",
        "breakable": _breakable,
    }
    source = environment.loader.get_source(environment, script)[0] if script and environment.loader else ""
    style = environment.loader.get_source(environment, "style.css")[0] if environment.loader else ""
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 (files of ours)
        script=Markup(source),  # noqa: S704
        policy=_policy(source),
        **values,
    )


def rounded(value: float) -> float | None:
    """A number with few digits, which is enough to draw it; None for what is not finite.

    >>> rounded(1234.5678), rounded(float("nan"))
    (1234.6, None)
    """
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None


def _policy(script: str) -> str:
    """What the browser may do: show pictures that are in the page, and run our script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}"


def _json(value: Any) -> Markup:
    """JSON inside an element of a page, which nothing in it can end."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (escaped above)


def _breakable(name: str) -> Markup:
    """A name that may go on in the next line behind an underscore and the like."""
    return Markup(re.sub(r"([_./:-])", r"\1<wbr>", str(escape(name))))  # noqa: S704 (escaped before)


def _within(value: float, half: float | None) -> str:
    return within(value, half).removeprefix("+")
