"""A pytest plugin that puts our approximator in the place of shapiq's, of Shapley values and interactions."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["pytest_collection_finish", "pytest_configure"]

_METHODS = {
    "KernelSHAP": "bayesian", "UnbiasedKernelSHAP": "bayesian", "PermutationSamplingSV": "permutation",
    "StratifiedSamplingSV": "bayesian", "SVARM": "bayesian", "KernelSHAPIQ": "bayesian", "SHAPIQ": "bayesian",
    "PermutationSamplingSII": "bayesian",
}  # fmt: skip
_PLACES = ("", ".regression", ".permutation", ".marginals", ".montecarlo")
_OWN: list[tuple[Any, str, Any]] = []


def _approximator(name: str, method: str) -> type:
    from dasp.explainer.shapiq_adapter import ShapiqApproximator  # type: ignore[import-not-found, unused-ignore]

    pairs = name in {"KernelSHAPIQ", "SHAPIQ", "PermutationSamplingSII"}

    class Ours(ShapiqApproximator):  # type: ignore[misc, unused-ignore]
        """An estimator of ours with the defaults of shapiq's class."""

        def __init__(self, n: int, max_order: int = 2 if pairs else 1, index: str = "k-SII" if pairs else "SV",
                     **options: Any) -> None:  # fmt: skip
            super().__init__(n, max_order, index, method=method, **options)

    Ours.__name__ = Ours.__qualname__ = name
    return Ours


def pytest_configure() -> None:
    """Put our class where test files import the library's from."""
    for name, method in _METHODS.items():
        ours = _approximator(name, method)
        for suffix in _PLACES:
            place = import_module(f"shapiq.approximator{suffix}")
            if hasattr(place, name):
                _OWN.append((place, name, getattr(place, name)))
                setattr(place, name, ours)


def pytest_collection_finish() -> None:
    """Give the library its own classes back once all test files are imported."""
    for place, name, own in _OWN:
        setattr(place, name, own)
