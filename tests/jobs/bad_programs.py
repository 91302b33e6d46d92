"""What an attacker could make of a saved MLP of two layers: changes of its file, and part of what is answered."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from typing import Any

from saved_programs import MODULE, archive_of, parts_of, with_json

Change = Callable[[bytes], bytes]
_CODE = f"__import__('{MODULE}')"
_QUOTED = f'train"), __import__("{MODULE}"), getattr(self, "train'  # inside of getattr(self, "…")
_WEIGHTS = "data/weights/model_weights_config.json"
_CONSTANTS = "data/constants/model_constants_config.json"
_GRAPH = ("graph_module", "graph")
_SIGNATURE = ("graph_module", "signature")
_CALL = ("graph_module", "module_call_graph", 0, "signature")
_FIRST_ARGUMENT = (*_GRAPH, "nodes", 0, "inputs", 0, "arg")
_WEIGHT = ("config", "0.weight", "tensor_meta")


def put(path: tuple[str | int, ...], value: Any, part: str = "models/model.json") -> Change:
    """The value at a place in a part's JSON."""

    def change(tree: Any) -> None:
        *where, last = path
        for key in where:
            tree = tree[key]
        tree[last] = value

    return lambda content: with_json(content, change, part)


def both(one: Change, other: Change) -> Change:
    return lambda content: other(one(content))


def added(name: str, part: bytes = b"") -> Change:
    return lambda content: archive_of([*parts_of(content), (name, part)])


