"""The attribution methods, in Captum's interface."""
