"""The graphs of models, which are kept for further calls as long as they are right.

A graph has whatever the model was set to when it was traced. Settings that can be seen (modules, their attributes and
hooks, which tensors the weights are) are part of what a graph is kept by. What cannot be seen (a global variable, an
object's attribute, what a hook closes over) shows in the outputs: those of the graph are compared with the model's own
at every call, and if they differ by more than rounding the model is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from functools import reduce
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree

from dasp.errors import UntraceableModel
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace
from dasp.propagation.turns import alone, evaluating

__all__ = ["KeptGraphs", "Model", "Outputs"]

Model = nn.Module | ExportedProgram
Settings = dict[tuple[int, str], Hashable]  # by the number of the module and the name of the attribute

_MOST_KEPT = 4
_MOST_LISTED = 64  # entries of a list or dictionary
_DRAWS, _BEYOND = 4, 100  # of rounding errors; how many times their effect is no rounding


@dataclass(frozen=True)
class Outputs:
    """What a model gives for inputs at hand, and so has every graph of it to give."""

    of: Callable[[Callable[..., Tensor]], Tensor]  # evaluates a function on the inputs
    wanted: Tensor  # what the model itself gave

    @torch.no_grad()
    def agree(self, graph: fx.GraphModule) -> bool:
        """Whether the graph gives the same up to rounding. What is not finite tells nothing."""
        with evaluating():
            found = self.of(graph).to(self.wanted)
            if torch.equal(found, self.wanted):
                return True
            told = self.wanted.isfinite()
            difference, size = (x[told].abs().max() if told.any() else 0 for x in (found - self.wanted, self.wanted))
            if difference <= torch.finfo(self.wanted.dtype).eps ** 0.75 * size:
                return True
            noise = [self.of(_Rounding(graph, draw).run).to(found) - found for draw in range(_DRAWS)]
            return bool(difference <= _BEYOND * torch.stack(noise)[:, told].abs().max())


class _Rounding(fx.Interpreter):
    """A graph with an error of rounding at every value."""

    def __init__(self, graph: fx.GraphModule, seed: int) -> None:
        super().__init__(graph)
        self.generator = torch.Generator().manual_seed(seed)

    def run_node(self, n: fx.Node) -> Any:
        """The value of a node, rounded another way."""
        return _pytree.tree_map_only(Tensor, self._rounded, super().run_node(n))

    def _rounded(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        error = 2 * torch.rand(x.shape, generator=self.generator, dtype=torch.float64) - 1
        return x + (x.double() * error.to(x.device) * torch.finfo(x.dtype).eps).to(x.dtype)


class KeptGraphs:
    """The graphs of a model and their lifted forms: the last few of each, by the shapes of inputs and by players, as
    long as the model stays what it is. They share the model's weights, which may be trained meanwhile."""

    def __init__(self) -> None:
        self._traced: dict[Hashable, fx.GraphModule] = {}
        self._lifted: dict[Hashable, Lifted] = {}
        self._last: dict[Hashable, tuple[Settings, fx.GraphModule]] = {}
        self._immaterial: set[tuple[int, str]] = set()  # settings that the graph was seen not to depend on

    @staticmethod
    def of(model: Model) -> KeptGraphs:
        """Those of a model, which are shared by all that propagate through it, and forgotten with it."""
        with _LOCK:
            return _KEPT.setdefault(model, KeptGraphs())

    def traced(
        self,
        model: Model,
        example: tuple[Any, ...],
        outputs: Outputs | None = None,
        *,
        keep: Collection[Any] = RULES,
        pool_first: bool = True,
    ) -> fx.GraphModule:
        """The graph of a model for inputs like those of the example, which gives the model's outputs; `keep` and
        `pool_first` as in `trace`."""
        for _ in range(2):
            graph = self._current(model, example, keep, pool_first)
            if outputs is None or outputs.agree(graph):
                return graph
            with alone():
                self._traced = {key: kept for key, kept in self._traced.items() if kept is not graph}
                self._last = {key: kept for key, kept in self._last.items() if kept[1] is not graph}
        raise UntraceableModel(
            f"the graph that torch.export makes of {type(model).__name__} gives other outputs than the model itself",
            "Its forward depends on something that a graph cannot have, like a random number or a variable that it "
            "changes. BayesianShapley only evaluates the model and needs no graph.",
        )

    def lifted(
        self,
        model: Model,
        example: tuple[Any, ...],
        arguments: tuple[Any, ...],
        count: int,
        players: Hashable,
        outputs: Outputs | None = None,
    ) -> Lifted:
        """The graph lifted for arguments (see `lift`); `players` are whatever that depends on beside shapes."""
        graph = self.traced(model, example, outputs)
        key = (graph, count, players)
        lifted = self._lifted.get(key)
        if lifted is None:
            with alone():
                lifted = self._lifted.get(key)
                if lifted is None:
                    lifted = lift(graph, arguments, count)
                    self._lifted = _with(self._lifted, key, lifted)
        return lifted

    def _current(
        self, model: Model, example: tuple[Any, ...], keep: Collection[Any], pool_first: bool
    ) -> fx.GraphModule:
        """The graph for what the model is set to now."""
        with evaluating():
            settings = _settings(model)
        whole = frozenset(keep), tuple(map(id, RULES.values()))
        inputs = (_shapes(example), _autocast(example), whole, pool_first)
        graph = self._traced.get(self._key(settings, inputs))
        if graph is None:
            with alone():
                graph = self._traced.get(self._key(settings, inputs))
                if graph is None:
                    graph = trace(model, example, keep, pool_first=pool_first)
                    graph = self._learned(settings, inputs, graph)
                    self._traced = _with(self._traced, self._key(settings, inputs), graph)
        return graph

    def _learned(self, settings: Settings, inputs: Hashable, graph: fx.GraphModule) -> fx.GraphModule:
        """The graph, or the last one if that is the same. Then the plain values that changed meanwhile do not matter: a
        model that counts its calls is not traced at each of them."""
        before, last = self._last.get(inputs, ({}, None))
        changed = {place for place in settings.keys() | before.keys() if settings.get(place) != before.get(place)}
        plain = all(isinstance(kept.get(place), str) for place in changed for kept in (settings, before))
        if last is not None and plain and _same(last, graph):
            self._immaterial |= changed
            graph = last
        self._last = _with(self._last, inputs, (settings, graph))
        return graph

    def _key(self, settings: Settings, inputs: Hashable) -> Hashable:
        return frozenset(item for item in settings.items() if item[0] not in self._immaterial), inputs


