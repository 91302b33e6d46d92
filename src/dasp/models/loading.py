"""Models from files and factories, as `torch.nn.Module`s that are ready to be explained.

    load_model("package.module:build", weights="model.safetensors")   a function that builds it, and a state dict
    load_model("model.keras")                                         a Keras 3 model
    load_model("model.onnx")                                          a model that onnxruntime evaluates
    load_model("folder")                                              a classifier of texts, by Hugging Face
    load_model("model.pt2", trust=True)                               a program saved by torch.export.save
    load_model("classifier.joblib", trust=True)                       a scikit-learn MLP, or a pipeline

A file that can run code when it is read (a pickle, a saved program, a script) is refused unless it is trusted. A
factory is the user's own code, named by the user, and runs. From folders of Hugging Face nothing is ever downloaded,
and without trust, no code in them is run.
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
from typing import Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import torch
from torch import Tensor, nn

from dasp.errors import BadInput, line_of
from dasp.models.calling import check_dynamic_batch
from dasp.models.model_files import check_model, is_factory, untrusted
from dasp.models.raw_pipeline import raw_pipeline
from dasp.models.wrappers import BlackBox, TorchScript, converted, onnx_model

__all__ = ["load_model", "read_model", "read_tokenizer"]

_SAFE_KERAS = (3, 11, 3)  # before it, files could run code in its safe mode
_BEFORE_ARCHIVES = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how files of torch before 1.6 begin
_ENCRYPTED = 1  # a flag of a part of an archive


def load_model(source: Any, *, weights: str | Path | None = None, trust: bool = False) -> nn.Module:
    """Read or build a model, as a module in evaluation mode.

    Args:
        source: a model (a module, an `ExportedProgram`, a scikit-learn MLP, a Keras model), the path of a file or
            folder, or "package.module:build", a function or class that is called without arguments. The working
            directory is searched, too, as it is for the classes of a pickle.
        weights: a state dict for a module or factory: `.safetensors`, or what `torch.save` wrote.
        trust: read files that can run code.

    >>> load_model("torch.nn:Identity")
    Identity()
    """
    if isinstance(source, (str, Path)):
        check_model(source, weights, trust=trust)
    return read_model(source, weights=weights, trust=trust)


def read_model(source: Any, *, weights: str | Path | None = None, trust: bool = False) -> nn.Module:
    """Do what `load_model` does for a name that `check_model` has seen already."""
    named = isinstance(source, (str, Path))
    model = _read(source, trust) if named else source
    if weights is not None:
        program = named and (Path(source).suffix.lower() == ".pt2" or Path(source).is_dir())
        if program or isinstance(model, BlackBox) or not isinstance(model, nn.Module):
            kind = "saved program" if program or isinstance(model, BlackBox) else type(model).__name__
            raise BadInput(f"{weights}: weights are for modules and factories; a {kind} has its own")
        _load_weights(model, Path(weights), str(source) if named else type(model).__name__)
    if isinstance(model, nn.Module):
        _check_numbers(model, str(source) if named else type(model).__name__)
        model.eval()
    module = converted(raw_pipeline(model) if named else model)
    if not isinstance(module, nn.Module):
        raise BadInput(f"{source} is a function: a model is needed here")
    return module


def _check_numbers(model: nn.Module, name: str) -> None:
    """Refuse a model whose parameters have shapes but no numbers."""
    empty = [own for own, tensor in (*model.named_parameters(), *model.named_buffers()) if tensor.is_meta]
    if empty:
        raise BadInput(
            f"{name}: {empty[0]} is on the device 'meta', which keeps no numbers: give --weights, or build the model "
            "on a real device"
        )


def _read(source: str | Path, trust: bool) -> Any:
    if is_factory(source):
        return _built(str(source))
    if Path(source).is_dir():
        return _classifier(Path(source), trust)
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
    """Return the module that a factory builds."""
    name, function = source.split(":")
    try:
        with _searched_here():
            target: Any = importlib.import_module(name)
            for part in function.split("."):
                target = getattr(target, part)
            model = target()
    except Exception as error:
        why = line_of(error)
        if "marshal data" in why:  # Python writes what fits, where the disk is full
            why += ": Python's compiled code of it is damaged; remove the folder __pycache__ beside it"
        raise BadInput(f"{source} cannot be built: {why}") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"{source} builds an object of type {type(model).__name__}, not a torch.nn.Module")
    return model


def _program(path: Path, trust: bool) -> Any:
    """Return what torch.export.save wrote. Reading it can run code."""
    if not trust:
        raise untrusted(path, "a program of torch.export")
    with _logging_off(logging.WARNING):  # torch logs a traceback before it raises
        try:
            program = torch.export.load(path)
        except Exception as error:
            raise BadInput(f"{path} is not a program of torch.export.save, or damaged: {line_of(error)}") from error
    try:
        check_dynamic_batch(program)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from error
    return program


def _torch_file(path: Path, trust: bool) -> Any:
    """Return a script, or a module that was pickled as a whole; anything else in a file of `torch.save` is no model."""
    try:
        with path.open("rb") as stream:
            if _is_script(stream):
                return _script(path, stream, trust)
            with _searched_here() if trust else nullcontext():
                content = _read_torch(path, stream, trust=trust)
    except BadInput:
        raise
    except Exception as error:
        if not trust and isinstance(error, pickle.UnpicklingError) and "nsupported" in str(error):
            raise untrusted(path, "a pickled module") from error
        raise BadInput(f"{path} cannot be read: {line_of(error)}") from error
    if isinstance(content, dict):
        raise BadInput(f"{path} is a state dict: give it as weights, and a factory package.module:build as the model")
    return content


def _script(path: Path, stream: BinaryIO, trust: bool) -> BlackBox:
    """Return what torch.jit.save wrote. Its operations can read and write files, so it is code like any other."""
    if not trust:
        raise untrusted(path, "a script of torch.jit")
    stream.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that torch.jit is deprecated
        script = TorchScript(torch.jit.load(stream, map_location="cpu").eval())
    return BlackBox(lambda _: script)


def _read_torch(path: Path, stream: BinaryIO, *, trust: bool) -> Any:
    """Return what torch.save wrote. Without trust, anything but tensors and collections of them raises
    UnpicklingError."""
    stream.seek(0)
    start = stream.read(len(_BEFORE_ARCHIVES))
    if start.startswith(b"PK"):
        _check_archive(path, stream, trust)
    elif start.startswith(b"\x80") and start != _BEFORE_ARCHIVES:
        raise BadInput(f"{path} is a plain pickle, not a file of torch.save: call it {path.with_suffix('.pkl').name}")
    stream.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pickles' protocols and TorchScript
        return torch.load(stream, weights_only=not trust, map_location="cpu")


def _is_script(stream: BinaryIO) -> bool:
    """Return True for an archive of torch.jit.save."""
    if not is_zipfile(stream):
        return False
    with ZipFile(stream) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _check_archive(path: Path, stream: BinaryIO, trust: bool) -> None:
    """Refuse an archive whose parts are not stored as torch stores them: unpacked, they could be of any size."""
    if trust:
        return
    if _is_script(stream):
        raise pickle.UnpicklingError("unsupported without trust: a TorchScript archive")
    with ZipFile(stream) as archive:
        parts = archive.infolist()
    if any(part.compress_type != ZIP_STORED for part in parts):
        wrong = "compressed parts (torch writes none, and they can be of any size)"
    elif any(part.flag_bits & _ENCRYPTED for part in parts):
        wrong = "encrypted parts"
    elif sum(part.file_size for part in parts) > stream.seek(0, os.SEEK_END):
        wrong = "parts that are larger than the file"
    else:
        return
    raise BadInput(f"{path} has {wrong}: save it with torch.save")


def _pickled(path: Path, trust: bool) -> Any:
    if not trust:
        raise untrusted(path, "a pickle")
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
    ".onnx": lambda path, _: onnx_model(path),
    ".pt": _torch_file, ".pth": _torch_file, ".ts": _torch_file,
    ".joblib": _pickled, ".pkl": _pickled, ".pickle": _pickled,
}  # fmt: skip


def _load_weights(model: nn.Module, path: Path, name: str) -> None:
    try:
        if path.suffix.lower() == ".safetensors":
            state: Any = _safetensors(path)
        else:
            with path.open("rb") as stream:
                state = _read_torch(path, stream, trust=False)
    except BadInput:
        raise
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} holds more than tensors: save model.state_dict() alone") from error
    except Exception as error:
        raise BadInput(f"{path} cannot be read: {line_of(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise BadInput(f"{path} is not a state dict (tensors by name): save model.state_dict()")
    try:
        model.load_state_dict(state, assign=any(tensor.is_meta for tensor in model.parameters()))
    except Exception as error:
        raise BadInput(f"{path} does not fit {name}: {line_of(error)}") from error


def _safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors.torch import load_file  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("safetensors is needed to read it: pip install 'torch-dasp[cli]'") from error
    return load_file(path)


def _classifier(path: Path, trust: bool) -> nn.Module:
    """Return a model for the classification of texts."""
    transformers = _transformers()
    with _reading(path, "a model for the classification of texts"):
        model, about = transformers.AutoModelForSequenceClassification.from_pretrained(
            path, local_files_only=True, trust_remote_code=trust, use_safetensors=None if trust else True,
            output_loading_info=True,
        )  # fmt: skip
    if about["missing_keys"]:  # which would be random
        raise BadInput(f"{path}: has no weights for {min(about['missing_keys'])}, and so is no classifier of texts")
    return _copied(model)


def _copied(model: nn.Module) -> nn.Module:
    """Return the model in memory of its own. A file that is mapped could change, and the place of a tensor in it
    changes the last bit of what is computed."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def read_tokenizer(path: Path, trust: bool) -> Any:
    """Return the tokenizer in a folder that save_pretrained wrote."""
    transformers = _transformers()
    with _reading(path, "a tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trust)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Say in one line what is wrong, and nothing else."""
    bars = _transformers().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with _logging_off(logging.ERROR):
            yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise untrusted(path, f"{what} with code of its own", "take another one") from error
        raise BadInput(f"{path} cannot be read as {what}: {line_of(error)}") from error
    finally:
        if shown:
            bars.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("transformers is needed for texts: pip install 'torch-dasp[text]'") from error
    return transformers


@contextmanager
def _logging_off(level: int) -> Iterator[None]:
    """Log nothing of a level, or of lower ones."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)
