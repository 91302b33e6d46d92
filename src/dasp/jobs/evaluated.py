"""Models that can be evaluated, and nothing else: there is no graph of operations to propagate moments through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explainer.rows import input_dtype
from dasp.methods.registry import SHORT_NAMES, find

__all__ = ["Evaluated", "Script"]

_EVALUATING = ("exact_shapley", "bayesian_shapley", "permutation_shapley")


class Evaluated(nn.Module):
    """A function of tensors as a module with the files that it needs; an `Explainer` is given the function.

    `made` makes the function for a number of threads; its `dtype` is that of its input.
    """

    def __init__(self, made: Callable[[int], Any], files: list[Path] | None = None) -> None:
        super().__init__()
        self._made, self._threads = made, torch.get_num_threads()
        self.function = made(self._threads)
        self.files = files or []
        self.module = getattr(self.function, "script", None)  # whose parameters are this one's, too

    def forward(self, x: Tensor) -> Tensor:
        """The output for rows."""
        return self.function(x)

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads from now on."""
        if threads != self._threads:
            self.function, self._threads = self._made(threads), threads

    @property
    def dtype(self) -> str:
        """The dtype of its input, by NumPy's name; whole numbers are int64 until they are given to it."""
        dtype = self.function.dtype
        return str(dtype).removeprefix("torch.") if dtype.is_floating_point else "int64"

    @staticmethod
    def check_method(model: str, method: str) -> None:
        """Refuse a method that needs more than evaluations."""
        if method != "auto" and find(method) not in _EVALUATING:
            short = ", ".join(name for name, full in SHORT_NAMES.items() if full in _EVALUATING)
            raise BadInput(
                f"{model} can be evaluated, but has no graph that --method {method} could go through: give auto or "
                f"{short}, or save the model with torch.export.save"
            )


class Script:
    """A script of torch.jit as a function of tensors."""

    def __init__(self, script: nn.Module) -> None:
        self.script, self.dtype = script, input_dtype(script)

    def __call__(self, x: Tensor) -> Any:
        """The output for rows."""
        return self.script(x)
