"""Run other libraries' tests on our classes: `python -m conformance --captum CHECKOUT --shap … --shapiq … [--save]`."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conformance.differences import DIFFERENCES, difference_of

__all__ = ["LIBRARIES", "Library", "Result", "judged", "main", "page"]

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "conformance.md"


@dataclass(frozen=True)
class Library:
    """A library: its name, the test files that are run, and what ours are put in the place of."""

    name: str
    files: tuple[str, ...]
    classes: tuple[tuple[str, str], ...]  # of theirs, and of ours
    from_checkout: bool = False  # it is imported from the checkout, as it is Python only; else the installed one is


LIBRARIES = (
    Library(
        "captum",
        tuple(f"tests/{name}.py" for name in (
            "attr/test_shapley", "attr/test_kernel_shap", "attr/test_llm_attr", "attr/test_integrated_gradients_basic",
            "attr/test_integrated_gradients_classification", "attr/test_gradient_shap", "attr/test_deeplift_basic",
            "attr/test_deeplift_classification", "attr/test_targets", "attr/test_hook_removal", "attr/test_baselines",
            "attr/test_jit", "metrics/test_sensitivity", "metrics/test_infidelity",
        )),
        (("ShapleyValueSampling", "PermutationShapley"), ("ShapleyValues", "ExactShapley"),
         ("KernelShap", "BayesianShapley"), ("IntegratedGradients", "GradientDASP"),
         ("GradientShap", "GradientShapley"), ("DeepLift", 'DeepLiftRevealCancel, rule="rescale"')),
        from_checkout=True,
    ),
    Library(
        "shap",
        (*(f"tests/explainers/test_{name}.py" for name in ("kernel", "permutation", "sampling", "exact", "deep")),
         "tests/plots"),
        (("KernelExplainer", 'Explainer, method="bayesian"'),
         ("PermutationExplainer", 'Explainer, method="permutation"'),
         ("SamplingExplainer", 'Explainer, method="permutation"'), ("ExactExplainer", 'Explainer, method="exact"'),
         ("DeepExplainer", 'Explainer, method="deeplift_revealcancel"'),
         ("the explainer of tests of plots", 'Explainer, method="bayesian"')),
    ),
    Library(
        "shapiq",
        tuple(f"tests/shapiq/tests_unit/tests_approximators/test_approximator_{name}.py" for name in (
            "kernelshap", "unbiased_ksh", "permutation_sv", "stratified_sv", "svarm", "kernelshapiq", "shapiq",
            "permutation_sii",
        )),
        (("KernelSHAP, UnbiasedKernelSHAP, StratifiedSamplingSV, SVARM", 'ShapiqApproximator, method="bayesian"'),
         ("PermutationSamplingSV", 'ShapiqApproximator, method="permutation"'),
         ("KernelSHAPIQ, SHAPIQ, PermutationSamplingSII", 'ShapiqApproximator, index="k-SII"')),
    ),
)  # fmt: skip


@dataclass
class Result:
    """The tests of a library in which objects of ours were made, by what became of them."""

    version: str = ""
    passed: list[str] = field(default_factory=list)
    differ: dict[str, list[str]] = field(default_factory=dict)  # by reason
    failed: dict[str, str] = field(default_factory=dict)  # with the last line
    not_run: dict[str, str] = field(default_factory=dict)  # that do not pass with the library's own classes, with why
    agree: list[str] = field(default_factory=list)  # reasons for differences that there are none of


def outcomes(library: Library, checkout: Path, *, ours: bool, only: list[str] | None = None) -> dict[str, Any]:
    """Run the tests, with our classes or the library's own, and return what the plugin `outcomes` writes."""
    files = [name for name in library.files if (checkout / name).exists()]
    if not files:
        raise SystemExit(f"{checkout}: there are no tests of {library.name}")
    path = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if library.from_checkout:
        path.insert(0, str(checkout))
    plugins = ["-p", "conformance.outcomes", *(["-p", f"conformance.{library.name}_classes"] if ours else [])]
    with tempfile.TemporaryDirectory() as folder:
        found, settings, wanted = (Path(folder) / name for name in ("outcomes.json", "pytest.ini", "only.json"))
        settings.write_text("[pytest]\n")
        told = {"CONFORMANCE_OUTCOMES": str(found), "PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}
        if only is not None:
            wanted.write_text(json.dumps(only))
            told["CONFORMANCE_ONLY"] = str(wanted)
        quiet = ["-q", "--tb=short", "--disable-warnings", "-p", "no:cacheprovider"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(settings),
            "--rootdir",
            str(checkout),
            *plugins,
            *quiet,
            *files,
        ]
        done = subprocess.run(command, cwd=checkout, env=os.environ | told, capture_output=True, text=True, check=False)
        if not found.exists():
            raise SystemExit(f"the tests of {library.name} did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return json.loads(found.read_text())


def judged(library: str, ours: dict[str, Any], own: dict[str, Any]) -> Result:
    """Return what became of the tests with our classes; `own` has the outcomes of those that did not pass, and were not
    expected to differ, with the library's own."""
    result = Result()
    for test, found in ours.items():
        why = found["why"]
        expected = difference_of(library, test, why)
        if found["outcome"] == "passed":
            if found["ours"]:
                result.passed.append(test)
        elif found["outcome"] == "failed" and expected is not None:
            result.differ.setdefault(expected.reason, []).append(test)
        elif found["outcome"] == "skipped" or own.get(test, {}).get("outcome", "passed") != "passed":
            result.not_run[test] = own.get(test, found)["why"] or why
        else:
            result.failed[test] = why
    reasons = [each.reason for each in DIFFERENCES if each.library == library]
    result.agree = [reason for reason in reasons if reason not in result.differ]
    return result


def run(library: Library, checkout: Path) -> Result:
    """Run a library's tests on our classes, and once more on its own those that fail without being expected to."""
    ours = outcomes(library, checkout, ours=True)
    left = [
        test
        for test, found in ours.items()
        if found["outcome"] == "failed" and not difference_of(library.name, test, found["why"])
    ]
    own = outcomes(library, checkout, ours=False, only=left) if left else {}
    result = judged(library.name, ours, own)
    result.version = _version(library, checkout)
    return result


def _version(library: Library, checkout: Path) -> str:
    described = subprocess.run(
        ["git", "describe", "--tags", "--always"], cwd=checkout, capture_output=True, text=True, check=False
    )
    tests = described.stdout.strip() if (checkout / ".git").exists() else ""
    return tests if library.from_checkout else f"{version(library.name)}, tests of {tests or 'the same version'}"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def summary(results: dict[str, Result | str]) -> list[list[str]]:
    """Return a line of numbers for each library, or the reason why there is none."""
    rows = []
    for name, result in results.items():
        if isinstance(result, str):
            rows.append([name, result, "", "", "", ""])
        else:
            differ = sum(map(len, result.differ.values()))
            numbers = (len(result.passed), differ, len(result.failed), len(result.not_run))
            rows.append([name, result.version, *map(str, numbers)])
    return rows


HEADS = ["library", "version", "passed", "expected to differ", "failed", "not run"]


def page(results: dict[str, Result | str], before: str = "") -> str:
    """Return the page of the documentation. What is not run has what the page said before."""
    lines = {name: re.search(rf"^\| {name} \|.*\|$", before, re.MULTILINE) for name in results}
    rows = [line[0].strip("| ").split(" | ") if isinstance(results[row[0]], str) and (line := lines[row[0]]) else row
            for row in summary(results)]  # fmt: skip
    parts = [INTRODUCTION, _table(HEADS, rows)]
    for library in LIBRARIES:
        result = results[library.name]
        section = re.search(rf"^## {library.name}\n.*?(?=^## |\Z)", before, re.MULTILINE | re.DOTALL)
        if isinstance(result, str) and section:
            parts.append(section[0].strip())
            continue
        parts.append(f"## {library.name}")
        rows = [[f"`{theirs}`" if theirs[0].isupper() else theirs, f"`{ours}`"] for theirs, ours in library.classes]
        parts.append(_table(["in the place of", "stands"], rows))
        if isinstance(result, Result):
            if result.differ:
                differ = [[reason, str(len(tests))] for reason, tests in result.differ.items()]
                parts.append(_table(["what is expected to differ", "tests"], differ))
            reasons = Counter(_short(why) for why in result.not_run.values()).most_common()
            if reasons:
                parts.append(_table(["why tests do not run", "tests"], [[why, str(count)] for why, count in reasons]))
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """# Other libraries' tests

Captum, shap and shapiq have tests of their own, which know nothing of this library. `make conformance` runs them as
they are on our classes, from checkouts that you name; no code of theirs is part of this repository:

```
make conformance CAPTUM=../captum SHAP=../shap SHAPIQ=../shapiq
```

A library without a checkout is left out. Captum is imported from its checkout; shap and shapiq are those that are
installed, so that their checkouts should be at the same version. Only tests that make an object of ours count. A test
fails if it passes with the library's own class and not with ours, unless it is in the list of what is expected to
differ, with the reason (`conformance/differences.py`). Tests that do not pass with the library's own classes either
(there is no network, or a package is not installed) are not run. This page is written by
`make conformance … SAVE=1`; a library that is left out keeps what was said of it."""


def _short(why: str) -> str:
    """Return a reason without what is particular to a machine."""
    for told, said in (
        ("xgboost", "xgboost is not installed"), ("lightgbm", "lightgbm is not installed"),
        ("tensorflow", "TensorFlow is not installed"), ("transformers", "transformers is not installed"),
        ("urlopen", "there is no network"), ("resolve", "there is no network"), ("connect", "there is no network"),
        ("openai", "openai is not installed"), ("cuda", "there is no GPU"), ("GPU", "there is no GPU"),
        ("pyspark", "pyspark is not installed"), ("mlx", "there is no GPU"), ("device", "there is no GPU"),
    ):  # fmt: skip
        if told.lower() in why.lower():
            return said
    return why.replace("|", "\\|").splitlines()[0][:100] if why else "no reason is given"


def main(arguments: list[str] | None = None) -> int:
    """Run the tests of the libraries that there are checkouts of; 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    for library in LIBRARIES:
        parser.add_argument(f"--{library.name}", default="", metavar="CHECKOUT", help=f"a checkout of {library.name}")
    parser.add_argument("--save", action="store_true", help="write docs/conformance.md")
    given = parser.parse_args(arguments)
    results: dict[str, Result | str] = {}
    for library in LIBRARIES:
        checkout = getattr(given, library.name)
        results[library.name] = run(library, Path(checkout).resolve()) if checkout else "skipped: no checkout was named"
    for name, result in results.items():
        if isinstance(result, Result):
            for test, why in result.failed.items():
                print(f"FAILED {name}: {test}: {why}")
            for reason in result.agree:
                print(f"no longer differs, {name}: {reason}")
    width = [max(len(row[i]) for row in [HEADS, *summary(results)]) for i in range(len(HEADS))]
    for row in [HEADS, *summary(results)]:
        print("  ".join(cell.ljust(size) for cell, size in zip(row, width, strict=True)).rstrip())
    if given.save:
        PAGE.write_text(page(results, PAGE.read_text() if PAGE.exists() else ""))
    return int(any(isinstance(result, Result) and result.failed for result in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
