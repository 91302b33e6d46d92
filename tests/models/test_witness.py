"""Models whose rows depend on the batch are refused, or answered as if every row were alone."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from dasp import DASP, BayesianShapley, ExactShapley, Explainer, GradientDASP, GradientShapley, PermutationShapley
from dasp.errors import UnsupportedOperation, UntraceableModel
from dasp.models.witness import Places, Witness

INPUTS = 7


@cache
def layer() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 6), nn.Tanh(), nn.Linear(6, 2)).eval()


def normalised(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def places(y: Tensor) -> Tensor:
    return torch.arange(len(y))[:, None]


# What a batch does to its rows, as functions of the outputs of a network that does nothing of the kind.
MIXING = {
    "their number counts": lambda y: y * (1 + len(y) / 10),
    "the first row is added": lambda y: y + y[:1],
    "the last row is added": lambda y: y + y[-1:],
    "largest so far": lambda y: y.cummax(0).values,
    "rows beyond 16 are 0": lambda y: torch.where(places(y) < 16, y, 0),
    "normalised by the batch": normalised,
    "softmax over the batch": lambda y: y.softmax(0),
    "centred by the batch": lambda y: y - y.mean(0),
    "sorted": lambda y: y.sort(0).values,
    "turned around": lambda y: y.flip(0),
    "moved by one": lambda y: y.roll(1, 0),
    "added up": lambda y: y.cumsum(0),
    "the more rows, the less of them": lambda y: y / len(y) ** 0.5,
    "every other row is doubled": lambda y: y * (1 + places(y) % 2),
    "more than 100 are doubled": lambda y: y * (2 if len(y) > 100 else 1),
    "the row before is added": lambda y: y + torch.cat([torch.zeros_like(y[:1]), y[:-1]]),
    "the largest of the batch is added": lambda y: y + y.amax(0, keepdim=True),
}


class Mixing(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.layer = form, layer()

    def forward(self, x: Tensor) -> Tensor:
        return MIXING[self.form](self.layer(x))


ESTIMATORS = {
    "exact": lambda model, x: ExactShapley(model).attribute(x),
    "bayesian": lambda model, x: BayesianShapley(model).attribute(x, max_evaluations=100),
    "a small budget": lambda model, x: BayesianShapley(model).attribute(x, max_evaluations=30),
    "permutation": lambda model, x: PermutationShapley(model).attribute(x),
    "gradients": lambda model, x: GradientShapley(model).attribute(x, n_pairs=16),
    "dasp": lambda model, x: DASP(model, rank="full").attribute(x),
    "gradient dasp": lambda model, x: GradientDASP(model).attribute(x, nodes=20),
    "explainer": lambda model, x: Explainer(model).attribute(x).values,
    "explainer of a method": lambda model, x: (
        Explainer(model, method="bayesian_shapley_on_gradient_dasp").attribute(x).values
    ),
}


def rows(number: int) -> Tensor:
    return torch.randn(number, INPUTS, generator=torch.Generator().manual_seed(1))


@cache
def alone(name: str, number: int) -> Tensor:
    """What the network itself has as values; the oracle wherever a form does nothing to a row that is alone."""
    return ESTIMATORS[name](layer(), rows(number))


ONCE = {"gradient dasp": 1, "explainer of a method": 1, "dasp": 3}  # as every model is traced


@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name in ESTIMATORS for n in (1, 3) if ONCE.get(name, n) == n]
)
def test_models_that_mix_rows_are_refused_or_answered_right(name, number):
    refused = set()
    for form in MIXING:
        try:
            found = ESTIMATORS[name](Mixing(form).eval(), rows(number))
        except (UnsupportedOperation, UntraceableModel):  # which say what to do, too
            refused.add(form)
        except ValueError as error:
            refused.add(form if "internal_batch_size=1" in str(error) else repr(error))
        else:
            assert does_nothing_alone(form), form
            torch.testing.assert_close(found, alone(name, number), rtol=1e-3, atol=1e-4, msg=form)
    assert len(refused) >= 15
    assert refused <= set(MIXING)


def does_nothing_alone(form: str) -> bool:
    y = torch.randn(1, 2, generator=torch.Generator().manual_seed(2))
    return torch.equal(MIXING[form](y), y)


@pytest.mark.parametrize("form", list(filter(does_nothing_alone, MIXING)))
def test_one_row_at_a_time_is_the_way_out(form):
    found = ExactShapley(Mixing(form).eval()).attribute(rows(2), internal_batch_size=1)
    torch.testing.assert_close(found, alone("exact", 2), rtol=1e-3, atol=1e-4)


def test_a_hundredth_is_evaluated_again():
    evaluated = []

    def counted(x: Tensor) -> Tensor:
        evaluated.append(len(x))
        return layer()(x)

    for number, permutations in ((1, 170), (20, 80), (20, 8)):
        evaluated.clear()
        PermutationShapley(counted).attribute(rows(number), n_permutations=permutations)
        asked = number * permutations * 2 * (INPUTS - 1)
        assert 0 < sum(evaluated) - asked - number - 2 <= 12 + 0.012 * asked


class Counting(nn.Module):
    """The network, doubled for all rows but the first if it is told so; it counts what it evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.doubled, self.own = nn.Linear(INPUTS, 2), False, [0]

    def forward(self, x: Tensor) -> Tensor:
        self.own[0] += len(x)
        y = self.layer(x)
        return torch.cat([y[:1], 2 * y[1:]]) if self.doubled else y

    def evaluated(self) -> int:
        """The rows that a call takes."""
        before = self.own[0]
        PermutationShapley(self).attribute(rows(1), n_permutations=2)
        return self.own[0] - before


