"""Models of other kinds as `torch.nn.Module`s, ready to be explained.

    converted(model)      a module, an ExportedProgram, a scikit-learn MLP, a Keras model, or any function of tensors

Neither scikit-learn nor Keras is imported: who has such a model has done so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.errors import BadInput
from dasp.explainer.conversion.keras_model import KerasModel
from dasp.explainer.conversion.normalized import normalized
from dasp.explainer.conversion.scikit_learn import MultilayerPerceptron, encoder_and_network
from dasp.propagation.tracing import check_dynamic_batch, checked_model
from dasp.propagation.turns import evaluating

__all__ = ["KerasModel", "MultilayerPerceptron", "converted", "encoder_and_network", "exported_module", "normalized"]


def converted(model: Any) -> nn.Module | Callable[..., Tensor]:
    """The model as a module in evaluation mode; a function of tensors stays what it is.

    >>> converted(nn.Linear(2, 1).eval())
    Linear(in_features=2, out_features=1, bias=True)
    """
    if isinstance(model, ExportedProgram):
        return exported_module(model)
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "sklearn" in libraries:
        return MultilayerPerceptron(model)
    if "keras" in libraries:  # also a module, on the torch backend
        return KerasModel(model)
    if isinstance(model, nn.Module):
        checked_model(model)
        return model
    if callable(model):
        return model
    raise BadInput(
        f"a {type(model).__name__} cannot be explained: a torch.nn.Module, an ExportedProgram, a scikit-learn MLP, a "
        "Keras model or a function of tensors is needed"
    )


def exported_module(program: ExportedProgram) -> fx.GraphModule:
    """The program as a module, without the input checks that torch hooks on, and in evaluation mode: what it was
    exported in stays in its graph."""
    check_dynamic_batch(program)
    with warnings.catch_warnings(), evaluating():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytrees
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    module.graph._tracer_cls = None  # torch's own cannot be made anew when the module is unpickled
    result = fx.GraphModule(module, module.graph)
    for part in result.modules():
        part.training = False
    return result
