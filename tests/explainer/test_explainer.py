"""The front: what people have goes in, what SHAP's plots take comes out, by a method that is told."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from threading import Barrier

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import DeepLift, GradientShap, IntegratedGradients, KernelShap, NoiseTunnel, ShapleyValueSampling
from sklearn.neural_network import MLPClassifier
from torch import nn

from dasp import ExactShapley, Explainer, PermutationShapley, TextExplainer, UnsupportedOperation, UntraceableModel
from dasp.errors import BadInput
from dasp.explainer.explanation import explanation_class
from dasp.methods import METHODS, MethodOnModel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own, about matplotlib
    import matplotlib.pyplot as plt
    import shap

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*did not reach the tolerance",
    "ignore:Stochastic Optimizer",
)


def network(inputs, outputs=1, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs)).eval()


def rows(number, inputs, seed=1):
    return torch.randn(number, inputs, generator=torch.Generator().manual_seed(seed))


class Softmax(nn.Module):
    """Mixes players in an operation that has no rule."""

    def __init__(self, inputs):
        super().__init__()
        self.inner = network(inputs, 3)

    def forward(self, x):
        return self.inner(x).cumsum(1).sort(1).values


class Sorted(nn.Module):
    """The same for any number of players."""

    def forward(self, x):
        return x.cumsum(1).sort(1).values[:, 1:3].sum(1)


class Branching(nn.Module):
    def forward(self, x):
        return x.sum(1) if x.sum() > 0 else x.prod(1)


def test_exact_for_few_players():
    model, x = network(6), rows(3, 6)
    explainer = Explainer(model, error_bars=True)
    result = explainer.attribute(x)
    torch.testing.assert_close(result.values, ExactShapley(model).attribute(x))
    assert result.method == "exact_shapley"
    assert "64 coalitions" in result.reason
    assert result.std.eq(0).all()
    torch.testing.assert_close(result.prediction, model(x)[:, 0])
    torch.testing.assert_close(result.base, model(torch.zeros(3, 6))[:, 0])
    assert result.gap.abs().max() < 1e-5


@functools.cache
def many():
    """21 players: more than are ever explained exactly unless it is asked for, however quick the model seems to be."""
    model, x = network(21), rows(1, 21)
    return model, x, ExactShapley(model).attribute(x)


def test_every_answer_has_an_error_bar(caplog):
    model, x, exact = many()
    explainer = Explainer(model)
    with caplog.at_level(logging.INFO, "dasp"):
        result = explainer.attribute(x)
    assert result.method.startswith("bayesian_shapley")
    said = [line.getMessage() for line in caplog.records if line.name == "dasp"]
    said = [line for line in said if not line.startswith("threads: ")]
    assert said == [f"{METHODS[result.method].name}: {result.reason}"]
    error = (result.values - exact).abs()
    assert (error < 5 * result.std + 1e-3).all()
    assert result.gap.abs().max() < 1e-5


@pytest.mark.parametrize(
    "wish", [dict(error_bars=True), dict(tolerance=0.2), dict(max_evaluations=300), dict(max_seconds=1e-4)], ids=str
)
def test_wishes(wish):
    model, x, exact = many()
    result = Explainer(model, **wish).attribute(x)
    assert result.method.startswith("bayesian_shapley")
    error = (result.values - exact).abs()
    assert (error < 5 * result.std + 1e-3).all()
    again = Explainer(model, **result.settings).attribute(x)  # with nothing left to choose
    assert torch.equal(again.values, result.values)


def test_exact_values_do_not_exceed_the_evaluations():
    result = Explainer(network(10), max_evaluations=300).attribute(rows(2, 10))
    assert result.method.startswith("bayesian_shapley")


class OneByOne(nn.Module):
    def forward(self, x):
        return torch.stack([row.sum() for row in x])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (Sorted().eval(), r"aten.sort"),
        (Branching().eval(), "cannot be exported"),
        (lambda x: x.sum(1), "it is a function"),
        (OneByOne().eval(), "exactly 2 row(s)"),
    ],
    ids=["operation", "branch", "function", "loop over rows"],
)
def test_models_that_cannot_be_propagated_are_explained_all_the_same(model, reason, caplog):
    explainer = Explainer(model)
    with caplog.at_level(logging.INFO, "dasp"):
        few = explainer.attribute(rows(2, 24).abs())
        many = explainer.attribute(rows(1, 70).abs())  # who would gain from a prior
        coarse = Explainer(model, feature_mask=torch.arange(350) // 5).attribute(rows(1, 350).abs(), target=None)
    assert (few.method, many.method, coarse.method) == ("bayesian_shapley", "gradient_shapley", "bayesian_shapley")
    assert reason in many.reason
    assert "\n" not in many.reason
    assert f"Gradients at coalitions: {many.reason}" in caplog.messages


def test_a_method_that_is_named_is_taken_or_refused():
    result = Explainer(network(6), method="gradient").attribute(rows(2, 6))
    assert (result.method, result.reason) == ("gradient_dasp", "it was asked for")
    with pytest.raises(UnsupportedOperation, match="sort"):
        Explainer(Softmax(16).eval(), method="gradient").attribute(rows(2, 16))
    with pytest.raises(UntraceableModel):
        Explainer(Branching().eval(), method="dasp").attribute(rows(2, 16))


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("method", [name for name in METHODS if "DASP" not in name])
def test_every_method_can_be_named(method):
    model, x, background = network(5, 2), rows(4, 5), rows(3, 5, seed=2)
    result = Explainer(model, background, method=method, batch_size=3).attribute(x)
    assert result.values.shape == (4, 2, 5)
    torch.testing.assert_close(result.gap, result.values.sum(2) - (result.prediction - result.base))
    again = Explainer(model, background, method=method).attribute(x)
    torch.testing.assert_close(result.values, again.values, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {}, dict(method="gradient"), dict(method="dasp"), dict(method="bayesian", max_evaluations=100),
        dict(method="permutation"), dict(method=KernelShap), dict(method=ShapleyValueSampling),
        dict(method="BayesianShapley on GradientDASP", tolerance=0.1),
    ],
    ids=str,
)  # fmt: skip
def test_rows_do_not_depend_on_their_neighbours(options):
    model = network(15, 3)
    method = options.get("method", "auto")
    options = {**options, "method": method if isinstance(method, str) else method(model)}
    explainer = Explainer(model, rows(4, 15, seed=2), **options)
    x, targets = rows(5, 15), [0, 1, 2, 0, 1]
    together = explainer.attribute(x, targets)
    for part in (slice(0, 4), slice(4, 5)):  # four rows, as many as the background has
        alone = explainer.attribute(x[part], targets[part])
        torch.testing.assert_close(alone.values, together.values[part], atol=1e-5, rtol=1e-4)
    repeated = explainer.attribute(x, torch.tensor(targets))
    assert torch.equal(repeated.values, together.values)


def test_a_background_of_any_length_is_averaged_over():
    model, x = network(5), rows(3, 5)
    for number in (1, 2, 3, 7):
        background = rows(number, 5, seed=2)
        wanted = torch.stack([ExactShapley(model).attribute(x, baselines=row) for row in background]).mean(0)
        result = Explainer(model, background).attribute(x)
        torch.testing.assert_close(result.values, wanted)
        torch.testing.assert_close(result.base, model(background).mean().expand(3))
    with pytest.raises(BadInput, match=r"background have the shape \(4,\), x \(5,\)"):
        Explainer(model, background[:, :4]).attribute(x)
    with pytest.raises(BadInput, match="both given"):
        Explainer(model, background, baselines=0)


def test_baselines_are_those_of_captum():
    model, x = network(5), rows(3, 5)
    for baselines in (0.5, rows(1, 5, 2)[0], rows(1, 5, 2), rows(3, 5, 2), rows(3, 5, 2).double().numpy()):
        given = torch.as_tensor(baselines).float() if isinstance(baselines, np.ndarray) else baselines
        torch.testing.assert_close(
            Explainer(model, baselines=baselines).attribute(x).values, ExactShapley(model).attribute(x, given)
        )
    with pytest.raises(ValueError, match=r"baselines has shape \(3, 4\); \(3, 5\) \(a row per input\)"):
        Explainer(model, baselines=rows(3, 4)).attribute(x)


def test_a_large_background_is_warned_of(caplog):
    Explainer(network(3), rows(100, 3))
    assert not caplog.messages
    Explainer(network(3), rows(101, 3))
    assert "101 rows" in caplog.text


@pytest.mark.parametrize("outputs", [1, 3])
def test_explanations_are_those_of_shap(outputs):
    model = network(4, outputs)
    table = pd.DataFrame(rows(6, 4).double().numpy(), columns=list("abcd"))

    def function(x):
        result = model(torch.tensor(np.asarray(x)).float()).detach().numpy()
        return result if outputs > 1 else result[:, 0]

    wanted = shap.KernelExplainer(function, table[:3])(table, silent=True)  # exact, with so few features
    found = Explainer(model, table[:3])(table)
    for name in ("values", "base_values", "data"):
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other.astype(float), atol=1e-5)
    assert found.feature_names == wanted.feature_names == list("abcd")
    assert found.output_dims == wanted.output_dims
    assert np.array_equal(found.error_std, np.zeros(wanted.values.shape))  # exact
    assert Explainer(model, table[:3], method="dasp")(table).error_std is None


def test_outputs_by_number_and_name():
    explainer = Explainer(network(4, 3), output_names=["cat", "dog", "bird"], target="dog")
    x = rows(5, 4)
    every = explainer(x, target=None)
    assert every.output_names == ["cat", "dog", "bird"]
    np.testing.assert_allclose(explainer(x).values, every.values[..., 1], atol=1e-6)
    np.testing.assert_allclose(explainer(x).values, every[:, :, "dog"].values, atol=1e-6)
    np.testing.assert_array_equal(explainer(x, target=np.int64(1)).values, explainer(x).values)
    each = explainer(x, target=np.array([0, 1, 2, 0, 1]))
    np.testing.assert_allclose(each.values, every.values[range(5), :, [0, 1, 2, 0, 1]], atol=1e-6)
    np.testing.assert_allclose(each.base_values, every.base_values[range(5), [0, 1, 2, 0, 1]], atol=1e-6)
    with pytest.raises(BadInput, match="no output 'fish'"):
        explainer(x, target="fish")
    with pytest.raises(BadInput, match=r"output_names are not known; give them as output_names=\[…\]"):
        Explainer(network(4, 3))(x, target="fish")
    with pytest.raises(BadInput, match="2 output_names, but 3 outputs"):
        Explainer(network(4, 3), output_names=["cat", "dog"])(x)


def test_tables():
    model = network(3)
    table = pd.DataFrame({"age": [20, 30, 40], "married": [True, False, True], "pay": [1.5, 2.5, 3.5]})
    explainer = Explainer(model, table)
    found = explainer(table[["pay", "age", "married"]])
    np.testing.assert_allclose(found.values, explainer(table.to_numpy(dtype=float)).values)
    np.testing.assert_allclose(found.values, explainer(table.astype({"age": "Int64"})).values)
    assert found.feature_names == ["age", "married", "pay"]
    assert Explainer(model, table, feature_names=pd.Index(["a", "b", "c"]))(table).feature_names == ["a", "b", "c"]
    for bad, message in (
        (table.drop(columns="pay"), r"X lacks \['pay'\]"),
        (table.rename(columns={"pay": "wage"}), r"X lacks \['pay'\] and has \['wage'\]"),
        (table.assign(pay=["a", "b", "c"]), "column 'pay' of X has no numbers"),
        (table.iloc[0].to_numpy(), "X must be numbers|rows of features"),
        (table["age"].to_numpy()[0], r"X\[None\] for a single one"),
        ([[1, 2, 3], [4]], "cannot be read as an array"),
        ("abc", "must be numbers"),
    ):
        with pytest.raises(BadInput, match=message):
            explainer(bad)
    with pytest.raises(ValueError, match="NaN.*row 1"):
        explainer(table.assign(pay=[1, None, 2]))
    with pytest.raises(BadInput, match="2 feature_names, but 3 features"):
        Explainer(model, feature_names=["a", "b"])(table.to_numpy(dtype=float))


def test_integers_for_embeddings_stay_integers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 1)).eval()
    x = np.array([[1, 2, 3], [4, 5, 6]])
    found = Explainer(model)(x)
    wanted = ExactShapley(model).attribute(torch.tensor(x))
    dynamic = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(model, (torch.tensor(x),), dynamic_shapes=dynamic)
    np.testing.assert_allclose(Explainer(program)(x).values, found.values, atol=1e-6)
    np.testing.assert_allclose(found.values, wanted, atol=1e-6)


def test_groups_are_columns():
    model, x = network(5, 2), rows(3, 5)
    mask = torch.tensor([4, 1, 1, 7, 4])
    table = pd.DataFrame(x.numpy(), columns=list("abcde"))
    found = Explainer(model, feature_mask=mask)(table)
    wanted = ExactShapley(model).attribute(x, feature_mask=mask)
    np.testing.assert_allclose(found.values, wanted[:, :, [1, 0, 3]].transpose(1, 2), atol=1e-6)
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, model(x).detach(), atol=1e-5)
    assert found.feature_names == ["b + c", "a + e", "d"]
    assert found.data[0, 2] == x[0, 3]
    assert found.data[0, 0] == f"{x[0, 1]:.4g}, {x[0, 2]:.4g}"
    named = Explainer(model, feature_mask=mask, feature_names=["one", "two", "three"])(x)
    assert named.feature_names == ["one", "two", "three"]
    assert Explainer(model, feature_mask=mask)(x).feature_names == ["Group 0", "Group 1", "Feature 3"]
    long = Explainer(model, feature_mask=[0, 0, 0, 0, 1])(table)
    assert long.feature_names == ["a + b + 2 more", "e"]
    alone = Explainer(model, feature_mask=[4, 3, 2, 1, 0])(table)
    assert alone.feature_names == list("edcba")
    np.testing.assert_allclose(alone.data.astype(float), table[list("edcba")])
    with pytest.raises(BadInput, match="feature_mask has 3 rows"):
        Explainer(model, feature_mask=torch.zeros(3, 5, dtype=int))(x)
    with pytest.raises(BadInput, match="4 feature_names, but 3 features"):
        Explainer(model, feature_mask=mask, feature_names=list("abcd"))(x)


def test_groups_of_sequences():
    model = nn.Sequential(nn.Flatten(), network(12)).eval()
    x = torch.rand(2, 4, 3)
    tokens = dict(feature_mask=torch.arange(4)[:, None], feature_names=["an", "old", "man", "."])
    found = Explainer(model, **tokens)(x)
    wanted = ExactShapley(model).attribute(x, feature_mask=tokens["feature_mask"])
    np.testing.assert_allclose(found.values, wanted[:, :, 0], atol=1e-6)
    assert found.feature_names == tokens["feature_names"]
    with pytest.raises(BadInput, match="group their entries"):
        Explainer(model, feature_names=["an", "old", "man", "."])(x)


def image_network(channels=1, outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, outputs)
    ).eval()  # fmt: skip


@pytest.mark.parametrize("channels", [1, 3])
def test_images_have_their_channels_last(channels):
    model, x = image_network(channels), torch.rand(2, channels, 6, 6)
    explainer = Explainer(model, method="gradient")
    found, plain = explainer(x), explainer.attribute(x)
    assert found.data.shape == (2, 6, 6, channels)
    np.testing.assert_array_equal(found.data, x.permute(0, 2, 3, 1))
    np.testing.assert_allclose(found.values, plain.values.permute(0, 3, 4, 2, 1))
    blocks = torch.arange(4).view(2, 2).repeat_interleave(3, 0).repeat_interleave(3, 1)
    grouped = Explainer(model, feature_mask=blocks)(x)
    assert grouped.shape == (2, 6, 6, channels, 2)
    total = grouped.values.sum((1, 2, 3)) + grouped.base_values
    np.testing.assert_allclose(total, model(x).detach(), atol=1e-5)


def test_every_plot_of_shap():
    table = pd.DataFrame(rows(20, 6).numpy(), columns=list("abcdef"))
    single = Explainer(network(6), table[:5], error_bars=True)(table)
    groups = Explainer(network(6), table[:5], feature_mask=[0, 0, 1, 2, 2, 2])(table)
    several = Explainer(network(6, 3))(table)[:, :, 1]
    for found in (single, groups, several):
        shap.plots.waterfall(found[0], show=False)
        texts = [text.get_text() for text in plt.gcf().findobj(plt.Text)]
        assert any(name in text for text in texts for name in ("a", "a + b"))
        plt.close("all")
        shap.plots.force(found[0], matplotlib=True, show=False)
        shap.plots.force(found)
        for plot in (shap.plots.beeswarm, shap.plots.bar, shap.plots.heatmap):
            plt.close("all")
            plot(found, show=False)
    pictures = Explainer(image_network(), output_names=["cat", "dog"], method="gradient")
    for target in (None, "dog", [0, 1]):
        plt.close("all")
        shap.image_plot(pictures(torch.rand(2, 1, 6, 6), target), show=False)
        assert len(plt.gcf().axes) == 2 * (3 if target is None else 2) + 1
    plt.close("all")


def test_options_that_a_method_does_not_know_are_refused():
    model, x = network(5), rows(2, 5)
    for options, message in (
        (dict(method="magic"), "no method 'magic'; there are auto, exact, .*deeplift_mixed"),
        (dict(method="gradient", error_bars=True), "GradientDASP knows no error bars"),
        (dict(method="dasp", tolerance=0.1), "DASP, full rank knows no tolerance"),
        (dict(method="DeepLIFT mixed", max_evaluations=100), "DeepLIFT mixed takes always the same"),
        (dict(method="permutation", max_evaluations=3), "3 evaluations are too few for Permutations with 5 players"),
    ):
        with pytest.raises(BadInput, match=message):
            Explainer(model, **options).attribute(x)
    with pytest.raises(ValueError, match="tolerance must be positive"):
        Explainer(model, tolerance=0)
    with pytest.raises(ValueError, match="batch_size"):
        Explainer(model, batch_size=0)
    with pytest.raises(ValueError, match="training mode"):
        Explainer(nn.Sequential(network(5), nn.Dropout()).train())


def test_models_of_other_kinds():
    x = rows(30, 4).numpy()
    table = pd.DataFrame(x, columns=list("abcd"))
    fitted = MLPClassifier((5,), max_iter=10, random_state=0).fit(table, np.array(["x", "y", "z"] * 10))
    found = Explainer(fitted, table[:4])(table[list("dcba")][:6])
    assert found.feature_names == list("abcd")
    assert found.output_names == ["x", "y", "z"]
    logits = found.values.sum(1) + found.base_values
    np.testing.assert_allclose(torch.tensor(logits).softmax(1), fitted.predict_proba(table[:6]), atol=1e-6)
    model = network(4)
    program = torch.export.export(model, (torch.ones(2, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    values = Explainer(program).attribute(torch.tensor(x)).values
    torch.testing.assert_close(values, ExactShapley(model).attribute(torch.tensor(x)))


def test_shap_is_needed_only_for_explanations(monkeypatch):  # nor is it imported: test_import_is_light
    monkeypatch.setitem(sys.modules, "shap", None)
    uncached = explanation_class.__wrapped__  # as it has imported shap before
    monkeypatch.setattr("dasp.explainer.explanation.explanation_class", uncached)
    explainer = Explainer(network(4))
    assert explainer.attribute(rows(2, 4)).values.shape == (2, 4)
    with pytest.raises(ImportError, match=r"torch-dasp\[plots\]"):
        explainer(rows(2, 4))


def test_values_that_do_not_add_up_are_warned_of(caplog):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)).eval()
    rows = torch.ones(3, 16)
    with caplog.at_level("WARNING", logger="dasp"):
        Explainer(model, method="dasp").attribute(rows)
    assert not caplog.records
    with torch.no_grad():  # one player decides, and units of the second layer are on or off by it
        model[0].weight[:, 0] *= 8
        model[2].weight *= 10
        model[2].bias -= 10
    with caplog.at_level("WARNING", logger="dasp"):
        result = Explainer(model, method="dasp").attribute(rows)
    assert result.gap.abs().min() > 0.1 * result.values.abs().sum(1).max()
    assert "the values of 3 of 3 rows miss prediction − base by more than 10 %" in caplog.text


def test_baselines_are_one_or_one_for_each_row():
    with pytest.raises(ValueError, match="baselines"):
        Explainer(network(6), baselines=torch.zeros(2, 6)).attribute(rows(4, 6))


def test_as_many_targets_as_rows():
    with pytest.raises(BadInput, match="7 targets for 4 rows"):
        Explainer(network(6, 3)).attribute(rows(4, 6), target=[0] * 7)


def test_backgrounds_that_cannot_be_used():
    with pytest.raises(BadInput, match="no rows"):
        Explainer(network(6), background=torch.zeros(0, 6))
    broken = torch.zeros(5, 6)
    broken[2, 3] = torch.nan
    with pytest.raises(BadInput, match="background has NaN or infinite entries, first in row 2"):
        Explainer(network(6), background=broken)


def test_a_tolerance_or_a_number_of_nodes():
    with pytest.raises(BadInput, match="not both"):
        Explainer(network(6), method="gradient", tolerance=0.1, max_evaluations=100).attribute(rows(2, 6))
    with pytest.raises(ValueError, match="tolerance"):
        Explainer(network(6), tolerance=float("nan"))


def test_large_backgrounds_are_taken_in_parts(monkeypatch):
    model, x, background = network(6), rows(7, 6), rows(5, 6)
    whole = Explainer(model, background, method="gradient").attribute(x)
    monkeypatch.setattr("dasp.explainer.explainer._MOST_ENTRIES", 2 * 5 * 6)
    parts = Explainer(model, background, method="gradient").attribute(x)
    torch.testing.assert_close(parts.values, whole.values)


def test_numbers_of_other_kinds():
    model, x = network(6), rows(2, 6)
    wanted = Explainer(model).attribute(x).values
    for array in (x.numpy().astype(">f4"), x.numpy().astype(np.longdouble)):
        assert np.allclose(Explainer(model)(array).values, wanted)
    half = network(6).bfloat16()
    assert Explainer(half).attribute(x.bfloat16()).values.dtype == torch.bfloat16
    facts = Explainer(half)(x.bfloat16()).facts
    assert np.allclose(facts.prediction, half(x.bfloat16()).detach().float()[:, 0], atol=0.02)


def test_no_other_method_is_taken_by_accident(monkeypatch):
    """What cannot be expected is an error, and no reason to choose."""
    monkeypatch.setattr("dasp.attribution.gradient_dasp.GradientDASP.lifts", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError) as error:
        Explainer(network(100)).attribute(rows(2, 100))
    assert "method='bayesian' does without" in error.value.__notes__[0]


def test_threads_share_an_explainer_and_every_answer_has_its_own_method():
    explainer = Explainer(lambda x: x.sum(1), max_evaluations=200)
    before = set(vars(explainer))
    start = Barrier(6)

    def explained(number):
        start.wait()
        players = 3 if number % 2 else 18
        return players, explainer.attribute(rows(2, players)), explainer(rows(2, players))

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(explained, range(6)))
    for players, tensors, explanation in found:
        assert tensors.method == explanation.method == ("exact_shapley" if players == 3 else "bayesian_shapley")
        assert tensors.reason == explanation.reason
        assert ("8 coalitions" in tensors.reason) == (players == 3)
        assert explanation[0].method == explanation[:, 1].abs.method == explanation.method
    assert set(vars(explainer)) == before
    assert not {"method", "reason"} & before


def test_rows_with_players_of_their_own_have_methods_of_their_own():
    x = torch.rand(2, 1, 4, 8)
    fine, coarse = torch.arange(32).view(1, 1, 4, 8), torch.arange(32).view(1, 1, 4, 8) // 8
    explainer = Explainer(
        lambda x: x.flatten(1).sum(1), feature_mask=torch.cat([fine, coarse]), max_evaluations=200, error_bars=True
    )
    found, explanation = explainer.attribute(x), explainer(x)
    assert [choice.method for choice in found.choices] == ["bayesian_shapley", "exact_shapley"]
    assert found.method == explanation.method == "bayesian_shapley, exact_shapley"
    assert [explanation[i].method for i in range(2)] == ["bayesian_shapley", "exact_shapley"]
    assert explanation[1:].reason == found.choices[1].reason == "4 players have only 16 coalitions"


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize("make", [IntegratedGradients, DeepLift, ShapleyValueSampling, GradientShap, ExactShapley])
def test_methods_of_captum_are_taken_as_objects(make):
    model, x, background = network(5, 2), rows(3, 5), rows(4, 5, seed=2)
    explainer = Explainer(model, background, method=make(model))
    found = explainer.attribute(x)
    assert found.values.shape == (3, 2, 5)
    assert (found.method, found.reason) == (make.__name__, "it was asked for")
    torch.testing.assert_close(found.values.sum(2), found.prediction - found.base, atol=0.3, rtol=0)
    torch.testing.assert_close(explainer.attribute(x[1:2]).values, found.values[1:2])  # also if it draws samples
    assert explainer(x).method == make.__name__
    if make is IntegratedGradients:
        wanted = torch.stack([
            IntegratedGradients(model).attribute(x, row[None].expand(3, -1), target=1) for row in background
        ]).mean(0)  # fmt: skip
        torch.testing.assert_close(found.values[:, 1], wanted.float(), atol=1e-5, rtol=1e-4)


def test_an_object_with_options():
    model, x = network(5), rows(2, 5)
    found = Explainer(model, method=MethodOnModel(IntegratedGradients(model), n_steps=3)).attribute(x)
    assert found.method == "IntegratedGradients"
    wanted = IntegratedGradients(model).attribute(x, n_steps=3)
    torch.testing.assert_close(found.values, wanted.float(), atol=1e-6, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")  # Captum's
@pytest.mark.parametrize(
    "make",
    [
        DeepLift,
        IntegratedGradients,
        lambda model: NoiseTunnel(IntegratedGradients(model)),
        lambda model: MethodOnModel(DeepLift(model)),
    ],
    ids=["model", "function", "method on a method", "options"],
)
def test_an_object_is_taken_with_what_is_around_its_model(make):
    model, x = network(5), rows(2, 5)
    normalized = nn.Sequential(nn.Linear(5, 5), model).eval()
    with torch.no_grad():
        normalized[0].weight.copy_(torch.eye(5) / 2)
        normalized[0].bias.fill_(-1 / 2)
    method = make(model)
    found = Explainer(model, method=method, mean=1.0, std=2.0).attribute(x)
    wanted = Explainer(normalized, method=make(normalized)).attribute(x)
    torch.testing.assert_close(found.values, wanted.values, atol=1e-5, rtol=1e-4)
    assert method.forward_func is model


def test_objects_that_cannot_be_taken():
    model = network(5)
    with pytest.raises(BadInput, match="the DeepLift was made for another model"):
        Explainer(network(5), method=DeepLift(model))
    with pytest.raises(BadInput, match="ExactShapley is given by its name"):
        Explainer(model, method=ExactShapley(model), mean=1.0)
    with pytest.raises(BadInput, match="DeepLift knows no error bars"):
        Explainer(model, method=DeepLift(model), error_bars=True).attribute(rows(1, 5))
    with pytest.raises(BadInput, match="leave max_evaluations out"):
        Explainer(model, method=DeepLift(model), max_evaluations=10).attribute(rows(1, 5))


def test_both_explainers_have_the_same_words_in_the_same_places():
    rows_, texts = (signature(explainer).parameters for explainer in (Explainer, TextExplainer))
    only_texts, only_rows = (
        {"tokenizer"},
        {"background", "feature_mask", "feature_names", "mean", "std", "encoder", "link"},
    )
    assert set(texts) - set(rows_) == only_texts
    assert set(rows_) - set(texts) == only_rows
    assert [name for name in texts if name not in only_texts] == [name for name in rows_ if name not in only_rows]
    differ = {name for name in set(rows_) & set(texts) if rows_[name].default != texts[name].default}
    assert differ == {"players"}  # words
    for name in ("__call__", "attribute"):
        ours, theirs = (list(signature(getattr(each, name)).parameters.values()) for each in (Explainer, TextExplainer))
        assert ours[2].name == theirs[2].name == "target"
        assert ours[2].default is theirs[2].default


def test_a_choice_is_kept_for_every_number_of_players():
    calls = []

    def model(x):
        calls.append(len(x))
        return x.sum(1)

    explainer = Explainer(model, max_evaluations=200)
    found = {players: explainer.attribute(rows(1, players)) for players in (18, 3)}
    assert found[3].method == "exact_shapley"
    before = calls.copy()
    calls.clear()
    again = explainer.attribute(rows(1, 18))
    assert torch.equal(again.values, found[18].values)
    assert again.method == "bayesian_shapley"
    assert sum(calls) == sum(before[: len(calls) + 1]) - 2  # it was not counted again


def test_an_estimator_of_ours_as_an_object_has_all_of_its_options():
    model, x = network(8), rows(2, 8)
    given = [Explainer(model, method=PermutationShapley(model), seed=seed).attribute(x).values for seed in (0, 5)]
    assert not torch.equal(*given)
    result = Explainer(model, method=PermutationShapley(model), seed=5, max_evaluations=60, error_bars=True).attribute(
        x
    )
    named = Explainer(model, method="permutation", seed=5, max_evaluations=60, error_bars=True).attribute(x)
    assert result.method == "PermutationShapley"
    assert torch.equal(result.values, named.values)
    assert torch.equal(result.std, named.std)
