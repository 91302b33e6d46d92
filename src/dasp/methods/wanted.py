"""What a user wants of a method, whichever it is, as the options that the method has for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dasp.errors import BadInput
from dasp.games.arguments import check_positive, check_tolerance
from dasp.games.game import Game
from dasp.methods.table import Method

__all__ = ["Wanted"]

_MOST = 2**15  # evaluations: more than that have more linear algebra than model
_WHO_CAN = "BayesianShapley, Permutations, Gradients at coalitions and 'auto' do"


@dataclass(frozen=True)
class Wanted:
    """How near, at which cost, and how to go about it."""

    tolerance: float | None = None
    max_evaluations: int | None = None
    error_bars: bool = False
    batch_size: int | None = None
    seed: int = 0
    show_progress: bool = False
    max_seconds: float | None = None  # for each row

    def __post_init__(self) -> None:
        check_positive(max_evaluations=self.max_evaluations, batch_size=self.batch_size)
        check_tolerance(self.tolerance)
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds must be positive, not {self.max_seconds}")
        if self.max_seconds is not None and self.max_evaluations is not None:
            raise BadInput("a budget is a number of evaluations or of seconds, not both")

    def budget(self, seconds: float, around: float, fewest: int, most: int) -> int:
        """Evaluations for each row, if one takes so many seconds, and all that is `around` them; `most`, unless a
        budget is given."""
        if self.max_seconds is not None:
            return min(_MOST, max(fewest, int((self.max_seconds - around) / seconds)))
        return most if self.max_evaluations is None else self.max_evaluations

    def settled(self, evaluations: int, tolerance: float | None) -> Wanted:
        """The same with a number of evaluations, and with a tolerance if none is given."""
        own = tolerance if self.tolerance is None else self.tolerance
        return replace(self, max_evaluations=evaluations, max_seconds=None, tolerance=own)

    def options(self, name: str, method: Method, game: Game) -> dict[str, Any]:
        """Options of the method's `attribute`; what is wanted, and it cannot do, is refused."""
        if self.error_bars and not method.error_bars:
            raise BadInput(f"{name} knows no error bars: {_WHO_CAN}")
        if self.max_seconds is not None:
            raise BadInput(f"{name} cannot be told its time: leave max_seconds to 'auto', or give max_evaluations")
        general = {"internal_batch_size": self.batch_size, "seed": self.seed, "show_progress": self.show_progress}
        options = {**method.options, **{key: value for key, value in general.items() if key in method.takes}}
        if method.exact:
            return options
        if self.tolerance is not None:
            if "tolerance" not in method.takes:
                raise BadInput(f"{name} knows no tolerance: {_WHO_CAN}")
            options["tolerance"] = self.tolerance
        if self.max_evaluations is not None:
            if self.tolerance is not None and method.samples == "nodes":
                raise BadInput(f"{name} takes a tolerance or a number of evaluations, not both")
            options |= _samples(name, method, game, self.max_evaluations)
            if method.replicates and (self.error_bars or self.tolerance is not None) and options[method.samples] < 2:  # type: ignore[index]
                raise BadInput(f"{self.max_evaluations} evaluations are too few for error bars of {name}")
        return options


def _samples(name: str, method: Method, game: Game, evaluations: int) -> dict[str, int]:
    """Take as many samples as evaluations allow; those of BayesianShapley do not count its prior."""
    if method.samples is None:
        raise BadInput(f"{name} takes always the same number of evaluations: leave max_evaluations out")
    if method.samples == "max_evaluations":
        return {method.samples: evaluations}
    number = method.number(replace(game, baselines=game.baselines[:1], shares=None), evaluations)
    if number is None:
        raise BadInput(f"{evaluations} evaluations are too few for {name} with {game.count} players")
    return {method.samples: number}
