"""How far attributions are from the Shapley values: what `audit` says against what is true."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import nn

import dasp
from dasp import ExactShapley, Explainer, audit, rmse, spearman
from dasp.errors import BadInput
from dasp.explainer.explanation import explanation_class


@pytest.fixture(scope="module")
def trained():
    """A network that is not gentle, with rows it was not trained on and their Shapley values."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    x = torch.randn(600, 12)
    y = (x[:, 0] * x[:, 1] * x[:, 2]).tanh() + x[:, 3:6].prod(1) + x[:, 6] * x[:, 7] + x[:, 8]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        (model(x[:500])[:, 0] - y[:500]).square().mean().backward()
        optimizer.step()
    rows = x[500:540]
    return model.eval(), rows, ExactShapley(model).attribute(rows)


def attributions_of(model, rows, truth):
    noise = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1)) * truth.std()
    return {
        "integrated gradients": IntegratedGradients(model).attribute(rows, target=0),
        "a tenth off": truth + 0.1 * noise,
        "nonsense": noise,
        "wrong sign": -truth,
        "half of it": truth / 2,
    }


def test_intervals_hold_the_actual_error(trained):
    model, rows, truth = trained
    for name, attributions in attributions_of(model, rows, truth).items():
        report = audit(model, attributions, rows)
        told = [(report.rmse, rmse(attributions, truth))]
        if name not in ("wrong sign", "half of it"):  # their correlation is ±1, where no draw is
            told.append((report.correlation, spearman(attributions, truth)))
        for interval, actual in told:
            held = (interval.low <= actual + 1e-6) & (actual - 1e-6 <= interval.high)
            assert float(held.double().mean()) > 0.85, name
        ratio = (report.rmse.middle / rmse(attributions, truth)).log().mean().exp()
        assert 0.7 < float(ratio) < 1.4, name


def test_intervals_narrow_with_evaluations(trained):
    model, rows, truth = trained
    attributions = attributions_of(model, rows, truth)["integrated gradients"]
    few, many = (audit(model, attributions, rows, evaluations=number) for number in (64, 1024))
    widths = [(report.rmse.high / report.rmse.low).log().mean() for report in (few, many)]
    assert float(widths[1]) < 0.3 * float(widths[0])


def test_all_coalitions_give_the_exact_error(trained):
    model, rows, truth = trained
    attributions = attributions_of(model, rows, truth)["a tenth off"]
    report = audit(model, attributions, rows, evaluations=2**12)
    for interval, actual in (
        (report.rmse, rmse(attributions, truth)),
        (report.correlation, spearman(attributions, truth)),
    ):
        for bound in (interval.low, interval.middle, interval.high):
            torch.testing.assert_close(bound.float(), actual, rtol=1e-4, atol=1e-5)
    assert float(report.std.max()) == 0


def test_the_players_that_are_most_off(trained):
    model, rows, truth = trained
    attributions = truth.clone()
    attributions[0, 5] += 3 * truth[0].abs().max()
    report = audit(model, attributions[:1], rows[:1], evaluations=256)
    (worst,) = report.worst(number=1)
    assert worst.player == 5
    assert abs(worst.value - float(truth[0, 5])) < 4 * worst.std
    assert str(worst).startswith("player 5: ")
    assert "1 row, 256 evaluations" in str(report)


def test_idle_players_have_no_value(trained):
    """What attributions say of players who change nothing is an error that needs no evaluation."""
    model, rows, _ = trained
    x = rows[:1].clone()
    x[:, 6:] = 0
    attributions = ExactShapley(model).attribute(x)
    attributions[0, 8] = 7.0
    report = audit(model, attributions, x, evaluations=64)  # 2^6
    assert float(report.rmse.low) == pytest.approx(7 / 12**0.5, rel=1e-4)
    assert float(report.rmse.high) == pytest.approx(7 / 12**0.5, rel=1e-4)
    assert report.worst(number=1)[0].value == 0


def test_groups_are_given_whole_or_by_entry(trained):
    model, rows, _ = trained
    mask = torch.arange(12) // 2
    by_entry = IntegratedGradients(model).attribute(rows, target=0)
    summed = by_entry.view(-1, 6, 2).sum(2).repeat_interleave(2, 1)
    reports = [audit(model, given, rows, feature_mask=mask, evaluations=32) for given in (by_entry, summed)]
    torch.testing.assert_close(reports[0].rmse.middle, reports[1].rmse.middle, rtol=1e-4, atol=0)


def test_all_outputs_a_background_and_arrays():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3)).eval()
    x, background = torch.randn(4, 8), torch.randn(7, 8)
    truth = ExactShapley(model).attribute(x, background)
    report = audit(model, truth.numpy() * 1.5, x, background, evaluations=64)
    assert report.rmse.middle.shape == (4, 3)
    actual = (truth / 2).square().mean(2).sqrt()
    held = (report.rmse.low <= actual) & (actual <= report.rmse.high)
    assert float(held.double().mean()) > 0.7
    assert len(report.worst(0, 2, output=1)) == 2
    with pytest.raises(ValueError, match="choose one by output="):
        report.worst(0)


