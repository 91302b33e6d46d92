"""Is the promise kept on networks of real size, in any load, and by the clock?

    python benchmarks/real_size.py nodes [NETWORK …]    what a propagated node costs, in nodes of integrated gradients
    python benchmarks/real_size.py same                 the same call under load, and with other numbers of threads
    python benchmarks/real_size.py seconds [GAME …]     what `max_seconds` takes, and how near it comes
    python benchmarks/real_size.py outputs              all outputs of a network at once

* **nodes**: one row of random numbers, players are pixels of 224 × 224 or 64 embedded tokens, random weights (those of
  EfficientNet-Lite0 are ImageNet's). A node is a forward and a backward pass: the processor time of six of them less
  that of two, over four, the median of three times, of one thread. Memory is the peak of a process of its own.
* **same**: five games in a process of their own each time, beside 0, 4 and 8 busy processes, with `OMP_NUM_THREADS` 1
  and 2: the methods, evaluations and a checksum of the values.
* **seconds**: wall seconds of a first and a second call, by a clock that counts everything, over the number of rows;
  the relative error of the second, its stated one, and the evaluations.
* **outputs**: `target=None` with the 360 outputs of a pitch network.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dasp import Explainer, GradientDASP
from real import Board, explain, explainer_of
from real_games import GAMES
from real_networks import efficientnet

SIDE, TOKENS, OUTPUTS = 224, 64, 10
GAME = {game.name: game for game in GAMES}
SAME = ("photo-16", "resnet20-mnist14-1-7", "conv-mnist14-1", "hard-parkinsons-0", "face-pixels")
CLOCKED = ("zoo-hard-parkinsons-0", "zoo-resnet20-mnist14-1-7", "zoo-conv-mnist14-1", "photo-49")
SECONDS = (0.02, 0.1, 1.0, 10.0)


class Head(nn.Module):
    """A network of the library `transformers`, with ten outputs of its features' mean."""

    def __init__(self, body: nn.Module, features: int, name: str) -> None:
        super().__init__()
        self.body, self.name, self.head = body, name, nn.Linear(features, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        """Return ten numbers for every row."""
        hidden = self.body(**{self.name: x}).last_hidden_state
        return self.head(hidden.mean(1) if self.name == "inputs_embeds" or hidden.dim() == 3 else hidden.mean((2, 3)))


def network(name: str) -> tuple[nn.Module, Tensor, Tensor | None]:
    """Return a network, a row, and a mask of players."""
    torch.manual_seed(0)
    if name == "EfficientNet-Lite0":
        return efficientnet(), torch.randn(1, 3, SIDE, SIDE), pixels()
    import transformers  # noqa: PLC0415  # takes seconds

    vit = {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536}
    body, features = {
        "ResNet-18": lambda: (
            transformers.ResNetModel(
                transformers.ResNetConfig(
                    depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", embedding_size=64
                )
            ),
            512,
        ),
        "MobileNetV2": lambda: (transformers.MobileNetV2Model(transformers.MobileNetV2Config()), 1280),
        "ConvNeXt-tiny": lambda: (transformers.ConvNextModel(transformers.ConvNextConfig()), 768),
        "ViT-small": lambda: (transformers.ViTModel(transformers.ViTConfig(**vit), add_pooling_layer=False), 384),
        "BERT-base": lambda: (transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False), 768),
    }[name]()
    if name == "BERT-base":
        mask = torch.arange(TOKENS)[None, :, None].expand(1, TOKENS, features)
        return Head(body, features, "inputs_embeds").eval(), torch.randn(1, TOKENS, features), mask
    return Head(body, features, "pixel_values").eval(), torch.randn(1, 3, SIDE, SIDE), pixels()


NETWORKS = ("ResNet-18", "MobileNetV2", "EfficientNet-Lite0", "ConvNeXt-tiny", "ViT-small", "BERT-base")


def pixels() -> Tensor:
    """Return a mask by which a pixel with all its colours is a player."""
    return torch.arange(SIDE**2).view(1, 1, SIDE, SIDE).expand(1, 3, SIDE, SIDE)


def integrated(model: nn.Module, x: Tensor, nodes: int) -> None:
    """Integrate gradients, node by node."""
    for node in range(nodes):
        point = (x * ((node + 0.5) / nodes)).requires_grad_()
        torch.autograd.grad(model(point)[:, 0].sum(), point)


