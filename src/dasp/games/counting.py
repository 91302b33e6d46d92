"""The cost of a model, counted in operations and bytes: the same on every machine and in every load.

A choice by the clock is another one every time, and a poor one on a busy machine. So one evaluation of the model is
watched while it runs, and what it does is counted: multiplications and additions of matrix products and convolutions
(by torch's own counter), the bytes that all of its operations write, how many operations there are, and how many of
them are nonlinear. A `Count` turns that into the seconds that a processor core of our days would roughly take:

    seconds = flops/100·10⁹ + bytes/10·10⁹ + 5·10⁻⁶ for each call

Whether these are right does not matter much: choices go by ratios of them, between methods on the same model.

**Propagation** (see `GradientDASP`) carries a mean, a variance and some columns through the same operations, forward
and backward. Its nonlinear functions take more than that: dozens of passes over the numbers of a layer, forward and
backward (`moments`). Both were fitted to what a node took on networks of many kinds, at real size.

A model that does none of its work by torch's operations (a forest, an ONNX session, an endpoint) cannot be counted: it
is taken to need a millisecond for a row.

**Threads.** torch divides every operation among its threads, and the quickest of them waits for the slowest, spinning.
That pays if operations are large and cores are idle, and else costs more than it brings, in processor time as well. On
two cores that other processes used as well, two threads took so many times as long as one:

    small network, 2,048 rows at once     0.09 ms an operation     185
    LeNet, 512 rows                       0.7                        7
    BERT-base, 1 row of 64 tokens         0.8                        3.4
    ResNet-18, 4 and 8 rows               1.8 and 3.6               11 and 3

So there is one thread, unless an operation takes 2 ms on average (`Count.operation`) and there are idle cores
(`suited_threads`); and never more than torch was told to have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dasp.games.request import Request

__all__ = ["GRADIENT", "Count", "Threads", "idle_cores", "suited_threads"]

GRADIENT = 3  # evaluations: forward once, and backward

aten = torch.ops.aten

_FLOPS, _BYTES, _CALL = 100e9, 10e9, 5e-6  # in a second; seconds
_WORTH_THREADS = 2e-3  # seconds of an operation
_UNSEEN = 1e-3  # seconds for a row of a model that does not use torch
_CHANNELS_LAST = 1.3  # times as quick: convolutions of images that have their channels last in memory
_NONLINEAR_PASSES = 90  # over the bytes of a nonlinear function, of a propagated pass forward and backward
_A_NODE_TRACED = 0.01  # seconds for each operation, once for a model
_LINEAR = {"add", "sub", "rsub", "neg", "mul", "div", "clone", "fill", "zero", "copy", "where", "masked_fill"}
_NONLINEAR = {"_prelu_kernel", "_softmax", "_log_softmax", "max_pool2d_with_indices", "hardswish", "mkldnn_rnn_layer",
              "_scaled_dot_product_flash_attention_for_cpu"}  # fmt: skip


@dataclass(frozen=True)
class Count:
    """What one evaluation of a model does, for one row."""

    flops: float  # multiplications and additions of matrix products and convolutions
    written: float  # bytes
    nonlinear: float  # bytes of these that nonlinear functions write
    calls: int  # operations
    at_once: int  # rows that share them
    depth: int  # nonlinear functions
    seen: bool = True  # False if nothing was seen of it
    quicker: float = 1.0  # by the layout of images, which propagated passes do not have

    @staticmethod
    def of(evaluation: Callable[[], Any], rows: int = 1, at_once: int = 1, batches: int = 1) -> Count:
        """Count an evaluation of some rows in some batches, which is run once; later on, so many rows are evaluated
        `at_once`.

        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1)).eval()
        >>> count = Count.of(lambda: model(torch.ones(2, 3)), rows=2)
        >>> count.flops, count.nonlinear, count.depth
        (32.0, 16.0, 1)
        """
        try:
            with _Watch() as watch:
                evaluation()
        except NotImplementedError:  # an operator that cannot be watched, like `torch.cond`
            evaluation()
            return Count(0.0, 0.0, 0.0, 0, at_once, 0, seen=False)
        return Count(
            watch.flops / rows, watch.written / rows, watch.nonlinear / rows, watch.calls // batches, at_once,
            watch.depth // batches, seen=watch.flops > 0 or watch.nonlinear > 0,
        )  # fmt: skip

    @staticmethod
    def of_request(request: Request, batch_size: int | None) -> Count:
        """Count an evaluation of two coalitions of the first row, beside one baseline."""
        first = request.rows_of(slice(0, 1))
        (game,), (select,) = first.games, first.selections
        both = torch.stack([torch.ones(game.count), torch.zeros(game.count)]).bool().to(game.device)
        own = replace(game, baselines=game.baselines[:1], shares=None)
        size = batch_size or game.rows_at_once
        parts = both.split(1 if size == 1 else 2)

        @torch.no_grad()
        def evaluate() -> None:
            for part in parts:
                select(own.evaluate(first.function, part[:, None], size))

        count = Count.of(evaluate, rows=2, at_once=size, batches=len(parts))
        return replace(count, quicker=_CHANNELS_LAST) if game.channels_last else count

    @property
    def evaluation(self) -> float:
        """Seconds for a row."""
        if not self.seen:
            return _UNSEEN
        return self._evaluation / self.quicker

    @property
    def _evaluation(self) -> float:
        """In the usual layout."""
        return self.flops / _FLOPS + self.written / _BYTES + self.calls * _CALL / self.at_once

    @property
    def operation(self) -> float:
        """Seconds for an operation, of as many rows as are evaluated at once."""
        return self.evaluation * self.at_once / max(1, self.calls)

    def gradient(self, outputs: int = 1) -> float:
        """Seconds for a pass forward and a pass backward for each output."""
        return self.evaluation * (1 + (GRADIENT - 1) * outputs)

    def propagated(self, columns: int, outputs: int = 1) -> float:
        """Seconds for a propagated pass forward, and backward for each output, with columns of factors."""
        linear = (2 + columns) * self.quicker * self.gradient(outputs)
        return linear + (1 + outputs) / 2 * _NONLINEAR_PASSES * self.nonlinear / _BYTES

    @property
    def tracing(self) -> float:
        """Seconds to trace the model, once."""
        return _A_NODE_TRACED * self.calls


@dataclass(frozen=True)
class Threads:
    """A number of torch's threads, and the reason for it."""

    number: int
    reason: str

    def __str__(self) -> str:
        return f"{self.number} ({self.reason})"


