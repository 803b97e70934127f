"""A Program written as a plain TensorIR function again, one block a computation, possibly with other layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te, tirx

from service.compiler.extrema import maximum, minimum
from service.compiler.schedules.computation import Axis, Computation, Program, shape_of
from service.compiler.schedules.expressions import Unsupported, integer, rewrite
from service.compiler.schedules.writer import dtype_of_buffer

# For a buffer, at which place each axis of the old layout stands in the new one: new shape[i] = old shape[order[i]].
Orders = Mapping[Any, Sequence[int]]


def write(program: Program, orders: Orders) -> Any:
    """`program` as a function whose buffers have the orders of axes that are given; others stay as they are.

    Raises Unsupported where its parameters are not its inputs and then its outputs.
    """
    parameters = [*program.inputs, *program.outputs]
    if not program.has_inputs_first():
        raise Unsupported("the parameters of the function are in another order")
    tensors: dict[Any, Any] = {}
    for number, buffer in enumerate(program.inputs):
        shape = reordered(shape_of(buffer), orders.get(buffer))
        tensors[buffer] = te.placeholder([integer(each) for each in shape], dtype_of_buffer(buffer), f"p{number}")
    for computation in program.computations:
        tensors[computation.buffer] = _tensor(computation, tensors, orders)
    return te.create_prim_func([tensors[each] for each in parameters], "int64").without_attr("global_symbol")


def reordered(values: Sequence[Any], order: Sequence[int] | None) -> list[Any]:
    """`values` in the new order."""
    return list(values) if order is None else [values[axis] for axis in order]


def _tensor(computation: Computation, tensors: dict[Any, Any], orders: Orders) -> Any:
    def on_load(buffer: Any, indices: list[Any]) -> Any:
        return tensors[buffer](*reordered(indices, orders.get(buffer)))

    axes = reordered(computation.axes, orders.get(computation.buffer))
    reduced = [te.reduce_axis((0, integer(axis.extent)), name=f"k{i}") for i, axis in enumerate(computation.reduced)]

    def body(*index: Any) -> Any:
        at = {axis.var: var for axis, var in zip(axes, index, strict=True)}
        at |= {axis.var: new.var for axis, new in zip(computation.reduced, reduced, strict=True)}
        value = rewrite(computation.value, at, on_load)
        return value if computation.fold is None else _reducer(computation)(value, axis=reduced)

    shape = [integer(axis.extent) for axis in axes]
    return te.compute(shape, body, name=_name(computation, axes))


def _name(computation: Computation, axes: Sequence[Axis]) -> str:
    return str(computation.fold or ("map" if axes else "number"))


def _reducer(computation: Computation) -> Any:
    if computation.fold == "sum":
        return te.sum
    combine = {
        "max": maximum if computation.keeps_nan else tirx.max,
        "min": minimum if computation.keeps_nan else tirx.min,
        "all": tirx.And,
        "any": tirx.Or,
    }[str(computation.fold)]
    # TVM looks into the function that it is given: it must be one of Python's, of two arguments.
    fold = lambda x, y: combine(x, y)  # noqa: E731, PLW0108
    return te.comm_reducer(fold, lambda _: computation.start, name=str(computation.fold))
