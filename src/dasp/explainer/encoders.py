"""Fitted scikit-learn transformers in front of a model, so that the players are the raw columns of a table.

The model sees the numbers that an encoder makes of a table, several for one column if that has categories. Most
encoders (one-hot, scalers, imputers, alone or in pipelines and column transformers) make every number of one column by
itself. Then a coalition of columns is a coalition of groups of numbers, and the model is explained as it is, with a
feature mask.

Where an encoder mixes columns (a PCA, an imputer that looks at neighbours, a function), it has to run for every
coalition. Then the values of the table are numbered, the players are these numbers, and the encoder is part of the
model, which is evaluated as a function.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dasp.errors import BadInput, line_of

__all__ = ["Encoder", "ValueNumbers", "check_columns_once"]

# Transformers whose every output is made from one column.
_COLUMN_BY_COLUMN = {
    "Binarizer", "KBinsDiscretizer", "MaxAbsScaler", "MinMaxScaler", "MissingIndicator", "OneHotEncoder",
    "OrdinalEncoder", "PowerTransformer", "QuantileTransformer", "RobustScaler", "SimpleImputer", "SplineTransformer",
    "StandardScaler", "TargetEncoder", "VarianceThreshold",
}  # fmt: skip
_MIXED = -1  # the owner of a number that is made from several columns


class Encoder:
    """A fitted transformer, which makes numbers of tables.

    `owners` has the column that each number is made from; it is None if some number is made from several columns.

    >>> import pandas as pd
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> table = pd.DataFrame({"city": ["Bern", "Basel"], "pet": ["cat", "dog"]})
    >>> encoder = Encoder(OneHotEncoder().fit(table))
    >>> encoder.columns, encoder.owners
    (['city', 'pet'], [0, 0, 1, 1])
    """

    def __init__(self, fitted: Any) -> None:
        if not hasattr(fitted, "transform"):
            raise BadInput(f"the encoder is a {type(fitted).__name__}: a fitted scikit-learn transformer is needed")
        number = getattr(fitted, "n_features_in_", None)
        if number is None:
            raise BadInput(f"the encoder, a {type(fitted).__name__}, is not fitted yet")
        self.fitted = fitted
        names = getattr(fitted, "feature_names_in_", None)
        self.named = names is not None
        self.columns = [f"Feature {i}" for i in range(number)] if names is None else [str(name) for name in names]
        owners = _owners(fitted, list(range(number)), None if names is None else list(names))
        self.owners = None if owners is None or _MIXED in owners else owners  # of each output, if all have one

    @property
    def feature_mask(self) -> Tensor | None:
        """The owners as a feature mask for the numbers, or None if there are no owners."""
        return None if self.owners is None else torch.tensor(self.owners)

    def table(self, given: Any, what: str) -> Any:
        """Return the raw columns of a table or array as a table in the encoder's order."""
        import pandas as pd  # noqa: PLC0415

        if hasattr(given, "columns") and hasattr(given, "iloc"):
            names = [str(name) for name in given.columns]
            if self.named:
                check_columns_once(names, what)
                missing = [name for name in self.columns if name not in names]
                if missing:
                    raise BadInput(f"{what} lacks the column {missing[0]!r}, which the encoder was fitted with")
                unknown = [name for name in names if name not in self.columns]
                if unknown:
                    raise BadInput(
                        f"{what} has the column {unknown[0]!r}, which the encoder was not fitted with: drop it"
                    )
                given = given.iloc[:, [names.index(name) for name in self.columns]]
            table = given
        else:
            array = np.asarray(given)
            if array.ndim != 2:
                raise BadInput(
                    f"{what} has shape {array.shape}: rows of columns are needed, table.iloc[[i]] for one row"
                )
            numbers = array.dtype.kind in "fiub"
            table = pd.DataFrame(
                array if numbers else np.asarray(given, dtype=object), dtype=None if numbers else object
            )
        if table.shape[1] != len(self.columns):
            raise BadInput(f"{what} has {table.shape[1]} columns, and the encoder was fitted with {len(self.columns)}")
        table = table.reset_index(drop=True)
        table.columns = self.columns
        return table

    def missing(self) -> Any:
        """Return a table of one row in which every value is missing."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([[np.nan] * len(self.columns)], columns=self.columns, dtype=object)

    def encoded(self, table: Any, what: str) -> np.ndarray:
        """Return the numbers that the encoder makes of a table; `what` the table is called in errors."""
        try:
            result = self.fitted.transform(table if self.named else table.to_numpy())
        except Exception as error:
            raise BadInput(f"the encoder cannot transform {what}: {line_of(error)}") from error
        result = result.toarray() if hasattr(result, "toarray") else np.asarray(result)
        if result.dtype == object:  # numbers that were passed through beside text
            with suppress(TypeError, ValueError):
                result = result.astype(float)
        if result.dtype.kind not in "fiub":
            raise BadInput(f"the encoder gives {result.dtype} for {what}: numbers are needed for a network")
        return result


@dataclass
class ValueNumbers:
    """Numbers for the values of tables, column by column. Every table adds the values that were not seen before."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    numbers: dict[str, dict[Any, int]] = field(default_factory=dict)
    dtypes: dict[str, Any] = field(default_factory=dict)  # of the columns

    def of(self, table: Any, *, typed: bool = True) -> Tensor:
        """Return the number of every value, (rows, columns). The dtypes of a table of missing values say nothing: it
        is not `typed`."""
        for name, dtype in zip(table, table.dtypes, strict=True) if typed else ():
            self.dtypes[name] = _common(self.dtypes.get(name, dtype), dtype)
        return torch.tensor([[self._number(name, value) for name, value in zip(table, row, strict=True)]
                             for row in table.itertuples(index=False, name=None)])  # fmt: skip

    def _number(self, name: str, value: Any) -> int:
        import pandas as pd  # noqa: PLC0415

        key = (type(value), None if pd.isna(value) else value)  # True, 1 and 1.0 are equal, and not the same
        known, values = self.numbers.setdefault(name, {}), self.values.setdefault(name, [])
        if key not in known:
            known[key] = len(values)
            values.append(value)
        return known[key]

    def table(self, numbers: Tensor) -> Any:
        """Return the table whose values have these numbers."""
        import pandas as pd  # noqa: PLC0415

        columns = {}
        for name, column in zip(self.values, numbers.T.tolist(), strict=True):
            values = [self.values[name][number] for number in column]
            columns[name] = pd.Series(values, dtype=self.dtypes.get(name, object))
        return pd.DataFrame(columns)

    def model(
        self, encoder: Encoder, model: Callable[[Tensor], Any], dtype: torch.dtype | None
    ) -> Callable[[Tensor], Any]:
        """Return the model as a function of numbers, with the encoder in it."""

        def evaluated(numbers: Tensor) -> Any:
            rows = encoder.encoded(self.table(numbers.cpu()), "a coalition")
            return model(torch.from_numpy(rows).to(device=numbers.device, dtype=dtype))

        return evaluated


