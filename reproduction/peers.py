"""Today's libraries (shap, Captum, shapiq) as methods: one interface, and what each costs.

    PEERS["shap_kernel_explainer"].on(model, 3000).attribute(x, baselines, target, feature_mask=groups)

Every library has the settings that are best for it, not its defaults where these would be unfair, and every sampler is
seeded (`seed` among a method's options). Costs are evaluations of the model for a row, as in `dasp.methods`.

shap's and shapiq's samplers explain one function of one row. Here they are given the worth v(S) of coalitions S of
players, so that groups of entries are players for them too. v evaluates the model in batches without gradients, as
our methods do, and only for coalitions that the library asks for.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial, wraps
from math import comb
from typing import Any

import numpy as np
import torch
from captum.attr import Attribution
from shapiq.approximator import SVARM, KernelSHAP, PermutationSamplingSV, kADDSHAP
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn

from dasp.methods import GRADIENT, Method
from reproduction.comparison_methods import COMPARISON_METHODS

with warnings.catch_warnings():
    # shap colours its plots as Matplotlib will do no more
    warnings.filterwarnings("ignore", message="The set_.* function will be deprecated")
    import shap

__all__ = ["PEERS", "CoalitionPeer", "DeepExplainer", "GradientExplainer", "RowWorth", "Solver", "kadd_order"]

_MOST_ROWS, _MOST_ENTRIES = 2**14, 2**20  # of a batch
_GRADIENTS_AT_ONCE = 256  # the fastest of 50 (shap's own) to 1000 on LeNet with one thread
_MOST_GRADIENTS = 2000  # where what is left of their error is not that of sampling
_MOST_ORDER_3 = 20  # players
# shapiq warns with nearly as many evaluations as there are coalitions; the values are right all the same.
_EXPECTED = ("Not all budget is required", "Sampling might be inefficient")


@dataclass(frozen=True)
class RowWorth:
    """The worth v(S) of coalitions for one row: the output that is explained, with absent players at the baseline."""

    function: Callable[..., Tensor]
    row: Tensor
    baseline: Tensor  # in the shape of the row
    mask: Tensor  # the player (0 … players − 1) of every entry of the row
    target: Any

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """Evaluate coalitions (m, players), or one coalition, of 0 and 1 or booleans: (m,) in float64."""
        members = torch.from_numpy(np.atleast_2d(coalitions).astype(bool)).to(self.row.device)
        at_once = max(1, min(_MOST_ROWS, _MOST_ENTRIES // self.row.numel()))
        parts = []
        with torch.no_grad():
            for part in members.split(at_once):
                rows = torch.where(part[:, self.mask], self.row, self.baseline)
                parts.append(_selected(self.function(rows), self.target))
        return torch.cat(parts).cpu().double().numpy()

    @property
    def players(self) -> int:
        """The number of players."""
        return int(self.mask.max()) + 1

    @property
    def varying(self) -> np.ndarray:
        """A boolean for each player: True if its entries differ from the baseline. shap skips the others."""
        varying = np.zeros(self.players, dtype=bool)
        varying[self.mask[self.row != self.baseline].cpu().numpy()] = True
        return varying


def _selected(outputs: Tensor, target: Any) -> Tensor:
    """Select the output that is explained: (m, *outputs) → (m,)."""
    if target is None:
        if outputs[0].numel() > 1:
            raise ValueError(f"target must select one of the outputs of shape {tuple(outputs.shape[1:])}")
        return outputs.reshape(len(outputs))
    index = target if isinstance(target, tuple) else (target,)
    return outputs[(slice(None), *index)]


def _targets_of_rows(target: Any, rows: int) -> list[Any]:
    """Return the target of each row."""
    if isinstance(target, Tensor):
        target = int(target) if target.numel() == 1 else target.tolist()
    return target if isinstance(target, list) else [target] * rows


def _checked_input(inputs: Any, baselines: Any) -> tuple[Tensor, Tensor]:
    """Return one input tensor and its baselines in the same shape."""
    if not isinstance(inputs, Tensor):
        raise TypeError(f"one input tensor can be explained, not a {type(inputs).__name__}")
    off = torch.as_tensor(0.0 if baselines is None else baselines, dtype=inputs.dtype, device=inputs.device)
    return inputs.detach(), off.detach().expand(inputs.shape)


# The worth, the number of samples in the library's own unit, and a seed → the values of the players.
Solver = Callable[[RowWorth, int, int], np.ndarray]


class CoalitionPeer(Attribution):  # type: ignore[misc]
    """A library's sampler on every row by itself, each with the same seed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2)).eval()
    >>> equal = lambda worth, number, seed: np.full(3, worth(np.ones(3)) - worth(np.zeros(3))) / 3
    >>> CoalitionPeer(model, equal).attribute(torch.ones(4, 3), target=[0, 1, 1, 0], number=2).shape
    torch.Size([4, 3])
    """

    def __init__(self, forward_func: Callable[..., Tensor], solver: Solver) -> None:
        super().__init__(forward_func)
        self.solver = solver

    def attribute(
        self,
        inputs: Tensor,
        baselines: Any = None,
        target: Any = None,
        feature_mask: Tensor | None = None,
        *,
        number: int,
        seed: int = 0,
    ) -> Tensor:
        """Return attributions in the shape of the inputs, every entry with the value of its player."""
        if number < 1:
            raise ValueError(f"number must be positive, not {number}")
        x, off = _checked_input(inputs, baselines)
        masks = torch.arange(x[0].numel(), device=x.device).view(x[0].shape) if feature_mask is None else feature_mask
        masks = masks.expand(x.shape)
        result = torch.zeros_like(x)
        for i, goal in enumerate(_targets_of_rows(target, len(x))):
            mask = torch.unique(masks[i], return_inverse=True)[1]
            values = self.solver(RowWorth(self.forward_func, x[i], off[i], mask, goal), number, seed)
            result[i] = torch.as_tensor(values).to(result)[mask]
        return result


@contextlib.contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which shap draws from, and leave it as it was."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _shap_kernel(worth: RowWorth, number: int, seed: int, *, l1_reg: Any = 0) -> np.ndarray:
    """Run shap's KernelExplainer on v, with 1 for every player that differs from the baseline, as the others are
    skipped. l1_reg=0 switches off its selection of players, which by default gives all but ten of them the value 0."""
    with _numpy_seed(seed), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # of the lasso's last steps
        explainer = shap.KernelExplainer(worth, np.zeros((1, worth.players)))
        return explainer.shap_values(worth.varying.astype(float), nsamples=number, l1_reg=l1_reg, silent=True)


def _shap_permutation(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run shap's PermutationExplainer on v: `number` permutations forwards and backwards (more if it skips players)."""
    masker = shap.maskers.Independent(np.zeros((1, worth.players)))
    with _numpy_seed(seed):
        explainer = shap.PermutationExplainer(worth, masker, seed=seed)
        row = worth.varying.astype(float)[None]
        return explainer(row, max_evals=number * (2 * worth.players + 1), silent=True).values[0]


