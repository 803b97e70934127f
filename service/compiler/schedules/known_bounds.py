"""The larger and the smaller of a number and a bound that is known: one comparison, where NaN takes two in general."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim import expr as prim

from service.compiler.schedules.computation import Program
from service.compiler.schedules.expressions import children, operator_name, rebuilt
from service.compiler.schedules.writer import dtype_of_buffer
from service.runtime.session import Array


def with_known_bounds(program: Program, constants: Mapping[Any, tuple[Array, ...]]) -> Program:
    """`program` with each extremum of a number and a known bound as the Select that keeps the number's NaN by itself.

    Known are literals, and inputs of one element whose `constants` are the same finite number in all calls.
    """

    def bound(expr: Any) -> Any:
        if isinstance(expr, prim.FloatImm):
            return expr if math.isfinite(expr.value) else None
        if not isinstance(expr, TensorLoad):
            return None
        values = {float(each) for value in constants.get(expr.source, ()) if value.size == 1 for each in value.flat}
        if len(values) != 1 or not all(map(math.isfinite, values)):
            return None
        return tirx.const(values.pop(), dtype_of_buffer(expr.source))

    computations = tuple(replace(each, value=_rewritten(each.value, bound)) for each in program.computations)
    return replace(program, computations=computations)


def _rewritten(expr: Any, bound: Callable[[Any], Any]) -> Any:
    parts = children(expr)
    expr = rebuilt(expr, [_rewritten(each, bound) for each in parts]) if parts else expr
    simpler = _extremum(expr, bound)
    return expr if simpler is None else simpler


def _extremum(expr: Any, bound: Callable[[Any], Any]) -> Any:
    """Select(x > y or isnan(x), x, y), or the same with <, when one of the two is known; None for all else.

    No comparison holds for a NaN, so that what is not known must be the last: Select(bound > x, bound, x).
    """
    if not (isinstance(expr, prim.Select) and isinstance(expr.condition, prim.Or)):
        return None
    ordered, unordered = expr.condition.a, expr.condition.b
    x, y = expr.true_value, expr.false_value
    if not isinstance(ordered, prim.GT | prim.LT) or operator_name(unordered) != "tirx.isnan":
        return None
    sides = [ordered.a, ordered.b] if isinstance(ordered, prim.GT) else [ordered.b, ordered.a]
    is_larger = _same(sides[0], x)
    if not (_same(sides if is_larger else sides[::-1], [x, y]) and _same(unordered.args[0], x)):
        return None
    for known, other in ((bound(y), x), (bound(x), y)):
        if known is not None:
            wins = prim.GT(known, other) if is_larger else prim.LT(known, other)
            return prim.Select(wins, known, other)
    return None


def _same(one: Any, other: Any) -> bool:
    return bool(tvm_ffi.structural_equal(one, other))