def test_a_module_that_has_passed_is_known_until_it_is_changed():
    model = Counting().eval()
    first, later = model.evaluated(), model.evaluated()
    assert first == later + 2 + 2 + 2  # two rows at first, each of them alone, and two of the largest batch
    assert model.evaluated() == later
    with torch.no_grad():
        model.layer.weight.mul_(2)
    assert [model.evaluated(), model.evaluated()] == [first, later]
    model.layer.bias = nn.Parameter(torch.ones(2))
    assert [model.evaluated(), model.evaluated()] == [first, later]
    hook = model.layer.register_forward_hook(lambda module, args, output: output)
    assert [model.evaluated(), model.evaluated()] == [first, later]
    hook.remove()
    assert [model.evaluated(), model.evaluated()] == [first, later]
    model.doubled = True
    for _ in range(2):  # what has failed is not known
        with pytest.raises(ValueError, match="internal_batch_size=1"):
            model.evaluated()
    model.doubled = False
    assert [model.evaluated(), model.evaluated()] == [first, later]


def test_a_larger_batch_than_ever_is_looked_at():
    """Of a module that is known, too: 20 rows were not more than 100."""
    model = Mixing("more than 100 are doubled").eval()
    ExactShapley(model).attribute(rows(1), internal_batch_size=20)
    with pytest.raises(ValueError, match="internal_batch_size=1"):
        ExactShapley(model).attribute(rows(1))


def test_what_is_rounding_is_no_mixing():
    """Products of matrices are added up in another order in other batches, in half precision most of all."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        torch.manual_seed(0)
        wide = nn.Sequential(nn.Linear(10, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 2))
        found = PermutationShapley(wide.to(dtype).eval()).attribute(torch.ones(3, 10, dtype=dtype), n_permutations=4)
        assert found.dtype == dtype


def test_random_numbers_are_told_from_mixing():
    generator = torch.Generator().manual_seed(0)
    noisy = lambda x: x.sum(1) + torch.rand(len(x), generator=generator)
    for size in (None, 1):
        with pytest.raises(ValueError, match="differ from one evaluation to the next"):
            ExactShapley(noisy).attribute(rows(2), internal_batch_size=size)


def test_outputs_whose_shape_varies_are_refused():
    varying = lambda x: x[:, : 1 + len(x) // 50]
    with pytest.raises(ValueError, match="the same outputs, whatever stands in it and beside it"):
        ExactShapley(varying).attribute(rows(2))


def test_one_number_for_a_batch_is_of_the_batch():
    """In which an entry is one player for all rows, as Captum has it; of a part of the batch, it is nobody's."""
    total = lambda x: layer()(x).sum()
    with pytest.raises(ValueError, match="one number for a batch|one answer for the whole batch"):
        ExactShapley(total).attribute(rows(3), internal_batch_size=1)
    of_three = ExactShapley(total).attribute(rows(3))
    torch.testing.assert_close(of_three, alone("exact", 3).sum(1).sum(0, keepdim=True), rtol=1e-4, atol=1e-5)
    of_one = ExactShapley(total).attribute(rows(1), internal_batch_size=1)
    torch.testing.assert_close(of_one, alone("exact", 1).sum(1), rtol=1e-4, atol=1e-5)
    squeezing = lambda x: layer()(x)[:, :1].squeeze()
    found = ExactShapley(squeezing).attribute(rows(3), internal_batch_size=1)
    torch.testing.assert_close(found, alone("exact", 3)[:, 0], rtol=1e-4, atol=1e-5)


def test_places_are_the_same_every_time():
    first, second = Places(), Places()
    batches = [2, 1, 4, 64, 2048, 2048, 500, 2048, 16384]
    drawn = [first.of(rows) for rows in batches]
    assert drawn == [second.of(rows) for rows in batches]
    assert all(place < rows for rows, groups in zip(batches, drawn, strict=True) for group in groups for place in group)
    assert sum(len(group) for groups in drawn for group in groups) <= 0.02 * sum(batches)


def test_arguments_that_the_model_writes_into_are_no_mixing():
    def greedy(x: Tensor, scale: Tensor) -> Tensor:
        scale.mul_(2)
        x.mul_(scale)
        return x.sum(1)

    witness = Witness(greedy, (True, False))
    assert witness(torch.ones(5, 2), torch.ones(2)).tolist() == [4.0] * 5