@cache
def _compile_permutation_explainer() -> None:
    """Have the loops of PermutationExplainer compiled, which takes seconds, before anything is timed."""
    masker = shap.maskers.Independent(np.zeros((1, 2)))
    with _numpy_seed(0):
        shap.PermutationExplainer(lambda rows: rows.sum(1), masker)(np.ones((1, 2)), max_evals=5, silent=True)


def _permutation_explainer(model: nn.Module) -> Attribution:
    _compile_permutation_explainer()
    return CoalitionPeer(model, _shap_permutation)


class _OneOutput(nn.Module):
    """A copy of a model with one output, on which shap may leave hooks, attributes and flags. The model gets its own
    dtype, also where shap converts everything to float32."""

    def __init__(self, model: nn.Module, target: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.target, self.dtype = copy.deepcopy(model), target, dtype

    def forward(self, x: Tensor) -> Tensor:
        return _selected(self.model(x.to(self.dtype)), self.target)[:, None]


class _ShapExplainer(Attribution):  # type: ignore[misc]
    """An explainer of shap with the baseline as its background. One is made for each target, as it would otherwise
    explain all outputs."""

    def __init__(self, forward_func: nn.Module) -> None:
        super().__init__(forward_func)
        self._models: dict[Any, nn.Module] = {}  # copies, by what is explained

    def _one_output(self, target: Any, dtype: torch.dtype) -> nn.Module:
        if (target, dtype) not in self._models:
            self._models[target, dtype] = _OneOutput(self.forward_func, target, dtype)
        return self._models[target, dtype]

    def _attributed(self, inputs: Tensor, baselines: Any, target: Any, explain: Any) -> Tensor:
        x, off = _checked_input(inputs, baselines)
        if bool((off != off[:1]).any()):
            raise ValueError("all rows must have the same baseline: it is the explainer's background")
        goals = _targets_of_rows(target, len(x))
        result = torch.zeros_like(x)
        for goal in dict.fromkeys(goals):
            rows = [i for i, own in enumerate(goals) if own == goal]
            values = explain(self._one_output(goal, x.dtype), off[:1].clone(), x[rows])
            result[rows] = torch.as_tensor(values[..., 0]).to(result)
        return result


class DeepExplainer(_ShapExplainer):
    """shap's DeepExplainer: DeepLIFT's Rescale rule. Every module must be used once and be of a kind shap knows.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    >>> DeepExplainer(model).attribute(torch.ones(2, 3), target=[0, 1]).shape
    torch.Size([2, 3])
    """

    def attribute(self, inputs: Tensor, baselines: Any = None, target: Any = None) -> Tensor:
        """Return attributions of entries. shap's check that they add up is switched off: it costs an evaluation and
        fails where outputs are large, as it allows a difference of 0.01 for any output."""

        def explain(model: nn.Module, background: Tensor, x: Tensor) -> Any:
            return shap.DeepExplainer(model, background).shap_values(x, check_additivity=False)

        return self._attributed(inputs, baselines, target, explain)


class GradientExplainer(_ShapExplainer):
    """shap's GradientExplainer: gradients at random places between the baseline and the input (expected gradients).

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    >>> GradientExplainer(model).attribute(torch.ones(2, 3), target=[0, 1], nsamples=10).shape
    torch.Size([2, 3])
    """

    def attribute(
        self, inputs: Tensor, baselines: Any = None, target: Any = None, nsamples: int = 200, seed: int = 0
    ) -> Tensor:
        """Return attributions of entries from `nsamples` gradients."""

        def explain(model: nn.Module, background: Tensor, x: Tensor) -> Any:
            explainer = shap.GradientExplainer(model, background, batch_size=_GRADIENTS_AT_ONCE, local_smoothing=0)
            with _numpy_seed(seed):
                return explainer.shap_values(x, nsamples=nsamples, rseed=seed)

        return self._attributed(inputs, baselines, target, explain)


def _shapiq_values(approximator: Any, worth: RowWorth, budget: int) -> np.ndarray:
    """Return the Shapley values with `budget` evaluations. v(∅) need not be 0: all approximators subtract it."""
    with warnings.catch_warnings():
        for message in _EXPECTED:
            warnings.filterwarnings("ignore", message=message)
        values = approximator.approximate(budget, worth)
    return np.array([values[(player,)] for player in range(worth.players)])


def _shapiq_kernel(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run KernelSHAP with pairs of a coalition and its complement."""
    return _shapiq_values(KernelSHAP(worth.players, pairing_trick=True, random_state=seed), worth, number)


def _shapiq_leverage(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run LeverageSHAP: coalitions drawn by the leverage scores of the regression, 1 / C(N, |S|) (Musco and Witter,
    2025), so all sizes are equally likely; shapiq's weights divide by the probability of drawing a coalition."""
    sizes = np.ones(worth.players + 1)
    approximator = KernelSHAP(worth.players, pairing_trick=True, sampling_weights=sizes, random_state=seed)
    return _shapiq_values(approximator, worth, number)


def kadd_order(players: int, number: int) -> int:
    """Return the order of interactions that evaluations allow. With pairs, even and odd orders do not mix: order 2
    gives the values of KernelSHAP, and order 3 has an unknown for each interaction of order 1 and 3, which as many
    pairs determine; on the 18-input network it is the better one from 1.5 times as many. More than 20 players make the
    regression one of thousands of unknowns."""
    enough = number >= 3 * (players + comb(players, 3))
    return 3 if enough and players <= _MOST_ORDER_3 else 2


def _shapiq_kadd(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run kADD-SHAP, of order 3 where the evaluations allow it."""
    order = kadd_order(worth.players, number)
    return _shapiq_values(kADDSHAP(worth.players, order, pairing_trick=True, random_state=seed), worth, number)


def _shapiq_permutation(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run permutation sampling, each permutation walked once; both ends are evaluated only once."""
    players = worth.players
    budget = 2 + number * (players - 1)
    return _shapiq_values(PermutationSamplingSV(players, random_state=seed), worth, budget)


def _shapiq_svarm(worth: RowWorth, number: int, seed: int) -> np.ndarray:
    """Run stratified SVARM with shapiq's defaults: pairs and equally likely sizes were no better."""
    return _shapiq_values(SVARM(worth.players, random_state=seed), worth, number)


def _seeded(method: Attribution) -> Attribution:
    """Let a sampler of Captum's draw from a generator that `seed` starts, instead of torch's global one."""
    attribute = method.attribute

    @wraps(attribute)  # its arguments are looked up
    def reproducible(*arguments: Any, seed: int = 0, **options: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return attribute(*arguments, **options)

    method.attribute = reproducible
    return method


def _captum(identifier: str, name: str, *, sampler: bool = False) -> Method:
    """Return a comparison method under its library's name."""
    method = COMPARISON_METHODS[identifier]
    make = method.make
    return replace(method, name=name, make=(lambda model: _seeded(make(model))) if sampler else make)


def _sampler(name: str, solver: Solver, **costs: Any) -> Method:
    """Describe a sampler; unless costs say otherwise, a sample is an evaluation."""
    make = partial(CoalitionPeer, solver=solver)
    return Method(name=name, make=make, samples="number", **{"each": lambda _: 1, **costs})


def _regression(name: str, solver: Solver, factor: int = 3, **costs: Any) -> Method:
    """Describe a regression on v(S), exact with all 2^N coalitions. It needs a pair of coalitions for each player: with
    fewer the libraries solve a singular system without a word, and with hardly more the errors are many times the
    values."""
    bounds = {"fewest": lambda game: min(factor * game.count, 2**game.count - 2), "most": lambda game: 2**game.count}
    return _sampler(name, solver, **{**bounds, **costs})


PEERS: dict[str, Method] = {
    # the baseline once for all rows; then input and baseline together, forwards and backwards
    "shap_deep_explainer": Method(name="shap DeepExplainer", make=DeepExplainer, fixed=lambda _: 1 + 2 * GRADIENT),
    "shap_gradient_explainer": Method(
        name="shap GradientExplainer", make=GradientExplainer, fixed=lambda _: 1, samples="nsamples",
        each=lambda _: GRADIENT, most=lambda _: _MOST_GRADIENTS,
    ),
    # v(∅) and v(N) are not among its samples
    "shap_kernel_explainer": _regression(
        "shap KernelExplainer", _shap_kernel, fixed=lambda _: 2, most=lambda game: 2**game.count - 2
    ),
    # players chosen by the lasso and Akaike's criterion, which needs no tuning: better with few samples, and slower
    "shap_kernel_explainer_aic": _regression(
        "shap KernelExplainer, AIC", partial(_shap_kernel, l1_reg="aic"), fixed=lambda _: 2,
        most=lambda game: 2**game.count - 2,
    ),
    # there and back again; v(∅) is evaluated at both ends
    "shap_permutation_explainer": Method(
        name="shap PermutationExplainer", make=_permutation_explainer, samples="number",
        each=lambda game: 2 * game.count + 1,
    ),
    "captum_deeplift": _captum("deeplift_rescale", "captum DeepLift"),
    "captum_integrated_gradients": _captum("integrated_gradients", "captum Integrated Gradients"),
    "captum_shapley_sampling": _captum("shapley_sampling", "captum Shapley sampling", sampler=True),
    "captum_kernel_shap": _captum("kernel_shap", "captum KernelShap", sampler=True),
    "shapiq_kernel_shap": _regression("shapiq KernelSHAP", _shapiq_kernel),
    "shapiq_leverage_shap": _regression("shapiq LeverageSHAP", _shapiq_leverage),
    # 60 players have 1,831 interactions up to order 2; 200 have 20,101, and 784 have 307,721
    "shapiq_kadd": _regression("shapiq kADD", _shapiq_kadd, factor=4, players=60),
    "shapiq_permutation": _sampler(
        "shapiq permutation", _shapiq_permutation, fixed=lambda _: 2, each=lambda game: game.count - 1
    ),
    # stratum by stratum for every player, in N² m steps: 25 s for 200 players and 1,000 evaluations
    "shapiq_svarm": _sampler(
        "shapiq SVARM", _shapiq_svarm, fewest=lambda game: min(2 * game.count + 2, 2**game.count),
        most=lambda game: 2**game.count, players=60,
    ),
}  # fmt: skip
"""The libraries' methods by identifier."""
