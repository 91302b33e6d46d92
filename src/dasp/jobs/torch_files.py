"""Files of `torch.save`: tensors, or modules that were pickled as a whole."""

from __future__ import annotations

import warnings
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch

from dasp.errors import BadInput
from dasp.jobs.programs.archive import NotUnderstood, check_stored

__all__ = ["is_script", "read_torch"]

_BEFORE_ARCHIVES = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how files of torch before 1.6 begin


def read_torch(path: Path, *, trust: bool) -> Any:
    """The content of a file; without trust, anything but tensors and collections of them raises UnpicklingError."""
    with path.open("rb") as file:
        start = file.read(len(_BEFORE_ARCHIVES))
    if start.startswith(b"PK"):
        _check_archive(path, trust)
    elif start.startswith(b"\x80") and start != _BEFORE_ARCHIVES:
        raise BadInput(f"{path} is a plain pickle, not a file of torch.save: call it {path.with_suffix('.pkl').name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles' protocols and TorchScript
        return torch.load(path, weights_only=not trust, map_location="cpu")


def is_script(path: Path) -> bool:
    """Whether a file is an archive of torch.jit.save."""
    if not is_zipfile(path):
        return False
    with ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _check_archive(path: Path, trust: bool) -> None:
    if trust:
        return
    if is_script(path):
        raise UnpicklingError("unsupported without trust: a TorchScript archive")
    with ZipFile(path) as archive:
        parts = archive.infolist()
    try:
        check_stored(parts, path.stat().st_size)
    except NotUnderstood as error:
        raise BadInput(f"{path} has {error}: save it with torch.save") from error
