"""DeepLIFT's rules for differences from a reference; importing this package fills their registry."""

from dasp.deeplift import maximum
from dasp.deeplift.difference import Difference, Nonlinear
from dasp.deeplift.rules import DIFFERENCE_RULES
from dasp.deeplift.walk import walk

__all__ = ["DIFFERENCE_RULES", "Difference", "Nonlinear", "maximum", "walk"]
