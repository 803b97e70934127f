"""The axis of size 1 that a fold has and the map after it does not: put back, so that both have the same axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx

from service.compiler.schedules.computation import Axis, Computation, Program, shape_of
from service.compiler.schedules.expressions import constant, integer, loads
from service.compiler.schedules.writer import dtype_of_buffer


def with_unit_axis(program: Program) -> tuple[Program, int] | None:
    """`program` with a result that has the fold's axes, and which of them it had not; None where it is another thing.

    `program` must be inlined. The result's bytes in memory are the same.
    """
    folds = program.folds()
    if len(folds) != 1 or len(program.computations) != 2 or len(program.outputs) != 1:
        return None
    fold, output = program.computations
    if not output.buffer.same_as(program.outputs[0]) or len(output.axes) != len(fold.axes) - 1:
        return None
    own = [load for load in loads(output.value) if load.source.same_as(fold.buffer)]
    for place, axis in enumerate(fold.axes):
        if axis.extent == 1 and own and all(_is_read_along(load, output.axes, place) for load in own):
            return _widened(program, fold, output, place), place
    return None


def _is_read_along(load: Any, axes: tuple[Axis, ...], place: int) -> bool:
    """Whether the load is of the element at `axes`, and 0 at `place`."""
    indices = list(load.indices)
    if constant(indices.pop(place)) != 0:
        return False
    return all(
        index.same_as(axis.var) or (axis.extent == 1 and constant(index) == 0)
        for index, axis in zip(indices, axes, strict=True)
    )


def _widened(program: Program, fold: Computation, output: Computation, place: int) -> Program:
    shape = shape_of(output.buffer)
    shape.insert(place, 1)
    sizes = [integer(each) for each in shape]
    buffer = tirx.decl_buffer(sizes, dtype_of_buffer(output.buffer), str(output.buffer.name))
    axes = list(output.axes)
    axes.insert(place, fold.axes[place])
    wide = replace(output, buffer=buffer, axes=tuple(axes))
    parameters = tuple(buffer if each.same_as(output.buffer) else each for each in program.parameters)
    return Program(program.inputs, (buffer,), (fold, wide), parameters)
