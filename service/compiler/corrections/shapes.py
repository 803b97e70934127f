"""Views, joins and splits: everything that moves elements without computing.

TVM's importer makes a negative constant index of `select` a read before the tensor, `reshape` reads a size of 0 as a
copy of the input's, and slices with steps or past the end lose their length.
"""

from __future__ import annotations

from typing import Any

import torch
from tvm import relax, te, tirx

from service.compiler.corrections.creation import broadcast_to
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed


def reshaped(t: Translation, expr: Any, value: Any) -> Any:
    """`expr` in the shape of `value`, a fake tensor or a list of sizes, its elements in the same order."""
    dims = t.dims(value)
    if any(isinstance(dim, int) and dim == 0 for dim in dims):
        # `relax.reshape` reads 0 as "as in the input"; there is nothing to move.
        return t.emit(relax.op.zeros(relax.ShapeExpr(dims), str(expr.ty.dtype)))
    return t.emit(relax.op.reshape(expr, relax.ShapeExpr(dims)))


def _reshape(t: Translation, a: Arguments) -> Any:
    return reshaped(t, t.tensor(a.self), a.result)


def permuted(t: Translation, expr: Any, order: list[int]) -> Any:
    return t.emit(relax.op.permute_dims(expr, order))


def _permute(t: Translation, a: Arguments) -> Any:
    rank = a.result.ndim
    return permuted(t, t.tensor(a.self), [axis % rank for axis in a.dims]) if rank else t.tensor(a.self)


def _transpose(t: Translation, a: Arguments) -> Any:
    order = list(range(a.result.ndim))
    if not order:
        return t.tensor(a.self)
    order[a.dim0], order[a.dim1] = order[a.dim1], order[a.dim0]
    return permuted(t, t.tensor(a.self), order)


def _t(t: Translation, a: Arguments) -> Any:
    return permuted(t, t.tensor(a.self), [1, 0]) if a.result.ndim == 2 else t.tensor(a.self)


def _expand(t: Translation, a: Arguments) -> Any:
    return broadcast_to(t, t.tensor(a.self), a.result)


def _source(a: Arguments) -> Any:
    return a.self.meta["val"]


def _select(t: Translation, a: Arguments) -> Any:
    axis = a.dim % _source(a).ndim
    size, index = t.dim(_source(a).shape[axis]), t.dim(a.index)
    if isinstance(index, int):
        index = index + size if index < 0 else index
    elif not isinstance(index, int):
        raise ImportFailed("An index that is a symbol cannot be compiled.", step=0)
    chosen = strided(t, t.tensor(a.self), [axis], [index], [index + 1], [1], _with(_source(a), axis, 1))
    return reshaped(t, chosen, a.result)


def _with(value: Any, axis: int, size: Any) -> list[Any]:
    return [*value.shape[:axis], size, *value.shape[axis + 1 :]]


def strided(
    t: Translation, x: Any, axes: list[int], begins: list[Any], ends: list[Any], steps: list[Any], shape: Any
) -> Any:
    """Every `steps`-th element from `begins`, which is within bounds; the result has `shape`."""
    dims = t.dims(shape)
    if all(isinstance(each, int) for each in (*begins, *ends, *steps)):
        return t.emit(relax.op.strided_slice(x, axes, begins, ends, steps, assume_inbound=True))
    offsets = [tirx.const(0, "int64")] * len(dims)
    for axis, begin in zip(axes, begins, strict=True):
        offsets[axis] = tirx.const(begin, "int64") if isinstance(begin, int) else begin
    strides = dict(zip(axes, steps, strict=True))

    def compute(source: Any, out: Any, first: Any) -> Any:
        def read(*i: Any) -> Any:
            return source(*[first[axis] + each * strides.get(axis, 1) for axis, each in enumerate(i)])

        return te.compute(out, read, name="slice")

    return t.te(compute, x, relax.ShapeExpr(dims), relax.ShapeExpr(offsets), name="slice")


def slice_bounds(t: Translation, a: Arguments, value: Any) -> tuple[int, Any, Any]:
    """The axis, the first index and the step of a slice of `value`."""
    axis = a.dim % value.ndim
    size = value.shape[axis]
    start = 0 if a.start is None else a.start
    start = start.meta["val"] if isinstance(start, torch.fx.Node) else start
    if isinstance(start, int) and start < 0:
        start = start + size if not isinstance(size, int) else max(start + size, 0)
    if isinstance(start, int) and isinstance(size, int):
        start = min(start, size)
    return axis, t.dim(start), a.step


