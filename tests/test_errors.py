"""Bad input gets a clear error before any work is done."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import nn

from dasp import (
    DASP,
    BayesianShapley,
    ExactShapley,
    GradientDASP,
    PermutationShapley,
    UnsupportedOperation,
    UntraceableModel,
    propagate,
    rule,
)
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules import RULES, same_entry

MODEL = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
X = torch.ones(2, 4)

BAD_ARGUMENTS = {
    "NaN": (dict(inputs=torch.tensor([[1.0, 1, 1, 1], [0, math.nan, 0, 0]])), ValueError, "NaN.*row 1"),
    "infinite": (dict(inputs=X * math.inf), ValueError, "infinite"),
    "infinite baseline": (dict(inputs=X, baselines=math.inf), ValueError, "baselines.*infinite"),
    "no tensor": (dict(inputs=[[1.0, 2.0]]), TypeError, "tensor"),
    "empty tuple": (dict(inputs=()), TypeError, "nothing"),
    "complex": (dict(inputs=X.to(torch.complex64)), TypeError, "complex64"),
    "empty batch": (dict(inputs=X[:0]), ValueError, "at least one row"),
    "no batch": (dict(inputs=torch.tensor(1.0)), ValueError, "at least one row"),
    "different rows": (dict(inputs=(X, X[:1])), ValueError, "different numbers of rows"),
    "no players": (dict(inputs=X[:, :0]), ValueError, "no players"),
    "baseline shape": (dict(inputs=X, baselines=torch.ones(2, 3)), ValueError, r"baselines has shape \(2, 3\)"),
    "baseline type": (dict(inputs=X, baselines="zero"), TypeError, "baselines"),
    "baseline tuple": (dict(inputs=X, baselines=(0, 0)), ValueError, "2 baselines"),
    "fractional baseline": (dict(inputs=X.long(), baselines=0.5), ValueError, "whole numbers"),
    "mask shape": (dict(inputs=X, feature_mask=torch.zeros(5, dtype=int)), ValueError, "feature_mask has shape"),
    "mask rows": (dict(inputs=X, feature_mask=torch.zeros(3, 4, dtype=int)), ValueError, "feature_mask has shape"),
    "mask dtype": (dict(inputs=X, feature_mask=torch.zeros(4)), TypeError, "integers"),
    "mask tuple": (dict(inputs=X, feature_mask=(torch.arange(4),) * 2), ValueError, "2 feature masks"),
    "target range": (dict(inputs=X, target=3), ValueError, "target 3 does not fit"),
    "target tuple": (dict(inputs=X, target=(0, 1)), ValueError, "does not fit"),
    "target list": (dict(inputs=X, target=[0]), ValueError, "does not fit"),
    "target tensor": (dict(inputs=X, target=torch.tensor([0, 5])), ValueError, "does not fit"),
}  # fmt: skip


@pytest.mark.parametrize(
    "method",
    [DASP(MODEL), ExactShapley(MODEL), BayesianShapley(MODEL), PermutationShapley(MODEL)],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_bad_arguments(method, name):
    arguments, error, message = BAD_ARGUMENTS[name]
    with pytest.raises(error, match=message):
        method.attribute(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coalition_sizes": 0}, "coalition_sizes must be from 1"),
        ({"coalition_sizes": 5}, "coalition_sizes must be from 1"),
        ({"coalition_sizes": [0, 4]}, "from 0 to 3"),
        ({"coalition_sizes": []}, "from 0 to 3"),
        ({"internal_batch_size": 0}, "internal_batch_size"),
    ],
)
def test_bad_options(arguments, message):
    with pytest.raises(ValueError, match=message):
        DASP(MODEL).attribute(X, target=0, **arguments)


def test_training_mode():
    model = nn.Sequential(nn.Linear(4, 2), nn.Dropout()).eval()
    method = DASP(model)
    model[1].train()
    with pytest.raises(ValueError, match=r"training mode \(1\).*model.eval"):
        DASP(model)
    with pytest.raises(ValueError, match="training mode"):
        method.attribute(X, target=0)


def test_not_a_module():
    with pytest.raises(TypeError, match="BayesianShapley"):
        DASP(lambda x: x)


def test_too_many_players_for_enumeration():
    with pytest.raises(ValueError, match="26 players.*BayesianShapley"):
        ExactShapley(lambda x: x.sum(1)).attribute(torch.ones(1, 26))


class TwoOutputs(nn.Module):
    def forward(self, x):
        return x, x + 1


class OneNumber(nn.Module):
    def forward(self, x):
        return x.sum()


class FourNumbers(nn.Module):
    def forward(self, x):
        return x.sum(0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TwoOutputs().eval(), r"it returns 0 \(2, 4\), 1 \(2, 4\); give .* output="),
        (FourNumbers().eval(), r"must return one row per input row; for 2 rows it gave the shape \(4,\)"),
    ],
)
@pytest.mark.parametrize("method", [DASP, ExactShapley])
def test_outputs_that_cannot_be_explained(method, model, message):
    with pytest.raises(ValueError, match=message):
        method(model).attribute(X)


def test_propagation_explains_rows_not_whole_batches():
    with pytest.raises(ValueError, match=r"it gave the shape \(\). DASP explains rows here; .* ExactShapley"):
        DASP(OneNumber().eval()).attribute(X)


def test_two_outputs_are_refused_by_propagate():
    with pytest.raises(ValueError, match=r"it returns 0 .*, 1 .* output="):
        propagate(TwoOutputs().eval(), X, X)


def test_bad_variance():
    with pytest.raises(ValueError, match="must be equal"):
        propagate(MODEL, X, X[:1])
    with pytest.raises(ValueError, match="negative"):
        propagate(MODEL, X, -X)


class Branching(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


def test_data_dependent_control_flow():
    with pytest.raises(UntraceableModel, match="(?s)test_errors.py.*control flow.*BayesianShapley"):
        DASP(Branching().eval()).attribute(X, target=0)


class InNumpy(nn.Module):
    def forward(self, x):
        return torch.tensor(x.numpy().sum(1))


def test_the_line_that_cannot_be_traced_is_named():
    with pytest.raises(UntraceableModel) as caught:
        DASP(InNumpy().eval()).attribute(X)
    assert re.fullmatch(r'File ".*test_errors.py", line \d+, in forward', caught.value.where)


@pytest.mark.parametrize("name", ["sort", "topk", "median", "argmax"])
def test_orders_and_steps_are_refused_in_plain_words(name):
    class Ordered(nn.Module):
        def forward(self, x):
            found = getattr(x.cumsum(1), name)(*([2] if name == "topk" else [1]))
            return (found if name == "argmax" else found[0]) * 1.0

    with pytest.raises(
        UnsupportedOperation, match=rf"an order, a place or a step \(aten.{name}.* no Gaussian"
    ) as caught:
        DASP(Ordered().eval()).attribute(X)
    assert str(caught.value).endswith(
        "Use BayesianShapley, which only evaluates the model. So does Explainer by default."
    )


def test_what_follows_from_an_order_is_not_named():
    """Rules for it would not help, as for the experts that a router chooses."""

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(3, 4), nn.Parameter(torch.randn(4, 3, 2))

        def forward(self, x):
            weight, chosen = self.router(x).softmax(1).topk(2)
            counts = torch.zeros(4).index_add(0, chosen.flatten(), torch.ones(chosen.numel()))
            every = torch.einsum("bi,bkio->bko", x, self.experts[chosen])
            return (weight.unsqueeze(2) * every).sum(1) + counts.lgamma().sum()

    with pytest.raises(UnsupportedOperation) as caught:
        GradientDASP(Routed().eval()).attribute(torch.randn(2, 3), target=0)
    assert [operation.name for operation in caught.value.operations] == ["aten.topk.default"]
    assert str(caught.value).endswith(
        "Use BayesianShapley, which only evaluates the model. So does Explainer by default."
    )


class Unusual(nn.Module):
    def forward(self, x):
        hidden = torch.lgamma(x.sum(1, keepdim=True))
        return torch.digamma(hidden) + torch.lgamma(hidden)


def test_missing_rules_are_listed_with_the_users_lines():
    with pytest.raises(UnsupportedOperation) as caught:
        DASP(Unusual().eval()).attribute(X)
    message = str(caught.value)
    assert "2 operation(s)" in message
    assert message.count("test_errors.py") == 2
    assert "aten.digamma" in message
    assert re.search(
        r"aten.lgamma.default \(2 times; first at .*: hidden = torch.lgamma\(x.sum\(1, keepdim=True", message
    )
    assert "dasp.rule" in message
    assert "BayesianShapley" in message


def test_indices_of_random_maxima_have_no_rule():
    class Indices(nn.Module):
        def forward(self, x):
            return (x @ torch.ones(4, 3)).max(1, keepdim=True)[1] * 1.0

    with pytest.raises(UnsupportedOperation, match=r"aten.max.dim"):
        DASP(Indices().eval()).attribute(X)


@torch.library.custom_op("dasp_test::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@cube.register_fake
def _(x):
    return torch.empty_like(x)


class Cubic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return torch.ops.dasp_test.cube(self.layer(x))


def test_users_register_rules_for_their_own_ops():
    model, op = Cubic().eval(), torch.ops.dasp_test.cube.default
    with pytest.raises(UnsupportedOperation, match="dasp_test.cube"):
        DASP(model).attribute(X, target=0)

    @rule(op, tracker=same_entry)
    def cube_rule(x: Gaussian) -> Gaussian:
        v = x.total_variance
        return x.through(x.mean**3 + 3 * x.mean * v, 3 * (x.mean**2 + v), 18 * x.mean**2 * v**2 + 6 * v**3)

    try:
        full = DASP(model, rank="full").attribute(X, target=0)
        torch.testing.assert_close(full, ExactShapley(model).attribute(X, target=0), rtol=0.1, atol=1e-2)
    finally:
        del RULES[op]
