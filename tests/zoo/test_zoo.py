"""Today's architectures: each becomes a graph that computes what the network does, and GradientDASP answers for it."""

from __future__ import annotations

import pytest
import torch
from tqdm.auto import tqdm

from dasp import Explainer, GradientDASP
from dasp.games.request import Arguments, Request
from dasp.propagation.coalitions import bernoulli
from modern import ZOO

NETWORKS = {exhibit.name: exhibit for exhibit in ZOO if "pixels" not in exhibit.name}  # those have the same networks


def asked(exhibit, model, rows):
    task = exhibit.task()
    return Request.of(model, Arguments(task.rows(rows), task.baseline, exhibit.target, feature_mask=task.mask))


@pytest.mark.parametrize("name", NETWORKS)
def test_certain_coalitions_are_exact_and_the_values_add_up(name):
    model = NETWORKS[name].built(layers=1)
    request = asked(NETWORKS[name], model, rows=2)
    (game,), (select,) = request.games, request.selections
    method = GradientDASP(model)

    (lifted,) = method.lifts(request)
    members = torch.rand(game.count, generator=torch.Generator().manual_seed(0)) < 0.5
    joined = members.to(game.dtype).expand(game.rows, -1)
    output = lifted.frontier(*game.toggled()).map(lambda x: bernoulli(x, joined)).propagated()
    (evaluator,) = request.evaluators(None, tqdm(disable=True))
    torch.testing.assert_close(select(output.mean).double(), evaluator.worth(members[None])[0], rtol=1e-4, atol=1e-5)
    assert output.total_variance.max() < 1e-8

    estimate = method.explain(request)
    assert not estimate.missed.any()
    assert estimate.values[0].isfinite().all()
    assert (estimate.values[0] != 0).any(0).all()


@pytest.mark.parametrize("name", ["mixture of experts", "U-Net, area", "BERT"])
def test_the_explainer_says_what_it_did(name):
    exhibit = NETWORKS[name]
    task = exhibit.task()
    options = {"target": exhibit.target, "feature_mask": task.mask, "max_evaluations": 64}
    explainer = Explainer(exhibit.built(layers=1), task.baseline, **options)
    result = explainer.attribute(task.rows(1))
    assert "a propagated prior is worth its cost" in result.reason  # else it would say what hinders it
