"""A TensorIR function read back as what it computes: a list of maps and folds over tensors, without their loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx
from tvm.ir import Range, TensorLoad
from tvm.ir.prim import expr as prim
from tvm.s_tir.stmt import SBlockRealize
from tvm.tirx import BufferStore, For, SeqStmt

from service.compiler.schedules.expressions import (
    HasBfloat16,
    Unsupported,
    constant,
    integer,
    loads,
    operator_name,
    rewrite,
    size,
    variables,
    walk,
)

# Beyond so many subexpressions a map is computed once and stored instead of being inlined where it is read.
LARGEST_EXPRESSION = 300


@dataclass(frozen=True)
class Axis:
    """One loop: its variable and its extent, an int where it is known."""

    var: Any
    extent: Any


@dataclass(frozen=True)
class Computation:
    """`buffer` at `axes` is `value`, or the fold of it over `reduced`, from `start`.

    `fold` is sum, max, min, all or any; an extremum keeps NaN where `keeps_nan`.
    """

    buffer: Any
    axes: tuple[Axis, ...]
    value: Any
    reduced: tuple[Axis, ...] = ()
    fold: str | None = None
    start: Any = None
    keeps_nan: bool = False


@dataclass(frozen=True)
class Program:
    """What one TensorIR function computes. `inputs` and `outputs` are its buffers, `others` its scalar parameters."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    computations: tuple[Computation, ...]
    parameters: tuple[Any, ...]

    def producer(self, buffer: Any) -> Computation | None:
        """The computation that writes `buffer`."""
        return next((each for each in self.computations if each.buffer.same_as(buffer)), None)

    def position(self, buffer: Any) -> int:
        """At which place the parameter `buffer` stands."""
        return next(index for index, each in enumerate(self.parameters) if each.same_as(buffer))

    def has_inputs_first(self) -> bool:
        """Whether the parameters are the inputs and then the outputs, as `call_tir` passes them."""
        given = (*self.inputs, *self.outputs)
        return len(given) == len(self.parameters) and all(
            mine.same_as(other) for mine, other in zip(given, self.parameters, strict=True)
        )

    def folds(self) -> list[Computation]:
        """The computations that are folds."""
        return [each for each in self.computations if each.fold is not None]


def shape_of(buffer: Any) -> list[Any]:
    """The sizes of a buffer, ints where they are known."""
    return [_size(each) for each in buffer.ty.shape]


def _size(extent: Any) -> Any:
    known = constant(extent)
    return extent if known is None else known


def read(function: Any) -> Program:
    """The Program of a TensorIR function. Raises Unsupported if it is not made of maps and folds, HasBfloat16 first."""
    # TVM's Python has no visitor of TensorIR; printing takes less than a ms.
    if "bfloat16" in function.script(show_meta=False):
        raise HasBfloat16
    if not isinstance(function.body, SBlockRealize):
        raise Unsupported("the function has loops of its own")
    root = function.body.block
    buffers = [param for param in function.params if isinstance(param.ty, tirx.BufferType)]
    if len(buffers) != len(function.params):
        raise Unsupported("the function has parameters that are not tensors")
    statements = list(root.body.seq) if isinstance(root.body, SeqStmt) else [root.body]
    computations = tuple(_computation(each) for each in statements)
    written = [each.buffer for each in computations]
    outputs = tuple(each for each in buffers if any(each.same_as(other) for other in written))
    inputs = tuple(each for each in buffers if not any(each.same_as(other) for other in written))
    return Program(inputs, outputs, computations, tuple(function.params))


def _computation(statement: Any) -> Computation:
    loops: dict[Any, Axis] = {}
    while isinstance(statement, For):
        if constant(statement.min) != 0 or statement.annotations or int(statement.kind) != 0:
            raise Unsupported("a loop is not plain")
        loops[statement.loop_var] = Axis(statement.loop_var, _size(statement.extent))
        statement = statement.body
    if not isinstance(statement, SBlockRealize) or constant(statement.predicate) != 1:
        raise Unsupported("a loop has a body that is not one block")
    block = statement.block
    if list(block.alloc_buffers) or list(block.match_buffers) or not isinstance(block.body, BufferStore):
        raise Unsupported("a block has statements of its own")
    spatial: list[Axis] = []
    reduced: list[Axis] = []
    for iter_var, value in zip(block.iter_vars, statement.iter_values, strict=True):
        extent = _size(iter_var.dom.extent)
        known = isinstance(value, prim.IntImm) and constant(value) == 0 and extent == 1
        if not known and value not in loops:
            raise Unsupported("a block's axis is not a loop")
        (spatial if int(iter_var.iter_type) == 0 else reduced).append(Axis(iter_var.var, extent))
    store = block.body
    if len(store.indices) != len(spatial):
        store, spatial = _without_ones(store, spatial)
    # Axes in the order in which the buffer has them; a fixed index is an axis of one element.
    axes = [_axis_at(index, spatial) for index in store.indices]
    if block.init is None:
        return Computation(store.buffer, tuple(axes), store.value)
    return _fold(store, tuple(axes), tuple(reduced), block.init.value)


