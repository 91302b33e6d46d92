"""Rules for operations: what to import to write one.

A rule says what an operation of a model does to random values. Most of torch's operations have one, in
`dasp.propagation.rules`; an operation without is refused with `UnsupportedOperation`, which names it. Most rules
are one line of a family:

- `structural(op)`: the operation only moves entries, like a transposition or a slice;
- `elementwise(op)`: a smooth function of each entry, whose moments are integrated numerically;
- `affine(op)`: weights times one of the arguments, plus something. The decorated function returns that argument and
  the linear part, with the weights to a `Power`.

Everything else is a function from a `Gaussian` to a `Gaussian`, registered by `rule(op)`. It has a mean, a variance of
each entry's own, and factors, which are noise that entries share; `Gaussian.through` puts these together for a
nonlinearity. A tracker tells to which player the entries of the result belong before players meet: `same_entry` if the
operation is elementwise, `within` if it combines entries along dimensions, `mixing` (the default) if it may combine
any.

>>> import torch
>>> from dasp import propagate
>>> from dasp.rules import RULES, Gaussian, rule, same_entry
>>> @torch.library.custom_op("example::triple", mutates_args=())
... def triple(x: torch.Tensor) -> torch.Tensor:
...     return 3 * x
>>> _ = triple.register_fake(torch.empty_like)
>>> @rule(torch.ops.example.triple.default, tracker=same_entry)
... def triple_rule(x: Gaussian) -> Gaussian:
...     return Gaussian(3 * x.mean, 9 * x.variance, None if x.factors is None else 3 * x.factors)
>>> class Triple(torch.nn.Module):
...     def forward(self, x):
...         return triple(x)
>>> propagate(Triple().eval(), torch.ones(1, 2), torch.ones(1, 2)).variance
tensor([[9., 9.]])
>>> _ = RULES.pop(torch.ops.example.triple.default)  # as if it had never been
"""

from dasp.propagation.gaussian import Gaussian
from dasp.propagation.rules.activations import elementwise
from dasp.propagation.rules.registry import RULES, affine, mixing, rule, same_entry, structural, within
from dasp.propagation.values import Linear, Power

__all__ = [
    "RULES", "Gaussian", "Linear", "Power", "affine", "elementwise", "mixing", "rule", "same_entry", "structural",
    "within",
]  # fmt: skip
