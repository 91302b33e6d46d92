"""From a model to its graph of ATen operations, ready to be lifted.

`exported` makes a program of the model by torch.export, for any number of rows. `trace` makes the graph of it:

1. Operations that have a rule stay whole. If there are others, these are decomposed into smaller ones, for which the
   whole model is evaluated once more on tensors without numbers: it takes as long as exporting it did.
2. Some operations are written in others that have rules: one in place (`relu_`) as the one that gives a new tensor, an
   embedding bag as the sum that it is, an assignment by a mask as a choice, an operation of which only the first result
   is used as the one that gives just that.
3. Complex values become their real and imaginary parts (`complex_values`), so that a Fourier transform is linear.
4. A maximum of ReLUs becomes the ReLU of the maximum, which is the same and has a quarter of the entries.

Recurrent networks stay whole, too. Exporting evaluates every operation on tensors that have a shape but no numbers, and
torch evaluates recurrent networks step by step then, which takes seconds for a hundred steps. While a model is
exported, calls of them are therefore recorded as operations `dasp::lstm`, `dasp::gru`, … that only know the shapes of
their results. In the graph these are torch's own operations again.
"""

from __future__ import annotations

import io
import logging
import operator
import warnings
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stderr, suppress
from functools import cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from dasp.errors import BadInput, UntraceableModel
from dasp.models import calling
from dasp.models.calling import Forward, fixed_rows, innermost, unwrapped
from dasp.models.export_lock import export_lock
from dasp.propagation.complex_values import in_real_parts

__all__ = ["SHAPE_ONLY", "exported", "is_own", "program_of", "trace"]

aten = torch.ops.aten
SHAPE_ONLY = {  # ops whose result depends on the shape of their argument alone
    aten.sym_size.int,
    aten.zeros_like.default,
    aten.ones_like.default,
    aten.full_like.default,
    aten.empty_like.default,
    aten.new_zeros.default,
    aten.new_ones.default,
    aten.new_full.default,
    aten.new_empty.default,
}
_DROPOUTS = (
    aten.dropout.default,
    aten.alpha_dropout.default,
    aten.feature_dropout.default,
    aten.feature_alpha_dropout.default,
)


