"""The methods, what each can do and costs, and the choice among them."""

from dasp.methods.catalogue import GRADIENT, METHODS, Method, MethodOnModel, find

__all__ = ["GRADIENT", "METHODS", "Method", "MethodOnModel", "find"]
