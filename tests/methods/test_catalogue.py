"""The table of methods: one interface, costs, and comparisons against the truth."""

from __future__ import annotations

import copy
import pickle
from inspect import signature

import pytest
import torch
from captum.attr import DeepLift, FeatureAblation, InputXGradient, IntegratedGradients, Saliency
from torch import nn

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    Explainer,
    GradientDASP,
    GradientShapley,
    PermutationShapley,
)
from dasp.errors import BadInput
from dasp.evaluation import Problem, compare, evaluations_to_match, table
from dasp.games.request import Arguments, Request, games
from dasp.methods import GRADIENT, METHODS, Method, MethodOnModel, find


def network(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs)).eval()


NETWORKS = {
    "table": ((18,), nn.Sequential(nn.Linear(18, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 1))),
    "sequence": ((4, 200), nn.Sequential(
        nn.Conv1d(4, 15, 10), nn.ReLU(), nn.MaxPool1d(4), nn.Flatten(), nn.Linear(15 * 47, 2),
    )),
    "picture": ((1, 28, 28), nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 10),
    )),
}  # fmt: skip


# One coalition size of one player already takes more than this for DASP of full rank on many players.
QUICK = {"permutation_shapley": 1, "dasp_rank_0": 1}


@pytest.mark.parametrize("name", NETWORKS)
def test_all_methods_run_on_tables_sequences_and_pictures(name):
    torch.manual_seed(0)
    shape, model = NETWORKS[name]
    model, x, target = model.eval(), torch.rand(2, *shape) * 2 - 1, 0
    groups = torch.arange(200).expand(4, 200) if name == "sequence" else None
    (game,) = games(Arguments(x, feature_mask=groups))
    few = game.count <= 20
    for method, entry in METHODS.items():
        if not few and method in ("exact_shapley", "dasp", "bayesian_shapley_on_dasp", "dasp_rank_0"):
            continue  # for few players only, or for minutes of time
        number = QUICK.get(method, {"max_evaluations": 20, "nodes": 2, "coalition_sizes": 2}.get(entry.samples))
        attributions = entry.on(model, number).attribute(x, target=target, feature_mask=groups)
        assert attributions.shape == x.shape, method
        assert bool(torch.isfinite(attributions).all()), method
        if groups is not None:
            assert torch.equal(attributions[:, 0], attributions[:, 3]), method


