"""Matrix products of two operands that are computed at run time, as in attention, in batches.

A panel of the right operand is packed on the stack for all rows of the left one; either may be any view or map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir.prim import expr as prim
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.choice import Choice, chosen, tile_sizes, with_others
from service.compiler.schedules.computation import Axis, Indices, Program
from service.compiler.schedules.contraction import Contraction, Epilogue, find_contraction
from service.compiler.schedules.expressions import Unsupported, dtype_of, integer, variables
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.tile import Tile, best_rows, even_tiles, form_of, halving_tiles, panel_vectors
from service.compiler.schedules.writer import Writer, count, placed, put, strips, vector, writing

NAME = "batched_matmul"
# With fewer rows packing costs more than it saves.
_FEWEST_ROWS = 4
_STACK_BYTES = 32 << 10
_LARGEST_PANEL = 4 << 20


@dataclass(frozen=True)
class _Product:
    """For each of `batch`: rows x inner times inner x columns."""

    contraction: Contraction
    left: Any
    right: Any
    batch: tuple[Axis, ...]
    row: Axis
    column: Axis
    inner: Axis


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel that packs while it runs. Raises Unsupported where the function is no matrix product of several rows."""
    product = _product(find_contraction(program))
    lanes = situation.unit.lanes(dtype_of(product.contraction.fold.value))
    columns = int(product.column.extent)
    usual = panel_vectors(columns, lanes)
    sizes = tile_sizes(situation.unit, -(-columns // lanes), usual)
    rule = {"rows": best_rows(situation.unit, usual), "vectors": usual}
    candidates = with_others(rule, [{"rows": rows, "vectors": vectors} for rows, vectors in sizes])
    choice = chosen(situation.wanted, candidates)
    with writing(name, program, parallel=situation.parallel) as writer:
        _Body(writer, product, situation, lanes, choice).write()
    total = count([axis.extent for axis in (*product.batch, product.row, product.column, product.inner)])
    parameters = {"rows": choice["rows"], "columns": choice["vectors"] * lanes, "lanes": lanes}
    flops = 2 * total if isinstance(total, int) else 0
    return Kernel(NAME, writer.function, parameters, flops, candidates=candidates)


def _product(contraction: Contraction) -> _Product:
    fold, left, right = contraction.fold, contraction.left, contraction.right
    if len(fold.reduced) != 1 or len(fold.axes) < 2 or dtype_of(fold.value) not in ("float32", "float64"):
        raise Unsupported("the function is not a matrix product of floats")
    inner, column = fold.reduced[0], fold.axes[-1]
    if column.var in variables(left):
        left, right = right, left
    if column.var in variables(left) or column.var not in variables(right):
        raise Unsupported("the last axis is not that of one operand alone")
    left, right = _scaled(left, right)
    rows = [axis for axis in fold.axes[:-1] if axis.var in variables(left) and axis.var not in variables(right)]
    rows = [axis for axis in rows if axis.extent != 1]
    if not rows or (isinstance(rows[-1].extent, int) and rows[-1].extent < _FEWEST_ROWS):
        raise Unsupported("the product has too few rows")
    if not isinstance(inner.extent, int) or not isinstance(column.extent, int):
        raise Unsupported("the sizes of the right operand are not known")
    row = rows[-1]
    batch = tuple(axis for axis in fold.axes[:-1] if not axis.var.same_as(row.var))
    return _Product(contraction, left, right, batch, row, column, inner)


def _scaled(left: Any, right: Any) -> tuple[Any, Any]:
    """Both operands with the numbers that scale the left one in the right one, which is read once to be packed."""
    while isinstance(left, prim.Mul) and isinstance(left.b, prim.FloatImm):
        left, right = left.a, right * left.b
    return left, right


class _Body:
    """The loops: batch and panels outside; tiles of rows inside; the inner axis innermost."""

    def __init__(self, writer: Writer, product: _Product, situation: Situation, lanes: int, choice: Choice) -> None:
        self.writer, self.product, self.unit = writer, product, situation.unit
        self.most, self.vectors = choice["rows"], choice["vectors"]
        self.lanes, self.width = lanes, lanes * self.vectors
        fold = product.contraction.fold
        self.dtype = dtype_of(fold.value)
        indices = Indices([*fold.axes, *fold.reduced])
        self.left, self.right = writer.flat(product.left, indices), writer.flat(product.right, indices)
        self.epilogue = Epilogue(writer, fold, product.contraction.output)
        self.columns, self.inner = int(product.column.extent), int(product.inner.extent)
        if self.inner * self.width * 4 > _LARGEST_PANEL:
            raise Unsupported("a panel of the right operand is too large")

    def write(self) -> None:
        """All products."""
        product = self.product
        panels = -(-self.columns // self.width)
        total = count([axis.extent for axis in product.batch])
        each = count([product.row.extent, self.columns, self.inner])
        work = total * each if isinstance(total, int) and isinstance(each, int) else None
        rest = self.columns % self.width
        whole = self.columns // self.width
        with self.writer.outer(count([total, panels]) if not rest or not whole else total, work) as number:
            if rest and whole:
                at = self._batch(number)
                with T.serial(0, integer(whole)) as panel:
                    self._panel(at, panel, self.width)
                self._panel(at, integer(whole), rest)
            else:
                at = self._batch(tirx.floordiv(number, integer(panels)))
                self._panel(at, tirx.floormod(number, integer(panels)), rest or self.width)

    def _batch(self, number: Any) -> dict[Any, Any]:
        at: dict[Any, Any] = {}
        for axis in reversed(self.product.batch):
            at[axis.var] = tirx.floormod(number, integer(axis.extent))
            number = tirx.floordiv(number, integer(axis.extent))
        return at

    def _panel(self, at: dict[Any, Any], panel: Any, columns: int) -> None:
        product = self.product
        elements = self.inner * self.width
        scope = "local" if elements * 4 <= _STACK_BYTES else "global"
        packed = T.alloc_buffer([integer(elements)], self.dtype, scope=scope)
        self._pack(packed, at, panel, columns)
        rows = product.row.extent
        vectors = -(-columns // self.lanes)
        if isinstance(rows, int):
            start = 0
            for size, times in even_tiles(rows, self.most):
                with T.serial(0, integer(times)) as number:
                    self._tile(packed, at, panel, integer(start) + number * integer(size), size, vectors, columns)
                start += size * times
            return
        start_at: Any = integer(0)
        rest: Any = rows
        for size in [self.most, *halving_tiles(self.most)]:
            times = tirx.floordiv(rest, size)
            with T.serial(0, times) as number:
                self._tile(packed, at, panel, start_at + number * integer(size), size, vectors, columns)
            start_at, rest = start_at + times * size, rest - times * size

    def _pack(self, packed: Any, at: dict[Any, Any], panel: Any, columns: int) -> None:
        product = self.product
        filled = -(-columns // self.lanes) * self.lanes
        with T.serial(0, integer(self.inner)) as k:
            first = k * integer(self.width)

            def strip(start: Any, width: int) -> None:
                with vector(width) as lane:
                    here = {**at, product.inner.var: k}
                    here[product.column.var] = panel * integer(self.width) + start + lane
                    put(packed, placed(self.right, here), first + start + lane)

            strips(columns, self.lanes, strip)
            if filled > columns:
                zero = tirx.const(0, self.dtype)
                strips(
                    filled - columns,
                    1,
                    lambda start, _: T.buffer_store(packed, zero, [first + integer(columns) + start]),
                )

    def _tile(
        self, packed: Any, at: dict[Any, Any], panel: Any, row: Any, size: int, vectors: int, columns: int
    ) -> None:
        product = self.product
        tile = Tile(form_of(self.unit, size, vectors), self.lanes, self.dtype)

        def left(index: int, k: Any) -> Any:
            return placed(self.left, {**at, product.row.var: row + integer(index), product.inner.var: k})

        def right(column: int, k: Any) -> tuple[Any, Any]:
            return packed, k * integer(self.width) + integer(column * self.lanes)

        tile.clear()
        tile.multiply(self.inner, left, right)
        tile.join()
        fold, result = product.contraction.fold, product.contraction.result

        def emit(index: Any, column: int, lane: Any, total: Any) -> None:
            here = {**at, product.row.var: row + integer(index)}
            here[product.column.var] = panel * integer(self.width) + integer(column) + lane
            place: Any = integer(0)
            for axis in fold.axes:
                place = place * integer(axis.extent) + here[axis.var]
            self.writer.store(result, place, self.epilogue.value(total, here))

        tile.store(columns, emit, heavy=self.epilogue.heavy)
