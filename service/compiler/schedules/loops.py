"""Functions that come with loops of their own, as recurrent layers do: the same loops, their innermost in vectors.

Reductions that run inside a loop over them are turned round, so that their sums stay in registers; exponentials become
polynomials.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim
from tvm.s_tir.stmt import SBlockRealize
from tvm.script.ir_builder import tirx as T
from tvm.tirx import AttrStmt, BufferStore, For, SeqStmt

from service.compiler.schedules.computation import Axis, Indices, Program, offset
from service.compiler.schedules.expressions import Unsupported, constant, integer, loads, rewrite, variables
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.sharing import shared
from service.compiler.schedules.writer import Writer, dtype_of_buffer, local, placed, put, strips, vector, writing

NAME = "loops"
_PARALLEL = 1
_MOST_VECTORS = 4


def schedule(name: str, function: Any, situation: Situation) -> Kernel:
    """A kernel with the loops of `function`. Raises Unsupported where it has statements of other kinds."""
    buffers = tuple(function.params)
    if any(not isinstance(each.ty, tirx.BufferType) for each in buffers):
        raise Unsupported("the function has parameters that are not tensors")
    program = Program((), buffers, (), buffers)
    with writing(name, program, parallel=situation.parallel) as writer:
        body = _Body(writer, situation)
        body.write(function.body, {}, ())
    if not body.vectorised:
        raise Unsupported("no loop of the function can be run in vectors")
    return Kernel(NAME, writer.function, {"vectorised": body.vectorised})


class _Body:
    """Writes statements anew; `axes` are the loops around, `at` their new variables."""

    def __init__(self, writer: Writer, situation: Situation) -> None:
        self.writer, self.situation = writer, situation
        self.vectorised = 0

    def write(self, statement: Any, at: dict[Any, Any], axes: tuple[Axis, ...]) -> None:
        """`statement` and all in it."""
        if isinstance(statement, SBlockRealize):
            block = statement.block
            if (
                list(block.iter_vars)
                or list(block.alloc_buffers)
                or list(block.match_buffers)
                or block.init is not None
            ):
                raise Unsupported("a block has axes or memory of its own")
            self.write(block.body, at, axes)
        elif isinstance(statement, AttrStmt) and str(statement.attr_key) == "pragma_scope":
            self.write(statement.body, at, axes)
        elif isinstance(statement, SeqStmt):
            for each in statement.seq:
                self.write(each, at, axes)
        elif isinstance(statement, For):
            self._loop(statement, at, axes)
        elif isinstance(statement, BufferStore):
            self._store(statement, at, axes)
        else:
            raise Unsupported(f"the function has a statement of the kind {type(statement).__name__}")

    def _loop(self, loop: Any, at: dict[Any, Any], axes: tuple[Axis, ...]) -> None:
        extent = constant(loop.extent)
        axis = Axis(loop.loop_var, loop.extent if extent is None else extent)
        if constant(loop.min) != 0 or loop.annotations or int(loop.kind) not in (0, _PARALLEL):
            raise Unsupported("a loop is not plain")
        if extent == 1:
            self.write(loop.body, {**at, axis.var: integer(0)}, axes)
        elif self._as_vectors(loop.body, axis, at, axes) or self._as_sums(loop.body, axis, at, axes):
            self.vectorised += 1
        else:
            parallel = int(loop.kind) == _PARALLEL and self.writer.parallel
            with T.parallel(0, integer(axis.extent)) if parallel else T.serial(0, integer(axis.extent)) as var:
                self.write(loop.body, {**at, axis.var: var}, (*axes, axis))

    def _store(self, store: Any, at: dict[Any, Any], axes: tuple[Axis, ...]) -> None:
        indices = Indices(axes)
        place = indices.simplify(rewrite(offset(store.buffer, store.indices), self._ones(at)))
        value = shared(self._flat(store.value, indices, self._ones(at)))
        self.writer.store(store.buffer, placed(place, at), placed(value, at))

    @staticmethod
    def _ones(at: dict[Any, Any]) -> dict[Any, Any]:
        """The loops of one pass, which are known numbers."""
        return {var: value for var, value in at.items() if constant(value) is not None}

    def _flat(self, value: Any, indices: Indices, known: dict[Any, Any]) -> Any:
        def on_load(buffer: Any, index: list[Any]) -> Any:
            return self.writer.memory[buffer][indices.simplify(offset(buffer, index))]

        return rewrite(value, known, on_load)

    def _as_vectors(self, body: Any, axis: Axis, at: dict[Any, Any], axes: tuple[Axis, ...]) -> bool:
        """Writes a loop of independent stores as vectors; False where it is none."""
        stores = list(body.seq) if isinstance(body, SeqStmt) else [body]
        if not isinstance(axis.extent, int) or not all(isinstance(each, BufferStore) for each in stores):
            return False
        indices = Indices((*axes, axis))
        ones = self._ones(at)
        if not _independent(stores, axis, indices, ones):
            return False
        lanes = min(self.situation.unit.lanes(dtype_of_buffer(store.buffer)) for store in stores)
        parts = []
        for store in stores:
            place = indices.simplify(rewrite(offset(store.buffer, store.indices), ones))
            parts.append((store.buffer, place, shared(self._flat(store.value, indices, ones))))

        def strip(start: Any, width: int) -> None:
            for buffer, place, value in parts:
                with vector(width) as lane:
                    here = {**at, axis.var: start + lane}
                    self.writer.store(buffer, rewrite(place, here), placed(value, here))

        strips(axis.extent, lanes, strip)
        return True

    def _as_sums(self, body: Any, axis: Axis, at: dict[Any, Any], axes: tuple[Axis, ...]) -> bool:
        """Writes ``for k, for j: s[j] = s[j] + term`` with j outside and the sums in registers; False for others."""
        inner = body
        if not isinstance(inner, For) or not isinstance(inner.body, BufferStore) or int(inner.kind) != 0:
            return False
        extent = constant(inner.extent)
        store = inner.body
        if extent is None or constant(inner.min) != 0 or inner.annotations or not isinstance(axis.extent, int):
            return False
        column = Axis(inner.loop_var, extent)
        term = _term(store)
        indices = Indices((*axes, axis, column))
        ones = self._ones(at)
        place = indices.simplify(rewrite(offset(store.buffer, store.indices), ones))
        if term is None or axis.var in variables(place) or constant(indices.step(place, column) or integer(0)) != 1:
            return False
        value = shared(self._flat(term, indices, ones))
        dtype, lanes = dtype_of_buffer(store.buffer), self.situation.unit.lanes(dtype_of_buffer(store.buffer))

        def block(first: Any, vectors: int, width: int) -> None:
            sums = local(vectors * width, dtype)
            starts = [first + integer(number * width) for number in range(vectors)]
            memory = self.writer.memory[store.buffer]
            for number, start in enumerate(starts):
                with vector(width) as lane:
                    old = memory[rewrite(place, {**at, column.var: start + lane})]
                    T.buffer_store(sums, old, [integer(number * width) + lane])
            with T.serial(0, integer(axis.extent)) as k:
                for number, start in enumerate(starts):
                    with vector(width) as lane:
                        here = {**at, axis.var: k, column.var: start + lane}
                        slot = integer(number * width) + lane
                        put(sums, sums[slot] + placed(value, here), slot)
            for number, start in enumerate(starts):
                with vector(width) as lane:
                    target = rewrite(place, {**at, column.var: start + lane})
                    self.writer.store(store.buffer, target, sums[integer(number * width) + lane])

        whole = extent // (lanes * _MOST_VECTORS) if lanes * _MOST_VECTORS <= extent else 0
        if whole:
            with T.serial(0, integer(whole)) as number:
                block(number * integer(lanes * _MOST_VECTORS), _MOST_VECTORS, lanes)
        done = whole * lanes * _MOST_VECTORS
        strips(extent - done, lanes, lambda start, width: block(integer(done) + start, 1, width))
        return True


def _term(store: Any) -> Any:
    """What is added in ``s[j] = s[j] + term``, where the term reads nothing of the buffer of s; None elsewhere."""
    value = store.value
    if not isinstance(value, prim.Add):
        return None
    old, term = value.a, value.b
    found = loads(old)
    same = len(found) == 1 and found[0].same_as(old) and old.source.same_as(store.buffer)
    if not same or any(each.source.same_as(store.buffer) for each in loads(term)):
        return None
    indices = zip(old.indices, store.indices, strict=True)
    analyzer = Indices(())
    return term if all(constant(analyzer.simplify(mine - other)) == 0 for mine, other in indices) else None


def _independent(stores: list[Any], axis: Axis, indices: Indices, ones: dict[Any, Any]) -> bool:
    """Whether the passes of a loop over `axis` may run at once: none reads or writes what another one writes."""

    def place_of(buffer: Any, index: Any) -> Any:
        return indices.simplify(rewrite(offset(buffer, index), ones))

    written = [(store.buffer, place_of(store.buffer, store.indices)) for store in stores]
    if any(constant(step) != 1 for step in (indices.step(place, axis) or integer(0) for _, place in written)):
        return False
    touched = list(written)
    for store in stores:
        touched += [(load.source, place_of(load.source, load.indices)) for load in loads(store.value)]
    for buffer, place in written:
        for other, where in touched:
            if not other.same_as(buffer):
                continue
            distance = constant(indices.simplify(place - where))
            if distance is None or (distance != 0 and abs(distance) < int(axis.extent)):
                return False
    return True
