"""The command line of the fuzzer of arguments: python -m tests.hostile.fuzz_arguments SECONDS [SEED]"""

from __future__ import annotations

import sys

from tests.hostile.argument_fuzzer import fuzz

if __name__ == "__main__":
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    number, findings = fuzz(seconds, seed)
    print(*findings, f"arguments: {number:,} calls, {len(findings)} findings", sep="\n")
    sys.exit(bool(findings))