def _slice(t: Translation, a: Arguments) -> Any:
    source = _source(a)
    axis, start, step = slice_bounds(t, a, source)
    dims = t.dims(a.result)
    if isinstance(dims[axis], int) and dims[axis] == 0:
        return reshaped(t, t.tensor(a.self), a.result)
    if dims == t.dims(source) and step == 1:
        return t.tensor(a.self)
    if isinstance(dims[axis], int) and isinstance(start, int):
        end: Any = start + (dims[axis] - 1) * step + 1
    else:
        end = start + dims[axis] * step
    return strided(t, t.tensor(a.self), [axis], [start], [end], [step], a.result)


def _cat(t: Translation, a: Arguments) -> Any:
    values = [each.meta["val"] for each in a.tensors]
    kept = [
        each
        for each, value in zip(a.tensors, values, strict=True)
        if not (value.ndim == 1 and isinstance(value.shape[0], int) and value.shape[0] == 0) or a.result.ndim == 1
    ]
    parts = [t.tensor(each, a.result.dtype) for each in kept]
    nonempty = [each for each, node in zip(parts, kept, strict=True) if not _is_empty(node.meta["val"])]
    if not nonempty:
        return t.emit(relax.op.zeros(t.shape(a.result), str(parts[0].ty.dtype)))
    return nonempty[0] if len(nonempty) == 1 else t.emit(relax.op.concat(nonempty, a.dim % a.result.ndim))


def _is_empty(value: Any) -> bool:
    return any(isinstance(size, int) and size == 0 for size in value.shape)


def _stack(t: Translation, a: Arguments) -> Any:
    axis = a.dim % a.result.ndim
    parts = [t.emit(relax.op.expand_dims(t.tensor(each, a.result.dtype), axis)) for each in a.tensors]
    return parts[0] if len(parts) == 1 else t.emit(relax.op.concat(parts, axis))


def _split(t: Translation, a: Arguments) -> Any:
    """Parts along one axis; every part is a slice."""
    source = _source(a)
    axis = a.dim % source.ndim
    parts, begin = [], 0
    for value in a.result:
        size = t.dim(value.shape[axis])
        part = (
            strided(t, t.tensor(a.self), [axis], [begin], [begin + size], [1], value)
            if size != 0
            else reshaped(t, t.tensor(a.self), value)
        )
        parts.append(part)
        begin = begin + size
    return parts


def _unbind(t: Translation, a: Arguments) -> Any:
    source = _source(a)
    axis = a.dim % source.ndim
    shape = _with(source, axis, 1)
    slices = [strided(t, t.tensor(a.self), [axis], [i], [i + 1], [1], shape) for i in range(len(a.result))]
    return [reshaped(t, each, value) for each, value in zip(slices, a.result, strict=True)]


def _flip(t: Translation, a: Arguments) -> Any:
    axes = {axis % a.result.ndim for axis in a.dims} if a.result.ndim else set()

    def compute(x: Any) -> Any:
        def read(*i: Any) -> Any:
            return x(*[x.shape[axis] - 1 - each if axis in axes else each for axis, each in enumerate(i)])

        return te.compute(x.shape, read, name="flip")

    return t.te(compute, t.tensor(a.self), name="flip")


def _roll(t: Translation, a: Arguments) -> Any:
    value = a.result
    shifts = dict(zip(a.dims, a.shifts, strict=False))

    def compute(x: Any) -> Any:
        def read(*i: Any) -> Any:
            moved = [(each - shifts.get(axis, shifts.get(axis - value.ndim, 0))) for axis, each in enumerate(i)]
            return x(*[tirx.floormod(each, size) for each, size in zip(moved, x.shape, strict=True)])

        return te.compute(x.shape, read, name="roll")

    return t.te(compute, t.tensor(a.self), name="roll")


def _repeat(t: Translation, a: Arguments) -> Any:
    def compute(x: Any, shape: Any) -> Any:
        lead = len(shape) - len(x.shape)
        return te.compute(
            shape,
            lambda *i: x(*[tirx.floormod(each, size) for each, size in zip(i[lead:], x.shape, strict=True)]),
            name="repeat",
        )

    return t.te(compute, t.tensor(a.self), t.shape(a.result), name="repeat")


