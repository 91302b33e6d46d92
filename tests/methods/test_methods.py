"""The table of methods: one interface, costs, and comparisons against the truth."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from captum.attr import DeepLift, FeatureAblation, InputXGradient
from torch import nn

from dasp import DASP, BayesianShapley, ExactShapley, Explainer, GradientDASP, PermutationShapley
from dasp.evaluation import Problem, Result, compare, evaluations_to_match, table
from dasp.games.arguments import Arguments, games
from dasp.methods import METHODS, MethodOnModel
from dasp.methods.lrp import EpsilonLRP
from dasp.paper.experiment import Data
from dasp.paper.mnist import lenet
from dasp.paper.reproduce import EXPERIMENTS


def network(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs)).eval()


def experiment(name):
    """Untrained networks of the paper's experiments with two rows, an output and the players."""
    torch.manual_seed(0)
    shape = {"parkinsons": (18,), "dna": (4, 200), "mnist": (1, 28, 28)}[name]
    rows = torch.rand(2, *shape) * 2 - 1
    data = Data((rows, torch.zeros(2)), (rows, torch.zeros(2)), ["player"] * shape[-1], "random")
    groups = torch.arange(200).expand(4, 200) if name == "dna" else None
    return EXPERIMENTS[name].network(data).eval(), rows, 0, groups


# Few evaluations; one coalition size of one player already takes more than this for DASP of full rank on many players.
QUICK = {"Shapley sampling": 1, "KernelSHAP": 30, "Permutations": 1, "Integrated Gradients": 5, "DASP": 1}


@pytest.mark.parametrize("name", ["parkinsons", "dna", "mnist"])
def test_all_methods_run_on_the_networks_of_the_experiments(name):
    model, x, target, groups = experiment(name)
    (game,) = games(Arguments(x, feature_mask=groups))
    few = game.count <= 20
    for method, entry in METHODS.items():
        if not few and method in ("Exact", "DASP, full rank", "BayesianShapley on DASP", "KernelSHAP", "DASP"):
            continue  # for few players only, or for minutes of time
        number = QUICK.get(method, {"max_evaluations": 20, "nodes": 2, "coalition_sizes": 2}.get(entry.samples))
        attributions = entry.on(model, number).attribute(x, target=target, feature_mask=groups)
        assert attributions.shape == x.shape, method
        assert bool(torch.isfinite(attributions).all()), method
        if groups is not None:
            assert torch.equal(attributions[:, 0], attributions[:, 3]), method


