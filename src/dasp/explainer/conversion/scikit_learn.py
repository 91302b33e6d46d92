"""scikit-learn's multilayer perceptrons, alone or behind scalers in a pipeline, as the same functions in torch.

A classifier becomes its **logits**: log-odds of the second class for two classes, a logit per class for more, log-odds
of every label for several labels. Probabilities are their sigmoid or softmax, which saturate: all features would share
in that interaction, and a confident prediction would hide what made it so. SHAP explains the log-odds of trees, too.
For probabilities all the same, explain `nn.Sequential(MultilayerPerceptron(fitted), nn.Softmax(1))`, or `nn.Sigmoid()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp.errors import BadInput

__all__ = ["MultilayerPerceptron", "encoder_and_network"]


class Exponential(nn.Module):
    """exp(x), the output of a Poisson regression."""

    def forward(self, x: Tensor) -> Tensor:
        """exp(x)."""
        return x.exp()


class Scaler(nn.Module):
    """(x − shift)·scale, feature by feature."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Any, scale: Any, features: int) -> None:
        super().__init__()
        for name, value, default in (("shift", shift, 0.0), ("scale", scale, 1.0)):
            full = np.full(features, default if value is None else value, dtype=float)
            self.register_buffer(name, torch.from_numpy(full))

    def forward(self, x: Tensor) -> Tensor:
        """(x − shift)·scale."""
        return (x - self.shift) * self.scale


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}

# What a fitted scaler subtracts, and what it then multiplies by; None for nothing.
_SCALERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "StandardScaler": lambda s: (s.mean_ if s.with_mean else None, 1 / s.scale_ if s.with_std else None),
    "MinMaxScaler": lambda s: (-s.min_ / s.scale_, s.scale_),
    "MaxAbsScaler": lambda s: (None, 1 / s.scale_),
    "RobustScaler": lambda s: (s.center_ if s.with_centering else None, 1 / s.scale_ if s.with_scaling else None),
}


class MultilayerPerceptron(nn.Sequential):
    """An `MLPClassifier` or `MLPRegressor`, or a pipeline of scalers and one of them, with its weights in float64.

    >>> from sklearn.neural_network import MLPRegressor
    >>> features = np.random.default_rng(0).normal(size=(20, 3))
    >>> fitted = MLPRegressor(max_iter=5000, random_state=0, tol=1e-3).fit(features, features.sum(1))
    >>> module = MultilayerPerceptron(fitted)
    >>> bool(np.allclose(module(torch.tensor(features)).detach().numpy()[:, 0], fitted.predict(features)))
    True
    """

    def __init__(self, fitted: Any) -> None:
        steps = [step for _, step in fitted.steps] if _kind(fitted) == "Pipeline" else [fitted]
        *before, last = [step for step in steps if step not in (None, "passthrough")]
        if _kind(last) not in {"MLPClassifier", "MLPRegressor"}:
            raise BadInput(
                f"a scikit-learn {_kind(last)} is no network: MLPClassifier and MLPRegressor can be explained, alone "
                "or at the end of a pipeline; for other models give a function of tensors"
            )
        if not hasattr(last, "coefs_"):
            raise BadInput(f"the {_kind(last)} is not fitted yet")
        layers: list[nn.Module] = [_scaler(step, len(last.coefs_[0])) for step in before]
        for i, (weight, bias) in enumerate(zip(last.coefs_, last.intercepts_, strict=True)):
            if i:
                layers.append(_ACTIVATIONS[last.activation]())
            layers.append(_linear(weight, bias))
        if last.out_activation_ == "exp":
            layers.append(Exponential())
        super().__init__(*(layer.double() for layer in layers))
        names, classes = getattr([*before, last][0], "feature_names_in_", None), getattr(last, "classes_", None)
        self.feature_names = None if names is None else [str(name) for name in names]
        self.output_names: list[str] | None = None
        if classes is not None and len(classes) == last.n_outputs_:
            self.output_names = [str(name) for name in classes]
        self.eval()

    def in_order(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The columns of a table as the model was fitted with them, if it was fitted with names."""
        names = self.feature_names or list(columns)
        missing, unknown = ([x for x in a if x not in b] for a, b in ((names, columns), (columns, names)))
        if missing:
            raise BadInput(f"the model was fitted with the column {missing[0]!r}, which is not among the inputs")
        if unknown:
            raise BadInput(f"the model was fitted without the column {unknown[0]!r}: leave it out of the inputs")
        return tuple(names)

    def forward(self, x: Tensor) -> Tensor:
        """The prediction, or logits; of any numbers, as scikit-learn does."""
        return super().forward(x.to(next(self.parameters()).dtype))


def encoder_and_network(model: Any) -> tuple[Any, Any]:
    """A pipeline in two: what comes before its network, and this. Where only scalers come before it, or for any other
    model, there is no encoder: scalers are part of the network."""
    if _kind(model) != "Pipeline" or not _kind(model.steps[-1][1]).startswith("MLP"):
        return None, model
    before = [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    if all(_kind(step) in _SCALERS and not getattr(step, "clip", False) for step in before):
        return None, model
    return model[:-1], model[-1]


def _kind(model: Any) -> str:
    """The class of scikit-learn that a model is of, or derived from."""
    own = (kind for kind in type(model).__mro__ if kind.__module__.partition(".")[0] == "sklearn")
    return next(own, type(model)).__name__


def _scaler(step: Any, features: int) -> Scaler:
    kind = _kind(step)
    if kind not in _SCALERS or getattr(step, "clip", False):
        clips = " that clips" if kind in _SCALERS else ""
        raise BadInput(
            f"the pipeline has a {kind}{clips} before its network; {', '.join(_SCALERS)} are known: transform the rows "
            "first and explain the network alone"
        )
    return Scaler(*_SCALERS[kind](step), features)


def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[0], weight.shape[1], dtype=torch.float64)
    layer.weight = nn.Parameter(torch.tensor(weight.T, dtype=torch.float64))
    layer.bias = nn.Parameter(torch.tensor(bias, dtype=torch.float64))
    return layer
