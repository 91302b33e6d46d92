"""Pages of explanations from Python, which are those of files."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from explain_files import dasp as run
from reported import EVIL, write_page
from sklearn.compose import ColumnTransformer
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import nn

import dasp
from dasp import Explainer, TextExplainer, explain_game
from dasp.errors import BadInput

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's own
    import shap

NAMES = ["age", "weight", "height"]


def data_of(page):
    text = page.read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def told(page):
    """The words of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.read_text().partition("<main")[2].partition("<script")[0]))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 3)).eval()


@pytest.fixture(scope="module")
def x():
    return torch.randn(12, 3, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def every(model, x):
    """All outputs, explained."""
    return Explainer(model, feature_names=NAMES, output_names=["low", "middle", "high"], baselines=0.5)(x)


def same(one, other):
    """Compare data of pages, whose numbers may differ in the last of their digits."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        return all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == pytest.approx(other, rel=2e-4, abs=2e-5) if isinstance(one, float) else one == other


@pytest.mark.usefixtures("here")
def test_the_page_of_a_table_is_that_of_a_file(tmp_path):
    rows = pd.read_csv("large.csv").iloc[:50]
    rows.to_csv("fifty.csv", index=False)
    job = "explain shown:few fifty.csv --method exact -o fifty.parquet --report fifty.html"
    assert run(*job.split()).code == 0
    file = Path("fifty.html")
    from_file = data_of(file)
    import shown  # noqa: PLC0415 (a file of this folder)

    explanation = Explainer(shown.few().eval(), method="exact")(rows)
    page = explanation.report(tmp_path / "page.html", title="few")
    mine = data_of(page)
    assert mine["kind"] == "table"
    for key in ("players", "swarm", "outputs", "kind"):
        assert same(mine[key], from_file[key]), key
    for own, other in zip(mine["rows"], from_file["rows"], strict=True):
        own["gap"] = other["gap"]  # rounding errors
        own["prediction"] = other["prediction"] = round(other["prediction"], 3)
        assert same({**own, "total": 0, "base": 0}, {**other, "total": 0, "base": 0})
    words, theirs = told(page), told(file)
    assert "These Shapley values are exact" in words
    for part in ("What matters most over all rows", "The size of the values, on average", "The values of single rows"):
        assert part in words
        assert part in theirs


def test_pages_of_texts(tmp_path):
    def function(texts):
        return torch.tensor([float("not good" in text) + 2 * text.count("music") for text in texts])

    texts = ["The film is not good", "The music is good", "Music, music and </script> music"]
    explanation = TextExplainer(function)(texts)
    data = data_of(dasp.report(explanation, tmp_path / "texts.html", ids=["a", "b", "c"]))
    assert data["kind"] == "text"
    assert ["".join(row["pieces"]) for row in data["rows"]] == texts
    assert [row["prediction"] for row in data["rows"]] == [1, 2, 4]
    assert data["rows"][0]["values"][-2:] == [0.5, 0.5]
    (row,) = data_of(TextExplainer(function)(texts[1]).report(tmp_path / "text.html"))["rows"]
    assert row["pieces"] == data["rows"][1]["pieces"]
    assert row["values"] == data["rows"][1]["values"]


def test_the_page_of_one_text_has_its_pieces_by_position(tmp_path):
    page = TextExplainer(lambda texts: [text.count("good") - text.count("not") for text in texts])(
        "not good, and not too good"
    ).report(tmp_path / "text.html")
    matters = told(page).partition("What matters most")[2].partition("Row by row")[0]
    assert re.findall("good,|good|not", matters) == ["not", "good,", "not", "good"]  # each with a value of its own
    assert "times" not in matters


def hierarchy():
    return TextExplainer(lambda texts: [4 * text.count("good") - 3 * text.count("cold") for text in texts]).hierarchy(
        "We came early. The soup was cold. A good, really good cake!", divided=1
    )


def test_the_page_of_a_hierarchy_has_the_sentences_first(tmp_path):
    found = hierarchy()
    page = found.report(tmp_path / "text.html")
    matters = told(page).partition("What matters most")[2].partition("Row by row")[0]
    assert re.findall(r"A good, really good cake! \D*8|The soup was cold. \D*3|We came early. \D*0", matters)
    assert matters.index("cake!") < matters.index("cold.") < matters.index("early.")
    (row,) = data_of(page)["rows"]
    assert row["sentences"]["pieces"] == list(found.sentences.data)
    assert row["sentences"]["values"] == pytest.approx([0, -3, 8])
    assert row["pieces"] == list(found.data)
    two = data_of(dasp.report([found, found], tmp_path / "two.html"))["rows"]
    assert [one["sentences"] for one in two] == [row["sentences"]] * 2
    mixed = data_of(dasp.report([found, found.sentences], tmp_path / "mixed.html"))["rows"]
    assert not any("sentences" in one for one in mixed)


def test_pages_of_images(tmp_path):
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
    pixels = Explainer(model, method="gradient")(images, target=1)
    data = data_of(pixels.report(tmp_path / "pixels.html"))
    assert data["kind"] == "image"
    assert all({"image", "map", "overlay"} <= row.keys() for row in data["rows"])
    assert data["rows"][0]["limit"] == pytest.approx(abs(pixels.values[0].sum(-1)).max(), rel=1e-4)


@pytest.mark.parametrize("name", ["blocks", "series"])
def test_pages_of_regions_are_those_of_files(here, tmp_path, name):
    """Blocks of images, and windows of series."""
    import shown  # noqa: PLC0415 (a file of this folder)

    from_file = data_of(write_page(name))
    stored = pd.read_parquet(f"{name}.parquet")
    shape = (1, 8, 8) if name == "blocks" else (2, 40)
    rows = torch.tensor(np.stack(stored.data).reshape(len(stored), *shape), dtype=torch.float32)
    model, players = (shown.images(), "block:2") if name == "blocks" else (shown.waves(), "window:10")
    explanation = Explainer(model.eval(), players=players, method="exact" if name == "series" else "bayesian",
                            max_evaluations=40 if name == "blocks" else None)(rows, target="predicted")  # fmt: skip
    mine = data_of(explanation.report(tmp_path / "page.html", ids=stored.id, interactions=name == "series"))
    assert mine["kind"] == from_file["kind"] == {"blocks": "image", "series": "series"}[name]
    for own, other in zip(mine["rows"], from_file["rows"], strict=True):
        assert own.keys() == other.keys()
        assert own.get("image") == other.get("image")
        assert same([part[:2] for part in own["parts"]], [part[:2] for part in other["parts"]])


def test_pages_of_superpixels(tmp_path):
    """Every image has regions of its own."""
    gradient = torch.linspace(0, 1, 16)
    images = torch.stack([gradient.expand(16, 16), gradient[:, None].expand(16, 16)])[:, None]
    explainer = Explainer(lambda x: x[:, :, :4].mean((1, 2, 3)), baselines=0.0, players="superpixel:6")
    explanation = explainer(images)
    rows = data_of(explanation.report(tmp_path / "page.html"))["rows"]
    for i, row in enumerate(rows):
        own = explanation[i].by_player().values
        shown = [part[1] for part in row["parts"]]
        assert sorted(shown) == pytest.approx(sorted(own), rel=1e-3, abs=1e-6)
        assert row["prediction"] == pytest.approx(float(images[i, :, :4].mean()), abs=1e-5)


def test_raw_columns_with_their_labels(tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"city": random.choice(["Bern", "Zürich"], 60), "age": random.integers(20, 90, 60)})
    table.loc[3, "age"] = 41
    encoder = ColumnTransformer([("one", OneHotEncoder(), ["city"]), ("other", StandardScaler(), ["age"])])
    fitted = MLPRegressor(hidden_layer_sizes=(4,), max_iter=5, tol=10, n_iter_no_change=1, random_state=0)
    pipeline = make_pipeline(encoder, fitted).fit(table, table.age)
    page = Explainer(pipeline, background=table[:10])(table[:8]).report(tmp_path / "page.html")
    parts = {data_of(page)["players"][part[0]]: part[3] for part in data_of(page)["rows"][3]["parts"]}
    assert parts == {"city": table.city[3], "age": "41"}
    assert "averaged over 10 background rows" in told(page)
    assert "Pipeline" in told(page)
    ranks = {data_of(page)["players"][line["player"]]: line["ranks"] for line in data_of(page)["swarm"]}
    assert ranks["city"] is None
    assert len(ranks["age"]) == 8


def test_one_of_several_outputs(every, tmp_path):
    high = data_of(dasp.report(every, tmp_path / "high.html", target="high"))
    by_number = data_of(dasp.report(every[..., 2], tmp_path / "number.html"))
    assert high["rows"] == by_number["rows"]
    assert high["outputs"] == {"2": "high"}
    assert "adds to the model’s output: high, of 3 outputs" in told(tmp_path / "high.html")
    largest = data_of(every.report(tmp_path / "largest.html"))
    assert "the largest of each row (low, middle, high)" in told(tmp_path / "largest.html")
    predictions = every.base_values + every.values.sum(1)
    assert [row["target"] for row in largest["rows"]] == predictions.argmax(1).tolist()
    assert set(largest["outputs"].values()) <= {"low", "middle", "high"}
    with pytest.raises(BadInput, match="none of the outputs: low, middle, high"):
        every.report(tmp_path / "no.html", target="best")
    with pytest.raises(BadInput, match="leave it out"):
        every[..., 1].report(tmp_path / "no.html", target=1)


def test_values_that_do_not_lead_to_the_prediction_have_no_page(every, tmp_path):
    one = every[..., 1]
    for changed in (one[:, :2], one[:, 0], one * 2, every[:, 0], every[:, :2], every[..., 1:]):
        with pytest.raises(BadInput, match="do not, as some players or outputs were left out"):
            changed.report(tmp_path / "no.html")
    with pytest.raises(BadInput, match="not a list"):
        every.report(tmp_path / "no.html", target=[0] * 12)
    assert not (tmp_path / "no.html").exists()


def test_an_output_for_each_row(model, x, tmp_path):
    explanation = Explainer(model, baselines=0.5)(x, target=[0, 1] * 6)
    page = explanation.report(tmp_path / "page.html")
    assert "one for each row (0, 1)" in told(page)
    assert [row["target"] for row in data_of(page)["rows"]] == [0, 1] * 6


def test_why_one_and_not_the_other(model, x, tmp_path):
    explainer = Explainer(model, feature_names=NAMES, output_names=["low", "middle", "high"], baselines=0.0)
    page = explainer(x, target="high", versus="low").report(tmp_path / "page.html", title="Why high?")
    assert "<h1><bdi>Why high?</bdi></h1>" in page.read_text()
    assert "<title>Why high?</title>" in page.read_text()
    assert "high rather than low" in told(page)
    assert data_of(page)["compares"]
    unnamed = Explainer(model)(x, target=0, versus=1).report(tmp_path / "unnamed.html")
    assert "output 0 rather than 1" in told(unnamed)


def test_several_explanations_are_rows_of_one_page(every, model, x, tmp_path):
    one = every[..., 0]
    ids = [f"patient {i}" for i in range(len(one))]
    together = data_of(dasp.report([one[:5], one[5:]], tmp_path / "two.html", ids=ids))
    alone = data_of(dasp.report(one, tmp_path / "one.html", ids=ids))
    assert together == alone
    assert [row["id"] for row in alone["rows"]] == ids
    (row,) = data_of(one[3].report(tmp_path / "row.html", ids=["patient 3"]))["rows"]
    assert row == alone["rows"][3]
    other = Explainer(model, feature_names=NAMES, output_names=["low", "middle", "high"], baselines=0.0)(x, target=0)
    with pytest.raises(BadInput, match="absent inputs.* one kind of rows"):
        dasp.report([one, other], tmp_path / "no.html")
    with pytest.raises(BadInput, match="there are 2 ids, but 12 rows"):
        dasp.report(one, tmp_path / "no.html", ids=["a", "b"])
    with pytest.raises(BadInput, match="give one at least"):
        dasp.report([], tmp_path / "no.html")
    with pytest.raises(BadInput, match="a list of them, not a str"):
        dasp.report("page.html", tmp_path / "no.html")
    with pytest.raises(BadInput, match=r"must end in \.html"):
        dasp.report(one, tmp_path / "no.pdf")
    assert data_of(dasp.report(one, tmp_path / "few.html", rows=4))["rows"][0]["id"]
    assert len(data_of(tmp_path / "few.html")["rows"]) == 4
    with pytest.raises(BadInput, match="at least 1"):
        dasp.report(one, tmp_path / "no.html", rows=0)
    assert not (tmp_path / "no.html").exists()


def test_facts_follow_rows_and_outputs(every, model, x):
    whole = model(x).detach().numpy()
    np.testing.assert_allclose(every.facts.prediction, whole, rtol=1e-5)
    np.testing.assert_allclose(every[2:5].facts.prediction, whole[2:5], rtol=1e-5)
    np.testing.assert_allclose(every[:, :, "middle"].facts.prediction, whole[:, 1], rtol=1e-5)
    np.testing.assert_allclose(every[4][:, 2].facts.prediction, whole[[4], 2], rtol=1e-5)
    np.testing.assert_allclose(every[[1, 7], :, 0].facts.prediction, whole[[1, 7], 0], rtol=1e-5)
    assert every[..., 1].facts.target.tolist() == [1] * 12
    assert every.abs.mean(0).facts is None


def test_facts_follow_texts_and_their_outputs(tmp_path):
    every = TextExplainer(lambda texts: torch.tensor([[float("good" in x), float("bad" in x)] for x in texts]))(
        ["a good one", "bad bad"]
    )
    assert every[0].facts.prediction.tolist() == [[1, 0]]
    assert every[[1]].facts.prediction.tolist() == [[0, 1]]
    assert every[..., 1].facts.prediction.tolist() == [0, 1]
    assert every[0][..., 1].facts.prediction.tolist() == [0]
    (row,) = data_of(every[[1]].report(tmp_path / "row.html"))["rows"]
    assert row["target"] == 1
    two = data_of(every[..., 1].report(tmp_path / "one.html"))["rows"]
    assert [row["base"] + sum(part[1] for part in row["parts"]) for row in two] == [0, 1]


def test_a_row_of_all_outputs_of_somebody_else(tmp_path):
    foreign = shap.Explanation(np.array([[1.0, 2.0], [3.0, 0.0], [0.0, 5.0]]), np.array([0.5, 0.0]), np.ones(3))
    (row,) = data_of(dasp.report(foreign, tmp_path / "page.html"))["rows"]
    assert (row["target"], row["base"], [part[1] for part in row["parts"]]) == (1, 0, [5, 2, 0])


def test_interactions(every, tmp_path):
    page = every.report(tmp_path / "page.html", interactions=True, target=0)
    found = every.interactions().of_output(0)
    data = data_of(page)
    assert data["pairs"] == NAMES
    for row, values in zip(data["rows"], found.values, strict=True):
        for one, other, value, _ in row["pairs"]:
            assert value == pytest.approx(values[one, other], rel=1e-3, abs=1e-6)
    assert "Which pairs interact" in told(page)
    without = Explainer(nn.Linear(3, 1).eval(), method="gradient")(torch.ones(2, 3))
    with pytest.raises(BadInput, match="this needs evaluations of coalitions"):
        without.report(page, interactions=True)


class Two(nn.Module):
    """An image and columns."""

    def __init__(self):
        super().__init__()
        self.picture, self.columns = nn.Linear(16, 1), nn.Linear(2, 1)

    def forward(self, image, person):
        return torch.tanh(self.picture(image.flatten(1))) * self.columns(person)


def test_several_inputs(tmp_path):
    torch.manual_seed(0)
    given = {"image": torch.rand(3, 1, 4, 4), "person": pd.DataFrame({"age": [1.0, 2, 3], "pulse": [3.0, 1, 2]})}
    explanation = Explainer(Two().eval(), players={"image": "block:2"}, baselines={"image": 0.5, "person": 0.0})(given)
    data = data_of(explanation.report(tmp_path / "all.html"))
    assert data["players"] == [*(f"image: block {i}" for i in range(4)), "age", "pulse"]
    parts = {data["players"][part[0]]: part[1] for part in data["rows"][1]["parts"]}
    for name, value in zip(explanation.feature_names, explanation.values[1], strict=True):
        assert parts[name] == pytest.approx(value, rel=1e-4, abs=1e-7)
    alone = data_of(explanation["image"].report(tmp_path / "image.html"))
    assert alone["kind"] == "image"
    for row, own in zip(data["rows"], alone["rows"], strict=True):
        assert row["of"] == "image"
        assert all(row[view] == own[view] for view in ("image", "map", "overlay", "limit"))
    (row,) = data_of(explanation[1].report(tmp_path / "row.html"))["rows"]
    assert row["map"] == data["rows"][1]["map"]
    assert data_of(explanation["person"].report(tmp_path / "person.html"))["players"][:2] == ["age", "pulse"]


def test_games_and_explanations_of_others(tmp_path):
    glove = explain_game(lambda masks: masks[:, 0] & masks[:, 1:].any(1), ["left", "right", "another right"])
    data = data_of(glove.report(tmp_path / "game.html"))
    assert [round(part[1], 3) for part in data["rows"][0]["parts"]] == [0.667, 0.167, 0.167]
    values = np.arange(12.0).reshape(4, 3)
    theirs = shap.Explanation(values, np.ones(4), values, feature_names=NAMES)
    page = dasp.report(theirs, tmp_path / "theirs.html")
    assert data_of(page)["rows"][2]["prediction"] == 1 + 6 + 7 + 8
    assert "errors of these values are not known" in told(page)


def test_names_and_entries_are_only_text(model, tmp_path):
    values = np.ones((2, len(EVIL)))
    theirs = shap.Explanation(values, np.zeros(2), np.array([EVIL, EVIL[::-1]], dtype=object), feature_names=EVIL)
    page = dasp.report(theirs, tmp_path / "evil.html", title=EVIL[0], ids=EVIL[:2])
    assert page.read_text().count("<script") == 2
    assert "<b>bold" not in page.read_text()
