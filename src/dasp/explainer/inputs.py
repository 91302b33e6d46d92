"""The inputs of a model as people have them: a table, array or tensor, a tuple of them, or a dictionary by keyword.

`Inputs` knows of each input which numbers it is made of, what its absent features are, who its players are, and its
names. It reads what a call is given as `ModelRows`: tensors of the model's dtype, with the players, which are decided
here and once a call. `RawTables` does the same for tables with text, categories and missing values, which an encoder
makes numbers of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dasp.errors import BadInput
from dasp.explainer.encoders import Encoder, ValueNumbers
from dasp.explainer.explanation import (
    Attributions,
    InputOfModel,
    is_image,
    shap_explanation,
    shap_explanation_of_inputs,
)
from dasp.games.call_options import number_of, shown, tensor_of
from dasp.games.request import Arguments
from dasp.models.calling import innermost
from dasp.models.misfit import check_plain, check_range, lost_column
from dasp.models.wrappers import own_dtype, takes_integers
from dasp.players import named

__all__ = [
    "MISSING", "OWN_TARGET", "Inputs", "ModelRows", "RawTables", "far_from_zero", "names_of", "what_zero_is",
]  # fmt: skip

log = logging.getLogger("dasp")

OWN_TARGET: Any = object()  # stands for the target that an explainer was made with
MISSING = "missing"  # the baselines of columns that an encoder fills in
_LARGEST = 2**63 - 1  # whole number
_LARGE_BACKGROUND = 100  # rows; what SHAP takes at most by default
_FAR = 3  # from zero: further than the mean of some rows of standardised columns


@dataclass(frozen=True)
class ModelRows:
    """Rows of one input: the numbers as they were given and as the model takes them, the names of the columns, and the
    players."""

    data: np.ndarray
    tensor: Tensor
    names: list[str] | None = None
    feature_mask: Tensor | None = None  # the player of each entry; None if every entry is one
    kind: str | None = None  # of the players, such as "block"; None if every entry is one

    @staticmethod
    def of(
        given: Any,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        *,
        integers: bool = False,
        names: Sequence[str] | None = None,
        what: str = "X",
    ) -> ModelRows:
        """Read a tensor, an array, a DataFrame or nested lists. Floating-point numbers become `dtype`, as do integers,
        except in tensors and if the model takes `integers`; without a dtype, numbers stay what they are. The columns of
        a table are put in the order of `names`. Errors call the rows by the name `what`.

        >>> ModelRows.of(np.array([[1, 2]]), torch.float32).tensor
        tensor([[1., 2.]])
        """
        own = None
        if isinstance(given, Tensor):
            check_plain(given, what)
            tensor = given.detach().resolve_neg()
            data, integers = _numpy(tensor), True
        else:
            if hasattr(given, "columns") and hasattr(given, "to_numpy"):
                given, own = _columns(given, names, what)
            data = _array(given, what)
            tensor = torch.from_numpy(data)
        if data.ndim < 2:
            raise BadInput(f"{what} has shape {data.shape}: rows of features are needed, {what}[None] for a single one")
        if integers and not tensor.is_floating_point():
            dtype = tensor.dtype if isinstance(given, Tensor) else torch.int64
        taken = tensor.to(device=device, dtype=dtype or tensor.dtype)
        check_range(tensor, taken, what)
        return ModelRows(data, taken, own)


def _numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor as an array; NumPy knows no bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def _from_array(data: np.ndarray) -> Tensor:
    """Return an array as a tensor: a copy, if it may not be written to, of which torch would warn."""
    return torch.from_numpy(data if data.flags.writeable else data.copy())


def _columns(table: Any, names: Sequence[str] | None, what: str) -> tuple[np.ndarray, list[str]]:
    """Return the numbers of a table and the names of its columns, in the order of `names`."""
    own = [str(name) for name in table.columns]
    if names is not None and own != list(names):
        missing, unknown = [name for name in names if name not in own], [name for name in own if name not in names]
        if missing or unknown or len(own) != len(names):
            lacks = f" lacks {missing}" if missing else ""
            has = f" has {unknown}, which nobody knows" if unknown else ""
            raise BadInput(f"{what}{' and'.join(filter(None, (lacks, has))) or ' has columns twice'}; columns: {names}")
        table, own = table.iloc[:, [own.index(name) for name in names]], list(names)
    for name, kind in zip(own, table.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "fiub":
            raise BadInput(f"column {name!r} of {what} has no numbers, but {kind}: encode it as for the model")
    if all(isinstance(kind, np.dtype) and kind.kind in "iu" for kind in table.dtypes):
        return table.to_numpy(dtype=np.int64), own
    if len(set(table.dtypes)) == 1 and isinstance(table.dtypes.iloc[0], np.dtype):
        return table.to_numpy(), own
    return table.to_numpy(dtype=float, na_value=np.nan), own


def _array(given: Any, what: str) -> np.ndarray:
    try:
        array = np.array(given)
    except ValueError as error:
        raise BadInput(f"{what} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        kind = "text" if array.dtype.kind in "US" else array.dtype
        raise BadInput(f"{what} must be numbers, not {kind}: encode its columns as for the model")
    if array.dtype.kind == "u" and array.size and array.max() > _LARGEST:
        raise BadInput(f"{what} has {array.max()}, and whole numbers are at most 2^63 − 1: give floating-point ones")
    unsigned = array.dtype.kind == "u" and array.dtype.itemsize > 1
    if array.dtype == np.longdouble or not array.dtype.isnative or unsigned:  # which torch does not know
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
    return array


class Inputs:
    """A model's inputs as an explainer knows them, by their keys: keywords, numbers, or None for the only input."""

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
        normalized: int | None = None,
    ) -> None:
        self.device, self.dtype, self.integers = device, own_dtype(model), takes_integers(model)
        self.normalized = normalized  # channels, whose whole numbers become real ones; 1 is for any number of channels
        self.players = {key: _Rule.of(own) for key, own in _rules(players).items()}
        self.parameters = _parameters(model)
        if players is not None and feature_mask is not None:
            raise BadInput("players and feature_mask are both given: who the players are comes from one of them")
        self.columns = {None: columns}  # of tables, in the model's order
        names = {} if feature_names is None else _by_key(feature_names)
        self.names = {key: names_of("feature_names", own) for key, own in names.items()}
        masks = {} if feature_mask is None else _by_key(feature_mask)
        self.masks = {key: _mask(mask, "feature_mask") for key, mask in masks.items()}
        if background is not None and baselines is not None:
            raise BadInput("background and baselines are both given: what an absent feature is comes from one of them")
        self.off_as_given: dict[Any, Any] = {}
        self.averaged = background is not None  # values are averaged over what absent features are
        self.off = self._baselines(baselines) if background is None else self._background(background)
        self.shares: tuple[float, ...] | None = None  # the weights of the background's rows
        self._noted = False

    def _background(self, background: Any) -> dict[Any, Tensor]:
        parts = self._read(background, "background")
        for key, rows in parts.items():
            if not len(rows.tensor):
                raise BadInput("the background has no rows")
            if not bool(torch.isfinite(rows.tensor).all()):
                bad = int((~torch.isfinite(rows.tensor)).flatten(1).any(1).nonzero()[0])
                raise BadInput(f"the background has NaN or infinite entries, first in row {bad}")
            self.columns[key] = rows.names or self.columns.get(key)
        if (number := max(len(rows.tensor) for rows in parts.values())) > _LARGE_BACKGROUND:
            log.warning("the background has %d rows, which all are averaged over: fewer do", number)
        self.off_as_given = {
            key: _from_array(rows.data) if rows.data.dtype.kind in "fiu" else rows.tensor for key, rows in parts.items()
        }
        return {key: rows.tensor for key, rows in parts.items()}

    def _baselines(self, baselines: Any) -> dict[Any, Any]:
        found = {key: number_of(given) for key, given in _by_key(baselines).items()}
        for key, given in found.items():
            if given is not None and not isinstance(given, (int, float)):
                self.off_as_given[key], found[key] = self._baseline(given, key)
            elif given is not None:
                self.off_as_given[key] = given
        return found

    def _baseline(self, given: Any, key: Any) -> tuple[Tensor, Tensor]:
        """Return baselines as they were given, and as the model takes them."""
        if hasattr(given, "to_frame"):  # a row of a table
            given = given.to_frame().T
        if hasattr(given, "columns"):
            rows = ModelRows.of(given, self.dtype, self.device, names=self.columns.get(key), what="baselines")
            return _from_array(rows.data), rows.tensor
        if isinstance(given, Tensor):
            check_plain(given, "baselines")
        tensor = given.detach() if isinstance(given, Tensor) else torch.from_numpy(_array(given, "baselines"))
        taken = tensor.to(self.device, (self.dtype or tensor.dtype) if tensor.is_floating_point() else tensor.dtype)
        if taken.dim():
            check_range(tensor, taken, "baselines")
        return tensor, taken

    def rows(self, given: Any, what: str) -> dict[Any, ModelRows]:
        """Return the rows of each input, with their players. A function of the user's that makes players is called here
        and nowhere else, so that a call has one set of players, also if the function is slow or random."""
        found = self._read(given, what)
        given = {**self.masks, **self.players}
        if unknown := [key for key in given if key not in found]:
            option = "players are" if self.players else "feature_mask is"
            raise BadInput(f"{option} for {_inputs(unknown)}, and {what} has {_inputs(list(found))}")
        if not given:
            return found
        made = {key: rule.mask(found[key].tensor) for key, rule in self.players.items()}
        masks = {key: own for key in found if (own := self.masks.get(key, made.get(key))) is not None}
        masks = masks if len(found) == 1 else _numbered(found, masks, apart=bool(self.players))
        kinds = {key: rule.kind for key, rule in self.players.items()}
        return {
            key: replace(rows, feature_mask=masks[key], kind=kinds.get(key, "group") if key in given else None)
            for key, rows in found.items()
        }

    def _read(self, given: Any, what: str) -> dict[Any, ModelRows]:
        """Read the rows of each input."""
        found = {}
        for key, part in _by_key(given).items():
            name = what if key is None else f"{what}[{key!r}]"
            names = self.columns.get(key) or self._ordered(part, key)
            rows = ModelRows.of(part, self.dtype, self.device, integers=self.integers, names=names, what=name)
            found[key] = rows if self.normalized is None else self._to_normalize(rows, key)
        return found

    def single(self, given: Any) -> Any:
        """Return a row that is given by itself, X[0] or table.iloc[0], as rows; None for rows."""
        if hasattr(given, "to_frame") and not hasattr(given, "columns"):
            return given.to_frame().T.infer_objects()
        if isinstance(given, (tuple, dict)) and None not in _by_key(given):
            return None
        off = self.off.get(None)
        several = off.dim() if self.averaged and isinstance(off, Tensor) else 2
        if hasattr(given, "columns") or _dimensions(given) != several - 1:
            return None
        return given[None] if isinstance(given, (Tensor, np.ndarray)) else [list(given)]

    def _ordered(self, part: Any, key: Any) -> Sequence[str] | None:
        """Return the names that were given, if they are those of a table in another order."""
        own = [str(name) for name in getattr(part, "columns", ())]
        return self.names[key] if own and sorted(own) == sorted(self.names.get(key, ())) else None

    def _to_normalize(self, rows: ModelRows, key: Any) -> ModelRows:
        if key is not None:
            raise BadInput("mean and std are for one input: let the model normalise several")
        shape = tuple(rows.tensor.shape)
        if self.normalized not in (1, shape[1]):
            raise BadInput(
                f"mean and std have {self.normalized} numbers, and rows of shape {shape[1:]} have {shape[1]} channels "
                "or columns, along their first dimension"
            )
        real = rows.tensor.is_floating_point()
        return replace(rows, tensor=rows.tensor.to(self.dtype or (None if real else torch.get_default_dtype())))

    def arguments(self, given: dict[Any, ModelRows], target: Any, extra: Any) -> Arguments:
        """Return the checked arguments of an `attribute` call for rows."""
        parts = {key: rows.tensor for key, rows in given.items()}
        absent = self._absent(parts)
        if self.dtype is None:
            parts = {key: _beside(part, absent.get(key)) for key, part in parts.items()}
        self._note_lost(given, parts)
        masks = _masks(given)
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
        extra = tree_map_only(Tensor, lambda x: x.to(self.device), extra)
        players = _together(masks) if masks else None
        return Arguments(_together(parts), _together(absent), target, extra, players, self.averaged, self.shares)

    def _note_lost(self, given: dict[Any, ModelRows], parts: dict[Any, Tensor]) -> None:
        """Say in the log if a column differs from its baseline by what the model's dtype does not hold."""
        for key, rows in given.items():
            if not parts[key].is_floating_point():  # whole numbers, or the numbers of values in a table
                continue
            off = self.off_as_given.get(key, 0)
            data = _from_array(rows.data) if rows.data.dtype.kind in "fiu" else parts[key]
            beside = off if isinstance(off, Tensor) else tensor_of(off)
            if beside.dim() and beside.shape not in (data.shape[1:], (len(beside), *data.shape[1:])):
                continue  # which is an error soon
            if (column := lost_column(data, beside, parts[key].dtype)) is not None:
                names = rows.names or self.columns.get(key)
                which = repr(names[column]) if names and len(names) == data[0].numel() else column
                log.warning(
                    "column %s differs from its baseline by less than %s holds of such large numbers, in which the "
                    "model computes: it gets values of nothing; subtract what is common, or take model.double()",
                    which, parts[key].dtype,
                )  # fmt: skip

    def _absent(self, parts: dict[Any, Tensor]) -> dict[Any, Any]:
        """Return what absent features are; a tuple of numbers has one for each of several inputs, or is one row."""
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

    def absent(self) -> str:
        """Say what an absent input is."""
        rows = max((len(part) for part in self.off.values() if isinstance(part, Tensor) and part.dim()), default=0)
        if self.averaged:
            return "what the only row of the background has" if rows == 1 else f"averaged over {rows:,} background rows"
        given = {number if isinstance(number, (int, float)) else None for number in self.off_as_given.values()}
        if None in given:
            return "what the baselines have"
        return "0" if not given else " or ".join(f"{number:g}" for number in given if number is not None)

    def in_given_shape(self, result: Attributions) -> Attributions:
        """Return the result in the shape of the inputs as they were given."""
        return result

    def explanations(
        self, result: Attributions, parts: dict[Any, ModelRows], output_names: Sequence[str] | None
    ) -> Any:
        """Return the result as a `shap.Explanation`; one for all inputs together."""
        names = {key: self.names.get(key) or rows.names or self.columns.get(key) for key, rows in parts.items()}
        if None in parts:
            rows = parts[None]
            return shap_explanation(result, rows.data, rows.feature_mask, names[None], output_names, rows.kind)
        _check_disjoint(_masks(parts))
        masks = _numbered(parts, _masks(parts))
        values, std, background = map(_by_key, (result.values, result.std, result.background_std))
        inputs = []
        for key, rows in parts.items():
            found = values[key], std.get(key), background.get(key)
            inputs.append(InputOfModel(self._name(key), *found, rows.data, masks[key].cpu(), names[key], rows.kind))
        return shap_explanation_of_inputs(result, inputs, output_names)

    def _name(self, key: Any) -> str:
        """Return the name of an input: its keyword, or the model's own word for what is in its place."""
        if isinstance(key, str):
            return key
        return self.parameters[key] if key < len(self.parameters) else f"input {key}"


