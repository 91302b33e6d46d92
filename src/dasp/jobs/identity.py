"""What a job computes, said so that two runs can be compared: options, and checksums of model and data.

Everything that can change a bit of the result is part of the job: the size of the chunks, the number of threads and the
version of torch as well. How the work is spread (engine, workers) is not.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.errors import BadInput, line_of
from dasp.jobs.parts import Job

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
    baseline: str | None = None
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
        for name in ("workers", "ray_address"):
            if self.engine != "ray" and getattr(self, name) is not None:
                raise BadInput(f"{_option(name)} is for --engine ray")
        if self.background and self.baseline not in (None, "mean"):
            raise BadInput("--baseline and --background both say what an absent feature is: give one of them")
        if self.output.suffix.lower() not in (".parquet", ".pq"):
            raise BadInput(f"--output is {self.output}; a name that ends in .parquet is needed")
        if not self.output.parent.is_dir():
            raise BadInput(f"--output is {self.output}, but there is no folder {self.output.parent}")
        if self.device is not None:
            _check_device(self.device)


# These change nothing in the rows that are explained.
_SPREAD = ("output", "engine", "workers", "ray_address", "overwrite", "trust", "on_bad_row")
_PARAMETERS, _OUTPUTS = "the model's parameters", "the model's outputs"
_FILES = ("weights", "background", "groups")


def describe(
    options: Options,
    model: nn.Module,
    outputs: Tensor,
    files: list[Path],
    skipped: list[int],
    chunk: int,
    threads: int,
) -> Job:
    """The job of some options; `outputs` are the model's for some rows, as its code may be anywhere; `files` are those
    of the data, `skipped` its rows that are left out."""
    job: Job = {"dasp": dasp.__version__, "torch": torch.__version__}
    for field in fields(Options):
        value = getattr(options, field.name)
        if field.name in _SPREAD:
            continue
        if value is not None and field.name in _FILES:
            value = checksum([value])
        job[_option(field.name)] = value
    job["MODEL"] = _model_checksum(options.model, model)
    job[_PARAMETERS], job[_OUTPUTS] = fingerprint(model), _digest({"": outputs})
    job["DATA"] = checksum(files, options.data)
    job["--baseline"] = options.baseline or "zero"
    if Path(job["--baseline"]).is_file():
        job["--baseline"] = checksum([Path(job["--baseline"])])
    job["--chunk"], job["--threads"], job["skipped rows"] = chunk, threads, skipped
    return json.loads(json.dumps(job))


def check_free(begun: Job | None, finished: Job | None, now: Job, output: Path, parts: Path) -> None:
    """Refuse to replace what was begun or finished as something else."""
    if begun is not None:
        if not begun:
            raise BadInput(f"{parts}: its job.json is damaged; --overwrite begins anew")
        _check_same(begun, now, parts)
    if finished is not None:
        if not finished:
            raise BadInput(f"{output}: exists, and is no result of dasp explain; --overwrite replaces it")
        _check_same(finished, now, output)


def _check_same(found: Job, now: Job, where: Path) -> None:
    changed = [name for name in {**found, **now} if found.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        both = found.get(name), now.get(name)
        how = f"was {_said(both[0])}, and is {_said(both[1])} now"
        if name in (_PARAMETERS, _OUTPUTS):
            how = "are others now"
        elif any(map(_is_checksum, both)):
            how = "is another one now"
        more = f" ({', '.join(changed[1:])} changed as well)" if changed[1:] else ""
        raise BadInput(
            f"{where}: {name} {how}{more}; repeat the command as it was, name another --output, "
            "or give --overwrite to replace it"
        )


def checksum(files: list[Path], root: Path | None = None) -> str:
    """SHA-256 of one file, of several, or of the names and contents of those in a folder `root`."""
    digests, folder = [], root if root and root.is_dir() else None
    for file in files:
        try:
            with file.open("rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}") from error
        digests.append((file.relative_to(folder).as_posix() if folder else "", digest))
    if len(digests) == 1 and not folder:
        return digests[0][1]
    return hashlib.sha256(json.dumps(digests).encode()).hexdigest()


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers with their names.

    >>> fingerprint(nn.Linear(2, 1)) == fingerprint(nn.Linear(2, 1))  # initialised at random
    False
    """
    return _digest({name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)})


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _model_checksum(source: str, model: nn.Module) -> str:
    """Of the file or of the factory's source, and of that of the classes that the model is made of."""
    path = Path(source) if Path(source).is_file() else _source(source.partition(":")[0])
    classes = map(_source, sorted({type(module).__module__ for module in model.modules()}))
    own = [file for file in classes if file and not {"site-packages", "dist-packages"} & set(file.parts)]
    files = list(dict.fromkeys([path, *own] if path else own))
    return checksum(files) if files else source


def _source(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


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
        raise BadInput(f"--device {device} cannot be used: {line_of(error)}") from error
