"""Figures of attributions with their errors, and of how good methods are.

    waterfall, force, bar, beeswarm      features of a table
    image, text, series, logo            pixels, pieces of a text, windows of a series, letters of a sequence
    interactions                         pairs of players
    calibration, cost                    stated against actual errors, errors against evaluations or time

Each takes a `shap.Explanation`, as `dasp.Explainer` gives it, or plain attributions with their names, data and standard
deviations as keywords; draws on `ax` or on a new figure; and returns the axes. Nothing is shown and no global setting
is changed. Each is in a file of its name, which the function hides: `dasp.plots.waterfall` is the function.
"""

try:
    import matplotlib as mpl  # noqa: F401
except ImportError as error:
    raise ImportError("dasp.plots needs matplotlib: pip install 'torch-dasp[plots]'") from error

from dasp.plots.bar import bar
from dasp.plots.beeswarm import beeswarm
from dasp.plots.calibration import calibration
from dasp.plots.cost import cost
from dasp.plots.force import force
from dasp.plots.image import image
from dasp.plots.interactions import interactions
from dasp.plots.logo import logo
from dasp.plots.series import series
from dasp.plots.text import text, text_html
from dasp.plots.waterfall import waterfall

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
