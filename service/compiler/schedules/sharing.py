"""Subexpressions that occur more than once given a name, so that they are computed and compiled once."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.ir.prim import expr as prim
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.expressions import LEAVES, children, dtype_of, operator_name, rebuilt, variables, walk

# What may not be computed where a condition keeps it from being computed; arithmetic on floats always may.
_NOT_EVERYWHERE = (TensorLoad, prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod)


def shared(expr: Any) -> Any:
    """`expr` with a ``Let`` for each repeated part that is more than a load.

    What stands in a branch of an ``if_then_else`` stays there: it may not be computed where the branch is not taken.
    """
    graph = _Graph()
    root = graph.add(expr)
    return graph.written(root)


def bound(expr: Any, lane: Any) -> Any:
    """`expr` without any ``Let``: each of its names is bound by a statement of its own, written before.

    A ``Let`` inside an expression prints as text that TVM's parser does not read back. Where all that depends on `lane`
    (the variable of a vector loop) is not computed on vectors, each name is written out instead: TVM takes such a
    statement out of its vector loop, and a name that was bound in there would be left behind.
    """
    return _bound(expr, {}, None) if lane is None or _stays_on_vectors(expr, lane) else _written_out(expr, {})


def _stays_on_vectors(expr: Any, lane: Any) -> bool:
    varying = {lane}
    for each in walk(expr):
        if isinstance(each, prim.Let) and variables(each.value) & varying:
            varying.add(each.var)
        elif operator_name(each) == "prim.if_then_else":
            if variables(each.args[0]) & varying:
                return False
        elif isinstance(each, Call) and not (operator_name(each) == "tirx.reinterpret" or _is_vectorisable(each)):
            return False
    return True


def _is_vectorisable(call: Call) -> bool:
    return bool(call.op.get_attr("TVectorizable"))


def _written_out(expr: Any, names: dict[Any, Any]) -> Any:
    if isinstance(expr, Var):
        return names.get(expr, expr)
    if isinstance(expr, prim.Let):
        return _written_out(expr.body, {**names, expr.var: _written_out(expr.value, names)})
    return rebuilt(expr, [_written_out(each, names) for each in children(expr)])


def _bound(expr: Any, names: dict[Any, Any], guard: Any) -> Any:
    """`guard` is the condition under which `expr` may be computed; None for always."""
    if isinstance(expr, Var):
        return names.get(expr, expr)
    if isinstance(expr, prim.Let):
        value = _bound(expr.value, names, guard)
        if not isinstance(value, (Var, *LEAVES)):
            value = T.Bind(_guarded(value, guard))
        return _bound(expr.body, {**names, expr.var: value}, guard)
    if operator_name(expr) == "prim.if_then_else":
        condition = _bound(expr.args[0], names, guard)
        branches = (_both(guard, condition), _both(guard, tirx.Not(condition)))
        parts = [_bound(part, names, when) for part, when in zip(expr.args[1:], branches, strict=True)]
        return rebuilt(expr, [condition, *parts])
    return rebuilt(expr, [_bound(each, names, guard) for each in children(expr)])


def _both(guard: Any, condition: Any) -> Any:
    return condition if guard is None else tirx.And(guard, condition)


def _guarded(value: Any, guard: Any) -> Any:
    """`value` where `guard` holds; elsewhere 0, where computing it might read outside of memory or divide by 0."""
    if guard is None or not any(isinstance(each, _NOT_EVERYWHERE) for each in walk(value)):
        return value
    return tirx.if_then_else(guard, value, tirx.const(0, dtype_of(value)))


class _Graph:
    """The nodes of one expression, equal ones once, operands before those that read them."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}
        self.nodes: list[Any] = []
        self.operands: list[list[int]] = []
        self.readers: list[int] = []

    def add(self, expr: Any) -> int:
        """The number of the node for `expr`."""
        parts: list[int] = []
        key: Any
        if isinstance(expr, Var):
            key = ("variable", expr)
        elif isinstance(expr, LEAVES):
            key = ("number", dtype_of(expr) if hasattr(expr.ty, "dtype") else "", str(expr.value))
        elif operator_name(expr) == "prim.if_then_else" or isinstance(expr, prim.Let):
            key = ("whole", id(expr))
        else:
            parts = [self.add(each) for each in children(expr)]
            key = (*_kind(expr), *parts)
        if key not in self.numbers:
            self.numbers[key] = len(self.nodes)
            self.nodes.append(expr)
            self.operands.append(parts)
            self.readers.append(0)
            for part in parts:
                self.readers[part] += 1
        return self.numbers[key]

    def written(self, root: int) -> Any:
        """The expression of the node `root`."""
        done: list[Any] = []
        names: list[tuple[Any, Any]] = []
        for number, expr in enumerate(self.nodes):
            parts = self.operands[number]
            value = rebuilt(expr, [done[part] for part in parts]) if parts else expr
            repeated = self.readers[number] > 1 and parts and "int64" not in dtype_of(expr)
            if repeated and not isinstance(expr, TensorLoad) and number != root:
                name = tirx.Var("s", dtype_of(expr))
                names.append((name, value))
                value = name
            done.append(value)
        result = done[root]
        for name, value in reversed(names):
            result = tirx.Let(name, value, result)
        return result


def _kind(expr: Any) -> tuple[Any, ...]:
    if isinstance(expr, TensorLoad):
        return ("load", expr.source)
    if isinstance(expr, Call):
        return ("call", operator_name(expr), dtype_of(expr))
    if isinstance(expr, prim.Cast):
        return ("cast", dtype_of(expr))
    return (type(expr).__name__,)
