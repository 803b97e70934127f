"""exp, tanh, erf and sigmoid of float32 as polynomials, which LLVM makes vector code of; it calls libm one by one.

And isnan as a comparison of bits: TVM takes a statement with that call out of its vector loop, and simplifies x != x to
False for floats too.

NaN stays NaN and infinities give the limits. Errors are a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm
from tvm import tirx

from service.compiler.schedules.expressions import dtype_of, operator_name

_LOG2_E = 1.4426950408889634
# ln 2 in two parts, the first of which has few digits, so that its product with a small integer is exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP_LOWEST, _EXP_HIGHEST = -104.5, 89.0
_TANH_EDGE = 7.90531110763549805
_TANH_P = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
    6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_Q = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ERF_EDGE = 3.92
# The bits of infinity, as an integer of the same width.
_INFINITY = {"float32": ("int32", 0x7F800000), "float64": ("int64", 0x7FF0000000000000), "float16": ("int16", 0x7C00)}
_ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
          -1.42647390514189e-02)  # fmt: skip


def _number(value: float) -> Any:
    return tirx.const(value, "float32")


def _bound(value: Any, body: Callable[[Any], Any], dtype: str = "float32") -> Any:
    """`body` of a name for `value`, so that it stands in the expression once."""
    name = tirx.Var("t", dtype)
    return tirx.Let(name, value, body(name))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    result = _number(coefficients[0])
    for each in coefficients[1:]:
        result = result * x + _number(each)
    return result


def _clamped(x: Any, low: float, high: float) -> Any:
    """`x` within bounds; NaN passes."""
    below = tirx.Select(x < _number(low), _number(low), x)
    return _bound(below, lambda y: tirx.Select(y > _number(high), _number(high), y))


def exp(x: Any) -> Any:
    """e to the power of `x`, subnormal results and infinity included."""

    def reduced(y: Any) -> Any:
        return _bound(tirx.floor(y * _number(_LOG2_E) + _number(0.5)), lambda n: scaled(y, n))

    def scaled(y: Any, n: Any) -> Any:
        rest = y - n * _number(_LN2_HIGH) - n * _number(_LN2_LOW)
        fraction = _bound(rest, lambda r: _polynomial(r, _EXP) * (r * r) + r + _number(1.0))
        return _bound(fraction, lambda p: _bound(tirx.Cast("int32", n), lambda k: by_powers(p, k), "int32"))

    def by_powers(p: Any, k: Any) -> Any:
        # In two steps, for 2**k itself may be no normal number.
        half = tirx.shift_right(k, tirx.const(1, "int32"))
        return _bound(half, lambda h: p * _power_of_two(h) * _power_of_two(k - h), "int32")

    return _bound(_clamped(x, _EXP_LOWEST, _EXP_HIGHEST), reduced)


def _power_of_two(k: Any) -> Any:
    bits = tirx.shift_left(k + tirx.const(127, "int32"), tirx.const(23, "int32"))
    return tirx.reinterpret("float32", bits)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _number(1.0) / (_number(1.0) + exp(x * _number(-1.0)))


def _odd_fraction(x: Any, edge: float, numerator: Sequence[float], denominator: Sequence[float]) -> Any:
    """A quotient of polynomials between -`edge` and `edge`, and exactly -1 and 1 beyond."""

    def fraction(y: Any) -> Any:
        return _bound(y * y, lambda s: y * _polynomial(s, numerator) / _polynomial(s, denominator))

    def bounded(y: Any) -> Any:
        below = tirx.Select(y < _number(-edge), _number(-1.0), fraction(y))
        return _bound(below, lambda z: tirx.Select(y > _number(edge), _number(1.0), z))

    return _bound(x, bounded)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent, as a quotient of polynomials."""
    return _odd_fraction(x, _TANH_EDGE, _TANH_P, _TANH_Q)


def erf(x: Any) -> Any:
    """The error function, as a quotient of polynomials."""
    return _odd_fraction(x, _ERF_EDGE, _ERF_P, _ERF_Q)


def is_nan(x: Any) -> Any:
    """Whether the bits of `x` without its sign are more than those of infinity; LLVM makes one comparison of it."""
    bits, infinity = _INFINITY[dtype_of(x)]
    every = (1 << (int(bits.removeprefix("int")) - 1)) - 1
    return tirx.bitwise_and(tirx.reinterpret(bits, x), tirx.const(every, bits)) > tirx.const(infinity, bits)


_BY_OPERATOR = {"tirx.exp": exp, "tirx.sigmoid": sigmoid, "tirx.tanh": tanh, "tirx.erf": erf}
_BY_SYMBOL = {"expf": exp, "tanhf": tanh, "erff": erf}


def vectorisable(call: Any, arguments: list[Any]) -> Any:
    """What a vector loop computes in place of a call; None where that is the call itself."""
    name = operator_name(call)
    if name == "tirx.isnan" and dtype_of(arguments[0]) in _INFINITY:
        return is_nan(arguments[0])
    if dtype_of(call) != "float32":
        return None
    if name == "tirx.call_pure_extern" and isinstance(arguments[0], tvm.ir.StringImm):
        rule = _BY_SYMBOL.get(arguments[0].value)
        return None if rule is None else _bound(arguments[1], rule)
    rule = _BY_OPERATOR.get(name)
    return None if rule is None else _bound(arguments[0], rule)
