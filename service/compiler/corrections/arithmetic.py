"""Arithmetic, comparisons, logic and bits of two tensors, or of a tensor and a number.

TVM's importer (base_fx_graph_translator.py, `_binary_op`) makes a number a constant of the tensor's dtype, so that an
integer times 0.5 is an integer times 0, divides integers as integers, and has int32 constants for int64 tensors. Its
arithmetic simplifier takes x - x for 0, x == x for True, x * 0 for 0 and not (x < y) for y <= x, whatever is NaN or
infinite; `relax.maximum` loses NaN; remainders of floats take the dividend's sign or overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.corrections.creation import broadcast_to
from service.compiler.corrections.reductions import all_true
from service.compiler.extrema import is_float, maximum, minimum
from service.compiler.pointwise import dtype_of, extern, pointwise
from service.compiler.promotion import common_dtype, narrowed, value_of
from service.compiler.translation import Arguments, Converter, Translation

Scalar = Callable[..., Any]


def _operands(t: Translation, a: Arguments, dtype: torch.dtype) -> tuple[Any, Any]:
    return t.tensor(a.self, dtype), t.tensor(a.other, dtype)


def _binary(operator: Any, kind: KIND = KIND.DEFAULT) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other, kind=kind)
        return narrowed(t, a, operator(*_operands(t, a, dtype)), dtype)

    return convert


def _sum(operator: Any, swapped: bool = False) -> Converter:
    """add, sub and rsub: the second operand is multiplied by alpha; bools are joined, not added."""

    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other)
        left, right = _operands(t, a, dtype)
        if dtype is torch.bool:
            return t.emit(relax.op.logical_or(left, right))
        if swapped:
            left, right = right, left
        alpha = a.values.get("alpha", 1)
        if alpha != 1:
            right = t.emit(relax.op.multiply(right, t.tensor(alpha, dtype)))
        return narrowed(t, a, operator(left, right), dtype)

    return convert


def _multiply(t: Translation, a: Arguments) -> Any:
    dtype = common_dtype(a.self, a.other)
    left, right = _operands(t, a, dtype)
    operator = relax.op.logical_and if dtype is torch.bool else relax.op.multiply
    return narrowed(t, a, operator(left, right), dtype)


def _comparison(operator: Any) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other)
        left, right = _operands(t, a, dtype)
        if dtype is torch.bool:
            left, right = (t.cast(each, torch.bool, torch.int8) for each in (left, right))
        return t.emit(operator(left, right))

    return convert


def _scalar(name: str, compute: Scalar, kind: KIND = KIND.DEFAULT) -> Converter:
    """An operator given as a function of two scalars of TensorIR and the dtype's name."""

    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other, kind=kind)
        result = pointwise(t, compute, *_operands(t, a, dtype), name=name)
        return narrowed(t, a, result, dtype)

    return convert


def _number(value: float, like: Any) -> Any:
    return tirx.const(value, dtype_of(like))


def _safe_divisor(y: Any) -> Any:
    """1 in place of an integer by which the processor cannot divide."""
    unsafe = tirx.Or(y == _number(0, y), y == _number(-1, y)) if _signed(y) else y == _number(0, y)
    return tirx.Select(unsafe, _number(1, y), y)


def _signs_differ(x: Any, y: Any) -> Any:
    one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")
    negative = [tirx.Select(each < _number(0, each), one, zero) for each in (x, y)]
    return negative[0] != negative[1]


def fmod(x: Any, y: Any) -> Any:
    """The remainder with the sign of the dividend; of integers, 0 where the divisor is 0, instead of a crash."""
    return extern("fmod", x, y) if is_float(x) else tirx.truncmod(x, _safe_divisor(y))


def remainder(x: Any, y: Any) -> Any:
    """The remainder with the sign of the divisor."""
    rest = fmod(x, y)
    if not is_float(x) and not _signed(x):
        return rest
    return tirx.Select(tirx.And(rest != _number(0, x), _signs_differ(rest, y)), rest + y, rest)


def _signed(x: Any) -> bool:
    return not dtype_of(x).startswith("uint")


