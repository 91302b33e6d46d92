"""Exporting: recurrent networks stay whole, what is in place or shaped like another is no reason to decompose, and
torch is as it was, also for other threads meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from dasp import propagate
from dasp.propagation import tracing
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import exported, trace

aten = torch.ops.aten
NETWORKS = {
    aten.lstm.input: nn.LSTM(4, 3, 2, batch_first=True),
    aten.gru.input: nn.GRU(4, 3, bidirectional=True, batch_first=True),
    aten.rnn_tanh.input: nn.RNN(4, 3, batch_first=True),
    aten.rnn_relu.input: nn.RNN(4, 3, nonlinearity="relu", bias=False, batch_first=True),
}
recurrent = pytest.mark.parametrize("op", NETWORKS, ids=str)


class Whole(nn.Module):
    """All results of a network, with a row per row, and something that is done while it is exported."""

    def __init__(self, network: nn.Module, meanwhile=lambda: None) -> None:
        super().__init__()
        self.network, self.meanwhile = network.eval(), meanwhile

    def forward(self, x):
        if torch.compiler.is_exporting():
            self.meanwhile()
        output, states = self.network(x)
        states = states if isinstance(states, tuple) else (states,)
        return torch.cat([output.flatten(1), *(h.transpose(0, 1).flatten(1) for h in states)], 1)


@recurrent
def test_a_recurrent_network_is_one_operation_of_torch(op):
    model, x = Whole(NETWORKS[op]), torch.randn(3, 5, 4)
    graph = trace(model, (x,), RULES)
    (node,) = (node for node in graph.graph.nodes if node.target is op)
    found = model.network(x[:2])
    states = found[1] if isinstance(found[1], tuple) else (found[1],)
    assert [part.dim() for part in node.meta["val"]] == [3] * (1 + len(states))
    assert [int(part.shape[-1]) for part in node.meta["val"]] == [part.shape[-1] for part in (found[0], *states)]
    torch.testing.assert_close(graph(x), model(x))


@recurrent
def test_torch_is_as_it_was_and_another_thread_sees_nothing(op):
    network, x, seen = NETWORKS[op], torch.randn(2, 5, 4), []
    last = network(x)[1]
    state = [torch.zeros_like(h) for h in last] if isinstance(last, tuple) else torch.zeros_like(last)
    weights = [weight.detach() for weight in network.parameters()]
    arguments = (x, state, weights, network.bias, network.num_layers, 0.0, False, network.bidirectional, True)
    function = getattr(torch._VF, op.name().removeprefix("aten::").removesuffix(".input"))

    def run():
        """The network with numbers, and without them, where torch takes it step by step."""
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            shaped = function(*torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, arguments))[0].shape
        return function(*arguments)[0], shaped, dict(op.py_kernels), dict(op.python_key_table)

    def meanwhile():
        with ThreadPoolExecutor(1) as pool:
            seen.append(pool.submit(run).result())

    before = run()
    exported(Whole(network, meanwhile), (x,))
    for values, *others in (*seen, run()):
        torch.testing.assert_close(values, before[0])
        assert others == list(before[1:])
    assert seen


def test_long_recurrent_networks_are_exported_whole():
    """Step by step, this would be thousands of operations, and take seconds."""
    program = exported(Whole(nn.LSTM(4, 3, batch_first=True)), (torch.randn(2, 500, 4),))
    assert len(program.graph.nodes) < 40


class InPlace(nn.Module):
    """Operations in place, of which nobody reads what was there before, and shapes taken from other values."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.activation = nn.Conv2d(3, 4, 3, padding=1), nn.SiLU(inplace=True)

    def forward(self, x):
        y = self.convolution(x)
        y += x.mean(1, keepdim=True).expand_as(y)
        first, second = self.activation(y).float().chunk(2, 1)
        return (first * second.double().to(x.dtype).type_as(x)).relu_().flatten(1).sum(1, keepdim=True)