def renamed(old: str, new: str, part: str = "models/model.json") -> Change:
    """A name, wherever it is in a part's JSON."""

    def change(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {new if key == old else key: change(value) for key, value in tree.items()}
        if isinstance(tree, list):
            return [change(entry) for entry in tree]
        return new if tree == old else tree

    return lambda content: with_json(content, change, part)


def hidden(name: str) -> Change:
    """A constant that the config calls opaque_obj_0, which torch unpickles from a part of this name in any case."""
    plain = {"as_int": 1}
    tensor = {"dtype": 1, "sizes": [plain], "strides": [plain], "storage_offset": {"as_int": 0}, "requires_grad": False,
              "device": {"type": "cpu", "index": None}, "layout": 7}  # fmt: skip
    meta = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": False, "tensor_meta": tensor}
    named = put(("config", "shift"), meta, _CONSTANTS)
    return both(named, added(f"data/constants/{name}", f"c{MODULE}\nmain\n.".encode()))


def tree(kind: str, context: Any) -> str:
    return json.dumps([1, {"type": kind, "context": context, "children_spec": []}])


def enum(name: str, member: str) -> str:
    return tree("builtins.tuple", json.dumps({"__enum__": True, "fqn": name, "name": member}))


def argument(name: str, value: Any) -> dict[str, Any]:
    return {"name": name, "arg": value, "kind": 1}


def node(target: str, inputs: list[Any], output: Any) -> dict[str, Any]:
    return {"target": target, "inputs": inputs, "outputs": [output], "metadata": {}}


WRITING = node(
    "torch.ops.aten.from_file.default",
    [argument("filename", {"as_string": "target"}), argument("shared", {"as_bool": True}),
     argument("size", {"as_int": 4})],
    {"as_tensor": {"name": "linear"}},
)  # fmt: skip


def squares(content: bytes) -> bytes:
    """A size that is squared 64 times, which has more digits than there is memory."""

    def change(program: Any) -> None:
        of: Any = {"as_int": 9}
        for i in range(64):
            made = {"as_sym_int": {"as_name": f"n{i}"}}
            program["graph_module"]["graph"]["nodes"].insert(i, node("_operator.mul", [argument("", of)] * 2, made))
            of = made

    return with_json(content, change)


def sized(expression: str) -> Change:
    return put((*_GRAPH, "tensor_values", "input", "sizes", 1), {"as_expr": {"expr_str": expression, "hint": None}})


def doubled(content: bytes) -> bytes:
    """Each part twice: Python takes one of them, torch the other."""
    return archive_of([part for part in parts_of(content) for _ in range(2)])


def two_folders(content: bytes) -> bytes:
    return archive_of([(f"{i % 2}/{name}", part) for i, (name, part) in enumerate(parts_of(content))], folder="")


def bomb(content: bytes) -> bytes:
    return archive_of([*parts_of(content), ("extra/zeros", bytes(2**24))], compression=zipfile.ZIP_DEFLATED)


def in_directory(offset: int, new: bytes) -> Change:
    """Other bytes in the entry of the last part in the archive's directory."""

    def change(content: bytes) -> bytes:
        place = content.rindex(b"PK\x01\x02") + offset
        return content[:place] + new + content[place + len(new) :]

    return change


def nested(content: bytes) -> bytes:
    deep = b"[" * 10**5
    return archive_of([(name, deep if name.startswith("models") else part) for name, part in parts_of(content)])


ATTACKS: dict[str, tuple[Change, str]] = {
    "a pickle under a name in another case": (hidden("OPAQUE_OBJ_0"), "a part 'data/constants/OPAQUE_OBJ_0'"),
    "a pickle under its own name": (hidden("opaque_obj_0"), "a part 'data/constants/opaque_obj_0'"),
    "a parameter named with code": (
        both(renamed("0.weight", _QUOTED), renamed("0.weight", _QUOTED, _WEIGHTS)), "a value named .train",
    ),
    "a value named with code": (renamed("linear", f"x = {_CODE} #"), "a value named .x = "),
    "an enum to import": (put((*_CALL, "in_spec"), enum(f"{MODULE}:x", "x")), "outputs in a 'builtins.tuple'"),
    "an enum to load as a library": (put((*_CALL, "in_spec"), enum("ctypes:cdll", "/x.so")), "inputs or outputs in"),
    "a factory of defaults to import": (
        put((*_CALL, "out_spec"), tree("collections.defaultdict", {
            "default_factory_module": MODULE, "default_factory_name": "x", "dict_context": [],
        })),
        "inputs or outputs in a 'collections.defaultdict'",
    ),
    "a file to write to": (put((*_GRAPH, "nodes", 0), WRITING), "the operation 'torch.ops.aten.from_file.default'"),
    "an operation of another library": (
        put((*_GRAPH, "nodes", 0, "target"), "torch.ops.prims.sin.default"), "the operation 'torch.ops.prims.sin",
    ),
    "a function of torch": (put((*_GRAPH, "nodes", 0, "target"), "torch.hub.load"), "the operation 'torch.hub.load'"),
    "an operation among the arguments": (put(_FIRST_ARGUMENT, {"as_operator": "torch.hub.load"}), "kind 'as_operator'"),
    "a graph among the arguments": (put(_FIRST_ARGUMENT, {"as_graph": {"name": "x", "graph": {}}}), "kind 'as_graph'"),
    "an object among the arguments": (put(_FIRST_ARGUMENT, {"as_custom_obj": {"name": "x"}}), "kind 'as_custom_obj'"),
    "a number of 100 digits": (put(_FIRST_ARGUMENT, {"as_int": 10**100}), "a number of more than 64 bits"),
    "guards that are code": (put(("guards_code",), [_CODE]), "a size .__import__"),
    "guards that end a call": (put(("guards_code",), [f"L['x'].size()[0] == 1, ''); {_CODE} #"]), "a size .L"),
    "a size that is code": (sized(_CODE), "a size .__import__"),
    "a size without end": (sized("9**9**9**9"), "a size '9[*][*]9"),
    "a size of many digits": (sized("9" * 100), "a size '999"),
    "a size that grows": (squares, "a size of more than 1024 bits"),
    "pickled weights": (put(("config", "0.weight", "use_pickle"), True, _WEIGHTS), "pickled objects"),
    "a weight that is sparse": (put((*_WEIGHT, "layout"), 1, _WEIGHTS), "sparse"),
    "a weight of a strange device": (put((*_WEIGHT, "device", "type"), "meta", _WEIGHTS), "the device 'meta'"),
    "a weight larger than its part": (put((*_WEIGHT, "sizes"), [{"as_int": 2**31}] * 2, _WEIGHTS), "only 32 numbers"),
    "a weight that repeats itself": (
        both(put((*_WEIGHT, "sizes"), [{"as_int": 2**31}] * 2, _WEIGHTS),
             put((*_WEIGHT, "strides"), [{"as_int": 0}] * 2, _WEIGHTS)), "only 32 numbers",
    ),
    "an object as an input": (put((*_SIGNATURE, "input_specs", 0), {"custom_obj": {}}), "of kind 'custom_obj'"),
    "a buffer that changes": (put((*_SIGNATURE, "output_specs", 0), {"buffer_mutation": {}}), "kind 'buffer_mutation'"),
    "an unknown field": (put((*_GRAPH, "more"), {}), "a field 'more'"),
    "another version": (put(("schema_version", "major"), 9), "another version of torch"),
    "a compiled library": (added("data/aotinductor/model/model.so"), "a part 'data/aotinductor/model/model.so'"),
    "pickled weights of old": (added("data/weights/model.pt"), "a part 'data/weights/model.pt'"),
    "another model": (added("models/other.json", b"{}"), "a part 'models/other.json'"),
    "a name that goes up": (added("../model.json", b"{}"), "a part '../model.json'"),
    "an absolute name": (added("/tmp/model.json", b"{}"), "a part '/tmp/model.json'"),
    "an archive inside": (added("data/archive.zip", archive_of([])), "a part 'data/archive.zip'"),
    "parts in two folders": (two_folders, "parts in two folders"),
    "parts with one name": (doubled, "two parts 'data/"),
    "encrypted parts": (in_directory(8, b"\x01"), "encrypted parts"),
    "a compression bomb": (bomb, "compressed parts"),
    "an archive that ends early": (in_directory(20, b"\xff\xff\xff\x7f" * 2), "parts that are larger than the file"),
    "a graph of more than 16 MB": (put(("torch_version",), "x" * 2**24), "a part models/model.json of more than 16 MB"),
    "deep nesting": (nested, "or damaged: maximum recursion depth"),
}  # fmt: skip
