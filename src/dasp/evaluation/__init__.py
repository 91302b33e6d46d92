"""Any method, judged: its error against the Shapley values, rank correlation, and the six axioms."""

from dasp.evaluation.metrics import completeness_gap, rmse, spearman
from dasp.evaluation.trials import Problem, Result, Trial, compare, evaluations_to_match, front, table, trials

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