def suited_threads(most: int, request: Request, counted: Callable[[], Count]) -> Threads:
    """Return how many threads suit a model, of `most`; `counted` tells what the model does, where that matters."""
    if most == 1:
        return Threads(1, "torch has no more")
    if request.games[0].device.type != "cpu":
        return Threads(1, "the model is computed elsewhere")
    count = counted()
    if not count.seen or count.operation < _WORTH_THREADS:
        return Threads(1, "the model's operations are small")
    number = min(most, idle_cores())
    return Threads(number, "the model's operations are large" if number == most else "other processes use the cores")


def idle_cores() -> int:
    """Return the number of cores that no other process computes on, but at least 1; of all, if the system is silent."""
    cores = os.cpu_count() or 1
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])  # this one, too
    except (OSError, ValueError, IndexError):  # not on Linux
        return cores
    return max(1, cores - max(0, running - 1))


class _Watch(TorchDispatchMode):
    """Counts calls, bytes and nonlinear functions."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.written = self.nonlinear = self.calls = self.depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count it."""
        result = func(*args, **(kwargs or {}))
        if func.is_view:
            return result
        if formula := _FORMULAS.get(func.overloadpacket):
            self.flops += formula(*args, **(kwargs or {}), out_val=result)
        written = sum(x.numel() * x.element_size() for x in _pytree.tree_leaves(result) if isinstance(x, Tensor))
        self.calls += 1
        self.written += written
        if _is_nonlinear(func, args):
            self.depth += 1
            self.nonlinear += written
        return result


def _is_nonlinear(func: Any, args: Any) -> bool:
    """True for functions of one tensor, entry by entry, that are not linear, and the like."""
    name = func.overloadpacket.__name__.rstrip("_")
    if name.lstrip("_") in {each.lstrip("_") for each in _NONLINEAR}:
        return True
    tensors = sum(isinstance(x, Tensor) for x in args)
    return torch.Tag.pointwise in func.tags and tensors == 1 and name not in _LINEAR


def _recurrent(inputs: Tensor, first: Tensor, second: Tensor, *_: Any, **__: Any) -> int:
    """An LSTM's layer: every weight once for each step and row."""
    return 2 * inputs.shape[:-1].numel() * (first.numel() + second.numel())


def _attention(queries: Tensor, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> int:
    """Queries by keys, and weights by values."""
    return 2 * queries.numel() * keys.shape[-2] + 2 * queries.shape[:-1].numel() * values.shape[-2:].numel()


_FORMULAS = {
    **flop_registry,
    aten.mkldnn_rnn_layer: _recurrent,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
}
