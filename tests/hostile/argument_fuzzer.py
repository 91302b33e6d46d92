"""A fuzzer of arguments: calls with several odd arguments at once, of models whose values are known.

A linear model has the Shapley values w·(x − b) by every method, so that every answer can be compared with a plain
oracle; for functions of evaluations alone there is one with interactions, whose values are enumerated. A finding is an
error that is none of our own sentences, a call that does not come to its end, or a wrong value.

    python -m tests.hostile.fuzz_arguments SECONDS
"""

from __future__ import annotations

import io
import itertools
import logging
import math
import signal
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dasp
from tests.hostile.arguments import METHODS, ODD, ROWS, Odd, knows

__all__ = ["Call", "calls_of", "fuzz", "said_by_us", "tried"]

SOURCE = str(Path(dasp.__file__).parent)
ENOUGH = 30.0  # seconds of processor time for a call
PLAIN = 0.6  # the chance of an argument to be plain, or left out
_NO_MATTER = {  # to linear models, and to others with as many evaluations as there are coalitions
    "internal_batch_size", "seed", "show_progress", "n_permutations", "n_pairs", "nodes", "rank", "max_evaluations",
}  # fmt: skip
ANYTHING = (
    None, True, False, -1, 0, 1, 2.5, math.nan, math.inf, 10**40, 1j, "", "1", b"1", [], (), {}, [1], (1,), {"a": 1},
    object(), np.int64(1), np.float32(0.5), np.bool_(True), np.array([1, 2]), np.array("x"), np.array(None),
    torch.tensor(1), torch.tensor(0.5), torch.tensor(1j), torch.tensor([]), torch.tensor(True), torch.Size([1]),
    torch.float64, int, len, slice(None), ..., range(2),
)  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call of a method, with the values that it must have if it is not refused."""

    method: str
    model: Any
    arguments: dict[str, Any]
    odd: tuple[str, ...]
    refused: bool  # it must be
    wanted: Tensor | None  # None if nobody knows

    def __str__(self) -> str:
        return f"{self.method}({', '.join(self.odd) or 'plain'})"


class Linear(nn.Module):
    """w·x for some outputs."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight


def product(x: Tensor) -> Tensor:
    """A function with interactions, in double precision."""
    x = x.double()
    return torch.stack([x.prod(1), x[:, 0] * x[:, 1] + x[:, -1], x.square().sum(1).sin()], 1)


def enumerated(x: Tensor, off: Tensor, mask: Tensor) -> Tensor:
    """The Shapley values of `product` by their definition, (rows, outputs, entries)."""
    labels = mask.unique().tolist()
    n = len(labels)
    index = torch.tensor([labels.index(each) for each in mask.tolist()])
    worth = {}
    for coalition in itertools.product([False, True], repeat=n):
        worth[coalition] = product(torch.where(torch.tensor(coalition)[index], x, off))
    values = torch.zeros(len(x), 3, n, dtype=torch.float64)
    for coalition, before in worth.items():
        for player in (i for i in range(n) if not coalition[i]):
            size = sum(coalition)
            weight = math.factorial(size) * math.factorial(n - size - 1) / math.factorial(n)
            after = worth[(*coalition[:player], True, *coalition[player + 1 :])]
            values[..., player] += weight * (after - before)
    return values[..., index]


def calls_of(seed: int, number: int | None = None) -> Iterator[Call]:
    """Yield so many calls, or calls without end: the same for the same seed."""
    random = Random(seed)
    generator = torch.Generator().manual_seed(seed)
    models = [Linear(torch.randn(4, 3, generator=generator)).eval() for _ in range(2)]
    for _ in itertools.count() if number is None else range(number):
        yield _call(random, generator, random.choice(models))


def _call(random: Random, generator: torch.Generator, linear: Linear) -> Call:
    method = random.choice(list(METHODS))
    interactions = method in ("ExactShapley", "BayesianShapley") and random.random() < 0.5
    rows = random.choice((1, 2, 3, 20))
    x, off = torch.randn(rows, 4, generator=generator), torch.randn(1, 4, generator=generator)
    target, mask = random.choice((None, 0, 1, -1)), torch.arange(4)
    plain: dict[str, Any] = {"inputs": x, "baselines": off, "target": target}
    if random.random() < 0.3:
        mask = plain["feature_mask"] = torch.tensor(random.choice(([0, 0, 1, 1], [2, 5, 2, 9], [3, 2, 1, 0])))
    if method == "BayesianShapley":
        plain["max_evaluations"] = 16
    given, names, refused, known = dict(plain), [], False, True
    for argument in ODD:
        if random.random() < PLAIN or not knows(method, argument) or argument in ("inputs", "background"):
            continue
        if random.random() < 0.3:
            given[argument] = value = random.choice(ANYTHING)
            names.append(f"{argument}={value!r}")
            known = False
            continue
        odd = random.choice(ODD[argument])
        if not odd.concerns(method) or odd.means is plain.get(argument) or (rows != ROWS and _by_row(argument, odd)):
            continue
        names.append(f"{argument}={odd.name}")
        given[argument] = odd.value
        refused |= odd.refused is not None
        changes, mask, off, target = _meant(argument, odd, mask, off, target)
        known &= changes
    if random.random() > PLAIN:
        given["inputs"], name, refused_rows = _rows(random, x)
        names.append(f"inputs={name}")
        refused |= refused_rows
    wanted = None
    if known and not refused:
        values = enumerated(x, off, mask) if interactions else _linear(linear, x, off, mask)
        wanted = values if target is None else values[:, target]
    return Call(method, product if interactions else linear, given, tuple(names), refused, wanted)


