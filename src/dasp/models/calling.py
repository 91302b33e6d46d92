"""Calling a model: its arguments, the one of its results that is explained, and the state that it has to be in.

People's models take keywords and return tuples, dictionaries or objects. The rest of this library works on functions
that take tensors by position and return one tensor. `forward_of` makes such a function of a model, and returns the same
one whenever it is asked for the same model, output and keywords.

For classifiers, `output="probability"` and `output="logit"` ask for a `Scale`:

    model gives      "probability"         "logit"
    logits           softmax, or sigmoid   refused: they are explained as they are
    probabilities    as they are           log p/(1 − p)

Whether outputs are logits or probabilities shows in the outputs at hand, f(x) and f(baseline), when a model is first
asked: numbers between 0 and 1 that sum to 1 in every row, or a single one between 0 and 1, are probabilities. A scale
is decided once; what it does then is part of the model, through which moments are propagated.

A model that is explained must be in evaluation mode (`check_evaluation_mode`), and an exported program must take any
number of rows (`check_dynamic_batch`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from threading import RLock
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from dasp.errors import BadInput

__all__ = [
    "DECIDING", "SCALES", "Forward", "Kind", "Names", "Output", "Scale", "check_dynamic_batch", "check_evaluation_mode",
    "checked_model", "fixed_rows", "forward_of", "innermost", "like", "link_scale", "mode_matters", "module_of",
    "one_tensor", "rows_are_fixed", "scale_of", "settled", "unwrapped",
]  # fmt: skip

Output = None | str | int | tuple[str | int, ...] | Callable[[Any], Any]
"""The name or index of one of a model's results, or several of them on the way to a nested one; a function of the whole
result; "probability" or "logit", unless a result is called so (see `Scale`); None: the only one."""
Names = tuple[str | None, ...]
"""The keyword of each argument, or None for its position; () if all have positions."""

_MOST_LISTED = 20  # results that a message names
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


class _Called:
    """A model with the names of its arguments and the output that is asked for; see `forward_of`."""

    model: Callable[..., Any]
    output: Output | Scale
    names: Names

    def _call(self, model: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Tensor:
        given = list(zip(self.names or (None,) * len(args), args, strict=True))
        keywords = keywords | {name: x for name, x in given if name is not None}
        return one_tensor(model(*(x for name, x in given if name is None), **keywords), self.output)


class Forward(_Called, nn.Module):
    """A module as a function of arguments by position that gives one tensor."""

    def __init__(self, model: nn.Module, output: Output | Scale = None, names: Names = ()) -> None:
        super().__init__()
        self.model, self.output, self.names = model, output, names
        self.training = model.training

    def forward(self, *args: Any, **keywords: Any) -> Tensor:
        """Call the module. While it is exported, a wrapper that only runs it in another way is left out."""
        model = unwrapped(self.model) if torch.compiler.is_exporting() else self.model
        return self._call(model, args, keywords)


class _Function(_Called):
    """Any other callable as such a function."""

    def __init__(self, model: Callable[..., Any], output: Output | Scale, names: Names) -> None:
        self.model, self.output, self.names = model, output, names

    def __call__(self, *args: Any, **keywords: Any) -> Tensor:
        return self._call(self.model, args, keywords)


_MADE: WeakValueDictionary[Any, Any] = WeakValueDictionary()  # they hold their models, so that ids stay what they are


def forward_of(model: Callable[..., Any], output: Output | Scale = None, names: Names = ()) -> Callable[..., Tensor]:
    """Return the model as a function that takes its arguments by position and returns one tensor.

    `names` are the keywords of its arguments, and `output` says what of its result is returned. The same question gets
    the same function, so that its graphs are shared; but for a scale, which everybody who asks decides on anew.

    >>> forward_of(lambda x, scale: {"twice": 2 * x, "scaled": scale * x}, "scaled", (None, "scale"))(torch.ones(2), 3)
    tensor([3., 3.])
    """
    if not all(isinstance(step, Hashable) for step in (output if isinstance(output, tuple) else (output,))):
        raise BadInput(
            "output is the name or index of a result, or several on the way to it, or a function of it, not a "
            f"{type(output).__name__}"
        )
    output = Scale(output) if isinstance(output, str) and output in SCALES else output
    key = (id(model), output, names)
    made = _MADE.get(key)
    if made is None:
        made = Forward(model, output, names) if isinstance(model, nn.Module) else _Function(model, output, names)
        made = _MADE.setdefault(key, made)
    return made


def scale_of(function: Any) -> Scale | None:
    """Return the scale that a function of `forward_of` was asked for, if there is one."""
    while isinstance(function, _Called):
        if isinstance(function.output, Scale):
            return function.output
        function = function.model
    return None


def like(function: Callable[..., Any], model: Callable[..., Any]) -> Callable[..., Any]:
    """Return `model` as a function that takes the same arguments as `function`.

    A model whose output was chosen is returned as it is, as another model may have other results.
    """
    if not isinstance(function, _Called) or function is model or function.output is not None:
        return model
    return forward_of(model, names=function.names)


def unwrapped(model: Any) -> Any:
    """Return the module inside of a compiled or a parallel one."""
    if isinstance(original := getattr(model, "_orig_mod", None), nn.Module):
        return unwrapped(original)
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(model.module)
    return model


def module_of(model: Any) -> Any:
    """Return the module whose `forward` this is; anything else as it is.

    >>> relu = nn.ReLU()
    >>> module_of(relu.forward) is relu
    True
    """
    owner = getattr(model, "__self__", None)
    own = isinstance(owner, nn.Module) and getattr(model, "__func__", None) in (type(owner).forward, nn.Module.__call__)
    return owner if own else model


def innermost(model: Any) -> Any:
    """Return the user's own model, without what this library or torch wrapped around it."""
    inside = unwrapped(model.model if isinstance(model, _Called) else getattr(model, "wrapped_function", model))
    return model if inside is model else innermost(inside)