@pytest.mark.parametrize("name", METHODS)
def test_linear_models_have_one_answer(name):
    """Proposition 1, through the one interface, with groups and a target."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 3, bias=False)).eval()
    x, groups = torch.randn(2, 6), torch.tensor([0, 1, 1, 2, 3, 4])
    number = {"max_evaluations": 32}.get(METHODS[name].samples)
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


class Counted(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.rows = model, 0

    def forward(self, x):
        self.rows += len(x)
        return self.model(x)


@pytest.mark.parametrize(
    ("name", "number"),
    [("permutation_shapley", 3), ("bayesian_shapley", 24), ("exact_shapley", None)],
)
def test_costs_are_what_is_evaluated(name, number):
    model, x = Counted(network()).eval(), torch.randn(1, 6)
    (game,) = games(Arguments(x))
    METHODS[name].make(model).attribute(x, **({METHODS[name].samples: number} if number else {}))
    cost = METHODS[name].cost(game, number)
    most = cost + 9 + cost // 100  # both ends, where the method does not need them, and some to check the model
    assert cost <= model.rows <= most


def test_costs_of_propagation():
    (game,) = games(Arguments(torch.randn(1, 6)))
    assert METHODS["dasp_rank_0"].cost(game, 5) == 5 * 6 * 2 * 2
    assert METHODS["dasp_rank_0"].paper_cost(game, 5) == 5 * 6 * 2
    assert METHODS["dasp"].cost(game, 6) == 6 * 6 * 2 * (2 + 6)
    assert METHODS["gradient_dasp_rank_0"].cost(game, 8) == 8 * 3 * 2
    assert METHODS["gradient_dasp"].cost(game, 8) == 8 * 3 * (2 + 6)
    assert METHODS["bayesian_shapley_on_gradient_dasp"].cost(game, 10) == 8 * 3 * (2 + 6) + 10
    assert METHODS["dasp_rank_0"].number(game, 10**6) == 6
    assert METHODS["dasp_rank_0"].number(game, 10) is None


def test_comparison():
    model = network()
    problem = Problem.of(model, torch.randn(4, 6))
    assert problem.standard_error == 0
    torch.testing.assert_close(problem.truth, ExactShapley(model).attribute(problem.arguments["inputs"]).double())
    seen = []
    gradients = {"gradients": Method("Gradient×Input", InputXGradient, fixed=lambda _: GRADIENT)}
    methods = gradients | {name: METHODS[name] for name in ("permutation_shapley", "exact_shapley")}
    results = compare(problem, methods, budgets=(12, 13, 102), on_result=seen.append)
    assert seen == results
    assert [(r.method, r.number, r.evaluations) for r in results] == [
        ("gradients", None, 3),
        ("permutation_shapley", 1, 12),
        ("permutation_shapley", 10, 102),
        ("exact_shapley", None, 64),
    ]
    assert results[-1].rmse < 1e-6
    assert results[-1].spearman == pytest.approx(1)
    assert results[2].rmse < results[1].rmse < results[0].rmse
    assert all(min(r.seconds, r.seconds_alone, r.seconds_first) > 0 for r in results)
    assert evaluations_to_match(results, "permutation_shapley", results[1].rmse) == 12
    assert evaluations_to_match(results, "permutation_shapley", results[2].rmse) == 102
    assert evaluations_to_match(results, "permutation_shapley", 0.0) is None
    lines = table(results, 0.5).splitlines()
    assert len(lines) == 6
    assert "standard error of the truth 0.5" in lines[-1]


def test_comparisons_leave_out_what_is_impossible():
    model = nn.Sequential(nn.Linear(30, 1)).eval()
    problem = Problem.of(model, torch.rand(2, 30), permutations=5)
    assert [
        r.method for r in compare(problem, ["deeplift_mixed", "exact_shapley", "bayesian_shapley"], budgets=[5])
    ] == ["deeplift_mixed"]


@pytest.mark.parametrize("target", [torch.tensor(1), [1, 0, 2, 1], 1])
def test_comparisons_with_any_arguments(target):
    x, groups = torch.rand(4, 6), torch.tensor([[0, 0, 1, 1, 2, 2]]).repeat(4, 1)
    problem = Problem.of(network(3), x, torch.rand(5, 6), target, groups)
    results = compare(problem, ["deeplift_mixed", "permutation_shapley", "dasp_rank_0", "exact_shapley"], budgets=[100])
    assert [r.evaluations for r in results if r.method in ("permutation_shapley", "exact_shapley")] == [5 * 18, 5 * 8]
    assert results[-1].rmse < 1e-6


def test_rows_without_any_difference_do_not_spoil_the_rank_correlation():
    x = torch.cat([torch.rand(3, 6), torch.zeros(1, 6)])
    (result,) = compare(Problem.of(network(), x), ["exact_shapley"])
    assert result.spearman == pytest.approx(1)


@pytest.mark.parametrize("name", METHODS)
def test_one_output_column_counts_as_a_scalar_for_all(name):
    number = {"max_evaluations": 20}.get(METHODS[name].samples)
    assert METHODS[name].on(network(), number).attribute(torch.rand(2, 6)).shape == (2, 6)


@pytest.mark.parametrize("name", ["exact_shapley", "permutation_shapley", "bayesian_shapley"])
def test_all_outputs_cost_no_more_than_one(name):
    model, x = Counted(network(3)).eval(), torch.rand(1, 6)
    method = METHODS[name].on(model, {"bayesian_shapley": 20}.get(name))
    method.attribute(x)  # of a model that has passed, fewer rows are evaluated again
    model.rows = 0
    method.attribute(x, target=0)
    one, model.rows = model.rows, 0
    method.attribute(x)
    assert abs(model.rows - one) <= 1 + one / 50  # a hundredth is evaluated again, of all calls together


def test_gradients_of_integers():
    embedding = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 1)).eval()
    with pytest.raises(TypeError, match="gradients need floating-point inputs, not torch.int64"):
        Method("Saliency", Saliency).on(embedding).attribute(torch.ones(2, 4, dtype=torch.int64))


def test_cost_of_samples_needs_their_number():
    (game,) = games(Arguments(torch.randn(1, 6)))
    with pytest.raises(ValueError, match="depends on coalition_sizes"):
        METHODS["dasp_rank_0"].cost(game)
    with pytest.raises(ValueError, match="no samples"):
        METHODS["exact_shapley"].cost(game, 3)


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


ESTIMATORS = (
    DASP, BayesianShapley, DeepLiftRevealCancel, ExactShapley, GradientDASP, GradientShapley, PermutationShapley,
)  # fmt: skip


def test_every_estimator_of_the_package_is_in_the_table():
    assert {type(method.make(network())) for method in METHODS.values()} == set(ESTIMATORS)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_both_entrances_of_an_estimator_have_the_same_options(estimator):
    """Captum's names are the first of `attribute`, and its options are those of `explain`, with the same defaults."""
    parameters = signature(estimator.attribute).parameters
    names = ["self", "inputs", "baselines", "target", "additional_forward_args", "feature_mask"]
    assert list(parameters)[:6] == names
    assert all(each.kind is each.KEYWORD_ONLY for each in list(parameters.values())[6:])
    others = {"n_samples", "perturbations_per_eval"}  # Captum's names of options
    own = [name for name in list(parameters)[6:] if not name.startswith("return_") and name not in others]
    options = {name: parameters[name].default for name in own}
    assert options == estimator.options()
    assert all(name in estimator.attribute.__doc__ for name in list(parameters)[6:])