def _diagonal(t: Translation, a: Arguments) -> Any:
    rank = _source(a).ndim
    first, second = a.dim1 % rank, a.dim2 % rank
    rows, columns = max(-a.offset, 0), max(a.offset, 0)

    def compute(x: Any, shape: Any) -> Any:
        def read(*i: Any) -> Any:
            rest = iter(i[:-1])
            where = {first: i[-1] + rows, second: i[-1] + columns}
            return x(*[where[axis] if axis in where else next(rest) for axis in range(rank)])

        return te.compute(shape, read, name="diagonal")

    return t.te(compute, t.tensor(a.self), t.shape(a.result), name="diagonal")


def _unfold(t: Translation, a: Arguments) -> Any:
    axis = a.dimension % max(_source(a).ndim, 1)

    def compute(x: Any, shape: Any) -> Any:
        def read(*i: Any) -> Any:
            return x(*[each * a.step + i[-1] if at == axis else each for at, each in enumerate(i[:-1])])

        return te.compute(shape, read, name="unfold")

    return t.te(compute, t.tensor(a.self), t.shape(a.result), name="unfold")


def _triangle(upper: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        def compute(x: Any) -> Any:
            zero = tirx.const(0, x.dtype)

            def read(*i: Any) -> Any:
                kept = i[-1] - i[-2] >= a.diagonal if upper else i[-1] - i[-2] <= a.diagonal
                return tirx.Select(kept, x(*i), zero)

            return te.compute(x.shape, read, name="triangle")

        return t.te(compute, t.tensor(a.self), name="triu" if upper else "tril")

    return convert


def _as_strided(t: Translation, a: Arguments) -> Any:
    source = _source(a)
    if not source.is_contiguous() or not all(isinstance(each, int) for each in (*a.size, *a.stride)):
        raise ImportFailed("as_strided of a tensor that is not contiguous cannot be compiled.", step=0)
    flat = reshaped(t, t.tensor(a.self), [source.numel()])
    offset = a.storage_offset or 0

    def compute(x: Any, shape: Any) -> Any:
        return te.compute(
            shape,
            lambda *i: x(
                sum((each * stride for each, stride in zip(i, a.stride, strict=True)), tirx.const(offset, "int64"))
            ),
            name="as_strided",
        )

    last = offset + sum((size - 1) * stride for size, stride in zip(a.size, a.stride, strict=True))
    if isinstance(source.numel(), int) and last >= source.numel():
        raise ImportFailed("as_strided reads beyond its tensor.", step=0)
    return t.te(compute, flat, t.shape(a.result), name="as_strided")


def _getitem(t: Translation, a: Arguments) -> Any:
    sequence, index = a.node.args
    return t.values[sequence][index]


def _pad(t: Translation, a: Arguments) -> Any:
    """Constant padding; negative amounts cut off."""
    source = _source(a)
    rank, amounts = source.ndim, a.pad
    before = {rank - 1 - k: amounts[2 * k] for k in range(len(amounts) // 2)}
    value = t.tensor(a.values["value"] or 0, a.result.dtype)

    def compute(x: Any, filler: Any, shape: Any) -> Any:
        def read(*i: Any) -> Any:
            inner = [each - before.get(axis, 0) for axis, each in enumerate(i)]
            within = [tirx.And(each >= 0, each < size) for each, size in zip(inner, x.shape, strict=True)]
            return tirx.if_then_else(tirx.all(*within), x(*inner), filler())

        return te.compute(shape, read, name="pad")

    return t.te(compute, t.tensor(a.self), value, t.shape(a.result), name="pad")


CONVERTERS: dict[str, Converter] = {
    **{
        f"aten.{name}": _reshape
        for name in (
            "view.default",
            "_unsafe_view.default",
            "reshape.default",
            "unsqueeze.default",
            "squeeze.default",
            "squeeze.dim",
            "squeeze.dims",
            "flatten.using_ints",
        )
    },
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.expand.default": _expand,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split,
    "aten.chunk.default": _split,
    "aten.unbind.int": _unbind,
    "aten.flip.default": _flip,
    "aten.roll.default": _roll,
    "aten.repeat.default": _repeat,
    "aten.diagonal.default": _diagonal,
    "aten.unfold.default": _unfold,
    "aten.tril.default": _triangle(upper=False),
    "aten.triu.default": _triangle(upper=True),
    "aten.as_strided.default": _as_strided,
    "aten.constant_pad_nd.default": _pad,
    "getitem": _getitem,
}
