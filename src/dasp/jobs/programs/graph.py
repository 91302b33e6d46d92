"""The graph of a program, built from JSON.

A program's graph has named inputs (parameters, buffers, constants and what the user gives), nodes that name values by
the operation that computes them, and outputs. Names are only looked up; the graph that is built has its own.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from dasp.jobs.programs.archive import NotUnderstood
from dasp.jobs.programs.checked import checked
from dasp.jobs.programs.fields import PLAIN, choice, fields, identifier, listed, text
from dasp.jobs.programs.operations import SIZES, bits, operation
from dasp.jobs.programs.sizes import check_rows, check_size, check_tensor
from dasp.jobs.programs.tensors import Tensors

__all__ = ["built"]

_LISTS = {f"{kind}s": kind for kind in (
    "as_tensor", "as_optional_tensor", "as_int", "as_float", "as_bool", "as_string", "as_sym_int", "as_sym_float",
    "as_sym_bool",
)} | {"as_int_lists": "as_ints", "as_float_lists": "as_floats"}  # fmt: skip
_VALUES = ("sym_int_values", "sym_bool_values", "sym_float_values")
_SIZES = ("as_sym_int", "as_sym_float", "as_sym_bool")
_NUMBERS = ("as_int", "as_float", "as_bool")
_LONGEST = 1024  # bits of a size
_KEYWORD = 2  # how torch marks an argument that is given by name


def built(graph_module: list[Any], weights: Tensors, constants: Tensors) -> fx.GraphModule:
    """The module of a graph, its signature and the calls of its modules, of which the first is the program's own."""
    graph, signature, calls = graph_module
    inputs, outputs, nodes, values = fields(
        graph, "inputs", "outputs", "nodes", "tensor_values",
        optional=(*_VALUES, "is_single_tensor_return", "custom_obj_values"),
    )  # fmt: skip
    for meta in values.values():
        check_tensor(meta)
    for size in (size for name in _VALUES for size in graph.get(name, {}).values()):
        check_size(size)
    taken, given = fields(signature, "input_specs", "output_specs")
    (in_tree, out_tree), *_ = [_trees(call) for call in listed(calls)]
    builder = _Builder(weights, constants)
    builder.add_inputs(listed(inputs), listed(taken), values)
    if len(_flat(in_tree)) != builder.asked:
        raise NotUnderstood("inputs that are not just tensors side by side")
    for node in listed(nodes):
        builder.add_node(node)
    builder.add_outputs(listed(outputs), listed(given), out_tree)
    module = fx.GraphModule(builder.tensors, builder.graph)
    module.train(False)
    return module


