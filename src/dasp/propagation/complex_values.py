"""Complex values in a graph, as their real and imaginary parts.

A Gaussian is a real number, so a Fourier transform has no rule of its own. In parts it is made of operations that have
one. With angles 2πkn/N, the entries of a transform along a dimension of length N are

    Re yₖ = Σₙ (Re xₙ cos + Im xₙ sin)        Im yₖ = Σₙ (Im xₙ cos − Re xₙ sin)

These are products with constant matrices, which are exact in mean and variance; that both parts are made of the same
entries is known as far as factors keep it. The inverse has the other sign. If its result is real, frequencies 0 … N/2
are enough, and all but the first and, of an even number, the last stand for two.

An operation on complex values that is not in this file stays as it is, and is refused by its name when the graph is
lifted; so is a transform of more than `MOST_FREQUENCIES`, whose matrices would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

__all__ = ["MOST_FREQUENCIES", "in_real_parts"]

aten = torch.ops.aten
Parts = tuple[fx.Node, fx.Node | None]  # real and imaginary; None is 0
MOST_FREQUENCIES = 2048

_BY_PARTS = {  # what is done to both parts alike
    aten.neg.default, aten.alias.default, aten.cat.default, aten.clone.default,
    aten.copy.default, aten.detach.default, aten.expand.default, aten.flip.default, aten.permute.default,
    aten.reshape.default, aten.roll.default, aten.select.int, aten.slice.Tensor, aten.slice_scatter.default,
    aten.squeeze.dims, aten.stack.default, aten.sum.dim_IntList, aten.mean.dim, aten.transpose.int, aten.unfold.default,
    aten.unsqueeze.default, aten.view.default,
}  # fmt: skip
_SUMS = {aten.add.Tensor, aten.sub.Tensor}
_PRODUCTS = {aten.mul.Tensor, aten.mm.default, aten.bmm.default, aten.matmul.default}


def in_real_parts(module: fx.GraphModule) -> None:
    """Write operations on complex values as operations on their parts, where these are known."""
    if not any(map(_is_complex, module.graph.nodes)):
        return
    written = _Writer(module)
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not any(map(_is_complex, (node, *node.all_input_nodes))):
            continue
        with module.graph.inserting_before(node):
            written.at = node
            result = written.result(node)
        if isinstance(result, tuple):
            written.parts[node] = result
        elif result is not None:
            node.replace_all_uses_with(result)
    module.graph.eliminate_dead_code()


def _is_complex(x: Any) -> bool:
    value = x.meta.get("val") if isinstance(x, fx.Node) else x
    return isinstance(value, Tensor) and value.is_complex()


@dataclass
class _Writer:
    """Writes nodes for the parts of complex ones."""

    module: fx.GraphModule
    parts: dict[fx.Node, Parts] = field(default_factory=dict)
    at: Any = None  # the node that is written in parts

    def result(self, node: fx.Node) -> Parts | fx.Node | None:
        """Return the parts of a complex node, or the node in the place of a real one; None if it has to stay."""
        op: Any = node.target
        if op in _BY_PARTS:
            return self._by_parts(op, node.args, node.kwargs)
        if op in _SUMS and not node.kwargs:
            first, second = (self._whole(x) if isinstance(x, fx.Node) else self.of(x) for x in node.args)
            return self._sum(first[0], second[0], op), self._sum(first[1], second[1], op)
        if op in _PRODUCTS:
            return self._product(op, *node.args)
        method = _METHODS.get(op)
        return None if method is None else method(self, *node.args, **node.kwargs)

    def call(self, op: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """Return a new node, which knows its shape and the line of the user's code."""
        node = self.module.graph.call_function(op, args, kwargs)
        arguments, options = fx.node.map_arg((args, kwargs), lambda x: x.meta["val"])
        node.meta = {**self.at.meta, "val": op(*arguments, **options)}
        return node

    def of(self, x: Any) -> Parts:
        """Return the parts of a value."""
        if isinstance(x, complex):
            return x.real, x.imag  # type: ignore[return-value]
        if x in self.parts:
            return self.parts[x]
        return (self.call(aten.real.default, x), self.call(aten.imag.default, x)) if _is_complex(x) else (x, None)

    def _whole(self, x: Any) -> tuple[fx.Node, fx.Node]:
        real, imaginary = self.of(x)
        return real, self.call(aten.zeros_like.default, real) if imaginary is None else imaginary

    def _sum(self, a: Any, b: Any, op: Any = aten.add.Tensor) -> Any:
        """Return a + b or a − b, of which None is 0."""
        if b is None:
            return a
        if a is None:
            return b if op is aten.add.Tensor else self.call(aten.neg.default, b)
        return self.call(op, a, b)

    def _by_parts(self, op: Any, args: Any, kwargs: Any) -> Parts:
        tensors = (x for x in self.at.all_input_nodes if isinstance(x.meta.get("val"), Tensor))
        pairs = [(x, *self._whole(x)) for x in tensors]

        def call(parts: dict[fx.Node, fx.Node]) -> fx.Node:
            arguments, options = fx.node.map_arg((args, kwargs), lambda x: parts.get(x, x))
            return self.call(op, *arguments, **options)

        return call({x: real for x, real, _ in pairs}), call({x: imaginary for x, _, imaginary in pairs})

    def _product(self, op: Any, a: Any, b: Any) -> Parts:
        """(a + bi)(c + di) = (ac − bd) + (ad + bc)i."""
        (a, b), (c, d) = self.of(a), self.of(b)

        def times(x: Any, y: Any) -> Any:
            return None if x is None or y is None else self.call(op, x, y)

        return self._sum(times(a, c), times(b, d), aten.sub.Tensor), self._sum(times(a, d), times(b, c))

    def _from_pairs(self, x: Any) -> Parts:
        return self.call(aten.select.int, x, -1, 0), self.call(aten.select.int, x, -1, 1)

    def _pairs(self, x: Any) -> fx.Node:
        return self.call(aten.stack.default, list(self._whole(x)), -1)

    def _absolute(self, x: Any) -> fx.Node:
        return self.call(aten.linalg_vector_norm.default, self._pairs(x), 2, [-1])

    def _conjugate(self, x: Any) -> Parts:
        real, imaginary = self.of(x)
        return real, None if imaginary is None else self.call(aten.neg.default, imaginary)

    def _transform(self, x: Any, dims: Sequence[int], norm: int, forward: bool) -> Parts | None:
        return self._along(self.of(x), dims, norm, 1 if forward else -1)

    def _from_real_transform(self, x: Any, dims: Sequence[int], norm: int, onesided: bool) -> Parts | None:
        *others, last = dims
        first = self._along((x, None), [last], norm, 1, halved=onesided)
        return None if first is None else self._along(first, others, norm, 1)

    def _to_real_transform(self, x: Any, dims: Sequence[int], norm: int, length: int) -> fx.Node | None:
        *others, last = dims
        parts = self._along(self.of(x), others, norm, -1)
        if parts is None or not _transformable(length):
            return None
        angle = _angles(length)[:, : length // 2 + 1]
        twice = torch.full_like(angle[:1], 2.0)
        twice[:, 0] = 1
        if length % 2 == 0:
            twice[:, -1] = 1
        cosines, sines = (twice * _scale(length, norm) * part for part in (angle.cos(), angle.sin()))
        return self._sum(self._mixed(parts[0], last, cosines), self._mixed(parts[1], last, sines), aten.sub.Tensor)  # type: ignore[no-any-return]

    def _along(self, parts: Parts, dims: Sequence[int], norm: int, sign: int, halved: bool = False) -> Parts | None:
        """Return the transform along dimensions, one after the other; `halved` gives frequencies from 0 to N/2."""
        real, imaginary = parts
        for dim in dims:
            length = real.meta["val"].shape[dim]
            if not _transformable(length):
                return None
            angle = _angles(length)[: length // 2 + 1 if halved else length]
            cosines, sines = (_scale(length, norm) * part for part in (angle.cos(), sign * angle.sin()))
            real, imaginary = (
                self._sum(self._mixed(real, dim, cosines), self._mixed(imaginary, dim, sines)),
                self._sum(self._mixed(imaginary, dim, cosines), self._mixed(real, dim, sines), aten.sub.Tensor),
            )
        return real, imaginary

    def _mixed(self, x: fx.Node | None, dim: int, matrix: Tensor) -> fx.Node | None:
        """Return a part multiplied by a matrix along a dimension."""
        if x is None:
            return None
        value = x.meta["val"]
        name = f"_fourier_{len(self.module.graph.nodes)}"
        self.module.register_buffer(name, matrix.to(value.device, value.dtype))
        weight = self.module.graph.get_attr(name)
        weight.meta["val"] = value.fake_mode.from_tensor(getattr(self.module, name))
        product = self.call(aten.linear.default, self.call(aten.transpose.int, x, dim, -1), weight)
        return self.call(aten.transpose.int, product, dim, -1)


def _transformable(length: Any) -> bool:
    return isinstance(length, int) and length <= MOST_FREQUENCIES


def _angles(length: int) -> Tensor:
    """Return 2πkn/N for all k and n; whole turns are taken off before, which rounding would not."""
    numbers = torch.arange(length)
    return (numbers[:, None] * numbers % length).double() * (2 * math.pi / length)


def _scale(length: int, norm: int) -> float:
    """Return the factor of one dimension. Torch's norms are 0 for none, 1 for the root of the length, 2 for all of
    it."""
    return float(length) ** (-norm / 2)


_METHODS: dict[Any, Callable[..., Parts | fx.Node | None]] = {
    aten._to_copy.default: lambda writer, x, **options: None if _is_complex(x) else (x, None),
    aten.view_as_complex.default: _Writer._from_pairs,
    aten.complex.default: lambda writer, real, imaginary: (real, imaginary),
    aten.view_as_real.default: _Writer._pairs,
    aten.real.default: lambda writer, x: writer.of(x)[0],
    aten.imag.default: lambda writer, x: writer._whole(x)[1],
    aten.abs.default: _Writer._absolute,
    aten._conj.default: _Writer._conjugate,
    aten._fft_c2c.default: _Writer._transform,
    aten._fft_r2c.default: _Writer._from_real_transform,
    aten._fft_c2r.default: _Writer._to_real_transform,
}
