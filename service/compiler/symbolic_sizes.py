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


_SYMPY: dict[Any, Callable[..., Any]] = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: _power,
    torch_sympy.FloorDiv: tirx.floordiv,
    torch_sympy.CleanDiv: tirx.floordiv,
    torch_sympy.PythonMod: tirx.floormod,
    torch_sympy.Mod: tirx.floormod,
    torch_sympy.CeilDiv: lambda a, b: tirx.floordiv(a + b - 1, b),
    torch_sympy.Max: tirx.max,
    torch_sympy.Min: tirx.min,
    torch_sympy.ToFloat: _as_float,
    torch_sympy.IntTrueDiv: lambda a, b: _as_float(a) / _as_float(b),
    torch_sympy.FloatTrueDiv: lambda a, b: a / b,
}
