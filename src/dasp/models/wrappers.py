"""Models of other libraries as `torch.nn.Module`s or functions of tensors, ready to be explained.

    converted(model)            a module, an ExportedProgram, a scikit-learn MLP, a Keras model or a function
    normalized(model, …)        a model that takes (x − mean)/std, as a model of x
    onnx_model(path)            an ONNX model, evaluated by onnxruntime on the processor
    BlackBox, TorchScript       models that can be evaluated, and have no graph to propagate moments through

scikit-learn's multilayer perceptrons, alone or behind scalers in a pipeline, become the same functions in torch. A
classifier becomes its **logits**: log-odds of the second class for two classes, a logit per class for more, log-odds of
every label for several labels. Probabilities are their sigmoid or softmax, which saturate: all features would share in
that interaction, and a confident prediction would hide what made it so. SHAP explains the log-odds of trees, too.
`output="probability"` explains probabilities all the same.

Neither scikit-learn nor Keras is imported here: who has such a model has imported them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from dasp.errors import BadInput, line_of
from dasp.models.calling import check_dynamic_batch, checked_model
from dasp.models.export_lock import evaluation_lock

__all__ = [
    "BlackBox", "KerasModel", "MultilayerPerceptron", "Normalized", "TorchScript", "converted", "device_of",
    "encoder_and_network", "exported_module", "in_fitted_order", "input_dtype", "normalized", "onnx_model", "own_dtype",
    "takes_integers",
]  # fmt: skip


def converted(model: Any) -> nn.Module | Callable[..., Tensor]:
    """Return the model as a module in evaluation mode. A function of tensors stays what it is.

    >>> converted(nn.Linear(2, 1).eval())
    Linear(in_features=2, out_features=1, bias=True)
    """
    if isinstance(model, ExportedProgram):
        return exported_module(model)
    libraries = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    if "sklearn" in libraries:
        return MultilayerPerceptron(model)
    if "keras" in libraries:  # also a module, on the torch backend
        return KerasModel(model)
    if isinstance(model, nn.Module):
        checked_model(model)
        return model
    if callable(model):
        return model
    raise BadInput(
        f"a {type(model).__name__} cannot be explained: a torch.nn.Module, an ExportedProgram, a scikit-learn MLP, a "
        "Keras model or a function of tensors is needed"
    )


def exported_module(program: ExportedProgram) -> fx.GraphModule:
    """Return the program as a module in evaluation mode, without the input checks that torch hooks on. The mode that it
    was exported in stays in its graph."""
    check_dynamic_batch(program)
    with warnings.catch_warnings(), evaluation_lock():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytrees
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    module.graph._tracer_cls = None  # torch's own cannot be made anew when the module is unpickled
    result = fx.GraphModule(module, module.graph)
    for part in result.modules():
        part.training = False
    return result


def own_dtype(model: Any) -> torch.dtype | None:
    """Return the dtype of a model's weights; of a function, the floating-point one that it has as an attribute. None of
    what computes with the numbers as they are.

    >>> own_dtype(nn.Linear(2, 1)), own_dtype(lambda x: x.sum(1))
    (torch.float32, None)
    """
    weights = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else (model,)
    dtypes = [x.dtype for x in weights if isinstance(getattr(x, "dtype", None), torch.dtype)]
    return next((dtype for dtype in dtypes if dtype.is_floating_point), None)


def input_dtype(model: Any) -> torch.dtype:
    """Return the dtype of a model's weights, or torch's default; see `own_dtype`."""
    return own_dtype(model) or torch.get_default_dtype()


def device_of(model: Any) -> torch.device | None:
    """Return the device of a model's weights, or None for a function."""
    weights = (*model.parameters(), *model.buffers()) if isinstance(model, nn.Module) else ()
    return next((x.device for x in weights), None)


def takes_integers(model: Any) -> bool:
    """Return True if a model looks its inputs up in an embedding, or was exported with integers."""
    if isinstance(model, fx.GraphModule):
        known = next(node for node in model.graph.nodes if node.op == "placeholder").meta
        dtype = known.get("dtype") or getattr(known.get("val"), "dtype", None)
        return isinstance(dtype, torch.dtype) and not dtype.is_floating_point
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in modules)


