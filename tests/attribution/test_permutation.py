"""PermutationShapley against the exact values, with its own standard errors."""

from __future__ import annotations

import pytest
import torch
from test_bayesian_shapley import network, rows

from dasp import ExactShapley, PermutationShapley


@pytest.mark.parametrize("antithetic", [True, False])
def test_unbiased_with_honest_standard_errors(antithetic):
    model, x = network(8, outputs=2), rows(3, 8)
    truth = ExactShapley(model).attribute(x)
    method = PermutationShapley(model, antithetic=antithetic)
    values, error = method.attribute(x, n_permutations=400, return_std=True)
    z = (values - truth) / error
    assert float(z.abs().max()) < 4.5
    assert 0.6 < float(z.square().mean()) < 1.7
    torch.testing.assert_close(values.sum(-1), (model(x) - model(0 * x)).detach())


def test_antithetic_permutations_err_less_for_the_same_evaluations():
    model, x = network(10), rows(5, 10)
    truth = ExactShapley(model).attribute(x)
    both, forward = (
        torch.stack([
            PermutationShapley(model, antithetic=reverse).attribute(x, n_permutations=number, seed=seed) - truth
            for seed in range(5)
        ]).square().mean()
        for reverse, number in ((True, 20), (False, 40))
    )  # fmt: skip
    assert both < forward / 2


def test_pairs_of_players_are_exact():
    torch.testing.assert_close(
        PermutationShapley(lambda x: x.prod(1)).attribute(torch.tensor([[2.0, 3.0]]), n_permutations=1),
        torch.tensor([[3.0, 3.0]]),
    )


@pytest.mark.parametrize("tolerance", [None, 0.05])
def test_the_same_for_any_batch_size_and_any_rows_beside(tolerance):
    model, x = network(7, outputs=2), rows(4, 7)
    options = {"n_permutations": 300, "tolerance": tolerance, "return_std": True}
    values, error = PermutationShapley(model).attribute(x, **options)
    other = PermutationShapley(model).attribute(x, internal_batch_size=5, **options)
    torch.testing.assert_close(other, (values, error), rtol=0, atol=1e-12)
    alone = PermutationShapley(model).attribute(x[2:3], **options)
    torch.testing.assert_close(alone, (values[2:3], error[2:3]), rtol=0, atol=1e-12)
    assert not torch.equal(PermutationShapley(model).attribute(x, seed=1, **options)[0], values)


def test_rows_stop_at_the_tolerance():
    model, x = network(7), rows(4, 7)
    evaluated = 0

    def counted(x):
        nonlocal evaluated
        evaluated += len(x)
        return model(x)

    values, error = PermutationShapley(counted).attribute(x, n_permutations=5000, tolerance=0.05, return_std=True)
    wanted = 0.05 * values.abs().amax(1)
    assert bool((error.amax(1) <= wanted).all())
    assert evaluated < 4 * 5000 * 12
    with pytest.warns(UserWarning, match="with 10 permutations"):
        PermutationShapley(model).attribute(x, n_permutations=10, tolerance=1e-6)


def test_groups_and_backgrounds():
    model, x, background = network(8), rows(2, 8), rows(5, 8, seed=4)
    groups = torch.arange(8) // 2
    truth = ExactShapley(model).attribute(x, background, feature_mask=groups)
    values, error = PermutationShapley(model).attribute(
        x, background, feature_mask=groups, n_permutations=200, return_std=True
    )
    assert float(((values - truth) / error).abs().max()) < 4.5


def test_bad_options():
    for options, message in (
        ({"n_permutations": 0}, "n_permutations must be at least 1"),
        ({"n_permutations": 1, "return_std": True}, "at least 2 permutations"),
        ({"tolerance": -1.0}, "tolerance must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            PermutationShapley(network(4)).attribute(rows(1, 4), **options)