@dataclass(frozen=True)
class _Rule:
    """Who the players of an input are: a function from rows to masks, and the word for one of them."""

    function: Callable[[Tensor], Any]
    kind: str

    @staticmethod
    def of(given: Any) -> _Rule:
        """Read a text like "superpixel:60", or a function."""
        if isinstance(given, str):
            return _Rule(named(given), given.strip().lower().partition(":")[0].partition(",")[0])
        if not callable(given):
            raise BadInput(f"players are {given!r}: a text like 'superpixel:60', or a function from rows to masks")
        return _Rule(given, "group")

    def mask(self, rows: Tensor) -> Tensor:
        """Return the player of every entry of these rows."""
        return _mask(self.function(rows), "the function of players")


def _rules(players: Any) -> dict[Any, Any]:
    """Return what says who the players are by the key of the input, of those inputs for which something does."""
    if isinstance(players, tuple):
        players = dict(enumerate(players))
    given = players if isinstance(players, Mapping) else {None: players}
    return {key: own for key, own in given.items() if own is not None}


def _numbered(parts: dict[Any, ModelRows], masks: dict[Any, Tensor], *, apart: bool = False) -> dict[Any, Tensor]:
    """Return a mask for each input: those that have none get numbers of their own, above all others; with `apart`, all
    do."""
    result, start = {}, 0
    if not apart:
        result, start = dict(masks), 1 + max((int(mask.max()) for mask in masks.values()), default=-1)
    for key, rows in parts.items():
        if key in result:
            continue
        size, shape = rows.tensor[0].numel(), rows.tensor.shape[1:]
        own = masks[key] - masks[key].min() if key in masks else torch.arange(size).view(1, *shape)
        result[key] = own + start
        start += int(own.max()) + 1
    return result


