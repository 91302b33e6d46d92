"""The arguments of `attribute`, checked once for every estimator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from dasp.games.game import Game
from dasp.propagation.forward import Names

__all__ = ["Arguments", "Baselines", "Target", "Tensors", "check_positive", "check_tolerance", "games"]

Tensors = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
Baselines = None | int | float | Tensor | tuple[int | float | Tensor, ...] | dict[str, int | float | Tensor]
Target = None | int | tuple[int, ...] | Tensor | list[int] | list[tuple[int, ...]] | Literal["predicted"]


def check_positive(**options: int | None) -> None:
    """Refuse numbers below 1, by the names of the options."""
    for name, value in options.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


def check_tolerance(tolerance: float | None) -> None:
    """Refuse what cannot be reached."""
    if tolerance is not None and not tolerance > 0:
        raise ValueError(f"tolerance must be positive, not {tolerance}")


@dataclass(frozen=True)
class Arguments:
    """What `attribute` is given, by Captum's names, and whether the baselines are a background.

    Inputs may be a dictionary, of the model's keywords; then baselines and masks are so, too, where there is one for
    each. Further arguments are a tuple by position, or a dictionary by keyword.

    A background is averaged over: every row of it stands beside every row of the inputs. Whether baselines are one is
    decided where they come from, and nowhere else: here by those who know, or by their number in `given`.
    """

    inputs: Tensors
    baselines: Baselines = None
    target: Target = None
    additional_forward_args: Any = None
    feature_mask: Tensors | None = None
    background: bool = False

    @staticmethod
    def given(
        inputs: Tensors,
        baselines: Baselines = None,
        target: Target = None,
        additional_forward_args: Any = None,
        feature_mask: Tensors | None = None,
    ) -> Arguments:
        """The arguments of an `attribute` call. Baselines are a background if they have neither one row nor one for
        each input row.

        >>> Arguments.given(torch.ones(2, 3), torch.zeros(5, 3)).background
        True
        """
        background = _is_background(_in_order(inputs, inputs), _in_order(inputs, baselines, "baselines"))
        return Arguments(inputs, baselines, target, additional_forward_args, feature_mask, background)

    @property
    def keys(self) -> tuple[str, ...] | None:
        """The keywords of the inputs, if they have any."""
        return tuple(self.inputs) if isinstance(self.inputs, dict) else None

    @property
    def names(self) -> Names:
        """The keyword of each of the model's arguments, or None for its position; () if all have positions.

        >>> Arguments((torch.ones(1, 2),), additional_forward_args={"scale": 2}).names
        (None, 'scale')
        """
        inputs, extra = self.inputs, self.additional_forward_args
        own = self.keys or (None,) * (len(inputs) if isinstance(inputs, tuple) else 1)
        names = (*own, *(extra if isinstance(extra, dict) else (None,) * len(_extra(extra))))
        return names if any(name is not None for name in names) else ()


def _in_order(inputs: Any, things: Any, what: str = "inputs") -> Any:
    """Things by the keywords of the inputs, in the order of these, as a tuple; other things as they are."""
    if not isinstance(things, dict):
        return things
    if not isinstance(inputs, dict) or things.keys() != inputs.keys():
        raise ValueError(f"{what} are for {sorted(things)}, and inputs {_kind(inputs)}: the same keywords are needed")
    return tuple(things[key] for key in inputs)


def _extra(given: Any) -> tuple[Any, ...]:
    """Further arguments of the model, without their keywords."""
    if given is None:
        return ()
    return tuple(given.values()) if isinstance(given, dict) else given if isinstance(given, tuple) else (given,)


def _is_background(inputs: Any, baselines: Any) -> bool:
    on = inputs if isinstance(inputs, tuple) else (inputs,)
    off = baselines if isinstance(baselines, tuple) else (baselines,)
    if len(on) != len(off) or not all(map(_rows_alike, on, off)):
        return False
    lengths = {len(b) for b in off}
    return len(lengths) == 1 and not lengths <= {1, len(on[0])}


def _rows_alike(x: Any, baseline: Any) -> bool:
    both = isinstance(x, Tensor) and isinstance(baseline, Tensor)
    return both and baseline.dim() == x.dim() > 0 and baseline.shape[1:] == x.shape[1:]


def games(arguments: Arguments) -> list[Game]:
    """Check the arguments. One game, or several if rows have masks of their own."""
    on = _inputs(_in_order(arguments.inputs, arguments.inputs))
    baselines = _in_order(arguments.inputs, arguments.baselines, "baselines")
    several: list[Any] = [baselines]
    if arguments.background:
        several = _background(on, baselines)
    off = tuple(_baselines(on, part) for part in several)
    # Copies, as a model may write into what it is given.
    extra = tuple(x.clone() if isinstance(x, Tensor) else x for x in _extra(arguments.additional_forward_args))
    masks = _masks(on, _in_order(arguments.inputs, arguments.feature_mask, "feature masks"))
    varying = any(bool((mask != mask[:1]).any()) for mask in masks)
    batched = tuple(isinstance(x, Tensor) and x.dim() > 0 and len(x) == len(on[0]) for x in extra)
    whole = Game(on, off, (), extra, batched, 0, isinstance(arguments.inputs, Tensor))
    result = []
    for part, game in whole.slices(1 if varying else whole.rows):
        own, count = _numbered(tuple(mask[part if len(mask) > 1 else slice(0, 1)][0] for mask in masks))
        result.append(replace(game, masks=own, count=count))
    for game in result:
        if game.count == 0:
            raise ValueError("there are no players: the inputs have no entries")
        if game.count == 1:
            raise ValueError(
                "there is only one player, whose value is all of f(input) − f(baseline): nothing to divide"
            )
    return result


def _background(on: tuple[Tensor, ...], rows: Any) -> list[tuple[Tensor, ...]]:
    """The rows of a background, each as a baseline for all rows of the inputs."""
    parts = rows if isinstance(rows, tuple) else (rows,)
    if len(parts) != len(on) or not all(map(_rows_alike, on, parts)) or len({len(part) for part in parts}) != 1:
        shapes = ", ".join(str(tuple(part.shape)) if isinstance(part, Tensor) else _kind(part) for part in parts)
        wanted = ", ".join(str(("rows", *x.shape[1:])) for x in on)
        raise ValueError(f"the background has shape {shapes}; {wanted} is needed, with as many rows for every input")
    if not len(parts[0]):
        raise ValueError("the background has no rows")
    return [tuple(part[i] for part in parts) for i in range(len(parts[0]))]


def _inputs(inputs: Any) -> tuple[Tensor, ...]:
    on = (inputs,) if isinstance(inputs, Tensor) else inputs
    if not isinstance(on, tuple) or not on or not all(isinstance(x, Tensor) for x in on):
        raise TypeError(f"inputs must be a tensor, or a tuple or dictionary of tensors, not {_kind(inputs)}")
    for i, x in enumerate(on):
        name = "inputs" if len(on) == 1 else f"inputs[{i}]"
        if x.is_complex() or x.is_quantized:
            raise TypeError(f"{name} has dtype {x.dtype}; floating point, integer or bool is needed")
        if x.dim() == 0 or len(x) == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: at least one row is needed, along dimension 0")
        if len(x) != len(on[0]):
            raise ValueError(f"inputs have different numbers of rows: {[len(x) for x in on]}")
        _finite(x, name)
    return tuple(x.detach() for x in on)


def _kind(x: Any) -> str:
    if isinstance(x, dict):
        return f"a dict of {', '.join(map(str, x)) or 'nothing'}"
    if isinstance(x, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in x) or 'nothing'}"
    return f"a {type(x).__name__}"


def _finite(x: Tensor, name: str) -> None:
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        row = int((~torch.isfinite(x)).reshape(len(x), -1).any(1).nonzero()[0])
        raise ValueError(f"{name} has NaN or infinite entries, first in row {row}")


def _baselines(on: tuple[Tensor, ...], baselines: Baselines) -> tuple[Tensor, ...]:
    given = baselines if isinstance(baselines, tuple) else (baselines,) * (len(on) if _plain(baselines) else 1)
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} baselines")
    return tuple(_baseline(x, b, "baselines" if len(on) == 1 else f"baselines[{i}]") for i, (x, b) in
                 enumerate(zip(on, given, strict=True)))  # fmt: skip


def _plain(baseline: Any) -> bool:
    return baseline is None or isinstance(baseline, (int, float))


def _baseline(x: Tensor, baseline: Any, name: str) -> Tensor:
    if baseline is None:
        return torch.zeros_like(x[:1]).expand(x.shape)
    if not isinstance(baseline, (int, float, Tensor)):
        raise TypeError(f"{name} must be None, a number or a tensor, not {_kind(baseline)}")
    value = torch.as_tensor(baseline, device=x.device).detach()
    _finite(value.reshape(1, -1), name)
    if value.dim() and value.shape not in (x.shape, x.shape[1:], (1, *x.shape[1:])):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; {tuple(x.shape)} (a row per input), {(1, *x.shape[1:])} (one row) "
            "or a number is needed"
        )
    cast = value.to(x.dtype)
    if not x.is_floating_point() and not bool((cast == value).all()):
        raise ValueError(f"{name} must be whole numbers, as the input has dtype {x.dtype}")
    return cast.expand(x.shape)


def _masks(on: tuple[Tensor, ...], feature_mask: Any) -> tuple[Tensor, ...]:
    """Player labels for every input, with a batch dimension of 1 or of all rows."""
    if feature_mask is None:
        masks, start = [], 0
        for x in on:
            size = x[0].numel()
            masks.append(torch.arange(start, start + size, device=x.device).view(1, *x.shape[1:]))
            start += size
        return tuple(masks)
    given = (feature_mask,) if isinstance(feature_mask, Tensor) else tuple(feature_mask)
    if not all(isinstance(mask, Tensor) for mask in given):
        raise TypeError(f"feature_mask must be a tensor or a tuple of tensors, not {_kind(feature_mask)}")
    if len(given) != len(on):
        raise ValueError(f"there are {len(on)} inputs, but {len(given)} feature masks")
    result = []
    for i, (x, mask) in enumerate(zip(on, given, strict=True)):
        name = "feature_mask" if len(on) == 1 else f"feature_mask[{i}]"
        if mask.is_floating_point() or mask.is_complex() or mask.dtype == torch.bool:
            raise TypeError(f"{name} has dtype {mask.dtype}; player numbers are integers")
        rows = len(mask) if mask.dim() == x.dim() else 1
        wanted = torch.Size([rows, *x.shape[1:]])
        if rows not in (1, len(x)) or not _broadcasts(mask.shape, wanted):
            raise ValueError(
                f"{name} has shape {tuple(mask.shape)}, which does not fit an input row of shape {tuple(x.shape[1:])}"
            )
        result.append(mask.to(x.device).long().expand(wanted))
    return tuple(result)


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    fits = len(shape) <= len(wanted)
    return fits and all(a in (1, b) for a, b in zip(reversed(shape), reversed(wanted), strict=False))


def _numbered(masks: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], int]:
    """Labels renumbered 0 … N−1, in their order, over all inputs together."""
    labels, numbers = torch.unique(torch.cat([mask.flatten() for mask in masks]), return_inverse=True)
    parts = numbers.split([mask.numel() for mask in masks])
    return tuple(part.view(mask.shape) for part, mask in zip(parts, masks, strict=True)), len(labels)
