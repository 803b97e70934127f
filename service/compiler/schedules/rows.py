"""Folds along rows and the maps around them: softmax, layer and group normalisation, sums, means, extrema, tests.

All that is computed of one row is computed at once; what a row needs between its folds stays on the stack.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.computation import Axis, Computation, Indices, Program, inlined, offset, shape_of
from service.compiler.schedules.elementwise import merged, new_variable
from service.compiler.schedules.expressions import Unsupported, integer, loads, rewrite, size
from service.compiler.schedules.folding import as_result, as_stored, combined, folded, stored_dtype
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.writer import (
    Writer,
    count,
    dtype_of_buffer,
    local,
    placed,
    put,
    strips,
    vector,
    work_of,
    writing,
)

NAME = "rows"
_LARGEST_ROW = 64 << 10
_VECTORS = 4


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with one loop over the rows. Raises Unsupported where the folds have no rows in common."""
    program = inlined(program)
    folds = program.folds()
    if not folds:
        raise Unsupported("the function does not fold")
    if any(each.fold is not None and _is_output(program, each) and not each.axes for each in folds) and len(folds) > 1:
        raise Unsupported("several folds have results without axes")
    if not all(_folds_along_memory(each, situation) for each in folds):
        raise Unsupported("the fold does not run along memory")
    row = _row_axes(folds)
    computations = [_over_rows(each, row) for each in program.computations]
    with writing(name, program, parallel=situation.parallel) as writer:
        _Body(writer, program, row, computations, situation).write()
    flops = sum(work_of([*each.axes, *each.reduced], size(each.value)) or 0 for each in program.computations)
    return Kernel(NAME, writer.function, {"rows": _known(row), "steps": len(computations)}, flops)


def _known(axes: Sequence[Axis]) -> int | None:
    total = count([axis.extent for axis in axes])
    return total if isinstance(total, int) else None


def _is_output(program: Program, computation: Computation) -> bool:
    return any(computation.buffer.same_as(each) for each in program.outputs)


def _folds_along_memory(fold: Computation, situation: Situation) -> bool:
    """Whether the last axis of the fold that is longer than one runs along memory in some load, and no other does."""
    reduced = [axis for axis in fold.reduced if axis.extent != 1]
    if not reduced:
        return True
    last = merged(fold.reduced, fold.value)[0][-1].extent
    if isinstance(last, int) and len(fold.axes) > 1 and last < situation.unit.lanes(stored_dtype(fold)) // 2:
        return False
    indices = Indices([*fold.axes, *fold.reduced])
    places = [indices.simplify(offset(load.source, load.indices)) for load in loads(fold.value)]
    steps = [indices.step(place, reduced[-1]) for place in places]
    return any(each is not None and str(each) in ("1", "T.int64(1)") for each in steps) or all(
        each is not None and str(each) in ("0", "T.int64(0)") for each in steps
    )


def _row_axes(folds: Sequence[Computation]) -> list[Axis]:
    """Axes of the rows, with variables of their own."""
    shapes = [_without_ones([axis.extent for axis in each.axes]) for each in folds]
    first = shapes[0]
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(not _equal(a, b) for a, b in zip(shape, first, strict=True)):
            raise Unsupported("the folds have no rows in common")
    return [Axis(new_variable(), extent) for extent in first]


def _without_ones(shape: list[Any]) -> list[Any]:
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return shape


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, int) or isinstance(second, int):
        return isinstance(first, int) and isinstance(second, int) and first == second
    return bool(first.same_as(second))


def _over_rows(computation: Computation, row: list[Axis]) -> Computation:
    """`computation` with the axes of the rows first. Raises Unsupported where it does not go row by row."""
    axes = computation.axes
    leads = len(axes) >= len(row) and all(
        _equal(mine.extent, axis.extent) for mine, axis in zip(axes, row, strict=False)
    )
    if leads:
        at = {mine.var: axis.var for mine, axis in zip(axes, row, strict=False)}
        inner = axes[len(row) :]
    else:
        inner, at = _split(computation, row)
    value = rewrite(computation.value, at)
    return Computation(
        computation.buffer, (*row, *inner), value, computation.reduced, computation.fold, computation.start,
        computation.keeps_nan,
    )  # fmt: skip


