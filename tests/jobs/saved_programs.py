"""Programs of torch.export.save as bytes, with changes that an attacker could make, and what they set off."""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

Parts = list[tuple[str, bytes]]
MODULE = "__hello__"  # of Python itself, and does nothing
BATCH = ({0: torch.export.Dim.AUTO},)


def saved(model: nn.Module, example: Tensor) -> bytes:
    """A model in evaluation mode as a program for any number of rows."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about an LSTM's flat weights
        program = torch.export.export(model.eval(), (example,), dynamic_shapes=BATCH)
    torch.export.save(program, buffer)
    return buffer.getvalue()


def parts_of(content: bytes) -> Parts:
    """The names, below the archive's folder, and contents of an archive's parts."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name.partition("/")[2], archive.read(name)) for name in archive.namelist()]


def archive_of(parts: Parts, *, compression: int = zipfile.ZIP_STORED, folder: str = "archive/") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, part in parts:
            archive.NameToInfo.clear()  # it would warn of a name that is there twice
            archive.writestr(folder + name, part)
    return buffer.getvalue()


def with_json(content: bytes, change: Callable[[Any], Any], part: str = "models/model.json") -> bytes:
    """The archive with the JSON of one part changed, in place or by what `change` returns."""
    parts = []
    for name, old in parts_of(content):
        new = old
        if name == part:
            tree = json.loads(old)
            changed = change(tree)
            new = json.dumps(tree if changed is None else changed).encode()
        parts.append((name, new))
    return archive_of(parts)


_events: list[tuple[str, str]] | None = None
_WATCHED = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "pickle.find_class",
    "ctypes.dlopen",
    "socket",
)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is None:
        return
    written = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if written or event.startswith(_WATCHED):
        _events.append((event, str(arguments)[:200]))


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[str, str]]]:
    """Whatever the interpreter does in between that reading a file of numbers should not: it starts a process, writes
    a file, loads a library, unpickles a class, or imports a module that nobody needs."""
    global _events  # noqa: PLW0603 (a hook cannot be taken away again)
    if _audit not in _hooks:
        sys.addaudithook(_audit)
        _hooks.append(_audit)
    sys.modules.pop(MODULE, None)
    _events = found = []
    try:
        yield found
    finally:
        _events = None
        if MODULE in sys.modules:
            found.append(("import", MODULE))


_hooks: list[Any] = []
_CODE = f"__import__('{MODULE}')"
_VALUES = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**400, 1e308, "", "x", _CODE, f"x']; {_CODE}; a['", f'a"), {_CODE}, ("a',
    "9**9**9**9", "NaN", [], {}, [[]], {"as_int": 2**40}, {"as_string": _CODE}, {"as_operator": "torch.hub.load"},
    {"as_expr": {"expr_str": _CODE, "hint": None}}, {"as_custom_obj": {"name": "x", "class_fqn": f"{MODULE}.x"}},
    {"as_graph": {"name": _CODE, "graph": {}}}, json.dumps({"__enum__": True, "fqn": f"{MODULE}:x", "name": "x"}),
    "torch.ops.aten.from_file.default", "torch.ops.aten.set_.source_Tensor", "torch.ops.aten.mul.Tensor",
    "torch.ops.aten.exp.default", "torch.load", "torch.hub.load", "math.factorial", "_operator.pow", f"#{MODULE}:x",
)  # fmt: skip


def mutated(content: bytes, seed: int) -> bytes:
    """A program's file with one to three changes: of its JSON, of its parts or of single bytes; the same for a seed.

    It tries to make who reads it import `MODULE`.
    """
    choose = random.Random(seed)
    for _ in range(choose.randint(1, 3)):
        kind = choose.random()
        try:
            if kind < 0.75:
                name = choose.choice([name for name, _ in parts_of(content) if name.endswith(".json")])
                content = with_json(content, lambda tree: _changed_tree(tree, choose), name)
            elif kind < 0.9:
                content = archive_of(_changed_parts(parts_of(content), choose))
            else:
                content = _changed_bytes(content, choose)
        except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, NotImplementedError, OSError, IndexError):
            return content  # it is no archive any more
    return content


def _changed_tree(tree: Any, choose: random.Random) -> Any:
    places = list(_places(tree))
    where, key = choose.choice(places)
    kind = choose.random()
    if kind < 0.5:
        where[key] = choose.choice(_VALUES)
    elif kind < 0.7:
        other, its_key = choose.choice(places)
        where[key] = json.loads(json.dumps(other[its_key]))
    elif kind < 0.8:
        del where[key]
    elif kind < 0.9 and isinstance(where, list):
        where.insert(key, where[key])
    elif isinstance(where, dict):
        where[choose.choice((_CODE, f"{key}'", key.upper(), "use_pickle"))] = where[key]
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(tree.items() if isinstance(tree, dict) else enumerate(tree)):
        yield tree, key
        if isinstance(value, (dict, list)):
            yield from _places(value)


def _changed_parts(parts: Parts, choose: random.Random) -> Parts:
    name, part = choose.choice(parts)
    pickled = f"c{MODULE}\nx\n.".encode()
    folder = name.rpartition("/")[0]
    files = (f"{folder}/{file}" for file in ("opaque_obj_0", "OPAQUE_OBJ_0", "custom_obj_0", "model.pt"))
    other = choose.choice((name, name.upper(), f"../{name}", f"/{name}", "data/aotinductor/model/model.so", *files))
    added = other, choose.choice((pickled, part, b"", part[: len(part) // 2]))
    place = choose.randrange(len(parts) + 1)
    rest = parts if choose.random() < 0.5 else [kept for kept in parts if kept[0] != name]
    return [*rest[:place], added, *rest[place:]]


def _changed_bytes(content: bytes, choose: random.Random) -> bytes:
    place = choose.randrange(len(content))
    if choose.random() < 0.3:
        return content[:place]
    return content[:place] + bytes([choose.randrange(256)]) + content[place + 1 :]
