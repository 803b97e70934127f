"""Activation functions, and choosing and clamping of elements.

In TVM's importer (base_fx_graph_translator.py) relu, clamp, elu, hardtanh and softshrink lose NaN, celu divides outside
the exponential, selu has rounded constants, and softplus overflows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from tvm import relax, tirx

from service.compiler.extrema import maximum, minimum
from service.compiler.pointwise import dtype_of, extern, pointwise
from service.compiler.promotion import common_dtype, narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name


def _activation(operator: Any) -> Converter:
    """A Relax operator on floats."""

    def convert(t: Translation, a: Arguments) -> Any:
        dtype = widened(a.result.dtype)
        return narrowed(t, a, operator(t.tensor(a.self, dtype)), dtype)

    return convert


def _of_scalars(name: str, make: Callable[[Arguments, str], Callable[[Any], Any]]) -> Converter:
    """An activation given by its options and dtype as a function of one TensorIR scalar."""

    def convert(t: Translation, a: Arguments) -> Any:
        dtype = widened(a.result.dtype)
        compute = make(a, dtype_name(dtype))
        return narrowed(t, a, pointwise(t, compute, t.tensor(a.self, dtype), name=name), dtype)

    return convert


def _relu(t: Translation, a: Arguments) -> Any:
    if not a.result.dtype.is_floating_point:
        return t.emit(relax.op.maximum(t.tensor(a.self), t.tensor(0, a.result.dtype)))
    return _activation(relax.op.nn.relu)(t, a)


def _gelu(t: Translation, a: Arguments) -> Any:
    operator = relax.op.nn.gelu if a.approximate == "none" else relax.op.nn.gelu_tanh
    return _activation(operator)(t, a)


def _leaky_relu(a: Arguments, dtype: str) -> Any:
    slope = tirx.const(float(a.negative_slope), dtype)
    return lambda x: tirx.Select(x > 0, x, x * slope)


def _elu(a: Arguments, dtype: str) -> Any:
    alpha, scale, inner = (tirx.const(float(value), dtype) for value in (a.alpha, a.scale, a.input_scale))
    return lambda x: tirx.Select(x > 0, x * scale, extern("expm1", x * inner) * (alpha * scale))


def _softplus(a: Arguments, dtype: str) -> Any:
    beta, threshold = tirx.const(float(a.beta), dtype), tirx.const(float(a.threshold), dtype)
    # The exponential overflows where its result is not chosen.
    return lambda x: tirx.Select(x * beta > threshold, x, extern("log1p", tirx.exp(x * beta)) / beta)


def _softshrink(a: Arguments, dtype: str) -> Any:
    edge, low = tirx.const(float(a.lambd), dtype), tirx.const(-float(a.lambd), dtype)
    zero = tirx.const(0, dtype)

    def shrink(x: Any) -> Any:
        inner = tirx.Select(tirx.isnan(x), x, zero)
        return tirx.Select(x > edge, x + low, tirx.Select(x < low, x + edge, inner))

    return shrink


def _hardshrink(a: Arguments, dtype: str) -> Any:
    edge = tirx.const(float(a.lambd), dtype)
    low = tirx.const(-float(a.lambd), dtype)
    return lambda x: tirx.Select(tirx.And(x >= low, x <= edge), tirx.const(0, dtype), x)


def _clamp(t: Translation, a: Arguments) -> Any:
    low, high = a.values.get("min"), a.values.get("max")
    given = [limit for limit in (low, high) if limit is not None]
    dtype = common_dtype(a.self, *given)
    x = t.tensor(a.self, dtype)
    if low is not None:
        x = t.emit(relax.op.maximum(x, t.tensor(low, dtype)))
    if high is not None:
        x = t.emit(relax.op.minimum(x, t.tensor(high, dtype)))
    return narrowed(t, a, x, dtype)


def _hardtanh(t: Translation, a: Arguments) -> Any:
    dtype = widened(a.result.dtype)
    x = t.emit(relax.op.maximum(t.tensor(a.self, dtype), t.tensor(a.min_val, dtype)))
    return narrowed(t, a, relax.op.minimum(x, t.tensor(a.max_val, dtype)), dtype)


def _between(x: Any, low: float, high: float) -> Any:
    dtype = dtype_of(x)
    return minimum(maximum(x, tirx.const(low, dtype)), tirx.const(high, dtype))


def _hardsigmoid(a: Arguments, dtype: str) -> Any:
    return lambda x: _between(x + tirx.const(3, dtype), 0, 6) / tirx.const(6, dtype)


def _hardswish(a: Arguments, dtype: str) -> Any:
    return lambda x: x * _between(x + tirx.const(3, dtype), 0, 6) / tirx.const(6, dtype)


def _where(t: Translation, a: Arguments) -> Any:
    dtype = a.result.dtype
    chosen = t.tensor(a.self, dtype), t.tensor(a.other, dtype)
    return t.emit(relax.op.where(t.tensor(a.condition, torch.bool), *chosen))


def _masked_fill(t: Translation, a: Arguments) -> Any:
    dtype = a.result.dtype
    value = t.tensor(a.value, dtype)
    return t.emit(relax.op.where(t.tensor(a.mask, torch.bool), value, t.tensor(a.self, dtype)))


def _prelu(t: Translation, a: Arguments) -> Any:
    dtype = widened(a.result.dtype)
    x, weight = t.tensor(a.self, dtype), t.tensor(a.weight, dtype)
    weights = a.weight.meta["val"]
    rank = a.result.ndim
    if weights.ndim == 1 and rank >= 2:
        weight = t.emit(relax.op.reshape(weight, [weights.numel() if axis == 1 else 1 for axis in range(rank)]))
    product = t.emit(relax.op.multiply(x, weight))
    positive = t.emit(relax.op.greater(x, t.tensor(0, dtype)))
    return narrowed(t, a, relax.op.where(positive, x, product), dtype)


def _softmax(operator: Any) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = widened(a.result.dtype)
        x = t.tensor(a.self, dtype)
        if not a.result.shape:
            shaped = t.emit(relax.op.reshape(x, [1]))
            return narrowed(t, a, relax.op.reshape(t.emit(operator(shaped, 0)), relax.ShapeExpr([])), dtype)
        return narrowed(t, a, operator(x, a.dim % a.result.ndim), dtype)

    return convert


def _threshold(t: Translation, a: Arguments) -> Any:
    dtype = common_dtype(a.self, kind=KIND.DEFAULT)
    x = t.tensor(a.self, dtype)
    below = t.emit(relax.op.less_equal(x, t.tensor(a.threshold, dtype)))
    return narrowed(t, a, relax.op.where(below, t.tensor(a.values["value"], dtype), x), dtype)


CONVERTERS: dict[str, Converter] = {
    "aten.relu.default": _relu,
    "aten.gelu.default": _gelu,
    "aten.silu.default": _activation(relax.op.nn.silu),
    "aten.leaky_relu.default": _of_scalars("leaky_relu", _leaky_relu),
    "aten.elu.default": _of_scalars("elu", _elu),
    "aten.softplus.default": _of_scalars("softplus", _softplus),
    "aten.softshrink.default": _of_scalars("softshrink", _softshrink),
    "aten.hardshrink.default": _of_scalars("hardshrink", _hardshrink),
    "aten.hardtanh.default": _hardtanh,
    "aten.hardsigmoid.default": _of_scalars("hardsigmoid", _hardsigmoid),
    "aten.hardswish.default": _of_scalars("hardswish", _hardswish),
    "aten.threshold.default": _threshold,
    "aten._prelu_kernel.default": _prelu,
    "aten.prelu.default": _prelu,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp,
    "aten.clamp_min.default": _clamp,
    "aten.clamp_min.Tensor": _clamp,
    "aten.clamp_max.default": _clamp,
    "aten.clamp_max.Tensor": _clamp,
    "aten.where.self": _where,
    "aten.where.ScalarOther": _where,
    "aten.where.ScalarSelf": _where,
    "aten.where.Scalar": _where,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill,
    "aten._softmax.default": _softmax(relax.op.nn.softmax),
    "aten._log_softmax.default": _softmax(relax.op.nn.log_softmax),
}
