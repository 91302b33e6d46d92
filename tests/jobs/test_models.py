"""Models that people have give the same predictions when loaded, and files that cannot be used one clear line."""

from __future__ import annotations

import importlib
import pickle
import sys
import warnings
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from explain_files import dasp
from safetensors.torch import save_file
from scipy.special import expit, softmax
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler
from torch import nn

from dasp import Explainer, GradientDASP
from dasp.errors import BadInput
from dasp.models.loading import load_model
from dasp.models.wrappers import MultilayerPerceptron

pytestmark = pytest.mark.filterwarnings(
    "ignore:Stochastic Optimizer",  # a few steps are enough here
    "ignore:__array__ implementation:DeprecationWarning",  # Keras's, about numpy
    "ignore:.*LeafSpec:FutureWarning",  # torch's own, about its own pytrees
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 5))
Y = X[:, 0] * X[:, 1] + X[:, 2]
SMALL = dict(hidden_layer_sizes=(7, 6), max_iter=20, random_state=0)


def outputs(module, rows):
    with torch.no_grad():
        return module(torch.tensor(rows)).numpy()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(), nn.ReLU(), nn.Linear(4, 2))


@pytest.mark.parametrize("activation", ["identity", "logistic", "tanh", "relu"])
def test_regressor(activation):
    fitted = MLPRegressor(activation=activation, **SMALL).fit(X, Y)
    np.testing.assert_allclose(outputs(load_model(fitted), X)[:, 0], fitted.predict(X), rtol=1e-12)


def test_regressors_of_other_targets():
    several = MLPRegressor(**SMALL).fit(X, np.stack([Y, -Y], 1))
    np.testing.assert_allclose(outputs(load_model(several), X), several.predict(X), rtol=1e-12)
    counts = MLPRegressor(loss="poisson", **SMALL).fit(X, RNG.poisson(3, 40))
    np.testing.assert_allclose(outputs(load_model(counts), X)[:, 0], counts.predict(X), rtol=1e-12)


def test_classifiers_give_logits():
    binary = MLPClassifier(**SMALL).fit(X, np.where(Y > 0, "yes", "no"))
    module = load_model(binary)
    np.testing.assert_allclose(expit(outputs(module, X)[:, 0]), binary.predict_proba(X)[:, 1], rtol=1e-12)
    assert module.output_names is None
    several = MLPClassifier(**SMALL).fit(X, np.digitize(Y, [-1, 1]) * 10)
    module = load_model(several)
    np.testing.assert_allclose(softmax(outputs(module, X), 1), several.predict_proba(X), rtol=1e-12)
    assert module.output_names == ["0", "10", "20"]
    labels = MLPClassifier(**SMALL).fit(X, np.stack([Y > 0, Y > 1, X[:, 3] > 0], 1).astype(int))
    np.testing.assert_allclose(expit(outputs(load_model(labels), X)), labels.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize(
    "scaler",
    [StandardScaler(), StandardScaler(with_mean=False), StandardScaler(with_std=False), MinMaxScaler((-1, 2)),
     MaxAbsScaler(), RobustScaler(), RobustScaler(with_centering=False), "passthrough"],
    ids=str,
)  # fmt: skip
def test_pipelines(scaler):
    fitted = make_pipeline(scaler, MLPRegressor(**SMALL)).fit(10 * X + 3, Y)
    np.testing.assert_allclose(outputs(load_model(fitted), 10 * X + 3)[:, 0], fitted.predict(10 * X + 3), rtol=1e-9)


def test_scikit_learn_models_can_be_propagated():
    fitted = make_pipeline(StandardScaler(), MLPClassifier(**SMALL)).fit(X, Y > 0)
    module, x = load_model(fitted), torch.tensor(X[:3])
    single = x.float()
    torch.testing.assert_close(
        GradientDASP(module).attribute(single), GradientDASP(module).attribute(x).float(), atol=1e-4, rtol=1e-3
    )
    _, gap = GradientDASP(module).attribute(x, return_convergence_delta=True)
    assert gap.abs().max() < 0.05


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (RandomForestClassifier(), "RandomForestClassifier is no network"),
        (MLPClassifier(), "not fitted"),
        (3, "int cannot be explained"),
        (lambda x: x, "is a function"),
    ],
)
def test_objects_that_are_no_networks(model, message):
    with pytest.raises(BadInput, match=message):
        load_model(model)


