"""What a model does, counted."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dasp.games.counting import Count


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)).eval()


@torch.no_grad()
def test_operations_are_counted_by_row_as_torch_counts_them():
    model, x = small(), torch.rand(2, 1, 8, 8)
    count = Count.of(lambda: model(x), rows=2)
    with FlopCounterMode(display=False) as flops:
        model(x[:1])
    assert count.flops == flops.get_total_flops() > 0
    assert count.nonlinear == 4 * (4 * 36 + 4 * 9 + 8 * 9)  # ReLU; the pool, and where its maxima are (as int64)
    assert count.depth == 2
    assert count.seen


@torch.no_grad()
def test_the_batch_shares_its_calls():
    model, x = small(), torch.rand(2, 1, 8, 8)
    one, many = (Count.of(lambda: model(x), rows=2, at_once=rows) for rows in (1, 1000))
    assert one.calls == many.calls
    assert one.evaluation > 10 * many.evaluation


@torch.no_grad()
def test_recurrent_layers_and_attention_are_seen():
    lstm = nn.LSTM(3, 5, batch_first=True).eval()
    weights = 4 * 5 * (3 + 5)
    assert Count.of(lambda: lstm(torch.rand(2, 7, 3)), rows=2).flops == 2 * 7 * weights
    q = torch.rand(1, 2, 6, 4)
    attended = Count.of(lambda: nn.functional.scaled_dot_product_attention(q, q, q))
    assert attended.flops == 2 * 2 * (2 * 6 * 6 * 4)
    assert attended.depth == 1


def test_costs_grow_with_what_is_asked():
    with torch.no_grad():
        count = Count.of(lambda: small()(torch.rand(1, 1, 8, 8)))
    assert count.evaluation < count.gradient() < count.gradient(10)
    assert count.gradient() < count.propagated(0) < count.propagated(25) < count.propagated(25, outputs=10)


def test_a_model_without_torch_is_not_taken_for_free():
    count = Count.of(lambda: np.ones(3).sum())
    assert not count.seen
    assert count.evaluation > 1e-4
