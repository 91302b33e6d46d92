"""`TextExplainer` explains texts by their tokens, words or sentences."""

from dasp.explainer.text.text_explainer import TextExplainer

__all__ = ["TextExplainer"]
