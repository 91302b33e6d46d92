"""What a model of tokens is given: rows of them, padded to batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Row", "batch_of", "joined"]


class Row(NamedTuple):
    """Tokens, by the names that models have for them."""

    input_ids: tuple[int, ...] = ()
    attention_mask: tuple[int, ...] = ()
    token_type_ids: tuple[int, ...] = ()  # none where the tokenizer gives none
    position_ids: tuple[int, ...] = ()  # none where the model counts by place

    @property
    def tokens(self) -> int:
        """How many there are."""
        return len(self.input_ids)


def joined(rows: Iterable[Row]) -> Row:
    """One behind the other.

    >>> joined([Row((1, 2), (1, 1)), Row((3,), (0,))])
    Row(input_ids=(1, 2, 3), attention_mask=(1, 1, 0), token_type_ids=(), position_ids=())
    """
    columns = zip(*rows, strict=True)
    return Row(*(tuple(chain.from_iterable(column)) for column in columns))


def batch_of(rows: Sequence[Row], padding: Row) -> dict[str, Tensor]:
    """Rows as tensors, with `padding` (one token) behind the shorter ones.

    >>> batch_of([Row((1, 2), (1, 1)), Row((3,), (1,))], Row((0,), (0,)))["attention_mask"]
    tensor([[1, 1],
            [1, 0]])
    """
    longest = max(row.tokens for row in rows)
    return {
        name: torch.tensor([column + filler * (longest - len(column)) for column in columns])
        for name, columns, filler in zip(Row._fields, zip(*rows, strict=True), padding, strict=True)
        if any(columns)
    }
