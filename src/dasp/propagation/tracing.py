"""From a model to its graph of ATen ops, ready to be lifted.

The model is exported for any number of rows. Ops that have a rule stay whole; if there are others, these are decomposed
into smaller ones. A maximum of ReLUs becomes the ReLU of the maximum, which is the same and has a quarter of the
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from dasp.errors import BadInput
from dasp.propagation.bags import DECOMPOSITIONS
from dasp.propagation.exporting import check_dynamic_batch, exported, quietly, rows_are_fixed
from dasp.propagation.rewriting import SINGLE, assign_by_choice, take_first

__all__ = [
    "SHAPE_ONLY", "check_dynamic_batch", "check_evaluation_mode", "checked_model", "rows_are_fixed", "trace",
]  # fmt: skip

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
    are not decomposed. What the model writes into its inputs stays in the graph. With `pool_first`, rectified entries
    are pooled before they are rectified, which is the same function and a better one to propagate moments through.
    """
    program = model if isinstance(model, ExportedProgram) else exported(model, example)
    module = _module(program)
    if not all(map(_known(module.graph, keep), module.graph.nodes)):
        module = _module(_decomposed(program, keep))  # which takes longer than all the rest
    graph = module.graph
    _one_output(graph)
    for node in graph.nodes:
        if node.op == "call_function" and node.target in SINGLE:
            take_first(graph, node)
        elif not node.users and "_assert" in str(node.target):
            graph.erase_node(node)
        elif node.target is aten.index_put.default:
            assign_by_choice(node)
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
    with quietly():
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in module.graph.nodes:
        if node.target in _DROPOUTS and not (node.args[1] and node.args[2]):
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)  # what is random counts as alive
        elif node.target is aten.copy_.default and node.args[0].op == "placeholder":
            module.graph.erase_node(node)  # writes what became of an input back into the caller's tensor
    module.graph.eliminate_dead_code()
    return module


def _known(graph: fx.Graph, keep: Collection[Any]) -> Callable[[fx.Node], bool]:
    """Whether a node can stay as it is: because its op is in `keep`, or because no input of the model is in it."""
    whole = {*keep, *SHAPE_ONLY, *SINGLE, aten.squeeze.default}
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
    """The program with all ops but those to keep decomposed into smaller ones."""
    table = torch.export.default_decompositions()
    table.update(DECOMPOSITIONS)
    for op in (*keep, aten.squeeze.default):
        table.pop(op, None)  # without asking for it, for which the table would look for all operations that there are
    with quietly():
        return program.run_decompositions(table)


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


def _one_output(graph: fx.Graph) -> None:
    """Leave the only result, or the only one of floating point: of a module it is, of a program it may be."""
    output = next(node for node in graph.nodes if node.op == "output")
    results = [x for x in torch.utils._pytree.tree_leaves(output.args) if isinstance(x, fx.Node)]
    if len(results) != 1:
        results = [x for x in results if x.meta["val"].is_floating_point()]
    if len(results) != 1:
        raise BadInput(f"the program returns {len(results)} tensors, and one is needed: export it with that one alone")
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
