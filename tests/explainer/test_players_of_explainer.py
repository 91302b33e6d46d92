"""Raw tables, images and series through `Explainer`, with the players people think in."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from skimage.data import astronaut
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from small_tables import people
from torch import nn

from dasp import Explainer
from dasp.errors import BadInput
from dasp.players import blocks, superpixels, windows, without


def encoder():
    imputed = make_pipeline(SimpleImputer(), StandardScaler())
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder()), ["city", "sex"]),
        (imputed, ["pressure", "age", "visits"]),
    )


def enumerated(predict, row, background):
    """Shapley values of the columns of a row by all coalitions of columns: the slow, obvious way."""
    names = list(row.columns)

    def worth(present):
        table = background.copy()
        for name in present:
            table[name] = row[name].iloc[0]
        return predict(table).mean(0)

    number, values = len(names), []
    for name in names:
        others = [other for other in names if other != name]
        total = 0.0
        for size in range(number):
            weight = math.factorial(size) * math.factorial(number - size - 1) / math.factorial(number)
            for present in itertools.combinations(others, size):
                total = total + weight * (worth([*present, name]) - worth(present))
        values.append(total)
    return np.array(values)


def test_a_pipeline_is_explained_by_its_raw_columns():
    table, label = people()
    fitted = make_pipeline(
        encoder(), MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, random_state=0, tol=1e-2)
    ).fit(table, label)
    explanation = Explainer(fitted, background=table[:7])(table[10:12])
    assert explanation.feature_names == list(table.columns)
    assert explanation.data[0, 1] == table.city[10]
    for i in range(2):
        wanted = enumerated(fitted.predict, table[10 + i : 11 + i], table[:7])
        np.testing.assert_allclose(explanation.values[i], wanted, atol=1e-9)


def test_an_encoder_goes_before_a_module():
    table, _ = people()
    front = encoder().fit(table)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).double().eval()

    def predict(rows):
        with torch.no_grad():
            return model(torch.tensor(front.transform(rows))).numpy()

    explainer = Explainer(model, background=table[:3], encoder=front, output_names=["no", "yes"])
    explanation = explainer(table[5:6][table.columns[::-1]])  # columns are found by name
    np.testing.assert_allclose(explanation.values[0], enumerated(predict, table[5:6], table[:3]), atol=1e-9)
    grouped = Explainer(model, background=table[:3], encoder=front, feature_mask=[0, 0, 1, 1, 1])(table[5:6])
    assert grouped.values.shape == (1, 2, 2)
    assert grouped.data[0, 0] == f"{table.age[5]:.4g}, {table.city[5]}"
    np.testing.assert_allclose(grouped.values.sum(1), explanation.values.sum(1), atol=1e-9)


def test_an_encoder_that_mixes_columns_runs_for_every_coalition():
    table, label = people()
    mixing = make_column_transformer(
        (make_pipeline(StandardScaler(), PCA(2)), ["age", "pressure", "visits"]), (OneHotEncoder(), ["sex"])
    )
    fitted = make_pipeline(mixing, MLPRegressor(hidden_layer_sizes=(8,), max_iter=300, random_state=0, tol=1e-2)).fit(
        table, label
    )
    explanation = Explainer(fitted, background=table[:4])(table[20:21])
    wanted = enumerated(fitted.predict, table[20:21], table[:4])
    np.testing.assert_allclose(explanation.values[0], wanted, atol=1e-9)
    assert abs(explanation.values[0, 1]) < 1e-12  # the city is dropped


def test_an_absent_column_may_be_missing():
    table, label = people()
    fitted = make_pipeline(
        encoder(), MLPClassifier(hidden_layer_sizes=(8,), max_iter=300, random_state=0, tol=1e-2)
    ).fit(table, label > 2)
    explainer = Explainer(fitted, baselines="missing")
    empty = pd.DataFrame([[np.nan] * 5], columns=table.columns, dtype=object)
    missing = explainer.attribute(table[:1]).base
    probability = fitted.predict_proba(empty)[0, 1]
    torch.testing.assert_close(torch.sigmoid(missing).item(), probability)
    gap = table[:1].assign(pressure=np.nan)  # what is missing in a row is absent
    assert explainer(gap).values[0, 3] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say what an absent column is"),
        ({"baselines": "missing", "background": people()[0]}, "say what an absent column is"),
        ({"background": people()[0], "feature_mask": [0, 1]}, "takes 5 raw columns"),
        ({"background": people()[0], "mean": 1.0}, "without mean and std"),
    ],
)
def test_what_does_not_go_with_an_encoder_is_refused(options, message):
    with pytest.raises(BadInput, match=message):
        Explainer(nn.Linear(8, 1).eval(), encoder=encoder().fit(people()[0]), **options)


def test_a_missing_value_that_stays_missing_is_named():
    table, _ = people()
    front = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["city"]), (StandardScaler(), ["age"]))
    with pytest.raises(BadInput, match="a missing value of 'age' stays missing"):
        Explainer(nn.Linear(4, 1).eval(), encoder=front.fit(table), baselines="missing")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2)).eval()


def test_normalisation_is_part_of_the_model():
    model, photos = network(), torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    mean, std = (120.0, 110.0, 100.0), (60.0, 55.0, 50.0)
    mask = blocks((3, 8, 8), 4)
    found = Explainer(model, mean=mean, std=std, feature_mask=mask, baselines=128.0).attribute(photos, target=1)
    scaled = [(x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1) for x in (photos, 128.0)]
    wanted = Explainer(model, feature_mask=mask, baselines=scaled[1].expand(3, 8, 8)).attribute(scaled[0], target=1)
    torch.testing.assert_close(found.values, wanted.values)
    with pytest.raises(BadInput, match="positive numbers are needed"):
        Explainer(model, std=0)
    with pytest.raises(BadInput, match="a number, or one for each channel"):
        Explainer(model, mean="imagenet")


def test_a_column_of_pandas_can_be_the_normalisation():
    """Its array cannot be written to, of which torch would warn."""
    table = pd.DataFrame(np.random.default_rng(0).normal(2, 3, (5, 3)), columns=list("abc"))
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).eval()
    mean, std = table.mean(), table.std()
    mean.to_numpy().flags.writeable = False
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        found = [Explainer(model, mean=a, std=b)(table) for a, b in ((mean, std), (mean.to_numpy(), std.to_numpy()))]
    finally:
        torch.set_warn_always(before)
    scaled = Explainer(model, baselines=torch.tensor((-mean / std).to_numpy()).float())((table - mean) / std)
    for each in found:
        np.testing.assert_allclose(each.values, scaled.values, atol=1e-5)


def test_every_image_is_explained_by_superpixels_of_its_own():
    model, photos = network(), torch.tensor(astronaut()[::16, ::16] / 255).permute(2, 0, 1).float()
    photos = torch.stack([photos[:, :16, :16], photos[:, 12:28, 8:24]])
    off = without(photos, "blur:2")
    explanation = Explainer(model, players="superpixel:6", baselines=off, target=0)(photos)
    assert explanation.values.shape == (2, 16, 16, 3)
    for i in range(2):
        mask = superpixels(photos[i], 6)
        alone = Explainer(model, feature_mask=mask, baselines=off[i], target=0)(photos[i : i + 1])
        np.testing.assert_allclose(explanation.values[i], alone.values[0], atol=1e-6)
    both = Explainer(model, feature_mask=superpixels(photos, 6), baselines=off, target=0)(photos)
    np.testing.assert_allclose(both.values, explanation.values, atol=1e-6)


def test_the_players_of_a_call_are_made_once():
    """Superpixels take their time, and must be the same for the values and for their columns."""
    calls = []

    def halves(images):
        calls.append(len(images))
        return torch.cat([torch.zeros(1, 3, 8, 4), torch.ones(1, 3, 8, 4)], -1).long()

    explainer = Explainer(network(), torch.zeros(5, 3, 8, 8), players=halves, target=0)
    assert not calls  # a background has no players
    for explain in (explainer, explainer.attribute, explainer.prepare):
        explain(torch.rand(2, 3, 8, 8))
        assert calls == [2]
        calls.clear()


def test_random_players_are_consistent():
    """Every column is that of the players by which the row was explained."""
    torch.manual_seed(0)
    weight, x = torch.randn(12), torch.rand(3, 12)

    def some_pairs(rows):
        return torch.randperm(12)[None] // 2

    explanation = Explainer(lambda x: x @ weight, players=some_pairs)(x)
    entries = dict(zip((f"{number:.4g}" for number in x[0].tolist()), range(12), strict=True))
    for i, pair in enumerate(explanation.data[0]):
        members = [entries[number] for number in pair.split(", ")]
        assert len(members) == 2
        wanted = x[:, members] @ weight[members]
        np.testing.assert_allclose(explanation.values[:, i], wanted, atol=1e-5)


def test_masks_for_other_inputs_are_refused():
    explainer = Explainer(lambda a, b: a.sum(1) + b.sum(1), feature_mask=[0, 0])
    with pytest.raises(BadInput, match="feature_mask is for one input, and x has the inputs 0, 1"):
        explainer.attribute((torch.ones(1, 2), torch.ones(1, 2)))


def test_windows_of_a_series():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
    series = torch.randn(3, 2, 15)
    named = Explainer(model, players="window:5")(series)
    masked = Explainer(model, feature_mask=windows((2, 15), 5))(series)
    assert named.values.shape == (3, 3)
    np.testing.assert_allclose(named.values, masked.values)
    with pytest.raises(BadInput, match="players and feature_mask are both given"):
        Explainer(model, players="window:5", feature_mask=windows((2, 15), 5))


def test_tensors_go_through_the_encoder():
    draw = np.random.default_rng(0)
    table = draw.normal(5, 3, (100, 4))
    network = MLPRegressor(hidden_layer_sizes=(8,), max_iter=2000, random_state=0, tol=1e-1)
    fitted = make_pipeline(SimpleImputer(), StandardScaler(), network).fit(table, table[:, 0])
    found = Explainer(fitted, background=torch.tensor(table[:5]))(torch.tensor(table[20:22]))
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, fitted.predict(table[20:22]), rtol=1e-6)


def test_a_group_with_a_dropped_column_has_its_value():
    table, label = people()
    front = make_column_transformer((OneHotEncoder(), ["city"]), (StandardScaler(), ["visits"]))
    network = MLPRegressor(hidden_layer_sizes=(8,), max_iter=300, random_state=0, tol=1e-2)
    fitted = make_pipeline(front, network).fit(table, label)
    found = Explainer(fitted, background=table[:3], feature_mask=[0, 0, 1, 1, 1])(table[9:10])  # age is dropped
    total = found.values.sum() + found.base_values[0]
    np.testing.assert_allclose(total, fitted.predict(table[9:10])[0])
    assert found.values[0, 0] != 0


@pytest.mark.parametrize("mixing", [False, True])
def test_values_keep_their_kind(mixing):
    """None is a category; and True is not 1."""
    values = np.empty((90, 2), dtype=object)
    values[:, 0], values[:, 1] = [None, "x", True if mixing else "y"] * 30, ["u", "v"] * 45
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    if mixing:
        encoder = make_pipeline(FunctionTransformer(lambda x: np.where(x == True, 2, 1).astype(float)))  # noqa: E712
    label = np.array([3.0, 0.0, 1.0] * 30)
    network = MLPRegressor(hidden_layer_sizes=(8,), max_iter=500, random_state=0, tol=1e-3)
    fitted = make_pipeline(encoder, network).fit(values, label)
    found = Explainer(fitted, background=values[:4])(values[3:6])
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, fitted.predict(values[3:6]), atol=1e-6)


def test_an_encoder_may_give_numbers_to_look_up():
    table, _ = people()
    model = nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(6, 1)).double().eval()
    front = OrdinalEncoder(dtype=np.int64).fit(table[["city", "sex"]])
    found = Explainer(model, background=table[["city", "sex"]][:4], encoder=front)(table[["city", "sex"]][6:8])
    with torch.no_grad():
        wanted = model(torch.tensor(front.transform(table[["city", "sex"]][6:8])))[:, 0].numpy()
    np.testing.assert_allclose(found.values.sum(1) + found.base_values, wanted, rtol=1e-5)


def test_names_in_another_order_reorder_a_table():
    model = nn.Linear(2, 1, bias=False).eval()
    found = Explainer(model, feature_names=["a", "b"])(pd.DataFrame({"b": [1.0], "a": [2.0]}))
    np.testing.assert_allclose(
        found.values[0], (model.weight[0] * torch.tensor([2.0, 1.0])).detach().numpy(), rtol=1e-5
    )


def test_baselines_as_people_have_them():
    model = nn.Linear(2, 1, bias=False).eval()
    table = pd.DataFrame({"a": [2.0, 4.0], "b": [1.0, 7.0]})
    found = Explainer(model, baselines=table.mean(), feature_names=["a", "b"])(table[:1])
    np.testing.assert_allclose(
        found.values[0], (model.weight[0] * torch.tensor([-1.0, -3.0])).detach().numpy(), rtol=1e-5
    )
    both = Explainer(lambda a, b: (a * b).sum(1), baselines=(1.0, 2.0)).attribute((torch.ones(1, 2), torch.ones(1, 2)))
    torch.testing.assert_close(both.base, torch.tensor([4.0]))


@pytest.mark.parametrize(
    ("make", "x", "message"),
    [
        (lambda: Explainer(lambda a, b: a.sum(1), mean=1.0), (torch.ones(1, 2), torch.ones(1, 2)), "for one input"),
        (lambda: Explainer(network(), mean=[1.0, 2.0]), torch.ones(1, 3, 8, 8), "have 2 numbers, and rows of shape"),
        (lambda: Explainer(network(), mean=[1.0, 2.0], std=[1.0] * 3), torch.ones(1, 3, 8, 8), "mean has 2 numbers"),
        (lambda: Explainer(network(), players=3), torch.ones(1, 3, 8, 8), "players are 3"),
        (lambda: Explainer(network()), torch.ones(1, 3, 8, 8, dtype=torch.uint8), r"x.float\(\)"),
    ],
)
def test_what_does_not_fit_gets_a_sentence(make, x, message):
    with pytest.raises(BadInput, match=message):
        make()(x)