class Normalized(nn.Module):
    """A model behind (x − mean)/std, with a mean and a deviation for each channel or column, or one for all of them.

    >>> Normalized(nn.Identity().eval(), torch.tensor([1.0, 2.0]), torch.tensor(2.0))(torch.tensor([[3.0, 2.0]]))
    tensor([[1., 0.]])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model, self.training = model, model.training
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor, *args: Any, **keywords: Any) -> Any:
        """Return the model's output for numbers that are not normalised yet."""
        return self.model(_scaled(x, self.mean, self.std), *args, **keywords)


def normalized(
    model: Callable[..., Any], mean: Any, std: Any, dtype: torch.dtype | None, device: torch.device | str | None
) -> tuple[Callable[..., Any], int]:
    """Return the model as a function of numbers that are normalised first, and the number of channels that this is for,
    which is 1 if it is for any number. A mean or std that is None is left out."""
    centre, scale = (_numbers(name, given, absent, dtype or torch.float64, device)
                     for name, given, absent in (("mean", mean, 0.0), ("std", std, 1.0)))  # fmt: skip
    if bool((scale <= 0).any()):
        raise BadInput(f"std is {std!r}: positive numbers are needed")
    channels = max(centre.numel(), scale.numel())
    if min(centre.numel(), scale.numel()) not in (1, channels):
        raise BadInput(
            f"mean has {centre.numel()} numbers and std {scale.numel()}: one for each channel, or one, is needed"
        )
    if isinstance(model, nn.Module):
        return Normalized(model, centre, scale), channels
    return lambda x, *args, **keywords: model(_scaled(x, centre, scale), *args, **keywords), channels


def _scaled(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    if x.is_floating_point():
        mean, std = mean.to(x.dtype), std.to(x.dtype)
    return (x - _along_channels(mean, x)) / _along_channels(std, x)


def _along_channels(numbers: Tensor, x: Tensor) -> Tensor:
    return numbers if numbers.numel() == 1 else numbers.view(-1, *[1] * (x.dim() - 2))


def _numbers(name: str, given: Any, absent: float, dtype: torch.dtype, device: torch.device | str | None) -> Tensor:
    if hasattr(given, "__array__") and not isinstance(given, Tensor):
        given = np.array(given)  # a copy: torch warns of arrays that cannot be written to, as those of pandas are
    try:
        numbers = torch.as_tensor(absent if given is None else given, dtype=dtype, device=device)
        finite = bool(numbers.isfinite().all())
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name} is {line_of(repr(given))}: a number, or one for each channel, is needed") from error
    if numbers.dim() > 1 or not finite or (isinstance(given, Tensor) and given.is_complex()):
        raise BadInput(f"{name} is {line_of(repr(given))}: a finite number, or one for each channel, is needed")
    return numbers


class Exponential(nn.Module):
    """exp(x), the output of a Poisson regression."""

    def forward(self, x: Tensor) -> Tensor:
        """Return exp(x)."""
        return x.exp()


class Scaler(nn.Module):
    """(x − shift)·scale, feature by feature."""

    shift: Tensor
    scale: Tensor

    def __init__(self, shift: Any, scale: Any, features: int) -> None:
        super().__init__()
        for name, value, default in (("shift", shift, 0.0), ("scale", scale, 1.0)):
            full = np.full(features, default if value is None else value, dtype=float)
            self.register_buffer(name, torch.from_numpy(full))

    def forward(self, x: Tensor) -> Tensor:
        """Return (x − shift)·scale."""
        return (x - self.shift) * self.scale


_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}

# Functions of a fitted scaler: what it subtracts, and what it then multiplies by; None for nothing.
_SCALERS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "StandardScaler": lambda s: (s.mean_ if s.with_mean else None, 1 / s.scale_ if s.with_std else None),
    "MinMaxScaler": lambda s: (-s.min_ / s.scale_, s.scale_),
    "MaxAbsScaler": lambda s: (None, 1 / s.scale_),
    "RobustScaler": lambda s: (s.center_ if s.with_centering else None, 1 / s.scale_ if s.with_scaling else None),
}


