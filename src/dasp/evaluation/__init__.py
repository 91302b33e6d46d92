"""Attribution methods compared with the Shapley values, and checked.

- `metrics`: RMSE, rank correlation and completeness of attributions, whose true values are known
- `compare`: methods on a problem, with their errors against evaluations and time
- `axioms`: the paper's six axioms, measured on any model
- `audit`: how far attributions are from the Shapley values, where these are not known
"""

from dasp.evaluation.compare import Problem, Result, Trial, compare, evaluations_to_match, front, table, trials
from dasp.evaluation.metrics import completeness_gap, rmse, spearman

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