@pytest.fixture(scope="module")
def explained():
    """A model of three outputs, rows, values by one method and the exact ones: (rows, features, outputs)."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    x = torch.randn(4, 6)
    return model, x, Explainer(model, background=x[:1])(x), ExactShapley(model).attribute(x, x[:1])


def test_layouts_of_shap_and_captum_are_told_apart(explained):
    model, x, explanation, exact = explained
    last = exact.movedim(1, 2)
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    grouped = Explainer(model, background=x[:1], feature_mask=groups)(x)
    arguments = {"baselines": x[:1], "evaluations": 64}
    whole = [audit(model, given, x, **arguments) for given in (explanation, exact, last.numpy())]
    of_one = [
        audit(model, given, x, target=2, **arguments)
        for given in (explanation, explanation[..., 2], last, exact[:, 2], [exact[:, i].numpy() for i in range(3)])
    ]
    others = [
        audit(model, grouped, x, feature_mask=groups, **arguments),
        audit(model, explanation[1], x[1:2], baselines=x[:1]),
        audit(model, explanation, baselines=x[:1], target="predicted", versus="second"),
        audit(model, explanation_class()(last.numpy(), explanation.base_values, x.numpy()), baselines=x[:1]),
    ]
    for report in (*whole, *of_one, *others):
        assert float(report.rmse.high.max()) < 1e-5
        assert report.verdict.startswith("these values are off by less than 1 % of their size; the top ")
        assert float(report.gap.abs().max()) < 1e-5
    assert [each.stated_base is None for each in of_one] == [False, False, True, True, True]


def test_images_with_channels_last():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)).eval()
    x = torch.rand(2, 3, 2, 2)
    explanation = Explainer(model)(x)
    assert explanation.values.shape == (2, 2, 2, 3)
    assert float(audit(model, explanation, x, evaluations=2**12).rmse.high.max()) < 1e-6


@pytest.fixture(scope="module")
def regions():
    """A linear model of images of which nothing but the sums over blocks counts, with images and their explanation."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 1)).eval()
    x = torch.rand(3, 1, 4, 4)
    return model, x, Explainer(model, players="block:2")(x), dasp.players.blocks((1, 4, 4), 2)


def test_explanations_of_regions_say_who_their_players_are(regions):
    model, x, found, blocks = regions
    given = [
        (found, x, None), (found, None, None), (found[0], None, None), (found[:2], x[:2], None),
        (found, x, blocks), (found, x, found.feature_mask), (found.values, x, found.feature_mask),
        (found.by_player(), x, None), (found.by_player(), None, None), (found.by_player()[1], None, None),
        (found.by_player().values, x, found.feature_mask),
        (found.values, x, torch.from_numpy(found.feature_mask.copy())),
        (Explainer(model[1], feature_mask=blocks.flatten())(x.flatten(1)), None, None),
    ]  # fmt: skip
    for attributions, inputs, mask in given:
        flat = inputs is None and attributions.data.dtype == object  # a table of groups, whose data are texts
        report = audit(model[1] if flat else model, attributions, inputs, feature_mask=mask)
        assert float(report.rmse.high.max()) < 1e-6
        assert float(report.relative.high.max()) < 1e-5
        assert not report.doubtful
    assert str(audit(model, found).worst()[0]).startswith("block ")
    off = found.by_player()
    off.values[:, 2] += 5
    assert str(audit(model, off).worst(1)[0]).startswith("block 2: ")


