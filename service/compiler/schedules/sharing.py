"""Subexpressions that occur more than once given a name, so that they are computed and compiled once."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad, Var
from tvm.ir.prim import expr as prim

from service.compiler.schedules.expressions import LEAVES, children, dtype_of, operator_name, rebuilt


def shared(expr: Any) -> Any:
    """`expr` with a ``Let`` for each repeated part that is more than a load.

    What stands in a branch of an ``if_then_else`` stays there: it may not be computed where the branch is not taken.
    """
    graph = _Graph()
    root = graph.add(expr)
    return graph.written(root)


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