@pytest.mark.parametrize("name", [name for name in METHODS if "on" not in name.split("_")])
def test_what_a_method_says_it_costs_is_what_it_counts(name):
    """For inputs without idle players, of which estimates take no notice."""
    method, x = METHODS[name], torch.randn(2, 6)
    for background in (None, torch.randn(3, 6)):
        request = Request.of(network(), Arguments(x, background, background=background is not None))
        number = {"max_evaluations": 30, "n_pairs": 24, "nodes": 5, "coalition_sizes": 4, "n_permutations": 3}.get(
            method.samples
        )
        found = method.on(network(), number).explain(request)
        assert found.evaluations.tolist() == [method.cost(request.games[0], number)] * 2


def test_methods_are_found_by_identifiers_names_and_short_names():
    for identifier, method in METHODS.items():
        for text in (identifier, identifier.upper(), method.name, method.name.lower()):
            assert find(text) == identifier
    assert [find(name) for name in ("exact", "dasp", "gradient", "bayesian", "permutation")] == [
        "exact_shapley", "dasp", "gradient_dasp", "bayesian_shapley", "permutation_shapley",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="no method 'bayesian shaply': did you mean bayesian_shapley"):
        find("bayesian shaply")
    with pytest.raises(BadInput, match="no method 'xyz'; there are auto, exact, .*, deeplift_mixed"):
        find("xyz")


def test_methods_of_others_have_the_costs_that_are_given():
    (game,) = games(Arguments(torch.randn(1, 6)))
    method = Method(
        "Integrated Gradients", IntegratedGradients, samples="n_steps", each=lambda _: GRADIENT, most=lambda _: 300
    )
    assert (method.number(game, 31), method.number(game, 10**6), method.cost(game, 10)) == (10, 300, 30)
    options = {"perturbations_per_eval": 6}
    occlusion = Method("Occlusion", FeatureAblation, fixed=lambda game: game.count + 1, options=options)
    model, x = Counted(network()).eval(), torch.randn(1, 6)
    occlusion.on(model).attribute(x)
    assert occlusion.cost(game) <= model.rows <= occlusion.cost(game) + 9
    with pytest.raises(ValueError, match="no samples"):
        occlusion.cost(game, 3)


def _answer(method, x):
    torch.manual_seed(0)
    answer = method.attribute(x, target=0)
    return answer if isinstance(answer, torch.Tensor) else answer.values


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