_KEPT: WeakKeyDictionary[Model, KeptGraphs] = WeakKeyDictionary()
_LOCK = Lock()


def _with(things: dict[Hashable, Any], key: Hashable, value: Any) -> dict[Hashable, Any]:
    """The last few things, and another one. As a new dictionary, others may read the old one meanwhile."""
    return {**dict(list(things.items())[-(_MOST_KEPT - 1) :]), key: value}


def _same(one: fx.GraphModule, other: fx.GraphModule) -> bool:
    """Whether two graphs compute the same, with the same weights."""
    if one.code != other.code:
        return False
    names = [str(node.target) for node in one.graph.nodes if node.op == "get_attr"]
    pairs = [[reduce(getattr, name.split("."), graph) for graph in (one, other)] for name in names]
    return all(a is b or (isinstance(a, Tensor) and isinstance(b, Tensor) and _equal(a, b)) for a, b in pairs)


def _equal(a: Tensor, b: Tensor) -> bool:
    return not isinstance(a, nn.Parameter) and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)


_PLAIN = (bool, int, float, str, tuple, torch.dtype, torch.device, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_TORCHS_OWN = vars(nn.Module()).keys() - {"training"}  # attributes of every module


def _settings(model: Model) -> Settings:
    """What a graph depends on beside the values of weights, as far as it can be seen: which modules there are, which
    tensors they have, how they are set, and their hooks."""
    if isinstance(model, ExportedProgram):
        return {}
    found: Settings = {}
    for number, module in enumerate(model.modules()):
        tensors = (*module._parameters.values(), *module._buffers.values())
        found[number, ""] = (type(module), *map(id, tensors), *(key for name in _HOOKS for key in vars(module)[name]))
        for name, value in vars(module).items():
            if name in _TORCHS_OWN:
                continue
            if _plain(value):
                found[number, name] = repr(value)
            elif isinstance(value, Tensor) or (callable(value) and not isinstance(value, nn.Module)):
                found[number, name] = id(value)
    return found


def _plain(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    return len(parts) <= _MOST_LISTED and all(isinstance(part, _PLAIN) for part in parts)


def _shapes(example: tuple[Any, ...]) -> Hashable:
    """What a graph depends on in its inputs: of a tensor with a row per row the shape of a row, of another its whole
    shape, dtype and device of both; of anything else the value."""
    rows = next(len(x) for x in example if isinstance(x, Tensor))
    return tuple(_shape(x, rows) for x in example)


def _shape(x: Any, rows: int) -> Hashable:
    if not isinstance(x, Tensor):
        return type(x), repr(x)
    batched = x.dim() > 0 and len(x) == rows
    return batched, x.shape[1:] if batched else x.shape, x.dtype, x.device


def _autocast(example: tuple[Any, ...]) -> Hashable:
    """The dtype that torch computes in by itself, where that is switched on."""
    kinds = {x.device.type for x in example if isinstance(x, Tensor)}
    return frozenset((kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind))
