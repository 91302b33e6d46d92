"""The probabilistic network: traced once, called often."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from dasp import Gaussian, ProbabilisticNetwork, UnsupportedOperation, propagate, rule
from dasp.propagation import graph_cache
from dasp.propagation.rules import RULES


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double().eval()


@pytest.fixture
def traces(monkeypatch):
    """How often a model was traced."""
    made = []

    def counted(*args, **kwargs):
        made.append(args[0])
        return trace(*args, **kwargs)

    trace = graph_cache.trace
    monkeypatch.setattr(graph_cache, "trace", counted)
    return made


def rows(number: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(number, 4, generator=generator).double(), torch.rand(number, 4, generator=generator).double()


@pytest.mark.parametrize("rank", [0, 2, "full"])
def test_both_ways_are_the_same_and_trace_once(traces, rank):
    model = small()
    network = ProbabilisticNetwork(model, rank=rank)
    for number in (5, 1, 3):
        mean, variance = rows(number)
        ours, theirs = network(mean, variance), propagate(model, mean, variance, rank=rank)
        torch.testing.assert_close(ours.mean, theirs.mean)
        torch.testing.assert_close(ours.total_variance, theirs.total_variance)
    assert len(traces) == 1


def test_a_linear_network_is_exact():
    model = nn.Linear(4, 3).double().eval()
    mean, variance = rows()
    full = ProbabilisticNetwork(model, rank="full")(mean, variance)
    torch.testing.assert_close(full.mean, model(mean))
    torch.testing.assert_close(full.total_variance, variance @ model.weight.square().T)
    covariance = torch.einsum("oi,bi,pi->bop", model.weight, variance, model.weight)
    torch.testing.assert_close(torch.einsum("rbo,rbp->bop", full.factors, full.factors), covariance)


def test_a_gaussian_with_factors_goes_through():
    model = nn.Linear(4, 3).double().eval()
    mean, variance = rows()
    shared = torch.randn(2, 5, 4).double()
    for rank in (0, "full"):
        output = ProbabilisticNetwork(model, rank=rank)(Gaussian(mean, variance, shared))
        wanted = (variance @ model.weight.square().T) + (shared @ model.weight.T).square().sum(0)
        torch.testing.assert_close(output.total_variance, wanted)
        assert output.rank == (2 if rank == 0 else 6)


def test_it_is_differentiable_in_inputs_and_weights():
    model = small()
    network = ProbabilisticNetwork(model)
    mean, variance = (x.requires_grad_() for x in rows(2))
    assert torch.autograd.gradcheck(lambda m, v: tuple(vars(network(m, v)).values())[:2], (mean, variance))
    network(mean, variance).mean.sum().backward()
    assert model[0].weight.grad.abs().sum() > 0


def test_trained_weights_and_changed_modules_are_seen(traces):
    model = small()
    mean, variance = rows()
    propagate(model, mean, variance)
    with torch.no_grad():
        model[2].bias += 1
    nothing = torch.zeros_like(variance)
    torch.testing.assert_close(propagate(model, mean, nothing).mean, model(mean))
    assert len(traces) == 1  # the graph shares the weights
    model[1] = nn.LeakyReLU(0.1).eval()
    torch.testing.assert_close(propagate(model, mean, nothing).mean, model(mean))
    model[1].negative_slope = 0.3
    torch.testing.assert_close(propagate(model, mean, nothing).mean, model(mean))
    assert len(traces) == 3


def test_models_are_kept_weakly():
    model = small()
    propagate(model, *rows())
    assert model in graph_cache._CACHES
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_copies_work_on_their_own_model():
    network = ProbabilisticNetwork(small())
    mean, variance = rows()
    wanted = network(mean, variance).mean
    for copied in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        with torch.no_grad():
            copied.model[2].bias += 1
        torch.testing.assert_close(copied(mean, variance).mean, wanted + 1)
    torch.testing.assert_close(network(mean, variance).mean, wanted)


def test_what_cannot_be_propagated_is_refused():
    model, (mean, variance) = small(), rows()
    with pytest.raises(TypeError, match="variance is missing"):
        propagate(model, mean)
    with pytest.raises(TypeError, match="its own variance"):
        propagate(model, Gaussian(mean, variance), variance)
    with pytest.raises(ValueError, match="negative"):
        propagate(model, mean, -variance)
    with pytest.raises(ValueError, match="they must be equal"):
        propagate(model, mean, variance[:1])
    with pytest.raises(ValueError, match="rank"):
        ProbabilisticNetwork(model, rank=-1)
    with pytest.raises(ValueError, match="training mode"):
        propagate(nn.Sequential(model, nn.Dropout()).train(), mean, variance)


@torch.library.custom_op("dasp_tests::thrice", mutates_args=())
def thrice(x: torch.Tensor) -> torch.Tensor:
    return 3 * x


@thrice.register_fake
def _(x):
    return torch.empty_like(x)


class Thrice(nn.Module):
    def forward(self, x):
        return thrice(x)


def test_a_rule_that_is_registered_later_is_seen():
    model, (mean, variance) = Thrice().eval(), rows()
    op = torch.ops.dasp_tests.thrice.default
    with pytest.raises(UnsupportedOperation) as caught:
        propagate(model, mean, variance)
    assert [operation.name for operation in caught.value.operations] == ["dasp_tests.thrice.default"]
    assert "return thrice(x)" in caught.value.operations[0].where
    try:
        for scale in (3, 5):  # and so is another one in its place
            rule(op)(lambda x, scale=scale: Gaussian(scale * x.mean, scale**2 * x.variance))
            torch.testing.assert_close(propagate(model, mean, variance).mean, scale * mean)
    finally:
        RULES.pop(op, None)


class Settings(nn.Module):
    """Depends on a tensor, a list and a dictionary that are no buffers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3).double()
        self.scale, self.listed, self.named = torch.tensor(1.0), [1.0], {"k": 1.0}

    def forward(self, x):
        return self.first(x) * self.scale * self.listed[0] * self.named["k"]


def test_whatever_a_model_is_set_to_is_seen():
    model, (mean, variance) = Settings().eval(), rows()
    plain = propagate(model, mean, variance).mean
    model.scale = torch.tensor(2.0)
    torch.testing.assert_close(propagate(model, mean, variance).mean, 2 * plain)
    model.listed[0] = 3.0
    torch.testing.assert_close(propagate(model, mean, variance).mean, 6 * plain)
    model.named["k"] = 5.0
    torch.testing.assert_close(propagate(model, mean, variance).mean, 30 * plain)
    hook = model.first.register_forward_hook(lambda module, given, output: 7 * output)
    torch.testing.assert_close(propagate(model, mean, variance).mean, 210 * plain)
    hook.remove()
    torch.testing.assert_close(propagate(model, mean, variance).mean, 30 * plain)


def test_threads_do_not_meet_while_tracing():
    network, (mean, variance) = ProbabilisticNetwork(small()), rows()
    with ThreadPoolExecutor(3) as pool:
        found = [future.result().mean for future in [pool.submit(network, mean, variance) for _ in range(6)]]
    for each in found:
        torch.testing.assert_close(each, found[0])


def test_nothing_is_decomposed_where_every_op_has_a_rule(monkeypatch):
    """Decomposing takes longer than all the rest of tracing."""
    monkeypatch.setattr("dasp.propagation.tracing._decomposed", lambda *_: pytest.fail("decomposed"))
    layers = (nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(), nn.AvgPool2d(1))
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(), nn.Linear(2, 1), nn.AlphaDropout()).eval()
    propagate(model, torch.zeros(3, 1, 4, 4), torch.ones(3, 1, 4, 4))