def node_of(run: Callable[[int], object]) -> float:
    """Return the processor seconds of a node."""
    run(2)

    def seconds(nodes: int) -> float:
        start = time.process_time()
        run(nodes)
        return time.process_time() - start

    return statistics.median((seconds(6) - seconds(2)) / 4 for _ in range(3))


def measure_nodes(name: str, what: str) -> None:
    """Print the seconds of a node and the peak memory of this process, for `nodes`."""
    torch.set_num_threads(1)
    model, x, mask = network(name)
    if what == "integrated":
        seconds = node_of(lambda nodes: integrated(model, x, nodes))
    else:
        method = GradientDASP(model, rank=0)
        seconds = node_of(lambda nodes: method.attribute(x, target=0, feature_mask=mask, nodes=nodes))
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def nodes(names: list[str]) -> None:
    """Measure what a propagated node costs."""
    for name in names or NETWORKS:
        found = {}
        for what in ("integrated", "propagated"):
            command = [sys.executable, __file__, "node", name, what]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            found[what] = [float(number) for number in done.stdout.split()[-2:]]
        (one, memory), (other, peak) = found["integrated"], found["propagated"]
        print(
            f"{name}: {other / one:.1f} nodes of integrated gradients ({1000 * one:.0f} ms); "
            f"peak {peak:.2f} GB, of integrated gradients {memory:.2f} GB",
            flush=True,
        )


def busy() -> None:
    """Compute for ever."""
    while True:
        pass


def measure_same() -> None:
    """Print what the default says of the games, for `same`."""
    for name in SAME:
        game = GAME.get(name) or GAME[f"zoo-{name}"]
        setting = game.make()
        values, _, method, evaluations = explain(setting, setting.request(), explainer_of(setting))
        digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:8]
        print(f"{game.name} {method} {evaluations:.0f} {digest}", flush=True)


def same() -> None:
    """Make the same calls under load and with other numbers of threads, and count the answers."""
    answers: dict[str, int] = {}
    for load in (0, 4, 8):
        spinning = [multiprocessing.Process(target=busy, daemon=True) for _ in range(load)]
        for process in spinning:
            process.start()
        for threads in (1, 2):
            command = [sys.executable, __file__, "answers"]
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)  # noqa: S603
            print(f"load {load}, OMP_NUM_THREADS={threads}", *done.stdout.splitlines(), sep="\n  ", flush=True)
            answers[done.stdout] = answers.get(done.stdout, 0) + 1
        for process in spinning:
            process.kill()
    print(f"{len(answers)} answer{'s' * (len(answers) != 1)} in {sum(answers.values())} runs")


def seconds(names: list[str]) -> None:
    """Measure what `max_seconds` takes, and how near it comes."""
    for name in names or CLOCKED:
        board = Board.of(GAME[name])
        for limit in SECONDS:
            explainer = explainer_of(board.setting, max_seconds=limit)
            taken = []
            for _ in range(2):
                start = time.perf_counter()
                values, std, method, evaluations = explain(board.setting, board.request, explainer)
                taken.append((time.perf_counter() - start) / len(board.request.full))
            row = board.row("default", str(limit), method, values, std)
            print(
                f"{name}, {limit} s a row: {taken[0]:.3f}, {taken[1]:.3f} s with {evaluations:.0f} evaluations, "
                f"error {row.error:.3f}, stated {row.stated:.3f}, {method}",
                flush=True,
            )


def outputs() -> None:
    """Explain all outputs at once."""
    for name in ("pitch-16", "pitch-64"):
        setting = GAME[name].make()
        explainer = Explainer(setting.model, baselines=setting.baselines, feature_mask=setting.mask)
        start = time.process_time()
        found = explainer.attribute(setting.x)
        spent = time.process_time() - start
        print(f"{name}: {tuple(found.values[0].shape)} {found.choices[0].method} {spent:.1f} s", flush=True)


def main() -> None:
    """Run what is asked for."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["nodes", "same", "seconds", "outputs", "node", "answers"])
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.what not in {"same", "answers"}:
        torch.set_num_threads(1)
    if options.what == "node":
        measure_nodes(*options.names)
    elif options.what == "answers":
        measure_same()
    elif options.what in {"nodes", "seconds"}:
        {"nodes": nodes, "seconds": seconds}[options.what](options.names)
    else:
        {"same": same, "outputs": outputs}[options.what]()


if __name__ == "__main__":
    main()
