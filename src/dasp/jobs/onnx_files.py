"""ONNX models, evaluated by onnxruntime on the processor.

A file can name others that hold its tensors. Which ones is read here, from the protocol buffers themselves: without
trust they must be in the model's folder, whatever the version of onnxruntime would allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput, line_of
from dasp.jobs.evaluated import Evaluated

__all__ = ["read_onnx"]

_DTYPES = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64",
           "tensor(int32)": "int32", "tensor(int64)": "int64"}  # fmt: skip
_FLATBUFFERS = b"ORTM"  # of onnxruntime's own format, at byte 4

# By the numbers of fields, the messages in a message that can lead to a tensor, whose field 13 has (key, value) pairs.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"}, "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"}, "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"}, "sparse": {1: "tensor", 2: "tensor"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "tensor": {13: "pair"},
}  # fmt: skip
_DEEPEST = 100


class OnnxSession:
    """A model in onnxruntime as a function of tensors. A model of a fixed number of rows is given as many at a time."""

    def __init__(self, path: Path, content: bytes, threads: int) -> None:
        try:
            import onnxruntime  # noqa: PLC0415
        except ImportError as error:
            raise BadInput(f"{path}: onnxruntime is needed to read it: pip install 'torch-dasp[onnx]'") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # what it would print is in the error as well
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        self.path = path
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise BadInput(f"{path} is not an ONNX model that onnxruntime can run: {line_of(error)}") from error
        self.input, self.output = self._only("input", list(_DTYPES)), self._only("output", list(_DTYPES)[:3])
        self.dtype: torch.dtype = getattr(torch, _DTYPES[self.input.type])

    def _only(self, side: str, kinds: list[str]) -> Any:
        """The only input or output, which must be a tensor of numbers."""
        found = self.session.get_inputs() if side == "input" else self.session.get_outputs()
        if len(found) != 1:
            names = ", ".join(repr(one.name) for one in found[:5])
            raise BadInput(f"{self.path} has {len(found)} {side}s ({names}); a model with one {side} can be explained")
        if found[0].type not in kinds:
            raise BadInput(
                f"{self.path}: its {side} {found[0].name!r} is a {found[0].type}; {', '.join(kinds)} are known"
            )
        return found[0]

    def __call__(self, x: Tensor) -> Tensor:
        """The output for rows."""
        shape = list(self.input.shape or [])
        sizes = shape[1:]
        fits = len(sizes) == x.dim() - 1 and all(
            not isinstance(size, int) or size == n for size, n in zip(sizes, x.shape[1:], strict=True)
        )
        if shape and not fits:
            raise BadInput(
                f"{self.path}: its input {self.input.name!r} takes rows of shape ({_listed(sizes)}), not of shape "
                f"({_listed(x.shape[1:])})"
            )
        rows = np.ascontiguousarray(x.detach().cpu().to(self.dtype).numpy())
        at_once = shape[0] if shape and isinstance(shape[0], int) else max(1, len(rows))
        parts = [self._run(rows[start : start + at_once], at_once) for start in range(0, max(1, len(rows)), at_once)]
        return torch.from_numpy(np.concatenate(parts)).to(x.device)

    def _run(self, rows: Any, at_once: int) -> Any:
        """The outputs for at most so many rows; where there are fewer, the last one is repeated."""
        missing = at_once - len(rows) if isinstance((self.input.shape or [None])[0], int) else 0
        full = np.concatenate([rows, np.repeat(rows[-1:], missing, 0)]) if missing else rows
        (output,) = self.session.run([self.output.name], {self.input.name: full})
        return output[: len(rows)] if missing else output


def read_onnx(path: Path, trust: bool) -> Evaluated:
    """The model of a file; what is in other files must be in its folder, unless it is trusted."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {line_of(error)}") from error
    if content[4:8] == _FLATBUFFERS:
        raise BadInput(f"{path} is a file of onnxruntime's own format: save the model as ONNX")
    try:
        named = list(dict.fromkeys(_locations(memoryview(content), "model")))
    except (ValueError, IndexError) as error:
        raise BadInput(f"{path} is not an ONNX model, or damaged: {line_of(error)}") from error
    files = [path.parent / name for name in named]
    for name, file in zip(named, files, strict=True):
        if not trust and path.parent.resolve() not in file.resolve().parents:
            raise BadInput(
                f"{path} keeps tensors in {line_of(name)!r}, outside of its folder: give --trust if you know where it "
                "comes from, or save it as one file"
            )
        if not file.is_file():
            raise BadInput(f"{path} keeps tensors in {line_of(name)!r}, which is not there")
    return Evaluated(lambda threads: OnnxSession(path, content, threads), files)


def _locations(content: memoryview, kind: str, depth: int = 0) -> Iterator[str]:
    """The files that a message names."""
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    inner = _MESSAGES.get(kind, {})
    pair: dict[int, bytes] = {}
    for field, value in _fields(content):
        if field in inner and value is not None:
            yield from _locations(value, inner[field], depth + 1)
        elif kind == "pair" and value is not None:
            pair[field] = bytes(value)
    if kind == "pair" and pair.get(1) == b"location":
        yield pair.get(2, b"").decode()


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview | None]]:
    """The fields of a message by their numbers, with the content of those that have a length."""
    place = 0
    while place < len(content):
        key, place = _number(content, place)
        field, kind = key >> 3, key & 7
        value = None
        if kind == 2:
            size, place = _number(content, place)
            value = content[place : place + size]
            place += size
        elif kind == 0:
            _, place = _number(content, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            raise ValueError("it has fields of an unknown type")
        if place > len(content):
            raise ValueError("it ends early")
        yield field, value


def _number(content: memoryview, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        byte = content[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
    raise ValueError("a number has no end")


def _listed(sizes: Any) -> str:
    return ", ".join("?" if size is None else str(size) for size in sizes) + "," * (len(sizes) == 1)
