"""A pytest plugin that puts our estimators in the place of Captum's.

`PermutationShapley`, `ExactShapley` and `BayesianShapley` stand for its sampling, its exact values and its regression
as they are. Its gradient methods and DeepLIFT have other options, which the classes here translate as the page "Coming
from Captum" does; their values are the same where a model is linear, or one input after the other decides.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dasp import (
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    GradientDASP,
    GradientShapley,
    PermutationShapley,
)

__all__ = ["pytest_collection_finish", "pytest_configure"]


class IntegratedGradients(GradientDASP):
    """`GradientDASP`, with the options of Captum's class: `n_steps` are nodes, and there is one quadrature."""

    def __init__(self, forward_func: Any, multiply_by_inputs: bool = True) -> None:
        if not multiply_by_inputs:
            raise NotImplementedError("values of players are differences of outputs, not slopes")
        super().__init__(forward_func)

    def attribute(  # type: ignore[override]
        self, inputs: Any, baselines: Any = None, target: Any = None, additional_forward_args: Any = None,
        n_steps: int = 50, method: str = "gausslegendre", internal_batch_size: int | None = None,
        return_convergence_delta: bool = False,
    ) -> Any:  # fmt: skip
        """Return what `GradientDASP` does."""
        return GradientDASP.attribute(
            self, inputs, baselines, target, additional_forward_args, nodes=None if n_steps == 50 else n_steps,
            internal_batch_size=internal_batch_size, return_convergence_delta=return_convergence_delta,
        )  # fmt: skip


class GradientShap(GradientShapley):
    """`GradientShapley`, with the options of Captum's class."""

    def __init__(self, forward_func: Any, multiply_by_inputs: bool = True) -> None:
        if not multiply_by_inputs:
            raise NotImplementedError("values of players are differences of outputs, not slopes")
        super().__init__(forward_func)

    def attribute(  # type: ignore[override]
        self, inputs: Any, baselines: Any, n_samples: int = 5, stdevs: Any = 0.0, target: Any = None,
        additional_forward_args: Any = None, return_convergence_delta: bool = False,
    ) -> Any:  # fmt: skip
        """Return what `GradientShapley` does."""
        return GradientShapley.attribute(
            self, inputs, baselines, target, additional_forward_args, n_samples=n_samples,
            return_convergence_delta=return_convergence_delta,
        )  # fmt: skip


class DeepLift(DeepLiftRevealCancel):
    """`DeepLiftRevealCancel` with the rule that Captum's class has."""

    def __init__(self, model: Any, multiply_by_inputs: bool = True, eps: float = 1e-10) -> None:
        if not multiply_by_inputs:
            raise NotImplementedError("values of players are differences of outputs, not slopes")
        super().__init__(model, rule="rescale")


_PLACES: dict[str, dict[str, Any]] = {
    "captum.attr._core.shapley_value": {"ShapleyValueSampling": PermutationShapley, "ShapleyValues": ExactShapley},
    "captum.attr._core.kernel_shap": {"KernelShap": BayesianShapley},
    "captum.attr._core.integrated_gradients": {"IntegratedGradients": IntegratedGradients},
    "captum.attr._core.gradient_shap": {"GradientShap": GradientShap},
    "captum.attr._core.deep_lift": {"DeepLift": DeepLift},
}


_OWN: list[tuple[Any, str, Any]] = []  # what the library has there


def pytest_configure() -> None:
    """Put our classes where test files import the library's from."""
    library = import_module("captum.attr")
    for module, classes in _PLACES.items():
        for name, ours in classes.items():
            for place in (import_module(module), library):
                _OWN.append((place, name, getattr(place, name)))
                setattr(place, name, ours)


def pytest_collection_finish() -> None:
    """Give the library its own classes back, which derive from each other, once all test files are imported."""
    for place, name, own in _OWN:
        setattr(place, name, own)
