"""What a model is named by: a file, of a kind that its ending says, or a factory. What can be known without torch."""

from __future__ import annotations

import re
from pathlib import Path

from dasp.errors import BadInput

__all__ = ["ONNX", "PICKLES", "check_model", "is_factory", "untrusted"]

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
ONNX = ".onnx"
PICKLES = {
    ".h5": "a Keras file of the old format",
    ".joblib": "a pickle", ".pkl": "a pickle", ".pickle": "a pickle",
    ".ts": "a script of torch.jit",
}  # fmt: skip
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
    if not is_factory(source):
        if not path.is_file():
            raise BadInput(f"{path}: there is no such file (a factory is written package.module:build)")
        suffix = path.suffix.lower()
        if suffix not in KINDS:
            raise BadInput(f"{path}: a model is a {', '.join(KINDS)} file, or a factory package.module:build")
        if suffix in PICKLES and not trust:
            raise untrusted(path, PICKLES[suffix])
    if weights is not None and not Path(weights).is_file():
        raise BadInput(f"{weights}: there is no such file")


def untrusted(path: Path, what: str) -> BadInput:
    """The error for a file that is not read without --trust."""
    return BadInput(
        f"{path} is {what}, which can run any code when it is read: give --trust if you know where it "
        "comes from, or save the model with torch.export.save"
    )
