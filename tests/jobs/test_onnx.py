"""ONNX models and scripts of torch.jit, which are evaluated and nothing else."""

from __future__ import annotations

import shlex
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from explain_files import FACTORY, dasp, rows, write_csv
from torch import nn

from dasp import ExactShapley
from dasp.errors import BadInput
from dasp.models.loading import load_model
from dasp.models.wrappers import onnx_model

onnx = pytest.importorskip("onnx")
helper, TensorProto = onnx.helper, onnx.TensorProto


def build(inputs=4, outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs)).eval()


def network(batch="rows", kind=TensorProto.FLOAT, inputs=4, sizes=None):
    """The network of `build` as ONNX knows it."""
    model = build(inputs).to(torch.float64 if kind == TensorProto.DOUBLE else torch.float32)
    state = {name.replace(".", "_"): value.detach().numpy() for name, value in model.state_dict().items()}
    whole = kind in (TensorProto.INT64, TensorProto.INT32)
    nodes = [helper.make_node("Cast", ["x"], ["numbers"], to=TensorProto.FLOAT)] if whole else []
    nodes += [
        helper.make_node("Gemm", ["numbers" if whole else "x", "0_weight", "0_bias"], ["hidden"], transB=1),
        helper.make_node("Relu", ["hidden"], ["active"]),
        helper.make_node("Gemm", ["active", "2_weight", "2_bias"], ["y"], transB=1),
    ]
    ends = (
        [helper.make_tensor_value_info("x", kind, sizes or [batch, inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT if whole else kind, [batch, 3])],
    )
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in state.items()]
    return saved(helper.make_graph(nodes, "network", *ends, constants))


def saved(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def identity(*names, kind=TensorProto.FLOAT):
    """As many outputs as inputs."""
    nodes = [helper.make_node("Identity", [name], [f"{name}'"]) for name in names]
    inputs = [helper.make_tensor_value_info(name, kind, ["n", 4]) for name in names]
    outputs = [helper.make_tensor_value_info(f"{name}'", kind, ["n", 4]) for name in names]
    return saved(helper.make_graph(nodes, "identity", inputs, outputs))


def elsewhere(file, location):
    """The network with a tensor in another file."""
    model = network()
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], location)
    model.graph.initializer[0].ClearField("raw_data")
    file.write_bytes(model.SerializeToString())


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "rows.csv", rows())
    return tmp_path


def explained(*arguments):
    result = dasp("explain", *arguments, "-o", "out.parquet", "--overwrite")
    assert (result.code, result.err) == (0, ""), result.err
    return pd.read_parquet("out.parquet"), result.out


@pytest.mark.parametrize("batch", ["rows", 1, 3])
def test_values_are_those_of_the_same_network_in_torch(here, batch):
    onnx.save(network(batch), "net.onnx")
    table, said = explained("net.onnx", "rows.csv", "--target", "1")
    exact = ExactShapley(build()).attribute(torch.from_numpy(rows()), target=1)
    np.testing.assert_allclose(table[list("abcd")], exact, atol=1e-5)
    assert "method: Exact" in said


def test_many_players_are_estimated_from_evaluations_alone(here):
    onnx.save(network(inputs=24), "net.onnx")
    np.save("many.npy", rows(2, 24))
    table, said = explained("net.onnx", "many.npy", "--target", "0", "--max-evaluations", "500")
    assert set(table.method) == {"bayesian_shapley"}
    assert "24 players are few enough for evaluations alone" in said
    names = [f"x{i}" for i in range(24)]
    np.testing.assert_allclose(table[names].sum(axis=1), table.prediction - table.base_value, atol=1e-4)


@pytest.mark.parametrize("kind", [TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32])
def test_other_types_of_numbers(here, kind):
    onnx.save(network(kind=kind), "net.onnx")
    x = rows() if kind == TensorProto.DOUBLE else rows().round()
    np.save("x.npy", x)
    table, _ = explained("net.onnx", "x.npy", "--target", "2", "--method", "permutation", "--max-evaluations", "100")
    np.testing.assert_allclose(table.prediction, build()(torch.from_numpy(x)).detach()[:, 2], atol=1e-5)
    assert (table.prediction.dtype == np.float64) == (kind == TensorProto.DOUBLE)


