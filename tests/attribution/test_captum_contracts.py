"""What programs written for Captum expect of an attribution, of all estimators."""

from __future__ import annotations

import pytest
import torch
from captum.attr import DataLoaderAttribution, KernelShap, NoiseTunnel, ShapleyValues, ShapleyValueSampling
from captum.attr._core.llm_attr import LLMAttribution
from torch import nn

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    GradientDASP,
    GradientShapley,
    PermutationShapley,
)

EVALUATED = [ExactShapley, PermutationShapley, BayesianShapley]
CALLABLE = [*EVALUATED, GradientShapley]
PROPAGATED = [GradientDASP, DASP, DeepLiftRevealCancel]
ALL = [*CALLABLE, *PROPAGATED]

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


def network(outputs=2):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, outputs)).eval()


def sampled(method, number):
    return {"n_samples": number} if method in {PermutationShapley, BayesianShapley, GradientShapley} else {}


@pytest.mark.parametrize("method", ALL)
def test_noise_tunnel_smooths_every_estimator(method):
    made = method(network())
    torch.manual_seed(0)
    options = {"baselines": torch.zeros(4, 3), "target": [0, 1, 0, 1], "return_convergence_delta": True}
    values, delta = NoiseTunnel(made).attribute(X, nt_samples=3, stdevs=0.1, **options)
    torch.manual_seed(0)
    noisy = X.repeat_interleave(3, 0) + torch.normal(0, torch.full((12, 3), 0.1))
    targets = [t for t in options["target"] for _ in range(3)]
    expected, gaps = made.attribute(noisy, target=targets, return_convergence_delta=True)
    torch.testing.assert_close(values, expected.view(4, 3, 3).mean(1))
    torch.testing.assert_close(delta, gaps)


@pytest.mark.parametrize("target", [1, None])
@pytest.mark.parametrize("method", ALL)
def test_the_gap_can_be_had_with_the_values_and_afterwards(method, target):
    made, baseline = method(network()), torch.full((1, 3), 0.5)
    values, delta = made.attribute(X, baseline, target, return_convergence_delta=True)
    model = network()
    total = (model(X) - model(baseline)).detach()
    total = total if target is None else total[:, target]
    torch.testing.assert_close(delta, values.sum(-1) - total, rtol=0, atol=1e-5)
    assert made.has_convergence_delta()
    torch.testing.assert_close(made.compute_convergence_delta(values, baseline, X, target), delta, rtol=0, atol=1e-5)
    off = values + torch.tensor([0.0, 0.5, 0.0])
    afterwards = made.compute_convergence_delta(off, baseline, X, target)
    torch.testing.assert_close(afterwards, delta + 0.5, rtol=0, atol=1e-5)


def test_the_gap_counts_a_group_once_and_averages_over_a_background():
    made, mask, background = ExactShapley(network()), torch.tensor([0, 0, 1]), torch.randn(7, 3)
    values = made.attribute(X, background, 0, feature_mask=mask)
    gap = made.compute_convergence_delta(values, background, X, 0, feature_mask=mask)
    torch.testing.assert_close(gap, torch.zeros(4), rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", [PermutationShapley, BayesianShapley, GradientShapley])
def test_standard_deviations_and_gaps_together(method):
    values, std, delta = method(network()).attribute(X, target=0, return_std=True, return_convergence_delta=True)
    assert values.shape == std.shape == X.shape
    assert delta.shape == (4,)


def test_names_and_what_multiplies_by_inputs():
    names = {method: method.get_name() for method in ALL}
    assert names[DASP] == "DASP"
    assert names[GradientDASP] == "Gradient DASP"
    assert names[PermutationShapley] == "Permutation Shapley"
    assert all(method(network()).multiplies_by_inputs for method in ALL)


@pytest.mark.parametrize("method", CALLABLE)
def test_futures_are_waited_for(method):
    model = network()

    def later(x):
        future = torch.futures.Future()
        future.set_result(model(x))
        return future

    found = method(later).attribute_future(X, target=0)
    torch.testing.assert_close(found.wait(), method(model).attribute(X, target=0))


@pytest.mark.parametrize("method", ALL)
def test_values_by_player(method):
    mask = torch.tensor([4, 2, 4])
    made = method(network())
    shaped = made.attribute(X, feature_mask=mask)
    by_player = made.attribute(X, feature_mask=mask, return_input_shape=False)
    assert by_player.shape == (4, 2, 2)
    torch.testing.assert_close(by_player, shaped[..., [1, 0]])


def test_rows_with_different_numbers_of_players_have_no_values_by_player():
    with pytest.raises(ValueError, match=r"rows have \[2, 3\] players"):
        ExactShapley(network()).attribute(X[:2], feature_mask=torch.tensor([[0, 0, 1], [0, 1, 2]]), return_input_shape=False)  # fmt: skip # noqa: E501


@pytest.mark.parametrize("method", ALL)
def test_a_single_player_has_all_of_the_difference(method):
    model = network()
    total = (model(X) - model(torch.zeros(1, 3))).detach()
    values = method(model).attribute(X, feature_mask=torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(values, total[..., None].expand(4, 2, 3), rtol=1e-4, atol=1e-5)


class Pair(nn.Module):
    def forward(self, a, b):
        return torch.relu(2 * a - torch.relu(b - 1))


@pytest.mark.parametrize("method", ALL)
def test_inputs_of_one_dimension_have_a_player_in_each_row(method):
    a, b = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 4.0])
    found = method(Pair().eval()).attribute((a, b))
    assert [x.shape for x in found] == [a.shape, b.shape]
    torch.testing.assert_close(found[0] + found[1], torch.tensor([6.0, 0.0]), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found[0][0], torch.tensor(6.0))
    (square,) = method(nn.ReLU().eval()).attribute((a,))
    torch.testing.assert_close(square, a)