@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        (PolynomialFeatures(), "PolynomialFeatures before its network"),
        (MinMaxScaler(clip=True), "MinMaxScaler that clips"),
    ],
)
def test_pipelines_with_other_steps(scaler, message):
    with pytest.raises(BadInput, match=message):
        load_model(make_pipeline(scaler, MLPRegressor(**SMALL)).fit(X, Y))


def test_modules_come_in_evaluation_mode():
    assert not any(module.training for module in load_model(network()).modules())


def saved_program(path, **options):
    model = network().eval()
    dynamic = ({0: torch.export.Dim.AUTO},)
    torch.export.save(torch.export.export(model, (torch.ones(2, 5),), **({"dynamic_shapes": dynamic} | options)), path)
    return model


def test_exported_programs(tmp_path):
    model = saved_program(tmp_path / "model.pt2")
    with pytest.raises(BadInput, match=r"a saved program of torch.export, which can run any code.*--trust.*--weights"):
        load_model(tmp_path / "model.pt2")
    loaded = load_model(tmp_path / "model.pt2", trust=True)
    x = torch.tensor(X[:3]).float()
    torch.testing.assert_close(loaded(x), model(x))
    torch.testing.assert_close(GradientDASP(loaded).attribute(x), GradientDASP(model).attribute(x))


def test_a_program_for_one_number_of_rows(tmp_path):
    saved_program(tmp_path / "model.pt2", dynamic_shapes=None)
    with pytest.raises(BadInput, match=r"model.pt2: .* dynamic batch"):
        load_model(tmp_path / "model.pt2", trust=True)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_an_old_keras_is_not_safe(keras, tmp_path, monkeypatch):
    (tmp_path / "model.keras").touch()
    monkeypatch.setattr(keras, "__version__", "3.10.0")
    with pytest.raises(BadInput, match=r"Keras 3.10.0 can run code from a file; 3.11.3 is needed"):
        load_model(tmp_path / "model.keras")


FACTORY = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(5, 4), nn.Dropout(), nn.ReLU(), nn.Linear(4, 2))

def number():
    return 3

def broken():
    raise RuntimeError("no weights here")

class Nets:
    build = staticmethod(build)