def trace(
    model: nn.Module | ExportedProgram, example: tuple[Any, ...], keep: Collection[Any], *, pool_first: bool = True
) -> fx.GraphModule:
    """Return the graph of `model`: get_attr nodes for its weights, one placeholder per argument, one output.

    `example` are the model's arguments; tensors with as many rows as the first are taken as batched. Ops in `keep`
    are not decomposed. With `pool_first`, entries are pooled before they are rectified, which is the same function and
    a better one to propagate moments through.
    """
    program = model if isinstance(model, ExportedProgram) else exported(model, example)
    module = _module(program)
    if not all(map(_known(module.graph, keep), module.graph.nodes)):
        module = _module(_decomposed(program, keep))  # which takes longer than all the rest
        in_real_parts(module)
    graph = module.graph
    _one_output(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _SINGLE:
            _take_first(graph, node)
        elif not node.users and "_assert" in str(node.target):
            graph.erase_node(node)
        elif node.target is aten.index_put.default:
            _assign_by_choice(node)
        elif node.target is aten.squeeze.default:  # must not take the batch away when it has one row
            sizes = node.args[0].meta["val"].shape
            node.target = aten.squeeze.dims
            node.args = (node.args[0], [d for d, size in enumerate(sizes) if isinstance(size, int) and size == 1])
    for node in graph.nodes:
        if pool_first and node.op == "call_function" and node.target in _POOLS:
            _pool_first(node)
    graph.eliminate_dead_code()
    graph.set_codegen(fx.graph.CodeGen())  # which takes its arguments one by one, and gives the one output
    # A module of its own: without the input checks that `program.module()` hooks on.
    return fx.GraphModule(module, graph)


def exported(model: nn.Module, example: tuple[Any, ...]) -> ExportedProgram:
    """Return the model as a program for any number of rows.

    Its arguments are like those of the `example`, of which tensors with as many rows as the first are taken as batched.
    """
    forward = model if isinstance(model, Forward) else Forward(unwrapped(model))
    return program_of(forward, example, _RecurrentShapes)


def program_of(
    module: nn.Module, example: tuple[Any, ...], recording: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> ExportedProgram:
    """Return a module as a program for any number of rows, in torch's own operations unless others are recorded."""
    name = type(innermost(module)).__name__
    rows = next(len(x) for x in example if isinstance(x, Tensor))
    batched = [isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows for x in example]
    # A batch of one would be taken for a constant, so two rows are traced.
    pair = tuple(torch.cat([x[:1], x[:1]]) if own else x for x, own in zip(example, batched, strict=True))
    sizes = tuple({0: Dim.AUTO} if own else None for own in batched)
    shapes = (sizes,) if isinstance(module, Forward) else sizes  # whose arguments are one list of any length
    try:
        with _exporting(), recording():
            program = torch.export.export(module, pair, dynamic_shapes=shapes)
    except BadInput:
        raise
    except Exception as error:
        reason, where = _reason(error)
        raise UntraceableModel(
            f"{name} cannot be exported to a graph by torch.export: {reason}",
            "If its control flow depends on the data, write it without such branches (torch.where). BayesianShapley "
            "only evaluates the model and needs no graph.",
            where,
        ) from error
    if (fixed := fixed_rows(program)) is None:
        return program
    with suppress(Exception), _exporting():  # by reading the code, which lets len(x) stay a variable
        program = torch.export.export(module, pair, dynamic_shapes=shapes, strict=True)
    if fixed_rows(program) is None:
        return program
    raise UntraceableModel(
        f"{name} becomes a graph for exactly {fixed} row(s): its forward turns the number of rows into a constant, as "
        "a loop over rows does",
        "Write it without, or use BayesianShapley, which only evaluates the model and needs no graph.",
    )


@contextmanager
def _exporting() -> Iterator[None]:
    """Export in quiet while no other thread evaluates a model, and with the layers of a Transformer as the operations
    that they consist of."""
    with export_lock():
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.no_grad(), _quietly():
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep torch from writing warnings, log lines and graphs about its own work: what matters is raised."""
    known = logging.root.manager.loggerDict
    torchs = [logging.getLogger("torch"), *(logger for name, logger in known.items() if name.startswith("torch."))]
    set_ones = [one for one in torchs if isinstance(one, logging.Logger) and (one.level or one.name == "torch")]
    levels = {logger: logger.level for logger in set_ones}  # few have a level of their own, and to set one is slow
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in levels:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)


_NOT_OWN = (
    "site-packages/torch/", *(Path(str(file)).as_posix() for file in (calling.__file__, __file__)),
    Path(torch.__file__).parent.as_posix(),
)  # fmt: skip


def _reason(error: Exception) -> tuple[str, str]:
    """Return the first line of an export error, and the user's line of code that it names or was raised at."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = [f'File "{f.filename}", line {f.lineno}, in {f.name}' for f in extract_tb(error.__traceback__)]
    inside = [i for i, frame in enumerate(frames) if str(calling.__file__) in frame]
    raised = frames[inside[-1] + 1 :] if inside else []
    own = [line for line in (*raised, *lines) if line.startswith("File ") and is_own(line)]
    said = lines[0] if lines else type(error).__name__
    return "what it does depends on the data" if "data-dependent" in said else said, own[-1] if own else ""


def is_own(file: str) -> bool:
    """Return True if a file, or a line that names it, is the user's own: neither torch's nor this library's wrapper."""
    return not any(other in file.replace("\\", "/") for other in _NOT_OWN)


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_LIBRARY = torch.library.Library("dasp", "FRAGMENT")
_OPTIONS = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_LIBRARY.define(f"lstm(Tensor input, Tensor[] hx, Tensor[] params, {_OPTIONS}) -> (Tensor, Tensor, Tensor)")
for _name in _RECURRENT[1:]:
    _LIBRARY.define(f"{_name}(Tensor input, Tensor hx, Tensor[] params, {_OPTIONS}) -> (Tensor, Tensor)")


def _shapes(x: Tensor, state: Tensor | list[Tensor], params: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
    """The result of every step, and the last states, as tensors without numbers."""
    _has_biases, _num_layers, _dropout, _train, bidirectional, _batch_first = options
    states = (state,) if isinstance(state, Tensor) else tuple(state)
    results = x.new_empty((*x.shape[:2], states[0].shape[-1] * (2 if bidirectional else 1)))
    return results, *map(torch.empty_like, states)


for _name in _RECURRENT:
    _LIBRARY.impl(_name, _shapes, "Meta")

# By the function that a model calls, and by the operation that stands for it meanwhile.
_CALLED = {getattr(torch._VF, name): getattr(torch.ops.dasp, name).default for name in _RECURRENT}
_MEANT = {getattr(torch.ops.dasp, name).default: getattr(aten, name).input for name in _RECURRENT}


class _RecurrentShapes(TorchFunctionMode):
    """Records recurrent networks as operations that only know shapes: in this thread, as long as it is entered."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = next((op for function, op in _CALLED.items() if func is function), None)
        if op is not None and not kwargs and isinstance(args[3], bool):  # not a packed sequence, which has sizes there
            return op(*args)
        return func(*args, **(kwargs or {}))


def _module(program: ExportedProgram) -> fx.GraphModule:
    """Return a program's graph with torch's recurrent networks, and without what does nothing in evaluation mode."""
    with _quietly():
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in module.graph.nodes:
        if node.target in _MEANT:
            node.target = _MEANT[node.target]
        elif node.target in _DROPOUTS and not (node.args[1] and node.args[2]):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)  # dead code elimination keeps what is random
        elif node.target is aten.copy_.default and node.args[0].op == "placeholder":
            module.graph.erase_node(node)  # writes what became of an input back into the caller's tensor
        elif node.target in _SHAPED_LIKE:
            _shape_by_sizes(node)
        elif node.target in (aten.to.dtype, aten.type_as.default):
            _cast(node)
    _take_new_memory(module.graph)
    module.graph.eliminate_dead_code()
    return module


_SHAPED_LIKE = {
    aten.expand_as.default: aten.expand.default,
    aten.reshape_as.default: aten.reshape.default,
    aten.view_as.default: aten.view.default,
}


def _shape_by_sizes(node: fx.Node) -> None:
    """Write x.expand_as(y) as x.expand(sizes of y), which does not depend on the entries of y."""
    x, like = node.args
    with node.graph.inserting_before(node):
        sizes = [_size(like, dim, size) for dim, size in enumerate(like.meta["val"].shape)]  # type: ignore[union-attr]
    node.target, node.args = _SHAPED_LIKE[node.target], (x, sizes)  # type: ignore[index]


def _size(x: Any, dim: int, size: int | torch.SymInt) -> Any:
    """Return a size that is the same in every call, or the node that gives it, as of the number of rows."""
    if isinstance(size, int):
        return size
    node = x.graph.call_function(aten.sym_size.int, (x, dim))
    node.meta["val"] = size
    return node


def _cast(node: fx.Node) -> None:
    """Write a cast as a copy of another dtype, or as nothing where the dtype is the same."""
    x: Any = node.args[0]
    before, after = x.meta["val"], node.meta["val"]
    if before.device != after.device:
        return
    if before.dtype != after.dtype:
        node.target, node.args, node.kwargs = aten._to_copy.default, (x,), {"dtype": after.dtype}
        return
    node.replace_all_uses_with(x)
    node.graph.erase_node(node)


def _take_new_memory(graph: fx.Graph) -> None:
    """Write operations in place as those that give a new tensor, where that is the same.

    It is if nobody reads the memory that is written to afterwards but by way of the result. Which values share their
    memory is known from the tensors without numbers that the model was exported with.
    """
    order = {node: position for position, node in enumerate(graph.nodes)}
    sharing: dict[int, list[fx.Node]] = defaultdict(list)  # the nodes so far whose values are in one memory
    for node in graph.nodes:
        memories = {_memory(x) for x in _pytree.tree_leaves(node.meta.get("val")) if isinstance(x, Tensor)}
        if (new := _with_new_result(node)) is not None:
            before = [x for memory in memories for x in sharing[memory]]
            read_later = any(order[user] > order[node] for x in before for user in x.users)
            if node.args[0] in before and not read_later and all(x.op != "get_attr" for x in before):
                node.target = new
        for memory in memories:
            sharing[memory].append(node)


def _memory(x: Tensor) -> int:
    """Return a number that tensors have in common if they are views of the same memory."""
    return x.untyped_storage()._cdata if x.layout is torch.strided else id(x)


def _with_new_result(node: fx.Node) -> Any:
    """Return relu for relu_, if it computes in the same precision; None for an operation that is not in place."""
    op = node.target
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten" or not op._schema.is_mutable:
        return None
    tensors = [x.meta.get("val") for x in (node, *node.all_input_nodes)]
    if len({x.dtype for x in tensors if isinstance(x, Tensor) and x.is_floating_point()}) > 1:
        return None  # which in place ends in the precision of the first
    return _out_of_place(op)


@cache
def _out_of_place(op: torch._ops.OpOverload) -> Any:
    """Return the operation on the same arguments that writes to none of them; None if there is none. Its name may end
    otherwise: for pow_.Scalar that is pow.Tensor_Scalar, as pow.Scalar has a number as base."""
    packet = getattr(aten, op._opname.removesuffix("_"), None)
    every = [] if packet is None else [getattr(packet, name) for name in packet.overloads()]
    alike = [x for x in every if not x._schema.is_mutable and _kinds(x) == _kinds(op)]
    return min(alike, key=lambda x: x._overloadname != op._overloadname, default=None)


def _kinds(op: torch._ops.OpOverload) -> list[str]:
    """Return the types of an operation's arguments."""
    return [str(argument.type) for argument in op._schema.arguments]


def _known(graph: fx.Graph, keep: Collection[Any]) -> Callable[[fx.Node], bool]:
    """Return a test for nodes that can stay as they are: their op is in `keep`, or they depend on no input."""
    whole = {*keep, *SHAPE_ONLY, *_SINGLE, aten.squeeze.default}
    depends: set[fx.Node] = set()
    for node in graph.nodes:
        shape = node.target in SHAPE_ONLY  # which does not depend on what the entries are
        if node.op == "placeholder" or not (shape or depends.isdisjoint(node.all_input_nodes)):
            depends.add(node)

    def known(node: fx.Node) -> bool:
        arithmetic = getattr(node.target, "__module__", None) in ("_operator", "math")  # of sizes
        asserts = not node.users and "_assert" in str(node.target)
        return node.op != "call_function" or node not in depends or node.target in whole or arithmetic or asserts

    return known


def _decomposed(program: ExportedProgram, keep: Collection[Any]) -> ExportedProgram:
    """Return the program with all ops but those to keep decomposed into smaller ones."""
    table = torch.export.default_decompositions()
    table.update(_EMBEDDING_BAGS)
    table.update({recorded: meant for recorded, meant in _MEANT.items() if meant not in keep})
    for op in (*keep, aten.squeeze.default):
        table.pop(op, None)  # without asking for it, for which the table would look for all operations that there are
    with _quietly():
        return program.run_decompositions(table)


def _one_output(graph: fx.Graph) -> None:
    """Leave one output: the only result, or the only one of floating point. A program may have more than that."""
    output = next(node for node in graph.nodes if node.op == "output")
    results = [x for x in _pytree.tree_leaves(output.args) if isinstance(x, fx.Node)]
    if len(results) != 1:
        results = [x for x in results if x.meta["val"].is_floating_point()]
    if len(results) != 1:
        raise BadInput(f"the program returns {len(results)} tensors, and one is needed: export it with that one alone")
    output.args = (results[0],)


def _assign_by_choice(node: fx.Node) -> None:
    """Write x[mask] = number as where(mask, number, x)."""
    x, indices, value, *accumulate = node.args
    operands: Any = (x, *indices, value)  # type: ignore[misc, operator]
    if any(accumulate) or len(operands) != 3:
        return
    tensors: Any = [each.meta.get("val") if isinstance(each, fx.Node) else None for each in operands]
    if not all(isinstance(each, Tensor) for each in tensors):
        return
    at, mask, number = tensors
    if mask.dtype == torch.bool and mask.dim() == at.dim() and number.dim() == 0:
        node.target, node.args = aten.where.self, (operands[1], value, x)


# Ops with a main result and by-products, as ops with one result: arguments → (op, arguments).
_SINGLE: dict[Any, Any] = {
    aten._native_batch_norm_legit_no_training.default: lambda x, weight, bias, mean, variance, momentum, eps: (
        aten.batch_norm.default,
        (x, weight, bias, mean, variance, False, momentum, eps, False),
    ),
    aten.max.dim: lambda x, dim, keepdim=False: (aten.amax.default, (x, [dim], keepdim)),
    aten.min.dim: lambda x, dim, keepdim=False: (aten.amin.default, (x, [dim], keepdim)),
    aten.max_pool2d_with_indices.default: lambda *args: (aten.max_pool2d.default, args),
    aten.max_pool3d_with_indices.default: lambda *args: (aten.max_pool3d.default, args),
    aten.rrelu_with_noise_functional.default: lambda x, _, a=1 / 8, b=1 / 3, *__: (
        aten.leaky_relu.default,
        (x, (a + b) / 2),
    ),
}


def _take_first(graph: fx.Graph, node: fx.Node) -> None:
    """Replace `node[0]` by the op that gives just that, if nothing else of the result is used."""
    users = list(node.users)
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in users):
        return
    target, args = _SINGLE[node.target](*node.args, **node.kwargs)
    with graph.inserting_before(node):
        single = graph.call_function(target, args)
    value = node.meta["val"]
    single.meta = {**node.meta, "val": value[0] if isinstance(value, (tuple, list)) else value}
    for user in users:
        user.replace_all_uses_with(single)
        graph.erase_node(user)
    graph.erase_node(node)


_SUM, _MEAN = 0, 1
_DEFAULTS = (False, _SUM, False, None, False, -1)


def _embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, *options: Any) -> Any:
    """Sums and means of embeddings in ops that have rules. A bag's entries are those from its offset to the next."""
    every = (*options, *_DEFAULTS[len(options) :])
    _scale_gradient, mode, _sparse, per_sample_weights, include_last_offset, padding_idx = every
    if mode not in (_SUM, _MEAN) or (mode == _MEAN and padding_idx >= 0):
        return NotImplemented  # how many entries count depends on the tokens
    starts = offsets[:-1] if include_last_offset else offsets
    bag = torch.searchsorted(starts, torch.arange(indices.shape[0], device=indices.device), right=True) - 1
    entries = aten.embedding.default(weight, indices)
    if padding_idx >= 0:
        entries = entries * (indices != padding_idx).unsqueeze(-1)
    if per_sample_weights is not None:
        entries = entries * per_sample_weights.unsqueeze(-1)
    total = weight.new_zeros(starts.shape[0], weight.shape[1]).index_add(0, bag, entries)
    if mode == _MEAN:
        counts = weight.new_zeros(starts.shape[0]).index_add(0, bag, torch.ones_like(bag, dtype=weight.dtype))
        total = total / counts.clamp(min=1).unsqueeze(-1)
    unused = offsets.new_empty(0)
    return total, unused, unused, unused


_EMBEDDING_BAGS = {
    aten._embedding_bag.default: _embedding_bag,
    aten._embedding_bag_forward_only.default: _embedding_bag,
}


_POOLS = (aten.max_pool1d.default, aten.max_pool2d.default, aten.max_pool3d.default)


def _pool_first(pool: fx.Node) -> None:
    """max_pool(relu(x)) = relu(max_pool(x)): fewer entries to rectify, and the maximum of normals is nearer to normal
    than that of rectified ones. On LeNet-5 it took a quarter (rank 0) to a half (25 columns) off the error."""
    relu = pool.args[0]
    assert isinstance(relu, fx.Node)
    if relu.target is not aten.relu.default or len(relu.users) > 1:
        return
    pool.replace_input_with(relu, relu.args[0])  # type: ignore[arg-type]
    with pool.graph.inserting_after(pool):
        after = pool.graph.call_function(aten.relu.default, (pool,))
    after.meta = dict(pool.meta)
    pool.replace_all_uses_with(after, delete_user_cb=lambda user: user is not after)