@pytest.mark.parametrize("method", ALL)
def test_a_modules_forward_is_the_module(method):
    model = network()
    torch.testing.assert_close(method(model.forward).attribute(X), method(model).attribute(X))
    with pytest.raises(ValueError, match="call model.eval"):
        method(nn.Sequential(nn.Linear(3, 1), nn.Dropout()).forward).attribute(X)


def test_other_methods_of_a_module_are_no_module():
    with pytest.raises(TypeError, match="not a method"):
        GradientDASP(network().parameters)


# Options by Captum's names.


def test_numbers_of_samples_cost_what_they_do_in_captum():
    model = network()

    def values(method, **options):
        return method.attribute(X, target=0, **options)

    permutations = PermutationShapley(model)
    assert torch.equal(values(permutations, n_samples=7), values(permutations, n_permutations=4))
    plain = PermutationShapley(model, antithetic=False)
    assert torch.equal(values(plain, n_samples=7), values(plain, n_permutations=7))
    few = BayesianShapley(model)
    assert torch.equal(values(few, n_samples=8), values(few, max_evaluations=8))
    pairs = GradientShapley(model)
    assert torch.equal(values(pairs, n_samples=9), values(pairs, n_pairs=5))
    with pytest.raises(ValueError, match="n_samples must be at least 1, not 0"):
        values(permutations, n_samples=0)


@pytest.mark.parametrize("method", EVALUATED)
def test_perturbations_per_eval_are_times_the_rows(method):
    model, sizes = network(), []

    def counting(x):
        sizes.append(len(x))
        return model(x)

    values = method(counting).attribute(X, target=0, perturbations_per_eval=2)
    assert max(sizes) == 8
    torch.testing.assert_close(values, method(model).attribute(X, target=0))
    with pytest.raises(ValueError, match="give one of them"):
        method(model).attribute(X, perturbations_per_eval=2, internal_batch_size=8)


# One answer for the whole batch.


def answers(model):
    return {
        "tensor without dimensions": lambda x, *_: model(x).sum(),
        "tensor with one entry": lambda x, *_: model(x).sum().reshape(1),
        "Python number": lambda x, *_: model(x.detach()).sum().item(),
        "whole number": lambda x, *_: round(1000 * model(x.detach()).sum().item()) / 1000,
    }


@pytest.mark.parametrize("form", answers(None))
@pytest.mark.parametrize("method", CALLABLE)
def test_one_answer_for_a_batch_has_values_as_in_captum(method, form):
    if method is GradientShapley and "number" in form:
        return  # it has no gradient
    function = answers(network(1))[form]
    expected = ShapleyValues(function).attribute(X, baselines=torch.full((1, 3), 0.2))
    made = method(function)
    values, delta = made.attribute(X, torch.full((1, 3), 0.2), return_convergence_delta=True, **sampled(method, 400))
    assert values.shape == expected.shape == (1, 3)
    torch.testing.assert_close(values, expected, rtol=0.1, atol=0.05)
    torch.testing.assert_close(delta, torch.zeros(1), rtol=0, atol=1e-5)


def test_one_answer_with_groups_further_arguments_and_a_background():
    weights, background, mask = torch.rand(4, 1), torch.randn(5, 3), torch.tensor([0, 1, 0])
    model = network(1)

    def loss(a, b, weights, power):
        return (weights * model(torch.cat([a, b], 1))).sum() ** power

    inputs, baselines = (X[:, :2], X[:, 2:]), (background[:, :2], background[:, 2:])
    masks = (mask[:2], mask[2:])
    a, b = ExactShapley(loss).attribute(inputs, baselines, None, (weights, 2), masks)
    assert a.shape == (1, 2)
    expected = torch.stack([
        torch.cat(ShapleyValues(loss).attribute(
            inputs, tuple(x[None] for x in (row[:2], row[2:])), additional_forward_args=(weights, 2),
            feature_mask=tuple(part[None] for part in masks),
        ), 1) for row in background
    ]).mean(0)  # fmt: skip
    torch.testing.assert_close(torch.cat([a, b], 1), expected, rtol=1e-4, atol=1e-5)
    named = ExactShapley(loss).attribute({"a": X[:, :2], "b": X[:, 2:]}, None, None, {"weights": weights, "power": 2})
    assert {name: tuple(x.shape) for name, x in named.items()} == {"a": (1, 2), "b": (1, 1)}


