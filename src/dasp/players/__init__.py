"""Players that people think in: the entries of a row that come and go together, and images without any of them.

    blocks, superpixels       parts of an image
    windows, channels         parts of a series
    prefixes                  columns of a table that are one thing, like a one-hot encoding
    without                   images of which nothing is left: a colour, their mean, a blur
    named                     players by a short text, like "superpixel:60"

The first three lines give a `feature_mask`: integers that broadcast to a row, where entries with the same number are
one player. Every estimator takes one, and so does `dasp.Explainer`.
"""

from dasp.players.grids import blocks, channels, windows
from dasp.players.named import named, prefixes
from dasp.players.superpixels import superpixels, without

__all__ = ["blocks", "channels", "named", "prefixes", "superpixels", "windows", "without"]
