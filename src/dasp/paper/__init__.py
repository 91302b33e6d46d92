"""The paper's experiments reproduced, and our estimators against other libraries."""
