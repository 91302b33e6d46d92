"""The graphs of models, which are kept for further calls as long as they are right.

A graph has whatever the model was set to when it was traced. Three things tell whether it is still right:

- **its inputs**: their shapes but for the number of rows, dtypes and devices, and autocast;
- **the model's state**: its modules, the identity of their tensors and hooks, and their plain attributes (numbers,
  texts, short lists of them). The graph shares the weights, so that these may be trained meanwhile. An attribute that
  the model changes itself when it is called, like a counter, does not count: when the state is another one for the
  first time, the model is evaluated once to see what it changes;
- **its outputs**, for what nobody can see (a global variable, an object's attribute, what a hook closes over): those
  of the graph are compared with the model's own at every call. If they differ by more than rounding, the model is
  traced again.

The outputs alone would not do: a cap that no unit reaches at the inputs at hand changes no output, but the moments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils import _pytree

from dasp.errors import UntraceableModel
from dasp.models.export_lock import evaluation_lock, export_lock
from dasp.propagation.lifting import Lifted, lift
from dasp.propagation.rules import RULES
from dasp.propagation.tracing import trace

__all__ = ["GraphCache", "Model", "ModelOutputs"]

Model = nn.Module | ExportedProgram
State = dict[tuple[int, str], Hashable]  # by the number of the module and the name of the attribute

_MOST_KEPT = 4
_DRAWS, _BEYOND = 4, 100  # of rounding errors; the multiple of their effect that is no rounding any more


@dataclass(frozen=True)
class ModelOutputs:
    """The outputs of a model for the inputs at hand, which every graph of it has to give."""

    evaluate: Callable[[Callable[..., Tensor]], Tensor]  # evaluates a function on the inputs
    expected: Tensor  # the outputs of the model itself

    @torch.no_grad()
    def agree(self, graph: fx.GraphModule) -> bool:
        """Return True if the graph gives the same up to rounding. Entries that are not finite are left out."""
        with evaluation_lock():
            found = self.evaluate(graph).to(self.expected)
            if torch.equal(found, self.expected):
                return True
            finite = self.expected.isfinite()
            pair = (found - self.expected, self.expected)
            difference, size = (x[finite].abs().max() if finite.any() else 0 for x in pair)
            if difference <= torch.finfo(self.expected.dtype).eps ** 0.75 * size:
                return True
            noise = [self.evaluate(_Rounding(graph, draw).run).to(found) - found for draw in range(_DRAWS)]
            return bool(difference <= _BEYOND * torch.stack(noise)[:, finite].abs().max())


class _Rounding(fx.Interpreter):
    """A graph with a rounding error at every value."""

    def __init__(self, graph: fx.GraphModule, seed: int) -> None:
        super().__init__(graph)
        self.generator = torch.Generator().manual_seed(seed)

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a node, rounded another way."""
        return _pytree.tree_map_only(Tensor, self._rounded, super().run_node(n))

    def _rounded(self, x: Tensor) -> Tensor:
        if not x.is_floating_point():
            return x
        error = 2 * torch.rand(x.shape, generator=self.generator, dtype=torch.float64) - 1
        return x + (x.double() * error.to(x.device) * torch.finfo(x.dtype).eps).to(x.dtype)


@dataclass(frozen=True)
class _Traced:
    """A graph, and the inputs and the state of the model that it was traced with."""

    inputs: Hashable
    state: State
    graph: fx.GraphModule


