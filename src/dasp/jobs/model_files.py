"""What a model is named by: a file, of a kind that its ending says, a folder, or a factory. What can be known without
torch."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from dasp.errors import BadInput, line_of
from dasp.jobs.reading.files import files_in

__all__ = ["CONFIG", "ONNX", "PICKLES", "check_model", "check_text_model", "is_factory", "untrusted"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_FILE_OF_A_FACTORY = re.compile(r"(?P<module>.+)\.py:(?P<build>[A-Za-z_][\w.]*)")
ONNX = ".onnx"
PICKLES = {
    ".h5": "a Keras file of the old format",
    ".joblib": "a pickle", ".pkl": "a pickle", ".pickle": "a pickle",
    ".ts": "a script of torch.jit",
}  # fmt: skip
CONFIG = "config.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
_ATTENTION = (None, "eager", "sdpa")  # all others are libraries, or code that is downloaded
KINDS = (".pt2", ".keras", ONNX, ".pt", ".pth", *PICKLES)


def is_factory(source: str | Path) -> bool:
    """Whether a model is named by a function that builds it.

    >>> is_factory("package.module:build"), is_factory("model.pt2")
    (True, False)
    """
    return bool(_FACTORY.fullmatch(str(source))) and not Path(source).exists()


def check_model(source: str | Path, weights: str | Path | None, *, trust: bool) -> None:
    """Refuse a model that is not there, or that is a kind of file that is not read."""
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
        suffix = path.suffix.lower()
        if suffix not in KINDS:
            raise BadInput(f"{path}: a model is a {', '.join(KINDS)} file, or a factory package.module:build")
        if suffix in PICKLES and not trust:
            raise untrusted(path, PICKLES[suffix])
    if weights is not None and not Path(weights).is_file():
        raise BadInput(f"{weights}: there is no such file")


def check_text_model(source: str | Path, tokenizer: Path | None, *, texts: bool) -> None:
    """Refuse a model that takes no texts where there are some, or takes nothing else; and what is no tokenizer."""
    folder = Path(source).is_dir()
    if folder and not texts:
        raise BadInput(f"{source} is a folder of a Hugging Face model, which takes texts: name their column by --text")
    if not texts:
        return
    if not folder and not is_factory(source):
        raise BadInput(
            f"{source}: a model of texts is a folder of a Hugging Face model, or a factory of a module that takes "
            "input_ids and attention_mask"
        )
    if tokenizer is None and not folder:
        raise BadInput(f"{source} has no tokenizer of its own: name the folder of one by --tokenizer")
    where = Path(source) if tokenizer is None else tokenizer
    if not where.is_dir():
        raise BadInput(f"--tokenizer: {where}: there is no such folder")
    if not any(file.name in _TOKENIZERS or file.suffix == ".model" for file in files_in(where)):
        raise BadInput(f"{where}: has no tokenizer, such as a tokenizer.json; name the folder of one by --tokenizer")


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
    """Whether a model's description asks for libraries, or for code from elsewhere."""
    if not isinstance(config, dict):
        return False
    return any(
        name == "quantization_config"
        or (name.strip("_").startswith(("attn_implementation", "experts_implementation")) and value not in _ATTENTION)
        or _calls_for_code(value)
        for name, value in config.items()
    )


def untrusted(path: Path, what: str, instead: str = "save the model with torch.export.save") -> BadInput:
    """The error for a file that is not read without --trust."""
    return BadInput(
        f"{path} is {what}, which can run any code when it is read: give --trust if you know where it "
        f"comes from, or {instead}"
    )
