"""Writing one TensorIR function: parameters as flat memory, loops, and expressions of a Program over both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.build import SCHEDULED
from service.compiler.schedules.computation import Axis, Indices, Program, offset, shape_of
from service.compiler.schedules.expressions import integer, rewrite
from service.compiler.schedules.sharing import bound, shared
from service.compiler.schedules.vector_maths import vectorisable
from service.compiler.schedules.vector_unit import size_of

# Work below which starting threads costs more than it saves, in elementary operations.
PARALLEL_WORK = 1 << 18

# The variable of the vector loop that is written at the moment.
_lane: ContextVar[Any] = ContextVar("lane", default=None)


class Writer:
    """One function on its way. Made by `writing`; `function` is there when its block has ended."""

    def __init__(self, parallel: bool) -> None:
        self.memory: dict[Any, Any] = {}
        self.parallel = parallel
        self.function: Any = None

    def flat(self, expr: Any, indices: Indices, known: Callable[[Any, list[Any]], Any] | None = None) -> Any:
        """`expr` of the Program over memory: each load at its place, simplified for the ranges of `indices`.

        `known` may give the value of a load in place of memory.
        """

        def on_load(buffer: Any, at: list[Any]) -> Any:
            value = None if known is None else known(buffer, at)
            return self.memory[buffer][indices.simplify(offset(buffer, at))] if value is None else value

        return shared(rewrite(expr, {}, on_load))

    def store(self, buffer: Any, place: Any, value: Any) -> None:
        """Writes one element of a buffer of the Program, at its place in memory."""
        put(self.memory[buffer], value, place)

    def outer(self, extent: Any, work: Any) -> Any:
        """A loop over `extent`, by threads where `work`, the operations of the whole loop, pays for starting them.

        `work` None stands for a number that is not known now.
        """
        pays = work is None or work >= PARALLEL_WORK
        if self.parallel and pays and extent != 1:
            return T.parallel(0, integer(extent))
        return T.serial(0, integer(extent))


@contextlib.contextmanager
def writing(
    name: str, program: Program, packed: Mapping[Any, Sequence[int]] | None = None, *, parallel: bool = True
) -> Iterator[Writer]:
    """A Writer of a function with the parameters of `program`; those of `packed` have other shapes."""
    writer = Writer(parallel)
    shapes = dict(packed or {})
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_name(name)
        T.func_attr({"tirx.noalias": True, SCHEDULED: True})
        arguments = []
        for index, buffer in enumerate(program.parameters):
            shape = shapes.get(buffer, shape_of(buffer))
            sizes = [integer(each) for each in shape]
            arguments.append(T.arg(f"p{index}", T.buffer(sizes, dtype_of_buffer(buffer))))
        with T.sblock("root"):
            for buffer, argument in zip(program.parameters, arguments, strict=True):
                writer.memory[buffer] = _flat(argument, shapes.get(buffer, shape_of(buffer)))
            yield writer
    writer.function = builder.get()


def placed(expr: Any, at: Mapping[Any, Any]) -> Any:
    """`expr` over memory with its axes replaced, and functions of the C library by their polynomials."""
    return rewrite(expr, at, None, vectorisable)


def put(memory: Any, value: Any, place: Any) -> None:
    """Writes the element at `place` of a flat buffer; what `value` names is bound before."""
    T.buffer_store(memory, bound(value, _lane.get()), [integer(place)])


def dtype_of_buffer(buffer: Any) -> str:
    """The dtype of a buffer's elements, by name."""
    return str(buffer.ty.dtype)


def _flat(argument: Any, shape: Sequence[Any]) -> Any:
    if len(shape) == 1:
        return argument
    return T.decl_buffer([integer(count(shape))], dtype_of_buffer(argument), data=argument.data)


def count(shape: Sequence[Any]) -> Any:
    """The product of sizes; an int where all are known."""
    product: Any = 1
    for each in shape:
        product = product * each if isinstance(product, int) and isinstance(each, int) else integer(product) * each
    return product


def parameter_bytes(function: Any) -> int:
    """The size of all parameters of a TensorIR function; 0 where one is not known."""
    total = 0
    for parameter in function.params:
        if not isinstance(parameter.ty, tirx.BufferType):
            return 0
        elements = count(shape_of(parameter))
        if not isinstance(elements, int):
            return 0
        total += elements * size_of(dtype_of_buffer(parameter))
    return total


def local(elements: int, dtype: str) -> Any:
    """A small buffer on the stack."""
    # Else each use would ask the runtime for memory and give it back.
    stack = {"disable_lower_builtin": True}
    return T.alloc_buffer([tirx.const(elements, "int64")], dtype, scope="local", annotations=stack)


def workspace(elements: int, dtype: str) -> Any:
    """A buffer of the thread that is asked of the runtime where it stands, and given back at the end of its loop."""
    return T.alloc_buffer([tirx.const(elements, "int64")], dtype)


@contextlib.contextmanager
def vector(lanes: int) -> Iterator[Any]:
    """A loop that becomes one vector operation."""
    with T.vectorized(0, tirx.const(lanes, "int64")) as lane:
        token = _lane.set(lane)
        try:
            yield lane
        finally:
            _lane.reset(token)


def strips(extent: Any, lanes: int, body: Callable[[Any, int], None]) -> None:
    """`body(start, width)` over `extent` elements in vectors of `lanes`, and the rest in narrower ones.

    `start` is the first element of a vector of `width`.
    """
    if not isinstance(extent, int):
        whole = tirx.floordiv(extent, lanes)
        with T.serial(0, whole) as block:
            body(block * lanes, lanes)
        with T.serial(0, tirx.floormod(extent, lanes)) as rest:
            body(whole * lanes + rest, 1)
        return
    whole, rest = divmod(extent, lanes)
    if whole == 1:
        body(integer(0), lanes)
    elif whole:
        with T.serial(0, integer(whole)) as block:
            body(block * integer(lanes), lanes)
    start = whole * lanes
    while rest:
        width = 1 << (rest.bit_length() - 1)
        body(integer(start), width)
        start, rest = start + width, rest - width


def work_of(axes: Sequence[Axis], each: int = 1) -> int | None:
    """The operations of a loop nest; None where an extent is not known."""
    product = count([axis.extent for axis in axes])
    return product * each if isinstance(product, int) else None
