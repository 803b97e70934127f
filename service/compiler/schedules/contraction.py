"""Sums of products, as matrix products and convolutions are, with the maps around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad
from tvm.ir.prim import expr as prim

from service.compiler.schedules.computation import Axis, Computation, Indices, Program, inlined, is_costly, offset
from service.compiler.schedules.expressions import Unsupported, constant, integer, loads, rewrite, size, variables
from service.compiler.schedules.writer import Writer, count, dtype_of_buffer, placed

# So many subexpressions of a map after a fold are still written out for every vector of a tile.
_LIGHT = 40


@dataclass(frozen=True)
class Contraction:
    """`fold` is the sum of `left` times `right`; `output` is the map of it that is stored, None for the sum itself."""

    program: Program
    fold: Computation
    left: Any
    right: Any
    output: Computation | None

    @property
    def result(self) -> Any:
        """The buffer that the function writes."""
        return self.fold.buffer if self.output is None else self.output.buffer


def find_contraction(program: Program) -> Contraction:
    """The contraction that `program` is. Raises Unsupported where it is another thing or has more than one."""
    program, fold, output = find_fold(program)
    if fold.fold != "sum" or not isinstance(fold.value, prim.Mul):
        raise Unsupported("the function is not one sum of products with maps")
    return Contraction(program, fold, fold.value.a, fold.value.b, output)


def find_fold(program: Program) -> tuple[Program, Computation, Computation | None]:
    """The program inlined, its only fold, and the map of it that is stored. Raises Unsupported where there are more."""
    program = inlined(program)
    folds = program.folds()
    if len(folds) != 1:
        raise Unsupported("the function is not one fold")
    others = [each for each in program.computations if each.fold is None]
    if len(program.outputs) != 1 or len(others) > 1:
        raise Unsupported("the function has more than one result")
    output = others[0] if others else None
    if output is not None and not keeps_places(folds[0], output):
        raise Unsupported("the fold is read at other places than it is stored")
    return program, folds[0], output


def keeps_places(fold: Computation, output: Computation) -> bool:
    """Whether `output` reads each element of `fold` where it writes its own, in compact memory, and all of them."""
    indices = Indices(output.axes)
    own = offset(output.buffer, [axis.var for axis in output.axes])
    read = [load for load in loads(output.value) if load.source.same_as(fold.buffer)]

    def at_its_place(load: Any) -> bool:
        return constant(indices.simplify(offset(load.source, load.indices) - own)) == 0

    if any(not isinstance(axis.extent, int) for axis in output.axes) or len(output.axes) == len(fold.axes):
        return not read or (
            len(output.axes) == len(fold.axes)
            and _equal_sizes(fold, output)
            and all(_has_the_axes(load, output) or at_its_place(load) for load in read)
        )
    if count([axis.extent for axis in fold.axes]) != count([axis.extent for axis in output.axes]):
        return False
    return all(at_its_place(load) for load in read)


def _has_the_axes(load: Any, output: Computation) -> bool:
    return all(
        index.same_as(axis.var) or (axis.extent == 1 and constant(index) == 0)
        for index, axis in zip(load.indices, output.axes, strict=True)
    )


def _equal_sizes(fold: Computation, output: Computation) -> bool:
    pairs = zip(fold.axes, output.axes, strict=True)
    return all(
        mine.extent == other.extent if isinstance(mine.extent, int) or isinstance(other.extent, int)
        else mine.extent.same_as(other.extent) or constant(Indices(()).simplify(mine.extent - other.extent)) == 0
        for mine, other in pairs
    )  # fmt: skip


class Epilogue:
    """The map after a fold over memory: `value` gives what is stored for one sum."""

    def __init__(self, writer: Writer, fold: Computation, output: Computation | None) -> None:
        self.sum = tirx.Var("sum", dtype_of_buffer(fold.buffer))
        self.expression: Any = self.sum
        self.heavy = False
        if output is None:
            return
        indices = Indices(fold.axes)
        at = self._places(fold, output, indices)

        def known(buffer: Any, _: list[Any]) -> Any:
            return self.sum if buffer.same_as(fold.buffer) else None

        self.expression = writer.flat(rewrite(output.value, at), indices, known)
        # What comes out as many instructions stands in the code as rarely as can be.
        self.heavy = is_costly(output.value) or size(self.expression) > _LIGHT

    @staticmethod
    def _places(fold: Computation, output: Computation, indices: Indices) -> dict[Any, Any]:
        """The axes of `output` in terms of those of `fold`."""
        if len(fold.axes) == len(output.axes):
            return {mine.var: axis.var for mine, axis in zip(output.axes, fold.axes, strict=True)}
        place: Any = offset(fold.buffer, [axis.var for axis in fold.axes])
        at = {}
        for axis in reversed(output.axes):
            at[axis.var] = indices.simplify(tirx.floormod(place, integer(axis.extent)))
            place = indices.simplify(tirx.floordiv(place, integer(axis.extent)))
        return at

    def value(self, total: Any, at: Mapping[Any, Any]) -> Any:
        """What is stored for the sum `total` at the axes `at` of the fold."""
        return placed(self.expression, {**at, self.sum: total})


def direct(load: Any, axis: Axis) -> int:
    """At which index of `load` the variable of `axis` stands alone. Raises Unsupported where it does not."""
    found = [position for position, index in enumerate(load.indices) if index.same_as(axis.var)]
    if len(found) != 1 or sum(axis.var in variables(index) for index in load.indices) != 1:
        raise Unsupported("an operand is not read along its axes")
    return found[0]


def is_load(expr: Any) -> bool:
    """Whether `expr` is a load of one element."""
    return isinstance(expr, TensorLoad)
