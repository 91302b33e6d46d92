"""Operations that trust their callers with the shapes of weights, and would read beyond these, with a check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["checked"]


def checked(op: torch._ops.OpOverload) -> Callable[..., Any]:
    """What to call for an operation: itself, unless it needs a check."""
    return _CHECKED.get(op, op)


def _recurrent(
    op: Callable[..., Any], gates: int, input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool,  # noqa: A002
    num_layers: int, *further: Any,
) -> Any:  # fmt: skip
    """An LSTM, GRU or plain recurrent network; `further` are dropout, train, bidirectional and batch_first."""
    states = [hx] if isinstance(hx, Tensor) else list(hx)
    directions = 2 if further[2] else 1
    hidden, size = states[0].shape[-1], input.shape[-1]
    wanted: list[tuple[int, ...]] = []
    for layer in range(num_layers):
        inputs = size if layer == 0 else directions * hidden
        own = [(gates * hidden, inputs), (gates * hidden, hidden)] + [(gates * hidden,)] * (2 if has_biases else 0)
        wanted += own * directions
    fits = [tuple(x.shape) for x in params] == wanted and input.dim() == 3
    if not fits or any((x.dim(), x.shape[0], x.shape[-1]) != (3, num_layers * directions, hidden) for x in states):
        raise ValueError("the weights or states of a recurrent layer have shapes that do not fit together")
    return op(input, hx, params, has_biases, num_layers, *further)


def normalized(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float, eps: float  # noqa: A002
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Batch norm with running statistics, by the operation that checks the numbers of channels."""
    result = torch.batch_norm(input, weight, bias, mean, var, False, momentum, eps, False)
    return result, input.new_zeros(0), input.new_zeros(0)


# By names of this module, as graphs are sent to other processes.


def lstm(*given: Any) -> Any:
    """`aten.lstm.input`."""
    return _recurrent(torch.ops.aten.lstm.input, 4, *given)


def gru(*given: Any) -> Any:
    """`aten.gru.input`."""
    return _recurrent(torch.ops.aten.gru.input, 3, *given)


def rnn_tanh(*given: Any) -> Any:
    """`aten.rnn_tanh.input`."""
    return _recurrent(torch.ops.aten.rnn_tanh.input, 1, *given)


def rnn_relu(*given: Any) -> Any:
    """`aten.rnn_relu.input`."""
    return _recurrent(torch.ops.aten.rnn_relu.input, 1, *given)


_CHECKED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.lstm.input: lstm,
    torch.ops.aten.gru.input: gru,
    torch.ops.aten.rnn_tanh.input: rnn_tanh,
    torch.ops.aten.rnn_relu.input: rnn_relu,
    torch.ops.aten._native_batch_norm_legit_no_training.default: normalized,
}
