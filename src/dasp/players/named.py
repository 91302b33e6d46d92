"""Players by names: columns whose names begin alike (`prefixes`), and what a short text names, as in
`Explainer(players="block:8")` or `dasp explain --players block:8`:

    block:8        blocks of 8×8 pixels           block:8x4           8 high, 4 wide
    superpixel:60  about 60 regions of a colour, each image its own
    window:25      windows of 25 steps along the last dimension       window:25,dim=0   along another
    channel        channels, along the first dimension                channel,dim=1     along another

`,channel` after a block, superpixel or window makes its channels players of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from dasp.errors import BadInput
from dasp.players.grids import blocks, channels, windows
from dasp.players.superpixels import superpixels

__all__ = ["Masks", "named", "prefixes"]

Masks = Callable[[Tensor], Tensor]
"""Rows (n, *shape) → a feature mask, (1 or n, *shape)."""

_FORMS = "block:8, block:8x4, superpixel:60, window:25 or channel, and perhaps ,channel or ,dim=0 after it"
_TEXT = re.compile(r"(?P<kind>[a-z]+)(:(?P<size>\d+(x\d+)*))?(?P<by_channel>,channel)?(,dim=(?P<dim>-?\d+))?")


def named(text: str) -> Masks:
    """Return the function that makes feature masks of rows, by the name of their players: `block:8`, `block:8x4`,
    `superpixel:60`, `window:25` or `channel`, and perhaps `,channel` or `,dim=0` after it.

    >>> named("window:2")(torch.zeros(3, 1, 5))
    tensor([[[0, 0, 1, 1, 2]]])
    """
    match = _TEXT.fullmatch(text.strip().lower())
    if match is None:
        raise BadInput(f"players are {text!r}: {_FORMS} is needed")
    kind, by_channel = match["kind"], match["by_channel"] is not None
    sizes = [int(part) for part in match["size"].split("x")] if match["size"] else []
    dim = None if match["dim"] is None else int(match["dim"])
    if kind == "block" and sizes and dim is None:
        return _same(partial(blocks, size=sizes[0] if len(sizes) == 1 else sizes, by_channel=by_channel))
    if kind == "window" and len(sizes) == 1:
        return _same(partial(windows, size=sizes[0], time=-1 if dim is None else dim, by_channel=by_channel))
    if kind == "channel" and not sizes and not by_channel:
        return _same(partial(channels, dim=0 if dim is None else dim))
    if kind == "superpixel" and len(sizes) == 1 and dim is None:
        return partial(superpixels, number=sizes[0], by_channel=by_channel)
    raise BadInput(f"players are {text!r}: {_FORMS} is needed")


def _same(mask_of: Callable[[tuple[int, ...]], Tensor]) -> Masks:
    """Return a function that gives one mask for all rows, by their shape."""
    return lambda rows: mask_of(tuple(rows.shape[1:]))[None]


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
