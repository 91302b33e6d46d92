"""Texts with the values of their pieces as a `shap.Explanation`, which `shap.plots.text` takes.

A text has as many values as pieces, so those of several texts are ragged: arrays of arrays, as SHAP's own are. Pieces
that are no players have the value 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from dasp.explainer.result import Attributed
from dasp.explainer.shap_format import explanation_type

__all__ = ["TextAttributed", "explanation_of_texts"]


@dataclass(frozen=True)
class TextAttributed:
    """A text's pieces, which of them are players, and what was found of these."""

    pieces: list[str]
    players: list[int]
    found: Attributed  # one row

    def spread(self, part: Tensor) -> np.ndarray:
        """The players' values (1, *outputs, players) as those of all pieces, (pieces, *outputs)."""
        own = np.moveaxis(part[0].cpu().double().numpy(), -1, 0)
        whole = np.zeros((len(self.pieces), *own.shape[1:]))
        whole[self.players] = own
        return whole


def explanation_of_texts(texts: Sequence[TextAttributed], output_names: Sequence[str] | str | None) -> Any:
    """The texts explained; `output_names` are those of all outputs, or of the one that is explained."""
    return explanation_type()(
        _packed([text.spread(text.found.values) for text in texts]),
        np.stack([text.found.base[0].cpu().double().numpy() for text in texts]),
        _packed([np.array(text.pieces, dtype=object) for text in texts]),
        error_std=_packed([text.spread(text.found.std) for text in texts if text.found.std is not None]),
        output_names=output_names if output_names is None or isinstance(output_names, str) else list(output_names),
    )


def _packed(arrays: list[np.ndarray]) -> np.ndarray | None:
    """One array if all are of one length, else an array of arrays; None if there are none."""
    if not arrays:
        return None
    if len({len(array) for array in arrays}) == 1:
        return np.stack(arrays)
    ragged = np.empty(len(arrays), dtype=object)
    ragged[:] = arrays
    return ragged
