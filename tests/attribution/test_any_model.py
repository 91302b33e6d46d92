"""Models as people have them: several outputs, keyword arguments, several inputs, and nets that other explainers of
gradients fail on."""

from __future__ import annotations

import warnings
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from captum.attr import (
    DeepLift,
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    Saliency,
    ShapleyValueSampling,
)
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    Explainer,
    GradientDASP,
    GradientShapley,
    PermutationShapley,
    audit,
)
from dasp.errors import UntraceableModel
from dasp.games.request import yardstick
from dasp.methods import Method

X = torch.linspace(-1, 2, 12).view(3, 4)
MASK, SCALE = torch.tensor([[1.0, 1, 1], [1, 0, 1], [0, 1, 1]]), 2.0


class Classifier(nn.Module):
    """Its mask is a keyword with a row for each row; its scale is a number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 3), nn.Linear(3, 2)
        self.eval()

    def forward(self, x, scale=1.0, *, attention_mask=None):
        hidden = torch.relu(self.first(x))
        hidden = hidden if attention_mask is None else hidden * attention_mask
        return SequenceClassifierOutput(logits=self.last(hidden) * scale, hidden_states=(hidden,))


class Logits(Classifier):
    """The same by position, with one output."""

    def forward(self, x, attention_mask, scale):
        return super().forward(x, scale, attention_mask=attention_mask).logits


ESTIMATORS = {
    "ExactShapley": ExactShapley,
    "BayesianShapley": BayesianShapley,
    "BayesianShapley on a prior": lambda model, **options: BayesianShapley(
        model, GradientDASP(model, **options), **options
    ),
    "PermutationShapley": PermutationShapley,
    "GradientShapley": GradientShapley,
    "DASP": DASP,
    "GradientDASP": GradientDASP,
    "DeepLIFT": DeepLiftRevealCancel,
}
CAPTUM = {
    make.__name__: Method(make.__name__, make).on
    for make in (
        Saliency, InputXGradient, IntegratedGradients, DeepLift, FeatureAblation, ShapleyValueSampling, KernelShap,
    )
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("name", [*ESTIMATORS, *CAPTUM])
def test_outputs_by_name_and_arguments_by_keyword(name):
    make = {**ESTIMATORS, **CAPTUM}[name]
    torch.manual_seed(0)
    wanted = make(Logits()).attribute(X, additional_forward_args=(MASK, SCALE), target=1)
    torch.manual_seed(0)
    method = make(Classifier(), output="logits")
    found = method.attribute(X, additional_forward_args={"attention_mask": MASK, "scale": SCALE}, target=1)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("make", [ExactShapley, GradientDASP, CAPTUM["DeepLift"]])
def test_the_only_tensor_of_floating_point_is_taken(make):
    class WithClasses(Logits):
        def forward(self, x):
            logits = super().forward(x, MASK[:1], SCALE)
            return {"classes": logits.argmax(1), "logits": logits}

    class Alone(Logits):
        def forward(self, x):
            return super().forward(x, MASK[:1], SCALE)

    torch.testing.assert_close(make(WithClasses()).attribute(X), make(Alone()).attribute(X))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(2, 6), nn.Linear(6, 2)
        self.eval()

    def forward(self, x, y, *, shift=0.0):
        return self.last(torch.relu(self.first(x) + self.second(y) + shift)), x


Y = torch.linspace(1, -1, 6).view(3, 2)


@pytest.mark.parametrize("make", [ExactShapley, GradientDASP, CAPTUM["InputXGradient"]])
def test_inputs_by_keyword(make):
    method, extra = make(TwoInputs(), output=0), {"shift": torch.ones(6)}
    x, y = method.attribute((X, Y), (0.5, 0), 1, extra)
    found = method.attribute({"y": Y, "x": X}, {"x": 0.5, "y": 0}, 1, extra)
    assert list(found) == ["y", "x"]
    torch.testing.assert_close((found["x"], found["y"]), (x, y))
    background = {"x": X.flip(0)[:2], "y": Y.flip(0)[:2]}
    averaged = method.attribute({"y": Y, "x": X}, background, 1, extra)
    torch.testing.assert_close(averaged["x"], method.attribute((X, Y), (background["x"], background["y"]), 1, extra)[0])
    with pytest.raises(ValueError, match=r"baselines are for \['x'\], and inputs a dict of y, x"):
        method.attribute({"y": Y, "x": X}, {"x": 0.5})


def test_audits_take_outputs_and_keywords():
    model, inputs = TwoInputs(), {"x": X, "y": Y}
    exact = ExactShapley(model, output=0).attribute(inputs, target=1, additional_forward_args={"shift": 1.0})
    report = audit(model, exact, inputs, target=1, additional_forward_args={"shift": 1.0}, output=0)
    assert float(report.rmse.high.max()) < 1e-6


class Net(nn.Module):
    def __init__(self, function, **layers):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x):
        return self.function(self, x)


def gated(m, x):
    hidden = m.first(x)
    return m.last(hidden + hidden * torch.sigmoid(hidden))


def two_layers():
    return {"first": nn.Linear(4, 8), "last": nn.Linear(8, 2)}


ACTIVATION = nn.ReLU()
NETS = {  # SHAP's DeepExplainer fails its own check of additivity on them, or fails
    "functional ReLU": lambda: Net(lambda m, x: m.last(F.relu(m.first(x))), **two_layers()),
    "reused ReLU": lambda: nn.Sequential(nn.Linear(4, 8), ACTIVATION, nn.Linear(8, 8), ACTIVATION, nn.Linear(8, 2)),
    "LayerNorm": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2)),
    "transformer": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.Linear(2, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(),
        nn.Linear(16, 2),
    ),
    "GRU": lambda: Net(
        lambda m, x: m.last(m.first(x.view(-1, 2, 2))[0][:, -1]), first=nn.GRU(2, 8, batch_first=True),
        last=nn.Linear(8, 2),
    ),
    "gated residual": lambda: Net(gated, **two_layers()),
    "one dimension of outputs": lambda: Net(lambda m, x: m.last(F.relu(m.first(x)))[:, 0], **two_layers()),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_values_add_up(name):
    torch.manual_seed(0)
    model = NETS[name]().eval()
    values, gap = GradientDASP(model).attribute(X, return_convergence_delta=True)
    total = values.sum(-1) - gap
    assert (gap.abs() <= 0.011 * yardstick(total, values.movedim(-1, 0))).all()
    values, gap = DASP(model, rank="full").attribute(X, return_convergence_delta=True)
    assert (gap.abs() <= 0.15 * values.abs().sum(-1)).all()
    result = Explainer(model).attribute(X)
    torch.testing.assert_close(result.values.sum(-1), result.prediction - result.base)


@pytest.mark.parametrize("make", [torch.jit.script, lambda net: torch.jit.trace(net, torch.ones(2, 80))],
                         ids=["script", "trace"])  # fmt: skip
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripts_are_evaluated_and_not_propagated(make):
    net = nn.Sequential(nn.Linear(80, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    script, x = make(net), torch.ones(1, 80)
    for method in (GradientDASP(script), DASP(script), DeepLiftRevealCancel(script)):
        with pytest.raises(
            UntraceableModel, match="(?s)is a script of torch.jit .*Give the module that the script was made"
        ):
            method.attribute(x)
    for method in (BayesianShapley, GradientShapley):
        torch.testing.assert_close(method(script).attribute(x), method(net).attribute(x), rtol=1e-3, atol=1e-5)
    few = Explainer(script, feature_mask=torch.arange(80), max_evaluations=64).attribute(x)  # who would gain by a prior
    assert "of which torch.export makes no graph" in few.reason


@pytest.mark.parametrize("method", [GradientDASP, DASP, DeepLiftRevealCancel])
def test_propagation_computes_in_the_dtypes_of_the_model_whatever_autocast_says(method):
    net = nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(15, 2)).eval()
    x = torch.randn(2, 1, 6)
    usual = method(net).attribute(x, target=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(method(net).attribute(x, target=0), usual)
        Explainer(net, method=GradientDASP(net)).attribute(x, target=0)
        BayesianShapley(net, GradientDASP(net)).attribute(x, target=0, max_evaluations=20)


@pytest.mark.parametrize("method", [GradientDASP, lambda model: DASP(model, rank="full")])
def test_models_of_half_as_many_bits(method):
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2)).eval()
    x = torch.rand(2, 6)
    usual = method(net).attribute(x, target=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the values do not add up to its rounded outputs
        found = method(deepcopy(net).bfloat16()).attribute(x.bfloat16(), target=0)
    assert found.dtype == torch.bfloat16
    assert float((found.float() - usual).norm() / usual.norm()) < 0.03
