"""Models from files and factories, as `torch.nn.Module`s that are ready to be explained.

    load_model("model.pt2")                                           a program saved by torch.export.save
    load_model("package.module:build", weights="model.safetensors")   a function that builds it, and a state dict
    load_model("model.keras")                                         a Keras 3 model
    load_model("model.onnx")                                          a model that onnxruntime evaluates
    load_model("classifier.joblib", trust=True)                       a scikit-learn MLP
    load_model("folder")                                              a classifier of texts, by Hugging Face

A file that can run code when it is read (any pickle) is refused unless it is trusted. A factory is the user's own code,
named by the user, and runs.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dasp.errors import BadInput, line_of
from dasp.explainer.conversion import converted
from dasp.jobs.evaluated import Evaluated, Script
from dasp.jobs.hugging_face import read_classifier
from dasp.jobs.model_files import check_model, is_factory, untrusted
from dasp.jobs.onnx_files import read_onnx
from dasp.jobs.programs import read_program
from dasp.jobs.torch_files import is_script, read_torch
from dasp.propagation.tracing import check_dynamic_batch

__all__ = ["load_model"]

_SAFE_KERAS = (3, 11, 3)  # before it, files could run code in its safe mode


def load_model(source: Any, *, weights: str | Path | None = None, trust: bool = False) -> nn.Module:
    """Read or build a model, as a module in evaluation mode.

    Args:
        source: a model (a module, an `ExportedProgram`, a scikit-learn MLP, a Keras model), the path of a file or
            folder, or "package.module:build", a function or class that is called without arguments; the working
            directory is searched, too, as it is for the classes of a pickle.
        weights: a state dict for a module or factory: `.safetensors`, or what `torch.save` wrote.
        trust: read files that can run code.

    >>> load_model("torch.nn:Identity")
    Identity()
    """
    named = isinstance(source, (str, Path))
    if named:
        check_model(source, weights, trust=trust)
    model = _read(source, trust) if named else source
    if weights is not None:
        program = named and (Path(source).suffix.lower() == ".pt2" or Path(source).is_dir())
        if program or isinstance(model, Evaluated) or not isinstance(model, nn.Module):
            kind = "saved program" if program or isinstance(model, Evaluated) else type(model).__name__
            raise BadInput(f"{weights}: weights are for modules and factories; a {kind} has its own")
        _load_weights(model, Path(weights), str(source) if named else type(model).__name__)
    if isinstance(model, nn.Module):
        model.eval()
    module = converted(model)
    if not isinstance(module, nn.Module):
        raise BadInput(f"{source} is a function: a model is needed here")
    return module


def _read(source: str | Path, trust: bool) -> Any:
    if is_factory(source):
        return _built(str(source))
    if Path(source).is_dir():
        return read_classifier(Path(source), trust)
    return _READERS[Path(source).suffix.lower()](Path(source), trust)


@contextmanager
def _searched_here() -> Iterator[None]:
    """Find modules in the working directory, too."""
    here = os.getcwd()  # noqa: PTH109 (as it is in sys.path)
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _built(source: str) -> nn.Module:
    """The module that a factory builds."""
    name, function = source.split(":")
    try:
        with _searched_here():
            target: Any = importlib.import_module(name)
            for part in function.split("."):
                target = getattr(target, part)
            model = target()
    except Exception as error:
        raise BadInput(f"{source} cannot be built: {line_of(error)}") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"{source} builds an object of type {type(model).__name__}, not a torch.nn.Module")
    return model


def _program(path: Path, trust: bool) -> Any:
    if not trust:
        return read_program(path)
    said = logging.root.manager.disable
    logging.disable(logging.WARNING)  # torch logs a traceback before it raises
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise BadInput(f"{path} is not a program of torch.export.save, or damaged: {line_of(error)}") from error
    finally:
        logging.disable(said)
    try:
        check_dynamic_batch(program)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error
    return program


def _torch_file(path: Path, trust: bool) -> Any:
    """A script, or a module that was pickled as a whole; anything else in a file of `torch.save` is not a model."""
    try:
        if is_script(path):
            return _script(path, trust)
        with _searched_here() if trust else nullcontext():
            content = read_torch(path, trust=trust)
    except BadInput:
        raise
    except Exception as error:
        if not trust and isinstance(error, pickle.UnpicklingError) and "nsupported" in str(error):
            raise untrusted(path, "a pickled module") from error
        raise BadInput(f"{path} cannot be read: {line_of(error)}") from error
    if isinstance(content, dict):
        raise BadInput(f"{path} is a state dict: give it as weights, and a factory package.module:build as the model")
    return content


def _script(path: Path, trust: bool) -> Evaluated:
    """What torch.jit.save wrote. Its operations can read and write files, so it is code like any other."""
    if not trust:
        raise untrusted(path, "a script of torch.jit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is deprecated
        script = Script(torch.jit.load(path, map_location="cpu").eval())
    return Evaluated(lambda _: script)


def _pickled(path: Path, trust: bool) -> Any:
    try:
        import joblib  # noqa: PLC0415 (of scikit-learn)

        with _searched_here():
            return joblib.load(path)
    except Exception as error:
        raise BadInput(f"{path} cannot be read: {line_of(error)}") from error


def _keras_file(path: Path, trust: bool) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")  # read once, when keras is imported
    try:
        import keras  # noqa: PLC0415
    except ImportError as error:
        raise BadInput(f"{path}: keras is needed to read it, and torch as its backend: {line_of(error)}") from error
    if not trust and tuple(int(part) for part in re.findall(r"\d+", keras.__version__)[:3]) < _SAFE_KERAS:
        needed = ".".join(map(str, _SAFE_KERAS))
        raise BadInput(f"{path}: Keras {keras.__version__} can run code from a file; {needed} is needed, or --trust")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Keras's own, about numpy
            return keras.saving.load_model(path, compile=False, safe_mode=not trust)
    except Exception as error:
        if "safe_mode" in str(error):
            raise untrusted(path, "a Keras model with a lambda or code of its own") from error
        raise BadInput(f"{path} is not a Keras model, or damaged: {line_of(error)}") from error


_READERS: dict[str, Callable[[Path, bool], Any]] = {
    ".pt2": _program,
    ".keras": _keras_file, ".h5": _keras_file,
    ".onnx": read_onnx,
    ".pt": _torch_file, ".pth": _torch_file, ".ts": _torch_file,
    ".joblib": _pickled, ".pkl": _pickled, ".pickle": _pickled,
}  # fmt: skip


def _load_weights(model: nn.Module, path: Path, name: str) -> None:
    try:
        state = _safetensors(path) if path.suffix.lower() == ".safetensors" else read_torch(path, trust=False)
    except BadInput:
        raise
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} holds more than tensors: save model.state_dict() alone") from error
    except Exception as error:
        raise BadInput(f"{path} cannot be read: {line_of(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadInput(f"{path} is not a state dict (tensors by name): save model.state_dict()")
    try:
        model.load_state_dict(state)
    except Exception as error:
        raise BadInput(f"{path} does not fit {name}: {line_of(error)}") from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("safetensors is needed to read it: pip install 'torch-dasp[cli]'") from error
    return load_file(path)
