"""Which tests are run by one process, which are run first, and which `make quick` leaves out.

All by the beginning of their names. `test_scheduling.py` fails if there is nothing of such a name any more.
"""

from __future__ import annotations

import re

__all__ = ["BY_CASE", "FIRST", "SLOW", "TOGETHER", "group", "is_slow", "place"]

# What `make quick` leaves out, beside all tests in a browser: jobs, pages, figures, notebooks, the reproduction of the
# paper, commands as processes of their own, and of the mathematics what takes seconds, or says again what others say.
# Moments that test_rules compares with samples are marked there.
SLOW = (
    "reproduction/",
    "src/dasp/jobs/",
    "src/dasp/pages/",
    "tests/attribution/test_accuracy.py",
    "tests/attribution/test_any_model.py",
    "tests/attribution/test_bayesian_shapley.py::test_a_good_prior_is_not_lost_and_a_wrong_one_is_overcome",
    "tests/attribution/test_bayesian_shapley.py::test_converges_with_honest_error_bars",
    "tests/attribution/test_dasp.py::test_result_does_not_depend_on_the_batch_size",
    "tests/attribution/test_deeplift.py",
    "tests/attribution/test_differences.py",
    "tests/attribution/test_gradient_dasp.py::test_result_does_not_depend_on_the_batch_size",
    "tests/attribution/test_interaction_regression.py",
    "tests/attribution/test_regression.py::test_interactions_of_a_game_cut_the_error_and_error_bars_hold",
    "tests/attribution/test_semivalues.py",
    "tests/attribution/test_threads.py",
    "tests/attribution/test_tokens.py",
    "tests/docs/",
    "tests/evaluation/",
    "tests/examples/",
    "tests/explainer/test_game_explainer.py",
    "tests/explainer/test_indices.py",
    "tests/games/test_mask_function.py",
    "tests/hostile/",
    "tests/jobs/",
    "tests/methods/test_catalogue.py::test_comparisons_with_any_arguments",
    "tests/models/test_calling.py::test_torch_writes_nothing_while_a_model_is_traced",
    "tests/pages/",
    "tests/plots/",
    "tests/propagation/test_lifting.py::test_models_as_people_write_them",
    "tests/propagation/test_maximum_ties.py",
    "tests/propagation/test_rules.py::test_every_rule_has_a_case",
    "tests/reproduction/",
    "tests/test_command.py",
    "tests/test_package.py",
    "tests/test_start.py",
    "tests/zoo/",
)
SLOW_CASES = r"tests/propagation/test_rules\.py::test_moments\[.*-0\]"  # those of rank 3 have variances, too

# With several processes, tests that share something that takes long to make are run by one of them: those of a file or
# folder, or in two files those of a case of test_rules, whose graph is traced once. All others go to whoever is free.
TOGETHER = (
    "tests/docs/test_notebooks.py",  # one kernel
    "tests/docs/test_site.py",  # one build
    "tests/jobs/test_ray.py",  # one Ray
    "tests/pages/",  # pages of all kinds
    "tests/reproduction/test_peers.py",  # what shap compiles
    "tests/reproduction/test_reproduce.py",  # one run of the experiments
)
BY_CASE = ("tests/attribution/test_differences.py", "tests/propagation/test_rules.py")

# What takes longest, a file that stays together or a test: run first, in this order, so that no process is left alone
# with it at the end. `pytest --durations=20` tells what belongs here.
FIRST = (
    "tests/docs/test_notebooks.py",
    "tests/pages/",
    "tests/jobs/test_ray.py",
    "tests/reproduction/test_reproduce.py",
    "tests/reproduction/test_peers.py",
    "tests/attribution/test_accuracy.py",
    "tests/propagation/test_rules.py::test_every_rule_has_a_case",
)


def is_slow(name: str) -> bool:
    """Whether `make quick` leaves a test, a file or a folder out.

    >>> is_slow("tests/jobs/test_ray.py::test_same_bytes"), is_slow("tests/games/test_request.py")
    (True, False)
    >>> [is_slow(f"tests/propagation/test_rules.py::test_moments[relu-{rank}]") for rank in (0, 3)]
    [True, False]
    """
    return name.startswith(SLOW) or re.fullmatch(SLOW_CASES, name) is not None


def group(name: str) -> str:
    """The tests that one process is to run, for the name of one of them.

    >>> group("tests/jobs/test_ray.py::test_bytes"), group("tests/test_start.py::test_import")
    ('tests/jobs/test_ray.py', 'tests/test_start.py::test_import')
    >>> group("tests/propagation/test_rules.py::test_moments[max dim-3]")
    'case max dim'
    """
    file, _, test = name.partition("::")
    if file in BY_CASE and test.endswith("]"):
        return "case " + re.sub(r"(-\d.*)?\]$", "", test.partition("[")[2])
    return next((start for start in TOGETHER if name.startswith(start)), name)


def place(name: str) -> int:
    """When a test is run, relative to others.

    >>> place("tests/docs/test_notebooks.py::test_there_are_four") < place("tests/pages/test_report.py::test_one")
    True
    """
    return next((number for number, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))