def trunc_divide(x: Any, y: Any) -> Any:
    """The quotient rounded towards zero."""
    if is_float(x):
        return tirx.trunc(x / y)
    quotient = tirx.truncdiv(x, _safe_divisor(y))
    return tirx.Select(y == _number(-1, y), _number(0, x) - x, quotient) if _signed(x) else quotient


def floor_divide(x: Any, y: Any) -> Any:
    """As ATen's div_floor: the quotient is made of the remainder, so that it is right next to whole numbers."""
    zero, one = _number(0, x), _number(1, x)
    if not is_float(x):
        quotient = trunc_divide(x, y)
        if not _signed(x):
            return quotient
        rest = fmod(x, y)
        return tirx.Select(tirx.And(rest != zero, _signs_differ(rest, y)), quotient - one, quotient)
    rest = extern("fmod", x, y)
    quotient = (x - rest) / y
    quotient = tirx.Select(tirx.And(rest != zero, _signs_differ(rest, y)), quotient - one, quotient)
    floored = tirx.floor(quotient)
    rounded = tirx.Select(quotient - floored > _number(0.5, x), floored + one, floored)
    signed_zero = extern("copysign", zero, x / y)
    return tirx.Select(y == zero, x / y, tirx.Select(quotient == zero, signed_zero, rounded))


def _divide_by_zero_check(t: Translation, a: Arguments, divisor: Any) -> None:
    """Eager raises ZeroDivisionError where an integer is divided by 0."""
    dtype = common_dtype(a.self, a.other)
    if dtype.is_floating_point:
        return
    number = value_of(a.other)
    if isinstance(number, int | float):
        return
    nonzero = t.emit(relax.op.not_equal(divisor, t.tensor(0, dtype)))
    t.check(a, all_true(t, nonzero), "an integer is divided by zero")


def _integral(name: str, compute: Scalar) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other)
        left, right = _operands(t, a, dtype)
        _divide_by_zero_check(t, a, right)
        return narrowed(t, a, pointwise(t, compute, left, right, name=name), dtype)

    return convert


_true_divide = _binary(relax.op.divide, KIND.INT_TO_FLOAT)


def _divide_by_mode(t: Translation, a: Arguments) -> Any:
    if a.rounding_mode is None:
        return _true_divide(t, a)
    rule = floor_divide if a.rounding_mode == "floor" else trunc_divide
    return _integral(f"divide_{a.rounding_mode}", rule)(t, a)


def _extreme(operator: Any, of_bools: Any) -> Converter:
    plain = _binary(operator)

    def convert(t: Translation, a: Arguments) -> Any:
        if a.result.dtype is torch.bool:
            return t.emit(of_bools(*_operands(t, a, torch.bool)))
        return plain(t, a)

    return convert


def _ignoring_nan_or_bool(name: str, compute: Scalar, of_bools: Any) -> Converter:
    plain = _scalar(name, _ignoring_nan(compute))

    def convert(t: Translation, a: Arguments) -> Any:
        if a.result.dtype is torch.bool:
            return t.emit(of_bools(*_operands(t, a, torch.bool)))
        return plain(t, a)

    return convert


def _ignoring_nan(compute: Scalar) -> Scalar:
    def choose(x: Any, y: Any) -> Any:
        if not is_float(x):
            return compute(x, y)
        return tirx.Select(tirx.isnan(x), y, tirx.Select(tirx.isnan(y), x, compute(x, y)))

    return choose


def _power(t: Translation, a: Arguments) -> Any:
    base = a.values["self"]
    dtype = common_dtype(base, a.exponent, kind=KIND.BOOL_TO_LONG)
    if not isinstance(a.exponent, torch.fx.Node):
        simple = _power_of_number(t, a, dtype)
        if simple is not None:
            return simple
    left, right = t.tensor(base, dtype), t.tensor(a.exponent, dtype)
    if dtype.is_floating_point:
        return narrowed(t, a, pointwise(t, tirx.pow, left, right, name="power"), dtype)
    small = not isinstance(a.exponent, torch.fx.Node) and abs(a.exponent) < 64
    even = isinstance(base, int) and base % 2 == 0
    # Modulo 2**bits an even base gives 0 from the exponent 64 on, and an odd one repeats with period 2**(bits - 2).
    if small or even or dtype.itemsize == 1:
        return narrowed(t, a, pointwise(t, _integer_power, left, right, name="power"), dtype)
    like = a.result
    operands = [broadcast_to(t, each, like) for each in (left, right)]
    return narrowed(t, a, t.te(_power_by_squaring, *operands, name="power"), dtype)


