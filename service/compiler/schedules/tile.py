"""The register-blocked tile that matrix products and convolutions are made of: rows x vectors of accumulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.expressions import integer
from service.compiler.schedules.vector_unit import VectorUnit
from service.compiler.schedules.writer import local, put, vector

# The element of the left operand for a row and a place of the inner axis; the memory and the place of a vector of the
# right operand.
Left = Callable[[int, Any], Any]
Right = Callable[[int, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Form:
    """Of a tile: its rows, its columns in vectors, and how many partial sums each accumulator is split into."""

    rows: int
    vectors: int
    splits: int = 1


def form_of(unit: VectorUnit, rows: int, vectors: int) -> Form:
    """A tile of this size; of a small one each sum is split, so that enough additions are on their way at once."""
    sums = rows * vectors
    splits = max(min(4, unit.chains // sums, unit.registers // 2 // sums), 1)
    return Form(rows, vectors, splits)


class Tile:
    """Accumulators of one tile, and the statements that work on them."""

    def __init__(self, form: Form, lanes: int, dtype: str) -> None:
        self.form, self.lanes, self.dtype = form, lanes, dtype
        self.sums = local(form.rows * form.vectors * form.splits * lanes, dtype)

    def _place(self, row: int, column: int, split: int = 0) -> int:
        return ((split * self.form.rows + row) * self.form.vectors + column) * self.lanes

    def clear(self) -> None:
        """All sums 0."""
        zero = tirx.const(0, self.dtype)
        for number in range(self.form.rows * self.form.vectors * self.form.splits):
            with vector(self.lanes) as lane:
                T.buffer_store(self.sums, zero, [integer(number * self.lanes) + lane])

    def multiply(self, extent: Any, left: Left, right: Right, rows: Sequence[int] | None = None) -> None:
        """Adds left times right over an inner axis of `extent`, to `rows` or all of them."""
        chosen = range(self.form.rows) if rows is None else rows
        splits = self.form.splits if isinstance(extent, int) and extent >= 2 * self.form.splits else 1
        whole = extent // splits if isinstance(extent, int) else extent
        with T.serial(0, integer(whole)) as block:
            for split in range(splits):
                k = block * integer(splits) + integer(split) if splits > 1 else block
                self.step(k, left, right, chosen, split)
        if isinstance(extent, int):
            for rest in range(whole * splits, extent):
                self.step(integer(rest), left, right, chosen, 0)

    def step(self, k: Any, left: Left, right: Right, rows: Sequence[int], split: int = 0) -> None:
        """Adds left times right at one place of the inner axis."""
        for row in rows:
            for column in range(self.form.vectors):
                memory, place = right(column, k)
                at = integer(self._place(row, column, split))
                with vector(self.lanes) as lane:
                    product = left(row, k) * memory[place + lane]
                    put(self.sums, self.sums[at + lane] + product, at + lane)

    def add(self, row: int, column: int, value: Callable[[Any], Any]) -> None:
        """Adds `value` of the lane to one vector of sums."""
        at = integer(self._place(row, column))
        with vector(self.lanes) as lane:
            put(self.sums, self.sums[at + lane] + value(lane), at + lane)

    def join(self) -> None:
        """Adds the partial sums up."""
        for split in range(1, self.form.splits):
            for row in range(self.form.rows):
                for column in range(self.form.vectors):
                    at, other = integer(self._place(row, column)), integer(self._place(row, column, split))
                    with vector(self.lanes) as lane:
                        T.buffer_store(self.sums, self.sums[at + lane] + self.sums[other + lane], [at + lane])

    def store(self, columns: int, emit: Callable[[Any, int, Any, Any], None], *, heavy: bool) -> None:
        """`emit(row, column, lane, sum)` for the first `columns` elements of each row, vector by vector.

        `column` is the first element of the vector, `lane` the place in it. Where what is done with a sum is `heavy`,
        it stands in the code once a vector, in a loop over the rows.
        """
        width = self.form.vectors * self.lanes
        if not heavy or self.form.rows == 1:
            for row in range(self.form.rows):
                self._vectors(columns, self.sums, integer(self._place(row, 0)), integer(row), emit)
            return
        room = local(self.form.rows * width, self.dtype)
        for number in range(self.form.rows * self.form.vectors):
            at = integer(number * self.lanes)
            with vector(self.lanes) as lane:
                T.buffer_store(room, self.sums[at + lane], [at + lane])
        with T.serial(0, integer(self.form.rows)) as row:
            self._vectors(columns, room, row * integer(width), row, emit)

    def _vectors(
        self, columns: int, memory: Any, first: Any, row: Any, emit: Callable[[Any, int, Any, Any], None]
    ) -> None:
        start = 0
        while start < columns:
            width = min(self.lanes, 1 << ((columns - start).bit_length() - 1))
            with vector(width) as lane:
                emit(row, start, lane, memory[first + integer(start) + lane])
            start += width


def best_rows(unit: VectorUnit, vectors: int) -> int:
    """The most rows of a tile that is `vectors` wide, so that accumulators and operands stay in registers."""
    spare = vectors + 1
    return max((unit.registers - spare) // vectors, 1)


def even_tiles(total: int, most: int) -> list[tuple[int, int]]:
    """`total` rows as (size, how many) of tiles of at most `most` rows, all of one size or as equal as can be."""
    for size in range(min(most, total), most // 2, -1):
        if total % size == 0:
            return [(size, total // size)]
    number = -(-total // most)
    size, larger = divmod(total, number)
    tiles = [(size + 1, larger), (size, number - larger)]
    return [(rows, times) for rows, times in tiles if times and rows]


def halving_tiles(most: int) -> list[int]:
    """Sizes of tiles that cover any number of rows below `most`, each at most once or a few times."""
    sizes, size = [], 1 << max((most - 1).bit_length() - 1, 0)
    while size >= 1:
        sizes.append(size)
        size //= 2
    return sizes


def panel_vectors(columns: int, lanes: int) -> int:
    """How many vectors wide the panels of a matrix are: two, or three where that leaves nothing over."""
    vectors = -(-columns // lanes)
    if vectors <= 2:
        return max(vectors, 1)
    return 3 if vectors % 2 and vectors % 3 == 0 else 2
