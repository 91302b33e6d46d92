"""shap's explainers of PyTorch models and of functions: two solvers of `CoalitionPeer`, two methods with gradients."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from dasp.games.arguments import Arguments, Baselines, Target, games
from dasp.paper.peers.coalition_peer import Worth, chosen_output, row_targets

with warnings.catch_warnings():
    # shap colours its plots as Matplotlib will do no more
    warnings.filterwarnings("ignore", message="The set_.* function will be deprecated")
    import shap

__all__ = ["DeepExplainer", "GradientExplainer", "compiled", "kernel", "permutation"]

_GRADIENTS_AT_ONCE = 256  # the fastest of 50 (shap's own) to 1000 on LeNet with one thread


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """shap draws from NumPy's global generator, which is left as it was."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def kernel(worth: Worth, number: int, seed: int, *, l1_reg: Any = 0) -> np.ndarray:
    """KernelExplainer of v, with 1 for every player that differs from the baseline: the others are skipped. l1_reg=0
    (or False) switches its selection of players off, which by default gives all but ten of them the value 0."""
    with _seeded(seed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # of the lasso's last steps
        explainer = shap.KernelExplainer(worth, np.zeros((1, worth.players)))
        return explainer.shap_values(worth.varying.astype(float), nsamples=number, l1_reg=l1_reg, silent=True)


def permutation(worth: Worth, number: int, seed: int) -> np.ndarray:
    """PermutationExplainer of v, `number` permutations forwards and backwards (more, if there are players to skip)."""
    masker = shap.maskers.Independent(np.zeros((1, worth.players)))
    with _seeded(seed):
        explainer = shap.PermutationExplainer(worth, masker, seed=seed)
        row = worth.varying.astype(float)[None]
        return explainer(row, max_evals=number * (2 * worth.players + 1), silent=True).values[0]


@cache
def compiled() -> None:
    """Have the loops of PermutationExplainer compiled, which takes seconds, before anything is timed."""
    masker = shap.maskers.Independent(np.zeros((1, 2)))
    with _seeded(0):
        shap.PermutationExplainer(lambda rows: rows.sum(1), masker)(np.ones((1, 2)), max_evals=5, silent=True)


class _Chosen(nn.Module):
    """A copy of a model with one output, on which shap may leave hooks, attributes and flags. Also where shap makes
    float32 of everything, the model gets its own dtype."""

    def __init__(self, model: nn.Module, target: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.target, self.dtype = copy.deepcopy(model), target, dtype

    def forward(self, x: Tensor) -> Tensor:
        return chosen_output(self.model(x.to(self.dtype)), self.target)[:, None]


class _Explainer(Attribution):  # type: ignore[misc]
    """An explainer of shap with the baseline as its background, made for each of the targets: it would otherwise
    explain all outputs."""

    def __init__(self, forward_func: nn.Module) -> None:
        super().__init__(forward_func)
        self._models: dict[Any, nn.Module] = {}  # copies, by what is explained

    def _chosen(self, target: Any, dtype: torch.dtype) -> nn.Module:
        if (target, dtype) not in self._models:
            self._models[target, dtype] = _Chosen(self.forward_func, target, dtype)
        return self._models[target, dtype]

    def _attributed(self, inputs: Tensor, baselines: Baselines, target: Target, explain: Any) -> Tensor:
        if not isinstance(inputs, Tensor):
            raise TypeError(f"one input tensor can be explained, not a {type(inputs).__name__}")
        (game,) = games(Arguments(inputs, baselines))
        (x,), (off,) = game.on, game.off
        if bool((off != off[:1]).any()):
            raise ValueError("all rows must have the same baseline: it is the explainer's background")
        goals = row_targets(target, len(x))
        result = torch.zeros_like(x)
        for goal in dict.fromkeys(map(_hashable, goals)):
            rows = [i for i, own in enumerate(goals) if _hashable(own) == goal]
            model = self._chosen(goal, x.dtype)
            values = explain(model, off[:1].clone(), x[rows])
            result[rows] = torch.as_tensor(values[..., 0]).to(result)
        return result


def _hashable(target: Any) -> Any:
    return tuple(target) if isinstance(target, list) else target


class DeepExplainer(_Explainer):
    """DeepLIFT's Rescale rule. Every module must be used once and be of a kind shap knows.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    >>> DeepExplainer(model).attribute(torch.ones(2, 3), target=[0, 1]).shape
    torch.Size([2, 3])
    """

    def attribute(self, inputs: Tensor, baselines: Baselines = None, target: Target = None) -> Tensor:
        """Attributions of entries. That they add up is not checked, which costs an evaluation and fails where outputs
        are large, as the difference allowed is 0.01 of any output."""

        def explain(model: nn.Module, background: Tensor, x: Tensor) -> Any:
            return shap.DeepExplainer(model, background).shap_values(x, check_additivity=False)

        return self._attributed(inputs, baselines, target, explain)


class GradientExplainer(_Explainer):
    """Expected gradients: Integrated Gradients at random places between the baseline and the input.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    >>> GradientExplainer(model).attribute(torch.ones(2, 3), target=[0, 1], nsamples=10).shape
    torch.Size([2, 3])
    """

    def attribute(
        self, inputs: Tensor, baselines: Baselines = None, target: Target = None, nsamples: int = 200, seed: int = 0
    ) -> Tensor:
        """Attributions of entries with `nsamples` gradients."""

        def explain(model: nn.Module, background: Tensor, x: Tensor) -> Any:
            explainer = shap.GradientExplainer(model, background, batch_size=_GRADIENTS_AT_ONCE, local_smoothing=0)
            with _seeded(seed):
                return explainer.shap_values(x, nsamples=nsamples, rseed=seed)

        return self._attributed(inputs, baselines, target, explain)
