"""DeepLIFT by differences from a reference."""

from dasp.attribution.deeplift.deeplift import DeepLiftRevealCancel
from dasp.attribution.deeplift.difference_rules import DIFFERENCE_RULES
from dasp.attribution.deeplift.maximum_game import shapley_of_maximum

__all__ = ["DIFFERENCE_RULES", "DeepLiftRevealCancel", "shapley_of_maximum"]
