"""Walking and rewriting scalar expressions of TensorIR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tvm
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.ir.prim import expr as prim

# What a load becomes: given its buffer and its rewritten indices; None leaves it as a load.
OnLoad = Callable[[Any, list[Any]], Any]
OnCall = Callable[[Any, list[Any]], Any]

_LEAVES = (prim.IntImm, prim.FloatImm, tvm.ir.StringImm)
_UNARY = (prim.Not, prim.BitwiseNot)


class Unsupported(Exception):
    """An expression or a function that this schedule cannot do; the message is the reason for the report."""


def dtype_of(expr: Any) -> str:
    """The dtype of a scalar expression, by name."""
    return str(expr.ty.dtype)


def children(expr: Any) -> list[Any]:
    """The operands of `expr`, in order. Raises Unsupported on what a schedule does not look into."""
    if isinstance(expr, _LEAVES) or isinstance(expr, Var):
        return []
    if isinstance(expr, TensorLoad):
        return list(expr.indices)
    if isinstance(expr, prim.BinaryOpExpr | prim.CmpExpr | prim.LogicalExpr) and not isinstance(expr, _UNARY):
        return [expr.a, expr.b]
    if isinstance(expr, _UNARY):
        return [expr.a]
    if isinstance(expr, prim.Cast):
        return [expr.value]
    if isinstance(expr, prim.Select):
        return [expr.condition, expr.true_value, expr.false_value]
    if isinstance(expr, Call):
        return list(expr.args)
    raise Unsupported(f"the expression has a {type(expr).__name__}")


def rewrite(
    expr: Any, variables: Mapping[Any, Any], on_load: OnLoad | None = None, on_call: OnCall | None = None
) -> Any:
    """`expr` with `variables` replaced, and its loads and calls given to `on_load` and `on_call`, innermost first."""
    if isinstance(expr, Var):
        return variables.get(expr, expr)
    parts = [rewrite(each, variables, on_load, on_call) for each in children(expr)]
    if isinstance(expr, TensorLoad):
        replaced = None if on_load is None else on_load(expr.source, parts)
        return tirx.BufferLoad(expr.source, parts) if replaced is None else replaced
    if isinstance(expr, Call):
        replaced = None if on_call is None else on_call(expr, parts)
        return _call(expr, parts) if replaced is None else replaced
    return _rebuilt(expr, parts)


def _call(expr: Any, parts: list[Any]) -> Any:
    return Call(expr.op, parts, expr.attrs, expr.ty_args, ret_ty=expr.ty)


def _rebuilt(expr: Any, parts: list[Any]) -> Any:
    if not parts:
        return expr
    if isinstance(expr, prim.Cast):
        return prim.Cast(dtype_of(expr), parts[0])
    return type(expr)(*parts)


def walk(expr: Any) -> Iterator[Any]:
    """All subexpressions of `expr`, operands first."""
    for each in children(expr):
        yield from walk(each)
    yield expr


def loads(expr: Any) -> list[Any]:
    """The loads in `expr`, those in indices of others included."""
    return [each for each in walk(expr) if isinstance(each, TensorLoad)]


def variables(expr: Any) -> set[Any]:
    """The variables that `expr` reads."""
    return {each for each in walk(expr) if isinstance(each, Var)}


def size(expr: Any) -> int:
    """The number of subexpressions."""
    return sum(1 for _ in walk(expr))


def operator_name(expr: Any) -> str:
    """The full name of the operator that a call calls; empty for other expressions."""
    return str(getattr(expr.op, "name", "")) if isinstance(expr, Call) else ""


def constant(expr: Any) -> int | None:
    """The integer that `expr` is, or None."""
    if isinstance(expr, int):
        return expr
    return int(expr.value) if isinstance(expr, prim.IntImm) else None


def integer(value: Any) -> Any:
    """`value`, an int or an index expression, as int64 expression."""
    return tirx.const(value, "int64") if isinstance(value, int) else value
