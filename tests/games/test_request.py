"""An `attribute` call, understood: baselines or a background, targets, and f(x) evaluated once."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest
import torch
from captum.attr import FeatureAblation, IntegratedGradients
from torch import nn

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    Explainer,
    GradientDASP,
    PermutationShapley,
)
from dasp.errors import OverflowingRows
from dasp.games.request import PREDICTED, Arguments, Request, Selection, games
from dasp.methods import METHODS, MethodOnModel


def network(inputs: int = 5, outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).double().eval()


def rows(number: int, inputs: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(number, inputs, generator=torch.Generator().manual_seed(seed)).double()


class Counting(nn.Module):
    """Counts how often it sees each row."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            self.seen.append(x.detach().clone())
        return self.model(x)

    def count(self, row: torch.Tensor) -> int:
        return int((torch.cat(self.seen) == row).all(1).sum())


METHODS_OF_OURS = {
    "exact": ({}, ExactShapley),
    "bayesian": ({"max_evaluations": 32}, BayesianShapley),  # all coalitions: with fewer it is not linear in the model
    "permutation": ({}, PermutationShapley),
    "dasp": ({}, DASP),
    "gradient": ({}, GradientDASP),
    "revealcancel": ({}, DeepLiftRevealCancel),
}


@pytest.mark.parametrize("name", ["exact", "bayesian", "permutation", "dasp", "gradient"])
def test_each_row_is_evaluated_once(name):
    x, background = rows(4), rows(3, seed=1)
    options = {"max_evaluations": 30} if name == "bayesian" else {}
    for absent in ({}, {"background": background}):
        model = Counting(network()).eval()
        Explainer(model, method=name, **options, **absent).attribute(x, target="predicted")
        assert sorted(model.count(row) for row in x) == [1, 1, 2, 2]  # two again, to check the model on that batch
        for off in absent.get("background", torch.zeros(1, 5)):
            # once, in a batch of two (some models lose the dimension of a batch of one); twice to check the model
            assert model.count(off) <= 5


@pytest.mark.parametrize("name", METHODS_OF_OURS)
def test_a_background_is_the_average_over_its_rows(name):
    options, method = METHODS_OF_OURS[name]
    model, x, background = network(), rows(2), rows(3, seed=1)
    together = method(model).attribute(x, background, target=1, **options)
    each = torch.stack([method(model).attribute(x, row, target=1, **options) for row in background])
    rounding = dict(rtol=1e-3, atol=1e-3) if name == "gradient" else dict(rtol=1e-6, atol=1e-8)  # what has to add up
    torch.testing.assert_close(together, each.mean(0), **rounding)
    if name == "gradient":
        options = {**options, "nodes": 7}
        together = method(model).attribute(x, background, target=1, **options)
        each = torch.stack([method(model).attribute(x, row, target=1, **options) for row in background])
        torch.testing.assert_close(together, each.mean(0), rtol=1e-6, atol=1e-8)


