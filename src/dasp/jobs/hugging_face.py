"""Folders of Hugging Face's models and tokenizers, as `save_pretrained` writes them: nothing is ever downloaded, and
without trust, no code in them is run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from dasp.errors import BadInput, line_of
from dasp.jobs.model_files import untrusted

__all__ = ["read_classifier", "read_tokenizer"]


def read_classifier(path: Path, trust: bool) -> nn.Module:
    """A model for the classification of texts."""
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
    """The model in memory of its own. A file that is mapped could change, and where in it a tensor begins changes the
    last bit of what is computed."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    return model


def read_tokenizer(path: Path, trust: bool) -> Any:
    """A tokenizer."""
    transformers = _transformers()
    with _reading(path, "a tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=trust)


@contextmanager
def _reading(path: Path, what: str) -> Iterator[None]:
    """Say in one line what is wrong, and nothing else."""
    said = logging.root.manager.disable
    logging.disable(logging.ERROR)
    bars = _transformers().utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    except Exception as error:
        if "trust_remote_code" in str(error):
            raise untrusted(path, f"{what} with code of its own", "take another one") from error
        raise BadInput(f"{path} cannot be read as {what}: {line_of(error)}") from error
    finally:
        logging.disable(said)
        if shown:
            bars.enable_progress_bar()


def _transformers() -> Any:
    try:
        import transformers  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise ImportError("transformers is needed for texts: pip install 'torch-dasp[text]'") from error
    return transformers
