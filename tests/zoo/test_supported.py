"""The page of what is supported is what the registry and the last figures say."""

from __future__ import annotations

import pytest
import torch

import supported
from dasp.propagation.rules import RULES
from modern import ZOO

AGAIN = "the page is out of date: run `python benchmarks/supported.py`"


def test_the_page_is_up_to_date():
    assert supported.PAGE.read_text() == supported.page(), AGAIN


def test_the_figures_are_of_the_zoo():
    assert [network["name"] for network in supported.figures()["networks"]] == [exhibit.name for exhibit in ZOO]


def test_every_operation_is_on_the_page(monkeypatch):
    listed = supported.operations()
    names = {op.__name__.split(".")[0] for op in RULES if getattr(op, "namespace", "") == "aten"}
    assert all(f"`{name}`" in listed for name in names)
    new = torch.ops.aten.nonzero.default
    assert new not in RULES
    monkeypatch.setitem(RULES, new, RULES[torch.ops.aten.flip.default])
    assert "`nonzero`" in supported.operations() != listed


@pytest.mark.parametrize(("propagated", "gradients", "poor"), [(0.2, 0.3, True), (0.1, 0.3, False)])
def test_propagation_is_poor_with_more_than_half_the_error_of_gradients(propagated, gradients, poor):
    figures = {supported.PROPAGATED: {"error": propagated}, supported.GRADIENTS: {"error": gradients}}
    assert supported.poor({"figures": figures}) is poor
