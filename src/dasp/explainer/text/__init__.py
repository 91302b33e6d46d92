"""Texts explained by their tokens, words or sentences."""

from dasp.explainer.text.explainer import TextExplainer

__all__ = ["TextExplainer"]
