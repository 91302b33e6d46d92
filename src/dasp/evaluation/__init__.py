"""Attribution methods compared with the Shapley values, and checked.

- `compare`: methods on a problem, with their errors (RMSE, rank correlation, completeness) against evaluations and time
- `axioms`: the paper's six axioms, measured on any model
- `audit`: how far attributions are from the Shapley values, where these are not known
"""

from dasp.evaluation.compare import (
    Problem,
    Result,
    Trial,
    compare,
    completeness_gap,
    evaluations_to_match,
    front,
    rmse,
    spearman,
    table,
    trials,
)

__all__ = [
    "Problem",
    "Result",
    "Trial",
    "compare",
    "completeness_gap",
    "evaluations_to_match",
    "front",
    "rmse",
    "spearman",
    "table",
    "trials",
]
