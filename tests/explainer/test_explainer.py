"""The front: what people have goes in, what SHAP's plots take comes out, by a method that is told."""

from __future__ import annotations

import functools
import logging
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neural_network import MLPClassifier
from torch import nn

from dasp import ExactShapley, Explainer, UnsupportedOperation, UntraceableModel
from dasp.errors import BadInput
from dasp.methods import METHODS

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
    assert result.method == explainer.method == "Exact"
    assert "64 coalitions" in explainer.reason
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
    assert explainer.method == "auto"
    with caplog.at_level(logging.INFO, "dasp"):
        result = explainer.attribute(x)
    assert explainer.method.startswith("BayesianShapley")
    said = [line.getMessage() for line in caplog.records if line.name == "dasp"]
    assert said == [f"{explainer.method}: {explainer.reason}"]
    error = (result.values - exact).abs()
    assert (error < 5 * result.std + 1e-3).all()
    assert result.gap.abs().max() < 1e-5


@pytest.mark.parametrize(
    "wish", [dict(error_bars=True), dict(tolerance=0.2), dict(max_evaluations=300), dict(max_seconds=1e-4)], ids=str
)
def test_wishes(wish):
    model, x, exact = many()
    explainer = Explainer(model, **wish)
    result = explainer.attribute(x)
    assert explainer.method.startswith("BayesianShapley")
    error = (result.values - exact).abs()
    assert (error < 5 * result.std + 1e-3).all()
    again = Explainer(model, **explainer.settled()).attribute(x)  # with nothing left to choose
    assert torch.equal(again.values, result.values)


def test_exact_values_do_not_exceed_the_evaluations():
    explainer = Explainer(network(10), max_evaluations=300)
    explainer.attribute(rows(2, 10))
    assert explainer.method.startswith("BayesianShapley")


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
def test_models_that_cannot_be_propagated_are_evaluated(model, reason, caplog):
    explainer = Explainer(model)
    with caplog.at_level(logging.INFO, "dasp"):
        explainer.attribute(rows(2, 24).abs())
        assert explainer.method == "BayesianShapley"
        assert reason in explainer.reason
        explainer.attribute(rows(1, 70).abs())  # so many would need a prior
    levels = [record.levelno for record in caplog.records if record.name == "dasp"]
    assert levels == [logging.INFO, logging.WARNING]
    assert "\n" not in explainer.reason


def test_a_method_that_is_named_is_taken_or_refused():
    explainer = Explainer(network(6), method="gradient")
    assert (explainer.method, explainer.reason) == ("GradientDASP", "it was asked for")
    assert explainer.attribute(rows(2, 6)).method == "GradientDASP"
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
        dict(method="permutation"), dict(method="KernelSHAP"), dict(method="Shapley sampling"),
        dict(method="BayesianShapley on GradientDASP", tolerance=0.1),
    ],
    ids=str,
)  # fmt: skip
def test_rows_do_not_depend_on_their_neighbours(options):
    explainer = Explainer(network(15, 3), rows(4, 15, seed=2), **options)
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
        (table["age"].to_numpy(), r"X\[None\] for a single one"),
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
        (dict(method="magic"), "no method 'magic'; there are 'auto', 'exact', .*'KernelSHAP'"),
        (dict(method="gradient", error_bars=True), "GradientDASP knows no error bars"),
        (dict(method="dasp", tolerance=0.1), "DASP, full rank knows no tolerance"),
        (dict(method="Occlusion", max_evaluations=100), "Occlusion takes always the same"),
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
    monkeypatch.delitem(sys.modules, "dasp.explainer.pictured", raising=False)  # which has imported it before
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


def test_no_other_method_is_taken_by_accident(monkeypatch):
    """What cannot be expected is an error, and no reason to choose."""
    monkeypatch.setattr("dasp.attribution.gradient.GradientDASP.explain", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError) as error:
        Explainer(network(18)).attribute(rows(2, 18))
    assert "method='bayesian' does without" in error.value.__notes__[0]


def test_a_choice_is_kept_for_every_number_of_players():
    calls = []

    def model(x):
        calls.append(len(x))
        return x.sum(1)

    explainer = Explainer(model, max_evaluations=200)
    found = {players: explainer.attribute(rows(1, players)).values for players in (18, 3)}
    assert explainer.method == "Exact"
    before = len(calls)
    assert torch.equal(explainer.attribute(rows(1, 18)).values, found[18])
    assert explainer.method == "BayesianShapley"
    assert len(calls) - before < before / 2  # it was not timed again
