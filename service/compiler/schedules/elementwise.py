"""Maps: element-wise arithmetic, broadcasts, copies, transposes, slices, joins and lookups, as one vectorised loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.computation import Axis, Computation, Indices, Program, inlined, offset
from service.compiler.schedules.expressions import (
    Unsupported,
    constant,
    integer,
    loads,
    rewrite,
    size,
    variables,
)
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.writer import (
    Writer,
    count,
    dtype_of_buffer,
    placed,
    strips,
    vector,
    work_of,
    writing,
)

NAME = "elementwise"


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with one loop nest an output. Raises Unsupported where there is a fold."""
    program = inlined(program)
    if program.folds():
        raise Unsupported("the function folds")
    if len(program.computations) > len(program.outputs):
        raise Unsupported("an expression of the function is too large to be computed at once")
    chosen = []
    with writing(name, program, parallel=situation.parallel) as writer:
        for computation in program.computations:
            chosen.append(_nest(writer, computation, situation))
    elements = [count([axis.extent for axis in each.axes]) for each in program.computations]
    flops = sum(each * size(c.value) for each, c in zip(elements, program.computations, strict=True)
                if isinstance(each, int))  # fmt: skip
    return Kernel(NAME, writer.function, {"vector": chosen[0]}, flops)


def _nest(writer: Writer, computation: Computation, situation: Situation) -> int:
    """Writes the loops of one output; the width of its vectors."""
    axes, value = merged(computation.axes, computation.value)
    lanes = situation.unit.lanes(str(computation.buffer.ty.dtype))
    *outer, inner = axes if axes else [Axis(new_variable(), 1)]
    extent = inner.extent
    value = writer.flat(value, Indices([*outer, inner]))

    def body(at: dict[Any, Any], base: Any) -> None:
        def strip(start: Any, width: int) -> None:
            with vector(width) as lane:
                place = start + lane
                writer.store(computation.buffer, base + place, placed(value, {**at, inner.var: place}))

        strips(extent, lanes, strip)

    nest(writer, outer, extent, work_of(axes, size(value)), body)
    return min(lanes, extent) if isinstance(extent, int) else lanes


def new_variable() -> Any:
    """The variable of a new axis."""
    return tirx.Var("i", "int64")


def nest(writer: Writer, outer: list[Axis], inner: Any, work: int | None, body: Any) -> None:
    """Loops over `outer`, the first by threads where that pays; `body(at, place)` gets the variables, and the place
    in compact memory of the first of `inner` elements."""

    def enter(index: int, at: dict[Any, Any], place: Any) -> None:
        if index == len(outer):
            body(at, place * integer(inner))
            return
        axis = outer[index]
        loop = writer.outer(axis.extent, work) if index == 0 else T.serial(0, integer(axis.extent))
        with loop as var:
            enter(index + 1, {**at, axis.var: var}, place * integer(axis.extent) + var)

    enter(0, {}, integer(0))


def merged(given: Sequence[Axis], value: Any) -> tuple[list[Axis], Any]:
    """`given` axes of `value` with neighbours merged wherever all memory is read as it would be along one axis.

    Axes of one element are dropped. The value is over the new axes.
    """
    value = rewrite(value, {axis.var: integer(0) for axis in given if axis.extent == 1})
    axes = [axis for axis in given if axis.extent != 1]
    position = 0
    while position + 1 < len(axes):
        first, second = axes[position], axes[position + 1]
        if not _mergeable(value, first, second, Indices(axes)):
            position += 1
            continue
        joined = Axis(new_variable(), count([first.extent, second.extent]))
        outer, inner = (operator(joined.var, integer(second.extent)) for operator in (tirx.floordiv, tirx.floormod))
        value = rewrite(value, {first.var: outer, second.var: inner})
        axes[position : position + 2] = [joined]
        position = max(position - 1, 0)
    return axes, value


def _mergeable(value: Any, first: Axis, second: Axis, indices: Indices) -> bool:
    """Whether every load of `value` advances along `second` and then `first` as along one axis."""
    places = [offset(load.source, load.indices) for load in loads(value)]
    if any(loads(place) for place in places):
        return False
    for place in places:
        simple = indices.simplify(place)
        outer, inner = indices.step(simple, first), indices.step(simple, second)
        if outer is None or inner is None:
            return False
        if constant(indices.simplify(outer - inner * integer(second.extent))) != 0:
            return False
    used = variables(rewrite(value, {}, lambda buffer, _: tirx.const(0, dtype_of_buffer(buffer))))
    return first.var not in used and second.var not in used
