"""What people have (models, tables, arrays) explained, as what SHAP's plots take."""

from dasp.explainer.explainer import Explainer
from dasp.explainer.result import Attributed
from dasp.explainer.text import TextExplainer

__all__ = [
    "Attributed",
    "Explainer",
    "TextExplainer",
]
