"""Why this output and not that one: differences of outputs, and the scales and functions of outputs."""

import logging
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import DeepLift, IntegratedGradients
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

from dasp import Contrast, ExactShapley, Explainer, GradientDASP, TextExplainer, audit, explain_game, plots
from dasp.errors import BadInput

shap = pytest.importorskip("shap")
plt = pytest.importorskip("matplotlib.pyplot")

NAMES = ["one", "two", "three", "four"]


def network(inputs=5, outputs=4, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, 12), nn.ReLU(), nn.Linear(12, outputs)).eval()


MODEL = network()
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
OFF = torch.randn(2, 5, generator=torch.Generator().manual_seed(2))
LOGITS = MODEL(X).detach()


@pytest.mark.parametrize(
    "method",
    ["exact", "dasp", "permutation", "bayesian", "deeplift_revealcancel", "gradient", IntegratedGradients, DeepLift],
    ids=str,
)
def test_values_of_a_difference_are_differences_of_values(method):
    """Of every method; of `GradientDASP` as far as its quadrature goes."""
    own = method if isinstance(method, str) else method(MODEL)
    explainer = Explainer(MODEL, OFF[:1], method=own, output_names=NAMES)
    several = {"target": [0, 1, 2, 3], "versus": [2, 2, "two", "one"]}
    for target, versus in (("three", "one"), several.values()):
        found = explainer.attribute(X, target, versus=versus)
        parts = [explainer.attribute(X, one) for one in (target, versus)]
        for name in ("values", "prediction", "base"):
            difference = getattr(parts[0], name) - getattr(parts[1], name)
            torch.testing.assert_close(
                getattr(found, name), difference, atol=2e-3 if method == "gradient" else 1e-5, rtol=0
            )
        assert found.target.equal(parts[0].target)
        assert found.versus.equal(parts[1].target)


