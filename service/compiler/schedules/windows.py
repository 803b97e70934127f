"""Where a convolution or a pooling reads its input: one window for each place of the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm.ir.prim import expr as prim

from service.compiler.schedules.computation import Axis, Indices, shape_of
from service.compiler.schedules.contraction import is_load
from service.compiler.schedules.expressions import Unsupported, constant, integer, operator_name, rewrite, variables


@dataclass(frozen=True)
class Window:
    """Along one spatial axis: result `place` reads input element place * stride + tap * dilation - padding.

    Elements outside ``[0, size)`` count as nothing.
    """

    place: Axis
    tap: Axis
    stride: int
    dilation: int
    padding: int
    size: int
    position: int

    def valid(self, place: int, tap: int) -> bool:
        """Whether the input has the element."""
        return 0 <= place * self.stride + tap * self.dilation - self.padding < self.size


def padded_load(expr: Any) -> tuple[Any, list[Any]]:
    """The load in ``if_then_else(conditions, load, 0)``, or in `expr` itself, and the conditions."""
    if is_load(expr):
        return expr, []
    if operator_name(expr) != "prim.if_then_else" or not is_load(expr.args[1]):
        raise Unsupported("an operand is computed, not read")
    other = expr.args[2]
    if not isinstance(other, prim.FloatImm) or float(other.value) != 0.0:
        raise Unsupported("the border is not 0")
    return expr.args[1], _conjuncts(expr.args[0])


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, prim.And):
        return _conjuncts(condition.a) + _conjuncts(condition.b)
    return [condition]


def check_bounds(load: Any, conditions: list[Any], indices: Indices) -> None:
    """Raises Unsupported unless the conditions hold exactly where the load is within its buffer."""
    for condition in conditions:
        if not any(_is_bound(condition, index, size, indices) for index, size in _dimensions(load)):
            raise Unsupported("the border is not that of the input")


def _dimensions(load: Any) -> list[tuple[Any, Any]]:
    return list(zip(load.indices, shape_of(load.source), strict=True))


def _is_bound(condition: Any, index: Any, size: Any, indices: Indices) -> bool:
    """Whether `condition` says that `index` is at least 0, or that it is less than `size`."""
    if isinstance(condition, prim.LE | prim.GE):
        high, low = (condition.b, condition.a) if isinstance(condition, prim.LE) else (condition.a, condition.b)
        return constant(indices.simplify(high - low - index)) == 0
    if isinstance(condition, prim.LT | prim.GT):
        low, high = (condition.a, condition.b) if isinstance(condition, prim.LT) else (condition.b, condition.a)
        return constant(indices.simplify(high - low - (integer(size) - index))) == 0
    return False


def find_window(load: Any, place: Axis, tap: Axis, indices: Indices) -> Window:
    """How `load` runs along `place` and `tap`. Raises Unsupported where that is not as a window."""
    found = [i for i, index in enumerate(load.indices) if {place.var, tap.var} & variables(index)]
    if len(found) != 1:
        raise Unsupported("the input is not read by windows")
    index = load.indices[found[0]]
    size = shape_of(load.source)[found[0]]
    steps = [indices.step(index, axis) for axis in (place, tap)]
    first = constant(indices.simplify(rewrite(index, {place.var: integer(0), tap.var: integer(0)})))
    known = [None if step is None else constant(step) for step in steps]
    stride, dilation = known
    if stride is None or dilation is None or first is None or not isinstance(size, int):
        raise Unsupported("the windows are not evenly spaced")
    if place.extent == 1 or stride == 0:
        stride = max(stride, 1)
    if not isinstance(place.extent, int) or not isinstance(tap.extent, int):
        raise Unsupported("the spatial sizes are not known")
    return Window(place, tap, stride, max(dilation, 1), -first, size, found[0])
