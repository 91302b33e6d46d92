"""The names that a model is given by: a file whose ending says its kind, a folder, or a factory package.module:build.

What is wrong with them is found without torch, which takes seconds to import.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from dasp.errors import BadInput, line_of
from dasp.formatting import in_bytes

__all__ = ["CONFIG", "check_model", "data_within", "files_in", "is_factory", "untrusted"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_FILE_OF_A_FACTORY = re.compile(r"(?P<module>.+)\.py:(?P<build>[A-Za-z_][\w.]*)")
_SAFE = (".keras", ".onnx", ".pt", ".pth")  # or found not to be so when they are read
_TRUSTED = {
    ".pt2": "a saved program of torch.export",
    ".h5": "a Keras file of the old format",
    ".joblib": "a pickle", ".pkl": "a pickle", ".pickle": "a pickle",
    ".ts": "a script of torch.jit",
}  # fmt: skip
CONFIG = "config.json"
_SAMPLES = ("/data/sample_inputs/model.pt", "serialized_example_inputs.pt")  # the second before torch 2.9
_CONFIGS = ("/model_weights_config.json", "/model_constants_config.json")
_ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 9: 4, 10: 8, 11: 16, 12: 1, 13: 2}  # by torch's numbers
_MOST_ITEM = 16  # bytes of a number of any other dtype
_DAMAGED = (OSError, BadZipFile, ValueError, KeyError, TypeError, RuntimeError, RecursionError)
_PATTERN, _BLOCK = 16, 2**20  # bytes: of a number at most, or several; that are read at once
_ATTENTION = (None, "eager", "sdpa")  # all others are libraries, or code that is downloaded


def is_factory(source: str | Path) -> bool:
    """Return True if a model is named by a function that builds it.

    >>> is_factory("package.module:build"), is_factory("model.pt2")
    (True, False)
    """
    return bool(_FACTORY.fullmatch(str(source))) and not Path(source).exists()


def check_model(source: str | Path, weights: str | Path | None, *, trust: bool) -> None:
    """Refuse a model that is not there, that is of an unknown kind, or that can run code and is not trusted."""
    path = Path(source)
    if (found := _FILE_OF_A_FACTORY.fullmatch(str(source))) and not path.exists():
        *folders, module = Path(found["module"]).parts
        elsewhere = not all(map(str.isidentifier, folders))
        named = f"{module if elsewhere else '.'.join([*folders, module])}:{found['build']}"
        raise BadInput(
            f"{source}: a factory is named by its module, not by the file: write {named}{', in its folder' * elsewhere}"
        )
    if path.is_dir():
        _check_folder(path, trust=trust)
    elif not is_factory(source):
        if not path.is_file():
            raise BadInput(f"{path}: there is no such file (a factory is written package.module:build)")
        suffix, kinds = path.suffix.lower(), (*_TRUSTED, *_SAFE)
        if suffix not in kinds:
            raise BadInput(f"{path}: a model is a {', '.join(kinds)} file, or a factory package.module:build")
        if suffix in _TRUSTED and not trust:
            raise untrusted(path, _TRUSTED[suffix])
    if weights is not None and not Path(weights).is_file():
        raise BadInput(f"{weights}: there is no such file")


def files_in(folder: Path) -> list[Path]:
    """Return the files that are in a folder itself, in their order."""
    try:
        return sorted(file for file in folder.iterdir() if file.is_file())
    except OSError as error:
        raise BadInput(f"{folder}: {error.strerror}") from error


def untrusted(
    path: Path, what: str, instead: str = "name a factory that builds the model, with --weights model.safetensors"
) -> BadInput:
    """Return the error for a file that is not read without --trust."""
    return BadInput(
        f"{path} is {what}, which can run any code when it is read: give --trust if you know where it "
        f"comes from, or {instead}"
    )


def data_within(path: Path) -> str | None:
    """Return a line about a saved program that has data in it, as `torch.export.save` writes them: the inputs that the
    model was exported with, with all the memory that they are a view of, and the memory around its weights. None for
    any other file. Only names, sizes and bytes are looked at; nothing in the file runs.
    """
    if path.suffix.lower() != ".pt2":
        return None
    inputs = around = 0
    with suppress(*_DAMAGED), ZipFile(path) as archive:  # which is told when it is read
        for name in archive.namelist():
            if name.endswith(_SAMPLES):
                with archive.open(name) as stream:
                    inputs += _varied(stream)
            elif name.endswith(_CONFIGS):
                around += _around(archive, name)
    kinds = [f"{in_bytes(size)} of {what}" for size, what in (
        (inputs, "the inputs that it was exported with"), (around, "memory around its weights and constants"),
    ) if size]  # fmt: skip
    if not kinds:
        return None
    return f"{path}: has {' and '.join(kinds)} in it, for whoever has the file to read: save the model by dasp.save"


def _varied(stream: IO[bytes]) -> int:
    """Return the bytes of tensors in a file of `torch.save`, of those that are more than one number again and again."""
    with ZipFile(stream) as archive:
        tensors = [part for part in archive.infolist() if re.search(r"(^|/)data/\d+$", part.filename)]
        return sum(part.file_size for part in tensors if not _is_constant(archive, part))


def _is_constant(archive: ZipFile, part: Any) -> bool:
    with archive.open(part) as stream:
        first = stream.read(_PATTERN)
        stream.seek(0)
        while block := stream.read(_BLOCK):
            if block != (first * (len(block) // _PATTERN + 1))[: len(block)]:
                return False
    return True


def _around(archive: ZipFile, config: str) -> int:
    """Return the bytes that the files of weights have beyond their tensors."""
    tensors: dict[str, int] = defaultdict(int)
    for one in json.loads(archive.read(config))["config"].values():
        about = one.get("tensor_meta")
        if about is not None and not one.get("use_pickle"):
            size = _ITEM_SIZES.get(about["dtype"], _MOST_ITEM)
            for dimension in about["sizes"]:
                size *= dimension["as_int"]
            tensors[one["path_name"]] += size
    folder = config.rpartition("/")[0]
    more = (archive.getinfo(f"{folder}/{name}").file_size - size for name, size in tensors.items())
    return sum(max(0, size) for size in more)


def _check_folder(path: Path, *, trust: bool) -> None:
    """Refuse a folder without a model, or whose model can run code when it is read."""
    names = {file.name for file in files_in(path)}
    if "adapter_config.json" in names:  # whose model is elsewhere
        raise BadInput(f"{path}: has an adapter: merge it with its model, and save that by save_pretrained")
    if CONFIG not in names:
        raise BadInput(f"{path}: is a folder without config.json, and so no model that save_pretrained wrote")
    if trust:
        return
    if not any(name.endswith(".safetensors") for name in names):
        raise untrusted(path, "a model without a .safetensors file, and so a pickle", "save it by save_pretrained")
    try:
        config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path / CONFIG}: cannot be read: {line_of(error)}") from error
    if _calls_for_code(config):
        raise untrusted(path, "a model that is quantised, or computes by other libraries", "take another one")


def _calls_for_code(config: Any) -> bool:
    """Return True if a model's description asks for libraries, or for code from elsewhere."""
    if not isinstance(config, dict):
        return False
    return any(
        name == "quantization_config"
        or (name.strip("_").startswith(("attn_implementation", "experts_implementation")) and value not in _ATTENTION)
        or _calls_for_code(value)
        for name, value in config.items()
    )