@pytest.mark.parametrize("method", ["bayesian", "permutation", "gradient_shapley"])
def test_error_bars_are_those_of_the_difference(method):
    """They are what they are for a model that has no other output."""
    x, model = torch.randn(2, 14, generator=torch.Generator().manual_seed(3)), network(14)
    options = {"method": method, "max_evaluations": 200, "baselines": 0.0}
    found = Explainer(model, target=2, versus=1, **options).attribute(x)
    only = nn.Sequential(model, nn.Linear(4, 1, bias=False)).eval()
    only[1].weight = nn.Parameter(torch.tensor([[0.0, -1.0, 1.0, 0.0]]))
    truth = Explainer(only, **options).attribute(x)
    torch.testing.assert_close(found.values, truth.values.reshape(found.values.shape), atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(found.std, truth.std.reshape(found.std.shape), atol=1e-5, rtol=1e-3)
    assert found.std.max() > 0


def test_a_difference_costs_as_much_as_an_output():
    calls = []

    def function(x):
        calls.append(len(x))
        return MODEL(x)

    counted = []
    for versus in (None, "second"):
        calls.clear()
        found = Explainer(function, method="bayesian", max_evaluations=24, versus=versus).attribute(X, "predicted")
        counted.append((sum(calls), found.evaluations.tolist()))
    assert counted[0] == counted[1]


def test_words_for_outputs():
    explainer, order = Explainer(MODEL, OFF, output_names=NAMES), LOGITS.argsort(1, descending=True)
    found = explainer.attribute(X, "predicted", versus="second")
    assert found.target.equal(order[:, 0])
    assert found.versus.equal(order[:, 1])
    assert (found.prediction > 0).all()
    behind = explainer.attribute(X, "two", versus="second")
    assert behind.versus.equal(torch.where(order[:, 0] == 1, order[:, 1], order[:, 0]))
    assert explainer.attribute(X, order[:, 1], versus="predicted").versus.equal(order[:, 0])
    every = explainer.attribute(X, versus="one")
    torch.testing.assert_close(every.prediction, LOGITS - LOGITS[:, :1])
    torch.testing.assert_close(every.values[:, 2], explainer.attribute(X, 2, versus=0).values, atol=1e-6, rtol=0)


def test_the_same_output_on_both_sides(caplog):
    with caplog.at_level(logging.WARNING, "dasp"):
        found = Explainer(MODEL, OFF).attribute(X, "predicted", versus=int(LOGITS[0].argmax()))
    assert not found.values[0].any()
    assert "same output in" in caplog.text
    with pytest.raises(BadInput, match="the same output, 1: their difference is 0"):
        Explainer(MODEL, OFF, target=1, versus=1).attribute(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 1, "versus": 9}, r"versus 9 does not fit outputs of shape \(4, 4\)"),
        ({"target": 1, "versus": [0, 2]}, r"versus \[0, 2\] does not fit.*2 targets for 4 rows"),
        ({"target": 1, "versus": "five"}, "there is no output 'five': output_names are .*'four'"),
        ({"versus": "second"}, "beside one output of each row"),
        ({"output": lambda outputs: outputs[:, 0], "versus": 0}, "compares two outputs, and the model has one"),
        ({"output": lambda _: "a"}, "gives a str for the model's result, not a tensor"),
        ({"output": [1]}, "or a function of it, not a list"),
        ({"output": "logit"}, "log-odds of probabilities.*the model's outputs are from .*: if they are logits"),
        ({"output": "probability", "link": "logit"}, "two scales: give one"),
        ({"output": lambda outputs: outputs.sigmoid(), "link": "logit", "versus": 7}, "versus 7 does not fit"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises((BadInput, ValueError), match=message):
        Explainer(MODEL, OFF, output_names=NAMES, **options).attribute(X)


def test_estimators_take_contrasts_and_the_audit_checks_them():
    values = ExactShapley(MODEL).attribute(X, OFF, target=Contrast("predicted", "second"))
    parts = ExactShapley(MODEL).attribute(X, OFF)
    order = LOGITS.argsort(1, descending=True)
    rows = torch.arange(4)
    torch.testing.assert_close(values, parts[rows, order[:, 0]] - parts[rows, order[:, 1]], atol=1e-6, rtol=0)
    right = audit(MODEL, values, X, OFF, target="predicted", versus="second", evaluations=32)
    assert right.rmse.high.max() < 1e-6
    wrong = audit(MODEL, values, X, OFF, target="predicted", evaluations=32)
    assert wrong.rmse.low.max() > 1e-3


def test_interactions_are_those_of_the_difference():
    explainer = Explainer(MODEL, OFF, method="exact")
    found = explainer(X.numpy(), target=2, versus=1).interactions().values
    every = explainer(X.numpy()).interactions().values
    np.testing.assert_allclose(found, every[..., 2] - every[..., 1], atol=1e-6)


def test_explanations_say_what_is_explained():
    explainer = Explainer(MODEL, OFF, output_names=NAMES)
    one = explainer(X.numpy(), target="three", versus="one")
    assert one.output_names == one[0].output_names == one[1:].output_names == "three − one"
    np.testing.assert_allclose(one.base_values, (MODEL(OFF)[:, 2] - MODEL(OFF)[:, 0]).mean().item(), atol=1e-6)
    assert plots.waterfall(one[0]).get_xlabel().startswith("three − one")
    several = explainer(X.numpy(), target=[0, 1, 1, 3], versus=[1, 2, 2, 0])
    assert several.output_names is None
    assert several.row_outputs == ("one − two", "two − three", "two − three", "four − one")
    assert [row.output_names for row in several] == list(several.row_outputs)
    assert several[1:3].output_names == "two − three"
    assert several[2:].row_outputs == ("two − three", "four − one")
    every = explainer(X.numpy(), versus="one")
    assert list(every.output_names) == ["one − one", "two − one", "three − one", "four − one"]
    assert explainer(X.numpy(), target="two").output_names == "two"
    unnamed = Explainer(MODEL, OFF)(X.numpy(), target=2, versus=0)
    assert unnamed.output_names == "Output 2 − Output 0"
    assert Explainer(MODEL, OFF)(X.numpy(), target=2).output_names is None


def test_images_have_the_name_for_each_of_them():
    """SHAP's own plot of images takes no single name."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    found = Explainer(model, baselines=0.0, players="block:2")(torch.rand(2, 1, 4, 4), target=2, versus=0)
    assert found.output_names is None
    assert found.row_outputs == ("Output 2 − Output 0",) * 2
    assert found[0].output_names == "Output 2 − Output 0"
    second = Explainer(model, output_names=list("abc"), players="block:2")(
        torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(0)), target="predicted", versus="second"
    )
    assert second.output_names is None
    assert [image.output_names for image in second] == list(second.row_outputs)
    assert [row.output_names for row in second.by_player()] == list(second.row_outputs)
    assert second[1:].row_outputs == second.row_outputs[1:]
    for one in (second, second[0]):
        shap.image_plot(one, show=False)
        plt.close("all")
    titles = [axes.get_title() for axes in plots.image(second[1]).figure.axes]
    assert any(second.row_outputs[1] in title for title in titles)


# Scales


SOFTMAX = nn.Sequential(MODEL, nn.Softmax(1)).eval()
SINGLE = network(outputs=1)
SIGMOID = nn.Sequential(SINGLE, nn.Sigmoid()).eval()


@pytest.mark.parametrize(
    ("model", "output", "truth"),
    [
        (MODEL, "probability", SOFTMAX),
        (SOFTMAX, "probability", SOFTMAX),
        (SINGLE, "probability", SIGMOID),
        (SIGMOID, "probability", SIGMOID),
        (nn.Sequential(MODEL, nn.LogSoftmax(1)).eval(), "probability", SOFTMAX),
        (SIGMOID, "logit", SINGLE),
        (SOFTMAX, "logit", lambda x: torch.logit(SOFTMAX(x))),
        (MODEL.forward, "probability", SOFTMAX),
        (lambda x: SIGMOID(torch.as_tensor(x)).numpy()[:, 0], "logit", SINGLE),
        (MODEL, lambda logits: logits[:, 3] - logits[:, 0], lambda x: MODEL(x)[:, 3] - MODEL(x)[:, 0]),
        (SOFTMAX, torch.log, lambda x: SOFTMAX(x).log()),
    ],
)
@torch.no_grad()
def test_scales(model, output, truth):
    found = Explainer(model, OFF, output=output).attribute(X)
    wanted = ExactShapley(truth).attribute(X, OFF)
    torch.testing.assert_close(found.values, wanted.reshape(found.values.shape), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.prediction, truth(X).reshape(found.prediction.shape), atol=1e-5, rtol=1e-4)


def test_a_softmax_in_front_of_the_output_is_propagated():
    truth = ExactShapley(SOFTMAX).attribute(X, OFF[:1], target=1)
    for estimate in (
        GradientDASP(MODEL, output="probability").attribute(X, OFF[:1], target=1),
        Explainer(MODEL, OFF[:1], output="probability", method="dasp").attribute(X, 1).values,
    ):
        assert (estimate - truth).norm() < 0.1 * truth.norm()
    difference = GradientDASP(MODEL, output="probability").attribute(X[:1], OFF[:1], target=Contrast(1, 0))
    whole = SOFTMAX(torch.cat([X[:1], OFF[:1]]))
    assert difference.sum().item() == pytest.approx(
        ((whole[0] - whole[1]) @ torch.tensor([-1.0, 1, 0, 0])).item(), abs=5e-3
    )


def test_a_scale_goes_with_methods_of_captum():
    method = IntegratedGradients(MODEL)
    found = Explainer(MODEL, OFF[:1], output="probability", method=method).attribute(X, 2, versus=1)
    truth = IntegratedGradients(lambda x: SOFTMAX(x)[:, 2] - SOFTMAX(x)[:, 1]).attribute(X, OFF[:1])
    torch.testing.assert_close(found.values, truth.float(), atol=1e-5, rtol=0)


def test_everybody_decides_on_a_scale_anew():
    """Numbers between 0 and 1 may be logits, and whoever sees others knows it."""
    first = Explainer(SINGLE, torch.zeros(1, 5), output="probability")
    first.attribute(torch.zeros(1, 5))
    second = Explainer(SINGLE, OFF, output="probability").attribute(10 * X)
    torch.testing.assert_close(second.prediction, SIGMOID(10 * X).detach()[:, 0])


def test_a_model_s_own_word_goes_before_ours():
    class Named(nn.Module):
        def forward(self, x):
            return {"probability": 7 * x, "logit": x, "hidden": x}

    for word, times in (("probability", 7), ("logit", 1), (lambda result: 2 * result["hidden"], 2)):
        found = Explainer(Named().eval(), output=word).attribute(torch.ones(1, 3))
        torch.testing.assert_close(found.prediction, times * torch.ones(1, 3))


def test_what_are_neither_logits_nor_probabilities_is_refused():
    labels = nn.Sequential(MODEL, nn.Sigmoid()).eval()
    with pytest.raises(BadInput, match="do not sum to 1; leave it out if they are probabilities of several labels"):
        Explainer(labels, OFF, output="probability").attribute(X)
    with pytest.raises(BadInput, match=r"one dimension of outputs, and a row has \(2, 2\)"):
        Explainer(nn.Sequential(MODEL, nn.Unflatten(1, (2, 2))).eval(), OFF, output="probability").attribute(X)
    with pytest.raises(BadInput, match="infinite or NaN"):
        Explainer(lambda x: x / 0, output="probability").attribute(X)
    late = Explainer(lambda x: x.sum(1), output="probability")
    late.attribute(torch.full((1, 5), 0.1))
    with pytest.raises(BadInput, match="took the outputs for probabilities.*now there is 5"):
        late.attribute(torch.ones(1, 5))
    with pytest.raises(BadInput, match="strictly between 0 and 1 are needed"):
        Explainer(lambda x: (x > 0).double().mean(1), output="logit").attribute(torch.ones(1, 5))


def test_an_explainer_with_a_scale_is_saved_and_pickled(tmp_path):
    explainer = Explainer(MODEL, OFF, output="probability", target="three", versus="one", output_names=NAMES)
    found = explainer.attribute(X)
    explainer.save(tmp_path / "explainer.safetensors")
    for again in (Explainer.load(tmp_path / "explainer.safetensors", MODEL), pickle.loads(pickle.dumps(explainer))):
        assert again.attribute(X).values.equal(found.values)
    Explainer(MODEL, OFF, output=torch.sigmoid).save(tmp_path / "function.safetensors")
    with pytest.raises(BadInput, match="saved without output, which are code"):
        Explainer.load(tmp_path / "function.safetensors", MODEL)


# scikit-learn


DRAW = np.random.default_rng(0)
TABLE = pd.DataFrame({"size": DRAW.normal(size=90), "age": DRAW.normal(size=90), "city": DRAW.choice(["a", "b"], 90)})
KIND = np.array(["cheap", "fair", "dear"])[np.digitize(TABLE["size"] + (TABLE.city == "a") * TABLE.age, [-0.5, 0.7])]


def pipeline(last):
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["size", "age"]))
    return make_pipeline(encoder, last).fit(TABLE, KIND)


def test_a_function_of_data_frames(caplog):
    fitted = pipeline(LogisticRegression())
    explainer = Explainer(fitted.predict_proba, TABLE[:10], output="logit", target="dear", versus="cheap")
    with caplog.at_level(logging.WARNING, "dasp"):
        found = explainer(TABLE[10:14])
    p = fitted.predict_proba(pd.concat([TABLE[10:14], TABLE[:10]]))
    odds = np.log(p / (1 - p))[:, [list(fitted.classes_).index(name) for name in ("dear", "cheap")]] @ [1, -1]
    np.testing.assert_allclose(found.base_values, odds[4:].mean(), atol=1e-6)
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, odds[:4], atol=1e-6)
    assert found.output_names == "dear − cheap"
    assert not caplog.text


@pytest.mark.parametrize("kind", ["several", "two", "labels"])
def test_networks_of_scikit_learn_are_known_by_their_activation(kind):
    """Several labels have a sigmoid each, which their logits do not show."""
    x = TABLE[["size", "age"]].to_numpy()
    y = {"several": KIND, "two": KIND == "dear", "labels": np.stack([x[:, 0] > 0, x[:, 1] > 0], 1)}[kind]
    fitted = MLPClassifier((6,), max_iter=30, random_state=0)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        fitted.fit(x, y)
    found = Explainer(fitted, x[:5], output="probability").attribute(x[5:8])
    truth = torch.from_numpy(fitted.predict_proba(x[5:8]))
    torch.testing.assert_close(found.prediction, truth[:, 1] if kind == "two" else truth, atol=1e-6, rtol=0)
    with pytest.raises(BadInput, match="by their logits already"):
        Explainer(fitted, x[:5], output="logit")


def test_pipelines_by_probability():
    with pytest.warns(UserWarning, match="Maximum iterations"):
        fitted = pipeline(MLPClassifier((6,), max_iter=30, random_state=0))
    found = Explainer(fitted, TABLE[:5], output="probability", target="fair", versus="dear")(TABLE[5:8])
    p = dict(zip(fitted.classes_, fitted.predict_proba(TABLE[5:8]).T, strict=True))
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, p["fair"] - p["dear"], atol=1e-6)
    regressor = MLPRegressor(hidden_layer_sizes=(2,), max_iter=1, solver="sgd")
    with pytest.warns(UserWarning, match="Maximum iterations"):
        regressor.fit(TABLE[["size", "age"]], TABLE["size"])
    with pytest.raises(BadInput, match="a regressor gives no probabilities"):
        Explainer(regressor, TABLE[["size", "age"]][:5], output="probability")


# Games and texts


def test_a_game():
    def function(masks):
        return np.stack([masks[:, 0] * 1.0, masks[:, 1] * 2.0 + masks[:, 0] * masks[:, 2], masks[:, 2] - 1.0], 1)

    every = explain_game(function, 3, output_names=["a", "b", "c"])
    found = explain_game(function, 3, output_names=["a", "b", "c"], target="b", versus="c")
    np.testing.assert_allclose(found.values, every.values[:, 1] - every.values[:, 2], atol=1e-12)
    assert found.output_names == "b − c"
    assert found.base_values == 1.0
    second = explain_game(function, 3, target="predicted", versus="second")
    assert second.output_names == "Output 1 − Output 0"


def test_texts():
    def function(texts):
        return torch.tensor(
            [[3.0 * ("good" in text), -2.0 * ("good" not in text) + ("bad" in text), 0.5] for text in texts]
        )

    names = ["praise", "blame", "neither"]
    texts = ["a good thing", "not bad, so good", "what"]
    explainer = TextExplainer(function, output_names=names)
    every, found = explainer(texts), explainer(texts, "praise", versus="blame")
    for i in range(3):
        np.testing.assert_allclose(found[i].values, every[i].values[:, 0] - every[i].values[:, 1], atol=1e-6)
    assert found.output_names == "praise − blame"
    second = explainer(texts, "predicted", versus=["second", "neither", 1])
    assert [second[i].output_names for i in range(3)] == ["praise − neither", "praise − neither", "neither − blame"]
    likely = TextExplainer(function, output="probability").attribute(texts)
    torch.testing.assert_close(likely.prediction, function(texts).softmax(1))
    odds = TextExplainer(lambda texts: function(texts).softmax(1).numpy(), output="logit", target=0).attribute(texts[0])
    torch.testing.assert_close(odds.prediction, torch.logit(function(texts[:1]).softmax(1)[:, 0]), atol=1e-5, rtol=0)
    part = TextExplainer(function, output=lambda outputs: outputs[:, 0] - outputs[:, 1]).attribute(texts)
    torch.testing.assert_close(part.prediction, function(texts)[:, 0] - function(texts)[:, 1])
    with pytest.raises(BadInput, match="2 outputs as versus for 3 texts"):
        explainer(texts, "praise", versus=[0, 1])
