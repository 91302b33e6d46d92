"""The look of all figures: a method has the same colour, marker and line wherever it appears, and so has a sign.

A family of methods has one of Okabe and Ito's colours, which colour-blind readers can tell apart; inside a family,
marker and line do. A method that exists under two names (ours and its library's) has one style. What raises the output
is red and what lowers it blue: as a bar in two of these colours, as a shade on ColorBrewer's scale from blue to red.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.textpath import TextPath

__all__ = [
    "FAMILIES", "STYLES", "Style", "contrast", "empty_figure", "readable", "shade", "style_of", "text_width", "tidy",
]  # fmt: skip

BLACK, GREY, LIGHT = "#000000", "#7F7F7F", "#D9D9D9"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
UP, DOWN = VERMILLION, BLUE  # raises the output, lowers it
DARK_UP, DARK_DOWN, DARK = "#A84A00", "#005F94", "#595959"  # the same and grey, as text on white
DIVERGING = "RdBu_r"

TITLE, TEXT, SMALL = 12, 10, 8.5  # font sizes
_STRONGEST = 0.62  # of the diverging scale, behind black text


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


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Compute how wide a line of text is, in points."""
    plain = text.replace("$", r"\$")  # else it would be a formula
    return float(TextPath((0, 0), plain, size=size).get_extents().width) if text.strip() else 0.0


def shade(fraction: float) -> str:
    """A red (above 0) or blue (below) that black text can be read on, for a fraction of the largest value.

    >>> shade(0), shade(1), shade(-1)
    ('#f7f6f6', '#d25849', '#3f8ec0')
    """
    place = 0.5 + 0.5 * _STRONGEST * min(max(fraction, -1), 1)
    return "#" + "".join(f"{round(255 * part):02x}" for part in colormaps[DIVERGING](place)[:3])


def contrast(one: Any, other: Any) -> float:
    """The contrast of two colours by the Web Content Accessibility Guidelines: from 1 to 21; text needs 4.5.

    >>> round(contrast("black", "white"), 1)
    21.0
    """
    dark, light = sorted(_luminance(colour) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def readable(background: Any) -> str:
    """Black or white, whichever is read better; the better one always has a contrast of more than 4.5."""
    return max(("black", "white"), key=lambda colour: contrast(colour, background))


def _luminance(colour: Any) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
