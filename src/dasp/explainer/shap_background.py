"""What SHAP's users give for absent features: summaries of data with weights, and maskers, as backgrounds and baselines
of ours, where they say the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dasp.errors import BadInput

__all__ = ["WeightedRows", "given_background"]

_REFUSED = {
    "Partition": "its values are Owen values of a tree of features, and ours Shapley values: give its data as the "
                 "background, or groups of features by feature_mask",
    "Impute": "it draws absent features given those that are there, which is not done here: give rows",
    "Text": "texts are explained by TextExplainer(model, tokenizer)",
}  # fmt: skip


@dataclass(frozen=True)
class WeightedRows:
    """Rows of a background with weights whose sum is 1, as a saved explainer has them."""

    rows: Any
    shares: tuple[float, ...]


def given_background(background: Any, baselines: Any) -> tuple[Any, Any, tuple[float, ...] | None]:
    """Return a background and baselines without anything of SHAP's, and the weights of the background's rows, if they
    have any."""
    if isinstance(background, WeightedRows):
        return background.rows, baselines, background.shares
    kind = type(background)
    if kind.__module__.partition(".")[0] != "shap":
        return background, baselines, None
    if kind.__name__ in ("DenseData", "DenseDataWithIndex"):
        weights = np.asarray(background.weights, dtype=float)
        names = background.group_names
        if weights.shape != (len(background.data),) or not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
            raise BadInput(
                f"the weights of SHAP's {kind.__name__} must be a number for each of its {len(background.data)} rows, "
                "none below 0 and some above"
            )
        return _rows(background.data, names if hasattr(names, "str") else None), baselines, _shares(weights)
    if kind.__name__ == "Independent":
        names = background.feature_names if background.output_dataframe else None
        return _rows(background.data, names), baselines, None
    if kind.__name__ == "Image":
        if isinstance(background.mask_value, str):
            raise BadInput(
                f"the mask_value {background.mask_value!r} of an Image masker depends on the image: give baselines, "
                "such as dasp.players.without(image, 'blur')"
            )
        values = np.asarray(background.mask_value, dtype=np.float32)
        return None, torch.from_numpy(values.reshape(background.input_shape) if values.ndim else values), None
    why = _REFUSED.get(kind.__name__, "give rows as the background, or baselines")
    raise BadInput(f"SHAP's {kind.__name__} is no background here: {why}")


def _shares(weights: np.ndarray) -> tuple[float, ...] | None:
    """The weights with a sum of 1; None if all are the same."""
    if np.allclose(weights, weights[0], atol=0):
        return None
    return tuple((weights / weights.sum()).tolist())


def _rows(data: Any, names: Any) -> Any:
    if names is None:
        return np.asarray(data)
    import pandas as pd  # noqa: PLC0415

    table = pd.DataFrame(data, columns=names)
    return table.infer_objects() if len(table.select_dtypes("object").columns) else table