def test_regions_of_square_images_with_three_channels_and_of_each_image():
    """Height, width and channels cannot be told apart by their numbers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(27, 4)).eval()
    x = torch.rand(2, 3, 3, 3)
    own = torch.stack([torch.arange(9).view(1, 3, 3) // 3, torch.arange(9).view(1, 3, 3) % 3]).expand(2, 3, 3, 3)
    for options in ({"players": "block:2"}, {"feature_mask": own}):
        found = Explainer(model, **options)(x)
        for attributions, target in ((found, None), (found[..., 1], 1), (found.by_player(), None)):
            assert float(audit(model, attributions, target=target).rmse.high.max()) < 1e-6
        assert float(audit(model, found, x, target=2).rmse.high.max()) < 1e-6
    pixels = Explainer(model, method="permutation")(x)
    assert float(audit(model, pixels, target=0).rmse.high.max()) < 1e-2


def test_windows_of_series_say_who_their_players_are():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(24, 1)).eval()
    found = Explainer(model, players="window:3")(torch.rand(2, 12, 2))
    assert float(audit(model, found).rmse.high.max()) < 1e-6


def test_equal_entries_of_a_player_are_read_as_they_add_up(regions):
    model, x, _, blocks = regions
    whole = ExactShapley(model).attribute(x, feature_mask=blocks)
    for given, said in ((whole, "taken for its value each"), (whole / 4, "were added up")):
        report = audit(model, given, x, feature_mask=blocks)
        assert float(report.rmse.high.max()) < 1e-6
        assert said in report.reading
        assert said in str(report)
        assert "entries" not in report.verdict
        assert report.to_json()["reading"] == report.reading
    neither = audit(model, 9 * whole, x, feature_mask=blocks)
    assert neither.doubtful
    assert "the equal entries of a player were taken for its value each" in neither.verdict
    assert float(neither.relative.middle.median()) == pytest.approx(8, rel=1e-5)
    assert audit(model, whole, x).reading is None
    varied = whole / 4 + torch.randn(whole.shape, generator=torch.Generator().manual_seed(0)) / 100
    assert audit(model, varied, x, feature_mask=blocks).reading is None


def test_shapes_that_do_not_fit_name_the_argument_that_is_missing(explained, regions):
    model, x, _, exact = explained
    with pytest.raises(
        BadInput, match=r"shape \(4, 6\), and \(4, 3, 6\) is needed: say by target= which of the 3 outputs"
    ):
        audit(model, exact[:, 1], x)
    model, x, found, _ = regions
    with pytest.raises(
        BadInput, match="is needed: say by feature_mask= which entries are one player, if the 4 columns"
    ):
        audit(model, found.by_player().values, x)
    several = nn.Sequential(nn.Flatten(), nn.Linear(16, 10)).eval()
    with pytest.raises(BadInput, match="give the rows that they are of, as many as there are attributions"):
        audit(model, found, x[:1])
    with pytest.raises(BadInput, match="is needed, or a column for each player"):
        audit(model, found.values[:, 0], x)
    with pytest.raises(BadInput, match="say by target= which of the 10 outputs"):
        audit(several, found, x)
    with pytest.raises(BadInput, match="say by target= which of the 10 outputs they are of, and say by feature_mask="):
        audit(several, found.by_player().values, x)


def test_another_base_is_said(explained):
    model, x, explanation, _ = explained
    said = audit(model, explanation, x, target=0).verdict.split("; ")[-1]
    assert said.startswith("their base value is ")
    assert said.endswith("they have other baselines, or are of another output or scale")
    with pytest.raises(BadInput, match="inputs are missing: give the rows"):
        audit(model, explanation.values)


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (0.0, "the top five can be relied on (right with"),
        (0.3, "the top five "),
        (9.0, "the top five cannot be relied on"),
    ],
)
def test_what_is_said_of_the_top_players(trained, noise, said):
    model, rows, truth = trained
    given = truth + noise * torch.randn(truth.shape, generator=torch.Generator().manual_seed(3)) * truth.std()
    report = audit(model, given, rows, evaluations=2**12)
    assert said in report.verdict
    size = truth.abs()
    right = size.gather(1, given.abs().topk(5, 1).indices) >= size.topk(5, 1).values[:, -1:] * (1 - 1e-6)
    torch.testing.assert_close(report.top.right, right.all(1).double())  # all is known
    torch.testing.assert_close(report.top.belonging, right.sum(1).double())
    assert float(report.top.knowable.min()) == 1
    told = json.loads(json.dumps(report.to_json()))
    assert (told["verdict"], told["rows"], told["top"]["number"]) == (report.verdict, 40, 5)
    assert len(told["relative"]["low"]) == 40


def test_the_probability_that_the_top_five_are_right_is_one(trained):
    """Of all rows and errors together: stated probabilities are as high as they come true, coarsely, and the numbers of
    players that belong there, too."""
    model, rows, truth = trained
    stated, true = [], []
    for seed, noise in enumerate((0.02, 0.1, 0.2, 0.4)):
        given = truth + noise * torch.randn(truth.shape, generator=torch.Generator().manual_seed(seed)) * truth.std()
        top = audit(model, given, rows, evaluations=96, seed=seed).top
        size = truth.abs()
        right = size.gather(1, given.abs().topk(5, 1).indices) >= size.topk(5, 1).values[:, -1:] * (1 - 1e-6)
        stated.append(torch.stack([top.right, top.belonging / 5], 1))
        true.append(torch.stack([right.all(1), right.double().mean(1)], 1).double())
    probability, truth_of_it = torch.cat(stated), torch.cat(true)
    for part in (slice(0.0, 0.35), slice(0.35, 0.75), slice(0.75, 1.01)):
        there = (probability[:, 0] >= part.start) & (probability[:, 0] < part.stop)
        assert int(there.sum()) > 15
        off = (probability - truth_of_it)[there].mean(0).abs()
        assert float(off[0]) < 0.15
        assert float(off[1]) < 0.04


def test_few_evaluations_do_not_tell(trained):
    model, rows, truth = trained
    report = audit(model, truth * 0.01, rows, evaluations=10)
    assert "takes more evaluations to say" in report.verdict or "with care" in report.verdict


def test_what_cannot_be_audited(trained):
    model, rows, truth = trained
    with pytest.raises(ValueError, match="is needed"):
        audit(model, truth[:, :5], rows)
    with pytest.raises(ValueError, match="NaN or infinite"):
        audit(model, np.full((40, 12), np.nan), rows)
    with pytest.raises(ValueError, match="evaluations must be at least 10, not 4"):
        audit(model, truth, rows, evaluations=4)
    assert "audit" in dasp.__all__
