"""Today's libraries behind our interface: right, reproducible, silent, and as expensive as they say."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from dasp import ExactShapley
from dasp.games.request import Arguments, Request, games
from reproduction.comparison_methods import COMPARISON_METHODS
from reproduction.dna import DNA, LENGTH, generate
from reproduction.mnist import lenet
from reproduction.peers import PEERS, kadd_order

PLAYERS = 8
GRADIENTS = ("shap_deep_explainer", "shap_gradient_explainer", "captum_deeplift", "captum_integrated_gradients")
SAMPLERS = tuple(name for name in PEERS if name not in GRADIENTS)
EXACT_IN_THE_END = (
    "shap_kernel_explainer", "shapiq_kernel_shap", "shapiq_leverage_shap", "shapiq_kadd", "shapiq_svarm",
)  # fmt: skip
LIBRARIES = tuple(name for name in SAMPLERS if not name.startswith("captum"))


@pytest.fixture(scope="module")
def problem():
    """A small network that has learned something with interactions, two rows and a baseline that is not 0."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(PLAYERS, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2))
    x = torch.randn(512, PLAYERS)
    y = torch.stack([x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3].relu(), x[:, 4:].max(1).values], 1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.zero_grad()
    return model.eval(), {"inputs": x[:2], "baselines": torch.full((1, PLAYERS), 0.3), "target": [1, 0]}


def number(name, x, budget, mask=None):
    (game,) = games(Arguments(x, feature_mask=mask))
    return PEERS[name].number(game, budget)


def error(name, model, arguments, budget, **options):
    """Root mean square over rows, players and three seeds."""
    truth = ExactShapley(model).attribute(**arguments)
    found = number(name, arguments["inputs"], budget, arguments.get("feature_mask"))
    total = 0.0
    for seed in range(3):
        seeded = replace(PEERS[name], options={**PEERS[name].options, "seed": seed, **options})
        method = seeded.on(model, found)
        total += float((method.attribute(**arguments) - truth).square().mean())
    return (total / 3) ** 0.5 / float(truth.square().mean().sqrt())


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_converge(problem, name):
    model, arguments = problem
    few, many = (error(name, model, arguments, budget) for budget in (40, 2000))
    assert many < 0.07, many
    assert many < few / 3


@pytest.mark.parametrize("name", EXACT_IN_THE_END)
def test_all_coalitions_give_the_exact_values(problem, name):
    model, arguments = problem
    assert error(name, model, arguments, 2**PLAYERS) < 1e-4  # float32; shapiq holds v(∅) and v(N) by large weights


def test_deep_explainer_is_deep_lift(problem):
    model, arguments = problem
    for network, given in (
        (model, arguments),
        (DNA().network(None).eval(), {"inputs": generate(3).one_hot, "target": [0, 2, 1]}),
    ):
        ours, theirs = (
            PEERS[name].on(network).attribute(**given) for name in ("shap_deep_explainer", "captum_deeplift")
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_deep_explainer_adds_up_through_max_pooling():
    """Where values differ from Captum's, which ascribes what passes a MaxPool otherwise."""
    torch.manual_seed(0)
    model, x = lenet().eval(), torch.rand(2, 1, 28, 28)
    total = PEERS["shap_deep_explainer"].on(model).attribute(x, target=3).sum((1, 2, 3))
    with torch.no_grad():
        torch.testing.assert_close(total, (model(x) - model(0 * x))[:, 3], rtol=1e-4, atol=1e-5)


def test_gradient_explainer_is_integrated_gradients_within_its_sampling_error(problem):
    model, arguments = problem
    exact = PEERS["captum_integrated_gradients"].on(model, 300).attribute(**arguments)
    distances = [
        float((PEERS["shap_gradient_explainer"].on(model, n).attribute(**arguments) - exact).square().mean().sqrt())
        for n in (30, 2000)
    ]
    scale = float(exact.square().mean().sqrt())
    assert distances[1] < 0.05 * scale
    assert distances[1] < distances[0] / 2


@pytest.mark.parametrize("name", PEERS)
def test_the_same_twice_in_silence_and_the_model_as_before(problem, name, capfd):
    model, arguments = problem
    model.train()
    try:
        state = {key: value.clone() for key, value in model.state_dict().items()}
        attributes = [set(vars(module)) for module in model.modules()]
        method = PEERS[name].on(model, number(name, arguments["inputs"], 60))
        torch.manual_seed(3)
        np.random.seed(3)  # noqa: NPY002
        first = method.attribute(**arguments)
        assert np.random.rand() == np.random.RandomState(3).rand()  # noqa: NPY002 (left where it was)
        assert torch.equal(torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(3)))
        torch.manual_seed(4)
        assert torch.equal(first, method.attribute(**arguments))
        assert capfd.readouterr() == ("", "")
        assert model.training
        assert all(module.training for module in model.modules())
        assert attributes == [set(vars(module)) for module in model.modules()]
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
        assert state.keys() == model.state_dict().keys()
        assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())
        assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())
    finally:
        model.eval()


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("budget", [60, 150, 250])
def test_costs_are_what_is_evaluated(problem, name, budget):
    model, arguments = problem
    x = arguments["inputs"][:1]
    (game,) = games(Arguments(x))
    samples = number(name, x, budget)
    cost, seen = PEERS[name].cost(game, samples), []
    handle = model.register_forward_hook(lambda _, given, output: seen.append(len(given[0])))
    PEERS[name].make(model).attribute(x, arguments["baselines"], 1, number=samples)
    handle.remove()
    assert cost <= budget
    # KernelExplainer stops drawing when most coalitions are known already, near all 2^N
    assert sum(seen) == cost or (name == "shap_kernel_explainer" and budget == 250 and cost - 10 <= sum(seen) <= cost)


