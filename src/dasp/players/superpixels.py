"""Superpixels as players, and what an image looks like without any of its players."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dasp.errors import BadInput
from dasp.players.grids import whole

__all__ = ["superpixels", "without"]

_TRIES = 4
_BLUR = 10  # an image's shorter side is this many deviations of a blur by default


def superpixels(images: Any, number: int, *, by_channel: bool = False, compactness: float = 10.0) -> Tensor:
    """Divide an image into regions of one colour, by scikit-image's SLIC: the pixels of one region are one player.

    Args:
        images: an image (channels, height, width) with one channel or three, or rows of them, each of which gets
            regions of its own. Any scale of numbers will do: each image is stretched to its darkest and brightest.
        number: about how many regions there are: SLIC is asked a few times, and what comes nearest is taken.
        by_channel: True if the channels of a region are players of their own.
        compactness: the larger, the squarer are the regions.

    Returns:
        Player numbers in the shape of the images.
    """
    try:
        from skimage.segmentation import slic  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("superpixels need scikit-image: pip install 'torch-dasp[images]'") from error
    given = torch.as_tensor(images).detach().cpu().double()
    if given.dim() == 4:
        parts = [superpixels(image, number, by_channel=by_channel, compactness=compactness) for image in given]
        return torch.stack(parts)
    _check_images(given, channels=(1, 3))
    wanted = whole(number)
    if wanted is None or wanted < 2:
        raise BadInput(f"the number of superpixels is {number!r}: a whole number from 2 on is needed")
    spread = given.max() - given.min()
    scaled = ((given - given.min()) / (spread if spread > 0 else 1)).numpy()
    if len(scaled) == 1:
        compactness /= 100  # SLIC takes colours as Lab, whose lightness goes to 100, and greys from 0 to 1

    def regions(asked: int) -> np.ndarray:
        return slic(scaled, asked, compactness, channel_axis=0, start_label=0, convert2lab=len(scaled) == 3)

    mask = torch.from_numpy(_nearest(regions, wanted).astype(np.int64)).expand(given.shape).clone()
    if mask.max() == 0:
        raise BadInput("the image has only one region: its colours are all alike, or mere noise; take blocks instead")
    if by_channel:
        mask += torch.arange(len(given)).view(-1, 1, 1) * (mask.max() + 1)
    return mask


def _nearest(regions: Callable[[int], np.ndarray], number: int) -> np.ndarray:
    """Return about `number` regions, though SLIC gives more or fewer than it is asked for."""
    found, wanted = regions(number), number
    best = found
    for _ in range(_TRIES):
        if _count(best) == number:
            break
        wanted = max(2, round(wanted * number / _count(found)))
        found = regions(wanted)
        best = min(best, found, key=lambda tried: abs(_count(tried) - number))
    return best


def _count(regions: np.ndarray) -> int:
    return int(regions.max()) + 1


def without(images: Any, how: str | float | Sequence[float] = "blur") -> Tensor:
    """Return images without any of their players, which are `baselines`.

    Args:
        images: an image (channels, height, width), or rows of them.
        how: "blur" (Gaussian, of a tenth of the shorter side), "blur:3" (with a deviation of 3 pixels), "mean" (each
            image's own mean colour), or a colour: a number for all channels, or one for each. The numbers are on the
            scale of the images.

    >>> without(torch.arange(4.0).view(1, 2, 2), "mean")
    tensor([[[1.5000, 1.5000],
             [1.5000, 1.5000]]])
    """
    given = torch.as_tensor(images).detach()
    given = given if given.is_floating_point() else given.float()
    _check_images(given[0] if given.dim() == 4 and len(given) else given)
    if not isinstance(how, str):
        return _coloured(given, how)
    if how == "mean":
        return given.mean((-2, -1), keepdim=True).expand_as(given).clone()
    kind, _, text = how.partition(":")
    try:
        deviation = float(text) if text else min(given.shape[-2:]) / _BLUR
    except ValueError:
        deviation = math.nan
    if kind != "blur" or not 0 < deviation < math.inf:
        raise BadInput(f'an image without its players is {how!r}: "blur", "blur:3", "mean" or a colour is needed')
    return _blurred(given, deviation)


def _coloured(images: Tensor, colour: float | Sequence[float]) -> Tensor:
    value = torch.as_tensor(colour, dtype=images.dtype, device=images.device)
    if value.dim() > 1 or value.numel() not in (1, images.shape[-3]) or not bool(value.isfinite().all()):
        raise BadInput(f"the colour {colour!r} is no finite number for each of the {images.shape[-3]} channels")
    return value.view(-1, 1, 1).expand_as(images).clone()


def _blurred(images: Tensor, deviation: float) -> Tensor:
    """Blur images by a Gaussian, one dimension after the other; beyond its edges an image goes on as at them."""
    reach = math.ceil(3 * deviation)
    place = torch.arange(-reach, reach + 1, dtype=images.dtype, device=images.device)
    kernel = torch.exp(-0.5 * (place / deviation) ** 2)
    kernel = (kernel / kernel.sum()).view(1, 1, -1)
    result = images
    for dim in (-1, -2):
        lines = result.movedim(dim, -1)
        padded = functional.pad(lines.reshape(-1, 1, lines.shape[-1]), (reach, reach), mode="replicate")
        result = functional.conv1d(padded, kernel).view(lines.shape).movedim(-1, dim)
    return result.contiguous()


def _check_images(image: Tensor, channels: Sequence[int] | None = None) -> None:
    if image.dim() != 3 or image.numel() == 0 or (channels is not None and len(image) not in channels):
        one = "" if channels is None else f" with {' or '.join(map(str, channels))} channels"
        hint = ""
        if channels is not None and image.dim() == 3 and image.shape[-1] in channels:
            hint = "; image.permute(2, 0, 1) puts the channels first"
        raise BadInput(f"an image of shape {tuple(image.shape)}: (channels, height, width){one} is needed{hint}")
    if not bool(image.isfinite().all()):
        raise BadInput("the image has NaN or infinite entries")
