"""Inputs that are raw tables: text, categories and missing values, which an encoder makes numbers of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput
from dasp.explainer.encoding import Encoder, Numbered
from dasp.explainer.inputs import Inputs
from dasp.explainer.result import Attributed
from dasp.explainer.rows import Rows
from dasp.explainer.shap_format import explanation

__all__ = ["MISSING", "RawTables"]

MISSING = "missing"


class RawTables(Inputs):
    """The same for a model behind an encoder; see `dasp.explainer.encoding`. The players are the raw columns, or groups
    of them; `model` is what takes the tensors that are made here."""

    def __init__(
        self,
        encoder: Encoder,
        model: Callable[..., Any],
        device: torch.device | str | None,
        *,
        background: Any,
        baselines: Any,
        feature_mask: Any,
        feature_names: Any,
    ) -> None:
        self.encoder = encoder
        self.numbered = Numbered() if encoder.owners is None else None
        if (background is None) == (not isinstance(baselines, str) or baselines != MISSING):
            raise BadInput(
                "with an encoder, say what an absent column is: either background=rows of the table, or "
                f"baselines={MISSING!r} if the encoder fills in missing values"
            )
        super().__init__(
            model, device, encoder.columns, background=background, baselines=None, feature_mask=None,
            feature_names=feature_names,
        )  # fmt: skip
        if background is None:
            self.off = {None: self._missing()}
        self.groups = self._groups(feature_mask)  # of the raw columns
        if encoder.owners is not None:
            self.masks = {None: self.groups[torch.tensor(encoder.owners)]}
        elif feature_mask is not None:
            self.masks = {None: self.groups}
        self.model = model if self.numbered is None else self.numbered.model(encoder, model, self.dtype)

    def _missing(self) -> Tensor:
        row = self.encoder.missing()
        numbers = self.encoder.encoded(row, "a row of missing values")
        if not np.isfinite(numbers).all():
            where = int(np.flatnonzero(~np.isfinite(numbers[0]))[0])
            owner = (
                "a column" if self.encoder.owners is None else repr(self.encoder.columns[self.encoder.owners[where]])
            )
            raise BadInput(
                f"a missing value of {owner} stays missing behind the encoder: put a SimpleImputer in it, or give a "
                "background"
            )
        return self._tensor(row, "a row of missing values", typed=False)

    def _groups(self, feature_mask: Any) -> Tensor:
        columns = len(self.encoder.columns)
        groups = torch.arange(columns) if feature_mask is None else torch.as_tensor(feature_mask).flatten()
        if groups.shape != (columns,):
            raise BadInput(f"feature_mask has {groups.numel()} numbers, and the encoder takes {columns} raw columns")
        return groups

    def _tensor(self, table: Any, what: str, *, typed: bool = True) -> Tensor:
        encoded = self.encoder.encoded(table, what)  # which says what cannot be encoded
        if self.numbered is not None:
            return self.numbered.of(table, typed=typed).to(self.device)
        whole = self.integers and bool((encoded == np.round(encoded)).all())
        return torch.from_numpy(encoded).to(self.device, torch.int64 if whole else self.dtype)

    def rows(self, given: Any, what: str) -> dict[Any, Rows]:
        """The rows of a raw table."""
        table = self.encoder.table(given.cpu().numpy() if isinstance(given, Tensor) else given, what)
        return {None: Rows(table.to_numpy(dtype=object), self._tensor(table, what), self.encoder.columns)}

    def note_zeros(self, tensors: tuple[Tensor, ...]) -> None:
        """Say nothing: what an absent column is was given."""

    def answered(self, result: Attributed) -> Attributed:
        """The result with a value for each raw column, in place of those for the numbers that are made of them."""
        if self.encoder.owners is None:
            return result
        groups = self.groups.numpy()
        made = groups[np.array(self.encoder.owners)]
        firsts = [np.flatnonzero(made == group)[:1] for group in groups]

        def by_column(part: Tensor | None) -> Any:
            if part is None:
                return None
            parts = [part[..., int(at[0])] if len(at) else torch.zeros_like(part[..., 0]) for at in firsts]
            return torch.stack(parts, -1)

        return replace(result, values=by_column(result.values), std=by_column(result.std))

    def explanations(self, result: Attributed, parts: dict[Any, Rows], output_names: Sequence[str] | None) -> Any:
        """The result as a `shap.Explanation` of the raw table."""
        (rows,) = parts.values()
        mask = None if len(self.groups.unique()) == len(self.groups) else self.groups
        names = self.names.get(None) or self.encoder.columns
        return explanation(result, rows.data, mask, names, output_names)