def _by_row(argument: str, odd: Odd) -> bool:
    """True for values that have something for each of the rows that the table has."""
    if argument == "target":
        return isinstance(odd.value, list) or getattr(odd.value, "ndim", 0) > 0
    return argument == "feature_mask" and getattr(odd.value, "ndim", 0) > 1 and len(odd.value) == ROWS


def _meant(argument: str, odd: Odd, mask: Tensor, off: Tensor, target: Any) -> tuple[bool, Tensor, Tensor, Any]:
    """Whether an oracle knows what an argument changes, and what is to be explained then."""
    if odd.refused is not None:
        return True, mask, off, target
    if argument == "baselines":
        off = odd.means if isinstance(odd.means, Tensor) else torch.full((1, 4), float(odd.means))
        return True, mask, off.detach(), target
    if argument == "target":
        return True, mask, off, odd.means
    if argument == "feature_mask":
        return True, odd.means, off, target
    return argument in _NO_MATTER, mask, off, target


def _linear(model: Linear, x: Tensor, off: Tensor, mask: Tensor) -> Tensor:
    each = (x - off).double()[:, None] * model.weight.detach().double().T  # (rows, outputs, entries)
    same = (mask[:, None] == mask).double()
    return each @ same


def _rows(random: Random, x: Tensor) -> tuple[Any, str, bool]:
    """The same rows in another way, or rows that are refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ways = {
            "not contiguous": x.T.contiguous().T, "negative bit": torch._neg_view(-x),
            "requires grad": x.clone().requires_grad_(), "parameter": nn.Parameter(x.clone()),
        }  # fmt: skip
        wrong = {
            "sparse": x.to_sparse(), "meta": x.to("meta"), "complex": x.to(torch.complex64), "nan": x * math.nan,
            "no rows": x[:0], "no columns": x[:, :0], "no dimensions": x[0, 0], "a text": "x", "nothing": None,
            "an empty tuple": (), "float8": x.to(torch.float8_e5m2), "a set": {1},
            "nested": torch.nested.nested_tensor(list(x)),
        }  # fmt: skip
    name = random.choice([*ways, *wrong])
    return (ways | wrong)[name], name, name in wrong


def said_by_us(error: BaseException) -> bool:
    """Return True if a line of ours raises the error: it is none of torch's, NumPy's or Python's that went through."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename.startswith(SOURCE) and "raise " in (last.line or "")


def tried(call: Call) -> str:
    """Make a call, and return what is wrong with what happens; "" if nothing is."""
    logging.getLogger("dasp").setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _limited(ENOUGH), redirect_stderr(io.StringIO()):  # which bars are drawn on
                found = METHODS[call.method](call.model, **call.arguments)
        except _Endless:
            return f"{call}: no end after {ENOUGH:g} seconds"
        except Exception as error:  # noqa: BLE001 (any of them is looked at)
            if said_by_us(error) and isinstance(error, (ValueError, TypeError, NotImplementedError, RuntimeError)):
                return "" if call.refused or call.wanted is None else f"{call}: refused: {error}"
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{call}: {type(error).__name__} at {last.filename}:{last.lineno}: {error}"
        finally:
            logging.getLogger("dasp").setLevel(logging.NOTSET)
    if call.refused:
        return f"{call}: was answered, and must be refused"
    if call.wanted is None:
        return ""
    if found.shape != call.wanted.shape:
        return f"{call}: wrong shape {tuple(found.shape)}, not {tuple(call.wanted.shape)}"
    error = float((found.double() - call.wanted).abs().max())
    return "" if error <= 1e-3 * (1 + float(call.wanted.abs().max())) else f"{call}: wrong by {error:g}"


class _Endless(BaseException):
    """The time of a call is over."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Stop after so much processor time."""

    def stop(*_: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(seconds: float, seed: int = 0) -> tuple[int, list[str]]:
    """Try calls for some seconds, and return how many there were, and what was found."""
    end, number, findings = time.monotonic() + seconds, 0, []
    for call in calls_of(seed):
        if time.monotonic() >= end:
            break
        number += 1
        if finding := tried(call):
            findings.append(finding)
    return number, findings
