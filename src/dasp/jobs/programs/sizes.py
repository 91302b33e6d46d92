"""Sizes, which may be expressions, and conditions on them.

torch evaluates both as Python. Here they are not needed, as the graph computes its sizes itself, but a file in which
they are more than arithmetic is not a plain program.
"""

from __future__ import annotations

import re
from typing import Any

from dasp.errors import BadInput
from dasp.jobs.programs.archive import NotUnderstood
from dasp.jobs.programs.fields import PLAIN, choice, fields, integer, listed
from dasp.propagation.tracing import rows_are_fixed

__all__ = ["META", "check_arithmetic", "check_rows", "check_size", "check_tensor"]

META = ("dtype", "sizes", "requires_grad", "device", "strides", "storage_offset", "layout")
_LONGEST = 10_000
# Symbol('s0', integer=True), s0 and numbers; functions like FloorDiv(; arguments like L['x'][0].size()[1]; operators.
# No powers, and no way back (*+) in texts that do not match.
_ARITHMETIC = re.compile(
    r"(?:Symbol\('[a-z]{1,4}\d{1,9}'|[a-z]+=(?:True|False)\b|[A-Z][A-Za-z]*\(|[su]\d{1,9}\b|\d{1,19}\b"
    r"|L\['\w+'\]|\['\w+'\]|\[\d{1,9}\]|\.(?:size|stride|storage_offset)\(\)|(?:and|or|not|True|False)\b"
    r"|\*(?!\*)|[\s+\-/%(),<>=!])*+",
    re.ASCII,
)


def check_arithmetic(expression: Any) -> None:
    """Refuse an expression that is more than arithmetic of sizes.

    >>> check_arithmetic("Mul(Integer(2), Symbol('s0', positive=True, integer=True))")
    >>> check_arithmetic("L['x'].size()[0] % 2 == 0")
    >>> check_arithmetic("9**9**9")
    Traceback (most recent call last):
        ...
    dasp.jobs.programs.archive.NotUnderstood: a size '9**9**9'
    """
    if not isinstance(expression, str) or len(expression) > _LONGEST or not _ARITHMETIC.fullmatch(expression):
        raise NotUnderstood(f"a size {expression[:60] if isinstance(expression, str) else expression!r}")


def check_size(size: Any) -> None:
    """Refuse a size that is neither a number nor arithmetic."""
    kind, value = choice(size)
    if kind == "as_expr":
        (expression,) = fields(value, "expr_str", optional=("hint",))
        check_arithmetic(expression)
    else:
        PLAIN[kind](value)


def check_tensor(meta: Any) -> None:
    """Refuse a description of a tensor that is not plain."""
    dtype, sizes, _, device, strides, offset, layout = fields(meta, *META)
    for kind, value in (("as_scalar_type", dtype), ("as_device", device), ("as_layout", layout)):
        PLAIN[kind](value)
    for size in (*listed(sizes), *listed(strides), offset):
        check_size(size)


def check_rows(meta: Any) -> None:
    """Refuse a program whose first input has one number of rows."""
    kind, value = choice(listed(meta["sizes"])[0]) if meta["sizes"] else ("", None)
    if kind == "as_int":
        raise BadInput(rows_are_fixed(integer(value)))
