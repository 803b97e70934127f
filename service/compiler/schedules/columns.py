"""Folds across memory: pooling with the channels last, and sums, means and extrema over leading axes.

Vectors run along the last axis of the result, so that each of their lanes folds for itself.
"""

from __future__ import annotations

from typing import Any

from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.computation import Computation, Indices, Program
from service.compiler.schedules.contraction import Epilogue, find_fold
from service.compiler.schedules.elementwise import nest
from service.compiler.schedules.expressions import Unsupported, integer, size
from service.compiler.schedules.folding import as_result, as_stored, combined, stored_dtype
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.writer import Writer, local, placed, put, strips, vector, work_of, writing

NAME = "columns"


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with the fold innermost. Raises Unsupported where the function is not one fold of a result with axes."""
    program, fold, output = find_fold(program)
    if not fold.axes:
        raise Unsupported("the result has no axes")
    with writing(name, program, parallel=situation.parallel) as writer:
        lanes = _write(writer, fold, output, situation)
    flops = work_of([*fold.axes, *fold.reduced], size(fold.value)) or 0
    return Kernel(NAME, writer.function, {"vector": lanes}, flops)


def _write(writer: Writer, fold: Computation, output: Computation | None, situation: Situation) -> int:
    dtype = stored_dtype(fold)
    lanes = situation.unit.lanes(dtype)
    *outer, inner = fold.axes
    term = writer.flat(fold.value, Indices([*fold.axes, *fold.reduced]))
    epilogue = Epilogue(writer, fold, output)
    result = fold.buffer if output is None else output.buffer

    def body(at: dict[Any, Any], base: Any) -> None:
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
                writer.store(result, base + start + lane, value)

        strips(inner.extent, lanes, strip)

    nest(writer, list(outer), inner.extent, work_of([*fold.axes, *fold.reduced], size(fold.value)), body)
    return lanes
