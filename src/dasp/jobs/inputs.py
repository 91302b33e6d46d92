"""What a job reads, by the names that users know: its model and data must stay as they are while it runs.

The model's files are its own, or those with the source of its factory and of the classes that it is made of.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

from torch import nn

from dasp.errors import BadInput
from dasp.jobs.evaluated import Evaluated
from dasp.jobs.options import Options, name_of
from dasp.jobs.output import beside, parts_of
from dasp.jobs.reading.files import files_in, is_folder

__all__ = ["check_apart", "checksum", "contents"]


def contents(options: Options, model: nn.Module) -> dict[str, str]:
    """Checksums of all that is read: {"DATA": …, "MODEL": …, "--weights": …}."""
    sums = {name: checksum(_files(name, path), path) for name, path in _named(options).items()}
    files = _model_files(options.model, model)
    return {**sums, "MODEL": checksum(files) if files else options.model}


def check_apart(options: Options, model: nn.Module) -> None:
    """Refuse an output, or a folder of parts, that something is read from: it would be replaced."""
    parts = parts_of(options.output).resolve()
    read = {name: _files(name, path) for name, path in _named(options).items()}
    read["MODEL"] = _model_files(options.model, model)
    for name, folder in {"MODEL": Path(options.model), name_of("tokenizer"): options.tokenizer}.items():
        if folder and folder.is_dir() and folder.samefile(options.output.parent):
            raise BadInput(f"--output {options.output} is in a folder that is read ({name}): name another one")
    for name, files in read.items():
        for file in files:
            for output in filter(None, (options.output, beside(options.output))):
                if output.exists() and output.samefile(file):
                    raise BadInput(f"--output {output} is a file that is read ({name}): name another one")
            if parts in file.resolve().parents:
                raise BadInput(f"{file} ({name}) is in the folder where the job keeps its parts: name another --output")


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


def _named(options: Options) -> dict[str, Path]:
    return {"DATA": options.data, **{name_of(name): path for name, path in options.files().items()}}


def _files(name: str, path: Path) -> list[Path]:
    """A file, the images in a folder, or what a tokenizer consists of."""
    try:
        if not is_folder(path):
            return [path]
        if name == name_of("tokenizer"):
            return files_in(path)
        from dasp.jobs.reading.images import image_files  # noqa: PLC0415 (Pillow is for images only)

        return image_files(path)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from error


def _model_files(source: str, model: nn.Module) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = files_in(path)
    else:
        files = [file for file in [path if path.is_file() else _source(source.partition(":")[0])] if file]
    classes = map(_source, sorted({type(module).__module__ for module in model.modules()}))
    own = [file for file in classes if file and not {"site-packages", "dist-packages"} & set(file.parts)]
    kept = model.files if isinstance(model, Evaluated) else []
    return list(dict.fromkeys([*files, *kept, *own]))


def _source(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None
