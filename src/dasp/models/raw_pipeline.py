"""Pipelines of scikit-learn from files, as functions of the columns of a table.

In a job, rows are numbers. Of a column with texts they are the places of its labels in a list that data, baselines and
background have together. The pipeline is given a table again, with the labels in their columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput, line_of
from dasp.models.wrappers import BlackBox, MultilayerPerceptron, encoder_and_network, in_fitted_order

__all__ = ["RawPipeline", "raw_pipeline"]


class _TableFunction:
    """A fitted pipeline as a function of tensors; a classifier gives its logits, or probabilities if it has none."""

    dtype = torch.float64

    def __init__(self, fitted: Any, encoder: Any, network: nn.Module | None) -> None:
        self.fitted, self.encoder, self.script = fitted, encoder, network
        self.names: tuple[str, ...] | None = None
        self.labels: Mapping[str, Sequence[str]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for rows."""
        table = self._table(x.detach().cpu().double().numpy())
        try:
            if self.script is not None:
                made = self.encoder.transform(table)
                numbers = torch.from_numpy(
                    np.asarray(made.toarray() if hasattr(made, "toarray") else made, dtype=float)
                )
                return self.script(numbers.to(x.device))
            predicted = getattr(self.fitted, "predict_proba", self.fitted.predict)(table)
        except Exception as error:
            raise BadInput(f"the pipeline cannot take the rows: {line_of(error)}") from error
        return torch.from_numpy(np.asarray(predicted, dtype=float)).to(x.device)

    def _table(self, rows: np.ndarray) -> Any:
        if self.names is None:
            return rows
        import pandas as pd  # noqa: PLC0415 (an extra)

        columns: dict[str, Any] = {}
        for name, column in zip(self.names, rows.T, strict=True):
            labels = self.labels.get(name)
            columns[name] = column if labels is None else np.array(labels, dtype=object)[column.astype(np.int64)]
        return pd.DataFrame(columns)


class RawPipeline(BlackBox):
    """A fitted pipeline whose first steps encode the raw columns of a table."""

    def __init__(self, fitted: Any) -> None:
        encoder, last = encoder_and_network(fitted)
        network = None if encoder is None else MultilayerPerceptron(last)
        function = _TableFunction(fitted, encoder, network)
        super().__init__(lambda _: function)
        names = getattr(fitted, "feature_names_in_", None)
        self.feature_names = None if names is None else [str(name) for name in names]
        self.eval()

    def in_order(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a table in the order that the pipeline was fitted with, if it was fitted with names."""
        return in_fitted_order(self.feature_names, columns)

    def know(self, names: Sequence[str] | None, labels: Mapping[str, Sequence[str]]) -> None:
        """Take rows with columns of these names, of which some have labels, from now on."""
        self.function.names = None if names is None else tuple(names)
        self.function.labels = labels


def raw_pipeline(model: Any) -> Any:
    """Return a fitted pipeline that is more than scalers and a network as a `RawPipeline`, and any other model as it
    is."""
    if type(model).__name__ != "Pipeline" or type(model).__module__.partition(".")[0] != "sklearn":
        return model
    ends_in_network = type(model.steps[-1][1]).__name__.startswith("MLP")
    if (encoder_and_network(model)[0] is None and ends_in_network) or not hasattr(model, "predict"):
        return model
    return RawPipeline(model)
