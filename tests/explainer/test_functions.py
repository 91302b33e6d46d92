"""Functions as people have them: of arrays, data frames and probabilities; and what SHAP's users give beside them."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

from dasp import ExactShapley, Explainer, GradientDASP, TextExplainer
from dasp.errors import BadInput

shap = pytest.importorskip("shap")

GENERATOR = np.random.default_rng(0)
X = pd.DataFrame(GENERATOR.normal(size=(60, 4)), columns=["age", "pay", "height", "rent"])
LABELS = np.where(X["age"] + X["pay"] * X["rent"] > 0, "yes", "no")
FITTED = LogisticRegression().fit(X.values, LABELS)


def test_predict_proba_of_arrays():
    found = Explainer(FITTED.predict_proba, X.values[:20])(X.values[:3])
    assert found.shape == (3, 4, 2)
    assert list(found.output_names) == ["no", "yes"]
    weights, bias = torch.tensor(FITTED.coef_[0]), float(FITTED.intercept_[0])
    rows, background = torch.tensor(X.values[:3]), torch.tensor(X.values[:20])
    truth = ExactShapley(lambda x: (x @ weights + bias).sigmoid()).attribute(rows, background)
    np.testing.assert_allclose(found.values[..., 1], truth.numpy(), atol=1e-5)
    np.testing.assert_allclose(found.base_values[0], FITTED.predict_proba(X.values[:20]).mean(0), atol=1e-5)
    assert Explainer(FITTED.predict_proba, X.values[:20])(X.values[:3], target="yes").shape == (3, 4)
    with pytest.raises(BadInput, match="returns text.*predict_proba"):
        Explainer(FITTED.predict, X.values[:20])(X.values[:3])
    with pytest.raises(BadInput, match=r"model\.predict_proba"):
        Explainer(FITTED, X.values[:20])


@pytest.mark.parametrize(
    "kind", [np.array, lambda names: np.array(names, dtype=object), pd.Series, pd.Categorical, list]
)
def test_names_of_classes_are_no_numbers(kind):
    """Though they may look like some."""
    named = lambda x: kind(["1" if row[0] > 0 else "0" for row in np.asarray(x)])
    with pytest.raises(BadInput, match="returns text"):
        Explainer(named, X.values[:5])(X.values[:2])


def test_lists_of_different_lengths_are_no_outputs():
    with pytest.raises(BadInput, match="the function returns no numbers of one shape"):
        Explainer(lambda x: [[1.0] * (1 + i) for i in range(len(x))], X.values[:5])(X.values[:2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.hypot(x[:, 0], x[:, 1]),
        lambda x: [float(v) for v in np.hypot(x[:, 0], x[:, 1])],
        lambda x: pd.Series(np.hypot(x[:, 0], x[:, 1])),
        lambda x: torch.hypot(x[:, 0], x[:, 1]),
        lambda x: torch.hypot(*torch.as_tensor(x).T[:2]),
    ],
    ids=["array", "list", "series", "tensor", "either"],
)
@pytest.mark.parametrize("form", [np.asarray, torch.tensor, pd.DataFrame], ids=["arrays", "tensors", "tables"])
def test_functions_get_what_they_take(function, form):
    rows = X.values.astype(np.float32)
    found = Explainer(function, form(rows[:1]))(form(rows[:3]))
    truth = ExactShapley(lambda x: torch.hypot(x[:, 0], x[:, 1])).attribute(
        torch.tensor(rows[:3]), torch.tensor(rows[:1])
    )
    np.testing.assert_allclose(found.values, truth.numpy(), atol=1e-5)


def test_rows_come_in_the_form_that_people_have():
    """`std` is another number of arrays than of tensors."""
    seen = []

    def function(x):
        seen.append(type(x))
        return x.std(axis=1)

    array = X.values[:2]
    forms = [(array, np.ndarray), (torch.tensor(array), torch.Tensor), (X[:2], pd.DataFrame)]
    for rows, form in forms:
        for options in [{"background": rows}, {}][: 1 if form is pd.DataFrame else 2]:
            seen.clear()
            found = Explainer(function, **options)(rows)
            assert set(seen) == {form}
            full = (found.values.sum(1) + found.base_values)[0]
            assert full == pytest.approx(np.std(array[0], ddof=0 if form is np.ndarray else 1), abs=1e-5)


def test_the_error_of_a_function_is_its_own():
    def broken(x):
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        Explainer(broken, X.values[:2])(X.values[:2])
    with pytest.raises(RuntimeError, match="shape"):  # what a function of tensors says, and not that it takes no arrays
        Explainer(lambda x: nn.functional.linear(x, torch.ones(1, 5)), X.values[:2])(X.values[:2])


def test_functions_of_data_frames_get_columns_and_dtypes_as_they_are():
    table = pd.DataFrame({
        "city": pd.Categorical(["Bern", "Basel", "Genf"] * 8), "pet": ["cat", None, "dog", "dog"] * 6,
        "children": np.arange(24) % 3, "pay": GENERATOR.normal(size=24),
        "since": pd.date_range("2020-01-01", periods=24),
    })  # fmt: skip
    table.columns.name = "what"
    seen = []

    def function(frame):
        seen.append((list(frame.columns), [str(kind) for kind in frame.dtypes]))
        days = (frame["since"] - pd.Timestamp("2020-01-01")).dt.days
        return frame["pay"] * frame["children"] + (frame["city"] == "Bern") * frame["pet"].isna() + days / 10

    found = Explainer(function, table[:6])(table[6:9])
    assert {tuple(map(tuple, each)) for each in seen} == {(tuple(table.columns), tuple(map(str, table.dtypes)))}
    assert found.feature_names == list(table.columns)
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, function(table[6:9]), atol=1e-6)
    np.testing.assert_allclose(found.values[:, 4], (np.arange(6, 9) - 2.5) / 10, atol=1e-6)
    again = Explainer(function, table[:6])(table[6:9][table.columns[::-1]])  # columns in another order
    np.testing.assert_allclose(again.values, found.values)
    with pytest.raises(BadInput, match="X lacks the column 'pay'"):
        Explainer(function, table[:6])(table.drop(columns="pay"))


def test_a_pipeline_on_raw_columns():
    table = pd.DataFrame({"city": ["Bern", "Basel", "Genf"] * 10, "age": np.arange(30.0)})
    encoder = make_column_transformer((OneHotEncoder(), ["city"]), ("passthrough", ["age"]))
    model = make_pipeline(encoder, RandomForestClassifier(5, random_state=0)).fit(table, np.arange(30) % 3 == 0)
    found = Explainer(model.predict_proba, table[:10])(table[:4])
    assert list(found.output_names) == ["False", "True"]
    full = found.values.sum(1) + found.base_values
    np.testing.assert_allclose(full, model.predict_proba(table[:4]), atol=1e-6)
    shap.plots.beeswarm(found[..., 1], show=False)
    shap.plots.waterfall(Explainer(model.predict_proba, table[:10], target=1)(table.iloc[0]), show=False)
    plt.close("all")


def test_encoders_of_objects():
    rows = np.array([["Bern", 1.5], ["Basel", 2.5], ["Bern", 0.5]], dtype=object)
    encoder = make_column_transformer((OneHotEncoder(), [0]), ("passthrough", [1])).fit(rows)
    model = nn.Linear(3, 1).eval()
    one = Explainer(model, rows[:2], encoder=encoder)
    found = one(rows)
    full = model(torch.tensor(encoder.transform(rows).astype(np.float32)))[:, 0].detach().numpy()
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, full, atol=1e-5)
    np.testing.assert_allclose(one(rows[2]).values, found.values[2])
    np.testing.assert_allclose(one(rows.tolist()).values, found.values)


@pytest.mark.parametrize("weights", [[0.0] * 4, [1.0, -1.0, 2.0, 1.0], [np.nan, 1.0, 1.0, 1.0], [1.0, 2.0]])
def test_weights_that_are_none_are_refused(weights):
    summary = shap.kmeans(X.values, 4)
    summary.weights = np.array(weights)
    with pytest.raises(BadInput, match="must be a number for each of its 4 rows, none below 0 and some above"):
        Explainer(FITTED.predict_proba, summary)


@pytest.mark.parametrize("form", [np.asarray, pd.DataFrame])
def test_weights_of_kmeans_count(form):
    rows = form(X)
    summary = shap.kmeans(rows, 4)
    assert len(set(summary.weights)) > 1
    function = lambda x: np.asarray(x)[:, 0] * np.asarray(x)[:, 1]
    found = Explainer(function, summary)(rows[:3])
    first, second = (X.values[:3, i, None] for i in (0, 1))
    absent, other = summary.data[:, 0], summary.data[:, 1]
    share = ((first - absent) * (second + other) / 2) @ summary.weights
    np.testing.assert_allclose(found.values[:, 0], share, atol=1e-5)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).eval()
    base = net(torch.tensor(summary.data).float())[:, 0].detach().numpy() @ summary.weights
    for method in ("exact", "gradient", "bayesian", "permutation"):
        weighted = Explainer(net, summary, method=method)(rows[:3])
        np.testing.assert_allclose(weighted.base_values, base, atol=1e-5)


def test_maskers():
    function = lambda x: x[:, 0] * x[:, 1]
    rows = X.values[:5]
    masker = shap.maskers.Independent(X.values[:20])
    np.testing.assert_allclose(Explainer(function, masker)(rows).values, Explainer(function, masker.data)(rows).values)
    frame = shap.maskers.Independent(X[:20])
    assert Explainer(lambda df: df["age"] * df["pay"], frame)(X[:5]).feature_names == list(X.columns)
    image, blurred = (object.__new__(shap.maskers.Image) for _ in range(2))  # its constructor compiles for seconds
    image.mask_value, image.input_shape, blurred.mask_value = np.full(16, 0.5), (4, 4, 1), "blur(2,2)"
    sums = Explainer(lambda x: x.sum(axis=(1, 2, 3)), image)(np.ones((2, 4, 4, 1)))
    np.testing.assert_allclose(sums.values, 0.5, atol=1e-6)
    text = object.__new__(shap.maskers.Text)
    for other, message in (
        (blurred, "blur.* depends on the image: give baselines"),
        (object.__new__(shap.maskers.Partition), "Owen values"),
        (text, "TextExplainer"),
        (shap.maskers.Fixed(), "Fixed is no background here: give rows"),
    ):
        with pytest.raises(BadInput, match=message):
            Explainer(function, other)


@pytest.mark.parametrize("row", [X.values[0], X.iloc[0], list(X.values[0]), torch.tensor(X.values[0])], ids=type)
def test_a_row_by_itself_has_the_explanation_of_a_row(row):
    function = lambda x: x[:, 0] * x[:, 1] + x[:, 2]
    for options in ({"background": X.values[:9]}, {"baselines": 0.5}, {}):
        explainer = Explainer(function, **options)
        one, found = explainer(row), explainer(X.values[:1])[0]
        assert one.shape == (4,)
        np.testing.assert_allclose(one.values, found.values)
        assert one.base_values == pytest.approx(found.base_values)
    shap.plots.waterfall(one, show=False)
    plt.close("all")


def test_an_image_by_itself_is_known_by_the_background():
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 2)).eval()
    images = torch.rand(4, 2, 4, 4)
    explainer = Explainer(model, images[:2], method="gradient")
    assert explainer(images[3], target=0).shape == explainer(images[3:], target=0)[0].shape


@pytest.mark.parametrize("link", ["logit", shap.links.logit], ids=["name", "function"])
def test_log_odds(link):
    found = Explainer(FITTED.predict_proba, X.values[:20], link=link)(X.values[:3], target="yes")
    weights, change = FITTED.coef_[0], X.values[:3] - X.values[:20].mean(0)
    np.testing.assert_allclose(found.values, weights * change, atol=1e-4)


def test_log_odds_of_a_network():
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)]
    logits, probability = nn.Sequential(*layers).eval(), nn.Sequential(*layers, nn.Sigmoid()).eval()
    rows = torch.tensor(X.values[:3]).float()
    found, truth = Explainer(probability, link="logit").attribute(rows), Explainer(logits).attribute(rows)
    torch.testing.assert_close(found.values, truth.values[:, 0] if truth.values.dim() > 2 else truth.values)
    assert Explainer(probability, link="identity").model is probability
    with pytest.raises(BadInput, match="link is 'identity' or 'logit', not 'probit'"):
        Explainer(probability, link="probit")
    with pytest.raises(BadInput, match="strictly between 0 and 1"):
        Explainer(logits, link="logit")(rows * 100)


def test_an_explainer_is_saved_without_code(tmp_path):
    path = tmp_path / "explainer.safetensors"
    table = X.assign(city=["Bern", "Basel"] * 30)
    in_bern = lambda frame: frame["age"] * (frame["city"] == "Bern")
    for model, background, rows, options in (
        (FITTED.predict_proba, X.values[:7], X[9:11], {"target": "yes", "method": "permutation", "seed": 3}),
        (FITTED.predict_proba, torch.tensor(X.values[:7]), X[9:11], {"feature_mask": np.array([0, 0, 1, 2])}),
        (FITTED.predict_proba, X[:7], X[9:11], {"link": shap.links.logit, "max_evaluations": 16}),
        (in_bern, table[:7], table[9:11], {}),
        (FITTED.predict_proba, shap.kmeans(X, 3), X[9:11], {}),
    ):
        explainer = Explainer(model, background, **options)
        explainer.save(path)
        np.testing.assert_array_equal(Explainer.load(path, model)(rows).values, explainer(rows).values)
    content = path.read_bytes()
    assert b"pickle" not in content
    assert json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]["dasp explainer"]


def test_what_is_code_is_given_again(tmp_path):
    path = tmp_path / "explainer.safetensors"
    net = nn.Linear(4, 1).eval()
    Explainer(net, players=lambda x: torch.arange(4) // 2, method=GradientDASP(net), tolerance=0.1).save(path)
    with pytest.raises(BadInput, match="was saved without players, method, which are code: give them again"):
        Explainer.load(path, net)
    loaded = Explainer.load(path, net, players=lambda x: torch.arange(4) // 2, method="exact")
    assert loaded.attribute(torch.ones(1, 4)).method == "exact_shapley"
    with pytest.raises(BadInput, match="target cannot be saved: a object is neither numbers nor text"):
        Explainer(net, target=object()).save(path)
    for damaged in (b"", b"\xff" * 40, path.read_bytes()[:50]):
        path.write_bytes(damaged)
        with pytest.raises(BadInput, match="is no saved explainer, or damaged"):
            Explainer.load(path, net)


def test_figures_of_texts_over_words():
    """What SHAP draws of its own explanations of texts of several lengths."""
    function = lambda texts: torch.tensor([[float(text.count("good")), len(text) / 10] for text in texts])
    found = TextExplainer(function, target=0)(["a good film", "not so good indeed"])
    means = found.mean(0)
    assert dict(zip(means.feature_names, means.values, strict=True))["good "] == pytest.approx(1)
    shap.plots.bar(found.abs.sum(0), show=False)
    shap.plots.bar(found[0], show=False)
    plt.close("all")
