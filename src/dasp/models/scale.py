"""The scale of a classifier's outputs: `output="probability"` and `output="logit"`.

    model gives      "probability"         "logit"
    logits           softmax, or sigmoid   refused: they are explained as they are
    probabilities    as they are           log p/(1 − p)

Whether outputs are logits or probabilities shows in the outputs at hand, f(x) and f(baseline), when a model is first
asked: numbers between 0 and 1 that sum to 1 in every row, or a single one between 0 and 1, are probabilities. A `Scale`
is decided once; what it does then is part of the model, through which moments are propagated.
"""

from __future__ import annotations

from threading import RLock
from typing import Any, Literal

import torch
from torch import Tensor

from dasp.errors import BadInput

__all__ = ["DECIDING", "SCALES", "Kind", "Scale", "link_scale"]

Kind = Literal["named", "same", "softmax", "sigmoid", "log-odds"]
"""What a scale does to outputs; "named" if the model has a result of that name, which goes before ours."""

SCALES = ("probability", "logit")
DECIDING = RLock()  # one thread at a time
_SUM = 1e-4  # that probabilities may miss 1 by, in single precision


class Scale:
    """A scale of outputs that is asked for, and what it takes to have the model's outputs on it.

    >>> scale = Scale("probability")
    >>> scale.decide(torch.tensor([[0.0, 2.0], [1.0, -3.0]]))
    >>> scale.kind, scale(torch.zeros(1, 2))
    ('softmax', tensor([[0.5000, 0.5000]]))
    """

    def __init__(self, word: str, kind: Kind | None = None) -> None:
        self.word = word
        self.kind: Kind | None = kind  # None until it is decided

    def __call__(self, outputs: Tensor) -> Tensor:
        """Return outputs (…, outputs) on the scale; as they are while it is not decided."""
        if self.kind == "softmax":
            return outputs.softmax(-1)
        if self.kind == "sigmoid":
            return outputs.sigmoid()
        return torch.logit(outputs) if self.kind == "log-odds" else outputs

    def decide(self, outputs: Tensor) -> None:
        """Decide by the outputs of some rows, (rows,) or (rows, outputs), what is to be done with them."""
        if self.kind is not None:
            return
        if outputs.dim() > 2:
            raise BadInput(
                f"output={self.word!r} is for one dimension of outputs, and a row has {tuple(outputs.shape[1:])}: say "
                "it by a function, such as output=lambda result: result.softmax(1)"
            )
        single = outputs[0].numel() == 1
        known = outputs.reshape(len(outputs), -1)
        known = known[known.isfinite().all(1)].double()
        if not len(known):
            raise BadInput(f"output={self.word!r} cannot be had: the outputs of all rows at hand are infinite or NaN")
        between = bool(((known >= 0) & (known <= 1)).all())
        precision = torch.finfo(outputs.dtype).eps if outputs.is_floating_point() else 0.0
        whole = single or bool(((known.sum(1) - 1).abs() <= max(_SUM, 10 * precision)).all())
        self.kind = self._kind(known, single=single, between=between, whole=whole)

    def _kind(self, known: Tensor, *, single: bool, between: bool, whole: bool) -> Kind:
        low, high = f"{float(known.min()):.3g}", f"{float(known.max()):.3g}"
        if self.word == "logit":
            if not between:
                raise BadInput(
                    "output='logit' (or link='logit') gives the log-odds of probabilities strictly between 0 and 1, "
                    f"and the model's outputs are from {low} to {high}: if they are logits, leave it out"
                )
            return "log-odds"
        if not between:
            return "sigmoid" if single else "softmax"
        if not whole:
            raise BadInput(
                f"output='probability' cannot be told: the outputs are from {low} to {high}, as probabilities are, but "
                "do not sum to 1; leave it out if they are probabilities of several labels, or say by a function what "
                "is to be done with logits: output=lambda result: result.softmax(1)"
            )
        return "same"

    def check(self, outputs: Tensor) -> None:
        """Refuse outputs that are no probabilities, though those before were."""
        wrong = outputs[(outputs < 0) | (outputs > 1)] if self.kind == "same" else outputs[:0]
        if wrong.numel() and float((wrong.double() - 0.5).abs().max()) > 0.5 + _SUM:
            raise BadInput(
                "output='probability' took the outputs for probabilities, as the first ones were between 0 and 1, and "
                f"now there is {float(wrong.flatten()[0]):.3g}: if they are logits, say by a function what is to be "
                "done with them, output=torch.sigmoid or output=lambda result: result.softmax(1)"
            )


def link_scale(link: Any) -> str | None:
    """Return the scale that SHAP's `link` means, "identity" or "logit", or SHAP's functions of that name.

    >>> link_scale("logit"), link_scale("identity")
    ('logit', None)
    """
    name = link if isinstance(link, str) else getattr(link, "__name__", "")
    if name not in ("identity", "logit") or not (isinstance(link, str) or callable(link)):
        raise BadInput(f"link is 'identity' or 'logit', not {link!r}: another function can be part of the model")
    return "logit" if name == "logit" else None