def test_operations_in_place_are_no_reason_to_decompose_a_model(monkeypatch):
    """Which would take as long as exporting it once more."""
    monkeypatch.setattr(tracing, "_decomposed", lambda *_: pytest.fail("decomposed"))
    model, x = InPlace().eval(), torch.randn(3, 3, 5, 5)
    graph = trace(model, (x,), RULES)
    before = x.clone()
    torch.testing.assert_close(graph(x), model(x))
    assert torch.equal(x, before)
    targets = {node.target for node in graph.graph.nodes}
    assert {aten.add.Tensor, aten.silu.default, aten.relu.default} <= targets
    assert not targets & {aten.add_.Tensor, aten.silu_.default, aten.relu_.default}


class Memory(nn.Module):
    """A function of values of which some share their memory."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def by_view(x):
    y = 2 * x
    row = y[:, 0]
    row.add_(5)
    return y


def by_base(x):
    y = 2 * x
    first, second = y.chunk(2, 1)
    y.relu_()
    return first * 3 + second


def by_reshaped(x):
    y = 2 * x
    z = y.reshape(-1, 2, 2)
    y.add_(x)
    return z.flatten(1)


def of_input(x):
    y = x.relu_()
    return y * x


def of_precision(x):
    return (2 * x).add_(x.double() / 3) * 1.5


def of_copy(x):
    y = 2 * x
    z = y.to(torch.float32, copy=True)
    z.relu_()
    return y * z


def filled_in(x):
    y = torch.zeros_like(x)
    y[:, 1:] = x[:, 1:]
    return y * x


def powers(x):
    return (x + 3).pow_(2) + (x + 4).pow_(x) + (x + 5).pow_(-0.5)


@pytest.mark.parametrize(
    "function", [by_view, by_base, by_reshaped, of_input, of_precision, of_copy, filled_in, powers]
)
def test_what_is_written_in_place_is_seen_by_all_that_share_the_memory(function):
    model, x = Memory(function), torch.randn(3, 4)
    expected = model(x.clone())
    graph = trace(model, (x,), RULES)
    found = graph(x.clone())
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert found.dtype == expected.dtype


def test_a_program_from_a_file_knows_no_memory_and_is_decomposed(tmp_path):
    model, x = InPlace().eval(), torch.randn(3, 3, 5, 5)
    torch.export.save(exported(model, (x,)), tmp_path / "model.pt2")
    graph = trace(torch.export.load(tmp_path / "model.pt2"), (x,), RULES)
    assert not any(node.target is aten.relu_.default for node in graph.graph.nodes)
    torch.testing.assert_close(graph(x), model(x))


FILTER = torch.randn(4, 5, 2, generator=torch.Generator().manual_seed(0))
MIXING = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.complex64)


def filtered(x):
    """A global filter, as GFNet has it."""
    spectrum = torch.fft.rfft2(x, norm="ortho")
    return torch.fft.irfft2(spectrum * torch.view_as_complex(FILTER), s=(4, 8), norm="ortho")


def lowest(x):
    """The lowest frequencies mixed by weights of their own, as a Fourier neural operator has it."""
    spectrum = torch.fft.rfft(x)
    kept = torch.zeros(len(x), 3, 5, dtype=spectrum.dtype)
    kept[:, :, :2] = torch.einsum("bix,iox->box", spectrum[:, :, :2], MIXING)
    return torch.fft.irfft(kept, n=8)


def autocorrelation(x):
    spectrum = torch.fft.fft2(x)
    return torch.fft.ifft2(spectrum * spectrum.conj() + 1j * spectrum - spectrum.imag + 1).real


def spectrogram(x):
    return torch.stft(x.flatten(1), 8, window=torch.hann_window(8), return_complex=True).abs()


def odd(x):
    return torch.fft.hfft(torch.fft.ihfft(x, n=7), n=7, norm="forward")


def tokens_and_channels(x):
    """As FNet has it."""
    return torch.fft.fftn(x, dim=(1, 2)).real


SPECTRAL = [filtered, lowest, autocorrelation, spectrogram, odd, tokens_and_channels]


@pytest.mark.parametrize("function", SPECTRAL)
def test_complex_values_are_two_real_ones(function):
    model, x = Memory(function), torch.randn(3, 4, 8)
    graph = trace(model, (x,), RULES)
    torch.testing.assert_close(graph(x), model(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(propagate(model, x, torch.zeros_like(x)).mean, model(x), rtol=1e-3, atol=1e-3)
