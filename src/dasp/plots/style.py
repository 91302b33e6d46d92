"""The look of all figures: a method has the same colour, marker and line wherever it appears.

A family of methods has one of Okabe and Ito's colours, which colour-blind readers can tell apart; inside a family,
marker and line do. A method that exists under two names (ours and its library's) has one style.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any  # as matplotlib's linestyle


# Family: its colour, and its methods, each with all of its names.
_FAMILIES: dict[str, tuple[str, list[tuple[str, ...]]]] = {
    "GradientDASP (ours)": (VERMILLION, [("GradientDASP",), ("GradientDASP, rank 0",)]),
    "DASP (ours; the paper's at rank 0)": (ORANGE, [("DASP, full rank",), ("DASP",)]),
    "BayesianShapley (ours)": (
        PURPLE, [("BayesianShapley on GradientDASP",), ("BayesianShapley on DASP",), ("BayesianShapley",)],
    ),
    "Sampling": (
        BLUE,
        [
            ("Permutations",), ("Shapley sampling", "captum Shapley sampling"), ("shap PermutationExplainer",),
            ("shapiq permutation",), ("shapiq SVARM",),
        ],
    ),
    "Regression": (
        SKY,
        [
            ("KernelSHAP", "captum KernelShap"), ("shap KernelExplainer",), ("shapiq KernelSHAP",),
            ("shapiq LeverageSHAP",), ("shapiq kADD",), ("shap KernelExplainer, AIC",),
        ],
    ),
    "Gradients": (
        GREEN,
        [
            ("Integrated Gradients", "captum Integrated Gradients"), ("Gradient×Input",), ("Saliency",),
            ("shap GradientExplainer",), ("Gradients at coalitions",),
        ],
    ),
    "Rules": (
        GREY,
        [
            ("DeepLIFT Rescale", "captum DeepLift"), ("DeepLIFT RevealCancel",), ("DeepLIFT mixed",), ("ε-LRP",),
            ("shap DeepExplainer",),
        ],
    ),
    "Enumeration": (BLACK, [("Exact",), ("Occlusion",)]),
}  # fmt: skip

_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 1)))

STYLES = {
    name: Style(colour, marker, line)
    for colour, methods in _FAMILIES.values()
    for names, marker, line in zip(methods, _MARKERS, _LINES, strict=False)
    for name in names
}
"""The style of every method by name."""

FAMILIES = {family: [name for names in methods for name in names] for family, (_, methods) in _FAMILIES.items()}
"""The names in each family, in the order of legends."""


def style_of(method: str) -> Style:
    """Look up the style of a method; a plain grey for one that is not known."""
    return STYLES.get(method, Style(GREY, ".", ":"))


def empty_figure(width: float, height: float, title: str = "", **gaps: Any) -> Figure:
    """Make a figure in inches that no global state knows of; `gaps` are those of matplotlib's constrained layout."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**gaps))
    if title:
        figure.suptitle(title, fontsize=TITLE, fontweight="bold", x=0.01, ha="left")
    return figure


def tidy(axes: Any, *, grid: bool = True) -> None:
    """Give axes readable ticks and a grid behind the data, and no frame where it says nothing."""
    axes.tick_params(labelsize=SMALL, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(color=LIGHT, linewidth=0.6)


def text_width(text: str, size: float) -> float:
    """Compute how wide a line of text is, in points."""
    return float(TextPath((0, 0), text, size=size).get_extents().width) if text.strip() else 0.0
