"""The identity of a job, by which two runs are compared: its record, with checksums of all that it reads.

What it reads must stay as it is while it runs. The model's files are its own, or those with the source of its factory
and of the classes that it is made of.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.errors import BadInput
from dasp.jobs.options import Options, name_of
from dasp.jobs.output import beside, parts_of
from dasp.jobs.reading.source import is_folder
from dasp.jobs.record import AbsentInputs, JobRecord, SkippedRows, Software, UnreadableRecord
from dasp.models.model_files import files_in
from dasp.models.wrappers import BlackBox

__all__ = ["FilesRead", "check_free", "check_not_read", "continues", "fingerprint", "record_of"]

_LISTED = 10
_SETTLED_SECONDS = 2.0  # a file that was written less long before it is stamped could change again unnoticed


def record_of(
    options: Options,
    parameters: str,
    outputs: Tensor,
    files: dict[str, str],
    skipped: Sequence[int],
    absent: AbsentInputs,
    method: dict[str, Any],
    reason: str,
) -> JobRecord:
    """Return the record of a job.

    Args:
        options: as the user gave them, with the chunk size and the threads that were chosen.
        parameters: the fingerprint of the model.
        outputs: its outputs for the first rows.
        files: checksums of what is read.
        skipped: numbers of the rows that are left out.
        absent: the values of absent inputs.
        method: options of an `Explainer` that were chosen.
        reason: why they were.
    """
    return JobRecord(
        options=options.of_record(),
        files=files,
        software=Software(
            dasp.__version__, str(torch.__version__), None if options.text is None else version("transformers")
        ),
        parameters=parameters,
        outputs=_digest({"": outputs}),
        skipped=SkippedRows(len(skipped), tuple(skipped[:_LISTED])),
        absent=absent,
        method=method,
        reason=reason,
    )


def check_free(
    begun: JobRecord | UnreadableRecord | None,
    finished: JobRecord | UnreadableRecord | None,
    now: JobRecord,
    output: Path,
    parts: Path,
) -> None:
    """Refuse to mix with, or to replace, the parts or the output of another job."""
    if isinstance(begun, UnreadableRecord):
        raise BadInput(f"{parts}: {begun.reason}; --overwrite starts over")
    if begun is not None and not continues(begun, now):
        if _lacks_data(begun, now):
            raise BadInput(
                f"{parts}: was begun without the inputs, which --report and --with-data write as well; leave these "
                "out to go on, or give --overwrite to start over"
            )
        _check_same(begun, now, parts)
    if isinstance(finished, UnreadableRecord):
        raise BadInput(f"{output}: exists, but {finished.reason}; --overwrite replaces it")
    if finished is not None:
        if _lacks_data(finished, now):
            raise BadInput(
                f"{output}: was written without its inputs, which --report and --with-data write as well; dasp report "
                f"{output} PAGE shows it without them, or --overwrite explains the rows again"
            )
        _check_same(finished, now, output)


def continues(begun: JobRecord | UnreadableRecord | None, now: JobRecord) -> bool:
    """Return True if the parts of a job are parts of this one, too: it is the same, or only more patient with bad
    rows."""
    return begun in (now, now.with_options(on_bad_row="fail"))


def _lacks_data(found: JobRecord, now: JobRecord) -> bool:
    """Return True if a job is the same but for the inputs, which only this one writes; --report asks for them, too."""
    return now.options.get("with_data") is True and found == now.with_options(with_data=False)


def _check_same(found: JobRecord, now: JobRecord, where: Path) -> None:
    if changed := found.differences(now):
        name, *others = changed
        more = f" ({', '.join(others)} changed as well)" if others else ""
        raise BadInput(
            f"{where}: {name} {changed[name]}{more}; repeat the command as it was, name another --output, "
            "or give --overwrite to replace it"
        )


def fingerprint(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers with their names.

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


@dataclass(frozen=True)
class FilesRead:
    """All that a job reads, with checksums: of the data, the model, and the files that options name.

    A file is hashed once. Whether it has changed since is told by the system's stamp of it (size, times, place on the
    disk); where the stamp is another one, or was too fresh to tell, the file is hashed again.
    """

    checksums: dict[str, str]  # by the options that name the files
    stamps: dict[str, list[Any]]

    @classmethod
    def of(cls, options: Options, model: nn.Module) -> FilesRead:
        """Hash all that is read."""
        found = _files_by_option(options, model)
        stamps = {name: _stamps(files) for name, files in found.items()}
        return cls({name: _checksum(name, files, options) for name, files in found.items()}, stamps)

    def changed(self, options: Options, model: nn.Module) -> list[str]:
        """Return the names, as users know them, of what has changed since."""
        found = _files_by_option(options, model)
        return [
            name_of(name)
            for name, files in found.items()
            if (_stamps(files) != self.stamps[name] or None in self.stamps[name])
            and _checksum(name, files, options) != self.checksums[name]
        ]


def check_not_read(options: Options, model: nn.Module) -> None:
    """Refuse an output, or a folder of parts, that something is read from: it would be replaced."""
    parts = parts_of(options.output).resolve()
    for name, folder in {"model": Path(options.model), "tokenizer": options.tokenizer}.items():
        if folder and folder.is_dir() and folder.samefile(options.output.parent):
            raise BadInput(f"--output {options.output} is in a folder that is read ({name_of(name)}): name another one")
    for name, files in _files_by_option(options, model).items():
        for file in files:
            for output in filter(None, (options.output, beside(options.output))):
                if output.exists() and output.samefile(file):
                    raise BadInput(f"--output {output} is a file that is read ({name_of(name)}): name another one")
            if parts in file.resolve().parents:
                raise BadInput(
                    f"{file} ({name_of(name)}) is in the folder where the job keeps its parts: name another --output"
                )


def _files_by_option(options: Options, model: nn.Module) -> dict[str, list[Path]]:
    """Return all files that are read, by the options that name them."""
    named = {"data": options.data, **options.files()}
    return {**{name: _files(name, path) for name, path in named.items()}, "model": _model_files(options.model, model)}


def _files(name: str, path: Path) -> list[Path]:
    """Return a file, the images in a folder, or what a tokenizer consists of."""
    try:
        if not is_folder(path):
            return [path]
        if name == "tokenizer":
            return files_in(path)
        from dasp.jobs.reading.image_folder import image_files  # noqa: PLC0415 (Pillow is for images only)

        return image_files(path)
    except BadInput as error:
        raise BadInput(f"{name_of(name)}: {error}") from error


def _model_files(source: str, model: nn.Module) -> list[Path]:
    path = Path(source)
    if path.is_dir():
        files = files_in(path)
    else:
        files = [file for file in [path if path.is_file() else _source(source.partition(":")[0])] if file]
    classes = map(_source, sorted({type(module).__module__ for module in model.modules()}))
    own = [file for file in classes if file and not {"site-packages", "dist-packages"} & set(file.parts)]
    kept = model.files if isinstance(model, BlackBox) else []
    return list(dict.fromkeys([*files, *kept, *own]))


def _source(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


def _stamps(files: list[Path]) -> list[Any]:
    """Return what tells each file from itself after a change; None where that cannot be told."""
    settled = time.time() - _SETTLED_SECONDS
    stamps: list[Any] = []
    for file in files:
        try:
            found = file.stat()
        except OSError as error:
            raise BadInput(f"{file}: {error.strerror}") from error
        fresh = max(found.st_mtime, found.st_ctime) > settled
        place = str(file), found.st_dev, found.st_ino
        stamps.append(None if fresh else (*place, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return stamps


def _checksum(name: str, files: list[Path], options: Options) -> str:
    """Return the SHA-256 of one file, of several, or of the names and contents of those in a folder. A model without
    files counts by its name."""
    if not files:
        return options.model
    root = {"data": options.data, **options.files()}.get(name)
    folder = root if root and root.is_dir() else None
    digests = []
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
