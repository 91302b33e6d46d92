"""The page docs/supported.md: architectures with the figures that `benchmarks/architectures.py` measured, and the
operations of the registry.

    python benchmarks/supported.py
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

from dasp.propagation.rules import RULES
from dasp.propagation.rules.registry import Rule
from reproduction.comparison_methods import display_name

_HERE = Path(__file__).parent
FIGURES = _HERE / "architectures.json"
PAGE = _HERE.parent / "docs" / "supported.md"
PROPAGATED, GRADIENTS, DEFAULT = "gradient_dasp", "integrated_gradients", "default"
_IN_ITS_TIME = ("permutation_shapley", "bayesian_shapley", "bayesian_shapley_on_gradient_dasp")
_HALF = 0.5  # of the error of integrated gradients: what propagation is worth its time for

_FAMILIES = {
    "moved": "These only move entries: exact.",
    "affine": "Exact in mean and variance, with correlations as far as factors keep them.",
    "indexing": "Entries are put, added or averaged at constant places: exact. Their maxima, minima and products are "
    "taken in pairs.",
    "apart": "These are exact as long as every entry depends on one player, and refused once players are mixed.",
    "activations": "Moments of a Gaussian, in closed form for ReLU and its kin, else by quadrature.",
    "piecewise": "Moments of a Gaussian, in closed form.",
    "arithmetic": "Sums are exact, and so are products and squares of Gaussians; divisors, roots and logarithms take "
    "what they act on as log-normal.",
    "maximum": "Exact for two Gaussians (Clark's moments); more are taken in pairs, which is approximate.",
    "normalization": "The sum of squares has exact moments; what is divided by its root is expanded around them.",
    "products": "Exact if one argument is random; of two, the mean is exact, and the variance for Gaussians.",
    "conditions": "A condition is 1 with the probability that a Gaussian meets it; a choice by it has the exact mean "
    "if all is normal.",
    "softmax": "Quadrature over the log-odds of each entry, which are exact for two entries and linearised for more.",
    "attention": "A product, a softmax and a product, by their own rules; exact where only the values are random.",
    "recurrent": "Step by step, by the rules of its operations; a step of one player is taken with it on and off.",
}

_MADE = """Any model that `torch.export` can trace and whose operations have rules. This page is made by a program
from measured figures and the registry of rules: `python benchmarks/architectures.py` measures anew (some minutes on
one core), `python benchmarks/supported.py` only writes the page."""
_MEASURED = """Small networks, trained on tasks in which inputs interact. Errors are RMSE against the Shapley
values, relative to their root mean square: 0.1 is an error of a tenth of a typical value. They are medians over
{rows} rows. The truth is exact, but for the networks explained by pixels, where it is sampled and its own error is
taken off. In brackets is the time for a row, of {rows} explained at once, without the first call. Integrated
gradients are Captum's, with 50 steps; DeepLIFT is the better of Captum's Rescale and our RevealCancel, where either
runs. Permutations and `BayesianShapley` without a prior have the same time as `GradientDASP`, and `BayesianShapley`
on `GradientDASP` twice that; they evaluate as many coalitions as fit, and at least the fewest they can. An error of
0 means that all coalitions fit: with ten or twelve players of a small network, enumeration is the best answer."""
_POOR = """**Where propagation does not pay.** On {poor} of the {all} networks that integrated gradients can explain
(words have no gradient), `GradientDASP` has more than half of their error:"""
_GOOD = """`GradientDASP` has at most half the error of integrated gradients on all {all} networks that these can
explain (words have no gradient)."""
_SAMPLED = """**Against evaluations in the same time.** Permutations are nearer than `GradientDASP` on {permutations}
of the {all} networks, and `BayesianShapley` without a prior on {bayesian}. `GradientDASP` is nearer than both on:
{nearest}."""
_CHOICE = """What it chooses, its error and its stated error (the root mean square of the standard deviations), and
the same if it may not evaluate more than that many coalitions of a row:"""
_DOUBTFUL = """It rests on `GradientDASP`, though that has more than half the error of integrated gradients, for:
{names}."""
_SOUND = """Nowhere does it rest on `GradientDASP` where that has more than half the error of integrated gradients."""
_LIFTING = """A model is traced and lifted once. Processor seconds of one thread; the calls are with one node at
rank 0:"""
_OPERATIONS = """Of ATen, to which `torch.export` reduces a model; what is not here is decomposed into what is, or
refused by name. Operations in place are those that give a new tensor. Fourier transforms and other operations on
complex numbers are written in real and imaginary parts, for up to 2,048 frequencies. Experts that a router chooses
(`topk`) are refused: which of them are chosen jumps with the coalition and has no Gaussian, so `BayesianShapley` is the
way, which only evaluates. How exact a rule is, for inputs that are Gaussian:"""


def figures() -> dict[str, Any]:
    """What was measured last."""
    return json.loads(FIGURES.read_text())


def page() -> str:
    """The whole page."""
    known = figures()
    networks = [network for network in known["networks"] if "refused" not in network]
    parts = [
        "# What is supported", _prose(_MADE),
        "## Architectures", _prose(_MEASURED.format(rows=networks[0]["rows"])), _accuracy(networks),
        *_verdict(networks), _sampled(networks), *_refused(known["networks"]),
        "## What `Explainer` does by itself", _prose(_CHOICE), *_defaults(networks),
        "## Time to the first answer", _prose(_LIFTING), _lifting(known["lifting"]),
        operations(),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _prose(text: str, indent: str = "") -> str:
    words = " ".join(text.split())
    return fill(words, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _table(*rows: list[str]) -> str:
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def _error(network: dict[str, Any], method: str, *, timed: bool = False) -> str:
    figure = network["figures"][method]
    if figure is None:
        return "–"
    milliseconds = 1e3 * figure["seconds"] / network["rows"]
    time = f"{milliseconds:.0f}" if milliseconds >= 10 else f"{milliseconds:.2g}"
    return f"{figure['error']:.3f}" + (f" ({time} ms)" if timed else "")


def _accuracy(networks: list[dict[str, Any]]) -> str:
    methods = {
        PROPAGATED: "`GradientDASP`", "gradient_dasp_rank_0": "`rank=0`", GRADIENTS: "integrated gradients",
        "DeepLIFT": "DeepLIFT", "permutation_shapley": "permutations", "bayesian_shapley": "`BayesianShapley`",
        "bayesian_shapley_on_gradient_dasp": "on `GradientDASP`",
    }  # fmt: skip
    rows = [["network", "players", *methods.values(), "rank correlation of `GradientDASP`"]]
    for network in networks:
        errors = [_error(network, method, timed=method not in _IN_ITS_TIME) for method in methods]
        correlation = network["figures"][PROPAGATED]["correlation"]
        rows.append([network["name"], str(network["players"]), *errors, f"{correlation:.2f}"])
    return _table(*rows)


def poor(network: dict[str, Any]) -> bool:
    """Whether propagation has more than half the error of integrated gradients."""
    propagated, gradients = (network["figures"][method] for method in (PROPAGATED, GRADIENTS))
    return gradients is not None and propagated["error"] > _HALF * gradients["error"]


def _verdict(networks: list[dict[str, Any]]) -> list[str]:
    compared = [network for network in networks if network["figures"][GRADIENTS] is not None]
    listed = [
        f"- {network['name']}: {_error(network, PROPAGATED)} against {_error(network, GRADIENTS)}"
        for network in compared
        if poor(network)
    ]
    if not listed:
        return [_prose(_GOOD.format(all=len(compared)))]
    return [_prose(_POOR.format(poor=len(listed), all=len(compared))), "\n".join(listed)]


def _sampled(networks: list[dict[str, Any]]) -> str:
    """Whether evaluations are nearer than propagation in its time."""

    def nearer(network: dict[str, Any], method: str) -> bool:
        return bool(network["figures"][method]["error"] < network["figures"][PROPAGATED]["error"])

    permutations, bayesian = ([n["name"] for n in networks if nearer(n, method)] for method in _IN_ITS_TIME[:2])
    nearest = [n["name"] for n in networks if n["name"] not in {*permutations, *bayesian}]
    counts = {"permutations": len(permutations), "bayesian": len(bayesian), "all": len(networks)}
    return _prose(_SAMPLED.format(**counts, nearest="; ".join(nearest) or "none"))


def _refused(networks: list[dict[str, Any]]) -> list[str]:
    listed = [f"- {network['name']}: {network['refused']}" for network in networks if "refused" in network]
    return ["Refused by `GradientDASP`:", "\n".join(listed)] if listed else []


def _defaults(networks: list[dict[str, Any]]) -> list[str]:
    limited = next(name for name in networks[0]["figures"] if name.startswith(f"{DEFAULT}, "))
    rows = [["network", "by itself", "error", "stated", limited.removeprefix(f"{DEFAULT}, "), "error", "stated"]]
    doubtful = []
    for network in networks:
        answers = [network["figures"][name] for name in (DEFAULT, limited)]
        cells = [
            [display_name(answer["method"]), f"{answer['error']:.3f}", f"{answer['stated']:.3f}"] for answer in answers
        ]
        rows.append([network["name"], *cells[0], *cells[1]])
        if poor(network) and any(PROPAGATED in answer["method"] for answer in answers):
            doubtful.append(network["name"])
    return [_table(*rows), _prose(_DOUBTFUL.format(names="; ".join(doubtful)) if doubtful else _SOUND)]


def _lifting(lifted: list[dict[str, Any]]) -> str:
    rows = [["network", "parameters", "trace and lift", "first call", "later call"]]
    rows += [
        [x["name"], f"{x['parameters']:,}", *(f"{x[time]:.2g} s" for time in ("lift", "first", "later"))]
        for x in lifted
    ]
    return _table(*rows)


def family(rule: Rule) -> str:
    """What kind of rule it is, or the file it is in."""
    if rule.moves:
        return "moved"
    if rule.gaussian is None:
        return "apart"
    function = rule.gaussian.func if isinstance(rule.gaussian, partial) else rule.gaussian
    file = str(function.__module__).rsplit(".", 1)[-1]
    return "affine" if file == "registry" else file  # where `affine` makes them; rules with two sides have their own


def _statement(name: str) -> str:
    """How exact a family is; else what its file says of itself."""
    document = sys.modules[f"dasp.propagation.rules.{name}"].__doc__ if name not in _FAMILIES else None
    return _FAMILIES[name] if document is None else document.split("\n\n")[0].replace("\n", " ")


def operations() -> str:
    """All operations of torch that have a rule, by family."""
    families: dict[str, set[str]] = defaultdict(set)
    for op, rule in RULES.items():
        if getattr(op, "namespace", "") == "aten":
            families[family(rule)].add(op.__name__.split(".")[0])
    order = sorted(families, key=lambda name: (list(_FAMILIES).index(name) if name in _FAMILIES else 99, name))
    lines = [
        _prose(f"- **{name}**: {_statement(name)} {', '.join(f'`{op}`' for op in sorted(families[name]))}", "  ")
        for name in order
    ]
    return "\n\n".join(["## Operations", _prose(_OPERATIONS), "\n".join(lines)])


def line(network: dict[str, Any]) -> str:
    """The errors of a network, for a terminal."""
    if "refused" in network:
        return f"{network['name']:30} refused: {network['refused']}"
    cells = [
        f"{name} –" if figure is None else f"{figure['method'] or name} {figure['error']:.3f}"
        for name, figure in network["figures"].items()
    ]
    return f"{network['name']:30} {network['players']:3} players  " + "  ".join(cells)


if __name__ == "__main__":
    PAGE.write_text(page())
