"""Keras 3 models on the torch backend, where a model is a module already."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor, nn

from dasp.errors import BadInput

__all__ = ["KerasModel"]


class KerasModel(nn.Module):
    """A Keras model as it predicts. Its outputs are what the model gives: of a model that ends in a softmax they are
    probabilities, through which moments cannot be propagated. To explain logits, take its last activation off:

        model.layers[-1].activation = keras.activations.linear
        Explainer(model, background)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        backend = sys.modules["keras"].backend.backend()
        if backend != "torch":
            raise BadInput(
                f"the Keras model runs on {backend}, and torch is needed: set KERAS_BACKEND=torch before keras is "
                "imported, and load the model anew"
            )
        if not model.built:
            raise BadInput(f"the Keras model {model.name!r} is not built yet: call it on a row, or give it an Input")
        inputs, outputs = (getattr(model, side, None) or [None] for side in ("inputs", "outputs"))
        if len(inputs) != 1 or len(outputs) != 1:
            raise BadInput(
                f"the Keras model {model.name!r} has {len(inputs)} inputs and {len(outputs)} outputs; one "
                "of each can be explained"
            )
        self.model = model
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """The prediction."""
        return self.model(x, training=False)