class _Builder:
    def __init__(self, weights: Tensors, constants: Tensors) -> None:
        self.graph = fx.Graph()
        self.tensors: dict[str, Tensor] = {}  # by the names that the graph has for them
        self.asked = 0  # inputs that the user gives
        self._weights, self._constants = weights, constants
        self._values: dict[str, fx.Node] = {}
        self._bits: dict[fx.Node, int] = {}  # of sizes

    def add_inputs(self, inputs: list[Any], signature: list[Any], values: Any) -> None:
        """Add a placeholder per input of the user, and the tensors that the program brings."""
        first, constants = True, False
        for argument, described in zip(inputs, signature, strict=True):
            kind, value = choice(argument)
            role, about = choice(described)
            if role in ("user_input", "constant_input"):
                self.asked += 1
                if kind == "as_tensor":
                    if constants:
                        raise NotUnderstood("a constant before a tensor among its inputs")
                    if first:
                        check_rows(values[_name(kind, value)])
                        first = False
                    given = self.graph.placeholder(f"input_{self.asked}")
                    given.meta["dtype"] = PLAIN["as_scalar_type"](values[_name(kind, value)]["dtype"])
                    self._define(_name(kind, value), given)
                elif kind in ("as_none", *_NUMBERS):  # is a constant of the graph, and need not be given
                    self.graph.placeholder(f"input_{self.asked}", default_value=PLAIN[kind](value))
                    constants = True
                else:
                    raise NotUnderstood(f"an input of kind {kind[:40]!r}")
            else:
                self._define(_name(kind, value), self._stored(role, about, value))

    def _stored(self, role: str, about: Any, value: Any) -> fx.Node:
        """A node for a tensor that the program brings."""
        if role == "parameter":
            argument, name = fields(about, "arg", "parameter_name")
            tensor = self._weights[name]
        elif role == "buffer":
            argument, name, persistent = fields(about, "arg", "buffer_name", "persistent")
            tensor = (self._weights if persistent else self._constants)[name]
        elif role == "tensor_constant":
            argument, name = fields(about, "arg", "tensor_constant_name")
            tensor = self._constants[name]
        else:
            raise NotUnderstood(f"an input of kind {role[:40]!r}")
        if argument != value:
            raise ValueError(f"its inputs and its signature differ in {name}")
        own = f"{role}_{len(self.tensors)}"
        self.tensors[own] = tensor
        return self.graph.create_node("get_attr", own)

    def add_node(self, node: Any) -> None:
        """Add an operation, and what it computes under its names."""
        target, inputs, outputs, metadata = fields(
            node, "target", "inputs", "outputs", "metadata", optional=("is_hop_single_tensor_return", "name")
        )
        if target in SIZES:
            made = self._size(target, [fields(x, "arg", optional=("name", "kind"))[0] for x in listed(inputs)])
        else:
            op = operation(text(target))
            args, kwargs = self._arguments(op, listed(inputs))
            made = self.graph.call_function(checked(op), args, kwargs)
        if trace := metadata.get("stack_trace"):
            made.meta["stack_trace"] = "\n".join(line for line in str(trace).split("\n") if line.isprintable())
        found = [choice(output) for output in listed(outputs)]
        if len(found) == 1 and found[0][0] != "as_tensors":
            self._name_result(*found[0], made)
        elif len(found) == 1:
            self._name_results([("as_tensor", value) for value in listed(found[0][1])], made)
        else:
            self._name_results(found, made)

    def _size(self, target: str, inputs: list[Any]) -> fx.Node:
        """A number that is computed from the sizes of tensors."""
        if any(choice(x)[0] not in (*_SIZES, *_NUMBERS) for x in inputs):
            raise NotUnderstood(f"{target} of what is no size")
        args = [self._argument(*choice(x)) for x in inputs]
        made = self.graph.call_function(SIZES[target], tuple(args))
        self._bits[made] = bits(SIZES[target], [self._bits.get(x, 64) if isinstance(x, fx.Node) else 64 for x in args])
        if self._bits[made] > _LONGEST:
            raise NotUnderstood(f"a size of more than {_LONGEST} bits")
        return made

    def _arguments(self, op: Any, inputs: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of an operation, as its schema orders them."""
        given = {}
        for argument in inputs:
            name, value = fields(argument, "name", "arg", optional=("kind",))
            given[name] = self._argument(*choice(value)), argument.get("kind")
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for expected in op._schema.arguments:
            if expected.name not in given:
                if not expected.has_default_value():
                    raise ValueError(f"{op} has no argument {expected.name!r}")
                continue
            value, kind = given.pop(expected.name)
            if kind == _KEYWORD or expected.kwarg_only or kwargs or len(args) < op._schema.arguments.index(expected):
                kwargs[expected.name] = value
            else:
                args.append(value)
        if given:
            raise NotUnderstood(f"an argument {min(given)[:40]!r} that {op} does not take")
        return tuple(args), kwargs

    def _argument(self, kind: str, value: Any) -> Any:
        if kind in _LISTS:
            return [self._argument(_LISTS[kind], part) for part in listed(value)]
        if kind == "as_optional_tensor" or kind in _SIZES:
            inner, part = choice(value)
            if inner in ("as_none", "as_tensor") if kind == "as_optional_tensor" else inner in _NUMBERS:
                return self._argument(inner, part)
        if kind == "as_tensor" or kind in _SIZES:
            return self._values[_name(kind, value)]
        if kind not in PLAIN:
            raise NotUnderstood(f"an argument of kind {kind[:40]!r}")
        return PLAIN[kind](value)

    def _define(self, name: str, node: fx.Node) -> None:
        if name in self._values:
            raise NotUnderstood(f"two values {name[:40]!r}")
        self._values[name] = node

    def _name_result(self, kind: str, value: Any, node: fx.Node) -> None:
        if kind == "as_tensors":
            self._name_results([("as_tensor", part) for part in listed(value)], node)
        elif kind != "as_none":
            self._define(_name(kind, value), node)

    def _name_results(self, results: list[tuple[str, Any]], node: fx.Node) -> None:
        for i, (kind, value) in enumerate(results):
            self._name_result(kind, value, self.graph.call_function(operator.getitem, (node, i)))

    def add_outputs(self, outputs: list[Any], signature: list[Any], tree: Any) -> None:
        """Add what the program returns."""
        for described in signature:
            if (role := choice(described)[0]) != "user_output":
                raise NotUnderstood(f"an output of kind {role[:40]!r} (is it exported in training mode?)")
        found = [self._argument(*choice(output)) for output in outputs]
        if len(found) != len(signature) or len(found) != len(_leaves(tree)):
            raise ValueError("its outputs are not as many as it says")
        self.graph.output(_filled(tree, iter(found)))


def _name(kind: str, value: Any) -> str:
    if kind == "as_tensor":
        return identifier(fields(value, "name")[0])
    if kind in _SIZES:
        return identifier(fields(value, "as_name")[0])
    raise NotUnderstood(f"a value of kind {kind[:40]!r}")


class _Leaf:
    """A place for a value in nested tuples, lists and dicts."""


def _trees(call: Any) -> tuple[Any, Any]:
    """How the inputs and the outputs of a module are nested, as far as it is said."""
    (signature,) = fields(call, "signature", optional=("fqn",))
    if signature is None:
        return (), ()
    inner, outer = fields(signature, "in_spec", "out_spec", optional=("inputs", "outputs", "forward_arg_names"))
    return _tree(inner), _tree(outer)


def _tree(spec: Any) -> Any:
    """The tuples, lists and dicts that torch writes of nested values, with leaves in place of these."""
    version, root = json.loads(spec)
    if version != 1:
        raise NotUnderstood("nested values in the format of another version of torch")
    return _branch(root)


def _branch(spec: Any) -> Any:
    kind, context, children = fields(spec, "type", "context", "children_spec")
    parts = [_branch(child) for child in listed(children)]
    if kind is None:
        return _Leaf()
    if kind == "builtins.dict":
        return dict(zip(map(identifier, listed(json.loads(context))), parts, strict=True))
    if kind not in ("builtins.tuple", "builtins.list") or context != "null":
        raise NotUnderstood(f"inputs or outputs in a {str(kind)[:60]!r}")
    return tuple(parts) if kind == "builtins.tuple" else parts


def _parts(tree: Any) -> list[Any]:
    return list(tree.values()) if isinstance(tree, dict) else list(tree)


def _flat(tree: Any) -> list[_Leaf]:
    """The leaves of positional and keyword arguments, if each is one."""
    return [leaf for arguments in _parts(tree) for leaf in _parts(arguments) if isinstance(leaf, _Leaf)]


def _leaves(tree: Any) -> list[_Leaf]:
    return [tree] if isinstance(tree, _Leaf) else [leaf for part in _parts(tree) for leaf in _leaves(part)]


def _filled(tree: Any, values: Iterator[Any]) -> Any:
    if isinstance(tree, _Leaf):
        return next(values)
    if isinstance(tree, dict):
        return {key: _filled(part, values) for key, part in tree.items()}
    return type(tree)(_filled(part, values) for part in tree)