def _power_by_squaring(base: Any, exponent: Any) -> Any:
    """Whole powers of integers, over all bits of the exponents."""
    dtype = str(base.dtype)
    bits = int(dtype.lstrip("uint"))

    def kernel(ins: Any, outs: Any) -> Any:
        ib = IRBuilder()
        with ib, T.seq_scope():
            x, y, out = (T.buffer_proxy(each) for each in (*ins, outs[0]))
            state = T.buffer_proxy(T.alloc_buffer((2,), dtype, scope="local"))
            size: Any = tirx.const(1, "int64")
            for each in ins[0].shape:
                size = size * each
            with T.serial(0, size) as i:
                one, zero = tirx.const(1, dtype), tirx.const(0, dtype)
                out[i] = one
                state[0] = x[i]
                state[1] = y[i]
                with T.serial(0, bits):
                    odd = tirx.bitwise_and(state[1], one) != zero
                    out[i] = tirx.Select(odd, out[i] * state[0], out[i])
                    state[0] = state[0] * state[0]
                    state[1] = tirx.shift_right(state[1], one)
                if _signed(x[i]):
                    out[i] = tirx.Select(y[i] < zero, _inverse_power(x[i], y[i]), out[i])
        return ib.get()

    return te.extern([base.shape], [base, exponent], kernel, dtype=[dtype], name="power")


def _power_of_number(t: Translation, a: Arguments, dtype: torch.dtype) -> Any:
    """Small whole powers and roots, which eager computes so, too; roots not of float16."""
    x = t.tensor(a.self, dtype)
    if a.exponent in (2, 3):
        square = t.emit(relax.op.multiply(x, x))
        return narrowed(t, a, square if a.exponent == 2 else relax.op.multiply(square, x), dtype)
    if not dtype.is_floating_point:
        return None
    one = t.tensor(1.0, dtype)
    if a.exponent == -2:
        return narrowed(t, a, relax.op.divide(one, t.emit(relax.op.multiply(x, x))), dtype)
    if a.result.dtype is torch.float16 or a.exponent not in (0.5, -0.5, -1):
        return None
    if a.exponent == -1:
        return narrowed(t, a, relax.op.divide(one, x), dtype)
    root = t.emit(relax.op.sqrt(x))
    return narrowed(t, a, root if a.exponent == 0.5 else relax.op.divide(one, root), dtype)


def _integer_power(x: Any, y: Any) -> Any:
    """By squaring, over the bits of the exponent, wrapping around; negative exponents give 1, -1 or 0 as eager."""
    one, zero, two = (_number(value, x) for value in (1, 0, 2))
    result, square, rest = one, x, y
    for _ in range(6):
        result = tirx.Select(tirx.truncmod(rest, two) == one, result * square, result)
        square = square * square
        rest = tirx.truncdiv(rest, two)
    is_even = tirx.truncmod(x, two) == zero
    result = tirx.Select(tirx.And(rest != zero, is_even), zero, result)
    return tirx.Select(y < zero, _inverse_power(x, y), result) if _signed(x) else result


def _inverse_power(x: Any, y: Any) -> Any:
    """1, -1 or 0: of an integer to a negative power, as eager."""
    one, zero, two, minus_one = (_number(value, x) for value in (1, 0, 2, -1))
    of_minus_one = tirx.Select(tirx.truncmod(y, two) != zero, minus_one, one)
    return tirx.Select(x == one, one, tirx.Select(x == minus_one, of_minus_one, zero))


def _logical(operator: Any) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        return t.emit(operator(*_operands(t, a, torch.bool)))

    return convert


def _bitwise(of_integers: Any, of_bools: Any) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = common_dtype(a.self, a.other)
        operator = of_bools if dtype is torch.bool else of_integers
        return narrowed(t, a, operator(*_operands(t, a, dtype)), dtype)

    return convert