class MultilayerPerceptron(nn.Sequential):
    """An `MLPClassifier` or `MLPRegressor`, or a pipeline of scalers and one of them, with its weights in float64.

    >>> from sklearn.neural_network import MLPRegressor
    >>> features = np.random.default_rng(0).normal(size=(20, 3))
    >>> fitted = MLPRegressor(max_iter=5000, random_state=0, tol=1e-3).fit(features, features.sum(1))
    >>> module = MultilayerPerceptron(fitted)
    >>> bool(np.allclose(module(torch.tensor(features)).detach().numpy()[:, 0], fitted.predict(features)))
    True
    """

    def __init__(self, fitted: Any) -> None:
        steps = [step for _, step in fitted.steps] if _kind(fitted) == "Pipeline" else [fitted]
        *before, last = [step for step in steps if step not in (None, "passthrough")]
        if _kind(last) not in {"MLPClassifier", "MLPRegressor"}:
            raise BadInput(
                f"a scikit-learn {_kind(last)} is no network: MLPClassifier and MLPRegressor can be explained, alone "
                "or at the end of a pipeline; of other models give a function, such as model.predict_proba"
            )
        if not hasattr(last, "coefs_"):
            raise BadInput(f"the {_kind(last)} is not fitted yet")
        layers: list[nn.Module] = [_scaler(step, len(last.coefs_[0])) for step in before]
        for i, (weight, bias) in enumerate(zip(last.coefs_, last.intercepts_, strict=True)):
            if i:
                layers.append(_ACTIVATIONS[last.activation]())
            layers.append(_linear(weight, bias))
        if last.out_activation_ == "exp":
            layers.append(Exponential())
        super().__init__(*(layer.double() for layer in layers))
        names, classes = getattr([*before, last][0], "feature_names_in_", None), getattr(last, "classes_", None)
        self.feature_names = None if names is None else [str(name) for name in names]
        self.output_names: list[str] | None = None
        self.activation: str = last.out_activation_  # which makes probabilities of a classifier's logits
        if classes is not None and len(classes) == last.n_outputs_:
            self.output_names = [str(name) for name in classes]
        self.eval()

    def in_order(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a table in the order that the model was fitted with, if it was fitted with names."""
        return in_fitted_order(self.feature_names, columns)

    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction or the logits for numbers of any dtype, as scikit-learn does."""
        return super().forward(x.to(next(self.parameters()).dtype))


def in_fitted_order(fitted: Sequence[str] | None, columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table in the order that a model was fitted with, if it was fitted with names.

    >>> in_fitted_order(["age", "weight"], ["weight", "age"])
    ('age', 'weight')
    """
    names = list(fitted or columns)
    missing, unknown = ([x for x in a if x not in b] for a, b in ((names, columns), (columns, names)))
    if missing:
        raise BadInput(f"the model was fitted with the column {missing[0]!r}, which is not among the inputs")
    if unknown:
        raise BadInput(f"the model was fitted without the column {unknown[0]!r}: leave it out of the inputs")
    return tuple(names)


def encoder_and_network(model: Any) -> tuple[Any, Any]:
    """Split a pipeline into what comes before its network, and the network. Where only scalers come before it, or for
    any other model, there is no encoder, and the first is None: scalers are part of the network."""
    if _kind(model) != "Pipeline" or not _kind(model.steps[-1][1]).startswith("MLP"):
        return None, model
    before = [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    if all(_kind(step) in _SCALERS and not getattr(step, "clip", False) for step in before):
        return None, model
    return model[:-1], model[-1]


def _kind(model: Any) -> str:
    """Return the name of the class of scikit-learn that a model is of, or derived from."""
    own = (kind for kind in type(model).__mro__ if kind.__module__.partition(".")[0] == "sklearn")
    return next(own, type(model)).__name__


def _scaler(step: Any, features: int) -> Scaler:
    kind = _kind(step)
    if kind not in _SCALERS or getattr(step, "clip", False):
        clips = " that clips" if kind in _SCALERS else ""
        raise BadInput(
            f"the pipeline has a {kind}{clips} before its network; {', '.join(_SCALERS)} are known: transform the rows "
            "first and explain the network alone"
        )
    return Scaler(*_SCALERS[kind](step), features)


def _linear(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    layer = nn.Linear(weight.shape[0], weight.shape[1], dtype=torch.float64)
    layer.weight = nn.Parameter(torch.tensor(weight.T, dtype=torch.float64))
    layer.bias = nn.Parameter(torch.tensor(bias, dtype=torch.float64))
    return layer


class KerasModel(nn.Module):
    """A Keras model as it predicts. Its outputs are what the model gives: of a model that ends in a softmax they are
    probabilities, through which moments cannot be propagated. To explain logits, take its last activation off:

        model.layers[-1].activation = keras.activations.linear
        Explainer(model, background)
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        backend = sys.modules["keras"].backend.backend()
        if backend != "torch":
            raise BadInput(
                f"the Keras model runs on {backend}, and torch is needed: set KERAS_BACKEND=torch before keras is "
                "imported, and load the model anew"
            )
        if not model.built:
            raise BadInput(f"the Keras model {model.name!r} is not built yet: call it on a row, or give it an Input")
        inputs, outputs = (getattr(model, side, None) or [None] for side in ("inputs", "outputs"))
        if len(inputs) != 1 or len(outputs) != 1:
            raise BadInput(
                f"the Keras model {model.name!r} has {len(inputs)} inputs and {len(outputs)} outputs; one "
                "of each can be explained"
            )
        self.model = model
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Return the prediction."""
        return self.model(x, training=False)


class BlackBox(nn.Module):
    """A function of tensors as a module, with the files that it needs. An `Explainer` is given the function.

    Args:
        make: makes the function for a number of threads. The function's `dtype` is that of its input.
        files: files besides the model's own whose content the function depends on.
    """

    def __init__(self, make: Callable[[int], Any], files: Sequence[Path] = ()) -> None:
        super().__init__()
        self._make, self._threads = make, torch.get_num_threads()
        self.function = make(self._threads)
        self.files = list(files)
        self.module = getattr(self.function, "script", None)  # whose parameters are this one's, too

    def forward(self, x: Tensor) -> Tensor:
        """Return the output for rows."""
        return self.function(x)

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads from now on."""
        if threads != self._threads:
            self.function, self._threads = self._make(threads), threads

    @property
    def dtype(self) -> str:
        """NumPy's name for the dtype of its input. Whole numbers are int64 until they are given to the function."""
        dtype = self.function.dtype
        return str(dtype).removeprefix("torch.") if dtype.is_floating_point else "int64"


class TorchScript:
    """A script of torch.jit as a function of tensors."""

    def __init__(self, script: nn.Module) -> None:
        self.script, self.dtype = script, input_dtype(script)

    def __call__(self, x: Tensor) -> Any:
        """Return the output for rows."""
        return self.script(x)


_ONNX_DTYPES = {"tensor(float16)": "float16", "tensor(float)": "float32", "tensor(double)": "float64",
                "tensor(int32)": "int32", "tensor(int64)": "int64"}  # fmt: skip
_ONNXRUNTIME_FORMAT = b"ORTM"  # at byte 4


class OnnxSession:
    """A model in onnxruntime as a function of tensors. A model of a fixed number of rows is given as many at a time."""

    def __init__(self, path: Path, content: bytes, threads: int) -> None:
        import onnxruntime  # noqa: PLC0415 (an extra)

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # what it would print is in the error as well
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        self.path = path
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise BadInput(f"{path} is not an ONNX model that onnxruntime can run: {line_of(error)}") from error
        self.input, self.output = self._only("input", list(_ONNX_DTYPES)), self._only("output", list(_ONNX_DTYPES)[:3])
        self.dtype: torch.dtype = getattr(torch, _ONNX_DTYPES[self.input.type])

    def _only(self, side: str, kinds: list[str]) -> Any:
        """Return the only input or output, which must be a tensor of numbers."""
        found = self.session.get_inputs() if side == "input" else self.session.get_outputs()
        if len(found) != 1:
            names = ", ".join(repr(one.name) for one in found[:5])
            raise BadInput(f"{self.path} has {len(found)} {side}s ({names}); a model with one {side} can be explained")
        if found[0].type not in kinds:
            raise BadInput(
                f"{self.path}: its {side} {found[0].name!r} is a {found[0].type}; {', '.join(kinds)} are known"
            )
        return found[0]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output for rows."""
        shape = list(self.input.shape or [])
        sizes = shape[1:]
        fits = len(sizes) == x.dim() - 1 and all(
            not isinstance(size, int) or size == n for size, n in zip(sizes, x.shape[1:], strict=True)
        )
        if shape and not fits:
            raise BadInput(
                f"{self.path}: its input {self.input.name!r} takes rows of shape ({_listed(sizes)}), not of shape "
                f"({_listed(x.shape[1:])})"
            )
        rows = np.ascontiguousarray(x.detach().cpu().to(self.dtype).numpy())
        at_once = shape[0] if shape and isinstance(shape[0], int) else max(1, len(rows))
        parts = [self._run(rows[start : start + at_once], at_once) for start in range(0, max(1, len(rows)), at_once)]
        return torch.from_numpy(np.concatenate(parts)).to(x.device)

    def _run(self, rows: Any, at_once: int) -> Any:
        """Return the outputs for at most so many rows. Where there are fewer, the last one is repeated."""
        missing = at_once - len(rows) if isinstance((self.input.shape or [None])[0], int) else 0
        full = np.concatenate([rows, np.repeat(rows[-1:], missing, 0)]) if missing else rows
        (output,) = self.session.run([self.output.name], {self.input.name: full})
        return output[: len(rows)] if missing else output


def onnx_model(path: Path) -> BlackBox:
    """Read an ONNX model. Files that it keeps tensors in must be in its folder: others are refused, here as well as by
    onnxruntime, whose older versions would read them. What onnxruntime is given is what the onnx package has understood
    of the file, written again: nothing else is in it."""
    try:
        import onnx  # noqa: PLC0415
        import onnxruntime  # noqa: F401, PLC0415
    except ImportError as error:
        raise BadInput(f"{path}: onnx and onnxruntime are needed to read it: pip install 'torch-dasp[onnx]'") from error
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {line_of(error)}") from error
    if content[4:8] == _ONNXRUNTIME_FORMAT:
        raise BadInput(f"{path} is a file of onnxruntime's own format: save the model as ONNX")
    try:
        model = onnx.ModelProto.FromString(content)
        model.DiscardUnknownFields()
        names, content = dict.fromkeys(_external_files(model)), model.SerializeToString()
    except Exception as error:
        raise BadInput(f"{path} is not an ONNX model, or damaged: {line_of(error)}") from error
    folder, files = path.parent.resolve(), {name: path.parent / name for name in names}
    for name, file in files.items():
        try:
            outside, there = folder not in file.resolve().parents, file.is_file()
        except (OSError, ValueError) as error:  # names that no file can have
            raise BadInput(f"{path} keeps tensors in {line_of(name)!r}: {line_of(error)}") from error
        if outside:
            raise BadInput(
                f"{path} keeps tensors in {line_of(name)!r}, outside of its folder: save the model as one file, or "
                "with its tensors beside it"
            )
        if not there:
            raise BadInput(f"{path} keeps tensors in {line_of(name)!r}, which is not there")
    return BlackBox(lambda threads: OnnxSession(path, content, threads), list(files.values()))


def _external_files(message: Any) -> Iterator[str]:
    """Yield the files that hold tensors, wherever in a protocol buffer a tensor is."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in value if isinstance(value, Sequence) else [value]:
            if field.name == "external_data" and inner.key == "location":
                yield inner.value
            yield from _external_files(inner)


def _listed(sizes: Any) -> str:
    return ", ".join("?" if size is None else str(size) for size in sizes) + "," * (len(sizes) == 1)