"""


@pytest.fixture
def factory(tmp_path, monkeypatch):
    (tmp_path / "factory_of_mine.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "factory_of_mine", raising=False)
    return tmp_path


def test_factories_with_weights(factory):
    trained = network()
    torch.save(trained.state_dict(), "weights.pt")
    save_file(trained.state_dict(), "weights.safetensors")
    x = torch.tensor(X[:3]).float()
    for source in ("factory_of_mine:build", "factory_of_mine:Nets.build"):
        for weights in ("weights.pt", Path("weights.safetensors")):
            torch.testing.assert_close(load_model(source, weights=weights)(x), trained.eval()(x))
    torch.testing.assert_close(load_model(network(), weights="weights.pt")(x), trained(x))


def test_a_model_on_no_device_has_no_numbers():
    with torch.device("meta"):
        empty = network()
    with pytest.raises(BadInput, match="0.weight is on the device 'meta', which keeps no numbers: give --weights"):
        load_model(empty)


def test_weights_are_given_to_a_model_on_no_device(factory):
    trained = network()
    torch.save(trained.state_dict(), "weights.pt")
    with torch.device("meta"):
        empty = network()
    x = torch.tensor(X[:3]).float()
    torch.testing.assert_close(load_model(empty, weights="weights.pt")(x), trained.eval()(x))


def test_factories_and_weights_that_cannot_be_used(factory):
    torch.save({"0.weight": torch.ones(3, 3)}, "wrong.pt")
    torch.save(Bomb(factory / "trace"), "bomb.pt")
    torch.save([1, 2], "list.pt")
    torch.save({"epoch": 3, "state": {"a": torch.ones(1)}}, "checkpoint.pt")
    (factory / "broken.safetensors").write_bytes(b"abc")
    (factory / "broken.pt").write_bytes((factory / "wrong.pt").read_bytes()[:200])
    for source, message in (
        ("nowhere_to_be_found:build", "No module named 'nowhere_to_be_found'"),
        ("factory_of_mine:absent", "no attribute 'absent'"),
        ("factory_of_mine:number", "builds an object of type int, not a torch.nn.Module"),
        ("factory_of_mine:broken", "no weights here"),
    ):
        with pytest.raises(BadInput, match=message) as error:
            load_model(source)
        assert source in str(error.value)
    for weights, message in (
        ("absent.pt", "no such file"),
        ("wrong.pt", "does not fit factory_of_mine:build.*0.bias"),
        ("bomb.pt", "more than tensors"),
        ("list.pt", "not a state dict"),
        ("checkpoint.pt", "not a state dict"),
        ("broken.safetensors", "cannot be read"),
        ("broken.pt", "cannot be read"),
    ):
        with pytest.raises(BadInput, match=message) as error:
            load_model("factory_of_mine:build", weights=weights)
        assert weights in str(error.value)
        assert "\n" not in str(error.value)
    assert not (factory / "trace").exists()


def test_pickles_are_read_only_if_trusted(tmp_path):
    fitted = MLPRegressor(**SMALL).fit(X, Y)
    joblib.dump(fitted, tmp_path / "model.joblib")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(fitted))
    torch.save(network(), tmp_path / "model.pt")
    for name in ("model.joblib", "model.pkl", "model.pt"):
        with pytest.raises(BadInput, match=f"{name} is a pickle.*trust"):
            load_model(tmp_path / name)
    for name in ("model.joblib", "model.pkl"):
        loaded = load_model(tmp_path / name, trust=True)
        assert isinstance(loaded, MultilayerPerceptron)
        np.testing.assert_allclose(outputs(loaded, X)[:, 0], fitted.predict(X), rtol=1e-12)
    x = torch.ones(1, 5)
    torch.testing.assert_close(load_model(tmp_path / "model.pt", trust=True)(x), network().eval()(x))


def test_pickles_find_their_classes_in_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "classes_of_mine.py").write_text("from torch import nn\n\nclass Plain(nn.Linear):\n    pass\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        plain = importlib.import_module("classes_of_mine").Plain(5, 1)
        torch.save(plain, tmp_path / "model.pt")
        (tmp_path / "model.pkl").write_bytes(pickle.dumps(plain))
    x, before = torch.ones(1, 5), list(sys.path)
    for name in ("model.pt", "model.pkl"):
        monkeypatch.delitem(sys.modules, "classes_of_mine")
        with pytest.raises(BadInput, match=f"{name} cannot be read: No module named 'classes_of_mine'"):
            load_model(tmp_path / name, trust=True)
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            torch.testing.assert_close(load_model(name, trust=True)(x), plain(x))
    assert sys.path == before


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(network().eval(), torch.ones(1, 5))


def test_scripts_are_read_only_if_trusted(tmp_path):
    scripted().save(tmp_path / "model.pt")
    x = torch.ones(1, 5)
    torch.testing.assert_close(load_model(tmp_path / "model.pt", trust=True)(x), network().eval()(x))
    with pytest.raises(BadInput, match="holds more than tensors"):
        load_model(network(), weights=tmp_path / "model.pt")


@pytest.mark.parametrize("before", [[], [StandardScaler()], ["passthrough", StandardScaler()]], ids=str)
def test_columns_are_taken_by_their_names(tmp_path, monkeypatch, before):
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(X, columns=list("abcde"))
    fitted = make_pipeline(*before, MLPRegressor(**SMALL)).fit(table, Y)
    joblib.dump(fitted, "model.joblib")
    mixed = table[list("dbeac")]
    mixed.to_csv("mixed.csv", index=False)
    mixed[["c", "b", "a", "d", "e"]][:7].to_parquet("background.parquet")
    command = ["explain", "model.joblib", "--trust", "--background", "background.parquet", "-o", "out.parquet"]
    for further in ([], ["--columns", "e,d,c,b,a"]):
        result = dasp(*command, "mixed.csv", "--overwrite", *further)
        assert (result.code, result.err) == (0, "")
        found = pd.read_parquet("out.parquet")
        np.testing.assert_allclose(found.prediction, fitted.predict(table), rtol=1e-5)
        np.testing.assert_allclose(found.base_value, fitted.predict(table[:7]).mean(), rtol=1e-5)
        values = Explainer(fitted, table[:7])(table).values
        np.testing.assert_allclose(found[list("abcde")], values, atol=1e-5)
    mixed.drop(columns="c").to_csv("fewer.csv", index=False)
    mixed.assign(f=1).to_csv("more.csv", index=False)
    for file, message in (("fewer.csv", "fitted with the column 'c', which"), ("more.csv", "without the column 'f':")):
        result = dasp("explain", "model.joblib", file, "--trust", "-o", "out.parquet", "--overwrite")
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert message in result.err


def test_files_that_are_no_models(tmp_path, caplog):
    saved_program(tmp_path / "model.pt2")
    content = (tmp_path / "model.pt2").read_bytes()
    torch.save(network().state_dict(), tmp_path / "state.pt")
    torch.save(torch.ones(3), tmp_path / "tensor.pt")
    scripted().save(tmp_path / "script.pt")
    for name, data, message in (
        ("absent.pt2", None, "no such file"),
        ("cut.pt2", content[: len(content) // 2], "a saved program of torch.export, which can run any code.*--trust"),
        ("model.onnx", b"abc", "is not an ONNX model, or damaged"),
        ("model.tar", b"abc", "a model is a"),
        ("cut.pt", b"abc", "cannot be read"),
        ("raw.pt", pickle.dumps(network()), "raw.pt is a plain pickle, not a file of torch.save: call it raw.pkl"),
        ("old.pt", pickle.dumps(network(), protocol=2), "is a plain pickle"),
        ("script.pt", None, "script.pt is a script of torch.jit, which can run any code.*--trust"),
        ("state.pt", None, "is a state dict: give it as weights"),
        ("tensor.pt", None, "Tensor cannot be explained"),
        ("cut.keras", b"abc", "not a Keras model, or damaged"),
        ("old.h5", b"abc", "old format"),
    ):
        path = tmp_path / name
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(BadInput, match=message) as error:
            load_model(path)
        assert "\n" not in str(error.value)
    with pytest.raises(BadInput, match="cannot be read"):
        load_model(tmp_path / "cut.pt", trust=True)
    (tmp_path / "empty.pt2").touch()
    for name in ("cut.pt2", "empty.pt2"):
        with pytest.raises(BadInput, match="or damaged"):
            load_model(tmp_path / name, trust=True)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    with zipfile.ZipFile(tmp_path / "other.pt2", "w") as other:
        other.writestr("a.txt", "abc")
    with pytest.raises(BadInput, match="not a program"):
        load_model(tmp_path / "other.pt2", trust=True)
    with pytest.raises(BadInput, match="a saved program has its own"):
        load_model(tmp_path / "model.pt2", weights=tmp_path / "state.pt", trust=True)
    with pytest.raises(BadInput, match="has its own"):
        load_model(MLPRegressor(), weights=tmp_path / "state.pt")


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def keras_network(keras, *last):
    layers = keras.layers
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)), layers.Rescaling(2.0), layers.Conv2D(4, 3, activation="relu", padding="same"),
            layers.BatchNormalization(), layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.3),
            layers.Dense(8, activation="gelu"), layers.Dense(2), *last,
        ]
    )  # fmt: skip
    model.compile(loss="mse", optimizer="adam")
    rows = RNG.random((16, 8, 8, 1)).astype("float32")
    model.fit(rows, RNG.random((16, *model.output_shape[1:])), verbose=0)
    return model, rows


def test_keras_models(keras, tmp_path):
    model, rows = keras_network(keras)
    model.save(tmp_path / "model.keras")
    x = torch.tensor(rows[:2])
    for source in (model, tmp_path / "model.keras"):
        module = load_model(source)
        np.testing.assert_allclose(outputs(module, rows), model.predict(rows, verbose=0), atol=1e-6)
        _, gap = GradientDASP(module).attribute(x, target=0, tolerance=0.05, return_convergence_delta=True)
        change = module(x)[:, 0] - module(torch.zeros_like(x))[:, 0]
        assert (gap / change).abs().max() <= 0.05


def test_keras_logits(keras):
    model, rows = keras_network(keras, keras.layers.Dense(3, activation="softmax"))
    probabilities = outputs(load_model(model), rows)
    model.layers[-1].activation = keras.activations.linear
    np.testing.assert_allclose(softmax(outputs(load_model(model), rows), 1), probabilities, atol=1e-6)


def test_keras_models_that_cannot_be_used(keras, tmp_path):
    model, rows = keras_network(keras, keras.layers.Lambda(lambda x: 2 * x))
    model.save(tmp_path / "model.keras")
    with pytest.raises(BadInput, match="lambda.*trust"):
        load_model(tmp_path / "model.keras")
    module = load_model(tmp_path / "model.keras", trust=True)
    np.testing.assert_allclose(outputs(module, rows), model.predict(rows, verbose=0), atol=1e-6)
    content = (tmp_path / "model.keras").read_bytes()
    (tmp_path / "cut.keras").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match="not a Keras model, or damaged"):
        load_model(tmp_path / "cut.keras", trust=True)
    with pytest.raises(BadInput, match="not built"):
        load_model(keras.Sequential([keras.layers.Dense(2)]))
    two = [keras.layers.Input((2,)), keras.layers.Input((2,))]
    with pytest.raises(BadInput, match="2 inputs"):
        load_model(keras.Model(two, keras.layers.Add()(two)))
