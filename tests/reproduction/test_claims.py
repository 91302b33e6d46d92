"""Claims of the paper: what is said of results, and when nothing can be said."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dasp.evaluation import Problem, Result, rmse, spearman
from reproduction.claims import claims, others_on_front, standings
from reproduction.comparison_methods import BACKPROPAGATION, SAMPLING
from reproduction.dna import DNA
from reproduction.experiment import Data, Size
from reproduction.mnist import MNIST
from reproduction.outcome import Outcome
from reproduction.parkinsons import Parkinsons

TRUTH = torch.linspace(0, 1e-9, 18, dtype=torch.float64).expand(2, 18)  # ranks, and next to nothing else


def result(method, evaluations, seconds, error, *, sizes=18, reverse=False):
    """A result with the same error in both rows, or one for each, and a rank correlation of 1 or −1."""
    ranks = TRUTH.flip(1) if reverse else TRUTH
    values = ranks + torch.tensor(error, dtype=torch.float64).reshape(-1, 1)
    errors, correlations = rmse(values, TRUTH), spearman(values, TRUTH)
    return Result(
        method, sizes, evaluations, evaluations // 2, seconds, float(errors.mean()), float(errors.std(correction=0)),
        float(correlations.mean()), 0.0, values,
    )  # fmt: skip


def found_claims(experiment, results, **quality):
    rows = torch.zeros(2, 18)
    data = Data((rows, rows), (rows, rows), [""] * 18, "made up")
    made = Outcome(experiment, data, Size(2, 0, (100,)), Problem(None, {}, TRUTH, 0.0), quality, results, [])
    return claims(made)


BIASED = [result(name, 3, 0.1, 2.0) for name in (*BACKPROPAGATION, "occlusion")]
QUALITY = {"test MAE": 4.4, "test MSE": 33.0}


def claim(found, said):
    (one,) = (claim for claim in found if claim.paper.startswith(said))
    return one


@pytest.mark.parametrize(
    ("samplers", "holds"),
    [
        ([("permutation_shapley", 3000, 0.4), ("shapley_sampling", 5000, 0.6), ("kernel_shap", 5000, 0.9)], True),
        ([("permutation_shapley", 1500, 0.4), ("shapley_sampling", 5000, 0.6), ("kernel_shap", 5000, 0.9)], False),
        ([("permutation_shapley", 3000, 0.4), ("shapley_sampling", 1500, 0.6), ("kernel_shap", 5000, 0.9)], None),
    ],
)
def test_that_sampling_needs_more_is_claimed_only_where_it_was_measured(samplers, holds):
    results = [*BIASED, result("dasp_rank_0", 1000, 1.0, 0.5), *(result(n, e, 1.0, r) for n, e, r in samplers)]
    found = found_claims(Parkinsons(), results, **QUALITY)
    sampling = claim(found, "sampling needs")
    assert sampling.holds is holds
    assert sampling.verdict == {True: "yes", False: "no", None: "not enough evaluations to say"}[holds]
    assert claim(found, "“4.0 test error (MSE)”").holds is False
    assert claim(found, "the authors' notebook: MAE 4.43, MSE 35.06").holds is True
    assert claim(found, "DASP is nearer to the Shapley values than every backpropagation method").holds is True


def test_every_number_of_a_claim_counts():
    for reverse in (False, True):
        ours = result("dasp_rank_0", 1000, 1.0, 0.5, reverse=reverse)
        results = [*BIASED, ours, *(result(name, 3000, 1.0, 0.4) for name in SAMPLING)]
        found = found_claims(Parkinsons(), results, **QUALITY)
        assert claim(found, "the authors' notebook: DASP with K = 18").holds is not reverse


@pytest.mark.parametrize(("sizes", "verdict"), [(3, "not enough evaluations to say"), (16, "no")])
def test_a_figure_that_is_missed_with_fewer_sizes_says_nothing(sizes, verdict):
    results = [
        *BIASED,
        result("dasp_rank_0", 1000, 1.0, 0.5, sizes=sizes),
        *(result(n, 3000, 1.0, 0.4) for n in SAMPLING),
    ]
    found = found_claims(MNIST(), results, **{"test accuracy": 0.99})
    assert claim(found, "the authors' notebook: DASP with K = 16 has RMSE 0.011").verdict == verdict


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ([0.5, 0.6], "yes"),
        ([0.5, 3.0], "not enough rows to say"),
        ([2.5, 9.0], "not enough rows to say"),
        ([3, 4], "no"),
    ],
)
def test_rows_that_disagree_are_too_few(errors, verdict):
    results = [*BIASED, result("dasp_rank_0", 1000, 1.0, errors), *(result(name, 3000, 1.0, 0.1) for name in SAMPLING)]
    found = found_claims(Parkinsons(), results, **QUALITY)
    assert claim(found, "DASP is nearer").verdict == verdict
    assert claim(found, "so it is even when few coalition sizes").verdict == verdict


@pytest.mark.parametrize(
    ("errors", "verdict"), [([0.2, 0.2], "no"), ([0.05, 0.9], "not enough rows to say"), ([1.6, 1.7], "yes")]
)
def test_sampling_is_compared_row_by_row_at_twice_the_evaluations(errors, verdict):
    others = [result(name, 9000, 1.0, 0.1) for name in SAMPLING]
    others += [result("kernel_shap", 2000, 1.0, 0.7), result("shapley_sampling", 2000, 1.0, 0.7)]
    results = [
        *BIASED,
        result("dasp_rank_0", 1000, 1.0, 0.5),
        *others,
        result("permutation_shapley", 1500, 1.0, errors),
    ]
    found = found_claims(Parkinsons(), results, **QUALITY)
    assert claim(found, "sampling needs").verdict == verdict


def test_kernelshap_and_sampling_are_compared_where_both_were():
    both = [result("shapley_sampling", 900, 1.0, 0.5), result("shapley_sampling", 30_000, 1.0, 0.1)]
    for error, holds in ((0.6, True), (0.4, False)):
        results = [*BIASED, result("dasp_rank_0", 1000, 1.0, 0.5), *both, result("kernel_shap", 1000, 1.0, error)]
        found = found_claims(MNIST(), results, **{"test accuracy": 0.99})
        assert claim(found, "KernelSHAP is worse than plain sampling").holds is holds


@pytest.mark.parametrize(
    ("kernel", "verdict"),
    [
        ([(1500, True)], "not enough evaluations to say"),
        ([(1500, True), (2000, True)], "yes"),
        ([(1500, False)], "no"),
    ],
)
def test_ranks_of_kernelshap_and_dasp(kernel, verdict):
    results = [
        *BIASED,
        result("dasp_rank_0", 1000, 1.0, 0.5),
        *(result(name, 3000, 1.0, 0.4) for name in SAMPLING[::2]),
    ]
    results += [result("kernel_shap", number, 1.0, 0.4, reverse=reverse) for number, reverse in kernel]
    found = found_claims(DNA(), results, AUC=0.99)
    assert claim(found, "KernelSHAP requires significantly more").verdict == verdict


def test_points_where_a_peer_is_ahead_are_found():
    ours = [result("dasp_rank_0", 100, 1.0, 0.5), result("gradient_dasp", 500, 2.0, 0.3)]
    peers = [result("peer", 50, 0.1, 0.9), result("fast", 400, 0.9, 0.4), result("slow", 400, 9.0, 0.6)]
    peers.append(replace(result("few", 90, 8.0, 0.2), seconds_alone=0.1))
    ours = [replace(r, seconds_alone=0.5) for r in ours]
    table = standings(ours + peers, [100, 500, 5])
    found = [(s.budget, s.best.method, *([r.method for r in some] for some in (s.quicker, s.fewer))) for s in table]
    assert found == [(100, "dasp_rank_0", ["fast"], ["few"]), (500, "gradient_dasp", [], ["few"])]
    assert [r.method for r in table[0].quicker_alone] == ["few"]
    assert {r.method for r in others_on_front(ours + peers)} == {"peer", "fast", "few"}
