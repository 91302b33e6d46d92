"""Programs saved by `torch.export.save`, read without running anything that they hold.

`torch.export.load` unpickles parts of the file, imports modules that it names, evaluates expressions and compiles names
and guards as Python code. None of it happens here. The archive, its JSON and its tensors are read by this package, and
the graph is built anew: of operations from a list (`operations`), plain numbers and plain tensors, with names of its
own. What this package does not understand is refused, whether or not it would be dangerous, so nothing of the file but
numbers reaches torch.

    archive     parts of a file, each bounded by the file's own size
    fields      values of JSON that are what they should be
    sizes       expressions, which are not evaluated
    tensors     weights, buffers and constants
    operations  the operations that a program may have
    graph       the graph
"""

from __future__ import annotations

from pathlib import Path

from torch import fx

from dasp.errors import BadInput, line_of
from dasp.jobs.programs.archive import Archive, NotUnderstood
from dasp.jobs.programs.fields import fields, listed
from dasp.jobs.programs.graph import built
from dasp.jobs.programs.sizes import check_arithmetic
from dasp.jobs.programs.tensors import Tensors

__all__ = ["read_program"]

_FORMAT = 8  # the major version of torch's schema of programs


def read_program(path: Path) -> fx.GraphModule:
    """The module of a saved program; a program that is not understood as a whole is refused.

    >>> read_program(Path("absent.pt2"))
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: absent.pt2 is not a program of torch.export.save, or damaged: No such file or directory
    """
    try:
        with Archive(path) as archive:
            return _module(archive)
    except NotUnderstood as error:
        raise BadInput(
            f"{path} has {error}, and only plain programs are read without --trust, as others can run any code: give "
            "it only if you trust the source of the file"
        ) from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except Exception as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else line_of(error)
        raise BadInput(f"{path} is not a program of torch.export.save, or damaged: {reason}") from error


def _module(archive: Archive) -> fx.GraphModule:
    program = archive.json("models/model.json")
    graph_module, version = fields(
        program, "graph_module", "schema_version",
        optional=("guards_code", "opset_version", "range_constraints", "verifiers", "torch_version"),
    )  # fmt: skip
    if version["major"] != _FORMAT:
        raise NotUnderstood("the format of another version of torch")
    for guard in listed(program.get("guards_code", [])):
        check_arithmetic(guard)
    parts = fields(
        graph_module, "graph", "signature", "module_call_graph", optional=("metadata", "treespec_namedtuple_fields")
    )
    return built(parts, weights=Tensors(archive, "weights"), constants=Tensors(archive, "constants"))
