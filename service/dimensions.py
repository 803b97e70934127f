"""Dimensions that are expressions over symbols, such as ``2*h`` or ``n + 1``: evaluated and solved, as plain text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: lambda left, right: left % right,
}
_FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": _OPERATORS[ast.FloorDiv],
    "CleanDiv": _OPERATORS[ast.FloorDiv],
    "Mod": _OPERATORS[ast.Mod],
    "PythonMod": _OPERATORS[ast.Mod],
}


class _UnknownError(Exception):
    """The expression has a symbol without a value, or something that is not known here."""


def symbols_of(expression: str) -> frozenset[str]:
    """The symbols of an expression; none of what is no expression."""
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError):
        return frozenset()
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called)


def evaluated(expression: str, sizes: Mapping[str, int]) -> int | None:
    """The value where the symbols have these `sizes`; None where that cannot be told."""
    try:
        return _value(ast.parse(expression, mode="eval").body, sizes)
    except (_UnknownError, SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def solved(expression: str, symbol: str, value: int, sizes: Mapping[str, int]) -> int | None:
    """The size of `symbol` for which a linear expression has that `value`; None where there is none."""
    at = [evaluated(expression, {**sizes, symbol: each}) for each in (0, 1, 2)]
    if at[0] is None or at[1] is None or at[2] is None:
        return None
    factor = at[1] - at[0]
    if factor == 0 or at[2] - at[1] != factor or (value - at[0]) % factor:
        return None
    return (value - at[0]) // factor


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name) if name in sizes:
            return sizes[name]
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, sizes)
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            return _OPERATORS[type(operator)](_value(left, sizes), _value(right, sizes))
        case ast.Call(ast.Name(name), [left, right]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(left, sizes), _value(right, sizes))
    raise _UnknownError
