"""From a model to its graph of ATen ops: the only file that touches `torch.export`.

The model is exported with a dynamic batch. Ops that have a rule stay whole; if there are others, these are decomposed
into smaller ones. A maximum of ReLUs becomes the ReLU of the maximum, which is the same and has a quarter of the
entries.
"""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram

from dasp.errors import UntraceableModel
from dasp.propagation.bags import DECOMPOSITIONS

__all__ = ["SHAPE_ONLY", "check_evaluation_mode", "checked_model", "trace"]

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
    """The graph of `model`: get_attr nodes for its weights, one placeholder per argument, one output.

    `example` are the model's arguments; tensors with as many rows as the first are taken as batched. Ops in `keep`
    are not decomposed. With `pool_first`, rectified entries are pooled before they are rectified, which is the same
    function and a better one to propagate moments through.
    """
    program = model if isinstance(model, ExportedProgram) else _export(model, example)
    module = _module(program)
    if not all(map(_known(module.graph, keep), module.graph.nodes)):
        module = _module(_decomposed(program, keep))  # which takes longer than all the rest
    graph = module.graph
    _one_output(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in _SINGLE:
            _take_first(graph, node)
        elif not node.users and "_assert" in str(node.target):
            graph.erase_node(node)
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


def _module(program: ExportedProgram) -> fx.GraphModule:
    """A program's graph, without what does nothing in evaluation mode."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytrees
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in module.graph.nodes:
        if node.target is aten.contiguous.default or (node.target in _DROPOUTS and not (node.args[1] and node.args[2])):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)  # what is random counts as alive
    module.graph.eliminate_dead_code()
    return module


def _known(graph: fx.Graph, keep: Collection[Any]) -> Callable[[fx.Node], bool]:
    """Whether a node can stay as it is: because its op is in `keep`, or because no input of the model is in it."""
    whole = {*keep, *SHAPE_ONLY, *_SINGLE, aten.squeeze.default}
    depends: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder" or not depends.isdisjoint(node.all_input_nodes):
            depends.add(node)

    def known(node: fx.Node) -> bool:
        arithmetic = getattr(node.target, "__module__", None) in ("_operator", "math")  # of sizes
        asserts = not node.users and "_assert" in str(node.target)
        return node.op != "call_function" or node not in depends or node.target in whole or arithmetic or asserts

    return known


def _decomposed(program: ExportedProgram, keep: Collection[Any]) -> ExportedProgram:
    """The program with all ops but those to keep decomposed into smaller ones."""
    table = torch.export.default_decompositions()
    table.update(DECOMPOSITIONS)
    for op in (*keep, aten.squeeze.default):
        if op in table:
            table.pop(op)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return program.run_decompositions(table)


def _export(model: nn.Module, example: tuple[Any, ...]) -> ExportedProgram:
    rows = next(len(x) for x in example if isinstance(x, Tensor))

    def batched(x: Any) -> bool:
        return isinstance(x, Tensor) and x.dim() > 0 and len(x) == rows

    # A batch of one would be taken for a constant, so two rows are traced.
    pair = tuple(torch.cat([x[:1], x[:1]]) if batched(x) else x for x in example)
    shapes = tuple({0: Dim.AUTO} if batched(x) else None for x in example)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", ".*_flat_weights")  # torch's own, about its recurrent networks
            program = torch.export.export(model, pair, dynamic_shapes=_described(model, shapes))
    except Exception as error:
        reason, where = _reason(error)
        raise UntraceableModel(
            f"{type(model).__name__} cannot be exported to a graph by torch.export: {reason}",
            "If its control flow depends on the data, write it without such branches (torch.where). BayesianShapley "
            "only evaluates the model and needs no graph.",
            where,
        ) from error
    if (fixed := _fixed_rows(program)) is not None:
        raise UntraceableModel(
            f"{type(model).__name__} becomes a graph for exactly {fixed} row(s): its forward turns the number of rows "
            "into a constant, as int(x.shape[0]) or a loop over rows does",
            "Write it without, or use BayesianShapley, which only evaluates the model and needs no graph.",
        )
    return program


def _described(model: nn.Module, shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """A description per parameter of forward: torch.export wants those of *args in a tuple of their own."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    for i, parameter in enumerate(parameters):
        if parameter.kind is parameter.VAR_POSITIONAL and i < len(shapes):
            return (*shapes[:i], tuple(shapes[i:]))
    return shapes


def _reason(error: Exception) -> tuple[str, str]:
    """The first line of an export error, and the user's own line of code if it names one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("File ") and "site-packages" not in line]
    return lines[0] if lines else type(error).__name__, own[-1] if own else ""


def checked_model(model: Any) -> nn.Module | ExportedProgram:
    """The model, if it can be traced and is ready to be explained."""
    if isinstance(model, ExportedProgram):
        check_dynamic_batch(model)
        return model
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"a torch.nn.Module or an ExportedProgram is needed to propagate moments through, not a "
            f"{type(model).__name__}; BayesianShapley takes any callable"
        )
    check_evaluation_mode(model)
    return model


_NORMS = (nn.modules.batchnorm._NormBase,)
_DROPPING = (nn.modules.dropout._DropoutNd,)


def mode_matters(module: nn.Module) -> bool:
    """Whether a module by itself, without those inside of it, computes something else in training mode.

    >>> [mode_matters(module) for module in (nn.ReLU(), nn.Dropout(0.5), nn.Dropout(0), nn.BatchNorm1d(2))]
    [False, True, False, True]
    """
    if isinstance(module, _DROPPING):
        return module.p > 0
    if isinstance(module, _NORMS):
        return module.track_running_stats
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, nn.RReLU):
        return True
    if type(module).__module__.partition(".")[0] == "torch":
        return False
    code = getattr(type(module).forward, "__code__", None)
    return code is None or "training" in code.co_names  # somebody's own module that asks for the mode


def check_evaluation_mode(model: nn.Module) -> None:
    """Refuse a model that would drop units out, or normalise by its batch and learn from it, while it is explained."""
    training = [name or type(model).__name__ for name, module in model.named_modules()
                if module.training and mode_matters(module)]  # fmt: skip
    if training:
        raise ValueError(f"the model is in training mode ({', '.join(training[:3])}): call model.eval() first")


def check_dynamic_batch(program: ExportedProgram) -> None:
    """Refuse a program that takes only one number of rows."""
    if (fixed := _fixed_rows(program)) is not None:
        raise ValueError(rows_are_fixed(fixed))


def rows_are_fixed(rows: int) -> str:
    """What to do about a program that takes only one number of rows."""
    return (
        f"the program is for exactly {rows} row(s): export it with a dynamic batch, torch.export.export(model, "
        "args, dynamic_shapes=({0: torch.export.Dim.AUTO},)), and two rows or more (a forward that turns the "
        "number of rows into a constant, as int(x.shape[0]) does, must be written without)"
    )


def _fixed_rows(program: ExportedProgram) -> int | None:
    """The only number of rows that a program takes; None if it takes any."""
    names = program.graph_signature.user_inputs
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in names]
    first = next((value for value in values if isinstance(value, Tensor)), None)
    if first is None:
        return None
    rows = first.shape[0]
    return int(rows) if isinstance(rows, int) or rows.node.expr.is_number else None


def _one_output(graph: fx.Graph) -> None:
    output = next(node for node in graph.nodes if node.op == "output")
    results = torch.utils._pytree.tree_leaves(output.args)
    if len(results) != 1 or not isinstance(results[0], fx.Node):
        raise ValueError(
            f"the model returns {len(results)} values, and one tensor is needed to explain: "
            "wrap it in a module whose forward returns the one you want"
        )
    output.args = (results[0],)


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