def _without_ones(store: Any, spatial: list[Axis]) -> tuple[Any, list[Axis]]:
    """The store and the axes without those of one element that it does not write at."""
    used = [axis for axis in spatial if any(index.same_as(axis.var) for index in store.indices)]
    ones = {axis.var: integer(0) for axis in spatial if axis not in used}
    if any(axis.extent != 1 for axis in spatial if axis not in used) or len(used) != len(store.indices):
        raise Unsupported("a block does not write one element for each of its axes")
    return BufferStore(store.buffer, rewrite(store.value, ones), list(store.indices)), used


def _axis_at(index: Any, axes: list[Axis]) -> Axis:
    for axis in axes:
        if index.same_as(axis.var):
            return axis
    raise Unsupported("a block writes elsewhere than at its axes")


def _fold(store: Any, axes: tuple[Axis, ...], reduced: tuple[Axis, ...], start: Any) -> Computation:
    value = store.value

    def is_self(expr: Any) -> bool:
        return isinstance(expr, TensorLoad) and expr.source.same_as(store.buffer)

    names = {prim.Add: "sum", prim.Max: "max", prim.Min: "min", prim.And: "all", prim.Or: "any"}
    if type(value) in names and is_self(value.a):
        term, name, keeps_nan = value.b, names[type(value)], False
    elif _is_nan_extremum(value, is_self):
        term, keeps_nan = value.false_value, True
        name = "max" if isinstance(value.condition.a, prim.GT) else "min"
    else:
        raise Unsupported("a fold is not a sum, an extremum or a conjunction")
    if any(is_self(each) for each in walk(term)):
        raise Unsupported("a fold reads its own result in its term")
    return Computation(store.buffer, axes, term, reduced, name, start, keeps_nan)


def _is_nan_extremum(value: Any, is_self: Any) -> bool:
    """Whether `value` is Select(old > x or isnan(old), old, x), or the same with <."""
    if not (isinstance(value, prim.Select) and isinstance(value.condition, prim.Or) and is_self(value.true_value)):
        return False
    ordered, unordered = value.condition.a, value.condition.b
    return (
        isinstance(ordered, prim.GT | prim.LT)
        and is_self(ordered.a)
        and operator_name(unordered) == "tirx.isnan"
        and is_self(unordered.args[0])
    )


def inlined(program: Program, keep: Sequence[Any] = ()) -> Program:
    """`program` with every map that is no output (and not among `keep`) written out where it is read.

    A map stays where the expression would become too large.
    """
    bodies: dict[Any, Computation] = {}
    kept: list[Computation] = []
    outputs = [*program.outputs, *keep]

    def on_load(buffer: Any, indices: list[Any]) -> Any:
        body = bodies.get(buffer)
        if body is None:
            return None
        at = {axis.var: index for axis, index in zip(body.axes, indices, strict=True)}
        return rewrite(body.value, at)

    for each in program.computations:
        value = rewrite(each.value, {}, on_load)
        new = Computation(each.buffer, each.axes, value, each.reduced, each.fold, each.start, each.keeps_nan)
        is_output = any(each.buffer.same_as(other) for other in outputs)
        heavy = size(value) > LARGEST_EXPRESSION or (is_costly(value) and _reads(program, each.buffer) > 1)
        if each.fold is None and not is_output and not heavy:
            bodies[each.buffer] = new
        else:
            kept.append(new)
    return Program(program.inputs, program.outputs, tuple(kept), program.parameters)


def _reads(program: Program, buffer: Any) -> int:
    return sum(1 for each in program.computations if any(load.source.same_as(buffer) for load in loads(each.value)))


_COSTLY = ("tirx.exp", "tirx.tanh", "tirx.erf", "tirx.sigmoid", "tirx.log", "tirx.pow", "tirx.call_pure_extern")


def is_costly(value: Any) -> bool:
    """Whether `value` calls a function that is dear to compute twice."""
    return any(operator_name(each) in _COSTLY for each in walk(value))


class Indices:
    """Simplification of index expressions over axes whose ranges are known."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        self.analyzer = sym.Analyzer()
        for axis in axes:
            self.analyzer.bind(axis.var, Range(integer(0), integer(axis.extent)))

    def simplify(self, expr: Any) -> Any:
        """`expr` simplified; it must be an expression over integers."""
        return self.analyzer.simplify(integer(expr))

    def step(self, expr: Any, axis: Axis) -> Any:
        """By how much `expr` grows when `axis` advances by one; None where that depends on where it stands."""
        next_value = rewrite(expr, {axis.var: axis.var + integer(1)})
        difference = self.simplify(next_value - expr)
        return None if axis.var in variables(difference) or loads(difference) else difference


def offset(buffer: Any, indices: Sequence[Any]) -> Any:
    """The place of an element in a compact buffer."""
    place: Any = integer(0)
    for index, extent in zip(indices, shape_of(buffer), strict=True):
        place = place * integer(extent) + index
    return place
