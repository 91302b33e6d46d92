"""What is expected to differ from other libraries' tests, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

__all__ = ["DIFFERENCES", "Difference", "difference_of"]


@dataclass(frozen=True)
class Difference:
    """Tests of a library that do not pass with our classes, and the reason. Their ids match one of some patterns, and
    what they say when they fail has to contain the `line`, so that nothing else hides behind the reason."""

    library: str
    reason: str
    patterns: tuple[str, ...]
    line: str = ""

    def covers(self, test: str, why: str) -> bool:
        """Return True for the id of a test that is expected to differ in this way, and what it says."""
        found = any(fnmatchcase(test, f"*{pattern.replace('[', '[[]')}") for pattern in self.patterns)
        return found and self.line in why


def difference_of(library: str, test: str, why: str) -> Difference | None:
    """Return the first difference that explains why a test does not pass.

    >>> difference_of("shapiq", "test_approximator_shapiq.py::test_approximate_fsi[7]", "Invalid index 'FSII'").reason
    'indices are SV, BV, SII and k-SII'
    """
    return next((each for each in DIFFERENCES if each.library == library and each.covers(test, why)), None)


_NO_ERROR = "not raised"

DIFFERENCES = (
    Difference(
        "captum", "`attribute_future` is there, and the test wants it to be missing",
        ("::test_futures_not_implemented",),
    ),
    Difference(
        "captum", "the progress bar is called by our class, not by Captum's",
        ("test_shapley.py::*show_progress", "test_kernel_shap.py::*show_progress"), "Error progress output",
    ),
    Difference(
        "captum", "`LLMAttribution` gives values for each token of the answer with `BayesianShapley`, and none with "
        "`KernelShap`", ("llm_attr_without_token_1",), "!= None",
    ),
    Difference(
        "captum", "slopes, with `multiply_by_inputs=False`: values of players are differences of outputs",
        ("wo_mutliplying_by_inputs",), "not slopes",
    ),
    Difference(
        "captum", "further arguments that are lists cannot be traced by `torch.export`, which propagation needs",
        ("test_integrated_gradients_basic.py::Test::test_multi_argument_*",), "is a <class 'list'>",
    ),
    Difference(
        "captum", "Shapley values of a difference of ReLUs are not its integrated gradients (1.64 and 1.5)",
        ("test_integrated_gradients_basic.py::Test::test_multivariable_vanilla",), "differ more than by",
    ),
    Difference(
        "captum", "the gap is one number for each row, and `GradientShap` gives one for each of its samples",
        ("test_gradient_shap.py::Test::test_basic_multi_input",
         "test_gradient_shap.py::Test::test_basic_relu_multi_input",
         "test_gradient_shap.py::Test::test_classification"), "Lists differ",
    ),
    Difference(
        "captum", "baselines are values, not functions that draw them",
        ("test_gradient_shap.py::Test::test_classification_baselines_as_function",), "not a function",
    ),
    Difference(
        "captum", "our DeepLIFT has no option `custom_attribution_func`", ("test_deeplift_basic.py::Test::*",),
        "'custom_attribution_func'",
    ),
    Difference(
        "captum", "maxima are divided among their entries by Shapley values, not given to the largest",
        ("test_deeplift_basic.py::Test::test_lin_maxpool_lin_classification",),
    ),
    Difference(
        "captum", "modules may be reused, as the graph is traced; the test wants an error",
        ("test_deeplift_basic.py::Test::test_reusable_modules",), _NO_ERROR,
    ),
    Difference(
        "captum", "logits of a million in float32 are rounded to .1, and the gap is .005, where .003 is allowed",
        ("test_deeplift_classification.py::Test::test_softmax_classification_batch_zero_baseline",),
        "is not nearly equal",
    ),
    Difference(
        "captum", "without a target, or with a part of one, all outputs that are left are explained; the test wants an "
        "error", ("test_targets.py::TestTargets::test_simple_target_missing_error",
                  "test_targets.py::TestTargets::test_multi_target_error"), _NO_ERROR,
    ),
    Difference(
        "captum", "a target that does not fit is a ValueError that says what the outputs are, not an AssertionError",
        ("test_hook_removal.py::TestHookRemoval::test_hook_removal_incorrect_target_or_neuron_*",), "does not fit",
    ),
    Difference(
        "captum", "infidelity to perturbations is that of integrated gradients, and Shapley values are others",
        ("test_infidelity.py::Test::test_classification_infidelity_tpl_target_w_baseline",), "within 0.05 delta",
    ),
    Difference(
        "shap", "a feature without effect has the value 0 up to rounding, which `l1_reg` makes exactly 0",
        ("test_kernel.py::test_linear",),
    ),
    Difference(
        "shap", "rows of text need an encoder, whose columns are then explained",
        ("test_kernel.py::test_non_numeric",), "could not convert string to float",
    ),
    Difference(
        "shap", "log-odds of probabilities that are exactly 0 or 1 are infinite, and are refused",
        ("test_kernel.py::test_kernel_logits_zeros_ones_probs*",), "no finite value",
    ),
    Difference(
        "shap", "the class that stands here for shap's is not saved: that would need a pickle of the function",
        ("::test_serialization",), "has no attribute 'save'",
    ),
    Difference(
        "shap", "explanations of images have the colours last, as `shap.plots.image` takes them",
        ("test_deep.py::test_pytorch_mnist_cnn_call[False-cpu]",),
    ),
    Difference(
        "shap", "the outputs of a layer inside of a model are not explained",
        ("test_deep.py::test_pytorch_mnist_cnn_call[True-*",), "a torch.nn.Module is needed",
    ),
    Difference(
        "shapiq", "with a budget for all coalitions, values are exact and not called estimated",
        ("test_approximator_stratified_sv.py::test_approximate[*", "test_approximator_permutation_sii.py::test_appro*"),
        "assert False is True",
    ),
    Difference(
        "shapiq", "`iteration_cost` is one evaluation, as there are no iterations of many",
        ("test_approximator_permutation_sv.py::test_approximate[*",
         "test_approximator_permutation_sii.py::test_initialization[*"), "assert 1 == ",
    ),
    Difference(
        "shapiq", "interactions are of pairs at most", ("test_approximator_*.py::*",), "up to the order 2",
    ),
    Difference(
        "shapiq", "indices are SV, BV, SII and k-SII", ("test_approximator_*.py::*",), "Invalid index",
    ),
)  # fmt: skip
