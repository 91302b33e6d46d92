"""Attributions as a `shap.Explanation`, in SHAP's conventions.

    values (rows, *features) or, for all outputs, (rows, *features, outputs);  base_values (rows,) or (rows, outputs)

SHAP's plots add values up, so every player has one column: a group of features is one feature, called after its
members, and its data is a text with their numbers, which waterfalls show and swarms draw in grey. Images are plotted
pixel by pixel: there a group's value is spread over its pixels, as SHAP's own explainers of images do. Their channels
come last, where `shap.image_plot` looks for them. All in float64: waterfalls place their labels 1e-8 apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.display import channel_axis
from dasp.errors import BadInput
from dasp.explainer.result import Attributed

__all__ = ["explanation", "explanation_type", "is_image"]

_MOST_MEMBERS = 3  # of a group that are named


def explanation(
    result: Attributed,
    data: np.ndarray,
    feature_mask: Tensor | None,
    feature_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> Any:
    """A `shap.Explanation` of attributions to rows of `data`."""
    outputs = result.prediction[0].numel() if result.prediction.dim() > 1 else 0
    values, std = (_as_features(part, outputs, data) for part in (result.values, result.std))
    if feature_mask is not None and is_image(data.shape):
        values, std = (None if part is None else _spread(part, feature_mask, data) for part in (values, std))
    elif feature_mask is not None:
        groups = _Groups(feature_mask, data)
        values, std = (None if part is None else groups.columns(part) for part in (values, std))
        feature_names = groups.names(feature_names)
        data = groups.data(data)
    assert values is not None
    if (axis := _channels(data.shape)) is not None:
        data, values = np.moveaxis(data, axis, 3), np.moveaxis(values, axis, 3)
        std = None if std is None else np.moveaxis(std, axis, 3)
    return explanation_type()(
        values, result.base.reshape(len(values), *([outputs] if outputs else [])).cpu().double().numpy(), data,
        error_std=std,
        feature_names=_checked(feature_names, values.shape[1] if data.ndim == 2 else None, "feature"),
        output_names=_checked(output_names, outputs, "output") if outputs else None,
    )  # fmt: skip


def explanation_type() -> Any:
    """SHAP's `Explanation`, as notebooks show it."""
    try:
        from dasp.explainer.pictured import Explanation  # noqa: PLC0415 (shap is an extra)
    except ImportError as error:
        raise ImportError("a shap.Explanation needs shap: pip install 'torch-dasp[plots]'") from error
    return Explanation


def _as_features(part: Tensor | None, outputs: int, data: np.ndarray) -> np.ndarray | None:
    """(rows, *outputs, *features) as (rows, *features, outputs)."""
    if part is None:
        return None
    array = part.cpu().double().numpy()
    return np.moveaxis(array.reshape(len(data), outputs, *data.shape[1:]), 1, -1) if outputs else array


def is_image(shape: Sequence[int]) -> bool:
    """Whether rows of this shape are images, by their number of channels."""
    return _channels(shape) is not None


def _channels(shape: Sequence[int]) -> int | None:
    """The axis of the channels of images; None if these are no images."""
    return channel_axis(shape) if len(shape) == 4 else None


def _spread(values: np.ndarray, feature_mask: Tensor, data: np.ndarray) -> np.ndarray:
    """The values of groups divided among their pixels; images may have groups of their own."""
    if feature_mask.dim() < data.ndim or len(feature_mask) == 1:
        return _Groups(feature_mask, data).spread(values)
    rows = zip(values[:, None], feature_mask[:, None], data[:, None], strict=True)
    return np.concatenate([_Groups(mask, row).spread(value) for value, mask, row in rows])


def _checked(names: Sequence[str] | None, number: int | None, what: str) -> list[str] | None:
    if names is None:
        return None
    if number is None:
        raise BadInput(f"{what}_names are for columns, which these rows have not: group their entries by feature_mask")
    if len(names) != number:
        raise BadInput(f"there are {len(names)} {what}_names, but {number} {what}s")
    return [str(name) for name in names]


class _Groups:
    """The players of a `feature_mask`, in the order of their numbers."""

    def __init__(self, feature_mask: Tensor, data: np.ndarray) -> None:
        mask = feature_mask[0] if feature_mask.dim() == data.ndim else feature_mask
        labels, numbers = torch.unique(mask.cpu(), return_inverse=True)
        self.player = np.broadcast_to(numbers.numpy(), data.shape[1:])  # of every entry
        flat = self.player.ravel()
        self.members = [np.flatnonzero(flat == player) for player in range(len(labels))]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """The value of a group divided among its entries."""
        share = np.array([1 / len(entries) for entries in self.members])[self.player].astype(values.dtype)
        return values * share.reshape(share.shape + (1,) * (values.ndim - 1 - share.ndim))

    def columns(self, values: np.ndarray) -> np.ndarray:
        """(rows, *features, …) → (rows, players, …): every entry has the value of its player."""
        flat = values.reshape(len(values), self.player.size, *values.shape[1 + self.player.ndim :])
        return flat[:, [entries[0] for entries in self.members]]

    def data(self, data: np.ndarray) -> np.ndarray:
        """The number of every player that has only one, and a text for the others."""
        flat = data.reshape(len(data), -1)
        if all(len(entries) == 1 for entries in self.members):
            return flat[:, np.concatenate(self.members)]
        result = np.empty((len(data), len(self.members)), dtype=object)
        for place in np.ndindex(*result.shape):
            numbers = flat[place[0], self.members[place[1]]]
            result[place] = numbers[0] if len(numbers) == 1 else _listed([_written(x) for x in numbers], ", ")
        return result

    def names(self, names: Sequence[str] | None) -> list[str]:
        """Made from those of all entries, or given for the players."""
        if names is None:
            return [f"Group {player}" if len(e) > 1 else f"Feature {e[0]}" for player, e in enumerate(self.members)]
        if len(names) == self.player.size:
            return [_listed([str(names[int(i)]) for i in entries], " + ") for entries in self.members]
        return [str(name) for name in names]


def _written(x: Any) -> str:
    return x if isinstance(x, str) else f"{x:.4g}"


def _listed(parts: list[str], between: str) -> str:
    if len(parts) <= _MOST_MEMBERS:
        return between.join(parts)
    return f"{between.join(parts[: _MOST_MEMBERS - 1])}{between}{len(parts) - _MOST_MEMBERS + 1} more"
