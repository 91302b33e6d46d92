"""Attributions as a `shap.Explanation`, in SHAP's conventions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dasp.rows import Rows

__all__ = ["explanation"]


def explanation(
    result: Any,
    rows: Rows,
    feature_mask: Tensor | None,
    feature_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
) -> Any:
    """A `shap.Explanation` of attributions."""
    try:
        import shap  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("a shap.Explanation needs shap: pip install 'torch-dasp[plots]'") from error
    outputs = result.prediction.dim() - 1
    values = result.values.flatten(1, outputs).movedim(1, -1) if outputs else result.values
    std = None if result.std is None else result.std.flatten(1, outputs).movedim(1, -1) if outputs else result.std
    base = result.base.flatten(1) if outputs else result.base
    return shap.Explanation(
        values.cpu().numpy(), base.cpu().numpy(), rows.tensor.cpu().numpy(), feature_names=feature_names,
        output_names=output_names if outputs else None, error_std=None if std is None else std.cpu().numpy(),
    )  # fmt: skip