def test_one_perturbation_at_a_time_may_have_any_answer():
    model = network(1)

    def three(x):
        return model(x).sum() * torch.tensor([1.0, 2.0, 3.0])

    with pytest.raises(ValueError, match=r"for 2 rows it gave the shape \(3,\)"):
        ExactShapley(three).attribute(X)
    values = ExactShapley(three).attribute(X, perturbations_per_eval=1)
    torch.testing.assert_close(values, ShapleyValues(three).attribute(X))
    by_player = ExactShapley(three).attribute(X, perturbations_per_eval=1, return_input_shape=False)
    torch.testing.assert_close(by_player, values)


@pytest.mark.parametrize("outputs", [2, 3, 4])
def test_one_perturbation_at_a_time_calls_the_model_with_the_batch_as_it_is(outputs):
    """Two outputs are as many as the rows that are tried otherwise; four are a row for each row."""
    model, sizes = network(1), set()

    def of_batch(x):
        sizes.add(len(x))
        return model(x).sum() * torch.arange(1.0, outputs + 1) if outputs < 4 else model(x)[:, 0]

    values = ExactShapley(of_batch).attribute(X, perturbations_per_eval=1)
    assert values.shape == (outputs, 3)
    if outputs < 4:
        assert sizes == {4}
        torch.testing.assert_close(values, ShapleyValues(of_batch).attribute(X))


def test_one_answer_is_of_all_rows_and_of_the_same_players():
    def total(x):
        return x.sum()

    with pytest.raises(ValueError, match="one answer for the whole batch of 4 rows.* on 2 of them"):
        ExactShapley(total).attribute(X, internal_batch_size=2)
    with pytest.raises(ValueError, match="feature_mask must be the same for all"):
        ExactShapley(total).attribute(X[:2], feature_mask=torch.tensor([[0, 0, 1], [0, 1, 2]]))
    with pytest.raises(ValueError, match="without a method as its prior"):
        BayesianShapley(total, prior=GradientDASP(network())).attribute(X)


# Where Captum asks for the type.


def test_methods_that_evaluate_may_stand_for_captums_sampling():
    assert all(issubclass(method, ShapleyValueSampling) for method in EVALUATED)
    assert not any(issubclass(method, (ShapleyValueSampling, KernelShap)) for method in [GradientShapley, *PROPAGATED])


class Words:
    """A tokenizer and an input of Captum's, as far as `LLMAttribution` uses them."""

    n_itp_features, values = 4, ["a", "b", "c", "d"]

    def to_tensor(self):
        return torch.ones(1, 4)

    def to_model_input(self, present):
        (row,) = present  # one coalition at a time
        return 1 + row[None].long() * torch.tensor([[1, 2, 3, 4]])

    def format_attr(self, attributions):
        return attributions

    def decode(self, ids):
        return "".join(chr(ord("a") + int(i)) for i in ids)

    def __call__(self, text, **_):
        places = [(i, i + 1) for i in range(len(text))]
        return {"input_ids": [ord(letter) - ord("a") for letter in text], "offset_mapping": places}


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embedded, self.out = nn.Embedding(8, 4), nn.Linear(4, 8)

    def forward(self, input_ids, **_):
        logits = self.out(torch.tanh(self.embedded(input_ids).cumsum(1)))
        return type("Result", (), {"logits": logits})


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("method", EVALUATED)
def test_language_models(method, length, monkeypatch):
    monkeypatch.setattr(LLMAttribution, "SUPPORTED_INPUTS", (Words,))
    target = torch.tensor([3, 6])[:length]
    options = {"use_cached_outputs": False}
    model = Language().eval()
    found = LLMAttribution(method(model), Words()).attribute(Words(), target=target, **options)
    expected = LLMAttribution(ShapleyValues(model), Words()).attribute(Words(), target=target, **options)
    torch.testing.assert_close(found.seq_attr, expected.seq_attr, rtol=0, atol=0.02)
    torch.testing.assert_close(found.token_attr, expected.token_attr, rtol=0, atol=0.02)


@pytest.mark.parametrize("method", [ShapleyValues, *EVALUATED])
def test_data_loaders_take_feature_ablation_only(method):
    """Captum refuses its own Shapley values, too: `DataLoaderAttribution` wants outputs flattened as ablation does."""
    with pytest.raises(AssertionError, match="does not support"):
        DataLoaderAttribution(method(network()))
