"""Models as files, which must have nothing of the data in them."""

from __future__ import annotations

import logging
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from torch import nn

import dasp
from dasp import Explainer, GradientDASP
from dasp.errors import BadInput
from dasp.models.loading import load_model
from dasp.models.model_files import data_within

TABLE = torch.randn(2000, 6, generator=torch.Generator().manual_seed(0))
ROWS = {0: torch.export.Dim.AUTO}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model):
    """A model saved by us, as `saved.pt2`, and as it is often done: with a view of the table, and with a copy."""
    folder = tmp_path_factory.mktemp("programs")
    dasp.save(model, TABLE[:2], folder / "saved.pt2")
    for name, example in {"view": TABLE[:2], "copied": TABLE[:2].clone(), "ones": torch.ones(2, 6)}.items():
        program = torch.export.export(model, (example,), dynamic_shapes=(ROWS,))
        torch.export.save(program, folder / f"{name}.pt2")
    return folder


def rows_within(content):
    """The numbers of the rows of the table that some bytes have in them."""
    return [i for i, row in enumerate(TABLE) if row.numpy().tobytes() in content]


def test_no_row_of_the_table_is_in_the_file(folder):
    assert rows_within((folder / "view.pt2").read_bytes()) == list(range(len(TABLE))), "the leak can be seen"
    assert rows_within((folder / "copied.pt2").read_bytes()) == [0, 1]
    saved = (folder / "saved.pt2").read_bytes()
    assert rows_within(saved) == []
    assert TABLE[0, :2].numpy().tobytes() not in saved
    assert len(saved) < 20_000 < TABLE.nbytes < (folder / "view.pt2").stat().st_size


def test_the_program_is_the_model(folder, model):
    loaded = load_model(folder / "saved.pt2", trust=True)
    for rows in (1, 2, 5):
        torch.testing.assert_close(loaded(TABLE[:rows]), model(TABLE[:rows]))
    values = GradientDASP(loaded).attribute(TABLE[:3], target=1)
    torch.testing.assert_close(values, GradientDASP(model).attribute(TABLE[:3], target=1))


def test_pickled_estimators_of_programs_have_no_rows(folder, model):
    program = torch.export.export(model, (TABLE[:2],), dynamic_shapes=(ROWS,))
    estimator = GradientDASP(program)
    content = pickle.dumps(estimator)
    assert rows_within(content) == []
    assert program.example_inputs is not None, "somebody else's program stays as it is"
    again = pickle.loads(content).attribute(TABLE[:2], target=0)
    torch.testing.assert_close(again, estimator.attribute(TABLE[:2], target=0))


@pytest.mark.parametrize("option", ["background", "baselines"])
def test_pickled_explainers_have_no_more_rows_than_they_were_given(model, option):
    explainer = Explainer(model, **{option: TABLE[:3] if option == "background" else TABLE[1]})
    explainer.attribute(TABLE[5:7], target=0)
    assert set(rows_within(pickle.dumps(explainer))) == ({0, 1, 2} if option == "background" else {1})


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("view", "has 48 kB of the inputs that it was exported with in it, for whoever has the file to read: save"),
        ("copied", "has 48 bytes of the inputs"),
        ("ones", None),
        ("saved", None),
    ],
)
def test_files_with_data_in_them_are_told(folder, name, told):
    line = data_within(folder / f"{name}.pt2")
    assert line is None if told is None else f"{name}.pt2: {told}" in line


def test_files_that_are_no_programs_are_not_looked_at(tmp_path, folder):
    (tmp_path / "damaged.pt2").write_bytes((folder / "view.pt2").read_bytes()[:4000])
    (tmp_path / "model.pt").write_bytes((folder / "view.pt2").read_bytes())
    assert data_within(tmp_path / "damaged.pt2") is data_within(tmp_path / "model.pt") is None
    assert data_within(tmp_path / "absent.pt2") is None


class Neighbours(nn.Module):
    """The distance from some rows of the table, one as a buffer and many as a plain tensor; both are views."""

    def __init__(self, many):
        super().__init__()
        self.register_buffer("middle", TABLE[7])
        self.many = TABLE[100 : 100 + many]

    def forward(self, x):
        return (x - self.middle).square().sum(1) + (x[:, None] - self.many).square().sum(2).mean(1)


@pytest.mark.filterwarnings("ignore:No complete tensor")  # torch's own, of memory that it writes all the same
def test_views_are_written_without_what_is_around_them(tmp_path, caplog):
    model = Neighbours(2).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(2, 6),), dynamic_shapes=(ROWS,)), tmp_path / "old.pt2")
    assert len(rows_within((tmp_path / "old.pt2").read_bytes())) == len(TABLE)
    assert "95.9 kB of memory around its weights and constants" in data_within(tmp_path / "old.pt2")
    path = dasp.save(model, TABLE[:1], tmp_path / "new.pt2")
    assert rows_within(path.read_bytes()) == [7, 100, 101], "which are the model"
    assert data_within(path) is None
    torch.testing.assert_close(load_model(path, trust=True)(TABLE[:3]), model(TABLE[:3]))
    assert not [record for record in caplog.records if record.name == "dasp"]