@pytest.mark.parametrize("name", METHODS)
def test_linear_models_have_one_answer(name):
    """Proposition 1, through the one interface, with groups and a target (Saliency knows no inputs)."""
    if name == "Saliency":
        pytest.skip("the gradient's size is not a contribution")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).eval()
    x, groups = torch.randn(2, 6), torch.tensor([0, 1, 1, 2, 3, 4])
    number = {"KernelSHAP": 60, "max_evaluations": 32}.get(METHODS[name].samples if "Bayes" in name else name)
    attributions = METHODS[name].on(model, number).attribute(x, target=2, feature_mask=groups)
    wanted = ExactShapley(model).attribute(x, target=2, feature_mask=groups)
    torch.testing.assert_close(attributions, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", [InputXGradient, DeepLift, FeatureAblation, DASP])
def test_all_outputs_at_once(method):
    model, x = network(3), torch.randn(2, 6)
    everything = MethodOnModel(method(model)).attribute(x)
    for target in range(3):
        torch.testing.assert_close(everything[:, target], MethodOnModel(method(model)).attribute(x, target=target))


def test_groups_of_rows_and_sums_of_entries():
    model, x = network(), torch.randn(2, 6)
    masks = torch.tensor([[0, 0, 1, 1, 2, 2], [0, 1, 2, 2, 2, 2]])
    values = MethodOnModel(InputXGradient(model)).attribute(x, feature_mask=masks)
    entries = MethodOnModel(InputXGradient(model)).attribute(x)
    torch.testing.assert_close(values[0, 0], entries[0, :2].sum())
    torch.testing.assert_close(values[1, 5], entries[1, 2:].sum())
    own = MethodOnModel(FeatureAblation(model)).attribute(x, feature_mask=masks)
    alone = MethodOnModel(FeatureAblation(model)).attribute(x[1:], feature_mask=masks[1])
    torch.testing.assert_close(own[1:], alone)


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


@pytest.mark.parametrize(
    ("name", "number"),
    [("Occlusion", None), ("Shapley sampling", 4), ("Permutations", 3), ("BayesianShapley", 24), ("Exact", None)],
)
def test_costs_are_what_is_evaluated(name, number):
    model, x = Counted(network()).eval(), torch.randn(1, 6)
    (game,) = games(Arguments(x))
    METHODS[name].make(model).attribute(x, **({METHODS[name].samples: number} if number else {}))
    cost = METHODS[name].cost(game, number)
    assert cost <= model.rows <= cost + 6  # both ends, where the method does not need them, and four to check the model


def test_costs_of_propagation():
    (game,) = games(Arguments(torch.randn(1, 6)))
    assert METHODS["DASP"].cost(game, 5) == 5 * 6 * 2 * 2
    assert METHODS["DASP"].paper_cost(game, 5) == 5 * 6 * 2
    assert METHODS["DASP, full rank"].cost(game, 6) == 6 * 6 * 2 * (2 + 6)
    assert METHODS["GradientDASP, rank 0"].cost(game, 8) == 8 * 3 * 2
    assert METHODS["GradientDASP"].cost(game, 8) == 8 * 3 * (2 + 6)
    assert METHODS["BayesianShapley on GradientDASP"].cost(game, 10) == 8 * 3 * (2 + 6) + 10
    assert METHODS["DASP"].number(game, 10**6) == 6
    assert METHODS["DASP"].number(game, 10) is None


def test_comparison():
    model = network()
    problem = Problem.of(model, torch.randn(4, 6))
    assert problem.standard_error == 0
    torch.testing.assert_close(problem.truth, ExactShapley(model).attribute(problem.arguments["inputs"]).double())
    seen = []
    results = compare(
        problem, ["Gradient×Input", "Permutations", "Exact"], budgets=(12, 13, 102), on_result=seen.append
    )
    assert seen == results
    assert [(r.method, r.number, r.evaluations) for r in results] == [
        ("Gradient×Input", None, 3),
        ("Permutations", 1, 12),
        ("Permutations", 10, 102),
        ("Exact", None, 64),
    ]
    assert results[-1].rmse < 1e-6
    assert results[-1].spearman == pytest.approx(1)
    assert results[2].rmse < results[1].rmse < results[0].rmse
    assert all(min(r.seconds, r.seconds_alone, r.seconds_first) > 0 for r in results)
    assert evaluations_to_match(results, "Permutations", results[1].rmse) == 12
    assert evaluations_to_match(results, "Permutations", results[2].rmse) == 102
    assert evaluations_to_match(results, "Permutations", 0.0) is None
    lines = table(results, 0.5).splitlines()
    assert len(lines) == 6
    assert "standard error of the truth 0.5" in lines[-1]


def test_comparisons_leave_out_what_is_impossible():
    model = nn.Sequential(nn.Linear(30, 1)).eval()
    problem = Problem.of(model, torch.rand(2, 30), permutations=5)
    assert [r.method for r in compare(problem, ["Occlusion", "Exact", "BayesianShapley"], budgets=[5])] == ["Occlusion"]


@pytest.mark.parametrize("target", [torch.tensor(1), [1, 0, 2, 1], 1])
def test_comparisons_with_any_arguments(target):
    x, groups = torch.rand(4, 6), torch.tensor([[0, 0, 1, 1, 2, 2]]).repeat(4, 1)
    problem = Problem.of(network(3), x, torch.rand(5, 6), target, groups)
    results = compare(problem, ["Gradient×Input", "Shapley sampling", "Permutations", "DASP", "Exact"], budgets=[100])
    assert [r.evaluations for r in results if r.method in ("Permutations", "Exact")] == [5 * 18, 5 * 8]
    assert results[-1].rmse < 1e-6


def test_rows_without_any_difference_do_not_spoil_the_rank_correlation():
    x = torch.cat([torch.rand(3, 6), torch.zeros(1, 6)])
    (result,) = compare(Problem.of(network(), x), ["Exact"])
    assert result.spearman == pytest.approx(1)


@pytest.mark.parametrize("name", METHODS)
def test_one_output_column_counts_as_a_scalar_for_all(name):
    number = {"max_evaluations": 20, "n_samples": 3}.get(METHODS[name].samples)
    assert METHODS[name].on(network(), number).attribute(torch.rand(2, 6)).shape == (2, 6)


@pytest.mark.parametrize("name", ["Exact", "Permutations", "BayesianShapley"])
def test_all_outputs_cost_no_more_than_one(name):
    model, x = Counted(network(3)).eval(), torch.rand(1, 6)
    method = METHODS[name].on(model, {"BayesianShapley": 20}.get(name))
    method.attribute(x, target=0)
    one, model.rows = model.rows, 0
    method.attribute(x)
    assert model.rows == one


def test_gradients_of_integers():
    embedding = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 1)).eval()
    with pytest.raises(TypeError, match="gradients need floating-point inputs, not torch.int64"):
        METHODS["Saliency"].on(embedding).attribute(torch.ones(2, 4, dtype=torch.int64))


def test_cost_of_samples_needs_their_number():
    (game,) = games(Arguments(torch.randn(1, 6)))
    with pytest.raises(ValueError, match="depends on coalition_sizes"):
        METHODS["DASP"].cost(game)
    with pytest.raises(ValueError, match="no samples"):
        METHODS["Occlusion"].cost(game, 3)


def test_sampled_truth_has_its_standard_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(22, 16), nn.ReLU(), nn.Linear(16, 2)).double().eval()
    x = torch.randn(2, 22).double()
    few, many = (Problem.of(model, x, target=[1, 0], permutations=n) for n in (50, 800))
    difference = (few.truth - many.truth).square().mean().sqrt()
    assert 0.5 < float(difference) / few.standard_error < 2
    assert many.standard_error < few.standard_error / 3


def test_comparisons_are_of_one_output():
    with pytest.raises(ValueError, match="one output"):
        Problem.of(network(3), torch.randn(2, 6))


def test_every_method_of_the_package_is_in_the_table():
    made = {type(method.make(network())) for method in METHODS.values()}
    assert {DASP, GradientDASP, BayesianShapley, PermutationShapley, ExactShapley} <= made
    assert Result.__doc__


def _answer(method, x):
    torch.manual_seed(0)
    answer = method.attribute(x, target=0)
    return answer if isinstance(answer, torch.Tensor) else answer.values


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("name", METHODS)
def test_used_methods_can_be_pickled_and_copied(name):
    model, x = network(2), torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    for method in (METHODS[name].on(model), Explainer(model, method=name)):  # the first has the method itself within
        wanted = _answer(method, x)
        for copied in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
            assert torch.equal(_answer(copied, x), wanted)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, about its own pytrees
def test_used_methods_on_programs_can_be_pickled_and_copied():
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(network(2), (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    for method in (GradientDASP(program), Explainer(program), Explainer(network(2), background=x)):
        wanted = _answer(method, x)
        for copied in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
            assert torch.equal(_answer(copied, x), wanted)
