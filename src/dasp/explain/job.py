"""What a job computes, said so that two runs can be compared: options, and checksums of model and data.

Everything that can change a bit of the result is part of the job: the size of the chunks, the number of threads and the
version of torch as well. How the work is spread (engine, workers) is not.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

import dasp
from dasp.errors import BadInput
from dasp.explain.parts import Job

__all__ = ["Options", "check_free", "checksum", "describe", "fingerprint"]


@dataclass(frozen=True)
class Options:
    """`dasp explain` as the user typed it."""

    model: str
    data: Path
    output: Path
    weights: Path | None = None
    trust: bool = False
    target: str | None = None
    baseline: str = "zero"
    background: Path | None = None
    groups: Path | None = None
    columns: str | None = None
    drop: str | None = None
    id: str | None = None
    on_bad_row: str = "fail"
    method: str = "auto"
    tolerance: float | None = None
    max_evaluations: int | None = None
    error_bars: bool = False
    seed: int = 0
    device: str | None = None
    batch_size: int | None = None
    chunk: int | None = None
    threads: int | None = None
    engine: str = "local"
    workers: int | None = None
    ray_address: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        for name in ("max_evaluations", "batch_size", "chunk", "threads", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{_option(name)} is {value}; at least 1 is needed")
        if self.tolerance is not None and not 0 < self.tolerance < float("inf"):
            raise BadInput(f"--tolerance is {self.tolerance}; a number above 0 is needed")
        for name, choices in {"engine": ("local", "ray"), "on_bad_row": ("fail", "skip")}.items():
            if getattr(self, name) not in choices:
                raise BadInput(f"{_option(name)} is {getattr(self, name)!r}; {' or '.join(choices)} is needed")
        if self.background and self.baseline not in ("zero", "mean"):
            raise BadInput("--baseline and --background both say what an absent feature is: give one of them")
        if self.output.suffix.lower() not in (".parquet", ".pq"):
            raise BadInput(f"--output is {self.output}; a name that ends in .parquet is needed")
        if not self.output.parent.is_dir():
            raise BadInput(f"--output is {self.output}, but there is no folder {self.output.parent}")
        if self.device is not None:
            _check_device(self.device)


_SPREAD = ("output", "engine", "workers", "ray_address", "overwrite", "trust")  # change nothing in the result
_PARAMETERS = "the model's parameters"
_FILES = ("weights", "background", "groups")


def describe(
    options: Options, model: nn.Module, files: list[Path], skipped: list[int], chunk: int, threads: int
) -> Job:
    """The job of some options; `files` are those of the data, `skipped` its rows that are left out."""
    job: Job = {"dasp": dasp.__version__, "torch": torch.__version__}
    for field in fields(Options):
        value = getattr(options, field.name)
        if field.name in _SPREAD:
            continue
        if value is not None and field.name in _FILES:
            value = checksum([value])
        job[_option(field.name)] = value
    job["MODEL"] = _model_checksum(options.model)
    job[_PARAMETERS] = fingerprint(model)
    job["DATA"] = checksum(files, options.data)
    if Path(options.baseline).is_file():
        job["--baseline"] = checksum([Path(options.baseline)])
    job["--chunk"], job["--threads"], job["skipped rows"] = chunk, threads, skipped
    return json.loads(json.dumps(job))


def check_free(begun: Job | None, finished: Job | None, now: Job, output: Path, parts: Path) -> None:
    """Refuse to replace what was begun or finished as something else."""
    if begun is not None:
        _check_same(begun, now, parts)
    elif finished is not None:
        if not finished:
            raise BadInput(f"{output}: exists, and is no result of dasp explain; --overwrite replaces it")
        _check_same(finished, now, output)


def _check_same(found: Job, now: Job, where: Path) -> None:
    changed = [name for name in {**found, **now} if found.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        both = found.get(name), now.get(name)
        how = f"was {_said(both[0])}, and is {_said(both[1])} now"
        if name == _PARAMETERS:
            how = "are others now"
        elif any(map(_is_checksum, both)):
            how = "is another one now"
        more = f" ({', '.join(changed[1:])} changed as well)" if changed[1:] else ""
        raise BadInput(
            f"{where}: {name} {how}{more}; repeat the command as it was, name another --output, "
            "or give --overwrite to begin anew"
        )


def checksum(files: list[Path], root: Path | None = None) -> str:
    """SHA-256 of one file, or of the names (within `root`) and contents of several."""
    digests = []
    for file in files:
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}") from error
        digests.append((file.relative_to(root).as_posix() if root and root.is_dir() else "", digest))
    return digests[0][1] if len(digests) == 1 else hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers with their names.

    >>> fingerprint(nn.Linear(2, 1)) == fingerprint(nn.Linear(2, 1))  # initialised at random
    False
    """
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _model_checksum(source: str) -> str:
    """Of the file, or of the source of the module that a factory is in."""
    if Path(source).is_file():
        return checksum([Path(source)])
    try:
        found = importlib.util.find_spec(source.partition(":")[0])
    except (ImportError, ValueError):
        found = None
    file = Path(found.origin) if found and found.origin else None
    return checksum([file]) if file and file.is_file() else source


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}" if name not in ("model", "data") else name.upper()


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise BadInput(f"--device {device} cannot be used: {str(error).splitlines()[0]}") from error
