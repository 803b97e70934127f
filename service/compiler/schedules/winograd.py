"""Convolutions of 3 x 3 taps by the minimal filtering of Winograd: 4 or 2.25 times fewer multiplications.

Blocks of m x m results are computed from (m + 2) x (m + 2) elements, as `winograd_transforms` describes; over the
channels, each of the (m + 2)^2 products is an element of a matrix product. The weight is transformed when it is packed.

The sums mix the elements of a block: a NaN, an infinity or a very large element would reach results that it has nothing
to do with. So the magnitudes of the rows that a group of blocks reads are looked at first; where one stands out, the
group is computed by the direct kernel, whose weights are packed beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules import convolution
from service.compiler.schedules.choice import Choice, chosen, with_others
from service.compiler.schedules.computation import Program
from service.compiler.schedules.contraction import find_contraction
from service.compiler.schedules.expressions import Unsupported, constant, dtype_of, integer
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.magnitudes import LARGEST, RATIO, even
from service.compiler.schedules.tile import Tile, best_rows, form_of, panel_vectors
from service.compiler.schedules.winograd_transforms import TAPS, TRANSFORMS, Transform, along_both
from service.compiler.schedules.writer import Writer, count, local, put, strips, vector, workspace, writing
from service.runtime.session import Array

NAME = "winograd"
# Whether the image has the element in this row and column of a block.
IsThere = Callable[[int, Any], Any]
# What the elements of a group may take once they are transformed, so that they stay in the cache of a core.
_GROUP_BYTES = 384 << 10
_FEWEST_CHANNELS = 16
# In units of a multiplication with its addition: reading a weight from memory; a product within the many small matrix
# products, beside one of the direct kernel; what the transforms take for each element and result.
_WEIGHT_COST = 16.0
_PRODUCT_COST = 1.25
_TRANSFORM_COST = 12.0


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with both packings of the weight. Raises Unsupported where another kernel is better or the only one."""
    if not situation.winograd:
        raise Unsupported("it is switched off")
    shape = convolution.find_shape(find_contraction(program), situation)
    _check(shape, situation)
    unit = situation.unit
    lanes = unit.lanes("float32")
    outputs, inputs = int(shape.output.extent), int(shape.channel.extent)
    candidates = _candidates(shape, situation)
    choice = chosen(situation.wanted, candidates)
    if not choice["results"]:
        direct = convolution.schedule(name, program, replace(situation, wanted=None))
        return replace(direct, candidates=candidates)
    transform = TRANSFORMS[choice["results"]]
    width = choice["vectors"] * lanes
    panels = -(-outputs // width)
    squares = transform.elements**2
    packed = {shape.weight: (panels * (TAPS**2 + squares) * inputs * width,)}
    with writing(name, program, packed, parallel=situation.parallel) as writer:
        loops = _Loops(writer, shape, situation, lanes, choice)
        loops.write()
    position = program.position(shape.weight)
    images = shape.batch.extent if isinstance(shape.batch.extent, int) else 1
    # Of what is done, the transforms left out: less than the convolution as it is defined.
    flops = 2 * squares * loops.groups * loops.blocks * images * inputs * outputs
    parameters = {
        "results": [transform.results] * 2, "rows": loops.rows, "columns": width, "lanes": lanes, "panels": panels,
        "groups_of_blocks": loops.groups,
    }  # fmt: skip
    packing = _packing(shape.weight_order, width, transform)
    return Kernel(NAME, writer.function, parameters, flops, {position: packing}, candidates)


def _check(shape: convolution.Shape, situation: Situation) -> None:
    """Raises Unsupported unless the convolution has what the transforms are made for, and weights of like magnitude."""
    windows = shape.vertical, shape.horizontal
    if any(each.tap.extent != TAPS or each.stride != 1 or each.dilation != 1 for each in windows) or shape.groups != 1:
        raise Unsupported("the taps are not 3 x 3 in steps of 1")
    if dtype_of(shape.contraction.fold.value) != "float32":
        raise Unsupported("the numbers are not float32")
    if min(int(shape.channel.extent), int(shape.output.extent)) < _FEWEST_CHANNELS:
        raise Unsupported("the channels are too few to pay for the transforms")
    if int(shape.output.extent) % situation.unit.lanes("float32"):
        raise Unsupported("the output channels are not whole vectors")
    for weight in situation.constants[shape.weight]:
        magnitudes = np.abs(np.moveaxis(weight, shape.weight_order[0], 0).reshape(int(shape.output.extent), -1))
        with np.errstate(over="ignore", invalid="ignore"):
            even = magnitudes.max(1) <= RATIO * magnitudes.mean(1)
        if not np.all(even & (magnitudes.max(1) <= LARGEST)):
            raise Unsupported("some weights are much larger than others")


def _candidates(shape: convolution.Shape, situation: Situation) -> tuple[Choice, ...]:
    """How many results a block has along each axis, 0 for the direct kernel, and the vectors of a panel.

    Raises Unsupported where the rule takes the direct kernel.
    """
    lanes = situation.unit.lanes("float32")
    outputs = int(shape.output.extent)
    usual, most = panel_vectors(outputs, lanes), -(-outputs // lanes)
    results = min((0, *TRANSFORMS), key=lambda each: _cost(shape, each))
    if not results:
        raise Unsupported("the image is too small to pay for the transforms")
    others = [{"results": each, "vectors": wide} for wide in sorted({usual, min(4, most)}) for each in TRANSFORMS]
    return with_others({"results": results, "vectors": usual}, [*others, {"results": 0, "vectors": usual}])


def _cost(shape: convolution.Shape, results: int) -> float:
    """Multiplications for one input and one output channel, the time for the rest in units of them."""
    height, width = int(shape.vertical.place.extent), int(shape.horizontal.place.extent)
    images = shape.batch.extent if isinstance(shape.batch.extent, int) else 1
    if not results:
        return TAPS**2 * (images * height * width + _WEIGHT_COST)
    rest = _TRANSFORM_COST / int(shape.channel.extent) + _TRANSFORM_COST / int(shape.output.extent)
    blocks = images * -(-height // results) * -(-width // results)
    return (results + TAPS - 1) ** 2 * (blocks * (_PRODUCT_COST + rest) + _WEIGHT_COST)


def _packing(order: tuple[int, int, int, int], width: int, transform: Transform) -> Callable[[Array], Array]:
    """From a weight to the panels of the direct kernel, and behind them those of G w G'."""
    direct = convolution.pack_weight(order, 1, width)

    def pack(weight: Array) -> Array:
        products = transform.of_weight(weight.transpose(order[2], order[3], order[1], order[0]))
        elements, _, inputs, outputs = products.shape
        panels = -(-outputs // width)
        padded = np.zeros((elements**2, inputs, panels * width), weight.dtype)
        padded[..., :outputs] = products.reshape(elements**2, inputs, outputs)
        arranged = padded.reshape(elements**2, inputs, panels, width).transpose(2, 0, 1, 3)
        return np.concatenate([direct(weight).ravel(), arranged.ravel()])

    return pack


class _Loops:
    """Groups of blocks outside; in each the elements are transformed, then multiplied and transformed by panels."""

    def __init__(
        self, writer: Writer, shape: convolution.Shape, situation: Situation, lanes: int, choice: Choice
    ) -> None:
        self.writer, self.shape, self.lanes = writer, shape, lanes
        self.vectors, self.width = choice["vectors"], choice["vectors"] * lanes
        self.transform = TRANSFORMS[choice["results"]]
        rows = best_rows(situation.unit, self.vectors)
        by_rule = {"rows": rows, "vectors": self.vectors, "by_row": 0}
        self.direct = convolution.Loops(writer, shape, situation, lanes, by_rule)
        self.inputs, self.outputs = int(shape.channel.extent), int(shape.output.extent)
        self.height, self.length = int(shape.vertical.place.extent), int(shape.horizontal.place.extent)
        steps = constant(self.direct.channel_step), self.direct.column_step, self.direct.row_step
        if steps != (1, self.inputs, self.inputs * shape.horizontal.size):
            raise Unsupported("the input has not the channels last")
        self.panels = -(-self.outputs // self.width)
        self.across = -(-self.length // self.transform.results)
        self.group_rows, self.rows = self._sizes(rows)
        self.groups = -(-self._down() // self.group_rows)
        # By threads, or else what is in a group is.
        images = shape.batch.extent
        self.by_group = self.groups > 1 or (isinstance(images, int) and images > 1)
        self.blocks = self.group_rows * self.across
        self.tiles = -(-self.blocks // self.rows)
        self.capacity = self.tiles * self.rows
        self.form = form_of(situation.unit, self.rows, self.vectors)

    def _down(self) -> int:
        return -(-self.height // self.transform.results)

    def _sizes(self, most: int) -> tuple[int, int]:
        """The rows of blocks of a group, and the blocks of a tile, at most `most`: few are computed in vain."""
        each = self.transform.elements**2 * self.inputs * 4 * self.across
        largest = max(min(_GROUP_BYTES // each, self._down()), 1)
        sizes = product(range(max(largest // 2, 1), largest + 1), range(max(most // 2, 1), most + 1))

        images = self.shape.batch.extent if isinstance(self.shape.batch.extent, int) else 1

        def computed(group_rows: int, rows: int) -> int:
            groups = images * -(-self._down() // group_rows)
            # One group too many for two threads keeps one of them waiting.
            groups += groups % 2 if self.writer.parallel and groups > 1 else 0
            return groups * -(-group_rows * self.across // rows) * rows

        return min(sizes, key=lambda pair: (computed(*pair), -pair[0] * pair[1]))

    def write(self) -> None:
        """All images."""
        images = self.shape.batch.extent
        many = count([images, self.groups])
        work = self._work() * self.groups * (images if isinstance(images, int) else 1)
        with self.writer.outer(many, work) if self.by_group else T.serial(0, integer(many)) as number:
            image, group = tirx.floordiv(number, integer(self.groups)), tirx.floormod(number, integer(self.groups))
            self._group(image, group)

    def _work(self) -> int:
        """Multiplications of a group."""
        return self.blocks * self.transform.elements**2 * self.inputs * self.outputs

    def _inner(self, extent: int, work: int) -> Any:
        return T.serial(0, integer(extent)) if self.by_group else self.writer.outer(extent, work)

    def _group(self, image: Any, group: Any) -> None:
        results, size = self.transform.results, self.shape.vertical.size
        first = group * integer(self.group_rows * results)
        last = tirx.min(first + integer(self.group_rows * results), integer(self.height))
        top = tirx.max(first - integer(self.shape.vertical.padding), integer(0))
        end = tirx.min(last + integer(TAPS - 1 - self.shape.vertical.padding), integer(size))
        base = integer(self.direct.origin) + image * self.direct.batch_step
        row_length = self.direct.row_step
        is_even = even(self.direct.memory, base + top * integer(row_length), end - top, row_length, self.lanes)
        with T.If(is_even):
            with T.Then():
                elements = workspace(self.transform.elements**2 * self.capacity * self.inputs, self.direct.dtype)
                self._transform_elements(elements, base, group)
                with self._inner(self.panels, self._work()) as panel:
                    self._panel(elements, image, group, panel)
            with T.Else(), self._inner(self.panels, self._work()) as panel:
                self._plain(image, panel, first, last)

    def _plain(self, image: Any, panel: Any, first: Any, last: Any) -> None:
        rest = self.outputs % self.width

        def rows(columns: int) -> None:
            with T.serial(first, last) as row:
                self.direct.row(image, panel, row, columns)

        if not rest:
            rows(self.width)
            return
        with T.If(panel < integer(self.panels - 1)):
            with T.Then():
                rows(self.width)
            with T.Else():
                rows(rest)

    def _place(self, group: Any, block: Any) -> tuple[Any, Any]:
        """The first row and column of the results of a block."""
        results = integer(self.transform.results)
        down = group * integer(self.group_rows) + tirx.floordiv(block, integer(self.across))
        return down * results, tirx.floormod(block, integer(self.across)) * results

    def _transform_elements(self, elements: Any, base: Any, group: Any) -> None:
        size, down, along = self.transform.elements, self.shape.vertical, self.shape.horizontal
        with self._inner(self.capacity, self.capacity * self.inputs * size**3) as block:
            row, column = self._place(group, block)
            row, column = row - integer(down.padding), column - integer(along.padding)
            place = base + row * integer(self.direct.row_step) + column * integer(self.inputs)
            inside = tirx.all(
                row >= integer(0), row + integer(size) <= integer(down.size),
                column >= integer(0), column + integer(size) <= integer(along.size),
            )  # fmt: skip

            def is_there(i: int, j: Any) -> Any:
                y, x = row + integer(i), column + j
                bounds = integer(0) <= y, y < integer(down.size), integer(0) <= x, x < integer(along.size)
                return tirx.all(*bounds)

            with T.If(inside):
                with T.Then():
                    self._transform_block(elements, place, block, None)
                with T.Else():
                    self._transform_block(elements, place, block, is_there)

    def _transform_block(self, elements: Any, place: Any, block: Any, is_there: IsThere | None) -> None:
        size, memory, dtype = self.transform.elements, self.direct.memory, self.direct.dtype

        def body(start: Any, width: int) -> None:
            def element(i: int, j: Any, lane: Any) -> Any:
                step = integer(i * self.direct.row_step) + j * integer(self.inputs)
                value = memory[place + step + start + lane]
                return value if is_there is None else tirx.if_then_else(is_there(i, j), value, tirx.const(0.0, dtype))

            def store(a: Any, b: int, lane: Any, value: Any) -> None:
                line = (a * integer(size) + integer(b)) * integer(self.capacity) + block
                put(elements, value, line * integer(self.inputs) + start + lane)

            along_both(self.transform.data, width, dtype, element, store)

        strips(self.inputs, self.lanes, body)

    def _panel(self, elements: Any, image: Any, group: Any, panel: Any) -> None:
        squares = self.transform.elements**2
        products = workspace(squares * self.capacity * self.width, self.direct.dtype)
        with T.serial(0, integer(squares)) as square, T.serial(0, integer(self.tiles)) as number:
            tile = Tile(self.form, self.lanes, self.direct.dtype)
            tile.clear()
            line = square * integer(self.capacity) + number * integer(self.rows)
            first = integer(TAPS**2 * self.panels * self.inputs * self.width)
            first = first + (panel * integer(squares) + square) * integer(self.inputs * self.width)

            def left(row: int, k: Any) -> Any:
                return elements[(line + integer(row)) * integer(self.inputs) + k]

            def right(column: int, k: Any) -> tuple[Any, Any]:
                return self.direct.weight, first + k * integer(self.width) + integer(column * self.lanes)

            tile.multiply(self.inputs, left, right)
            tile.join()

            def emit(row: Any, column: int, lane: Any, total: Any) -> None:
                put(products, total, (line + integer(row)) * integer(self.width) + integer(column) + lane)

            tile.store(self.width, emit, heavy=False)
        with T.serial(0, integer(self.blocks)) as block, T.serial(0, integer(self.vectors)) as number:
            start = number * integer(self.lanes)
            first = panel * integer(self.width) + start
            with T.If(first < integer(self.outputs)), T.Then():
                self._results(products, image, group, block, first, start)

    def _results(self, products: Any, image: Any, group: Any, block: Any, first: Any, start: Any) -> None:
        """One vector of output channels from `first` on, of one block."""
        size, results, lanes = self.transform.elements, self.transform.results, self.lanes
        whole = local(results**2 * lanes, self.direct.dtype)

        def multiplied(i: int, j: Any, lane: Any) -> Any:
            line = (integer(i * size) + j) * integer(self.capacity) + block
            return products[line * integer(self.width) + start + lane]

        def store(r: Any, c: int, lane: Any, value: Any) -> None:
            put(whole, value, (r * integer(results) + integer(c)) * integer(lanes) + lane)

        along_both(self.transform.result, lanes, self.direct.dtype, multiplied, store)
        top, left = self._place(group, block)
        with T.serial(0, integer(results)) as r, T.serial(0, integer(results)) as c:
            inside = tirx.all(top + r < integer(self.height), left + c < integer(self.length))
            with T.If(inside), T.Then(), vector(lanes) as lane:
                total = whole[(r * integer(results) + c) * integer(lanes) + lane]
                self._store(image, top + r, left + c, first + lane, total)

    def _store(self, image: Any, row: Any, column: Any, channel: Any, total: Any) -> None:
        shape = self.shape
        at = {shape.batch.var: image, shape.output.var: channel}
        at |= {shape.vertical.place.var: row, shape.horizontal.place.var: column}
        place = (image * integer(self.height) + row) * integer(self.length) + column
        place = place * integer(self.outputs) + channel
        self.writer.store(shape.contraction.result, place, self.direct.epilogue.value(total, at))