def _shift(direction: str) -> Converter:
    def compute(x: Any, y: Any) -> Any:
        bits = int(dtype_of(x).lstrip("uint"))
        within = tirx.And(y >= 0, y < bits)
        safe = tirx.Select(within, y, tirx.const(0, dtype_of(x)))
        if direction == "left":
            return tirx.Select(within, x << safe, tirx.const(0, dtype_of(x)))
        beyond = tirx.const(0, dtype_of(x))
        if _signed(x):
            beyond = tirx.Select(x < 0, tirx.const(-1, dtype_of(x)), beyond)
        return tirx.Select(within, x >> safe, beyond)

    return _scalar(f"shift_{direction}", compute)


_COMPARISONS = {
    "eq": relax.op.equal,
    "ne": relax.op.not_equal,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}

CONVERTERS: dict[str, Converter] = {
    "aten.add.Tensor": _sum(relax.op.add),
    "aten.add.Scalar": _sum(relax.op.add),
    "aten.sub.Tensor": _sum(relax.op.subtract),
    "aten.sub.Scalar": _sum(relax.op.subtract),
    "aten.rsub.Tensor": _sum(relax.op.subtract, swapped=True),
    "aten.rsub.Scalar": _sum(relax.op.subtract, swapped=True),
    "aten.mul.Tensor": _multiply,
    "aten.mul.Scalar": _multiply,
    "aten.div.Tensor": _true_divide,
    "aten.div.Scalar": _true_divide,
    "aten.div.Tensor_mode": _divide_by_mode,
    "aten.div.Scalar_mode": _divide_by_mode,
    "aten.floor_divide.default": _integral("floor_divide", floor_divide),
    "aten.floor_divide.Scalar": _integral("floor_divide", floor_divide),
    "aten.remainder.Tensor": _integral("remainder", remainder),
    "aten.remainder.Scalar": _integral("remainder", remainder),
    "aten.remainder.Scalar_Tensor": _integral("remainder", remainder),
    "aten.fmod.Tensor": _integral("fmod", fmod),
    "aten.fmod.Scalar": _integral("fmod", fmod),
    "aten.pow.Tensor_Tensor": _power,
    "aten.pow.Tensor_Scalar": _power,
    "aten.pow.Scalar": _power,
    "aten.maximum.default": _extreme(relax.op.maximum, relax.op.logical_or),
    "aten.minimum.default": _extreme(relax.op.minimum, relax.op.logical_and),
    "aten.fmax.default": _ignoring_nan_or_bool("fmax", maximum, relax.op.logical_or),
    "aten.fmin.default": _ignoring_nan_or_bool("fmin", minimum, relax.op.logical_and),
    "aten.atan2.default": _scalar("atan2", lambda x, y: extern("atan2", x, y), KIND.INT_TO_FLOAT),
    "aten.hypot.default": _scalar("hypot", lambda x, y: extern("hypot", x, y)),
    "aten.copysign.Tensor": _scalar("copysign", lambda x, y: extern("copysign", x, y), KIND.INT_TO_FLOAT),
    "aten.copysign.Scalar": _scalar("copysign", lambda x, y: extern("copysign", x, y), KIND.INT_TO_FLOAT),
    "aten.logical_and.default": _logical(relax.op.logical_and),
    "aten.logical_or.default": _logical(relax.op.logical_or),
    "aten.logical_xor.default": _logical(relax.op.logical_xor),
    **{
        f"aten.bitwise_{name}.{overload}": _bitwise(of_integers, of_bools)
        for name, of_integers, of_bools in (
            ("and", relax.op.bitwise_and, relax.op.logical_and),
            ("or", relax.op.bitwise_or, relax.op.logical_or),
            ("xor", relax.op.bitwise_xor, relax.op.logical_xor),
        )
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{
        f"aten.bitwise_{direction}_shift.{overload}": _shift(direction)
        for direction in ("left", "right")
        for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"aten.{name}.{overload}": _shift(direction)
        for name, direction in (("__lshift__", "left"), ("__rshift__", "right"))
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"aten.{name}.{overload}": _comparison(operator)
        for name, operator in _COMPARISONS.items()
        for overload in ("Tensor", "Scalar")
    },
}
