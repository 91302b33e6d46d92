"""Training or evaluation: which modules behave differently, and models that are not ready to be explained."""

from __future__ import annotations

from torch import nn

__all__ = ["check_evaluation_mode", "mode_matters"]

_NORMS = (nn.modules.batchnorm._NormBase,)
_DROPOUTS = (nn.modules.dropout._DropoutNd,)


def mode_matters(module: nn.Module) -> bool:
    """Whether a module by itself, without those inside of it, computes something else in training mode.

    >>> [mode_matters(module) for module in (nn.ReLU(), nn.Dropout(0.5), nn.Dropout(0), nn.BatchNorm1d(2))]
    [False, True, False, True]
    """
    if isinstance(module, _DROPOUTS):
        return module.p > 0
    if isinstance(module, _NORMS):
        return module.track_running_stats
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, nn.RReLU):
        return True
    if type(module).__module__.partition(".")[0] == "torch":
        return False
    code = getattr(type(module).forward, "__code__", None)
    return code is None or "training" in code.co_names  # somebody's own module that asks for the mode


def check_evaluation_mode(model: nn.Module) -> None:
    """Refuse a model that would drop units out, or normalise by its batch and learn from it, while it is explained."""
    training = [name or type(model).__name__ for name, module in model.named_modules()
                if module.training and mode_matters(module)]  # fmt: skip
    if training:
        raise ValueError(f"the model is in training mode ({', '.join(training[:3])}): call model.eval() first")
