"""A pytest plugin that puts our `Explainer` in the place of shap's explainers.

The classes here have shap's constructors and `shap_values`, and leave everything else to `Explainer`. Tests of plots
get explanations of ours from their fixture `explainer`, on made-up rows, as shap's needs a data set from the network.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dasp import Explainer

__all__ = ["pytest_configure", "pytest_plugin_registered"]


def _rows(data: Any) -> Any:
    """Return the rows of a background, in any of shap's forms, as an array."""
    if isinstance(data, pd.DataFrame):
        return data.to_numpy(dtype=float)
    if hasattr(data, "data") and hasattr(data, "weights"):  # of shap.kmeans, and what shap makes of arrays
        counts = np.maximum(1, np.round(data.weights / data.weights.max() * 10)).astype(int)
        return np.repeat(np.asarray(data.data, dtype=float), counts, axis=0)
    if hasattr(data, "toarray"):
        return data.toarray().astype(float)
    inside = getattr(data, "data", None)  # of a masker
    return np.asarray(inside if isinstance(inside, np.ndarray) and not isinstance(data, np.ndarray) else data, float)


class _Tabular:
    """An explainer of a function of arrays or data frames, as shap's are made and called."""

    method = "auto"
    data_feature_names: list[str]

    def __init__(
        self, model: Any, masker: Any = None, data: Any = None, nsamples: int | None = None, link: Any = "identity",
        feature_names: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        data = masker if data is None else data
        self.columns = data.columns if isinstance(data, pd.DataFrame) else None
        self.given, self.data = model, _rows(data)
        self.logit = link == "logit" or getattr(link, "__name__", "") == "logit"
        names = list(map(str, self.columns)) if self.columns is not None else feature_names
        numbers: dict[str, Any] = {} if nsamples is None or self.method == "exact" else {"max_evaluations": nsamples}
        self.explainer = Explainer(self._evaluated, self.data, feature_names=names, method=self.method, **numbers)
        self.expected_value = self.explainer(self.data[:1]).base_values[0]

    def _evaluated(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.double().numpy()
        found = self.given(rows if self.columns is None else pd.DataFrame(rows, columns=self.columns))
        result = torch.from_numpy(np.array(found, dtype=float).reshape(len(rows), -1))
        result = torch.logit(result) if self.logit else result
        return result[:, 0] if np.ndim(found) == 1 else result

    def __call__(self, rows: Any, **_: Any) -> Any:
        """Return the explanation."""
        return self.explainer(rows if isinstance(rows, pd.DataFrame) else _rows(rows))

    def shap_values(self, rows: Any, **_: Any) -> Any:
        """Return the values, without a dimension for rows if there is one row without."""
        one = np.ndim(rows) == 1
        values = self(_rows(rows)[None] if one else rows).values
        return values[0] if one else values

    def explain(self, row: Any, **_: Any) -> Any:
        """Return the values of one row."""
        return self.shap_values(row)[0]


class KernelExplainer(_Tabular):
    """`BayesianShapley` in the place of the regression."""

    method = "bayesian"


class SamplingExplainer(_Tabular):
    """`PermutationShapley` in the place of sampled permutations."""

    method = "permutation"


class PermutationExplainer(_Tabular):
    """`PermutationShapley` in the place of permutations."""

    method = "permutation"


class ExactExplainer(_Tabular):
    """`ExactShapley` in the place of exact values."""

    method = "exact"


class DeepExplainer:
    """`DeepLiftRevealCancel` in the place of DeepLIFT with a background."""

    def __init__(self, model: Any, data: Any, **_: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            raise TypeError("a torch.nn.Module is needed")
        background = tuple(data) if isinstance(data, list) else data
        self.explainer = Explainer(model.eval(), background, method="deeplift_revealcancel")
        first = tuple(x[:1] for x in background) if isinstance(background, tuple) else background[:1]
        self.expected_value = np.atleast_1d(self.explainer.attribute(first).base[0].detach().numpy())

    def __call__(self, rows: Any, **_: Any) -> Any:
        """Return the explanation."""
        return self.explainer(tuple(rows) if isinstance(rows, list) else rows)

    def shap_values(self, rows: Any, **_: Any) -> Any:
        """Return the values, with the outputs as the last dimension, for each input if there are several."""
        found = self.explainer.attribute(tuple(rows) if isinstance(rows, list) else rows)
        tensors = found.values if isinstance(found.values, tuple) else (found.values,)
        inputs = rows if isinstance(rows, list) else [rows]
        parts = [np.moveaxis(v.detach().numpy(), 1, -1) if v.dim() > x.dim() else v.detach().numpy()[..., None]
                 for v, x in zip(tensors, inputs, strict=True)]  # fmt: skip
        return parts if isinstance(rows, list) else parts[0]


_CLASSES = (KernelExplainer, SamplingExplainer, PermutationExplainer, ExactExplainer, DeepExplainer)


def pytest_configure() -> None:
    """Put our classes where tests look for the library's."""
    library = import_module("shap")
    for ours in _CLASSES:
        setattr(library.explainers, ours.__name__, ours)
        setattr(library, ours.__name__, ours)


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin: Any) -> None:
    """Give tests of plots an explainer of ours, before the fixtures of their conftest are read."""
    if str(getattr(plugin, "__file__", "")).endswith("plots/conftest.py"):
        plugin.explainer = pytest.fixture(name="explainer")(_explainer)


def _explainer() -> _Tabular:
    generator = np.random.default_rng(0)
    names = ["Age", "Workclass", "Education-Num", "Marital Status", "Occupation", "Relationship", "Race", "Sex",
             "Capital Gain", "Capital Loss", "Hours per week", "Country"]  # fmt: skip
    rows = pd.DataFrame(generator.integers(0, 9, (100, len(names))).astype(float), columns=names)
    weights = generator.normal(size=(len(names), 3))

    def model(x: Any) -> Any:
        hidden = np.maximum(np.asarray(x) @ weights, 0)
        return hidden.sum(1) - hidden[:, 0] * hidden[:, 1] / 50

    made = KernelExplainer(model, rows.iloc[:10])
    made.data, made.data_feature_names = rows.to_numpy(), list(names)
    return made
