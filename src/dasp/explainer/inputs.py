"""The inputs of a model as people have them: one table or array, a tuple of them, or a dictionary by keyword."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from dasp.errors import BadInput
from dasp.explainer.misfit import what_zero_is
from dasp.explainer.result import Attributed
from dasp.explainer.rows import Rows, input_dtype, one_by_one, takes_integers, together
from dasp.explainer.shap_format import explanation, is_image
from dasp.games.arguments import Arguments
from dasp.players import named

__all__ = ["Inputs"]

log = logging.getLogger("dasp")

_LARGE_BACKGROUND = 100  # rows; what SHAP takes at most by default


class Inputs:
    """What an explainer knows of a model's inputs, each by its key (see `one_by_one`): which numbers they are made of,
    what absent features are, who the players are, and names."""

    def __init__(
        self,
        model: Any,
        device: torch.device | str | None,
        columns: Sequence[str] | None,
        *,
        background: Any,
        baselines: Any,
        feature_mask: Any,
        feature_names: Any,
        players: Any = None,
        channels: int | None = None,
    ) -> None:
        self.device, self.dtype, self.integers = device, input_dtype(model), takes_integers(model)
        self.channels = channels  # of a normalisation, which makes whole numbers real ones; 1 if it is for any number
        self.players = named(players) if isinstance(players, str) else players
        if not (players is None or callable(self.players)):
            raise BadInput(f"players are {players!r}: a text like 'superpixel:60', or a function from rows to masks")
        if players is not None and feature_mask is not None:
            raise BadInput("players and feature_mask are both given: who the players are comes from one of them")
        self.columns = {None: columns}  # of tables, in the model's order
        names = {} if feature_names is None else one_by_one(feature_names)
        self.names = {key: [str(name) for name in own] for key, own in names.items()}
        masks = {} if feature_mask is None else one_by_one(feature_mask)
        self.masks = {key: torch.as_tensor(mask) for key, mask in masks.items()}
        if background is not None and baselines is not None:
            raise BadInput("background and baselines are both given: what an absent feature is comes from one of them")
        self.averaged = background is not None  # over what absent features are
        self.off = self._baselines(baselines) if background is None else self._background(background)
        self._noted = False

    def _background(self, background: Any) -> dict[Any, Tensor]:
        parts = self.rows(background, "background")
        for key, rows in parts.items():
            if not len(rows.tensor):
                raise BadInput("the background has no rows")
            if not bool(torch.isfinite(rows.tensor).all()):
                bad = int((~torch.isfinite(rows.tensor)).flatten(1).any(1).nonzero()[0])
                raise BadInput(f"the background has NaN or infinite entries, first in row {bad}")
            self.columns[key] = rows.names or self.columns.get(key)
        if (number := max(len(rows.tensor) for rows in parts.values())) > _LARGE_BACKGROUND:
            log.warning("the background has %d rows, which all are averaged over: fewer do", number)
        return {key: rows.tensor for key, rows in parts.items()}

    def _baselines(self, baselines: Any) -> dict[Any, Any]:
        found = one_by_one(baselines)
        for key, given in found.items():
            if given is not None and not isinstance(given, (int, float)):
                found[key] = self._baseline(given, key)
        return found

    def _baseline(self, given: Any, key: Any) -> Tensor:
        if hasattr(given, "to_frame"):  # a row of a table
            given = given.to_frame().T
        if hasattr(given, "columns"):
            return Rows.of(given, self.dtype, self.device, names=self.columns.get(key), what="baselines").tensor
        tensor = given if isinstance(given, Tensor) else torch.as_tensor(given)
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else tensor.dtype)

    def rows(self, given: Any, what: str) -> dict[Any, Rows]:
        """The rows of each input."""
        found = {}
        for key, part in one_by_one(given).items():
            name = what if key is None else f"{what}[{key!r}]"
            names = self.columns.get(key) or self._ordered(part, key)
            rows = Rows.of(part, self.dtype, self.device, integers=self.integers, names=names, what=name)
            found[key] = rows if self.channels is None else self._to_normalize(rows, key)
        return found

    def _ordered(self, part: Any, key: Any) -> Sequence[str] | None:
        """The names that were given, if they are those of a table in another order."""
        own = [str(name) for name in getattr(part, "columns", ())]
        return self.names[key] if own and sorted(own) == sorted(self.names.get(key, ())) else None

    def _to_normalize(self, rows: Rows, key: Any) -> Rows:
        if key is not None:
            raise BadInput("mean and std are for one input: let the model normalise several")
        shape = tuple(rows.tensor.shape)
        if self.channels not in (1, shape[1]):
            raise BadInput(
                f"mean and std have {self.channels} numbers, and rows of shape {shape[1:]} have {shape[1]} channels or "
                "columns, along their first dimension"
            )
        return replace(rows, tensor=rows.tensor.to(self.dtype))

    def _masks(self, parts: dict[Any, Tensor]) -> dict[Any, Tensor]:
        """The players of rows: those that were given, or as they are named."""
        if self.players is None:
            return self.masks
        if None not in parts:
            raise BadInput("players are named for one input only: for several, give a feature_mask for each")
        return {None: self.players(parts[None])}

    def arguments(self, given: dict[Any, Rows], target: Any, extra: Any) -> Arguments:
        """The arguments of an `attribute` call for rows, checked."""
        parts = {key: rows.tensor for key, rows in given.items()}
        absent = self._absent(parts)
        masks = self._masks(parts)
        for key, part in parts.items():
            if isinstance(target, list) and len(target) != len(part):
                raise BadInput(f"there are {len(target)} targets for {len(part)} rows")
            off, mask = absent.get(key), masks.get(key)
            if self.averaged and off is not None and off.shape[1:] != part.shape[1:]:
                shapes = tuple(off.shape[1:]), tuple(part.shape[1:])
                raise BadInput("rows of the background have the shape {}, x {}".format(*shapes))
            if mask is not None and mask.dim() == part.dim() and len(mask) > 1 and not is_image(part.shape):
                raise BadInput(
                    f"feature_mask has {len(mask)} rows: columns of an explanation are the same for all rows"
                )
        extra = tree_map_only(Tensor, lambda given: given.to(self.device), extra)
        players = together(masks) if masks else None
        return Arguments(together(parts), together(absent), target, extra, players, self.averaged)

    def _absent(self, parts: dict[Any, Tensor]) -> dict[Any, Any]:
        """What absent features are; a tuple of numbers is a number for each of several inputs, or else one row."""
        only = self.off.get(None)
        if None in parts or not isinstance(only, Tensor) or only.shape != (len(parts),):
            return self.off
        return dict(zip(parts, only.tolist(), strict=True))

    def note_zeros(self, tensors: tuple[Tensor, ...]) -> None:
        """Say once in the log what absent features are, where nobody said and zeros are far from the data."""
        if self._noted or self.off != {None: None}:
            return
        if note := what_zero_is(tensors, list(self.columns.values())):
            log.warning(note)
            self._noted = True

    def answered(self, result: Attributed) -> Attributed:
        """The result in the shape of the inputs as they were given."""
        return result

    def explanations(self, result: Attributed, parts: dict[Any, Rows], output_names: Sequence[str] | None) -> Any:
        """The result as a `shap.Explanation` for each input."""
        masks = self._masks({key: rows.tensor for key, rows in parts.items()})
        _check_apart(masks)
        values, std = one_by_one(result.values), one_by_one(result.std)
        found = {}
        for key, rows in parts.items():
            own = replace(result, values=values[key], std=std.get(key))
            names = self.names.get(key) or rows.names or self.columns.get(key)
            found[key] = explanation(own, rows.data, masks.get(key), names, output_names)
        return together(found)


def _check_apart(masks: dict[Any, Tensor]) -> None:
    """Refuse players with entries in several inputs, as each of these has an explanation of its own."""
    seen: set[int] = set()
    for mask in masks.values():
        own = set(mask.unique().tolist())
        if both := seen & own:
            raise BadInput(
                f"player {min(both)} of feature_mask is in several inputs, and would be in each explanation: give "
                "every input numbers of its own, or take `attribute`"
            )
        seen |= own
