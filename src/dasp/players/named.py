"""Players that are named by a short text, as in `Explainer(players="block:8")` or `dasp explain --players block:8`.

    block:8        blocks of 8×8 pixels           block:8x4           8 high, 4 wide
    superpixel:60  about 60 regions of a colour, each image its own
    window:25      windows of 25 steps along the last dimension       window:25,dim=0   along another
    channel        channels, along the first dimension                channel,dim=1     along another

`,channel` after a block, superpixel or window makes its channels players of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from torch import Tensor

from dasp.errors import BadInput
from dasp.players.grids import blocks, channels, windows
from dasp.players.superpixels import superpixels

__all__ = ["Masks", "named"]

Masks = Callable[[Tensor], Tensor]
"""Rows (n, *shape) → a feature mask, (1 or n, *shape)."""

_FORMS = "block:8, block:8x4, superpixel:60, window:25 or channel, and perhaps ,channel or ,dim=0 after it"
_TEXT = re.compile(r"(?P<kind>[a-z]+)(:(?P<size>\d+(x\d+)*))?(?P<by_channel>,channel)?(,dim=(?P<dim>-?\d+))?")


def named(text: str) -> Masks:
    """Return the function that makes feature masks of rows, by the name of their players: `block:8`, `block:8x4`,
    `superpixel:60`, `window:25` or `channel`, and perhaps `,channel` or `,dim=0` after it.

    >>> import torch
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