def _parameters(model: Any) -> list[str]:
    """Return the names of a model's parameters that are given by position, as far as they can be known."""
    function = innermost(model)
    try:
        found = signature(function.forward if isinstance(function, nn.Module) else function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _mask(given: Any, what: str) -> Tensor:
    """Return the number of the player of every entry, from `what` is given or gives it."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{what} must have the integer of each entry's player, not {shown(given)}") from error


def names_of(what: str, given: Any) -> list[str]:
    """Return names as texts, or say that they are none.

    >>> names_of("feature_names", ["age", 2])
    ['age', '2']
    """
    if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        raise BadInput(f"{what} must be a list of names, not {shown(given)}")
    return [str(name) for name in given]


def _beside(part: Tensor, off: Any) -> Tensor:
    """Return whole numbers as floating-point ones if what stands beside them is no whole number."""
    if part.is_floating_point() or off is None:
        return part
    absent = off if isinstance(off, Tensor) else tensor_of(off)
    if not absent.is_floating_point() or bool((absent == absent.round()).all()):
        return part
    return part.to(torch.float64)


def _dimensions(given: Any) -> int | None:
    """Return the number of dimensions of an array or of nested lists; None if lists are of several lengths."""
    try:
        return np.ndim(given)
    except ValueError:
        return None


def _masks(parts: dict[Any, ModelRows]) -> dict[Any, Tensor]:
    """Return the feature masks of those inputs that have one."""
    return {key: rows.feature_mask for key, rows in parts.items() if rows.feature_mask is not None}


def _inputs(keys: list[Any]) -> str:
    """Return the inputs of these keys in words."""
    return "one input" if keys == [None] else f"the inputs {', '.join(map(repr, keys))}"


def _check_disjoint(masks: dict[Any, Tensor]) -> None:
    """Refuse players with entries in several inputs, of which an explanation has parts."""
    seen: set[int] = set()
    for mask in masks.values():
        own = set(mask.unique().tolist())
        if both := seen & own:
            raise BadInput(
                f"player {min(both)} of feature_mask is in several inputs, and each part of an explanation has its "
                "own: give every input numbers of its own, or take `attribute`"
            )
        seen |= own


class RawTables(Inputs):
    """The inputs of a model behind an encoder; see `dasp.explainer.encoders`. The players are the raw columns, or
    groups of them; `model` is what takes the tensors that are made here."""

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
        self.numbers = ValueNumbers() if encoder.owners is None else None
        if (background is None) == (not isinstance(baselines, str) or baselines != MISSING):
            raise BadInput(
                "with an encoder, say what an absent column is: either background=rows of the table, or "
                f"baselines={MISSING!r} if the encoder fills in missing values"
            )
        super().__init__(
            model, device, encoder.columns, background=background, baselines=None, feature_mask=None,
            feature_names=feature_names,
        )  # fmt: skip
        self.filled_in = background is None
        if background is None:
            self.off = {None: self._missing()}
        self.groups = self._groups(feature_mask)  # of the raw columns
        if encoder.owners is not None:
            self.masks = {None: self.groups[torch.tensor(encoder.owners)]}
        elif feature_mask is not None:
            self.masks = {None: self.groups}
        self.model = model if self.numbers is None else self.numbers.model(encoder, model, self.dtype)

    def _missing(self) -> Tensor:
        row = self.encoder.missing()
        encoded = self.encoder.encoded(row, "a row of missing values")
        if not np.isfinite(encoded).all():
            where = int(np.flatnonzero(~np.isfinite(encoded[0]))[0])
            owner = (
                "a column" if self.encoder.owners is None else repr(self.encoder.columns[self.encoder.owners[where]])
            )
            raise BadInput(
                f"a missing value of {owner} stays missing behind the encoder: put a SimpleImputer in it, or give a "
                "background"
            )
        return self._tensor(row, encoded, typed=False)

    def _groups(self, feature_mask: Any) -> Tensor:
        columns = len(self.encoder.columns)
        groups = torch.arange(columns) if feature_mask is None else torch.as_tensor(feature_mask).flatten()
        if groups.shape != (columns,):
            raise BadInput(f"feature_mask has {groups.numel()} numbers, and the encoder takes {columns} raw columns")
        return groups

    def _tensor(self, table: Any, encoded: np.ndarray, *, typed: bool = True) -> Tensor:
        """Return what the model takes for a table: its encoded numbers, or the numbers of its values."""
        if self.numbers is not None:
            return self.numbers.of(table, typed=typed).to(self.device)
        whole = self.integers and bool((encoded == np.round(encoded)).all())
        return torch.from_numpy(encoded).to(self.device, torch.int64 if whole else self.dtype)

    def _read(self, given: Any, what: str) -> dict[Any, ModelRows]:
        """Read the rows of a raw table. It is always encoded, which says what cannot be."""
        table = self.encoder.table(given.cpu().numpy() if isinstance(given, Tensor) else given, what)
        tensor = self._tensor(table, self.encoder.encoded(table, what))
        return {None: ModelRows(table.to_numpy(dtype=object), tensor, self.encoder.columns)}

    def note_zeros(self, tensors: tuple[Tensor, ...]) -> None:
        """Say nothing: what an absent column is was given."""

    def absent(self) -> str:
        """Say what an absent column is."""
        return "missing, which the encoder fills in" if self.filled_in else super().absent()

    def in_given_shape(self, result: Attributions) -> Attributions:
        """Return the result with a value for each raw column, in place of those for the numbers made of them."""
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

        return replace(
            result, values=by_column(result.values), std=by_column(result.std),
            background_std=by_column(result.background_std),
        )  # fmt: skip

    def explanations(
        self, result: Attributions, parts: dict[Any, ModelRows], output_names: Sequence[str] | None
    ) -> Any:
        """Return the result as a `shap.Explanation` of the raw table."""
        (rows,) = parts.values()
        mask = None if len(self.groups.unique()) == len(self.groups) else self.groups
        names = self.names.get(None) or self.encoder.columns
        return shap_explanation(result, rows.data, mask, names, output_names)


def _by_key(inputs: Any) -> dict[Any, Any]:
    """Return the inputs of a model by their keys: keywords of a dictionary, numbers of a tuple, None of the only input.
    A tuple of numbers or names is one row."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    several = isinstance(inputs, tuple) and not all(isinstance(x, (int, float, str)) for x in inputs)
    return dict(enumerate(inputs)) if several else {None: inputs}


def _together(parts: dict[Any, Any]) -> Any:
    """Return inputs by their keys as they were given, which undoes `_by_key`.

    >>> _together({0: "first", 1: "second"}), _together({None: "only"}), _together({"x": 1})
    (('first', 'second'), 'only', {'x': 1})
    """
    if None in parts:
        return parts[None]
    return parts if all(isinstance(key, str) for key in parts) else tuple(parts.values())


def what_zero_is(inputs: tuple[Tensor, ...], names: Sequence[Sequence[str] | None] = ()) -> str:
    """Return what a baseline of zeros means for tables whose columns are far from it; "" for standardised ones.

    >>> what_zero_is((torch.tensor([[0.1, 41.0], [-0.2, 43.0]]),)).partition(";")[0]
    'an absent feature is 0, as there is no background, and column 1 is 42 on average'
    """
    for x, columns in zip(inputs, [*names, *[None] * len(inputs)], strict=False):
        if x.dim() == 2 and x.is_floating_point() and (far := far_from_zero(x.double().mean(0).tolist(), columns)):
            return (
                f"an absent feature is 0, as there is no background, and {far}; with background=rows, some dozens of "
                "your data, absent features are what they are there"
            )
    return ""


def far_from_zero(means: Sequence[float], names: Sequence[str] | None) -> str:
    """Return which column is farthest from zero on average, if one is far; "" for standardised ones.

    >>> far_from_zero([0.1, 42.0], ["height", "age"])
    "column 'age' is 42 on average"
    """
    column = max(range(len(means)), key=lambda i: abs(means[i]))
    if abs(means[column]) <= _FAR:
        return ""
    return f"column {column if names is None else repr(names[column])} is {means[column]:.3g} on average"
