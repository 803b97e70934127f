"""Matrix products with a constant right operand, packed into panels when the function is compiled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.choice import Choice, chosen, tile_sizes, with_others
from service.compiler.schedules.computation import Axis, Indices, Program, offset
from service.compiler.schedules.contraction import Contraction, Epilogue, direct, find_contraction, is_load
from service.compiler.schedules.elementwise import new_variable
from service.compiler.schedules.expressions import Unsupported, constant, dtype_of, integer, rewrite, variables
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.tile import Form, Tile, best_rows, even_tiles, form_of, halving_tiles, panel_vectors
from service.compiler.schedules.vector_unit import VectorUnit
from service.compiler.schedules.writer import Writer, count, writing
from service.runtime.session import Array

NAME = "dense"


@dataclass(frozen=True)
class _Product:
    """rows x inner times inner x columns. `row_place` and steps say where the left operand has an element."""

    contraction: Contraction
    rows: Any
    inner: Axis
    column: Axis
    row: Axis
    at: dict[Any, Any]
    weight: Any
    weight_axes: tuple[int, int]
    other_axes: tuple[int, ...]


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with packed weights. Raises Unsupported where the right operand is no constant or not a matrix."""
    product = _product(find_contraction(program), situation)
    unit = situation.unit
    lanes = unit.lanes(dtype_of(product.contraction.fold.value))
    columns, inner = int(product.column.extent), int(product.inner.extent)
    candidates = _candidates(unit, -(-columns // lanes), panel_vectors(columns, lanes), product.rows)
    choice = chosen(situation.wanted, candidates)
    width = choice["vectors"] * lanes
    panels = -(-columns // width)
    packed = {product.weight: (panels, inner, width)}
    with writing(name, program, packed, parallel=situation.parallel) as writer:
        body = _Body(writer, product, unit, lanes, choice)
        body.write()
    position = program.position(product.weight)
    rows = product.rows if isinstance(product.rows, int) else None
    parameters = {
        "rows": choice["rows"],
        "columns": width,
        "lanes": lanes,
        "panels": panels,
        "m": rows,
        "n": columns,
        "k": inner,
    }
    return Kernel(
        NAME, writer.function, parameters, 2 * columns * inner * (rows or 1),
        {position: _packing(product.weight_axes, product.other_axes, panels, width)}, candidates,
    )  # fmt: skip


def _candidates(unit: VectorUnit, vectors: int, usual: int, rows: Any) -> tuple[Choice, ...]:
    """Sizes of tiles; for few rows how many vectors are read side by side, and from how many panels."""
    rule = {"rows": best_rows(unit, usual), "vectors": usual, "group": 1}
    if not isinstance(rows, int) or rows >= unit.chains:
        tiles = tile_sizes(unit, vectors, usual)
        return with_others(rule, [{"rows": size, "vectors": width, "group": 1} for size, width in tiles])
    most, side_by_side = max(unit.chains, unit.registers // 2), unit.registers - 2
    while 2 * rule["group"] * rows * usual <= most and rule["group"] < 4:
        rule["group"] *= 2
    others = [
        {"rows": max(rows, best_rows(unit, width)), "vectors": width, "group": group}
        for width in range(1, min(vectors, 8) + 1)
        for group in (1, 2, 4)
        if rows * width * group <= side_by_side and width * group <= vectors
    ]
    return with_others(rule, others)


def _packing(axes: tuple[int, int], others: tuple[int, ...], panels: int, width: int) -> Callable[[Array], Array]:
    """From a weight, whose axes of k and n are given, to panels (panels, k, width)."""

    def pack(weight: Array) -> Array:
        matrix = weight.transpose(*others, *axes)
        matrix = matrix.reshape(-1, *matrix.shape[-2:])[0]
        inner, columns = matrix.shape
        padded = np.zeros((inner, panels * width), weight.dtype)
        padded[:, :columns] = matrix
        return np.ascontiguousarray(padded.reshape(inner, panels, width).transpose(1, 0, 2))

    return pack


def _product(contraction: Contraction, situation: Situation) -> _Product:
    fold, left, right = contraction.fold, contraction.left, contraction.right
    if not is_load(left) or not is_load(right) or len(fold.reduced) != 1 or not fold.axes:
        raise Unsupported("the function is not a matrix product")
    if left.source in situation.constants and right.source not in situation.constants:
        left, right = right, left
    if right.source not in situation.constants or dtype_of(right) not in ("float32", "float64"):
        raise Unsupported("the right operand is not a constant of floats")
    inner = fold.reduced[0]
    candidates = [axis for axis in fold.axes if axis.extent != 1 and axis.var in variables(right)]
    column = fold.axes[-1]
    if not isinstance(inner.extent, int) or not isinstance(column.extent, int):
        raise Unsupported("the weight has no fixed size")
    if any(axis.var in variables(left) for axis in (column,)):
        raise Unsupported("the last axis is not that of the weight")
    axes = (direct(right, inner), direct(right, column)) if column.extent != 1 else _vector_axes(right, inner, column)
    others = tuple(position for position in range(len(right.indices)) if position not in axes)
    batch = [axis for axis in candidates if not axis.var.same_as(column.var)]
    if batch and not all(_repeats(value, axes, others) for value in situation.constants[right.source]):
        raise Unsupported("each matrix of a batch has its own weight")
    if any(constant(right.indices[position]) != 0 for position in others) and not batch:
        raise Unsupported("the weight is a part of a larger constant")
    rows_axes = [axis for axis in fold.axes[:-1] if axis.extent != 1]
    row, at = _one_axis(rows_axes, left)
    at = {**at, **{axis.var: integer(0) for axis in fold.axes[:-1] if axis.extent == 1}}
    return _Product(contraction, row.extent, inner, column, row, at, right.source, axes, others)


def _vector_axes(right: Any, inner: Axis, column: Axis) -> tuple[int, int]:
    """The axes of k and n of a weight of one column."""
    first = direct(right, inner)
    rest = [position for position in range(len(right.indices)) if position != first]
    if not rest:
        raise Unsupported("the weight is a vector")
    named = [position for position in rest if column.var in variables(right.indices[position])]
    return first, (named or [rest[-1]])[0]


def _repeats(value: Array, axes: tuple[int, int], others: tuple[int, ...]) -> bool:
    stacked = value.transpose(*others, *axes)
    stacked = stacked.reshape(-1, *stacked.shape[-2:])
    return bool((stacked == stacked[:1]).all())


def _one_axis(axes: Sequence[Axis], left: Any) -> tuple[Axis, dict[Any, Any]]:
    """One axis in place of all row axes, and theirs in terms of it. Raises Unsupported where memory has gaps."""
    if len(axes) == 1:
        return axes[0], {}
    row = Axis(new_variable(), count([axis.extent for axis in axes]))
    if not axes:
        return row, {}
    place = offset(left.source, left.indices)
    indices = Indices(axes)
    for first, second in itertools.pairwise(axes):
        steps = indices.step(place, first), indices.step(place, second)
        if (
            any(step is None for step in steps)
            or constant(indices.simplify(steps[0] - steps[1] * integer(second.extent))) != 0
        ):
            raise Unsupported("the rows of the left operand are not evenly spaced")
    at: dict[Any, Any] = {}
    rest: Any = row.var
    for axis in reversed(axes[1:]):
        at[axis.var] = tirx.floormod(rest, integer(axis.extent))
        rest = tirx.floordiv(rest, integer(axis.extent))
    at[axes[0].var] = rest
    return row, at


class _Body:
    """The loops: panels outside, tiles of rows inside, the inner axis innermost."""

    def __init__(self, writer: Writer, product: _Product, unit: VectorUnit, lanes: int, choice: Choice) -> None:
        self.writer, self.product, self.unit, self.lanes = writer, product, unit, lanes
        self.most, self.vectors, self.group = choice["rows"], choice["vectors"], choice["group"]
        self.width = lanes * self.vectors
        self.columns, self.inner = int(product.column.extent), int(product.inner.extent)
        fold, left = product.contraction.fold, product.contraction.left
        if left.source.same_as(product.weight):
            left = product.contraction.right
        self.memory = writer.memory[left.source]
        self.epilogue = Epilogue(writer, fold, product.contraction.output)
        self.dtype = dtype_of(fold.value)
        indices = Indices([product.row, product.inner, product.column])
        place = indices.simplify(rewrite(offset(left.source, left.indices), product.at))
        zero = {product.row.var: integer(0), product.inner.var: integer(0)}
        self.first = rewrite(place, zero)
        self.row_step, self.inner_step = indices.step(place, product.row), indices.step(place, product.inner)
        if self.row_step is None or self.inner_step is None or variables(self.first) & {product.column.var}:
            raise Unsupported("the left operand is not a matrix in memory")

    def write(self) -> None:
        """All tiles."""
        rows = self.product.rows
        group = self.group
        whole = self.columns // self.width
        work = None if not isinstance(rows, int) else rows * self.columns * self.inner
        if whole // group:
            with self.writer.outer(whole // group, work) as block:
                self._rows(block * integer(group), group, self.width)
        for panel in range(whole // group * group, whole):
            self._rows(integer(panel), 1, self.width)
        rest = self.columns - whole * self.width
        if rest:
            self._rows(integer(whole), 1, rest)

    def _rows(self, panel: Any, group: int, columns: int) -> None:
        rows = self.product.rows
        vectors = group * self.vectors if columns == self.width else -(-columns // self.lanes)
        if isinstance(rows, int):
            start = 0
            for size, times in even_tiles(rows, self.most):
                self._tiles(integer(start), size, times, panel, vectors, group, columns)
                start += size * times
            return
        whole = tirx.floordiv(rows, self.most)
        self._tiles(integer(0), self.most, whole, panel, vectors, group, columns)
        start, rest = whole * self.most, rows - whole * self.most
        for size in halving_tiles(self.most):
            times = tirx.floordiv(rest, size)
            self._tiles(start, size, times, panel, vectors, group, columns)
            start, rest = start + times * size, rest - times * size

    def _tiles(self, start: Any, size: int, times: Any, panel: Any, vectors: int, group: int, columns: int) -> None:
        with T.serial(0, integer(times)) as number:
            self._tile(start + number * integer(size), form_of(self.unit, size, vectors), panel, group, columns)

    def _tile(self, row: Any, form: Form, panel: Any, group: int, columns: int) -> None:
        weight = self.writer.memory[self.product.weight]
        stride = self.inner * self.width

        def left(index: int, k: Any) -> Any:
            return self.memory[self.first + (row + integer(index)) * self.row_step + k * self.inner_step]

        def right(column: int, k: Any) -> tuple[Any, Any]:
            which, part = divmod(column, self.vectors)
            base = (panel + integer(which)) * integer(stride)
            return weight, base + k * integer(self.width) + integer(part * self.lanes)

        tile = Tile(form, self.lanes, self.dtype)
        tile.clear()
        tile.multiply(self.inner, left, right)
        tile.join()
        product, result = self.product, self.product.contraction.result

        def emit(index: Any, column: int, lane: Any, total: Any) -> None:
            here = row + integer(index)
            n = panel * integer(self.width) + integer(column) + lane
            at = {axis: rewrite(expr, {product.row.var: here}) for axis, expr in product.at.items()}
            value = self.epilogue.value(total, {**at, product.row.var: here, product.column.var: n})
            self.writer.store(result, here * integer(self.columns) + n, value)

        tile.store(group * self.width if columns == self.width else columns, emit, heavy=self.epilogue.heavy)
