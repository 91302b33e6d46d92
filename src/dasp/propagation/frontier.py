"""A lifted graph's two halves, and what crosses from the one to the other: see `dasp.propagation.lifting`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx

from dasp.propagation.apart import Apart
from dasp.propagation.gaussian import Gaussian
from dasp.propagation.turns import evaluating
from dasp.propagation.values import Contributions, Switched

__all__ = ["Frontier", "Lifted"]


@dataclass(frozen=True)
class Lifted:
    """The two halves of a lifted graph; see the module's docstring."""

    exact: fx.GraphModule
    random: fx.GraphModule

    def __call__(self, *inputs: Any) -> Gaussian:
        """Run both halves, for inputs that are Gaussians already."""
        with evaluating():
            return _as_gaussian(self.random(*self.exact(*inputs)))

    def frontier(self, *inputs: Any) -> Frontier:
        """What crosses from the exact half to the random one."""
        with torch.no_grad(), evaluating():
            values = tuple(self.exact(*inputs))
        return Frontier(self, values, tuple(isinstance(x, (Contributions, Switched)) for x in values))


@dataclass(frozen=True)
class Frontier:
    """Where players meet: units as functions of who takes part, or what was made of them; and constants."""

    lifted: Lifted
    values: tuple[Any, ...]
    meeting: tuple[bool, ...]  # which of the values are no constants

    @property
    def depends(self) -> bool:
        """Whether anything there depends on who takes part."""
        return any(self.meeting)

    @property
    def entries(self) -> int:
        """Numbers in the widest tensor of units."""
        met = [x for x in self.values if isinstance(x, Contributions)]
        units = [x.expected(torch.zeros_like(x.value.difference)).numel() for x in met]
        return max([1, *units, *(2 * x.on.numel() for x in self.values if isinstance(x, Switched))])

    def map(self, function: Callable[[Any], Any]) -> Frontier:
        """`function` of what depends on who takes part; constants stay."""

        def mapped(x: Any) -> Any:
            return replace(x, member=function(x.member)) if isinstance(x, Switched) else function(x)

        both = zip(self.values, self.meeting, strict=True)
        return replace(self, values=tuple(mapped(x) if meets else x for x, meets in both))

    def propagated(self, *, batched: bool = False, through: Callable[..., Any] | None = None) -> Gaussian:
        """The model's output, where everything random is a Gaussian by now; `batched` along a first dimension. The
        random half may be run `through` a compiled version of it."""
        random = through or self.lifted.random
        if batched:
            random = torch.vmap(random, in_dims=tuple(map(_batch_dims, self.values)))
        with evaluating():
            return _as_gaussian(random(*self.values))


def _as_gaussian(output: Any) -> Gaussian:
    """An output that does not depend on the inputs has no variance."""
    output = output.mixed if isinstance(output, Apart) else output
    return output if isinstance(output, Gaussian) else Gaussian(output, torch.zeros_like(output))


def _batch_dims(x: Any) -> Any:
    """Where a value has its batch, for vmap."""
    if isinstance(x, Switched):
        return Switched(None, None, None, 0)  # type: ignore[arg-type]
    return 0 if isinstance(x, Gaussian) else None
