"""How folds combine two partial results, and how vectors of them become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim
from tvm.script.ir_builder import tirx as T

from service.compiler.extrema import maximum, minimum
from service.compiler.schedules.computation import Computation
from service.compiler.schedules.expressions import dtype_of, integer
from service.compiler.schedules.writer import vector

# Two partial results, scalars or vectors, as one.
Join = Callable[[Any, Any], Any]


def stored_dtype(fold: Computation) -> str:
    """The dtype of partial results; truth values are numbers, for there are no vectors of bits in memory."""
    return "int32" if fold.fold in ("all", "any") else dtype_of(fold.value)


def as_stored(fold: Computation, value: Any) -> Any:
    """A term, or the start, as a partial result."""
    if fold.fold not in ("all", "any"):
        return value
    return tirx.Select(value, tirx.const(1, "int32"), tirx.const(0, "int32"))


def as_result(fold: Computation, value: Any) -> Any:
    """A partial result as the fold gives it."""
    return prim.NE(value, tirx.const(0, "int32")) if fold.fold in ("all", "any") else value


def combined(fold: Computation, old: Any, new: Any) -> Any:
    """Two partial results as one."""
    if fold.fold == "sum":
        return old + new
    if fold.fold == "any":
        return tirx.max(old, new)
    if fold.fold == "all":
        return tirx.min(old, new)
    if fold.keeps_nan:
        return maximum(old, new) if fold.fold == "max" else minimum(old, new)
    return tirx.max(old, new) if fold.fold == "max" else tirx.min(old, new)


def folded(join: Join, sums: Any, vectors: int, lanes: int) -> Any:
    """`vectors` times `lanes` partial results in the local buffer `sums` as one scalar; `join` makes one of two."""
    for number in range(1, vectors):
        with vector(lanes) as lane:
            other = sums[integer(number * lanes) + lane]
            T.buffer_store(sums, join(sums[lane], other), [lane])
    if lanes == 1:
        return sums[integer(0)]
    ramp = tirx.Ramp(integer(0), integer(1), lanes)
    return _across(join, tirx.BufferLoad(sums, [ramp]), lanes)


def _across(join: Join, value: Any, lanes: int) -> Any:
    """The lanes of one vector as one scalar, by halves."""
    if lanes == 1:
        return T.Bind(value)
    # TVM's parser knows no types of two lanes.
    whole = T.Bind(value) if lanes > 2 else value
    half = lanes // 2
    low, high = (_part(whole, start, half) for start in (0, half))
    return _across(join, join(low, high), half)


def _part(value: Any, start: int, lanes: int) -> Any:
    return tirx.Shuffle([value], [tirx.const(start + lane, "int32") for lane in range(lanes)])
