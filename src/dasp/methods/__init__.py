"""Every method, what it can do, what it costs, and which to choose."""

from dasp.methods.table import GRADIENT, METHODS, Method, MethodOnModel

__all__ = ["GRADIENT", "METHODS", "Method", "MethodOnModel"]
