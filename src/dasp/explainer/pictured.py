"""A `shap.Explanation` that notebooks show as a picture. To SHAP's plots it is one of SHAP's."""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own, about other libraries
    import shap

from dasp.explainer.result import picture_of

__all__ = ["Explanation"]


class Explanation(shap.Explanation):  # type: ignore[misc]
    """What `dasp.Explainer` returns; its rows, columns and outputs are of this class, too."""

    def __copy__(self) -> Any:
        copied = super().__copy__()
        copied.__class__ = type(self)  # SHAP makes one of its own
        return copied

    def _repr_html_(self) -> str | None:
        return picture_of(self)
