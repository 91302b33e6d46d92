"""Recurrent networks whose results have shapes but no numbers, for the time that a model is exported.

Exporting evaluates every operation on tensors without numbers. Torch evaluates recurrent networks step by step then,
which takes seconds for a hundred steps, though all that is asked for are three shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

__all__ = ["of_recurrent_networks"]

aten = torch.ops.aten
_NETWORKS: tuple[Any, ...] = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)


@contextmanager
def of_recurrent_networks() -> Iterator[None]:
    """While a model is exported, which leaves them whole, let them only have shapes."""
    with ExitStack() as stack:
        for op in _NETWORKS:
            stack.enter_context(_shaped(op))
        yield


@contextmanager
def _shaped(op: Any) -> Iterator[None]:
    kernels = dict(op.py_kernels)
    try:
        op.py_kernels.update(dict.fromkeys(kernels, _shapes))
        op._dispatch_cache.clear()
        yield
    finally:
        op.py_kernels.update(kernels)
        op._dispatch_cache.clear()


def _shapes(
    x: Tensor,
    state: Any,
    weights: Any,
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    *first: bool,
) -> tuple[Tensor, ...]:
    """The result of every step, and the last states."""
    states = (state,) if isinstance(state, Tensor) else tuple(state)
    results = x.new_empty((*x.shape[:2], states[0].shape[-1] * (2 if both else 1)))
    return results, *map(torch.empty_like, states)