CASES = {
    "two inputs": (identity("x", "y"), "", "has 2 inputs ('x', 'y'); a model with one input can be explained"),
    "text": (identity("x", kind=TensorProto.STRING), "", "its input 'x' is a tensor(string); tensor(float16)"),
    "whole outputs": (identity("x", kind=TensorProto.INT64), "", 'its output "x\'" is a tensor(int64)'),
    "rows of another width": (network(inputs=5), "", "its input 'x' takes rows of shape (5,), not of shape (4,)"),
    "rows of another rank": (
        network(sizes=["n", 4, "m"]),
        "",
        "net.onnx is not an ONNX model that onnxruntime can run",
    ),
    "propagation": (network(), "--method gradient", "has no graph that --method gradient could go through (a torch.nn"),
    "gradients": (
        network(),
        "--method 'Gradients at coalitions'",
        "has no graph that --method Gradients at coalitions could",
    ),
    "weights": (network(), "--weights w.pt", "weights are for modules and factories; a saved program has its own"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_cannot_be_explained_is_said_in_one_line(here, name):
    model, further, expected = CASES[name]
    onnx.save(model, "net.onnx")
    torch.save({}, "w.pt")
    result = dasp("explain", "net.onnx", "rows.csv", "-o", "out.parquet", *shlex.split(further))
    assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert expected in result.err
    assert not (here / "out.parquet.parts").exists()


def test_tensors_in_other_files(here):
    """They are read in the model's folder, and count as the model does."""
    (here / "models").mkdir()
    weights = build()[0].weight.detach().numpy()
    for file in ("secret.bin", "models/weights.bin"):
        (here / file).write_bytes(weights.tobytes())
    (here / "models" / "link.bin").symlink_to(here / "secret.bin")
    for location in ("../secret.bin", str(here / "secret.bin"), "link.bin", "a/../../secret.bin"):
        elsewhere(here / "models" / "net.onnx", location)
        with pytest.raises(BadInput, match="outside of its folder: save the model as one file"):
            load_model("models/net.onnx")
    elsewhere(here / "models" / "net.onnx", "absent.bin")
    with pytest.raises(BadInput, match="keeps tensors in 'absent.bin', which is not there"):
        load_model("models/net.onnx")
    elsewhere(here / "models" / "net.onnx", "weights.bin")
    table, _ = explained("models/net.onnx", "rows.csv", "--target", "0")
    np.testing.assert_allclose(table.prediction, build()(torch.from_numpy(rows())).detach()[:, 0], atol=1e-5)
    (here / "models" / "weights.bin").write_bytes((weights + 1).tobytes())
    result = dasp("explain", "models/net.onnx", "rows.csv", "--target", "0", "-o", "out.parquet")
    assert "MODEL has changed" in result.err


def test_other_files_are_found_wherever_a_tensor_can_be(here):
    """In attributes, subgraphs, sparse tensors and functions, too: nothing of these is asked of onnxruntime."""
    tensor = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
    onnx.external_data_helper.set_external_data(tensor, "../secret.bin")
    tensor.ClearField("raw_data")
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    graph = helper.make_graph([constant], "inner", [], [])
    sparse = onnx.SparseTensorProto(values=tensor, dims=[2])
    function = helper.make_function("own", "f", [], ["c"], [constant], [helper.make_opsetid("", 17)])
    empty = helper.make_graph([], "outer", [], [])
    hidden = [
        saved(helper.make_graph([helper.make_node("If", ["x"], ["y"], then_branch=graph)], "outer", [], [])),
        saved(helper.make_graph([helper.make_node("Loop", ["x"], ["y"], body=graph)], "outer", [], [])),
        saved(helper.make_graph([], "outer", [], [], sparse_initializer=[sparse])),
        helper.make_model(empty, functions=[function]),
        onnx.ModelProto(graph=empty, training_info=[onnx.TrainingInfoProto(algorithm=graph)]),
    ]
    for model in hidden:
        (here / "net.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(BadInput, match="outside of its folder"):
            onnx_model(here / "net.onnx")


def test_damaged_files(here):
    content = network().SerializeToString()
    for damaged in (content[:-20], b"", b"\x0b" + content, b"\xff" * 30, content[:4] + b"ORTM" + content[8:]):
        (here / "net.onnx").write_bytes(damaged)
        with pytest.raises(BadInput, match="net.onnx is (not an ONNX model|a file of onnxruntime's own format)"):
            load_model("net.onnx")
    nested = b""
    for field in (6, 5, 1) * 40 + (7,):  # a graph in an attribute of a node of a graph …, in a model
        nested = bytes([field << 3 | 2, len(nested) % 128 | 128, len(nested) // 128]) + nested
    (here / "net.onnx").write_bytes(nested)
    with pytest.raises(BadInput, match="net.onnx is not an ONNX model, or damaged"):
        load_model("net.onnx")


def test_scripts(here):
    (here / "small.py").write_text(FACTORY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(build(), torch.ones(1, 4)).save("net.ts")
    result = dasp("explain", "net.ts", "rows.csv", "-o", "out.parquet")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "net.ts is a script of torch.jit, which can run any code when it is read: give --trust" in result.err
    table, _ = explained("net.ts", "rows.csv", "--target", "1", "--trust")
    exact = ExactShapley(build()).attribute(torch.from_numpy(rows()), target=1)
    np.testing.assert_allclose(table[list("abcd")], exact, atol=1e-5)
    result = dasp("explain", "net.ts", "rows.csv", "-o", "out.parquet", "--trust", "--method", "dasp", "--overwrite")
    assert "net.ts can be evaluated, but has no graph" in result.err
