"""Models as they are: what they return, how they are called, and what they do to their inputs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from dasp import DASP, ExactShapley, GradientDASP, GradientShapley, propagate
from dasp.errors import BadInput
from dasp.models.calling import forward_of, innermost, like, one_tensor
from dasp.propagation import graph_cache
from dasp.propagation.tracing import trace

A, B, WHOLE = torch.zeros(2, 3), torch.ones(2, 5), torch.tensor([1, 2])


@dataclass
class Found:
    logits: torch.Tensor
    state: object = None


Pair = namedtuple("Pair", "first second")  # noqa: PYI024


@pytest.mark.parametrize(
    ("result", "output", "wanted"),
    [
        (A, None, A),
        ((A,), None, A),
        ((WHOLE,), None, WHOLE),
        ({"scores": A, "classes": WHOLE}, None, A),
        (Found(A), None, A),
        ((A, B), 1, B),
        ([A, B], -2, A),
        ({"a": A, "b": B}, "b", B),
        ({"a": A, "b": B}, 0, A),
        (Found(A, B), "state", B),
        (Pair(A, B), "second", B),
        (Pair(A, B), 1, B),
        ((A, (B, {"c": WHOLE})), (1, 1, "c"), WHOLE),
    ],
)
def test_the_tensor_that_is_meant(result, output, wanted):
    assert one_tensor(result, output) is wanted


@pytest.mark.parametrize(
    ("result", "output", "message"),
    [
        ((A, B), None, r"it returns 0 \(2, 3\), 1 \(2, 5\); give one of them as output="),
        ({"a": A, "b": B}, "c", r"returns no 'c': it returns 'a' \(2, 3\), 'b' \(2, 5\)"),
        ((A, (B, B)), 1, r"output=1 .* is a tuple.*0 \(2, 3\), \(1, 0\) \(2, 5\), \(1, 1\) \(2, 5\)"),
        ((A, B), 2, "returns no 2"),
        (A, 0, r"one tensor of shape \(2, 3\), so leave `output` out; `target`"),
        ("text", None, "a str without tensors"),
    ],
)
def test_tensors_that_cannot_be_told(result, output, message):
    with pytest.raises(BadInput, match=message) as caught:
        one_tensor(result, output)
    assert "\n" not in str(caught.value)


def test_the_same_question_has_the_same_function():
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    named = forward_of(model, names=(None, "mask"))
    assert forward_of(model, names=(None, "mask")) is named
    assert like(named, model) is named
    assert like(named, other) is forward_of(other, names=(None, "mask"))
    assert like(forward_of(model, 0), other) is other  # which of its results is meant is its own affair
    assert innermost(forward_of(nn.DataParallel(model), 0)) is model


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.function = nn.Linear(4, 6), nn.Linear(6, 2), function
        self.eval()

    def forward(self, x, **keywords):
        return self.function(self, x, **keywords)


def plain(m, x):
    return m.last(torch.relu(m.first(x)))


def added(m, x):
    x += 1
    return plain(m, x)


def overwritten(m, x):
    x[:, 0] = 0
    return plain(m, x)


AS_WRITTEN = {
    "+=": (added, lambda m, x: plain(m, x + 1)),
    "x[:, 0] = 0": (overwritten, lambda m, x: plain(m, x * torch.tensor([0.0, 1, 1, 1]))),
    "relu_": (lambda m, x: plain(m, x.relu_()), lambda m, x: plain(m, x.relu())),
    "len, shape": (lambda m, x: plain(m, x.reshape(x.shape[0], -1)) + torch.zeros(len(x), 2), plain),
}
X = torch.linspace(-1, 2, 12).view(3, 4)


@pytest.mark.parametrize("name", AS_WRITTEN)
def test_models_may_be_written_like_this(name):
    own, pure = map(Net, AS_WRITTEN[name])
    x = X.clone()
    torch.testing.assert_close(GradientDASP(own).attribute(x), GradientDASP(pure).attribute(X), rtol=1e-4, atol=1e-5)
    assert torch.equal(x, X)


@pytest.mark.parametrize("make", [ExactShapley, GradientDASP, GradientShapley])
def test_further_arguments_are_not_changed(make):
    scale = torch.tensor([2.0, -1.0])
    found = make(Net(lambda m, x, scale: added(m, x) * scale.mul_(0.5))).attribute(
        X, additional_forward_args={"scale": scale}
    )
    assert scale.tolist() == [2, -1]
    pure = make(Net(lambda m, x: plain(m, x + 1) * torch.tensor([1.0, -0.5]))).attribute(X)
    torch.testing.assert_close(found, pure, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrap", [lambda m: torch.compile(m, backend="eager"), nn.DataParallel])
def test_what_only_runs_a_model_is_left_out_of_its_graph(wrap):
    wanted = GradientDASP(Net(plain)).attribute(X)
    torch.testing.assert_close(GradientDASP(wrap(Net(plain))).attribute(X), wanted)
    several = Net(lambda m, x: (plain(m, x), x))
    torch.testing.assert_close(GradientDASP(wrap(several), output=0).attribute(X), wanted)


def test_graphs_share_weights_however_they_were_exported():
    model, pure = Net(AS_WRITTEN["len, shape"][0]), Net(plain)
    method = DASP(model)
    method.attribute(X)
    with torch.no_grad():
        model.first.weight.mul_(2)
        pure.first.weight.mul_(2)
    torch.testing.assert_close(method.attribute(X), DASP(pure).attribute(X), rtol=1e-4, atol=1e-5)


def test_graphs_are_kept_for_further_calls_with_keywords(monkeypatch):
    made = []
    monkeypatch.setattr(graph_cache, "trace", lambda *args, **options: made.append(args[0]) or trace(*args, **options))
    model = Net(lambda m, x, mask: {"logits": plain(m, x * mask), "x": x})
    method = GradientDASP(model, output="logits")
    for _ in range(2):
        method.attribute(X, additional_forward_args={"mask": torch.rand(3, 4)})
    assert len(made) == 1


def test_programs_of_several_outputs():
    model = Net(lambda m, x: {"logits": plain(m, x), "x": x})
    program = torch.export.export(model, (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    found = GradientDASP(program, output="logits").attribute(X)
    torch.testing.assert_close(found, GradientDASP(Net(plain)).attribute(X))


def test_propagate_takes_an_output():
    model = Net(lambda m, x: Found(plain(m, x), x))
    found, wanted = propagate(model, X, X.abs(), output="logits"), propagate(Net(plain), X, X.abs())
    torch.testing.assert_close(found.mean, wanted.mean)
    with pytest.raises(BadInput, match="'logits' .* 'state'"):
        propagate(model, X, X.abs())


def test_torch_writes_nothing_while_a_model_is_traced():
    code = textwrap.dedent("""
        import torch
        from dasp import Explainer, GradientDASP, UntraceableModel

        class Branching(torch.nn.Module):
            def forward(self, x):
                hidden = x.cumsum(1)
                if hidden.sum() > 0:
                    return hidden.sort(1)[0].sum(1)
                return hidden.sum(1)

        class Sorting(torch.nn.Module):
            def forward(self, x):
                for _ in range(3):
                    x = torch.lgamma(torch.sort(x.cumsum(1))[0])
                return x.argmax(1)

        try:
            GradientDASP(Branching().eval()).attribute(torch.ones(1, 3), internal_batch_size=1)
        except UntraceableModel as error:
            print(error.summary)
        Explainer(Sorting().eval(), max_evaluations=64).attribute(torch.rand(1, 70))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Branching cannot be exported to a graph by torch.export: what it does depends on")
    assert done.stdout.count("\n") == done.stderr.count("\n") == 1
    assert "aten.sort.default" in done.stderr