class GraphCache:
    """The last few graphs of a model, by its inputs and its state, and their lifted forms, by the players."""

    def __init__(self) -> None:
        self._traced: list[_Traced] = []
        self._lifted: dict[Hashable, Lifted] = {}
        self._changing: set[tuple[int, str]] = set()  # attributes that the model changes itself

    @staticmethod
    def of(model: Model) -> GraphCache:
        """Return the cache of a model, which all that propagate through it share, and which is forgotten with it."""
        with _LOCK:
            return _CACHES.setdefault(model, GraphCache())

    def traced(
        self,
        model: Model,
        example: tuple[Any, ...],
        outputs: ModelOutputs | None = None,
        *,
        keep: Collection[Any] = RULES,
        pool_first: bool = True,
    ) -> fx.GraphModule:
        """Return the graph of a model for inputs like those of the example, which gives the model's outputs; `keep`
        and `pool_first` as in `trace`."""
        rules = frozenset(keep), tuple(map(id, RULES.values()))
        inputs = (_shapes(example), _autocast(example), rules, pool_first)
        for _ in range(2):
            with evaluation_lock():
                state = _state(model)
            graph = self._kept(inputs, state)
            if graph is None:
                with export_lock():
                    if any(
                        kept.inputs == inputs for kept in self._traced
                    ):  # who changed the state, the user or the model?
                        self._changing |= _changing(model, outputs)
                    graph = self._kept(inputs, state)  # another thread may have been quicker, too
                    if graph is None:
                        graph = trace(model, example, keep, pool_first=pool_first)
                        self._traced = [*self._traced[-(_MOST_KEPT - 1) :], _Traced(inputs, state, graph)]
            if outputs is None or outputs.agree(graph):
                return graph
            with export_lock():
                self._traced = [kept for kept in self._traced if kept.graph is not graph]
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
        outputs: ModelOutputs | None = None,
    ) -> Lifted:
        """Return the graph lifted for arguments (see `lift`); `players` is all that it depends on beside shapes."""
        graph = self.traced(model, example, outputs)
        key = (graph, count, players)
        lifted = self._lifted.get(key)
        if lifted is None:
            with export_lock():
                lifted = self._lifted.get(key)
                if lifted is None:
                    lifted = lift(graph, arguments, count)
                    # a new dictionary, as others may read the old one meanwhile
                    self._lifted = {**dict(list(self._lifted.items())[-(_MOST_KEPT - 1) :]), key: lifted}
        return lifted

    def _kept(self, inputs: Hashable, state: State) -> fx.GraphModule | None:
        """Return the newest graph for such inputs and such a state, but for what the model changes itself."""
        same = (kept for kept in reversed(self._traced) if kept.inputs == inputs and self._same(kept.state, state))
        return next((kept.graph for kept in same), None)

    def _same(self, one: State, other: State) -> bool:
        if one == other:
            return True
        different = {place for place in one.keys() | other.keys() if one.get(place) != other.get(place)}
        return different <= self._changing


_CACHES: WeakKeyDictionary[Model, GraphCache] = WeakKeyDictionary()
_LOCK = Lock()


_PLAIN = {bool, int, float, complex, str, bytes, torch.dtype, torch.device, type(None)}
_MOST_LISTED, _DEEPEST = 64, 2  # entries of a list or dictionary, and lists in lists, that are looked at
# Of what every module has, these matter, and its mode; the parts of `_modules` are modules themselves.
_BY_IDENTITY = ("_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks")
_IGNORED = vars(nn.Module()).keys() - {"training"}


def _state(model: Model) -> State:
    """Return the attributes of all modules of a model, and what they are set to. A program does not change."""
    if isinstance(model, ExportedProgram):
        return {}
    found: State = {}
    for number, module in enumerate(model.modules()):
        attributes = vars(module)
        tensors_and_hooks = [attributes[name] for name in _BY_IDENTITY if attributes[name]]
        found[number, ""] = type(module), *((name, id(x)) for each in tensors_and_hooks for name, x in each.items())
        for name, value in attributes.items():
            if name not in _IGNORED:
                found[number, name] = _setting(value)
    return found


def _setting(value: Any, depth: int = 0) -> Hashable:
    """Return a plain value as it is, the parts of a short list or dictionary, and all else by its identity."""
    if type(value) in _PLAIN or isinstance(value, Enum):
        return type(value), value
    if isinstance(value, (list, tuple, dict)) and len(value) <= _MOST_LISTED and depth < _DEEPEST:
        parts = [part for item in value.items() for part in item] if isinstance(value, dict) else value
        return type(value), tuple(_setting(part, depth + 1) for part in parts)
    return id(value)


def _changing(model: Model, outputs: ModelOutputs | None) -> set[tuple[int, str]]:
    """Return the attributes that the model itself changes when it is called, like a counter of its calls."""
    if outputs is None or isinstance(model, ExportedProgram):
        return set()
    before = _state(model)
    with torch.no_grad():
        outputs.evaluate(model)
    after = _state(model)
    return {place for place in before.keys() | after.keys() if before.get(place) != after.get(place)}


def _shapes(example: tuple[Any, ...]) -> Hashable:
    """Return what a graph depends on in its inputs: of a tensor that has a row per row the shape of a row, of another
    its whole shape, dtype and device of both; of anything else the value."""
    rows = next(len(x) for x in example if isinstance(x, Tensor))
    return tuple(_shape(x, rows) for x in example)


def _shape(x: Any, rows: int) -> Hashable:
    if not isinstance(x, Tensor):
        return type(x), repr(x)
    batched = x.dim() > 0 and len(x) == rows
    return batched, x.shape[1:] if batched else x.shape, x.dtype, x.device


def _autocast(example: tuple[Any, ...]) -> Hashable:
    """Return the dtypes that torch computes in by itself, where that is switched on."""
    kinds = {x.device.type for x in example if isinstance(x, Tensor)}
    return frozenset((kind, torch.get_autocast_dtype(kind)) for kind in kinds if torch.is_autocast_enabled(kind))
