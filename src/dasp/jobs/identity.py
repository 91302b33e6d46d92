"""The identity of a job, by which two runs are compared: options, and checksums of model and data.

Everything that can change a bit of the result is part of it: the size of the chunks, the number of threads and the
version of torch as well. How the work is spread (engine, workers) is not.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.errors import BadInput
from dasp.jobs.options import OPTIONS, Options, name_of
from dasp.jobs.parts import Job
from dasp.jobs.reading.images import image_files

__all__ = ["PARAMETERS", "check_free", "checksum", "describe", "fingerprint"]

PARAMETERS, _OUTPUTS = "the model's parameters", "the model's outputs"


def describe(options: Options, model: nn.Module, outputs: Tensor, files: list[Path], skipped: list[int]) -> Job:
    """Identify a job: two runs with the same identity write the same bytes.

    Args:
        options: as the user gave them, with the chunk size and the threads that were chosen.
        model: the model; its code may be anywhere, so some of its outputs count as well.
        outputs: its outputs for the first rows.
        files: the files of the data.
        skipped: numbers of the rows that are left out.
    """
    job: Job = {"dasp": dasp.__version__, "torch": torch.__version__}
    job |= {name_of(name): getattr(options, name) for name, option in OPTIONS.items() if option.identity}
    job |= {name_of(name): _content(path) for name, path in options.files().items()}
    job["--baseline"] = job["--baseline"] or "zero"
    job["MODEL"], job["DATA"] = _model_checksum(options.model, model), checksum(files, options.data)
    job[PARAMETERS], job[_OUTPUTS] = fingerprint(model), _digest({"": outputs})
    job["skipped rows"] = skipped
    return json.loads(json.dumps(job))


def check_free(begun: Job | None, finished: Job | None, now: Job, output: Path, parts: Path) -> None:
    """Refuse to mix with, or to replace, the parts or the output of another job."""
    if begun is not None:
        if not begun:
            raise BadInput(f"{parts}: its job.json is damaged; --overwrite starts over")
        _check_same(begun, now, parts)
    if finished is not None:
        if not finished:
            raise BadInput(f"{output}: exists, but was not written by dasp explain; --overwrite replaces it")
        _check_same(finished, now, output)


def _check_same(found: Job, now: Job, where: Path) -> None:
    changed = [name for name in {**found, **now} if found.get(name) != now.get(name)]
    if changed:
        name = changed[0]
        both = found.get(name), now.get(name)
        how = f"was {_said(both[0])}, and is {_said(both[1])} now"
        if name in (PARAMETERS, _OUTPUTS):
            how = "have changed"
        elif any(map(_is_checksum, both)):
            how = "has changed"
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


def _content(path: Path) -> str:
    """SHA-256 of a file, or of the images in a folder."""
    return checksum(image_files(path) if path.is_dir() else [path], path)


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
    """SHA-256 of the model's file or its factory's source, and of the sources of the classes that it is made of."""
    path = Path(source) if Path(source).is_file() else _source(source.partition(":")[0])
    classes = map(_source, sorted({type(module).__module__ for module in model.modules()}))
    own = [file for file in classes if file and not {"site-packages", "dist-packages"} & set(file.parts)]
    files = list(dict.fromkeys([path, *own] if path else own))
    return checksum(files) if files else source


def _source(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64
