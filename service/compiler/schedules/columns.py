"""Folds across memory: pooling with the channels last, and sums, means and extrema over leading axes.

Vectors run along the last axis of the result, so that each of their lanes folds for itself; or along the axis that is
last in memory where the operands are read, if that is another: to store here and there is quicker than to read so.
"""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.computation import Axis, Computation, Indices, Program, offset
from service.compiler.schedules.contraction import Epilogue, find_fold
from service.compiler.schedules.elementwise import nest
from service.compiler.schedules.expressions import Unsupported, constant, integer, loads, size
from service.compiler.schedules.folding import as_result, as_stored, combined, stored_dtype
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.writer import Writer, count, local, placed, put, strips, vector, work_of, writing

NAME = "columns"
# An axis that is shorter makes no vectors worth the name.
_FEWEST_LANES = 4


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with the fold innermost. Raises Unsupported where the function is not one fold of a result with axes."""
    program, fold, output = find_fold(program)
    if not fold.axes:
        raise Unsupported("the result has no axes")
    with writing(name, program, parallel=situation.parallel) as writer:
        parameters = _write(writer, fold, output, situation)
    flops = work_of([*fold.axes, *fold.reduced], size(fold.value)) or 0
    return Kernel(NAME, writer.function, parameters, flops)


def _write(writer: Writer, fold: Computation, output: Computation | None, situation: Situation) -> dict[str, int]:
    """Writes the loops; the width of their vectors, and the axis along which they run where it is not the last."""
    dtype = stored_dtype(fold)
    lanes = situation.unit.lanes(dtype)
    indices = Indices([*fold.axes, *fold.reduced])
    inner = _vector_axis(fold, indices)
    outer = [axis for axis in fold.axes if axis is not inner]
    steps = {axis.var: count([each.extent for each in fold.axes[place + 1 :]]) for place, axis in enumerate(fold.axes)}
    term = writer.flat(fold.value, indices)
    epilogue = Epilogue(writer, fold, output)
    result = fold.buffer if output is None else output.buffer

    def body(at: dict[Any, Any], _: Any) -> None:
        base = sum((at[axis.var] * integer(steps[axis.var]) for axis in outer), integer(0))

        def strip(start: Any, width: int) -> None:
            sums = local(width, dtype)
            with vector(width) as lane:
                T.buffer_store(sums, as_stored(fold, fold.start), [lane])

            def enter(index: int, here: dict[Any, Any]) -> None:
                if index < len(fold.reduced):
                    axis = fold.reduced[index]
                    with T.serial(0, integer(axis.extent)) as var:
                        enter(index + 1, {**here, axis.var: var})
                    return
                with vector(width) as lane:
                    value = as_stored(fold, placed(term, {**here, inner.var: start + lane}))
                    put(sums, combined(fold, sums[lane], value), lane)

            enter(0, at)
            with vector(width) as lane:
                value = epilogue.value(as_result(fold, sums[lane]), {**at, inner.var: start + lane})
                writer.store(result, base + (start + lane) * integer(steps[inner.var]), value)

        strips(inner.extent, lanes, strip)

    nest(writer, outer, inner.extent, work_of([*fold.axes, *fold.reduced], size(fold.value)), body)
    return {"vector": lanes} if inner is fold.axes[-1] else {"vector": lanes, "axis": fold.axes.index(inner)}


def _vector_axis(fold: Computation, indices: Indices) -> Axis:
    """The last axis; or another, along which the operands lie in memory, where they do not along the last one."""
    places = [indices.simplify(offset(load.source, load.indices)) for load in loads(fold.value)]

    def lie_along(axis: Axis) -> bool:
        steps = [indices.step(place, axis) for place in places]
        return all(step is not None and constant(step) in (0, 1) for step in steps) and any(map(constant, steps))

    last = fold.axes[-1]
    others = [axis for axis in fold.axes[:-1] if isinstance(axis.extent, int) and axis.extent >= _FEWEST_LANES]
    if lie_along(last):
        return last
    return next(filter(lie_along, others), last)
