"""The estimators, each a `captum.attr.Attribution`."""
