"""The identity of a job, by which two runs are compared: options, and checksums of model and data.

Everything that can change a bit of the result is part of it: the size of the chunks, the number of threads and the
version of torch as well. How the work is spread (engine, workers) is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import dasp
from dasp.errors import BadInput
from dasp.jobs.options import OPTIONS, Options, name_of
from dasp.jobs.output import Job

__all__ = ["PARAMETERS", "check_free", "continues", "describe", "fingerprint"]

PARAMETERS, _OUTPUTS = "the model's parameters", "the model's outputs"
_LISTED = 10
_BAD_ROW, _WITH_DATA = name_of("on_bad_row"), name_of("with_data")


def describe(
    options: Options, model: nn.Module, outputs: Tensor, contents: dict[str, str], skipped: Sequence[int]
) -> Job:
    """Identify a job: two runs with the same identity write the same bytes.

    Args:
        options: as the user gave them, with the chunk size and the threads that were chosen.
        model: the model; its code may be anywhere, so some of its outputs count as well.
        outputs: its outputs for the first rows.
        contents: checksums of what is read.
        skipped: numbers of the rows that are left out; as the data decides on them, the first few are enough.
    """
    job: Job = {"dasp": dasp.__version__, "torch": torch.__version__}
    job |= {name_of(name): getattr(options, name) for name, option in OPTIONS.items() if option.identity}
    job |= contents
    if options.text is None:
        job["--baseline"] = job["--baseline"] or "zero"
    else:
        job["transformers"] = version("transformers")
    job[PARAMETERS], job[_OUTPUTS] = fingerprint(model), _digest({"": outputs})
    job["skipped rows"] = {"number": len(skipped), "first": list(skipped[:_LISTED])}
    return json.loads(json.dumps(job))


def check_free(begun: Job | None, finished: Job | None, now: Job, output: Path, parts: Path) -> None:
    """Refuse to mix with, or to replace, the parts or the output of another job."""
    if begun is not None:
        if not begun:
            raise BadInput(f"{parts}: its job.json is damaged; --overwrite starts over")
        if not continues(begun, now):
            if _lacks_data(begun, now):
                raise BadInput(
                    f"{parts}: was begun without the inputs, which --report and --with-data write as well; leave these "
                    "out to go on, or give --overwrite to start over"
                )
            _check_same(begun, now, parts)
    if finished is not None:
        if not finished:
            raise BadInput(
                f"{output}: exists, but is damaged or was not written by dasp explain; --overwrite replaces it"
            )
        if _lacks_data(finished, now):
            raise BadInput(
                f"{output}: was written without its inputs, which --report and --with-data write as well; dasp report "
                f"{output} PAGE shows it without them, or --overwrite explains the rows again"
            )
        _check_same(finished, now, output)


def continues(begun: Job | None, now: Job) -> bool:
    """Whether the parts of a job are parts of this one, too: it is the same, or only more patient with bad rows."""
    return begun in (now, {**now, _BAD_ROW: "fail"})


def _lacks_data(found: Job, now: Job) -> bool:
    """Whether a job is the same but for the inputs, which only this one writes; --report asks for them, too."""
    return now.get(_WITH_DATA) is True and found == {**now, _WITH_DATA: False}


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


def _said(value: Any) -> str:
    return "not given" if value is None else str(value)


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64
