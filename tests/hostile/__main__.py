"""Look for what hurts: `make fuzz`, or `python -m tests.hostile [--seconds 3600] [--seed 0] [--only files,metadata]`.
`python -m tests.hostile --cases` prints all cases of the tables instead, with the exit code and the line of each.

A third of the time is for each part: files that `dasp explain` reads, outputs that `dasp report` reads, and arguments
of the library. What was tried is printed, and every finding; the exit code is 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("hostile", "jobs", "explainer"))  # as pytest has it

import file_fuzzer
import output_fuzzer
from cases import all_cases, table
from fuzzer import fuzz

Part = Callable[[float, int], tuple[Any, list[Any]]]


def parts() -> dict[str, Part]:
    """The parts by their names; each is given seconds and a seed, and returns what it tried and what it found."""
    found: dict[str, Part] = {
        "files": lambda seconds, seed: fuzz(file_fuzzer.subjects(), seconds, seed),
        "metadata": lambda seconds, seed: fuzz(output_fuzzer.subjects(), seconds, seed),
    }
    if find_spec("argument_fuzzer"):
        found["arguments"] = import_module("argument_fuzzer").fuzz
    return found


def main() -> None:
    """Run the parts one after the other."""
    known = parts()
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=",".join(known), help="names of parts, with commas between")
    parser.add_argument("--cases", action="store_true", help="print the cases of the tables as they are answered")
    options = parser.parse_args()
    if options.cases:
        for line in table(all_cases()):
            print(line, flush=True)
        return
    chosen = options.only.split(",")
    findings = 0
    for name in chosen:
        tried, found = known[name](options.seconds / len(chosen), options.seed)
        lines = [f"{kind}: {what}" for kind, what in tried.items()] if isinstance(tried, dict) else [str(tried)]
        print(f"{name}:", *lines, sep="\n  ", flush=True)
        for one in found:
            print(f"FINDING {one}", flush=True)
        findings += len(found)
    print(f"{findings} finding{'s' * (findings != 1)}")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
