"""The audit: how far are attributions from the Shapley values? It evaluates coalitions, whoever made the attributions.

It is `BayesianShapley` with the attributions as prior, read the other way round: what evaluations say of the prior's
error is the answer. Nothing is thought of the attributions beforehand that a few evaluations could not overrule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from dasp.attribution.bayesian import FEWEST
from dasp.attribution.bayesian.design import Pairs
from dasp.attribution.bayesian.posterior import Trust, posterior
from dasp.attribution.bayesian.priors import covariances
from dasp.attribution.bayesian.regression import Regression
from dasp.attribution.exact import exact_values
from dasp.evaluation.compare import spearman
from dasp.games.call_options import read_options
from dasp.games.evaluator import Evaluator
from dasp.games.idle_players import Active
from dasp.games.progress import working
from dasp.games.request import Arguments, Baselines, Request, Target, Tensors, contrasted
from dasp.models.calling import Output, forward_of

__all__ = ["Audit", "Discrepancy", "Interval", "audit", "audited"]

# Signal to noise of attributions that may be anything: a tenth and ten times the centre are both within reach. Chosen
# on the development networks of benchmarks/audit.py.
_ANYTHING = Trust(1, 2)
_DRAWS = 200
_QUANTILES = (0.5, 0.025, 0.975)  # in the order of an Interval


@dataclass(frozen=True)
class Interval:
    """A number for every row and output, and the interval that holds it with a probability of 95 %."""

    middle: Tensor
    low: Tensor
    high: Tensor

    def __getitem__(self, place: Any) -> Interval:
        return Interval(self.middle[place], self.low[place], self.high[place])

    def __str__(self) -> str:
        if self.middle.dim():
            return f"Interval of shape {tuple(self.middle.shape)}"
        return f"{float(self.middle):.3g} ({float(self.low):.3g} to {float(self.high):.3g})"


@dataclass(frozen=True)
class Discrepancy:
    """A player's attribution beside its Shapley value, as far as that is known."""

    player: int
    attribution: float
    value: float
    std: float

    def __str__(self) -> str:
        return f"player {self.player}: {self.attribution:.3g} instead of {self.value:.3g} ± {self.std:.2g}"


@dataclass(frozen=True)
class Audit:
    """The result of an audit: how far attributions are from the Shapley values. Numbers are (rows, *outputs)."""

    rmse: Interval
    relative: Interval  # the RMSE divided by the root mean square of the Shapley values
    correlation: Interval  # Spearman's, of attributions and Shapley values
    values: Any  # the Shapley values as far as they are known, in the shape of the attributions
    std: Any  # their standard deviations
    evaluations: int  # coalitions that were evaluated for each row; for rows with few players, all there are
    _rows: list[_Row] = field(repr=False)

    def worst(self, row: int = 0, number: int = 5, output: Any = ()) -> list[Discrepancy]:
        """Return the players of a row whose attributions are most off, the worst first. Their numbers are those of the
        feature mask in increasing order, or positions in the flattened input."""
        index = output if isinstance(output, tuple) else (output,)
        own = self._rows[row]
        given, found, std = (x[(slice(None), *index)] for x in (own.given, own.mean, own.std))
        if given.dim() > 1:
            raise ValueError(f"the audit is of outputs of shape {tuple(given.shape[1:])}: choose one by output=…")
        order = (given - found).abs().argsort(descending=True)[:number].tolist()
        return [Discrepancy(i, float(given[i]), float(found[i]), float(std[i])) for i in order]

    def __str__(self) -> str:
        rows, several = len(self._rows), self.rmse.middle.dim() > 1
        over = "rows and outputs" if several else "rows"
        lines = [f"{rows} row{'s' * (rows != 1)}, {self.evaluations} evaluations each: median over {over}"]
        for name, interval in (
            ("RMSE", self.rmse), ("relative to the values", self.relative), ("rank correlation", self.correlation),
        ):  # fmt: skip
            flat = [x.flatten().nanmedian() for x in (interval.middle, interval.low, interval.high)]
            lines.append(f"  {name:24}{Interval(*flat)}")
        return "\n".join(lines)


