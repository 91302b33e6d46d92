"""The methods of the comparison: one interface, their costs, and answers that are known."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch
from torch import nn

from dasp import ExactShapley
from dasp.evaluation import Problem, compare
from reproduction.comparison_methods import (
    BACKPROPAGATION,
    COMPARED,
    COMPARISON_METHODS,
    OURS,
    SAMPLING,
    EpsilonLRP,
    display_name,
)
from reproduction.demo import EXPERIMENTS
from reproduction.experiment import Data
from reproduction.mnist import lenet


def network(outputs=1):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs)).eval()


def experiment(name):
    """An untrained network of one of the paper's experiments with two rows, an output and the players."""
    torch.manual_seed(0)
    shape = {"parkinsons": (18,), "dna": (4, 200), "mnist": (1, 28, 28)}[name]
    rows = torch.rand(2, *shape) * 2 - 1
    data = Data((rows, torch.zeros(2)), (rows, torch.zeros(2)), ["player"] * shape[-1], "random")
    groups = torch.arange(200).expand(4, 200) if name == "dna" else None
    return EXPERIMENTS[name].network(data).eval(), rows, 0, groups


# Few evaluations, as a coalition size of DASP takes many of them.
QUICK = {
    "shapley_sampling": 1, "kernel_shap": 30, "permutation_shapley": 1, "integrated_gradients": 5, "dasp_rank_0": 1,
}  # fmt: skip
FEW_PLAYERS = ("exact_shapley", "dasp", "bayesian_shapley_on_dasp", "kernel_shap", "dasp_rank_0")  # else minutes


@pytest.mark.parametrize("name", ["parkinsons", "dna", "mnist"])
def test_all_methods_run_on_the_networks_of_the_experiments(name):
    model, x, target, groups = experiment(name)
    for method, entry in COMPARED.items():
        if name != "parkinsons" and method in FEW_PLAYERS:
            continue
        number = QUICK.get(method, {"max_evaluations": 20, "nodes": 2, "coalition_sizes": 2}.get(entry.samples))
        attributions = entry.on(model, number).attribute(x, target=target, feature_mask=groups)
        assert attributions.shape == x.shape, method
        assert bool(torch.isfinite(attributions).all()), method
        if groups is not None:
            assert torch.equal(attributions[:, 0], attributions[:, 3]), method


@pytest.mark.parametrize("name", sorted(COMPARISON_METHODS.keys() - {"saliency"}))  # whose size is no contribution
def test_linear_models_have_one_answer(name):
    """Proposition 1, through the one interface, with groups and a target."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).eval()
    x, groups = torch.randn(2, 6), torch.tensor([0, 1, 1, 2, 3, 4])
    method = COMPARISON_METHODS[name].on(model, {"kernel_shap": 60}.get(name))
    wanted = ExactShapley(model).attribute(x, target=2, feature_mask=groups)
    torch.testing.assert_close(method.attribute(x, target=2, feature_mask=groups), wanted, rtol=1e-3, atol=1e-4)


def test_epsilon_lrp_leaves_the_model_alone_and_can_be_repeated():
    model, x = lenet().eval(), torch.rand(2, 1, 28, 28, requires_grad=True)
    names = {name for module in model.modules() for name in vars(module)}
    method = EpsilonLRP(model)
    first, second = (method.attribute(x, target=1) for _ in range(2))
    assert torch.equal(first, second)
    assert {name for module in model.modules() for name in vars(module)} == names


class Counted(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, x):
        self.rows += len(x)
        return self.model(x)


@pytest.mark.parametrize(("name", "budget"), [("occlusion", 7), ("shapley_sampling", 25), ("kernel_shap", 30)])
def test_costs_are_what_is_evaluated(name, budget):
    x = torch.randn(1, 6)
    (result,) = compare(Problem.of(network(), x), {name: COMPARISON_METHODS[name]}, [budget])
    model = Counted(network()).eval()
    options = {COMPARISON_METHODS[name].samples: result.number} if result.number else {}
    COMPARISON_METHODS[name].make(model).attribute(x, **options)
    assert result.evaluations == budget
    assert budget <= model.rows <= budget + 2  # both ends, where the method does not count them


@pytest.mark.parametrize("name", COMPARISON_METHODS)
def test_one_output_column_counts_as_a_scalar(name):
    number = 3 if COMPARISON_METHODS[name].samples else None
    assert COMPARISON_METHODS[name].on(network(), number).attribute(torch.rand(2, 6)).shape == (2, 6)


def test_gradients_of_integers():
    embedding = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 1)).eval()
    with pytest.raises(TypeError, match="gradients need floating-point inputs, not torch.int64"):
        COMPARISON_METHODS["saliency"].on(embedding).attribute(torch.ones(2, 4, dtype=torch.int64))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("name", COMPARISON_METHODS)
def test_used_methods_can_be_pickled_and_copied(name):
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))

    def answer(method):
        torch.manual_seed(0)
        return method.attribute(x, target=0)

    method = COMPARISON_METHODS[name].on(network(2))
    wanted = answer(method)
    for copied in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert torch.equal(answer(copied), wanted)


def test_identifiers_are_plain_and_names_are_for_people():
    assert {*BACKPROPAGATION, *SAMPLING, *OURS} <= COMPARED.keys()
    for identifier, method in COMPARED.items():
        assert re.fullmatch("[a-z0-9_]+", identifier)
        assert display_name(identifier) == method.name != identifier
    assert display_name("somebody's") == "somebody's"