def _split(computation: Computation, row: list[Axis]) -> tuple[tuple[Axis, ...], dict[Any, Any]]:
    """One inner axis, and the axes of `computation` in terms of it and the rows."""
    total, rows = count([axis.extent for axis in computation.axes]), count([axis.extent for axis in row])
    if computation.fold is not None or not isinstance(total, int) or not isinstance(rows, int) or total % rows:
        raise Unsupported("a part of the function does not go row by row")
    inner = Axis(new_variable(), total // rows)
    place: Any = integer(0)
    for axis in (*row, inner):
        place = place * integer(axis.extent) + axis.var
    indices = Indices([*row, inner])
    at = {}
    for axis in reversed(computation.axes):
        at[axis.var] = indices.simplify(tirx.floormod(place, integer(axis.extent)))
        place = indices.simplify(tirx.floordiv(place, integer(axis.extent)))
    return (inner,), at


class _Body:
    """The loop over the rows, and what is done in it."""

    def __init__(
        self, writer: Writer, program: Program, row: list[Axis], computations: list[Computation], situation: Situation
    ) -> None:
        self.writer, self.program, self.row, self.situation = writer, program, row, situation
        self.computations = computations
        self.locals: dict[Any, Any] = {}
        self.current: Indices = Indices(row)

    def write(self) -> None:
        """All rows."""
        works = [work_of([*each.axes, *each.reduced], size(each.value)) for each in self.computations]
        work = None if None in works else sum(each or 0 for each in works)
        with self.writer.outer(count([axis.extent for axis in self.row]), work) as number:
            at: dict[Any, Any] = {}
            rest: Any = number
            for axis in reversed(self.row[1:]):
                at[axis.var] = tirx.floormod(rest, integer(axis.extent))
                rest = tirx.floordiv(rest, integer(axis.extent))
            if self.row:
                at[self.row[0].var] = rest
            for each in self.computations:
                if not _is_output(self.program, each):
                    self.locals[each.buffer] = self._room(each)
            for each in self.computations:
                self._compute(each, at)

    def _room(self, computation: Computation) -> Any:
        elements = count([axis.extent for axis in computation.axes[len(self.row) :]])
        dtype = dtype_of_buffer(computation.buffer)
        if not isinstance(elements, int) or elements > _LARGEST_ROW // 4:
            raise Unsupported("a row is too long to be kept")
        return local(elements, "int8" if dtype == "bool" else dtype)

    def _known(self, buffer: Any, indices: list[Any]) -> Any:
        """An element of the row that is kept, in place of one in memory."""
        if buffer not in self.locals:
            return None
        for index, axis in zip(indices, self.row, strict=False):
            if not index.same_as(axis.var) and not self.current.simplify(index - axis.var).same_as(axis.var):
                difference = self.current.simplify(index - axis.var)
                if str(difference) not in ("0", "T.int64(0)"):
                    raise Unsupported("a row reads another row")
        place: Any = integer(0)
        for index, extent in zip(indices[len(self.row) :], shape_of(buffer)[len(self.row) :], strict=True):
            place = place * integer(extent) + index
        element = self.locals[buffer][self.current.simplify(place)]
        return prim.NE(element, tirx.const(0, "int8")) if dtype_of_buffer(buffer) == "bool" else element

    def _compute(self, computation: Computation, at: dict[Any, Any]) -> None:
        if computation.fold is not None:
            self._fold(computation, at)
        else:
            self._map(computation, at)

    def _put(self, computation: Computation, place: Any, value: Any, at: dict[Any, Any]) -> None:
        """Stores the element at `place` of the row."""
        buffer = computation.buffer
        if buffer in self.locals:
            if dtype_of_buffer(buffer) == "bool":
                value = tirx.Select(value, tirx.const(1, "int8"), tirx.const(0, "int8"))
            put(self.locals[buffer], value, place)
            return
        first: Any = integer(0)
        for axis in self.row:
            first = first * integer(axis.extent) + at[axis.var]
        inner = count([axis.extent for axis in computation.axes[len(self.row) :]])
        self.writer.store(buffer, first * integer(inner) + place, value)

    def _map(self, computation: Computation, at: dict[Any, Any]) -> None:
        axes, value = merged(computation.axes[len(self.row) :], computation.value)
        self.current = Indices([*self.row, *axes])
        value = self.writer.flat(value, self.current, self._known)
        if not axes:
            self._put(computation, integer(0), placed(value, at), at)
            return
        lanes = self.situation.unit.lanes(dtype_of_buffer(computation.buffer))
        inner = axes[-1]

        def enter(index: int, here: dict[Any, Any], place: Any) -> None:
            if index < len(axes) - 1:
                with T.serial(0, integer(axes[index].extent)) as var:
                    enter(index + 1, {**here, axes[index].var: var}, place * integer(axes[index].extent) + var)
                return

            def strip(start: Any, width: int) -> None:
                with vector(width) as lane:
                    element = start + lane
                    result = placed(value, {**here, inner.var: element})
                    self._put(computation, place * integer(inner.extent) + element, result, at)

            strips(inner.extent, lanes, strip)

        enter(0, at, integer(0))

    def _fold(self, fold: Computation, at: dict[Any, Any]) -> None:
        ones = {axis.var: integer(0) for axis in fold.axes[len(self.row) :]}
        axes, value = merged(fold.reduced, rewrite(fold.value, ones))
        self.current = Indices([*self.row, *axes])
        value = self.writer.flat(value, self.current, self._known)
        dtype = stored_dtype(fold)
        lanes = self.situation.unit.lanes(dtype)
        inner = axes[-1] if axes else Axis(new_variable(), 1)
        vectors = _VECTORS
        while vectors > 1 and (not isinstance(inner.extent, int) or inner.extent < vectors * lanes):
            vectors //= 2
        sums = local(vectors * lanes, dtype)
        start = as_stored(fold, fold.start)
        for number in range(vectors):
            with vector(lanes) as lane:
                T.buffer_store(sums, start, [integer(number * lanes) + lane])

        def enter(index: int, here: dict[Any, Any]) -> None:
            if index < len(axes) - 1:
                with T.serial(0, integer(axes[index].extent)) as var:
                    enter(index + 1, {**here, axes[index].var: var})
                return
            self._along(fold, value, inner, here, sums, (vectors, lanes))

        enter(0, at)
        self._put(fold, integer(0), as_result(fold, folded(partial(combined, fold), sums, vectors, lanes)), at)

    def _along(
        self, fold: Computation, value: Any, inner: Axis, here: dict[Any, Any], sums: Any, form: tuple[int, int]
    ) -> None:
        vectors, lanes = form

        def add(slot: int, width: int, start: Any) -> None:
            with vector(width) as lane:
                term = as_stored(fold, placed(value, {**here, inner.var: start + lane}))
                at = integer(slot * lanes) + lane
                put(sums, combined(fold, sums[at], term), at)

        extent = inner.extent
        if not isinstance(extent, int):
            strips(extent, lanes, lambda start, width: add(0, width, start))
            return
        block = vectors * lanes
        with T.serial(0, integer(extent // block)) as number:
            for slot in range(vectors):
                add(slot, lanes, number * integer(block) + integer(slot * lanes))
        done = extent // block * block
        strips(extent - done, lanes, lambda start, width: add(0, width, start + integer(done)))
