"""Functions of data frames: they are given tables with the columns and dtypes that they were made for.

The values of a table are numbered, the players are these numbers (see `ValueNumbers`), and every coalition is made a
table again before the function sees it. So columns may hold text, categories, dates or anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from dasp.errors import BadInput
from dasp.explainer.encoders import check_columns_once
from dasp.explainer.inputs import ModelRows, RawTables
from dasp.models.row_function import as_tensors

__all__ = ["DataFrames", "TableColumns", "is_table", "takes_tables"]

_TRIED = 2  # rows: some functions lose the dimension of a single one


def is_table(given: Any) -> bool:
    """True for a data frame."""
    return hasattr(given, "columns") and hasattr(given, "iloc")


def takes_tables(function: Callable[..., Any], table: Any) -> bool:
    """True if a function gives numbers for the first rows of a table."""
    try:
        found = as_tensors(function(table.iloc[:_TRIED].copy()))
    except Exception:  # noqa: BLE001 (a function may raise anything)
        return False
    return isinstance(found, Tensor)


class TableColumns:
    """The columns of a table that is given to a function: what an `Encoder` is to a table in front of a network."""

    owners = None  # no numbers are made of the columns

    def __init__(self, table: Any) -> None:
        self.labels = table.columns
        self.columns = [str(label) for label in table.columns]
        check_columns_once(self.columns, "the background")
        self.kinds = dict(zip(self.columns, table.dtypes, strict=True))

    def table(self, given: Any, what: str) -> Any:
        """Return rows as a table with these columns, in this order."""
        import pandas as pd  # noqa: PLC0415

        if not is_table(given):
            array = np.asarray(given)
            if array.ndim != 2 or array.shape[1] != len(self.columns):
                raise BadInput(f"{what} has shape {array.shape}, and the function takes the columns {self.columns}")
            given = pd.DataFrame(array, columns=self.columns)
        names = [str(name) for name in given.columns]
        check_columns_once(names, what)
        for name in self.columns:
            if name not in names:
                raise BadInput(f"{what} lacks the column {name!r}, which the background has")
        for name in names:
            if name not in self.columns:
                raise BadInput(f"{what} has the column {name!r}, which the background has not: drop it")
        table = given.iloc[:, [names.index(name) for name in self.columns]].reset_index(drop=True)
        table.columns = self.columns
        for name, kind in self.kinds.items():
            if isinstance(kind, pd.CategoricalDtype):
                table[name] = _in_categories(table[name], kind, f"column {name!r} of {what}")
        return table

    def encoded(self, table: Any, what: str) -> Any:  # noqa: ARG002 (an encoder may fail)
        """Return the table: nothing is made of it."""
        return table

    def called(self, function: Callable[..., Any], table: Any, *args: Any, **keywords: Any) -> Any:
        """Return what the function gives for a table with the columns as they are called."""
        table.columns = self.labels
        return function(table, *args, **keywords)


def _in_categories(column: Any, kind: Any, what: str) -> Any:
    """Return a column with the categories that it has in the background, in their order; one that is new comes behind
    them, unless their order means something."""
    import pandas as pd  # noqa: PLC0415

    unseen = [value for value in column.dropna().unique() if value not in kind.categories]
    if unseen and kind.ordered:
        known = ", ".join(map(repr, kind.categories))
        raise BadInput(
            f"{what} has {unseen[0]!r}, and its ordered categories are {known}: add it to those of the background"
        )
    return column.astype(object).astype(pd.CategoricalDtype([*kind.categories, *unseen], kind.ordered))


class DataFrames(RawTables):
    """The input of a function of tables; its players are the columns, or groups of them."""

    def __init__(self, function: Callable[..., Any], background: Any, *, feature_mask: Any, feature_names: Any) -> None:
        columns = TableColumns(background)
        super().__init__(
            columns, function, None, background=background, baselines=None, feature_mask=feature_mask,  # type: ignore[arg-type]
            feature_names=feature_names,
        )  # fmt: skip
        numbers = self.numbers
        assert numbers is not None

        def evaluated(x: Tensor, *args: Any, **keywords: Any) -> Any:
            return as_tensors(columns.called(function, numbers.table(x.cpu()), *args, **keywords), x.device)

        self.model = evaluated

    def _read(self, given: Any, what: str) -> dict[Any, ModelRows]:
        """Read the rows of a table; numbers are kept as numbers, for figures."""
        found = super()._read(given, what)
        data = self.encoder.table(given.cpu().numpy() if isinstance(given, Tensor) else given, what)
        if all(getattr(kind, "kind", "O") in "fiub" for kind in data.dtypes):
            rows = found[None]
            found = {None: ModelRows(data.to_numpy(dtype=float, na_value=np.nan), rows.tensor, rows.names)}
        return found
