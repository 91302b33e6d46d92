"""The operations that a program may have: those of ATen that compute tensors from tensors and do nothing else, and
arithmetic of sizes.

They were chosen from what torch tags as core, what this package has rules for and what `torch.export` leaves in usual
networks. Not here are operations that touch files (`from_file`), storages (`set_`, `resize_`), sparse, quantized or
packed tensors, all of other namespaces, and those that leave it to their callers to check indices and shapes
(`_unsafe_index`, `embedding_bag`, `_reshape_alias`, `_weight_norm`, `native_group_norm`, …), which could read and write
beyond their tensors. Of the latter, some that usual networks need are done by functions that do check (`checked`).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import torch

from dasp.jobs.programs.archive import NotUnderstood

__all__ = ["SIZES", "bits", "operation"]

_ENTRIES = """
    abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh
    atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign
    cos cosh deg2rad digamma div divide elu eq erf erfc erfinv exp exp2 expm1 fill fix floor floor_divide fmax fmin
    fmod frac ge gelu greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 isclose
    isfinite isinf isnan isneginf isposinf ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2
    log_sigmoid logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logit lt masked_fill maximum
    minimum mish mul multiply nan_to_num ne neg negative not_equal positive pow prelu rad2deg reciprocal relu relu6
    remainder round rrelu rsqrt rsub selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_entr
    special_erfcx special_expit special_log_ndtr special_ndtr special_ndtri special_xlog1py sqrt square sub subtract
    tan tanh threshold true_divide trunc where xlogy zero
"""  # each of them may also be done in place
_SHAPES = """
    _unsafe_view adjoint alias as_strided as_strided_scatter atleast_1d atleast_2d atleast_3d
    broadcast_tensors broadcast_to cat channel_shuffle chunk clone column_stack concat concatenate constant_pad_nd
    contiguous copy copy_ detach detach_ diag diag_embed diagflat diagonal diagonal_scatter dstack expand expand_as
    flatten flip fliplr flipud hsplit hstack im2col col2im lift_fresh lift_fresh_copy mH mT matrix_H meshgrid moveaxis
    movedim narrow numpy_T pad permute permute_copy pixel_shuffle pixel_unshuffle ravel reflection_pad1d
    reflection_pad2d reflection_pad3d repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
    reshape reshape_as roll rot90 select select_scatter slice slice_scatter split split_with_sizes squeeze squeeze_
    stack swapaxes swapdims t tensor_split tile transpose transpose_ tril tril_ triu triu_ unbind unflatten unfold
    unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as view_as_complex view_as_real
    vsplit vstack _to_copy to type_as real imag complex polar conj resolve_conj resolve_neg
"""
_INDICES = """
    argmax argmin argsort argwhere bucketize embedding gather index index_add index_add_ index_copy index_copy_
    index_fill index_fill_ index_put index_put_ index_select masked_scatter masked_scatter_ masked_select nonzero
    one_hot scatter scatter_ scatter_add scatter_add_ scatter_reduce searchsorted sort take take_along_dim topk
"""
_REDUCTIONS = """
    all amax amin aminmax any count_nonzero cummax cummin cumprod cumsum cumsum_ diff kthvalue logcumsumexp logsumexp
    max mean median min mode msort nanmean nansum norm prod quantile std std_mean sum trace var var_mean linalg_norm
    linalg_vector_norm linalg_matrix_norm
"""
_PRODUCTS = """
    addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul cosine_similarity cross dist dot einsum ger inner
    kron linalg_cholesky linalg_cross linalg_det linalg_inv linalg_matmul linalg_matrix_exp linalg_matrix_power
    linalg_multi_dot linalg_pinv linalg_qr linalg_slogdet linalg_solve linalg_svd linalg_vecdot linear matmul mm mv
    outer pairwise_distance tensordot vdot fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_irfft fft_irfft2
    fft_irfftn fft_rfft fft_rfft2 fft_rfftn
"""
_LAYERS = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d convolution affine_grid_generator
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d _log_softmax _safe_softmax _softmax glu log_softmax softmax batch_norm group_norm instance_norm
    layer_norm native_layer_norm rms_norm scaled_dot_product_attention
    _native_batch_norm_legit_no_training gru lstm rnn_relu rnn_tanh
    alpha_dropout alpha_dropout_ dropout dropout_ feature_alpha_dropout feature_dropout feature_dropout_
    native_dropout binary_cross_entropy binary_cross_entropy_with_logits cross_entropy_loss huber_loss kl_div l1_loss
    mse_loss smooth_l1_loss
"""
_CREATED = """
    arange bernoulli eye full full_like linspace new_full new_ones new_zeros
    normal ones ones_like rand rand_like randint randn randn_like randperm scalar_tensor tril_indices triu_indices
    zeros zeros_like
"""
_ASKED = "sym_numel sym_size sym_storage_offset sym_stride _assert_async _assert_scalar _assert_tensor_metadata"
_IN_PLACE = {f"{name}_" for name in _ENTRIES.split()}
_ALLOWED = _IN_PLACE.union(
    *(text.split() for text in (_ENTRIES, _SHAPES, _INDICES, _REDUCTIONS, _PRODUCTS, _LAYERS, _CREATED, _ASKED))
)
_OF_ATEN = re.compile(r"torch\.ops\.aten\.(\w+)\.(\w+)", re.ASCII)

# Powers and shifts are left out: they make numbers of any length from short ones.
SIZES: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in (
        "eq", "ne", "le", "ge", "lt", "gt", "neg", "pos", "mul", "add", "sub", "floordiv", "mod", "truediv", "and_",
        "or_",
    )},
    **{f"torch.{name}": getattr(torch, name) for name in (
        "sym_not", "sym_int", "sym_float", "sym_ite", "sym_max", "sym_min",
    )},
    "math.trunc": math.trunc,
}  # fmt: skip


def operation(target: str) -> torch._ops.OpOverload:
    """The operation of ATen of this name.

    >>> operation("torch.ops.aten.relu.default")
    <OpOverload(op='aten.relu', overload='default')>
    >>> operation("torch.ops.aten.from_file.default")
    Traceback (most recent call last):
        ...
    dasp.jobs.programs.archive.NotUnderstood: the operation 'torch.ops.aten.from_file.default'
    """
    match = _OF_ATEN.fullmatch(target)
    if match is None or match[1] not in _ALLOWED or {"out", "data"} & {*match[2].split("_")}:
        raise NotUnderstood(f"the operation {target[:100]!r}")
    found = getattr(getattr(torch.ops.aten, match[1]), match[2])
    if not isinstance(found, torch._ops.OpOverload):
        raise NotUnderstood(f"the operation {target[:100]!r}")
    return found


def bits(function: Callable[..., Any], of: list[int]) -> int:
    """How long a size can become that is computed from sizes of some lengths in bits.

    >>> bits(operator.mul, [64, 64]), bits(operator.add, [64, 128])
    (128, 129)
    """
    if function is operator.mul:
        return sum(of)
    return max(of) + (function in (operator.add, operator.sub))