def one_tensor(result: Any, output: Output | Scale = None) -> Tensor:
    """Return the one tensor of a model's result that is explained.

    Without an `output` it is the only tensor, or the only one of floating point.

    >>> one_tensor((torch.zeros(2), torch.tensor([1, 2])))
    tensor([0., 0.])
    >>> one_tensor({"cat": torch.ones(2), "dog": torch.zeros(2)}, lambda result: result["cat"] - result["dog"])
    tensor([1., 1.])
    """
    result = settled(result)
    if output is None:
        return result if isinstance(result, Tensor) else _only(result)
    if isinstance(output, Scale):
        return _scaled(result, output)
    if callable(output):
        return _computed(output(result))
    found = result
    for step in output if isinstance(output, tuple) else (output,):
        parts = _parts(found)
        if step in parts:
            found = parts[step]
        elif isinstance(step, int) and -len(parts) <= step < len(parts):
            found = list(parts.values())[step]  # of a dictionary, too
        else:
            raise BadInput(f"the model returns no {output!r}: {_listed(result)}")
    if not isinstance(found, Tensor):
        raise BadInput(f"output={output!r} of the model is a {type(found).__name__}, not a tensor: {_listed(result)}")
    return found


def _scaled(result: Any, scale: Scale) -> Tensor:
    """Return the part of a result that has the name of a scale, or else its only tensor on that scale."""
    if scale.word in _parts(result):
        if scale.kind is None:
            scale.kind = "named"
        return one_tensor(result, (scale.word,))
    return scale(one_tensor(result))


def _computed(found: Any) -> Tensor:
    """Return what a user's function made of a result, as a tensor."""
    found = torch.from_numpy(found) if isinstance(found, np.ndarray) else settled(found)
    if not isinstance(found, Tensor):
        raise BadInput(f"output is a function that gives a {type(found).__name__} for the model's result, not a tensor")
    return found


def settled(result: Any) -> Any:
    """Return what a model has answered: the value of a `torch.futures.Future`, which is waited for, and a number of
    Python's as a tensor.

    >>> settled(0.1)
    tensor(0.1000, dtype=torch.float64)
    """
    if isinstance(result, torch.futures.Future):
        result = result.wait()
    return torch.tensor(result, dtype=torch.float64) if isinstance(result, (int, float)) else result


def _only(result: Any) -> Tensor:
    tensors = list(_tensors(result).values())
    chosen = tensors if len(tensors) == 1 else [x for x in tensors if x.is_floating_point()]
    if len(chosen) != 1:
        raise BadInput(f"one tensor is needed to explain: {_listed(result)}")
    return chosen[0]


