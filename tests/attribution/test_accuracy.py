"""The paper's first network: how close each method is to the exact values of its 18 inputs."""

from __future__ import annotations

import pytest
import torch
from captum.attr import IntegratedGradients

from dasp import DASP, ExactShapley, GradientDASP, rmse
from reproduction.experiment import Data
from reproduction.parkinsons import Parkinsons


def trained(data, epochs):
    experiment = Parkinsons()
    experiment.epochs = epochs
    return experiment.train(data), experiment


def test_moments_divide_the_error_of_gradients_by_eight_and_correlations_halve_it_again():
    data = Parkinsons().data()
    if data.stands_in_for:
        pytest.skip("$DASP_DATA has no parkinsons_updrs.csv")
    model, experiment = trained(data, epochs=60)
    assert experiment.quality(model, data)["test MAE"] < 6.5
    rows = data.test[0][:12]
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
    assert errors["diagonal"] < errors["gradients"] / 8
    assert errors["full"] < errors["diagonal"] / 2
    assert errors["gradient dasp"] < errors["gradients"] / 8


def test_a_synthetic_function_of_18_inputs():
    torch.manual_seed(0)
    x = torch.rand(5000, 18) * 2 - 1
    y = 30 + 8 * torch.sin(x @ torch.randn(18, 8)).sum(1) + 5 * (x[:, :6] * x[:, 6:12]).sum(1)
    model, _ = trained(Data((x, y), (x, y), ["input"] * 18, "synthetic"), epochs=30)
    rows = x[:2]
    truth = ExactShapley(model).attribute(rows)
    diagonal, full = (rmse(DASP(model, rank=rank).attribute(rows), truth).mean() for rank in (0, "full"))
    assert torch.isfinite(diagonal)
    assert full < diagonal / 2
