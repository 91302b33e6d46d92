"""The paper's first network: how close each method is to the exact values of its 18 inputs."""

from __future__ import annotations

import pytest
import torch
from captum.attr import IntegratedGradients

import parkinsons
from dasp import DASP, ExactShapley, GradientDASP, rmse


@pytest.mark.skipif(parkinsons.data_file() is None, reason="$DASP_DATA has no parkinsons_updrs.csv")
def test_correlations_and_moments_each_divide_the_error_by_three():
    model, rows, error = parkinsons.trained(epochs=60)
    assert error < 7
    rows = rows[:10]
    truth = ExactShapley(model).attribute(rows)
    errors = {
        name: rmse(method.attribute(rows).detach(), truth).mean()
        for name, method in {
            "gradients": IntegratedGradients(model),
            "diagonal": DASP(model),
            "full": DASP(model, rank="full"),
            "gradient dasp": GradientDASP(model),
        }.items()
    }
    assert errors["diagonal"] < errors["gradients"] / 3
    assert errors["full"] < errors["diagonal"] / 2  # about a third over more rows: benchmarks/parkinsons.py
    assert errors["gradient dasp"] < errors["gradients"] / 3


def test_a_synthetic_function_of_18_inputs(monkeypatch):
    monkeypatch.delenv("DASP_DATA", raising=False)
    model, rows, _ = parkinsons.trained(epochs=20)
    rows = rows[:5]
    truth = ExactShapley(model).attribute(rows)
    diagonal, full = (rmse(DASP(model, rank=rank).attribute(rows), truth).mean() for rank in (0, "full"))
    assert full < diagonal / 2
    assert torch.isfinite(diagonal)
