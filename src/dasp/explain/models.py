"""Models people have, from files and factories, as `torch.nn.Module`s ready to be explained.

    load_model("model.pt2")                                           a program saved by torch.export
    load_model("package.module:build", weights="model.safetensors")   a function that builds it, and a state dict

A file that can run code when it is read (a pickle) is refused unless it is trusted.
"""

from __future__ import annotations

import importlib
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dasp.conversion import converted
from dasp.errors import BadInput

__all__ = ["load_model"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def load_model(source: Any, *, weights: str | Path | None = None, trust: bool = False) -> nn.Module:
    """The model as a module in evaluation mode.

    Args:
        source: a model (whatever `Explainer` takes), the path of a file, or "package.module:build".
        weights: a state dict for the model: `.safetensors`, or `.pt` and `.pth` written by `torch.save`.
        trust: read files that can run code.

    >>> load_model("torch.nn:Identity")
    Identity()
    """
    model = _read(source, trust) if isinstance(source, (str, Path)) else source
    if isinstance(model, nn.Module):
        if weights is not None:
            _load_weights(model, Path(weights))
        model.eval()
    elif weights is not None:
        raise BadInput(f"{weights}: weights are for modules and factories, not for a {type(model).__name__}")
    module = converted(model)
    if not isinstance(module, nn.Module):
        raise BadInput(f"{source} is a function: a model is needed")
    return module


def _read(source: str | Path, trust: bool) -> Any:
    if _FACTORY.fullmatch(str(source)) and not Path(source).exists():
        return _built(str(source))
    path = Path(source)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file (a factory is written package.module:build)")
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise BadInput(f"{path}: a model is a {', '.join(_READERS)} file, or a factory package.module:build")
    return _READERS[suffix](path, trust)


def _built(source: str) -> nn.Module:
    """What a factory builds; its module may be in the working directory."""
    name, function = source.split(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        target: Any = importlib.import_module(name)
        for part in function.split("."):
            target = getattr(target, part)
        model = target()
    except Exception as error:
        raise BadInput(f"{source}: {type(error).__name__}: {_line(error)}") from error
    finally:
        sys.path.remove(here)
    if not isinstance(model, nn.Module):
        raise BadInput(f"{source} returned a {type(model).__name__}, not a torch.nn.Module")
    return model


def _exported(path: Path, _: bool) -> Any:
    try:
        return torch.export.load(path)
    except Exception as error:
        raise BadInput(f"{path} is no program saved by torch.export.save: {_line(error)}") from error


def _pickled(path: Path, trust: bool) -> Any:
    if not trust:
        raise BadInput(f"{path}: a pickled model can run any code when it is read; trust it, or save a state dict")
    try:
        model = torch.load(path, weights_only=False, map_location="cpu")
    except Exception as error:
        raise BadInput(f"{path} cannot be read: {_line(error)}") from error
    return model


_READERS: dict[str, Callable[[Path, bool], Any]] = {".pt2": _exported, ".pt": _pickled, ".pth": _pickled}


def _load_weights(model: nn.Module, path: Path) -> None:
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors.torch import load_file  # noqa: PLC0415

            state = load_file(path)
        else:
            state = torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} has more than tensors in it: {_line(error)}") from error
    except Exception as error:
        raise BadInput(f"{path} cannot be read: {_line(error)}") from error
    try:
        model.load_state_dict(state)
    except Exception as error:
        raise BadInput(f"{path} does not fit the model: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
