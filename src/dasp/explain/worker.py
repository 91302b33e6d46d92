"""One worker of a job: it has the model, and makes chunks of explained rows from chunks of rows.

What it makes of a chunk depends on nothing but the chunk, so that it does not matter which worker does it, or when.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from dasp.errors import BadInput
from dasp.explain.data import Chunk
from dasp.explain.job import fingerprint
from dasp.explain.models import load_model
from dasp.explainer import Attributed, Explainer

__all__ = ["PREDICTED", "Task", "Worker", "outputs_of"]

PREDICTED = "predicted"


@dataclass(frozen=True)
class Task:
    """All that a worker has to know; can be sent to another machine that has the same files."""

    model: str
    weights: Path | None
    trust: bool
    parameters: str  # their fingerprint
    target: int | str | None  # an output, the predicted one, or None: the targets of the rows, or the only output
    names: tuple[str, ...] | None  # of the players; None for images and other arrays
    mask: Any  # the player of every entry, or None
    absent: dict[str, Any]  # baselines or background
    threads: int
    explainer: dict[str, Any]  # further options of an `Explainer`


class Worker:
    """A model and its explainer, for chunk after chunk."""

    def __init__(self, task: Task, model: nn.Module | None = None) -> None:
        torch.set_num_threads(task.threads)
        if model is None:
            model = load_model(task.model, weights=task.weights, trust=task.trust)
            if fingerprint(model) != task.parameters:
                raise BadInput(
                    f"{task.model}: has other parameters every time it is made; give --weights, or fix the seed in it"
                )
        self.task, self.model = task, model
        mask = None if task.mask is None else torch.from_numpy(task.mask)
        given: dict[str, Any] = {name: torch.from_numpy(np.asarray(value)) for name, value in task.absent.items()}
        self.explainer = Explainer(model, feature_mask=mask, **given, **task.explainer)

    def explain(self, chunk: Chunk) -> pa.Table:
        """The rows of the output for a chunk of the input."""
        x = torch.from_numpy(chunk.values)
        target = self._target(x, chunk)
        return self._table(chunk, target, self.attribute(x, target))

    def attribute(self, x: Tensor, target: Any) -> Attributed:
        """The rows explained, in the same way every time, by methods that use the global generators as well."""
        seed = self.task.explainer["seed"]
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - Captum's
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the gap of each row is in the output
            return self.explainer.attribute(x, target)

    def _target(self, x: Tensor, chunk: Chunk) -> Any:
        if chunk.targets is not None:
            return torch.from_numpy(chunk.targets)
        if self.task.target == PREDICTED:
            return outputs_of(self.model, x, self.explainer.device).argmax(1).cpu()
        return self.task.target

    def _table(self, chunk: Chunk, target: Any, result: Attributed) -> pa.Table:
        rows = len(chunk.values)
        targets = target if isinstance(target, Tensor) else torch.full((rows,), 0 if target is None else target)
        columns = {
            "id": chunk.ids,
            "target": pa.array(targets.numpy().astype(np.int32)),
            "prediction": _column(result.prediction),
            "base_value": _column(result.base.expand(result.prediction.shape)),
            **self._players("", "values", result.values),
            **({} if result.std is None else self._players("sd:", "sd", result.std)),
            "gap": _column(result.gap),
            "method": pa.array([result.method] * rows),
        }
        shape = "" if self.task.names else str(list(chunk.values.shape[1:] if self.task.mask is None else ()))
        return pa.table(columns, metadata={"shape": shape} if shape else None)

    def _players(self, prefix: str, together: str, values: Tensor) -> dict[str, pa.Array]:
        """A column for each player, or one with lists if they have no names."""
        flat = values.detach().cpu().reshape(len(values), -1).numpy()
        if self.task.mask is not None:
            flat = flat[:, np.unique(self.task.mask.ravel(), return_index=True)[1]]  # an entry of each player
        if self.task.names is None:
            listed = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), flat.shape[1])
            return {together: listed}
        return {prefix + name: pa.array(np.ascontiguousarray(flat[:, i])) for i, name in enumerate(self.task.names)}


def outputs_of(model: nn.Module, x: Tensor, device: Any = None) -> Tensor:
    """The model's outputs for rows, (rows, outputs)."""
    with torch.no_grad():
        result = model(x.to(device))
    if not isinstance(result, Tensor):
        raise BadInput(f"the model must return one tensor to explain, not a {type(result).__name__}")
    if result.dim() == 0 or len(result) != len(x):
        raise BadInput(
            f"the model must return a row for each row; for {len(x)} it gave the shape {tuple(result.shape)}"
        )
    if result.dim() > 2:
        raise BadInput(f"the model returns {tuple(result.shape[1:])} outputs a row; one dimension of them is needed")
    return result.reshape(len(x), -1)


def _column(values: Tensor) -> pa.Array:
    return pa.array(values.detach().cpu().reshape(-1).numpy())