def audit(
    forward_func: Callable[..., Any],
    attributions: Any,
    inputs: Tensors,
    baselines: Baselines = None,
    target: Target = None,
    additional_forward_args: Any = None,
    feature_mask: Tensors | None = None,
    *,
    versus: Target = None,
    output: Output = None,
    evaluations: int = 128,
    seed: int = 0,
    internal_batch_size: int | None = None,
) -> Audit:
    """Estimate how far attributions are from the Shapley values, row by row, with intervals.

    Args:
        forward_func: the model, or any callable, as in Captum.
        attributions: the attributions of any method: a tensor, an array, or an object whose `values` are such, in the
            shape of the inputs, or (rows, outputs, *input) with target=None. With a feature mask, every entry has the
            value of its group, as Captum gives it, or entries are added up.
        inputs, baselines, target, additional_forward_args, feature_mask: what the attributions are about, as in
            `DASP.attribute`: the same baselines, above all.
        versus: the output that is subtracted from `target`, for attributions of their difference, as of an `Explainer`.
        output: what is explained of the model's result, as of an `Explainer`: a name or index, a function, or
            "probability" or "logit".
        evaluations: the number of coalitions to evaluate for each row. The more, the narrower the intervals; 2^N give
            the exact error.
        seed: for the choice of coalitions.
        internal_batch_size: the largest number of rows to evaluate at once.

    >>> model = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).eval()
    >>> x = torch.ones(2, 12)
    >>> report = audit(model, model[0].weight.sum(0).expand(2, -1), x)
    >>> bool((report.rmse.low < report.rmse.high).all()), report.values.shape
    (True, torch.Size([2, 12]))
    """
    given = {"evaluations": evaluations, "seed": seed, "internal_batch_size": internal_batch_size}
    own = read_options(given, {"internal_batch_size": None})
    arguments = Arguments.given(inputs, baselines, contrasted(target, versus), additional_forward_args, feature_mask)
    function = forward_func if output is None else forward_of(forward_func, output)
    request = Request.of(function, arguments, at_once=own["internal_batch_size"])
    return audited(request, attributions, **own)


def audited(
    request: Request, attributions: Any, evaluations: int, seed: int = 0, internal_batch_size: int | None = None
) -> Audit:
    """Return the audit of attributions that answer a request; the arguments are those of `audit`."""
    given = _values(attributions, request)
    active = Active.of(request, apart=True)  # a busy player's error is not to be given to an idle one
    fewest = max((min(FEWEST, 2**game.count) for game in active.request.games), default=0)
    if evaluations < fewest:
        raise ValueError(f"evaluations must be at least {fewest}, not {evaluations}")
    own = active.select(given)
    with working("audit", "evaluation") as progress:
        evaluators = active.request.evaluators(internal_batch_size, progress)
        known = [_Known.of(evaluator, part, evaluations, seed) for evaluator, part in zip(evaluators, own, strict=True)]
    unsure, scales = _unsure(active, known)
    found = active.restored([part.mean for part in known])
    std = active.restored([part.std for part in known], deviations=True)
    rows = [
        _Row(*row, unsure[:, i], scales[:, i])
        for i, row in enumerate(zip(_by_row(given), _by_row(found), _by_row(std), strict=True))
    ]
    rmse, size = _stacked([row.rmse() for row in rows]), torch.stack([row.size() for row in rows])
    relative = Interval(rmse.middle / size, rmse.low / size, rmse.high / size)
    correlation = _stacked([row.correlation(seed) for row in rows])
    made = min(evaluations, max((2**game.count for game in active.request.games), default=2))
    return Audit(rmse, relative, correlation, request.answer(found), request.answer(std), made, rows)


def _by_row(parts: list[Tensor]) -> list[Tensor]:
    """Return (players, *selected) for every row, of what is (players, rows, *selected) for every game."""
    return [row for part in parts for row in part.cpu().double().unbind(1)]


