"""Mathematical functions of one tensor, and tests of its values.

TVM's importer applies them to integers as they are; `relax.sign` and the rational approximation of tanh lose NaN,
rounding to decimals divides by inexact powers, and isnan, isinf and isfinite have no lowering for every dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from tvm import relax, tirx

from service.compiler.pointwise import dtype_of, extern, pointwise
from service.compiler.promotion import common_dtype, narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name

Scalar = Callable[[Any], Any]


def _to_float(operator: Any) -> Converter:
    """A Relax operator that gives floats also for integers."""

    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, kind=KIND.INT_TO_FLOAT)
        return narrowed(t, a, operator(t.tensor(a.self, dtype)), dtype)

    return convert


def _scalar(name: str, compute: Scalar, kind: KIND = KIND.INT_TO_FLOAT) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, kind=kind)
        return narrowed(t, a, pointwise(t, compute, t.tensor(a.self, dtype), name=name), dtype)

    return convert


def _extern(function: str) -> Converter:
    return _scalar(function, lambda x: extern(function, x))


def _integers_stay(operator: Any) -> Converter:
    """floor, ceil, trunc and round leave integers as they are."""

    def convert(t: Translation, a: Arguments) -> Any:
        if not a.result.dtype.is_floating_point:
            return t.tensor(a.self)
        dtype = widened(a.result.dtype)
        return narrowed(t, a, operator(t, t.tensor(a.self, dtype)), dtype)

    return convert


def _plain(operator: Any) -> Callable[[Translation, Any], Any]:
    return lambda t, x: operator(x)


def _half_even(t: Translation, x: Any) -> Any:
    return pointwise(t, tirx.nearbyint, x, name="round_half_even")


def _round_decimals(t: Translation, a: Arguments) -> Any:
    dtype = widened(a.result.dtype)
    scale = t.tensor(10.0 ** abs(a.decimals), dtype)
    first, second = (relax.op.multiply, relax.op.divide) if a.decimals >= 0 else (relax.op.divide, relax.op.multiply)
    scaled = _half_even(t, t.emit(first(t.tensor(a.self, dtype), scale)))
    return narrowed(t, a, second(scaled, scale), dtype)


def _absolute(t: Translation, a: Arguments) -> Any:
    dtype = a.result.dtype
    if dtype is torch.bool or str(dtype).startswith("torch.uint"):
        return t.tensor(a.self)
    if dtype.is_floating_point:
        wide = widened(dtype)
        return narrowed(t, a, relax.op.abs(t.tensor(a.self, wide)), wide)
    zero = tirx.const(0, dtype_name(dtype))
    return pointwise(t, lambda x: tirx.Select(x < zero, zero - x, x), t.tensor(a.self), name="abs")


def _negative(t: Translation, a: Arguments) -> Any:
    dtype = widened(a.result.dtype)
    x = t.tensor(a.self, dtype)
    if dtype.is_floating_point:
        return narrowed(t, a, relax.op.negative(x), dtype)
    return t.emit(relax.op.subtract(t.tensor(0, dtype), x))


def _sign(x: Any) -> Any:
    dtype = dtype_of(x)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    if dtype.startswith("uint"):
        return tirx.Select(x > zero, one, zero)
    return tirx.Select(x > zero, one, tirx.Select(x < zero, tirx.const(-1, dtype), zero))


def _sign_of(t: Translation, a: Arguments) -> Any:
    if a.result.dtype is torch.bool:
        return t.tensor(a.self)
    return _scalar("sign", _sign, KIND.DEFAULT)(t, a)


def _test(name: str, of_float: Scalar, of_integer: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        source = a.self.meta["val"].dtype
        if not source.is_floating_point:
            return pointwise(t, lambda x: tirx.const(of_integer, "bool"), t.tensor(a.self), name=name)
        return pointwise(t, of_float, t.tensor(a.self, widened(source)), name=name)

    return convert


def is_infinite(x: Any) -> Any:
    return tirx.Or(x == tirx.infinity(dtype_of(x)), x == -tirx.infinity(dtype_of(x)))


def is_finite(x: Any) -> Any:
    dtype = dtype_of(x)
    return tirx.And(x < tirx.infinity(dtype), x > -tirx.infinity(dtype))


def _logical_not(t: Translation, a: Arguments) -> Any:
    return t.emit(relax.op.logical_not(t.tensor(a.self, torch.bool)))


def _bitwise_not(t: Translation, a: Arguments) -> Any:
    operator = relax.op.logical_not if a.result.dtype is torch.bool else relax.op.bitwise_not
    return t.emit(operator(t.tensor(a.self)))


def _square(t: Translation, a: Arguments) -> Any:
    x = t.tensor(a.self, common_dtype(a.self, kind=KIND.BOOL_TO_LONG))
    return narrowed(t, a, relax.op.multiply(x, x), common_dtype(a.self, kind=KIND.BOOL_TO_LONG))


def _reciprocal(t: Translation, a: Arguments) -> Any:
    dtype = common_dtype(a.self, kind=KIND.INT_TO_FLOAT)
    return narrowed(t, a, relax.op.divide(t.tensor(1.0, dtype), t.tensor(a.self, dtype)), dtype)


def _rsqrt(x: Any) -> Any:
    return tirx.const(1, dtype_of(x)) / tirx.sqrt(x)


def _signbit(x: Any) -> Any:
    if "float" not in dtype_of(x):
        return x < 0
    return extern("copysign", tirx.const(1, dtype_of(x)), x) < 0


def _signbit_of(t: Translation, a: Arguments) -> Any:
    source = a.self.meta["val"].dtype
    if source is torch.bool or str(source).startswith("torch.uint"):
        return pointwise(t, lambda x: tirx.const(False, "bool"), t.tensor(a.self), name="signbit")
    return pointwise(t, _signbit, t.tensor(a.self, widened(source)), name="signbit")


# As ATen's calc_erfinv: rational approximations within and beyond 0.7, made exact by two steps of Newton's.
_WITHIN = (
    (0.886226899, -1.645349621, 0.914624893, -0.140543331),
    (1.0, -2.118377725, 1.442710462, -0.329097515, 0.012229801),
)
_BEYOND = ((-1.970840454, -1.624906493, 3.429567803, 1.641345311), (1.0, 3.543889200, 1.637067800))


def _polynomial(coefficients: tuple[float, ...], z: Any) -> Any:
    total: Any = tirx.const(coefficients[-1], dtype_of(z))
    for coefficient in reversed(coefficients[:-1]):
        total = total * z + tirx.const(coefficient, dtype_of(z))
    return total


def _erfinv(y: Any) -> Any:
    dtype = dtype_of(y)
    one, two = tirx.const(1, dtype), tirx.const(2, dtype)
    size = tirx.abs(y)
    near = y * _polynomial(_WITHIN[0], y * y) / _polynomial(_WITHIN[1], y * y)
    z = tirx.sqrt(tirx.log((one - size) / two) * tirx.const(-1, dtype))
    far = extern("copysign", _polynomial(_BEYOND[0], z), y) / _polynomial(_BEYOND[1], z)
    x = tirx.Select(size <= tirx.const(0.7, dtype), near, far)
    for _ in range(2):
        slope = tirx.const(2 / math.sqrt(math.pi), dtype) * tirx.exp(x * x * tirx.const(-1, dtype))
        x = x - (extern("erf", x) - y) / slope
    return tirx.Select(size >= one, tirx.Select(size > one, tirx.const(math.nan, dtype), y / (one - size)), x)


_EXTERN = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc", "expm1", "log1p",
    "log2", "log10", "exp2", "lgamma",
)  # fmt: skip

CONVERTERS: dict[str, Converter] = {
    **{f"aten.{name}.default": _extern(name) for name in _EXTERN},
    "aten.exp.default": _to_float(relax.op.exp),
    "aten.log.default": _to_float(relax.op.log),
    "aten.sqrt.default": _to_float(relax.op.sqrt),
    "aten.sin.default": _to_float(relax.op.sin),
    "aten.cos.default": _to_float(relax.op.cos),
    "aten.tanh.default": _to_float(relax.op.tanh),
    "aten.sigmoid.default": _to_float(relax.op.sigmoid),
    "aten.erfinv.default": _scalar("erfinv", _erfinv),
    "aten.rsqrt.default": _scalar("rsqrt", _rsqrt),
    "aten.reciprocal.default": _reciprocal,
    "aten.floor.default": _integers_stay(_plain(relax.op.floor)),
    "aten.ceil.default": _integers_stay(_plain(relax.op.ceil)),
    "aten.trunc.default": _integers_stay(_plain(relax.op.trunc)),
    "aten.round.default": _integers_stay(_half_even),
    "aten.round.decimals": _round_decimals,
    "aten.abs.default": _absolute,
    "aten.neg.default": _negative,
    "aten.sign.default": _sign_of,
    "aten.square.default": _square,
    "aten.signbit.default": _signbit_of,
    "aten.isnan.default": _test("isnan", tirx.isnan, False),
    "aten.isinf.default": _test("isinf", is_infinite, False),
    "aten.isfinite.default": _test("isfinite", is_finite, True),
    "aten.logical_not.default": _logical_not,
    "aten.bitwise_not.default": _bitwise_not,
}
