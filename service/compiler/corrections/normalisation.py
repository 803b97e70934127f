"""Normalisation by the statistics of layers, groups and batches.

TVM's group_norm (`topi.nn.group_norm`) computes a variance as E[x²] - E[x]², which loses its digits where the mean is
large; `operator_map.legalize` has a rule in its place. Its layer_norm of float64 is wrong, and its importer makes
scales and shifts of float32 only. PyTorch folds stored statistics into one product and one sum here.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax

from service.compiler.corrections.reductions import moments
from service.compiler.promotion import widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed


def _is_used(a: Arguments, index: int) -> bool:
    return any(user.args[1] == index for user in a.node.users)


def _refuse_statistics(a: Arguments) -> None:
    if any(_is_used(a, index) for index in (1, 2)):
        raise ImportFailed("the statistics of this normalisation are used, which cannot be compiled.", step=0)


def _parameter(t: Translation, node: Any, value: float, dims: list[Any], dtype: torch.dtype) -> Any:
    if node is not None:
        return t.tensor(node, dtype)
    return t.constant(torch.full(dims, value, dtype=dtype))


def _layer_norm(t: Translation, a: Arguments) -> Any:
    _refuse_statistics(a)
    value = a.result[0]
    dtype = widened(value.dtype)
    dims = list(a.normalized_shape)
    if any(not isinstance(size, int) for size in dims):
        raise ImportFailed("layer_norm is compiled for layers of fixed size.", step=0)
    axes = list(range(value.ndim - len(dims), value.ndim))
    scale, shift = (_parameter(t, node, fill, dims, dtype) for node, fill in ((a.weight, 1.0), (a.bias, 0.0)))
    normal = t.emit(relax.op.nn.layer_norm(t.tensor(a.input, dtype), scale, shift, axes, a.eps))
    return [t.cast(normal, dtype, value.dtype), None, None]


def _group_norm(t: Translation, a: Arguments) -> Any:
    _refuse_statistics(a)
    value = a.result[0]
    dtype = widened(value.dtype)
    channels = t.dim(a.C)
    scale, shift = (_parameter(t, node, fill, [channels], dtype) for node, fill in ((a.weight, 1.0), (a.bias, 0.0)))
    axes = list(range(2, value.ndim))
    normal = t.emit(relax.op.nn.group_norm(t.tensor(a.input, dtype), scale, shift, a.group, 1, axes, a.eps))
    return [t.cast(normal, dtype, value.dtype), None, None]


def _along_channels(t: Translation, expr: Any, rank: int) -> Any:
    channels = expr.ty.shape[0]
    return t.emit(relax.op.reshape(expr, relax.ShapeExpr([1, channels, *[1] * (rank - 2)])))


def _batch_norm(t: Translation, a: Arguments) -> Any:
    """With stored statistics: one multiplication and one addition, by numbers that PyTorch computes now."""
    value = a.result[0]
    dtype = widened(value.dtype)
    rank = value.ndim
    tensors = [None if node is None else t.stored(node) for node in (a.weight, a.bias, a.running_mean, a.running_var)]
    given = [node is not None for node in (a.weight, a.bias, a.running_mean, a.running_var)]
    if any(tensor is None and there for tensor, there in zip(tensors, given, strict=True)):
        raise ImportFailed("batch_norm is compiled for statistics that the model stores.", step=0)
    weight, bias, mean, variance = (torch.empty(0) if tensor is None else tensor.double() for tensor in tensors)
    scale = (weight if given[0] else 1) / torch.sqrt(variance + a.eps)
    shift = (bias if given[1] else 0) - mean * scale
    x = t.tensor(a.input, dtype)
    factors = [_along_channels(t, t.constant(each.to(dtype)), rank) for each in (scale, shift)]
    normal = t.emit(relax.op.add(t.emit(relax.op.multiply(x, factors[0])), factors[1]))
    return [t.cast(normal, dtype, value.dtype), None, None]


def _batch_norm_of_batch(t: Translation, a: Arguments) -> Any:
    """With the statistics of the batch itself, as in training."""
    if a.values.get("training") is False:
        return [*_batch_norm(t, a), None, None]
    value = a.input.meta["val"]
    dtype = widened(value.dtype)
    axes = [axis for axis in range(value.ndim) if axis != 1]
    x = t.tensor(a.input, dtype)
    mean, variance = moments(t, x, value, axes, 0)
    deviation = t.emit(relax.op.sqrt(t.emit(relax.op.add(variance, t.tensor(float(a.eps), torch.float64)))))
    centred = t.emit(relax.op.subtract(t.cast(x, dtype, torch.float64), mean))
    normal = t.cast(t.emit(relax.op.divide(centred, deviation)), torch.float64, dtype)
    for node, operator in ((a.weight, relax.op.multiply), (a.bias, relax.op.add)):
        if node is not None:
            factor = _along_channels(t, t.tensor(node, dtype), value.ndim)
            normal = t.emit(operator(normal, factor))
    if any(_is_used(a, index) for index in range(1, len(a.result))):
        raise ImportFailed("the statistics that batch_norm gives in training are used.", step=0)
    return [t.cast(normal, dtype, a.result[0].dtype), *[None] * (len(a.result) - 1)]


CONVERTERS: dict[str, Converter] = {
    "aten.native_layer_norm.default": _layer_norm,
    "aten.native_group_norm.default": _group_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_of_batch,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_of_batch,
}
