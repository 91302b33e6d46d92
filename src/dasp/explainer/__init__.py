"""Explainers that take what people have (models, tables, arrays, texts) and give what SHAP's plots take."""

from dasp.explainer.explainer import Explainer
from dasp.explainer.explanation import Attributions
from dasp.explainer.game_explainer import explain_game
from dasp.explainer.prompt_explainer import explain_prompt
from dasp.explainer.text import TextExplainer

__all__ = [
    "Attributions",
    "Explainer",
    "TextExplainer",
    "explain_game",
    "explain_prompt",
]