def test_a_background_goes_with_masks_of_rows_and_further_arguments():
    model = network()
    mask = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]])
    scale, background = torch.tensor([2.0, -1.0]).double(), rows(3, seed=1)

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, factor):
            return self.model(x) * factor[:, None]

    for method in (ExactShapley(Scaled()), DASP(Scaled().eval(), rank="full"), GradientDASP(Scaled().eval())):
        options = {"nodes": 7} if isinstance(method, GradientDASP) else {}
        together = method.attribute(rows(2), background, 1, scale, mask, **options)
        each = torch.stack([method.attribute(rows(2), row, 1, scale, mask, **options) for row in background])
        torch.testing.assert_close(together, each.mean(0), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("captums", [IntegratedGradients, FeatureAblation])
def test_methods_of_captum_get_the_same_arguments(captums):
    model, x, background = network(), rows(4), rows(3, seed=1)
    mask = torch.tensor([0, 0, 1, 2, 2])
    targets = [0, 2, 1, 2]
    ours = MethodOnModel(captums(model)).attribute(x, background, targets, feature_mask=mask)
    each = torch.stack(
        [MethodOnModel(captums(model)).attribute(x, row, targets, feature_mask=mask) for row in background]
    )
    torch.testing.assert_close(ours, each.mean(0))
    predicted = MethodOnModel(captums(model)).attribute(x, target="predicted")
    torch.testing.assert_close(predicted, MethodOnModel(captums(model)).attribute(x, target=model(x).argmax(1)))


def test_who_says_background_means_it():
    """As many baselines as rows are one for each by number, and a background by word."""
    x, off = rows(3), rows(3, seed=1)
    assert len(games(Arguments.given(x, off))[0].baselines) == 1
    assert len(games(Arguments(x, off, background=True))[0].baselines) == 3
    assert Arguments.given(x[:2], off).background
    with pytest.raises(ValueError, match="the background has shape"):
        games(Arguments(x, off[:, :2], background=True))
    with pytest.raises(ValueError, match="no rows"):
        games(Arguments(x, off[:0], background=True))


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (None, [None]),
        (1, [1]),
        (PREDICTED, [[0, 1]]),
        (torch.tensor([2, 0]), [[2, 0]]),
        ([1, 1], [1]),
    ],
)
def test_targets_as_captum_takes_them(target, wanted):
    outputs = torch.tensor([[3.0, 1, 2], [0, 5, 4]])
    selected = Selection.of(outputs, target)
    if target is None:
        assert list(selected.captum_targets()) == [0, 1, 2]
        assert list(Selection.of(outputs[:, 0], None).captum_targets()) == [None]
    else:
        assert list(selected.captum_targets()) == wanted


def test_targets_of_many_dimensions():
    outputs = torch.arange(24.0).view(2, 3, 4)
    assert Selection.of(outputs, (1, 2))(outputs).tolist() == [6, 18]
    assert Selection.of(outputs, [(1, 2), (0, 3)])(outputs).tolist() == [6, 15]
    assert Selection.of(outputs, 1)(outputs).tolist() == outputs[:, 1].tolist()
    assert list(Selection.of(outputs, (1, 2)).captum_targets()) == [(1, 2)]
    assert Selection.of(outputs, PREDICTED)(outputs).tolist() == [11, 23]
    with pytest.raises(ValueError, match="does not fit outputs of shape"):
        Selection.of(outputs, [0, 1])


def test_values_and_attributions_are_the_same_thing():
    x, mask = rows(2), torch.tensor([[0, 0, 1, 2, 2], [0, 1, 1, 2, 2]])
    request = Request.of(network(), Arguments.given(x, feature_mask=mask))
    values = [torch.randn(game.count, game.rows, 3).double() for game in request.games]
    again = request.values_of(request.answer(values))
    for found, given in zip(again, values, strict=True):
        torch.testing.assert_close(found, given)


def test_every_method_says_what_it_can_do():
    """What is declared is what the methods do."""
    request = Request.of(network(), Arguments.given(rows(2), target=0))
    for name, method in METHODS.items():
        made = method.make(network())
        known = set(inspect.signature(made.attribute).parameters)
        if method.takes:
            assert method.takes <= known, name
        if method.error_bars:
            number = {method.samples: 40} if method.samples == "max_evaluations" else {}
            assert made.explain(request, **number).std is not None, name


class Noisy(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x.repeat(1, 20), 0.5).sum(1)  # on in every mode, and never the same twice


class Own(nn.Module):
    def forward(self, x):
        return x.sum(1) * (2 if self.training else 1)


def mixed(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(0).sum(1) * x[:, 0]


@pytest.mark.parametrize("method", [ExactShapley, BayesianShapley, PermutationShapley, GradientDASP])
def test_models_whose_mode_matters_are_refused_in_training(method):
    norm = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).double()
    before = norm[1].running_mean.clone()
    for model in (norm, nn.Sequential(nn.Linear(5, 1), nn.Dropout(0.1)).double(), Own()):
        with pytest.raises(ValueError, match="training mode"):
            method(model.train()).attribute(rows(3))
    assert torch.equal(norm[1].running_mean, before)
    harmless = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Dropout(0), nn.Linear(4, 1)).double().train()
    torch.testing.assert_close(
        method(harmless).attribute(rows(3)).sum(1),
        harmless(rows(3))[:, 0] - harmless(torch.zeros(3, 5).double())[:, 0],
        rtol=0.02,
        atol=1e-3,
    )


