"""Figures of attributions with their errors, and of how good methods are.

    waterfall, force, bar, beeswarm      features of a table
    image, text, series, logo            pixels, pieces of a text, windows of a series, letters of a sequence
    interactions                         pairs of players
    calibration, cost                    stated against actual errors, errors against evaluations or time

Each takes a `shap.Explanation`, as `dasp.Explainer` gives it, or plain attributions with their names, data and standard
deviations as keywords; draws on `ax` or on a new figure; and returns the axes. Nothing is shown and no global setting
is changed. (`comparison`, `gaussianity`, `logos` and `maps`, in modules of their own, are the figures of the paper.)
"""

try:
    import matplotlib as mpl  # noqa: F401
except ImportError as error:
    raise ImportError("dasp.plots needs matplotlib: pip install 'torch-dasp[plots]'") from error

from dasp.plots.forces import force
from dasp.plots.images import image
from dasp.plots.judged import calibration, cost
from dasp.plots.lines import series
from dasp.plots.logos import logo
from dasp.plots.matrices import interactions
from dasp.plots.rows import waterfall
from dasp.plots.tables import bar, beeswarm
from dasp.plots.texts import text, text_html

__all__ = [
    "bar",
    "beeswarm",
    "calibration",
    "cost",
    "force",
    "image",
    "interactions",
    "logo",
    "series",
    "text",
    "text_html",
    "waterfall",
]
