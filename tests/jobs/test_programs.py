"""Saved programs: plain ones give what the model gives, and no other can do anything when it is read."""

from __future__ import annotations

import contextlib
import io
import itertools
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from bad_programs import ATTACKS, bomb
from explain_files import dasp, rows, write_csv
from saved_programs import BATCH, archive_of, mutated, parts_of, saved, watched
from torch import nn
from torch.nn import functional as F

from dasp import GradientDASP
from dasp.errors import BadInput
from dasp.jobs.models import load_model
from dasp.jobs.programs.archive import NotUnderstood
from dasp.jobs.programs.checked import checked
from dasp.jobs.programs.operations import _ALLOWED, operation

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, about its own pytrees


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        x = F.relu(self.norms[0](self.first(x)), inplace=True)
        return self.last(F.relu(x + self.norms[1](self.second(x))).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.last = nn.LSTM(5, 6, num_layers=2, bidirectional=True, batch_first=True), nn.Linear(12, 2)

    def forward(self, x):
        return self.last(self.layers(x)[0][:, -1])


class Several(nn.Module):
    """Nested outputs, a shared weight, a buffer that is not saved, a constant, and arithmetic of sizes."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.arange(4.0), persistent=False)
        self.shift = torch.ones(4)

    def forward(self, x):
        y = self.second(self.first(x)) * self.scale + self.shift
        halves = y.reshape(x.shape[0] * 2, -1).sum(1) / x.shape[0]
        return {"logits": y, "others": [y.softmax(1), (halves, *y.chunk(2, 1))]}


NETWORKS = {
    "MLP": (nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 3)), (4,)),
    "LeNet": (nn.Sequential(nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.Tanh(),
                            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3), nn.LogSoftmax(1)), (1, 14, 14)),
    "ResNet": (Residual(), (3, 8, 8)),
    "LSTM": (Recurrent(), (4, 5)),
    "Transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu"), (4, 8)),
    "several outputs": (Several(), (4,)),
}  # fmt: skip


@pytest.fixture(scope="module")
def contents():
    torch.manual_seed(0)
    return {name: saved(model, torch.randn(2, *shape)) for name, (model, shape) in NETWORKS.items()}


def leaves(value):
    return torch.utils._pytree.tree_flatten(value)


@pytest.mark.parametrize("name", NETWORKS)
def test_plain_programs(name, contents, tmp_path):
    (tmp_path / "model.pt2").write_bytes(contents[name])
    model, shape = NETWORKS[name]
    with watched() as events:
        loaded = load_model(tmp_path / "model.pt2")
    assert not events
    assert not any(part.training for part in loaded.modules())
    for number in (1, 5):
        x = torch.randn(number, *shape)
        (found, tree), (expected, own) = leaves(loaded(x)), leaves(model(x))
        assert tree == own
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)


def test_programs_of_core_operations(tmp_path):
    model, shape = NETWORKS["ResNet"]
    program = torch.export.export(model.eval(), (torch.randn(2, *shape),), dynamic_shapes=BATCH)
    torch.export.save(program.run_decompositions(), tmp_path / "model.pt2", extra_files={"notes.txt": "mine"})
    x = torch.randn(3, *shape)
    torch.testing.assert_close(load_model(tmp_path / "model.pt2")(x), model(x))


def test_attributions_of_a_loaded_program(contents, tmp_path):
    (tmp_path / "model.pt2").write_bytes(contents["MLP"])
    x = torch.randn(3, 4)
    own = GradientDASP(NETWORKS["MLP"][0].eval()).attribute(x, target=0)
    torch.testing.assert_close(GradientDASP(load_model(tmp_path / "model.pt2")).attribute(x, target=0), own)


def test_weights_are_those_of_the_program(contents, tmp_path):
    (tmp_path / "model.pt2").write_bytes(contents["MLP"])
    (tmp_path / "weights.pt").touch()
    with pytest.raises(BadInput, match="a saved program has its own"):
        load_model(tmp_path / "model.pt2", weights=tmp_path / "weights.pt")


def test_constants_among_the_inputs_need_not_be_given(tmp_path):
    class Scaled(nn.Module):
        def forward(self, x, scale, flag):
            return x * scale if flag is None else x

    program = torch.export.export(Scaled(), (torch.ones(2, 4), 3, None), dynamic_shapes=({0: BATCH[0][0]}, None, None))
    torch.export.save(program, tmp_path / "model.pt2")
    x = torch.randn(3, 4)
    torch.testing.assert_close(load_model(tmp_path / "model.pt2")(x), 3 * x)


def test_operations_exist_and_touch_nothing():
    names = {name for name in _ALLOWED if not name.endswith("_")}  # of those done in place not every one exists
    missing = [name for name in names if not hasattr(torch.ops.aten, name)]
    assert not missing
    unchecked = ("_reshape_alias.default", "_weight_norm.default", "native_group_norm.default", "lstm.data")
    touching = ("from_file.default", "set_.source_Tensor", "resize_.default", "_unsafe_index.Tensor", "add.out")
    for name in (*touching, *unchecked):
        with pytest.raises(NotUnderstood, match="the operation"):
            operation(f"torch.ops.aten.{name}")


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_weights_that_do_not_fit_are_not_read_beyond(layer):
    """Torch itself reads on behind them."""
    own, x = layer(5, 6), torch.randn(3, 2, 5)
    op = {"LSTM": torch.ops.aten.lstm, "GRU": torch.ops.aten.gru, "RNN": torch.ops.aten.rnn_tanh}[layer.__name__].input
    state = torch.zeros(1, 2, 6)
    weights = [weight.detach() for weight in own.parameters()]
    settings = (True, 1, 0.0, False, False, False)
    states = [state, state] if layer is nn.LSTM else state
    torch.testing.assert_close(checked(op)(x, states, weights, *settings)[0], own(x)[0])
    for i, weight in enumerate(weights):
        with pytest.raises(ValueError, match="do not fit together"):
            checked(op)(x, states, [*weights[:i], weight[:1], *weights[i + 1 :]], *settings)


def test_statistics_that_do_not_fit_are_not_read_beyond():
    norm = checked(torch.ops.aten._native_batch_norm_legit_no_training.default)
    one = torch.ones(1)
    with pytest.raises(RuntimeError, match="should contain 1000 elements"):
        norm(torch.randn(2, 1000), None, None, one, one, 0.1, 1e-5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "rows.csv", rows())
    (tmp_path / "target").write_bytes(b"as it was")
    return tmp_path


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name, contents, folder):
    change, message = ATTACKS[name]
    (folder / "bad.pt2").write_bytes(change(contents["MLP"]))
    with watched() as events, pytest.raises(BadInput, match=message) as error:
        load_model("bad.pt2")
    assert not events
    result = dasp("explain", "bad.pt2", "rows.csv", "--output", "out.parquet")
    assert "\n" not in str(error.value)
    assert "--trust" in str(error.value) or "or damaged" in str(error.value)
    assert result.code == 2, result.err
    assert result.err.count("\n") == 1
    assert sorted(file.name for file in folder.iterdir()) == ["bad.pt2", "rows.csv", "target"]
    assert Path("target").read_bytes() == b"as it was"


def test_sample_inputs_are_not_read(contents, folder):
    """They are a pickle in every program."""
    pickled = pickle.dumps(Path("marker").touch)
    parts = [(name, pickled if name.endswith("model.pt") else part) for name, part in parts_of(contents["MLP"])]
    (folder / "model.pt2").write_bytes(archive_of(parts))
    with watched() as events:
        loaded = load_model("model.pt2")
    assert not events
    x = torch.randn(3, 4)
    torch.testing.assert_close(loaded(x), NETWORKS["MLP"][0](x))


def test_a_bomb_takes_no_memory(contents, folder):
    (folder / "bomb.pt2").write_bytes(bomb(contents["MLP"]))
    with pytest.raises(BadInput, match="compressed parts"):
        load_model("bomb.pt2")
    torch.save({"zeros": torch.zeros(2**22)}, "zeros.pt")
    (folder / "bomb.pt").write_bytes(
        archive_of(parts_of(Path("zeros.pt").read_bytes()), compression=zipfile.ZIP_DEFLATED)
    )
    for source, weights in ((nn.Linear(2, 2).eval(), "bomb.pt"), ("bomb.pt", None)):
        with pytest.raises(BadInput, match="bomb.pt has compressed parts"):
            load_model(source, weights=weights)


@pytest.mark.parametrize(
    ("name", "event"),
    {
        "a pickle under a name in another case": "import",
        "a parameter named with code": "import",
        "an enum to import": "import",
        "an enum to load as a library": "ctypes.dlopen",
        "a factory of defaults to import": "import",
        "a size that is code": "import",
    }.items(),
)
@pytest.mark.filterwarnings("ignore")
def test_attacks_are_real(name, event, contents, folder):
    """As torch reads these files, they do what the other tests see to."""
    (folder / "bad.pt2").write_bytes(ATTACKS[name][0](contents["MLP"]))
    with watched() as events, contextlib.suppress(Exception):
        load_model("bad.pt2", trust=True)(torch.ones(2, 4))
    assert event in dict(events)


@pytest.mark.filterwarnings("ignore")
def test_a_file_is_written_to_if_a_program_is_trusted(contents, folder):
    (folder / "bad.pt2").write_bytes(ATTACKS["a file to write to"][0](contents["MLP"]))
    with contextlib.suppress(RuntimeError):
        load_model("bad.pt2", trust=True)(torch.ones(2, 4))
    assert Path("target").read_bytes() != b"as it was"


def test_mutations(contents, folder):
    """Whatever is changed at random: it is read, or refused in one line, and nothing else happens."""
    answers = []
    file = folder / "changed.pt2"
    for seed, content in zip(range(400), itertools.cycle(contents.values())):
        file.write_bytes(mutated(content, seed))
        with watched() as events:
            try:
                load_model(file)
            except BadInput as error:
                answers.append(str(error))
        assert not events, seed
    assert 200 < len(answers) < 390  # some changes do not matter, most do
    assert not any("\n" in answer for answer in answers)


def test_mutations_are_the_same_again(contents):
    content = contents["MLP"]
    assert mutated(content, 3) == mutated(content, 3) != mutated(content, 4)
    assert zipfile.is_zipfile(io.BytesIO(mutated(content, 3)))