@pytest.mark.parametrize("name", ["captum_shapley_sampling", "captum_kernel_shap"])
def test_costs_of_captum(problem, name):
    model, arguments = problem
    (game,) = games(Arguments(arguments["inputs"]))
    method, samples, seen = PEERS[name], number(name, arguments["inputs"], 100), []
    handle = model.register_forward_hook(lambda _, given, output: seen.append(len(given[0])))
    method.make(model).attribute(arguments["inputs"][:1], target=1, n_samples=samples, **method.options)
    handle.remove()
    assert sum(seen) == method.cost(game, samples) <= 100


@pytest.mark.parametrize("name", PEERS)
def test_no_budget_is_exceeded(name):
    for shape, mask in (((1, PLAYERS), None), ((1, 18), None), ((1, 4, 200), torch.arange(200)), ((1, 784), None)):
        (game,) = games(Arguments(torch.ones(shape), feature_mask=mask))
        for budget in (5, 30, 300, 3000, 30_000):
            samples = PEERS[name].number(game, budget)
            assert samples is None or PEERS[name].cost(game, samples) <= budget


@pytest.mark.parametrize("name", PEERS)
def test_groups_targets_and_rows(problem, name):
    """Each row and target by itself gives the same; a group has one value, the sum for methods without groups."""
    model, arguments = problem
    groups = torch.tensor([0, 1, 1, 2, 3, 4, 0, 5])
    samples = number(name, arguments["inputs"], 60, groups)
    method = PEERS[name].on(model, samples)
    together = method.attribute(**arguments, feature_mask=groups)
    assert torch.equal(together[:, 0], together[:, 6])
    assert torch.equal(together[:, 1], together[:, 2])
    if name != "captum_kernel_shap":  # which draws on for the next row
        for i, target in enumerate(arguments["target"]):
            given = {"inputs": arguments["inputs"][i : i + 1], "baselines": arguments["baselines"], "target": target}
            alone = method.attribute(**given, feature_mask=groups)
            torch.testing.assert_close(alone, together[i : i + 1], rtol=1e-4, atol=1e-5)
    if name in EXACT_IN_THE_END:
        assert error(name, model, {**arguments, "feature_mask": groups}, 2**6) < 1e-4


@pytest.mark.parametrize("name", LIBRARIES)
def test_positions_of_dna_are_players(name):
    torch.manual_seed(0)
    model, x, groups = DNA().network(None).eval(), generate(1).one_hot, torch.arange(LENGTH).expand(4, LENGTH)
    arguments = {"inputs": x, "baselines": None, "target": 1, "feature_mask": groups}
    request = Request.of(model, Arguments.given(**arguments))
    if not PEERS[name].possible(request.games[0]):
        assert name in ("shapiq_kadd", "shapiq_svarm")
        return
    attributions = PEERS[name].on(model, number(name, x, 650, groups)).attribute(**arguments)
    assert all(torch.equal(attributions[:, 0], attributions[:, i]) for i in (1, 2, 3))
    assert float(attributions[:, 0].sum()) == pytest.approx(float(request.full - request.empty), abs=1e-5)


def test_players_at_the_baseline_are_skipped(problem):
    model, arguments = problem
    x = arguments["inputs"].clone()
    x[:, 2:] = 0.3
    for name in ("shap_kernel_explainer", "shap_permutation_explainer"):
        given = {**arguments, "inputs": x}
        values = PEERS[name].on(model, number(name, x, 60)).attribute(**given)
        torch.testing.assert_close(values, ExactShapley(model).attribute(**given), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", EXACT_IN_THE_END)
def test_backgrounds_and_baselines_of_rows(problem, name):
    model, arguments = problem
    torch.manual_seed(0)
    for rows in (2, 3):  # one for each, or a background
        assert error(name, model, {**arguments, "baselines": torch.randn(rows, PLAYERS)}, rows * 2**PLAYERS) < 1e-4


@pytest.mark.parametrize("name", ["shap_deep_explainer", "shap_gradient_explainer"])
def test_what_gradient_explainers_refuse(problem, name):
    model, arguments = problem
    method = PEERS[name].on(model, number(name, arguments["inputs"], 60))
    for rows in (2, 3):  # one for each, or a background
        with pytest.raises(ValueError, match="same baseline"):
            method.attribute(arguments["inputs"], torch.randn(rows, PLAYERS), 0)
    with pytest.raises(TypeError, match="one input tensor"):
        method.method.attribute((arguments["inputs"],), target=0)


def test_float64_is_explained_in_float64(problem):
    model, arguments = problem
    try:
        model.double()
        given = {**arguments, "inputs": arguments["inputs"].double(), "baselines": arguments["baselines"].double()}
        for name in PEERS:
            values = PEERS[name].on(model, number(name, given["inputs"], 60)).attribute(**given)
            assert values.dtype == torch.float64, name
    finally:
        model.float()


def test_tables():
    assert PEERS["captum_deeplift"].make is COMPARISON_METHODS["deeplift_rescale"].make
    assert [kadd_order(18, budget) for budget in (300, 2501, 2502)] == [2, 2, 3]
    assert kadd_order(60, 10**6) == 2
    assert all(re.fullmatch("[a-z0-9_]+", identifier) and peer.name for identifier, peer in PEERS.items())