def _values(attributions: Any, request: Request) -> list[Tensor]:
    """Return the attributions of the players of each game, (players, rows, *selected)."""
    several = request.in_order(attributions)
    tensors = tuple(torch.as_tensor(x if isinstance(x, Tensor) else getattr(x, "values", x)) for x in several)
    values = request.values_of(tensors)
    if not all(bool(torch.isfinite(x).all()) for x in values):
        raise ValueError("the attributions have NaN or infinite entries")
    again = request.answer(values)
    pairs = zip(request.in_order(again), tensors, strict=True)
    whole = all(torch.allclose(x.double(), y.to(x).double(), rtol=1e-3, atol=0) for x, y in pairs)
    return values if whole else request.values_of(tensors, whole=False)


@dataclass(frozen=True)
class _Known:
    """The posterior of one game: values and deviations (players, rows, *selected)."""

    mean: Tensor
    std: Tensor
    unsure: Tensor | float  # quantiles of Σ(attributions − R)², less Σ(attributions − mean)²: (3, rows, *selected)
    scales: Tensor | float  # by how much variances may be larger or smaller: (draws, rows, *selected)

    @staticmethod
    def of(evaluator: Evaluator, given: Tensor, evaluations: int, seed: int) -> _Known:
        """Evaluate coalitions, all of them if there are no more."""
        game, total = evaluator.game, evaluator.total
        if evaluations >= 2**game.count:
            values = exact_values(evaluator).mean.cpu().double()
            return _Known(values, torch.zeros_like(values), 0.0, 0.0)
        pairs = Pairs.draw(game.count, (evaluations - 2) // 2, seed)
        prior = given.flatten(1).T
        found = posterior(
            Regression.on(pairs), evaluator.halves(pairs.members)[0].flatten(1), total.flatten(), prior,
            covariances(prior, game), _ANYTHING, distance=True,
        )  # fmt: skip
        assert found.distance is not None
        certain = (prior - found.mean).square().sum(1)
        unsure = torch.stack([found.distance.quantile(p) - certain for p in _QUANTILES])
        scales = found.distance.scales(_DRAWS, torch.Generator().manual_seed(seed)).T
        mean, std = (x.T.unflatten(1, total.shape) for x in (found.mean, found.deviation))
        return _Known(mean, std, unsure.unflatten(1, total.shape), scales.unflatten(1, total.shape))


def _unsure(active: Active, known: list[_Known]) -> tuple[Tensor, Tensor]:
    """Return what is unsure of each row of the request, (3, rows, *selected) and (draws, rows, *selected); 0 where the
    values are exact, as of idle players."""
    shape = active.whole.full.shape
    unsure, scales = (torch.zeros(number, *shape, dtype=torch.float64) for number in (len(_QUANTILES), _DRAWS))
    starts = [rows.start for rows, _, _ in active.whole.parts()]
    for part, own in zip(active.parts, known, strict=True):
        rows = part.rows.cpu() + starts[part.game]
        unsure[:, rows], scales[:, rows] = own.unsure, own.scales
    return unsure, scales


@dataclass(frozen=True)
class _Row:
    """A row of the request: attributions, values and deviations (players, *selected), and what is unsure of them."""

    given: Tensor
    mean: Tensor
    std: Tensor
    unsure: Tensor
    scales: Tensor

    def rmse(self) -> Interval:
        """Return how far the attributions are off."""
        squares = (self.given - self.mean).square().sum(0) + self.unsure
        return Interval(*(squares.clamp(min=0) / len(self.given)).sqrt())

    def size(self) -> Tensor:
        """Return the root mean square of the Shapley values."""
        return (self.mean.square() + self.std.square()).mean(0).sqrt()

    def correlation(self, seed: int) -> Interval:
        """Return Spearman's correlation with values drawn from their posterior; players as if independent."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(_DRAWS, *self.mean.shape, generator=generator, dtype=torch.float64)
        drawn = self.mean + self.std * noise * self.scales.sqrt()[:, None]
        given = self.given.expand(drawn.shape)
        pairs = (x.movedim(1, -1).flatten(0, -2) for x in (given, drawn))
        found = spearman(*pairs).unflatten(0, (_DRAWS, *self.mean.shape[1:]))
        return Interval(*(found.nanquantile(p, 0) for p in _QUANTILES))


def _stacked(rows: list[Interval]) -> Interval:
    names = [each.name for each in fields(Interval)]
    return Interval(*(torch.stack([getattr(row, name) for row in rows]) for name in names))
