"""Players that consist of several columns of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from dasp.errors import BadInput

__all__ = ["prefixes"]


def prefixes(columns: Iterable[object], stems: Sequence[str], *, separator: str = "_") -> tuple[Tensor, list[str]]:
    """Make one player of the columns whose names begin alike, as those of a one-hot encoding do; every other column is
    a player by itself.

    Args:
        columns: the names of all columns, in the model's order.
        stems: what names of one player begin with, before the separator. They are not guessed: "blood_pressure" and
            "blood_sugar" are two measurements.
        separator: between the stem and the rest, as in `pandas.get_dummies`.

    Returns:
        A feature mask and the names of the players, for the `feature_mask` and `feature_names` of `dasp.Explainer`.

    >>> prefixes(["age", "city_Bern", "city_Basel", "blood_sugar"], ["city"])
    (tensor([0, 1, 1, 2]), ['age', 'city', 'blood_sugar'])
    """
    if isinstance(stems, str):
        raise BadInput(f"stems is the text {stems!r}: a list of texts is needed, [{stems!r}]")
    names = [str(name) for name in columns]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"{names.count(twice[0])} columns are called {twice[0]!r}: names must differ")
    owners = [_stem(name, stems, separator) or name for name in names]
    unused = [stem for stem in stems if stem not in owners]
    if unused:
        raise BadInput(f"no column begins with {unused[0] + separator!r}; columns: {', '.join(names[:20])}")
    alone = [name for name in names if name in stems]
    if alone:
        raise BadInput(f"the column {alone[0]!r} has the name of a player that consists of others")
    players = list(dict.fromkeys(owners))
    number = {player: i for i, player in enumerate(players)}
    return torch.tensor([number[owner] for owner in owners]), players


def _stem(name: str, stems: Sequence[str], separator: str) -> str | None:
    """Return the longest stem of a name, or None if it has none."""
    return max((stem for stem in stems if name.startswith(stem + separator)), key=len, default=None)
