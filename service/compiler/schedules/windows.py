"""Where a convolution or a pooling reads its input: one window for each place of the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.computation import Axis, Indices, shape_of
from service.compiler.schedules.contraction import is_load
from service.compiler.schedules.expressions import Unsupported, constant, integer, operator_name, rewrite, variables
from service.compiler.schedules.tile import even_tiles


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


def tap_bounds(window: Window, place: Any) -> tuple[Any, Any]:
    """The first tap of the window at `place` that the input has, and the one after the last."""
    first, taps = place * integer(window.stride) - integer(window.padding), window.tap.extent
    ends = (0, int(window.place.extent) - 1)
    if all(window.valid(end, tap) for end in ends for tap in (0, taps - 1)):
        return integer(0), integer(taps)
    dilation = integer(window.dilation)
    low = tirx.max(integer(0), tirx.floordiv(dilation - integer(1) - first, dilation))
    high = tirx.min(integer(taps), tirx.floordiv(integer(window.size - 1) - first, dilation) + integer(1))
    return low, tirx.max(high, low)


def tiles_along(window: Window, length: int, most: int, emit: Callable[[Any, int], None], *, inside: bool) -> None:
    """`emit(start, size)` for tiles that cover `length` places; those whose taps are all there in loops.

    `start` is an int where taps may be missing. `inside` says that none ever is.
    """

    def is_inside(start: int, size: int) -> bool:
        last = start + size - 1
        return inside or (window.valid(start, 0) and window.valid(last, window.tap.extent - 1))

    start = 0
    for size, times in even_tiles(length, most):
        whole = [number for number in range(times) if is_inside(start + number * size, size)]
        for number in range(times):
            if not whole or number < whole[0] or number > whole[-1]:
                emit(start + number * size, size)
            elif number == whole[0]:
                with T.serial(0, integer(len(whole))) as tile:
                    emit(integer(start + whole[0] * size) + tile * integer(size), size)
        start += times * size
