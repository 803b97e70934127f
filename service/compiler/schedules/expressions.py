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

LEAVES = (prim.IntImm, prim.FloatImm, tvm.ir.StringImm)
_UNARY = (prim.Not, prim.BitwiseNot)


class Unsupported(Exception):
    """An expression or a function that this schedule cannot do; the message is the reason for the report."""


class HasBfloat16(Unsupported):
    """A function with bfloat16 in it: no schedule at all may have it."""

    def __init__(self) -> None:
        super().__init__("bfloat16 has no arithmetic of its own on a CPU: TVM writes it with float32")


def dtype_of(expr: Any) -> str:
    """The dtype of a scalar expression, by name."""
    return str(expr.ty.dtype)


def children(expr: Any) -> list[Any]:
    """The operands of `expr`, in order. Raises Unsupported on what a schedule does not look into."""
    for kinds, operands in _OPERANDS:
        if isinstance(expr, kinds):
            return operands(expr)
    raise Unsupported(f"the expression has a {type(expr).__name__}")


def _cast_operand(expr: prim.Cast) -> list[Any]:
    """Raises Unsupported where wrapping around would be lost: LLVM takes it that signed numbers never do."""
    value = expr.value
    widens = dtype_of(expr) == "int64" and dtype_of(value) == "int32"
    if (
        widens
        and isinstance(value, prim.Add | prim.Sub | prim.Mul)
        and any(isinstance(each, TensorLoad) for each in walk(value))
    ):
        raise Unsupported("an integer that may have wrapped around is made wider")
    return [value]


_OPERANDS: tuple[tuple[Any, Callable[[Any], list[Any]]], ...] = (
    ((*LEAVES, Var), lambda _: []),
    (TensorLoad, lambda expr: list(expr.indices)),
    (_UNARY, lambda expr: [expr.a]),
    ((prim.BinaryOpExpr, prim.CmpExpr, prim.LogicalExpr), lambda expr: [expr.a, expr.b]),
    (prim.Cast, _cast_operand),
    (prim.Select, lambda expr: [expr.condition, expr.true_value, expr.false_value]),
    (Call, lambda expr: list(expr.args)),
    (prim.Let, lambda expr: [expr.value, expr.body]),
)


def rewrite(
    expr: Any, variables: Mapping[Any, Any], on_load: OnLoad | None = None, on_call: OnCall | None = None
) -> Any:
    """`expr` with `variables` replaced, and its loads and calls given to `on_load` and `on_call`, innermost first."""
    if isinstance(expr, Var):
        return variables.get(expr, expr)
    parts = [rewrite(each, variables, on_load, on_call) for each in children(expr)]
    replaced = None
    if isinstance(expr, TensorLoad):
        replaced = None if on_load is None else on_load(expr.source, parts)
    elif isinstance(expr, Call):
        replaced = None if on_call is None else on_call(expr, parts)
    return rebuilt(expr, parts) if replaced is None else replaced


def rebuilt(expr: Any, parts: list[Any]) -> Any:
    """An expression of the kind of `expr` with other operands."""
    if not parts:
        return expr
    if isinstance(expr, TensorLoad):
        return tirx.BufferLoad(expr.source, parts)
    if isinstance(expr, Call):
        return Call(expr.op, parts, expr.attrs, expr.ty_args, ret_ty=expr.ty)
    if isinstance(expr, prim.Cast):
        return prim.Cast(dtype_of(expr), parts[0])
    if isinstance(expr, prim.Let):
        return prim.Let(expr.var, *parts)
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