def check_columns_once(names: Sequence[str], what: str) -> None:
    """Refuse a table with two columns of the same name: nobody could say which is meant.

    >>> check_columns_once(["a", "b", "a"], "X")
    Traceback (most recent call last):
        ...
    dasp.errors.BadInput: X has two columns called 'a': give each a name of its own
    """
    twice = [name for number, name in enumerate(names) if name in names[:number]]
    if twice:
        raise BadInput(f"{what} has two columns called {twice[0]!r}: give each a name of its own")


def _common(one: Any, other: Any) -> Any:
    """Return a dtype that holds the values of two columns."""
    if one == other:
        return one
    if all(getattr(dtype, "name", "") == "category" and not dtype.ordered for dtype in (one, other)):
        new = [value for value in other.categories if value not in one.categories]
        return type(one)([*one.categories, *new])
    numbers = all(isinstance(dtype, np.dtype) and dtype.kind in "fiub" for dtype in (one, other))
    return np.result_type(one, other) if numbers else object


def _owners(step: Any, inputs: list[int], names: Sequence[Any] | None) -> list[int] | None:
    """Return the owners of a transformer's outputs, given the owners of its inputs; None if they are not known.
    `names` are those of the inputs, by which column transformers choose."""
    if step in (None, "passthrough") or (_kind(step) == "FunctionTransformer" and step.func is None):
        return inputs
    kind = _kind(step)
    if kind == "Pipeline":
        owners: list[int] | None = inputs
        for _, part in step.steps:
            owners = None if owners is None else _owners(part, owners, names)
            names = None
        return owners
    if kind == "FeatureUnion":
        parts = [_owners(part, inputs, names) for _, part in step.transformer_list if part != "drop"]
        return None if None in parts else [owner for part in parts for owner in part or ()]
    if kind == "ColumnTransformer":
        return _owners_by_column(step, inputs, names)
    if kind not in _COLUMN_BY_COLUMN:
        return None
    bare = copy.copy(step)  # which takes any names for its inputs
    vars(bare).pop("feature_names_in_", None)
    made = bare.get_feature_names_out([f"⟨{i}⟩" for i in range(len(inputs))])
    found = [{int(i) for i in re.findall(r"⟨(\d+)⟩", name)} for name in made]
    return [inputs[next(iter(one))] if len(one) == 1 else _MIXED for one in found]


def _owners_by_column(step: Any, inputs: list[int], names: Sequence[Any] | None) -> list[int] | None:
    """Return the owners of a column transformer's outputs, or None if they are not known."""
    width = max((part.stop for part in step.output_indices_.values()), default=0)
    result = [_MIXED] * width
    for name, part, columns in step.transformers_:
        place = step.output_indices_[name]
        if part == "drop" or place.start == place.stop:
            continue
        chosen = _places(columns, len(inputs), names)
        if chosen is None:
            return None
        owners = _owners(part, [inputs[i] for i in chosen], None if names is None else [names[i] for i in chosen])
        if owners is None:
            return None
        result[place] = owners
    return result


def _places(columns: Any, number: int, names: Sequence[Any] | None) -> list[int] | None:
    """Return the places of the columns that a column transformer takes, which it names by name, number, slice or truth
    values; None if they cannot be told."""
    if isinstance(columns, slice):
        by_name = any(isinstance(end, str) for end in (columns.start, columns.stop))
        return None if by_name else list(range(number))[columns]
    listed = [columns] if isinstance(columns, (str, int)) else list(columns)
    if listed and all(isinstance(one, (bool, np.bool_)) for one in listed):
        return [i for i, one in enumerate(listed) if one]
    if all(isinstance(one, str) for one in listed):
        return None if names is None else [list(names).index(one) for one in listed]
    return [int(one) % number for one in listed]


def _kind(step: Any) -> str:
    """Return the name of a step's class if it is scikit-learn's own, else "": a derived class may do anything."""
    kind = type(step)
    return kind.__name__ if kind.__module__.partition(".")[0] == "sklearn" else ""