@pytest.mark.parametrize("method", [ExactShapley, BayesianShapley, PermutationShapley])
def test_models_that_are_no_function_of_a_row_are_refused(method):
    with pytest.raises(ValueError, match="differ from one evaluation to the next"):
        method(Noisy().eval()).attribute(rows(3), rows(3, seed=1))
    with pytest.raises(ValueError, match="depends on the rows beside it"):
        method(mixed).attribute(rows(3), rows(3, seed=1))
    with pytest.raises(ValueError, match="depends on the rows beside it"):
        method(nn.BatchNorm1d(5, track_running_stats=False).double().eval()).attribute(rows(3), target=0)


def test_masks_of_rows_beside_a_background_for_methods_of_captum():
    mask = torch.tensor([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2]])
    method = MethodOnModel(FeatureAblation(network()))
    together = method.attribute(rows(2), rows(3, seed=1), 1, feature_mask=mask)
    each = torch.stack([method.attribute(rows(2), row, 1, feature_mask=mask) for row in rows(3, seed=1)])
    torch.testing.assert_close(together, each.mean(0))


def test_a_prior_is_of_its_own_model():
    model, surrogate = Counting(network()).eval(), Counting(network()).eval()
    BayesianShapley(model, PermutationShapley(surrogate)).attribute(rows(2), target=0, max_evaluations=20)
    assert sum(map(len, surrogate.seen)) > 2 * 25 * 2 * 4  # of 25 permutations, there and back
    assert sum(map(len, model.seen)) <= 2 * 20 + 4 + 3  # to check the model, and the rows of its largest batch
    with pytest.raises(ValueError, match="they must be the same outputs"):
        BayesianShapley(network(), PermutationShapley(network(outputs=7))).attribute(rows(2))


def test_one_sample_says_nothing_of_its_error():
    model = lambda x: x.prod(1)
    request = Request.of(model, Arguments.given(rows(1, 12)))
    assert PermutationShapley(model).explain(request, n_permutations=1).std is None
    with pytest.raises(ValueError, match="too few for error bars"):
        Explainer(model, method="permutation", max_evaluations=25, error_bars=True).attribute(rows(1, 12))


@pytest.mark.parametrize("name", METHODS_OF_OURS)
def test_complex_outputs_are_refused(name):
    model = Complex().eval()
    with pytest.raises(TypeError, match="outputs are complex .*torch.view_as_real") as error:
        METHODS_OF_OURS[name][1](model).attribute(rows(2))
    assert "\n" not in str(error.value)


class Complex(nn.Module):
    def forward(self, x):
        return torch.complex(x, x)


@pytest.mark.parametrize("size", [1e20, 1e25, 1e37])
def test_rows_whose_squares_overflow_are_named(size):
    model, x = network(40).float(), rows(4, 40).float()
    x[2, 3] = size
    for method in (GradientDASP(model), BayesianShapley(model, GradientDASP(model))):
        with pytest.raises(OverflowingRows, match=f"row 2 .*largest entry is {re.escape(f'{size:.3g}')}") as error:
            method.attribute(x, target=0)
        assert pickle.loads(pickle.dumps(error.value)).rows == error.value.rows == (2,)
    assert BayesianShapley(model).attribute(x, target=0, max_evaluations=100).isfinite().all()
    with pytest.raises(OverflowingRows, match="row 2") as error:  # also where rows are explained in parts
        Explainer(model, torch.zeros(3, 40), method="gradient", batch_size=1).attribute(x, target=0)


@pytest.mark.parametrize("activation", [nn.Sigmoid(), nn.Tanh(), nn.SiLU()])
def test_overflow_in_front_of_a_smooth_function_is_named(activation):
    first = nn.Linear(2, 1, bias=False)
    first.weight.data = torch.tensor([[1e25, -1e25]])
    method = GradientDASP(nn.Sequential(first, activation, nn.Linear(1, 1)).eval())
    with pytest.raises(OverflowingRows, match="squares may overflow"):
        method.attribute(torch.tensor([[1.0, 2.0]]), target=0)
