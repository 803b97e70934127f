"""PyTorch's expressions over sizes, which are sympy's, as expressions of TensorIR."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
from torch.utils._sympy import functions as torch_sympy
from tvm import tirx

from service.errors import ImportFailed


def symbolic(expression: Any, symbols: Mapping[str, Any]) -> Any:
    """A sympy expression of PyTorch's over sizes as one of TensorIR. Raises ImportFailed."""
    if isinstance(expression, sympy.Integer):
        return tirx.const(int(expression), "int64")
    if isinstance(expression, sympy.Float | sympy.Rational):
        return tirx.const(float(expression), "float64")
    if expression in (sympy.true, sympy.false):
        return tirx.const(bool(expression), "bool")
    if isinstance(expression, sympy.Symbol):
        return symbols[str(expression)]
    parts = [symbolic(part, symbols) for part in expression.args]
    rule = _SYMPY.get(type(expression))
    if rule is None or (isinstance(expression, sympy.Pow) and not expression.args[1].is_Integer):
        raise ImportFailed(f"The size {expression} of the model is of a kind that cannot be compiled.", step=0)
    return functools.reduce(rule, parts) if len(parts) > 1 else rule(*parts)


def _power(base: Any, exponent: Any) -> Any:
    return functools.reduce(operator.mul, [base] * int(exponent))


def _as_float(x: Any) -> Any:
    return tirx.Cast("float64", x)


def _divisor(size: Any) -> Any:
    """A size that is divided by: never 0, by which the processor cannot divide."""
    return size if isinstance(size, tirx.IntImm) else tirx.max(size, tirx.const(1, "int64"))


_SYMPY: dict[Any, Callable[..., Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: _power,
    torch_sympy.FloorDiv: lambda a, b: tirx.floordiv(a, _divisor(b)),
    torch_sympy.CleanDiv: lambda a, b: tirx.floordiv(a, _divisor(b)),
    torch_sympy.PythonMod: lambda a, b: tirx.floormod(a, _divisor(b)),
    torch_sympy.Mod: lambda a, b: tirx.floormod(a, _divisor(b)),
    torch_sympy.CeilDiv: lambda a, b: tirx.floordiv(a + b - 1, _divisor(b)),
    torch_sympy.Max: tirx.max,
    torch_sympy.Min: tirx.min,
    torch_sympy.ToFloat: _as_float,
    torch_sympy.IntTrueDiv: lambda a, b: _as_float(a) / _as_float(b),
    torch_sympy.FloatTrueDiv: lambda a, b: a / b,
    torch_sympy.TruncToInt: lambda x: tirx.Cast("int64", x),
    torch_sympy.FloorToInt: lambda x: tirx.Cast("int64", tirx.floor(x)),
    torch_sympy.CeilToInt: lambda x: tirx.Cast("int64", tirx.ceil(x)),
    sympy.Eq: lambda a, b: a == b,
    sympy.Ne: lambda a, b: a != b,
    sympy.StrictLessThan: lambda a, b: a < b,
    sympy.LessThan: lambda a, b: a <= b,
    sympy.StrictGreaterThan: lambda a, b: a > b,
    sympy.GreaterThan: lambda a, b: a >= b,
    sympy.And: tirx.And,
    sympy.Or: tirx.Or,
    sympy.Not: tirx.Not,
}
