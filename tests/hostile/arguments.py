"""Odd arguments, as data: what people and programs hand to `attribute`, and what must happen.

`ODD` has, for every argument, values that are odd, each with what is meant by it (then the answer must be the same as
for that) or with a part of the sentence that refuses it. `MODELS` has odd models. The tests change one argument of a
plain call at a time, for every estimator and for `Explainer`; the fuzzer changes several.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dasp import (
    DASP,
    BayesianShapley,
    DeepLiftRevealCancel,
    ExactShapley,
    Explainer,
    GradientDASP,
    GradientShapley,
    PermutationShapley,
)

INPUTS, OUTPUTS, ROWS = 4, 3, 2
LEFT_OUT: Any = object()  # as a meaning: the argument is not given


@dataclass(frozen=True)
class Odd:
    """A value, and what it means: another value, or a pattern of the error that refuses it."""

    name: str
    value: Any
    means: Any = LEFT_OUT
    refused: str | None = None
    only: tuple[str, ...] = ()  # methods; all that know the argument, if there are none
    without: tuple[str, ...] = ()  # methods for which it is none of the table's business

    def concerns(self, method: str) -> bool:
        return method not in self.without and (not self.only or method in self.only)


@cache
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(INPUTS, 5), nn.ReLU(), nn.Linear(5, OUTPUTS)).eval()


X = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(1))
OFF = torch.randn(1, INPUTS, generator=torch.Generator().manual_seed(2))


def _explainer(model: Any, inputs: Any, target: Any = None, **options: Any) -> Tensor:
    if "internal_batch_size" in options:
        options["batch_size"] = options.pop("internal_batch_size")
    return Explainer(model, **options).attribute(inputs, target).values


def _of(kind: Any, made: tuple[str, ...] = (), **fixed: Any) -> Callable[..., Tensor]:
    def call(model: Any, inputs: Any, **options: Any) -> Tensor:
        built = {name: options.pop(name) for name in made if name in options}
        return kind(model, **built).attribute(inputs, **{**fixed, **options})

    return call


METHODS: dict[str, Callable[..., Tensor]] = {
    "ExactShapley": _of(ExactShapley),
    "BayesianShapley": _of(BayesianShapley, max_evaluations=16),
    "PermutationShapley": _of(PermutationShapley, n_permutations=3),
    "GradientShapley": _of(GradientShapley, n_pairs=6),
    "DASP": _of(DASP, ("rank",)),
    "GradientDASP": _of(GradientDASP, ("rank",), nodes=4),
    "DeepLiftRevealCancel": _of(DeepLiftRevealCancel),
    "Explainer": _explainer,
}
_ARGUMENTS = {"inputs", "baselines", "target", "feature_mask"}
KNOWS = {
    "ExactShapley": {"internal_batch_size", "show_progress"},
    "BayesianShapley": {
        "internal_batch_size", "show_progress", "max_evaluations", "seed", "tolerance", "max_seconds", "missing",
    },
    "PermutationShapley": {"internal_batch_size", "show_progress", "n_permutations", "seed", "tolerance"},
    "GradientShapley": {"internal_batch_size", "show_progress", "n_pairs", "seed", "tolerance", "max_seconds"},
    "DASP": {"internal_batch_size", "show_progress", "coalition_sizes", "rank"},
    "GradientDASP": {
        "internal_batch_size", "show_progress", "nodes", "seed", "tolerance", "index", "rank", "background_clusters",
    },
    "DeepLiftRevealCancel": set(),
    "Explainer": {
        "internal_batch_size", "show_progress", "max_evaluations", "seed", "tolerance", "max_seconds", "threads",
        "background", "device", "method", "mean", "std", "players", "feature_names", "output_names", "output",
    },
}  # fmt: skip
EVALUATING = ("ExactShapley", "BayesianShapley", "PermutationShapley")
PROPAGATING = ("DASP", "GradientDASP", "DeepLiftRevealCancel")


def knows(method: str, argument: str) -> bool:
    """Return True if a method has an argument."""
    return argument in _ARGUMENTS | KNOWS[method]


def attribute(called: str, model: Any = None, **arguments: Any) -> Tensor:
    """Call a method plainly, but for these arguments; those that are left out are not given."""
    plain = {"inputs": X, "target": 1} if "background" in arguments else {"inputs": X, "baselines": OFF, "target": 1}
    given = plain | arguments
    given = {name: value for name, value in given.items() if value is not LEFT_OUT}
    return METHODS[called](network() if model is None else model, **given)


def _sizes(*values: Any) -> list[Odd]:
    """Odd numbers of something of which there must be at least one."""
    wrong = [
        Odd("a text", "100", refused="must be a whole number, at least 1, not '100'"),
        Odd("a half", 2.5, refused="must be a whole number, at least 1, not 2.5"),
        Odd("zero", 0, refused="must be at least 1, not 0"),
        Odd("minus one", -1, refused="must be at least 1, not -1"),
        Odd("nan", float("nan"), refused="must be a whole number, at least 1, not nan"),
        Odd("inf", float("inf"), refused="must be a whole number, at least 1, not inf"),
        Odd("true", True, refused="must be a whole number, at least 1, not True"),
        Odd("a list", [16], refused=r"must be a whole number, at least 1, not \[16\]"),
        Odd("a complex number", 16j, refused="must be a whole number, at least 1, not 16j"),
        Odd("several numbers", np.array([16, 16]), refused="must be a whole number, at least 1"),
    ]
    right = [
        Odd(f"{type(value).__name__} {getattr(value, 'dtype', '')}", value, means=16)
        for value in (np.int64(16), np.uint8(16), np.float32(16), 16.0, torch.tensor(16), np.array(16), *values)
    ]
    return wrong + right


_NONE = Odd("none", None, refused="must be a whole number, at least 1, not None", without=("Explainer",))
_TARGET = "does not fit outputs of shape"
with warnings.catch_warnings():  # of torch's about what is new there
    warnings.simplefilter("ignore")
    _NESTED = torch.nested.nested_tensor([torch.ones(INPUTS), torch.ones(INPUTS)])
    torch.ones(1, 1).to_sparse_csr()


def _quantized(x: Tensor) -> Tensor:
    with warnings.catch_warnings():  # it goes with one of the next releases
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


def _plain_tensors(x: Tensor) -> list[Odd]:
    """Tensors that mean what a plain one means."""
    return [
        Odd("not contiguous", x.T.contiguous().T, means=x),
        Odd("every other row", x.repeat_interleave(2, 0)[::2], means=x),
        Odd("negative bit", torch._neg_view(-x), means=x),
        Odd("real part of a conjugate", torch.view_as_complex(torch.stack([x, x], -1)).conj().real, means=x),
        Odd("imaginary part of a conjugate", torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag, means=x),
        Odd("requires grad", x.clone().requires_grad_(), means=x),
        Odd("part of a graph", x.clone().requires_grad_() * 1, means=x),
        Odd("a parameter", nn.Parameter(x.clone()), means=x),
    ]


def _odd_tensors(x: Tensor) -> list[Odd]:
    """Tensors that are refused wherever numbers are needed."""
    return [
        Odd("sparse", x.to_sparse(), refused="torch.sparse_coo .*to_dense"),
        Odd("sparse rows", x.to_sparse_csr(), refused="torch.sparse_csr .*to_dense"),
        Odd("nested", _NESTED, refused="nested tensors .*to_padded_tensor"),
        Odd("meta", x.to("meta"), refused="on the meta device"),
        Odd("quantized", _quantized(x), refused=r"qint8.*dequantize"),
        Odd("complex", x.to(torch.complex64), refused="complex64; floating point, integer or bool is needed"),
        Odd("conjugate", x.to(torch.complex64).conj(), refused="complex64; floating point"),
        Odd("eight bits", x.to(torch.float8_e5m2), refused="float8_e5m2; floating point, integer or bool"),
        Odd("nan", x * float("nan"), refused="NaN or infinite entries, first in row 0"),
    ]


ODD: dict[str, list[Odd]] = {
    "inputs": [
        *_plain_tensors(X),
        *_odd_tensors(X),
        Odd("infinite", X / 0, refused="NaN or infinite entries, first in row 0"),
        Odd("double", X.double(), refused="dtype torch.float64, .*in torch.float32.*x.float", without=("Explainer",)),
        Odd("half", X.half(), refused="dtype torch.float16, .*x.float", without=("Explainer",)),
        Odd("bfloat16", X.bfloat16(), refused="dtype torch.bfloat16, .*x.float", without=("Explainer",)),
        Odd("whole numbers", X.long(), refused="dtype torch.int64, .*x.float|must be whole numbers"),
        Odd("bool", X > 0, refused="dtype torch.bool, .*x.float|must be whole numbers"),
        Odd("unsigned", torch.ones(ROWS, INPUTS, dtype=torch.uint16), refused="uint16"),
        Odd("no rows", X[:0], refused="at least one row is needed|shape"),
        Odd("no columns", X[:, :0], refused="no entries|has shape|columns|shape"),
        Odd("no dimensions", X[0, 0], refused="rows? .*needed"),
        Odd("too many columns", torch.cat([X, X], 1), refused="8 columns, and the model takes 4|has shape"),
        Odd("an array", X.numpy(), refused="must be a tensor.*not a ndarray", without=("Explainer",)),
        Odd("an array", X.numpy(), means=X, only=("Explainer",)),
        Odd("a double array", X.numpy().astype(float), means=X, only=("Explainer",)),
        Odd("a list", X.tolist(), refused="must be a tensor.*not a list", without=("Explainer",)),
        Odd("a list", X.tolist(), means=X, only=("Explainer",)),
        Odd("nothing", None, refused="must be a tensor|must be numbers"),
        Odd("a text", "rows", refused="must be a tensor|must be numbers"),
        Odd("an empty tuple", (), refused="must be a tensor|no inputs|shape"),
        Odd("a tuple of a text", (X, "more"), refused="must be a tensor|must be numbers|baselines"),
    ],
    "baselines": [
        *_plain_tensors(OFF),
        *_odd_tensors(OFF),
        Odd("a row without its dimension", OFF[0], means=OFF),
        Odd("a row for each", OFF.expand(ROWS, -1), means=OFF),
        Odd("a number of NumPy's", np.float32(0.5), means=0.5),
        Odd("a whole number of NumPy's", np.int64(1), means=1.0),
        Odd("a tensor of one number", torch.tensor(0.5), means=0.5),
        Odd("an array of one number", np.array(0.5), means=0.5),
        Odd("double", OFF.double(), means=OFF),
        Odd("whole numbers", torch.ones(INPUTS, dtype=torch.int64), means=1.0),
        Odd("a complex number", 1j, refused="complex"),
        Odd("a complex number of NumPy's", np.complex64(1j), refused="complex"),
        Odd("not a number", float("nan"), refused="NaN or infinite"),
        Odd("infinite", float("inf"), refused="NaN or infinite"),
        Odd("too large", 1e300, refused="torch.float32 cannot hold"),
        Odd("a huge whole number", 10**40, refused="torch.float32 cannot hold"),
        Odd("too large in double", OFF.double() * 1e300, refused="float32 (cannot|can) hold"),
        Odd("a text", "0", refused="a str|numbers, not text"),
        Odd("an object", object(), refused="a object|must be numbers"),
        Odd("three columns", OFF[:, :3], refused="shape"),
        Odd("no rows", OFF[:0], refused="no rows|shape"),
        Odd("too many dimensions", OFF[None], refused="shape"),
    ],
    "target": [
        Odd("a whole number of NumPy's", np.int64(1), means=1),
        Odd("an unsigned number", np.uint8(1), means=1),
        Odd("a tensor of a number", torch.tensor(1), means=1),
        Odd("a tensor of one row", torch.tensor([1]), means=1),
        Odd("one for each", torch.tensor([1, 1]), means=1),
        Odd("a byte for each", torch.tensor([1, 1], dtype=torch.uint8), means=1),
        Odd("an array", np.array([1, 1]), means=1),
        Odd("an array of bytes", np.array([1, 1], np.int8), means=1),
        Odd("an array of one number", np.array(1), means=1),
        Odd("a list", [1, 1], means=1),
        Odd("a list of numbers of NumPy's", [np.int64(1), np.int32(1)], means=1),
        Odd("a list of tensors", [torch.tensor(1), torch.tensor(1)], means=1),
        Odd("a tuple", (1,), means=1),
        Odd("a tuple of NumPy's", (np.int64(1),), means=1),
        Odd("a list of tuples", [(1,), (1,)], means=1),
        Odd("from behind", -2, means=1),
        Odd("true", True, refused=_TARGET),
        Odd("false", False, refused=_TARGET),
        Odd("NumPy's true", np.True_, refused=_TARGET),
        Odd("a tensor of true", torch.tensor(True), refused=_TARGET),
        Odd("a tensor of conditions", torch.tensor([True, False]), refused=_TARGET),
        Odd("a list of conditions", [True, False], refused=_TARGET),
        Odd("a tuple of a condition", (True,), refused=_TARGET),
        Odd("a real number", 1.0, refused=_TARGET),
        Odd("a real tensor", torch.tensor([1.0, 1.0]), refused=_TARGET),
        Odd("a text", "1", refused=f"{_TARGET}|no output '1'"),
        Odd("a slice", slice(0, 1), refused=_TARGET),
        Odd("a tuple of a slice", (slice(0, 1),), refused=_TARGET),
        Odd("a tuple of nothing", (None,), refused=_TARGET),
        Odd("a complex number", 1j, refused=_TARGET),
        Odd("a dictionary", {0: 1}, refused=_TARGET),
        Odd("too large", 3, refused=_TARGET),
        Odd("huge", 10**30, refused=_TARGET),
        Odd("too many indices", (0, 0), refused=_TARGET),
        Odd("too few targets", [1], refused=f"{_TARGET}|1 targets for 2 rows"),
        Odd("too many targets", torch.tensor([1, 1, 1]), refused=_TARGET),
        Odd("a matrix of targets", torch.tensor([[1], [1]]), refused=_TARGET),
        Odd("on the meta device", torch.tensor([1, 1], device="meta"), refused=_TARGET),
        Odd("sparse", torch.tensor([1, 1]).to_sparse(), refused=_TARGET),
    ],
    "feature_mask": [
        Odd("bytes", torch.tensor([0, 0, 1, 2], dtype=torch.uint8), means=torch.tensor([0, 0, 1, 2])),
        Odd("below zero", torch.tensor([-7, -7, 3, 900]), means=torch.tensor([0, 0, 1, 2])),
        Odd("a row", torch.tensor([[0, 0, 1, 2]]), means=torch.tensor([0, 0, 1, 2])),
        Odd("a row for each", torch.tensor([[0, 0, 1, 2]] * 2), means=torch.tensor([0, 0, 1, 2]),
            without=("Explainer",)),
        Odd("not contiguous", torch.tensor([0, 9, 0, 9, 1, 9, 2, 9])[::2], means=torch.tensor([0, 0, 1, 2])),
        Odd("real numbers", torch.tensor([0.0, 0, 1, 2]), refused="player numbers are integers"),
        Odd("conditions", torch.tensor([True, True, False, False]), refused="player numbers are integers"),
        Odd("complex numbers", torch.tensor([0j, 1j, 2j, 3j]), refused="player numbers are integers"),
        Odd("too short", torch.tensor([0, 1, 2]), refused="does not fit an input row"),
        Odd("too many dimensions", torch.zeros(1, 1, 1, 4, dtype=torch.int64), refused="does not fit an input row"),
        Odd("sparse", torch.tensor([1, 1, 0, 2]).to_sparse(), refused="to_dense"),
        Odd("meta", torch.tensor([1, 1, 0, 2], device="meta"), refused="meta device"),
        Odd("a number", 5, refused="must be a tensor|does not fit", without=("Explainer",)),
        Odd("a text", "0012", refused="must be a tensor|integer"),
    ],
    "background": [
        *[replace(odd, means=OFF) for odd in _plain_tensors(OFF)],
        *_odd_tensors(OFF),
        Odd("an array", OFF.numpy(), means=OFF),
        Odd("a list", OFF.tolist(), means=OFF),
        Odd("no rows", OFF[:0], refused="the background has no rows"),
        Odd("a row without its dimension", OFF[0], refused="rows of features are needed"),
        Odd("three columns", OFF[:, :3], refused="shape"),
        Odd("a text", "background", refused="numbers, not text"),
        Odd("a number", 5, refused="rows of features are needed"),
        Odd("objects", [[object()]], refused="must be numbers, not object"),
    ],
    "device": [
        Odd("another word", "nowhere", refused="cannot be used"),
        Odd("one that is not there", "cuda:99", refused="cannot be used"),
        Odd("a dtype", torch.float64, refused="must be the name of a device"),
        Odd("a number", 1.5, refused="must be the name of a device"),
    ],
    "method": [
        Odd("another word", "magic", refused="magic"),
        Odd("a number", 5, refused="5"),
        Odd("a class", ExactShapley, refused="ExactShapley"),
        Odd("a list", ["exact"], refused="a method is its name"),
    ],
    "mean": [
        Odd("NumPy's", np.float32(0.5), means=0.5),
        Odd("a text", "mean", refused="mean is 'mean'"),
        Odd("nan", float("nan"), refused="a finite number"),
        Odd("complex", 1j, refused="mean is 1j"),
        Odd("too many", [0.0] * 5, refused="5 numbers"),
        Odd("sparse", torch.ones(4).to_sparse(), refused="mean"),
        Odd("meta", torch.ones(4, device="meta"), refused="mean"),
    ],
    "std": [
        Odd("a tensor", torch.tensor(0.5), means=0.5),
        Odd("zero", 0.0, refused="positive numbers"),
        Odd("below zero", [-1.0] * 4, refused="positive numbers"),
        Odd("an object", object(), refused="std is"),
    ],
    "players": [
        Odd("another word", "stone:5", refused="stone"),
        Odd("a number", 5, refused="players are 5"),
        Odd("gives nothing", lambda x: None, refused="the function of players must have"),
        Odd("gives texts", lambda x: "0011", refused="the function of players must have"),
        Odd("gives real numbers", lambda x: torch.tensor([0.0, 0, 1, 1]), refused="player numbers are integers"),
    ],
    "feature_names": [
        Odd("a number", 5, refused="feature_names must be a list of names"),
        Odd("a text", "abcd", refused="feature_names must be a list of names"),
    ],
    "output_names": [
        Odd("a number", 5, refused="output_names must be a list of names"),
    ],
    "output": [
        Odd("of one tensor", "logits", refused="no 'logits'|returns one tensor"),
        Odd("of no result", 7, refused="no 7|returns one tensor"),
        Odd("a real number", 1.5, refused="no 1.5|returns one tensor"),
        Odd("an array", np.array(["logits"]), refused="output is the name or index"),
    ],
    "internal_batch_size": _sizes(),
    "max_evaluations": [*_sizes(), _NONE],
    "n_permutations": [*_sizes(), _NONE],
    "n_pairs": [*_sizes(), _NONE],
    "nodes": _sizes(),
    "background_clusters": [odd for odd in _sizes() if odd.refused],
    "threads": [odd for odd in _sizes() if odd.refused],
    "seed": [
        Odd("NumPy's", np.int64(3), means=3),
        Odd("a tensor", torch.tensor(3), means=3),
        Odd("whole", 3.0, means=3),
        Odd("large", 2**63, means=2**63),
        Odd("below zero", -1, refused="seed must be at least 0, not -1"),
        Odd("too large", 2**64, refused="seed must be at most 18446744073709551615"),
        Odd("a half", 2.5, refused="seed must be a whole number"),
        Odd("a text", "x", refused="seed must be a whole number"),
        Odd("nothing", None, refused="seed must be a whole number"),
        Odd("true", True, refused="seed must be a whole number"),
        Odd("nan", float("nan"), refused="seed must be a whole number"),
        Odd("a generator", torch.Generator(), refused="seed must be a whole number"),
    ],
    "tolerance": [
        Odd("NumPy's", np.float32(0.5), means=0.5),
        Odd("a tensor", torch.tensor(0.5), means=0.5),
        Odd("zero", 0, refused="tolerance must be positive, not 0"),
        Odd("below zero", -0.5, refused="tolerance must be positive, not -0.5"),
        Odd("nan", float("nan"), refused="tolerance must be positive, not nan"),
        Odd("infinite", float("inf"), refused="tolerance must be positive and finite, not inf"),
        Odd("huge", 10**400, refused="tolerance must be positive and finite"),
        Odd("a text", "0.1", refused="tolerance must be a positive number, not '0.1'"),
        Odd("true", True, refused="tolerance must be a positive number, not True"),
        Odd("complex", 1j, refused="tolerance must be a positive number, not 1j"),
        Odd("nothing", None, refused="tolerance must be a positive number, not None", only=("GradientDASP",)),
    ],
    "max_seconds": [
        Odd("below zero", -1, refused="max_seconds must be positive, not -1"),
        Odd("nan", float("nan"), refused="max_seconds must be positive, not nan"),
        Odd("infinite", float("inf"), refused="max_seconds must be positive and finite, not inf"),
        Odd("a text", "1", refused="max_seconds must be a positive number, not '1'"),
        Odd("true", True, refused="max_seconds must be a positive number, not True"),
    ],
    "missing": [
        Odd("another word", "skip", refused="missing must be 'raise' or 'drop', not 'skip'"),
        Odd("nothing", None, refused="missing must be 'raise' or 'drop', not None"),
        Odd("a list", ["drop"], refused="missing must be 'raise' or 'drop'"),
    ],
    "show_progress": [
        Odd("NumPy's", np.False_, means=False),
        Odd("a number", 0, means=False),
        Odd("a text", "no", refused="show_progress must be True or False, not 'no'"),
    ],
    "rank": [
        Odd("NumPy's", np.int64(2), means=2),
        Odd("a tensor", torch.tensor(2), means=2),
        Odd("below zero", -1, refused="rank must be a number of columns"),
        Odd("a half", 0.5, refused="rank must be a number of columns"),
        Odd("true", True, refused="rank must be a number of columns"),
        Odd("another word", "most", refused="rank must be a number of columns"),
        Odd("nothing", None, refused="rank must be a number of columns"),
    ],
    "coalition_sizes": [
        Odd("NumPy's", np.int64(2), means=2),
        Odd("a tensor", torch.tensor(2), means=2),
        Odd("an array", np.array([0, 3]), means=[0, 3]),
        Odd("a tensor of sizes", torch.tensor([0.0, 3.0]), means=[0, 3]),
        Odd("a tuple", (0, 3), means=[0, 3]),
        Odd("zero", 0, refused="coalition_sizes must be from 1 to the number of players, 4, not 0"),
        Odd("too many", 5, refused="coalition_sizes must be from 1 to the number of players, 4, not 5"),
        Odd("a text", "all", refused="coalition_sizes must be a whole number"),
        Odd("true", True, refused="coalition_sizes must be a whole number"),
        Odd("a half", 1.5, refused="coalition_sizes must be a whole number"),
        Odd("none of them", [], refused="coalition sizes must be from 0 to 3"),
        Odd("beyond", [4], refused="coalition sizes must be from 0 to 3"),
        Odd("texts", ["1"], refused="a coalition size must be a positive number"),
        Odd("nan", [float("nan")], refused="a coalition size must be positive"),
    ],
    "index": [
        Odd("NumPy's", (np.float64(2), np.int64(1)), means=(2.0, 1.0)),
        Odd("another word", "owen", refused='index must be "shapley", "banzhaf"'),
        Odd("zero", (0, 1), refused='index must be "shapley", "banzhaf"'),
        Odd("infinite", (float("inf"), 1), refused='index must be "shapley", "banzhaf"'),
        Odd("nan", (float("nan"), 1), refused='index must be "shapley", "banzhaf"'),
        Odd("a list", [1, 1], refused='index must be "shapley", "banzhaf"'),
        Odd("nothing", None, refused='index must be "shapley", "banzhaf"'),
    ],
}  # fmt: skip


class Ending(nn.Module):
    """The network, and what is done to its outputs."""

    def __init__(self, end: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network, self.end = network(), end

    def forward(self, x: Tensor) -> Any:
        return self.end(self.network(x))


def _ending(end: Callable[[Tensor], Any]) -> nn.Module:
    return Ending(end).eval()


_BY_EVALUATION = (*EVALUATING, "Explainer")
MODELS = [
    Odd("a tuple", _ending(lambda y: (y,)), means=network()),
    Odd("a dictionary", _ending(lambda y: {"y": y}), means=network()),
    Odd("double outputs", _ending(lambda y: y.double()), means=network()),
    Odd("negative bit", lambda x: torch._neg_view(-network()(x)), means=network(), only=_BY_EVALUATION),
    Odd("not contiguous", lambda x: network()(x).T.contiguous().T, means=network(), only=_BY_EVALUATION),
    Odd("still in the graph", lambda x: network()(x) * nn.Parameter(torch.ones(())), means=network(), only=EVALUATING),
    Odd("conditions", _ending(lambda y: y > 0), means=_ending(lambda y: (y > 0).float()), only=_BY_EVALUATION),
    Odd("whole numbers", _ending(lambda y: (9 * y).long()), means=_ending(lambda y: (9 * y).long().float()),
        only=_BY_EVALUATION),
    Odd("large whole numbers", lambda x: (8 * x).long() + 2**40,
        means=lambda x: ((8 * x).long() + 2**40).double(), only=_BY_EVALUATION),
    Odd("nothing", _ending(lambda y: None), refused="without tensors"),
    Odd("a text", _ending(lambda y: "y"), refused="without tensors"),
    Odd("two tensors", _ending(lambda y: (y, y)), refused="give one of them as output="),
    Odd("complex", _ending(lambda y: torch.complex(y, y)), refused="outputs are complex"),
    Odd("sparse", _ending(lambda y: y.to_sparse()), refused="output: a tensor of layout .*to_dense"),
    Odd("quantized", _ending(_quantized), refused="qint8.*dequantize"),
    Odd("meta", _ending(lambda y: y.to("meta")), refused="meta device"),
    Odd("nested", _ending(lambda y: torch.nested.nested_tensor(list(y))), refused="nested"),
    Odd("no outputs", _ending(lambda y: y[:, :0]), refused="no outputs"),
    Odd("one row less", _ending(lambda y: y[1:]), refused="one row per input row|by themselves"),
    Odd("sums over the rows", _ending(lambda y: y.sum(0)), refused="one row per input row|by themselves"),
    Odd("one number", _ending(lambda y: y.sum()),
        refused="one row per input row|one number|by themselves|one answer|does not fit outputs of shape \\(1,"),
    Odd("outputs vary", lambda x: network()(x)[:, : 2 + len(x) % 2], refused="depends on the rows|the same outputs",
        only=_BY_EVALUATION),
    Odd("not finite", _ending(lambda y: y / 0), refused="no finite value|NaN or infinite", without=PROPAGATING),
    Odd("on the meta device", nn.Linear(INPUTS, 2).to("meta").eval(), refused="the device|meta device"),
    Odd("a double network", nn.Linear(INPUTS, 2).double().eval(), refused="computes in torch.float64.*x.double",
        without=("Explainer",)),
    Odd("other columns", nn.Linear(INPUTS + 1, 2).eval(), refused="4 columns, and the model takes 5"),
    Odd("an embedding", nn.Embedding(5, 2).eval(), refused="whole numbers, x.long", only=EVALUATING),
    Odd("a text", "model", refused="str"),
    Odd("no model", (), refused="tuple"),
]  # fmt: skip
