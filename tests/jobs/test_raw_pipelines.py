"""Pipelines from files, which take the raw columns of tables: texts and categories beside numbers."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
from explain_files import dasp
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dasp import Explainer
from dasp.pages.contents import read

COLUMNS = ["city", "pet", "age", "income"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipelines")
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "city": random.choice(["Bern", "Zürich", "=1+1"], 60), "pet": random.choice(["cat", "dog"], 60),
            "age": random.integers(18, 90, 60), "income": random.normal(5, 2, 60).round(2),
        }
    )  # fmt: skip
    score = 2.0 * (table.city == "Bern") + (table.pet == "dog") * table.age / 60
    for name, last in {
        "network": MLPRegressor(hidden_layer_sizes=(6,), max_iter=9, tol=10, n_iter_no_change=1, random_state=0),
        "forest": RandomForestClassifier(5, random_state=0),
    }.items():
        encoder = ColumnTransformer(
            [("texts", OneHotEncoder(), ["city", "pet"]), ("numbers", StandardScaler(), ["age", "income"])]
        )
        fitted = make_pipeline(encoder, last).fit(table, score if name == "network" else score > 1)
        joblib.dump(fitted, folder / f"{name}.joblib")
    named = table.assign(who=[f"person {i}" for i in range(60)])[["who", "age", "city", "income", "pet"]]
    named[20:40].to_csv(folder / "rows.csv", index=False)
    named[20:40].to_parquet(folder / "rows.parquet")
    table[:10].to_csv(folder / "others.csv", index=False)
    table[:1].to_parquet(folder / "one.parquet")
    table.iloc[:10, 2:].to_csv(folder / "numbers.csv", index=False)
    table[:10].assign(city=range(10)).to_csv(folder / "numbered.csv", index=False)
    table[20:23].assign(city=["Bern", None, "Bern"]).to_csv(folder / "gaps.csv", index=False)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def explained(*arguments):
    result = dasp("explain", *arguments, "--trust", "--id", "who", "--overwrite")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize("data", ["rows.csv", "rows.parquet"])
def test_the_values_are_those_of_an_explainer(here, data):
    explained("network.joblib", data, "--background", "others.csv", "-o", "out.parquet", "--report", "page.html")
    found, table = pd.read_parquet("out.parquet"), pd.read_parquet("rows.parquet")
    pipeline = joblib.load("network.joblib")
    expected = Explainer(pipeline, background=pd.read_csv("others.csv"))(table[COLUMNS])
    np.testing.assert_allclose(found[COLUMNS], expected.values, atol=1e-6)
    np.testing.assert_allclose(found.prediction, pipeline.predict(table[COLUMNS]), rtol=1e-5)
    assert found.id.tolist() == table.who.tolist()
    for name in COLUMNS:
        assert found[f"data:{name}"].tolist() == table[name].tolist()
    page = (here / "page.html").read_text()
    assert '"Zürich"' in page
    assert "=1+1" in page


def test_other_models_at_the_end_are_explained_by_their_probabilities(here):
    options = ("--baselines", "one.parquet", "--target", "1", "--with-data", "--safe-csv")
    explained("forest.joblib", "rows.csv", *options, "-o", "out.csv")
    found, table = pd.read_csv("out.csv"), pd.read_csv("rows.csv")
    pipeline = joblib.load("forest.joblib")
    np.testing.assert_allclose(found.prediction, pipeline.predict_proba(table[COLUMNS])[:, 1], atol=1e-6)
    np.testing.assert_allclose(found[COLUMNS].sum(axis=1) + found.base_value, found.prediction, atol=1e-6)
    assert found["data:city"].tolist() == ["'=1+1" if city == "=1+1" else city for city in table.city]
    (rows,) = read(here / "out.csv").rows()
    assert [row[0] for row in rows.data] == table.city.tolist(), "as they were given"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("network.joblib rows.csv --id who", "column 'city' has texts: --drop leaves it out"),
        ("network.joblib rows.csv --id who --baselines 0", "say what an absent input is"),
        ("network.joblib rows.csv --background others.csv", "column 'who'"),
        ("network.joblib rows.csv --drop who,pet --background others.csv", "fitted with the column 'pet', which is"),
        ("network.joblib rows.csv --id who --background numbers.csv", "no column 'city'"),
        ("network.joblib rows.csv --id who --background numbered.csv", "has numbers, and texts in another file"),
        ("network.joblib rows.csv --id who --background others.csv --std 2", "--mean and --std are for numbers"),
        ("network.joblib gaps.csv --background others.csv", "column 'city' is missing or NaN in row 1"),
    ],
)
@pytest.mark.usefixtures("here")
def test_what_cannot_be_explained(arguments, message):
    result = dasp("explain", *arguments.split(), "--trust", "-o", "refused.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert message in result.err


@pytest.mark.usefixtures("here")
def test_rows_without_a_label_can_be_left_out():
    options = ("--background", "others.csv", "--on-bad-row", "skip", "--trust", "-o", "skipped.parquet")
    result = dasp("explain", "network.joblib", "gaps.csv", *options)
    assert result.code == 0, result.err
    assert pd.read_parquet("skipped.parquet").id.tolist() == [0, 2]
