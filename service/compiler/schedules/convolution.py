"""Convolutions whose result has the channels last, with constant weights packed into panels of output channels.

The input may have any layout. Borders are taps that are left out; nothing is padded in memory. With groups, a panel is
of one group and reads the channels of that group alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.choice import Choice, chosen, tile_sizes, with_others
from service.compiler.schedules.computation import Axis, Indices, Program, offset
from service.compiler.schedules.contraction import Contraction, Epilogue, direct, find_contraction, is_load
from service.compiler.schedules.expressions import Unsupported, constant, dtype_of, integer, rewrite, variables
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.tile import Tile, best_rows, form_of, panel_vectors
from service.compiler.schedules.vector_unit import VectorUnit
from service.compiler.schedules.windows import Window, check_bounds, find_window, padded_load, tap_bounds, tiles_along
from service.compiler.schedules.writer import Writer, count, writing
from service.runtime.session import Array

NAME = "convolution"
# An inner axis of fewer channels is a loop around the taps, not in them.
_FEW_CHANNELS = 8
# So many pieces of work leave no thread without its share, whatever their number.
_PIECES = 16


@dataclass(frozen=True)
class Shape:
    """A convolution: its axes, the windows along rows and columns of the image, and the places of its operands.

    `channel` counts the input channels of one group.
    """

    contraction: Contraction
    batch: Axis
    output: Axis
    channel: Axis
    groups: int
    vertical: Window
    horizontal: Window
    load: Any
    weight: Any
    weight_order: tuple[int, int, int, int]


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with packed weights. Raises Unsupported where the function is no convolution with the channels last."""
    shape = find_shape(find_contraction(program), situation)
    unit = situation.unit
    lanes = unit.lanes(dtype_of(shape.contraction.fold.value))
    outputs, inputs = int(shape.output.extent) // shape.groups, int(shape.channel.extent)
    # A vector of two groups would need other inputs in each half.
    lanes = min(lanes, 1 << (outputs - 1).bit_length())
    candidates = _candidates(unit, -(-outputs // lanes), panel_vectors(outputs, lanes))
    choice = chosen(situation.wanted, candidates)
    width = choice["vectors"] * lanes
    panels = shape.groups * -(-outputs // width)
    taps = shape.vertical.tap.extent, shape.horizontal.tap.extent
    packed = {shape.weight: (panels, *taps, inputs, width)}
    with writing(name, program, packed, parallel=situation.parallel) as writer:
        Loops(writer, shape, situation, lanes, choice).write()
    position = program.position(shape.weight)
    sizes = count([axis.extent for axis in shape.contraction.fold.axes])
    flops = 2 * inputs * taps[0] * taps[1] * (sizes if isinstance(sizes, int) else 1)
    parameters = {"rows": choice["rows"], "columns": width, "lanes": lanes, "panels": panels, "taps": list(taps)}
    if shape.groups > 1:
        parameters["groups"] = shape.groups
    packing = pack_weight(shape.weight_order, shape.groups, width)
    return Kernel(NAME, writer.function, parameters, flops, {position: packing}, candidates)


def _candidates(unit: VectorUnit, vectors: int, usual: int) -> tuple[Choice, ...]:
    """Sizes of tiles, and whether all panels are used for one row of the image before the next row."""
    rule = {"rows": best_rows(unit, usual), "vectors": usual, "by_row": 0}
    others = [{"rows": rows, "vectors": width, "by_row": 0} for rows, width in tile_sizes(unit, vectors, usual)]
    by_row = [{**rule, "by_row": 1}] if vectors > usual else []
    return with_others(rule, by_row + others)


def pack_weight(order: tuple[int, int, int, int], groups: int, width: int) -> Callable[[Array], Array]:
    """From a weight, whose axes of output, input, ky and kx are given, to (panels, ky, kx, input, width)."""

    def pack(weight: Array) -> Array:
        ordered = weight.transpose(order[2], order[3], order[1], order[0])
        own = ordered.shape[3] // groups
        panels = -(-own // width)
        padded = np.zeros((*ordered.shape[:3], groups, panels * width), weight.dtype)
        padded[..., :own] = ordered.reshape(*ordered.shape[:3], groups, own)
        return np.ascontiguousarray(np.moveaxis(padded.reshape(*ordered.shape[:3], groups * panels, width), 3, 0))

    return pack


def find_shape(contraction: Contraction, situation: Situation) -> Shape:
    """The convolution that a contraction is. Raises Unsupported."""
    fold, left, weight = contraction.fold, contraction.left, contraction.right
    if not is_load(weight) or weight.source not in situation.constants or len(weight.indices) != 4:
        raise Unsupported("the weight is not a constant")
    if len(fold.axes) != 4 or len(fold.reduced) != 3 or dtype_of(weight) not in ("float32", "float64"):
        raise Unsupported("the function is not a convolution of an image of floats")
    load, conditions = padded_load(left)
    indices = Indices([*fold.axes, *fold.reduced])
    check_bounds(load, conditions, indices)
    output = fold.axes[-1]
    at_output = direct(weight, output)
    rest = [position for position in range(4) if position != at_output]
    channel, down, along = (_reduced_at(weight, position, fold.reduced) for position in rest)
    if at_output != 0 or channel is None or down is None or along is None:
        raise Unsupported("the weight is not in the order of channels and taps")
    batch, rows, columns = fold.axes[:3]
    vertical, horizontal = find_window(load, rows, down, indices), find_window(load, columns, along, indices)
    if vertical.position == horizontal.position:
        raise Unsupported("the image has one axis")
    order = (at_output, rest[0], rest[1], rest[2])
    groups = _groups(load, output, channel, indices)
    return Shape(contraction, batch, output, channel, groups, vertical, horizontal, load, weight.source, order)


def _groups(load: Any, output: Axis, channel: Axis, indices: Indices) -> int:
    """How many groups of channels there are: output channel o reads those from o // outputs * inputs on.

    Raises Unsupported where it reads others.
    """
    found = [index for index in load.indices if output.var in variables(index)]
    if not found:
        return 1
    total, inputs = int(output.extent), int(channel.extent)
    starts = [
        constant(indices.simplify(rewrite(found[0], {output.var: integer(number), channel.var: integer(0)})))
        for number in range(total)
    ]
    outputs = starts.count(0)
    if len(found) > 1 or outputs < 2 or starts != [number // outputs * inputs for number in range(total)]:
        raise Unsupported("the channels are not in groups")
    return total // outputs


def _reduced_at(weight: Any, position: int, reduced: tuple[Axis, ...]) -> Axis | None:
    return next((axis for axis in reduced if weight.indices[position].same_as(axis.var)), None)


class Loops:
    """The loops: images, panels and rows outside; tiles of columns inside; taps and channels innermost."""

    def __init__(self, writer: Writer, shape: Shape, situation: Situation, lanes: int, choice: Choice) -> None:
        self.writer, self.shape, self.unit = writer, shape, situation.unit
        self.most, self.by_row = choice["rows"], choice["by_row"]
        self.lanes, self.width = lanes, lanes * choice["vectors"]
        fold = shape.contraction.fold
        self.dtype = dtype_of(fold.value)
        self.memory, self.weight = writer.memory[shape.load.source], writer.memory[shape.weight]
        self.epilogue = Epilogue(writer, fold, shape.contraction.output)
        axes = [*fold.axes, *fold.reduced]
        indices = Indices(axes)
        place = indices.simplify(offset(shape.load.source, shape.load.indices))
        steps = [indices.step(place, axis) for axis in (shape.batch, shape.channel)]
        unit_steps = []
        for window in (shape.vertical, shape.horizontal):
            moved = list(shape.load.indices)
            moved[window.position] = moved[window.position] + integer(1)
            unit_steps.append(constant(indices.simplify(offset(shape.load.source, moved) - place)))
        if any(each is None for each in (*steps, *unit_steps)):
            raise Unsupported("the input is not an image in memory")
        self.batch_step, self.channel_step = steps
        self.row_step, self.column_step = (int(each or 0) for each in unit_steps)
        at = {axis.var: integer(0) for axis in axes}
        origin = constant(indices.simplify(rewrite(place, at)))
        if origin is None:
            raise Unsupported("the input does not start at a fixed place")
        # The place of element (0, 0) of the image: what the padding moves out of it is moved back.
        self.origin = origin + shape.vertical.padding * self.row_step + shape.horizontal.padding * self.column_step
        self.outputs = int(shape.output.extent) // shape.groups
        self.group_panels = -(-self.outputs // self.width)
        at[shape.output.var] = integer(self.outputs)
        # By how much the input of a group lies behind that of the one before.
        self.group_step = (constant(indices.simplify(rewrite(place, at))) or 0) - origin if shape.groups > 1 else 0
        self._merge()

    def _merge(self) -> None:
        """Pointwise convolutions take several rows of the image as one, or all places."""
        down, along = self.shape.vertical, self.shape.horizontal
        self.height, self.length = int(down.place.extent), int(along.place.extent)
        self.pointwise = (
            down.tap.extent == along.tap.extent == down.stride == along.stride == 1
            and down.padding == along.padding == 0
            and self.row_step == self.column_step * along.size
            and along.size == self.length
        )
        self.together = self._rows_together() if self.pointwise else 1
        self.height, self.length = self.height // self.together, self.length * self.together

    def _rows_together(self) -> int:
        """How many rows of the image are one, so that as many pieces are left as threads need to have equal shares."""
        images = self.shape.batch.extent if isinstance(self.shape.batch.extent, int) else 1
        panels = 1 if self.outputs % self.width else self.group_panels
        if not self.writer.parallel:
            return self.height
        return max(
            each
            for each in range(1, self.height + 1)
            if self.height % each == 0
            and (each == 1 or images * self.shape.groups * panels * (self.height // each) >= _PIECES)
        )

    def write(self) -> None:
        """All images."""
        shape = self.shape
        panels, groups = self.group_panels, shape.groups
        images = shape.batch.extent
        inner = int(shape.channel.extent) * shape.vertical.tap.extent * shape.horizontal.tap.extent
        each = groups * panels * self.height
        work = None if not isinstance(images, int) else images * each * self.length * self.width * inner
        rest = self.outputs % self.width
        whole = panels - 1 if rest else panels

        def full(number: Any) -> Any:
            if whole == panels:
                return number
            return tirx.floordiv(number, integer(whole)) * integer(panels) + tirx.floormod(number, integer(whole))

        if whole:
            self._panels(images, groups * whole, work, full, self.width)
        if rest:
            self._panels(images, groups, work, lambda group: (group + integer(1)) * integer(panels) - integer(1), rest)

    def _panels(self, images: Any, panels: int, work: int | None, panel_of: Callable[[Any], Any], columns: int) -> None:
        total = count([images, panels * self.height])
        with self.writer.outer(total, work) as number:
            image = tirx.floordiv(number, integer(panels * self.height))
            rest = tirx.floormod(number, integer(panels * self.height))
            inner = integer(panels if self.by_row else self.height)
            outer_at, inner_at = tirx.floordiv(rest, inner), tirx.floormod(rest, inner)
            panel, row = (inner_at, outer_at) if self.by_row else (outer_at, inner_at)
            self.row(image, panel_of(panel), row, columns)

    def row(self, image: Any, panel: Any, row: Any, columns: int) -> None:
        """One row of the result, for one panel of channels."""
        along = self.shape.horizontal

        def emit(start: Any, size: int) -> None:
            self._tile(image, panel, row, start, size, columns)

        tiles_along(along, self.length, self.most, emit, inside=self.pointwise)

    def _tile(self, image: Any, panel: Any, row: Any, start: Any, size: int, columns: int) -> None:
        vectors = -(-columns // self.lanes)
        tile = Tile(form_of(self.unit, size, vectors), self.lanes, self.dtype)
        tile.clear()
        self._taps(tile, image, panel, row, start, size)
        tile.join()
        shape = self.shape
        result, outputs = shape.contraction.result, int(shape.output.extent)
        length = integer(self.length)

        def emit(index: Any, column: int, lane: Any, total: Any) -> None:
            here = integer(start) + integer(index)
            channel = self._first_output(panel) + integer(column) + lane
            at = {shape.batch.var: image, shape.output.var: channel}
            own = integer(int(shape.horizontal.place.extent))
            first = row * integer(self.together)
            at[shape.vertical.place.var] = first + tirx.floordiv(here, own) if self.together > 1 else first
            at[shape.horizontal.place.var] = tirx.floormod(here, own) if self.together > 1 else here
            place = ((image * integer(self.height) + row) * length + here) * integer(outputs) + channel
            self.writer.store(result, place, self.epilogue.value(total, at))

        tile.store(columns, emit, heavy=self.epilogue.heavy)

    def _taps(self, tile: Tile, image: Any, panel: Any, row: Any, start: Any, size: int) -> None:
        """The sums over all taps that the input has for this tile."""
        down, along = self.shape.vertical, self.shape.horizontal
        low, high = (integer(0), integer(1)) if self.pointwise else tap_bounds(down, row)
        with T.serial(0, high - low) as number:
            tap = low + number
            line = row * integer(self.together * down.stride) + tap * integer(down.dilation) - integer(down.padding)
            base = integer(self.origin) + image * self.batch_step + line * integer(self.row_step)
            base = base + self._group(panel) * integer(self.group_step)
            if int(self.shape.channel.extent) < _FEW_CHANNELS:
                with T.serial(0, integer(int(self.shape.channel.extent))) as channel:
                    if self._is_whole(start, size):
                        self._across(tile, base, panel, tap, start, channel)
                    else:
                        for across in range(along.tap.extent):
                            self._tap(tile, base, panel, tap, across, start, size, channel)
            elif self._runs_on(start, size):
                self._line(tile, base, panel, tap, start)
            else:
                for across in range(along.tap.extent):
                    self._tap(tile, base, panel, tap, across, start, size, None)

    def _group(self, panel: Any) -> Any:
        return tirx.floordiv(panel, integer(self.group_panels)) if self.shape.groups > 1 else integer(0)

    def _first_output(self, panel: Any) -> Any:
        if self.shape.groups == 1:
            return panel * integer(self.width)
        inside = tirx.floormod(panel, integer(self.group_panels)) * integer(self.width)
        return self._group(panel) * integer(self.outputs) + inside

    def _is_whole(self, start: Any, size: int) -> bool:
        """Whether the input has all taps of a line for this tile."""
        along = self.shape.horizontal
        if self.pointwise or not isinstance(start, int):
            return True
        return along.valid(start, 0) and along.valid(start + size - 1, along.tap.extent - 1)

    def _runs_on(self, start: Any, size: int) -> bool:
        """Whether the taps of a line and the channels of each are one run of memory, and all taps are there."""
        along, channels = self.shape.horizontal, int(self.shape.channel.extent)
        run = constant(self.channel_step) == 1 and self.column_step == channels and along.dilation == 1
        return run and self._is_whole(start, size)

    def _across(self, tile: Tile, base: Any, panel: Any, tap: Any, start: Any, channel: Any) -> None:
        """One channel of one line, the taps as inner axis: written out they would not fit into the registers."""
        along, channels = self.shape.horizontal, int(self.shape.channel.extent)
        first = self._weight_place(panel, tap, 0) + channel * integer(self.width)

        def left(index: int, k: Any) -> Any:
            column = (integer(start) + integer(index)) * integer(along.stride) + k * integer(along.dilation)
            column = column - integer(along.padding)
            return self.memory[base + column * integer(self.column_step) + channel * self.channel_step]

        def right(column: int, k: Any) -> tuple[Any, Any]:
            return self.weight, first + k * integer(channels * self.width) + integer(column * self.lanes)

        tile.multiply(along.tap.extent, left, right)

    def _line(self, tile: Tile, base: Any, panel: Any, tap: Any, start: Any) -> None:
        along, channels = self.shape.horizontal, int(self.shape.channel.extent)
        extent = along.tap.extent * channels
        first = self._weight_place(panel, tap, 0)

        def left(index: int, k: Any) -> Any:
            column = (integer(start) + integer(index)) * integer(along.stride) - integer(along.padding)
            return self.memory[base + column * integer(self.column_step) + k]

        def right(column: int, k: Any) -> tuple[Any, Any]:
            return self.weight, first + k * integer(self.width) + integer(column * self.lanes)

        tile.multiply(extent, left, right)

    def _tap(
        self, tile: Tile, base: Any, panel: Any, tap: Any, across: int, start: Any, size: int, channel: Any
    ) -> None:
        along = self.shape.horizontal
        rows = range(size)
        if isinstance(start, int) and not self.pointwise:
            rows = [index for index in rows if along.valid(start + index, across)]  # type: ignore[assignment]
        if not rows:
            return
        first = self._weight_place(panel, tap, across)

        def left(index: int, k: Any) -> Any:
            column = (integer(start) + integer(index)) * integer(along.stride) + integer(
                across * along.dilation - along.padding
            )
            return self.memory[base + column * integer(self.column_step) + k * self.channel_step]

        def right(column: int, k: Any) -> tuple[Any, Any]:
            return self.weight, first + k * integer(self.width) + integer(column * self.lanes)

        if channel is None:
            tile.multiply(int(self.shape.channel.extent), left, right, rows)
        else:
            tile.step(channel, left, right, rows)

    def _weight_place(self, panel: Any, tap: Any, across: int) -> Any:
        down, along, channels = self.shape.vertical, self.shape.horizontal, int(self.shape.channel.extent)
        line = (panel * integer(down.tap.extent) + tap) * integer(along.tap.extent) + integer(across)
        return line * integer(channels * self.width)
