"""Figures for explanations and comparisons: plain data in, a matplotlib `Figure` out, no global state."""
