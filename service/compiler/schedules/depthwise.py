"""Convolutions of each channel by itself, channels last: vectors of channels, tiles of columns of the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from service.compiler.schedules.choice import chosen
from service.compiler.schedules.computation import Axis, Indices, Program
from service.compiler.schedules.contraction import Contraction, Epilogue, find_contraction, is_load
from service.compiler.schedules.expressions import Unsupported, dtype_of, integer, variables
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.tile import Form, Tile
from service.compiler.schedules.windows import (
    Window,
    check_bounds,
    find_window,
    padded_load,
    tap_bounds,
    tiles_along,
)
from service.compiler.schedules.writer import Writer, count, writing
from service.runtime.session import Array

NAME = "depthwise"
# How many columns of the image a tile has.
_CANDIDATES = tuple({"columns": columns} for columns in (8, 4, 6, 7, 10, 12, 14))


@dataclass(frozen=True)
class _Shape:
    contraction: Contraction
    batch: Axis
    channel: Axis
    vertical: Window
    horizontal: Window
    load: Any
    weight: Any


def schedule(name: str, program: Program, situation: Situation) -> Kernel:
    """A kernel with weights in the order of their use. Raises Unsupported where channels are mixed or not last."""
    shape = _shape(find_contraction(program), situation)
    taps = shape.vertical.tap.extent, shape.horizontal.tap.extent
    channels = int(shape.channel.extent)
    columns = chosen(situation.wanted, _CANDIDATES)["columns"]
    with writing(name, program, {shape.weight: (*taps, channels)}, parallel=situation.parallel) as writer:
        _Body(writer, shape, situation, columns).write()
    position = program.position(shape.weight)
    sizes = count([axis.extent for axis in shape.contraction.fold.axes])
    flops = 2 * taps[0] * taps[1] * (sizes if isinstance(sizes, int) else 1)
    parameters = {"taps": list(taps), "columns": columns}
    return Kernel(NAME, writer.function, parameters, flops, {position: _pack}, _CANDIDATES)


def _pack(weight: Array) -> Array:
    """From (channels, 1, ky, kx) to (ky, kx, channels)."""
    return np.ascontiguousarray(weight[:, 0].transpose(1, 2, 0))


def _shape(contraction: Contraction, situation: Situation) -> _Shape:
    fold, weight = contraction.fold, contraction.right
    if not is_load(weight) or weight.source not in situation.constants or len(weight.indices) != 4:
        raise Unsupported("the weight is not a constant")
    if len(fold.axes) != 4 or len(fold.reduced) != 3 or dtype_of(weight) not in ("float32", "float64"):
        raise Unsupported("the function is not a convolution of an image of floats")
    load, conditions = padded_load(contraction.left)
    indices = Indices([*fold.axes, *fold.reduced])
    check_bounds(load, conditions, indices)
    batch, rows, columns, channel = fold.axes
    single = [axis for axis in fold.reduced if axis.extent == 1 and axis.var in variables(weight.indices[1])]
    taps = [axis for axis in fold.reduced if not any(axis.var.same_as(each.var) for each in single)]
    if len(single) != 1 or not weight.indices[0].same_as(channel.var) or not isinstance(channel.extent, int):
        raise Unsupported("a channel of the result is made of several channels")
    if not all(weight.indices[2 + i].same_as(axis.var) for i, axis in enumerate(taps)):
        raise Unsupported("the weight is not in the order of channels and taps")
    vertical, horizontal = find_window(load, rows, taps[0], indices), find_window(load, columns, taps[1], indices)
    image, last = load.indices[0], indices.simplify(load.indices[3] - channel.var)
    if (vertical.position, horizontal.position) != (1, 2) or not (image.same_as(batch.var) or batch.extent == 1):
        raise Unsupported("the image does not have its channels last")
    if not set(variables(last)) <= {single[0].var} or load.source.ty.shape[3].value != channel.extent:
        raise Unsupported("a channel of the result is made of another channel")
    return _Shape(contraction, batch, channel, vertical, horizontal, load, weight.source)


class _Body:
    """The loops: images and rows outside, vectors of channels, then tiles of columns; taps innermost."""

    def __init__(self, writer: Writer, shape: _Shape, situation: Situation, columns: int) -> None:
        self.most = columns
        self.writer, self.shape, self.unit = writer, shape, situation.unit
        self.memory, self.weight = writer.memory[shape.load.source], writer.memory[shape.weight]
        fold = shape.contraction.fold
        self.dtype = dtype_of(fold.value)
        self.epilogue = Epilogue(writer, fold, shape.contraction.output)
        self.height, self.length = int(shape.vertical.place.extent), int(shape.horizontal.place.extent)
        self.channels = int(shape.channel.extent)

    def write(self) -> None:
        """All images."""
        shape = self.shape
        images = shape.batch.extent
        taps = shape.vertical.tap.extent * shape.horizontal.tap.extent
        work = None if not isinstance(images, int) else images * self.height * self.length * self.channels * taps
        with self.writer.outer(count([images, self.height]), work) as number:
            image, row = (op(number, integer(self.height)) for op in (tirx.floordiv, tirx.floormod))
            lanes = self.unit.lanes(self.dtype)
            whole = self.channels // lanes
            if whole:
                with T.serial(0, integer(whole)) as block:
                    self._row(image, row, block * integer(lanes), lanes)
            start = whole * lanes
            while start < self.channels:
                width = 1 << ((self.channels - start).bit_length() - 1)
                self._row(image, row, integer(start), width)
                start += width

    def _row(self, image: Any, row: Any, channel: Any, width: int) -> None:
        def emit(start: Any, size: int) -> None:
            self._tile(image, row, channel, width, start, size)

        tiles_along(self.shape.horizontal, self.length, self.most, emit, inside=False)

    def _tile(self, image: Any, row: Any, channel: Any, width: int, start: Any, size: int) -> None:
        down, along = self.shape.vertical, self.shape.horizontal
        tile = Tile(Form(size, 1), width, self.dtype)
        tile.clear()
        low, high = tap_bounds(down, row)
        with T.serial(0, high - low) as number:
            tap = low + number
            line = row * integer(down.stride) + tap * integer(down.dilation) - integer(down.padding)
            first = (image * integer(down.size) + line) * integer(along.size)
            for across in range(along.tap.extent):
                weight = (tap * integer(along.tap.extent) + integer(across)) * integer(self.channels) + channel
                for index in range(size):
                    if isinstance(start, int) and not along.valid(start + index, across):
                        continue
                    column = (integer(start) + integer(index)) * integer(along.stride)
                    column = column + integer(across * along.dilation - along.padding)
                    place = (first + column) * integer(self.channels) + channel
                    tile.add(index, 0, self._product(place, weight))
        self._store(tile, image, row, channel, width, start)

    def _product(self, place: Any, weight: Any) -> Callable[[Any], Any]:
        return lambda lane: self.memory[place + lane] * self.weight[weight + lane]

    def _store(self, tile: Tile, image: Any, row: Any, channel: Any, width: int, start: Any) -> None:
        shape = self.shape
        result = shape.contraction.result

        def emit(index: Any, _: int, lane: Any, total: Any) -> None:
            column = integer(start) + integer(index)
            at = {shape.batch.var: image, shape.vertical.place.var: row, shape.horizontal.place.var: column}
            at[shape.channel.var] = channel + lane
            place = (image * integer(self.height) + row) * integer(self.length) + column
            self.writer.store(result, place * integer(self.channels) + channel + lane, self.epilogue.value(total, at))

        tile.store(width, emit, heavy=self.epilogue.heavy)
