"""The names that a model is given by: a file whose ending says its kind, a folder, or a factory package.module:build.

What is wrong with them is found without torch, which takes seconds to import.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dasp.errors import BadInput, line_of

__all__ = ["CONFIG", "check_model", "files_in", "is_factory", "untrusted"]

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