def _parts(result: Any) -> dict[Any, Any]:
    """Return the parts of a result by their names or indices."""
    if isinstance(result, Mapping):
        return dict(result)
    if isinstance(result, tuple) and (names := getattr(result, "_fields", None)):
        return dict(zip(names, result, strict=True))
    if isinstance(result, (tuple, list)):
        return dict(enumerate(result))
    if is_dataclass(result) and not isinstance(result, type):
        return {field.name: getattr(result, field.name) for field in fields(result)}
    return {}


def _tensors(result: Any, way: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Tensor]:
    """Return all tensors in a result by the names and indices that lead to them."""
    if isinstance(result, Tensor):
        return {way: result}
    return {at: x for name, part in _parts(result).items() for at, x in _tensors(part, (*way, name)).items()}


def _listed(result: Any) -> str:
    """Say which tensors a model returned, and what to do."""
    if isinstance(result, Tensor):
        return (
            f"it returns one tensor of shape {tuple(result.shape)}, so leave `output` out; `target` chooses among its "
            "entries"
        )
    ways = _tensors(result).items()
    found = [f"{(way[0] if len(way) == 1 else way)!r} {tuple(x.shape)}" for way, x in ways]
    if not found:
        return f"it returns a {type(result).__name__} without tensors in it"
    more = f" and {len(found) - _MOST_LISTED} more" if len(found) > _MOST_LISTED else ""
    return f"it returns {', '.join(found[:_MOST_LISTED])}{more}; give one of them as output="


def checked_model(model: Any) -> nn.Module | ExportedProgram:
    """Return the model if it can be exported and is ready to be explained; else raise an error that says why not."""
    if isinstance(model, ExportedProgram):
        check_dynamic_batch(model)
        return model
    model = module_of(model)
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"a torch.nn.Module or an ExportedProgram is needed to propagate moments through, not a "
            f"{type(model).__name__}; BayesianShapley takes any callable"
        )
    check_evaluation_mode(model)
    return model


_NORMS = (nn.modules.batchnorm._NormBase,)
_DROPPING = (nn.modules.dropout._DropoutNd,)


def mode_matters(module: nn.Module) -> bool:
    """Return True if a module itself, without those inside of it, computes something else in training mode.

    >>> [mode_matters(module) for module in (nn.ReLU(), nn.Dropout(0.5), nn.Dropout(0), nn.BatchNorm1d(2))]
    [False, True, False, True]
    """
    if isinstance(module, _DROPPING):
        return module.p > 0
    if isinstance(module, _NORMS):
        return module.track_running_stats
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    if isinstance(module, nn.MultiheadAttention):
        return module.dropout > 0
    if isinstance(module, nn.RReLU):
        return True
    if type(module).__module__.partition(".")[0] == "torch":
        return False
    code = getattr(type(module).forward, "__code__", None)
    return code is None or "training" in code.co_names  # a user's own module that reads its mode


def check_evaluation_mode(model: nn.Module) -> None:
    """Refuse a model that would drop units out, or normalise by its batch and learn from it, while it is explained."""
    training = [name or type(model).__name__ for name, module in model.named_modules()
                if module.training and mode_matters(module)]  # fmt: skip
    if training:
        raise ValueError(f"the model is in training mode ({', '.join(training[:3])}): call model.eval() first")


def check_dynamic_batch(program: ExportedProgram) -> None:
    """Refuse a program that takes only one number of rows."""
    if (fixed := fixed_rows(program)) is not None:
        raise ValueError(rows_are_fixed(fixed))


def rows_are_fixed(rows: int) -> str:
    """Return the message about a program that takes only one number of rows."""
    return (
        f"the program is for exactly {rows} row(s): save the model by dasp.save(model, x, path), which exports it with "
        "a dynamic batch, as dynamic_shapes=({0: torch.export.Dim.AUTO},) and two rows do (a forward that turns the "
        "number of rows into a constant, as int(x.shape[0]) does, must be written without)"
    )


def fixed_rows(program: ExportedProgram) -> int | None:
    """Return the only number of rows that a program takes, or None if it takes any number."""
    names = program.graph_signature.user_inputs
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in names]
    first = next((value for value in values if isinstance(value, Tensor)), None)
    if first is None:
        return None
    rows = first.shape[0]
    return int(rows) if isinstance(rows, int) or rows.node.expr.is_number else None
