"""The look of the figures: a method has the same colour, marker and line wherever it is drawn.

A family of methods has one of Okabe and Ito's colours, which colour-blind readers can tell apart; inside a family,
marker and line do. A method that exists under two names (the paper's and its library's) has one style.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import TextPath

__all__ = ["FAMILIES", "STYLES", "Style", "empty_figure", "style_of", "text_width", "tidy"]

BLACK, GREY, LIGHT = "#000000", "#7F7F7F", "#D9D9D9"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
TITLE, TEXT, SMALL = 12, 10, 8.5  # font sizes


@dataclass(frozen=True)
class Style:
    """The colour, marker and line of a method."""

    colour: str
    marker: str
    line: Any  # as matplotlib's linestyle


# Each family with its colour and its methods, each method with all of its identifiers.
_FAMILIES: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "GradientDASP (ours)": (VERMILLION, [("gradient_dasp",), ("gradient_dasp_rank_0",)]),
    "DASP (ours; the paper's at rank 0)": (ORANGE, [("dasp",), ("dasp_rank_0",)]),
    "BayesianShapley (ours)": (
        PURPLE, [("bayesian_shapley_on_gradient_dasp",), ("bayesian_shapley_on_dasp",), ("bayesian_shapley",)],
    ),
    "Sampling": (
        BLUE,
        [
            ("permutation_shapley",), ("shapley_sampling", "captum_shapley_sampling"),
            ("shap_permutation_explainer",), ("shapiq_permutation",), ("shapiq_svarm",),
        ],
    ),
    "Regression": (
        SKY,
        [
            ("kernel_shap", "captum_kernel_shap"), ("shap_kernel_explainer",), ("shapiq_kernel_shap",),
            ("shapiq_leverage_shap",), ("shapiq_kadd",), ("shap_kernel_explainer_aic",),
        ],
    ),
    "Gradients": (
        GREEN,
        [
            ("integrated_gradients", "captum_integrated_gradients"), ("gradient_times_input",), ("saliency",),
            ("shap_gradient_explainer",), ("gradient_shapley",), ("gradient_shapley_on_gradient_dasp",),
        ],
    ),
    "Rules": (
        GREY,
        [
            ("deeplift_rescale", "captum_deeplift"), ("deeplift_revealcancel",), ("deeplift_mixed",),
            ("epsilon_lrp",), ("shap_deep_explainer",),
        ],
    ),
    "Enumeration": (BLACK, [("exact_shapley",), ("occlusion",)]),
}  # fmt: skip

_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)))

STYLES = {
    identifier: Style(colour, marker, line)
    for colour, methods in _FAMILIES.values()
    for identifiers, marker, line in zip(methods, _MARKERS, _LINES, strict=False)
    for identifier in identifiers
}
"""The style of every method by its identifier."""

FAMILIES = {family: [one for names in methods for one in names] for family, (_, methods) in _FAMILIES.items()}
"""The identifiers of each family, in the order of legends."""


def style_of(method: str) -> Style:
    """Return the style of a method; a plain grey for one that is not known."""
    return STYLES.get(method, Style(GREY, ".", ":"))


def empty_figure(width: float, height: float, title: str = "", **gaps: Any) -> Figure:
    """Make a figure in inches that pyplot does not know of; `gaps` are those of matplotlib's constrained layout."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**gaps))
    if title:
        figure.suptitle(title, fontsize=TITLE, fontweight="bold", x=0.01, ha="left")
    return figure


def tidy(axes: Any, *, grid: bool = True) -> None:
    """Give axes readable ticks and a grid behind the data, and no frame above and on the right."""
    axes.tick_params(labelsize=SMALL, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(color=LIGHT, linewidth=0.6)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in points."""
    plain = text.replace("$", r"\$")  # else it would be a formula
    return float(TextPath((0, 0), plain, size=size).get_extents().width) if text.strip() else 0.0
