"""Other libraries' own tests, run on our classes: `python -m conformance --captum CHECKOUT --shap … --shapiq …`.

A test file of Captum's, shap's or shapiq's is run as it is, from a checkout that the caller has; before it is imported,
a plugin puts our classes in the place of the library's (`captum_classes`, `shap_classes`, `shapiq_classes`). What is
expected to differ is a table with a reason for each entry (`differences`); anything else that fails is a failure. No
code of theirs is part of this repository.
"""
