"""Exporting: recurrent networks stay whole, and torch is as it was, also for other threads meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

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