def test_a_file_that_is_larger_than_the_model_is_told(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "dasp"):
        dasp.save(Neighbours(500).eval(), TABLE[:1], tmp_path / "model.pt2")
    (record,) = (record for record in caplog.records if record.name == "dasp")
    assert "of which the model's parameters and buffers are 24 bytes" in record.getMessage()
    assert "the largest 'many' of shape (500, 6)" in record.getMessage()


class Both(nn.Module):
    """Two inputs, and weights that are shared."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.other = nn.Linear(6, 6)
        self.other.weight = self.one.weight

    def forward(self, x, y):
        return self.one(x) + self.other(y)


def test_several_inputs_and_other_forms_of_rows(tmp_path, model):
    both = Both().eval()
    path = dasp.save(both, (TABLE[:1], TABLE[:1]), tmp_path / "both.pt2")
    torch.testing.assert_close(load_model(path, trust=True)(TABLE[:3], TABLE[3:6]), both(TABLE[:3], TABLE[3:6]))
    for example in (TABLE[:3].double().numpy(), pd.DataFrame(TABLE[:3].numpy()), TABLE[:1].tolist()):
        path = dasp.save(model, example, tmp_path / "model.pt2")
        torch.testing.assert_close(load_model(path, trust=True)(TABLE[:3]), model(TABLE[:3]))


def test_recurrent_networks_and_models_of_scikit_learn(tmp_path, caplog):
    lstm = nn.LSTM(3, 4, batch_first=True).eval()
    last = type("Last", (nn.Module,), {"__init__": lambda s: (nn.Module.__init__(s), setattr(s, "lstm", lstm))[0],
                                       "forward": lambda s, x: s.lstm(x)[0][:, -1]})().eval()  # fmt: skip
    path = dasp.save(last, torch.zeros(1, 5, 3), tmp_path / "lstm.pt2")
    x = torch.randn(4, 5, 3)
    torch.testing.assert_close(load_model(path, trust=True)(x), last(x))
    fitted = MLPClassifier((4,), max_iter=5, tol=10, n_iter_no_change=1).fit(TABLE.numpy(), TABLE[:, 0].numpy() > 0)
    path = dasp.save(fitted, TABLE[:1], tmp_path / "fitted.pt2")
    probability = torch.sigmoid(load_model(path, trust=True)(TABLE[:5]))[:, 0]
    np.testing.assert_allclose(probability.detach(), fitted.predict_proba(TABLE[:5].numpy())[:, 1], rtol=1e-6)
    assert not caplog.messages
    fitted.feature_names_in_ = np.array([f"c{i}" for i in range(TABLE.shape[1])], dtype=object)  # as of a data frame
    dasp.save(fitted, TABLE[:1], tmp_path / "named.pt2")
    assert "rows must have them in that order, c0, c1" in caplog.text


class OneByOne(nn.Module):
    def forward(self, x):
        return x * 2 if float(x.sum()) > 0 else x


@pytest.mark.parametrize(
    ("given", "example", "name", "message"),
    [
        (nn.Linear(6, 1).eval(), TABLE[:1], "model.pt", "give a name that ends so"),
        (nn.Linear(6, 1).eval(), TABLE[:1, :3], "model.pt2", r"does not take the example, of shape \(1, 3\)"),
        (nn.Linear(6, 1).eval(), TABLE[:0], "model.pt2", "a row at least is needed"),
        (nn.Linear(6, 1).eval(), "rows", "model.pt2", "rows as the model takes them are needed"),
        (nn.Linear(6, 1).eval(), TABLE[:1], "absent/model.pt2", "cannot be written"),
        (lambda x: x.sum(1), TABLE[:1], "model.pt2", "name a factory package.module:build in its place"),
        (OneByOne().eval(), TABLE[:1], "model.pt2", "given as a factory package.module:build"),
        (make_pipeline(OneHotEncoder(), MLPClassifier()), TABLE[:1], "model.pt2", "joblib.dump"),
    ],
)  # fmt: skip
def test_what_cannot_be_saved(tmp_path, given, example, name, message):
    with pytest.raises(BadInput, match=message):
        dasp.save(given, example, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_models_in_training_mode_are_refused(tmp_path):
    with pytest.raises(ValueError, match="model.eval"):
        dasp.save(nn.Dropout(), TABLE[:1], tmp_path / "model.pt2")
