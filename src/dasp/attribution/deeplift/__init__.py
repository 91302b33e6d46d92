"""DeepLIFT by differences from a reference; importing this package fills the registry of its rules."""

from dasp.attribution.deeplift import maximum_rules
from dasp.attribution.deeplift.maximum_game import shapley_of_maximum
from dasp.attribution.deeplift.revealcancel import DeepLiftRevealCancel
from dasp.attribution.deeplift.rules import DIFFERENCE_RULES

__all__ = ["DIFFERENCE_RULES", "DeepLiftRevealCancel", "maximum_rules", "shapley_of_maximum"]
