"""Writing at indices that are data, and into slices. Every index is checked; no write leaves its buffer.

TVM lacks scatter_add, index_add and partial index_put, and its `scatter_elements` and `index_put` write wherever the
index says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.corrections.creation import broadcast_to, is_empty
from service.compiler.corrections.indexing import check_range, index_tensors, layout, within
from service.compiler.corrections.shapes import slice_bounds
from service.compiler.extrema import maximum, minimum
from service.compiler.pointwise import broadcast_shape, is_one
from service.compiler.promotion import widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed

Combine = Callable[[Any, Any], Any]
_COMBINE: dict[str, Combine] = {
    "replace": lambda old, new: new,
    "sum": lambda old, new: old + new,
    "add": lambda old, new: old + new,
    "prod": lambda old, new: old * new,
    "multiply": lambda old, new: old * new,
    "amax": maximum,
    "amin": minimum,
}


def _volume(shape: Any) -> Any:
    size: Any = tirx.const(1, "int64")
    for each in shape:
        size = size * each
    return size


def _unravel(flat: Any, shape: Any) -> list[Any]:
    index = []
    for size in reversed(list(shape)):
        index.append(tirx.floormod(flat, size))
        flat = tirx.floordiv(flat, size)
    return index[::-1]


def _ravel(index: list[Any], shape: Any) -> Any:
    flat: Any = tirx.const(0, "int64")
    for each, size in zip(index, shape, strict=True):
        flat = flat * size + each
    return flat


def _broadcast_flat(index: list[Any], shape: Any) -> Any:
    own = index[len(index) - len(shape) :]
    return _ravel([tirx.const(0, "int64") if is_one(size) else i for i, size in zip(own, shape, strict=True)], shape)


def written(
    t: Translation, base: Any, source: Any, indices: list[Any], where: Callable[..., Any], combine: Combine, name: str
) -> Any:
    """`base` with elements of `source` combined into it, one after the other.

    `where(position, base_shape, reads)` gives the place in `base` of each position of the loop over the shape that
    `where.loop(shapes)` says, with `reads[k](position)` the k-th index there; sources broadcast to the loop.
    """

    def kernel(ins: Any, outs: Any) -> Any:
        ib = IRBuilder()
        with ib, T.seq_scope():
            old, new = T.buffer_proxy(ins[0]), T.buffer_proxy(ins[1])
            tables = [T.buffer_proxy(each) for each in ins[2:]]
            out = T.buffer_proxy(outs[0])
            with T.serial(0, _volume(ins[0].shape)) as i:
                out[i] = old[i]
            loop = where([each.shape for each in ins], None, None)
            with T.serial(0, _volume(loop)) as j:
                position = _unravel(j, loop)
                place = where([each.shape for each in ins], position, tables)
                value = new[_broadcast_flat(position, ins[1].shape)]
                out[place] = combine(out[place], value)
        return ib.get()

    def compute(*tensors: Any) -> Any:
        return te.extern([tensors[0].shape], list(tensors), kernel, dtype=[tensors[0].dtype], name=name)

    return t.te(compute, base, source, *indices, name=name)


def _scatter(t: Translation, a: Arguments, how: str, source: Any) -> Any:
    value = a.self.meta["val"]
    dtype = widened(value.dtype) if how in ("sum", "add", "prod", "multiply") else value.dtype
    dtype = torch.int8 if dtype is torch.bool else dtype
    base = t.tensor(a.self, dtype)
    if is_empty(a.index.meta["val"]):
        return t.tensor(a.self)
    index = t.tensor(a.index, torch.int64)
    if value.ndim == 0 or a.index.meta["val"].ndim == 0:
        raise ImportFailed("scatter without dimensions cannot be compiled.", step=0)
    axis = a.dim % value.ndim
    check_range(t, a, index, t.dim(value.shape[axis]), negative=False)
    if not isinstance(source, torch.fx.Node):
        src = t.tensor(source, dtype)
    else:
        src = _cropped(t, t.tensor(source, dtype), source.meta["val"], a.index.meta["val"])

    def where(shapes: Any, position: Any, tables: Any) -> Any:
        if position is None:
            return shapes[2]
        row = within(tables[0][_ravel(position, shapes[2])], shapes[0][axis])
        return _ravel([row if at == axis else each for at, each in enumerate(position)], shapes[0])

    result = written(t, base, src, [index], where, _COMBINE[how], "scatter")
    return t.cast(result, dtype, value.dtype)


def _cropped(t: Translation, expr: Any, value: Any, index: Any) -> Any:
    """A source of scatter may be larger than the index; only the corner of the index's shape is read."""
    if [str(each) for each in value.shape] == [str(each) for each in index.shape]:
        return expr

    def compute(x: Any, shape: Any) -> Any:
        return te.compute(shape, lambda *i: x(*i), name="crop")  # noqa: PLW0108 - te reads the lambda's code

    return t.te(compute, expr, t.shape(index), name="crop")


def _scatter_reduce(t: Translation, a: Arguments) -> Any:
    return _scatter(t, a, a.reduce, a.src)


def _index_write(t: Translation, a: Arguments, how: str, source: Any) -> Any:
    """index_add and index_copy: whole slices of `source` at the rows that a vector says."""
    value = a.self.meta["val"]
    dtype = widened(value.dtype) if how == "sum" else value.dtype
    dtype = torch.int8 if dtype is torch.bool else dtype
    if value.ndim == 0:
        raise ImportFailed("index_add without dimensions cannot be compiled.", step=0)
    axis = a.dim % value.ndim
    index = t.tensor(a.index, torch.int64)
    if a.index.meta["val"].ndim == 0:
        index = t.emit(relax.op.reshape(index, [1]))
    check_range(t, a, index, t.dim(value.shape[axis]), negative=False)
    src = t.tensor(source, dtype)
    alpha = a.values.get("alpha", 1)
    if alpha != 1:
        src = t.emit(relax.op.multiply(src, t.tensor(alpha, dtype)))
    if is_empty(source.meta["val"]) or is_empty(value):
        return t.tensor(a.self)

    def where(shapes: Any, position: Any, tables: Any) -> Any:
        if position is None:
            return shapes[1]
        row = within(tables[0][position[axis]], shapes[0][axis])
        return _ravel([row if at == axis else each for at, each in enumerate(position)], shapes[0])

    return t.cast(
        written(t, t.tensor(a.self, dtype), src, [index], where, _COMBINE[how], "index_write"), dtype, value.dtype
    )


def _index_put(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    masks = [node for node in a.indices if node is not None and node.meta["val"].dtype in (torch.bool, torch.uint8)]
    if masks:
        return _masked_put(t, a, value)
    pairs = index_tensors(t, a)
    axes = [axis for axis, _ in pairs]
    if is_empty(value) or is_empty(a.values["values"].meta["val"]):
        return t.tensor(a.self)
    dtype = widened(value.dtype) if a.accumulate else value.dtype
    dtype = torch.int8 if dtype is torch.bool else dtype

    def where(shapes: Any, position: Any, tables: Any) -> Any:
        common = broadcast_shape([list(shape) for shape in shapes[2:]])
        first, rest = layout(len(shapes[0]), axes, len(common))
        kept = [shapes[0][axis] for axis in rest]
        if position is None:
            return [*kept[:first], *common, *kept[first:]]
        at = position[first : first + len(common)]
        own = dict(zip(rest, [*position[:first], *position[first + len(common) :]], strict=True))
        for axis, table, shape in zip(axes, tables, shapes[2:], strict=True):
            own[axis] = within(table[_broadcast_flat(at, shape)], shapes[0][axis])
        return _ravel([own[axis] for axis in range(len(shapes[0]))], shapes[0])

    combine = _COMBINE["sum" if a.accumulate else "replace"]
    src = t.tensor(a.values["values"], dtype)
    result = written(t, t.tensor(a.self, dtype), src, [index for _, index in pairs], where, combine, "index_put")
    return t.cast(result, dtype, value.dtype)


def _masked_put(t: Translation, a: Arguments, value: Any) -> Any:
    """x[mask] = v, where v is one value for all places, or one for each of the dimensions after the mask."""
    source = a.values["values"].meta["val"]
    mask = a.indices[0]
    after = value.ndim - mask.meta["val"].ndim if mask is not None else 0
    if len(a.indices) != 1 or mask is None or (source.ndim > after and source.numel() != 1):
        raise ImportFailed(
            "writing several values through a bool mask cannot be compiled; write one value, or use torch.where.",
            step=0,
        )
    flag = t.tensor(mask, torch.bool)
    flag = t.emit(relax.op.reshape(flag, relax.ShapeExpr([*t.dims(mask), *[1] * after])))
    new = t.tensor(a.values["values"], value.dtype)
    if source.numel() == 1:
        new = t.emit(relax.op.reshape(new, relax.ShapeExpr([])))
    old = t.tensor(a.self)
    if a.accumulate:
        new = t.emit(relax.op.add(old, new))
    return broadcast_to(t, t.emit(relax.op.where(flag, new, old)), value)


def _slice_scatter(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    axis, start, step = slice_bounds(t, a, value)
    length = t.dim(a.src.meta["val"].shape[axis])
    if is_empty(a.src.meta["val"]) or is_empty(value):
        return t.tensor(a.self)

    def compute(base: Any, new: Any, bounds: Any) -> Any:
        first, count = bounds

        def choose(*i: Any) -> Any:
            offset = i[axis] - first
            inside = tirx.all(offset >= 0, tirx.floormod(offset, step) == 0, tirx.floordiv(offset, step) < count)
            place = [tirx.floordiv(offset, step) if at == axis else each for at, each in enumerate(i)]
            return tirx.if_then_else(inside, new(*place), base(*i))

        return te.compute(base.shape, choose, name="slice_scatter")

    bounds = relax.ShapeExpr([tirx.const(each, "int64") if isinstance(each, int) else each for each in (start, length)])
    return t.te(compute, t.tensor(a.self), t.tensor(a.src, value.dtype), bounds, name="slice_scatter")


def _select_scatter(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    axis = a.dim % value.ndim
    chosen = t.dim(a.index)
    size = t.dim(value.shape[axis])
    if isinstance(chosen, int) and chosen < 0:
        chosen = chosen + size
    bounds = relax.ShapeExpr([tirx.const(chosen, "int64") if isinstance(chosen, int) else chosen])

    def compute(base: Any, new: Any, where: Any) -> Any:
        def choose(*i: Any) -> Any:
            rest = [each for at, each in enumerate(i) if at != axis]
            return tirx.if_then_else(i[axis] == where[0], new(*rest), base(*i))

        return te.compute(base.shape, choose, name="select_scatter")

    return t.te(compute, t.tensor(a.self), t.tensor(a.src, value.dtype), bounds, name="select_scatter")


def _diagonal_scatter(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    first, second = a.dim1 % value.ndim, a.dim2 % value.ndim
    rows, columns = max(-a.offset, 0), max(a.offset, 0)

    def compute(base: Any, new: Any) -> Any:
        def choose(*i: Any) -> Any:
            k = i[first] - rows
            inside = tirx.all(k >= 0, i[second] - columns == k, k < new.shape[-1])
            rest = [each for at, each in enumerate(i) if at not in (first, second)]
            return tirx.if_then_else(inside, new(*rest, k), base(*i))

        return te.compute(base.shape, choose, name="diagonal_scatter")

    return t.te(compute, t.tensor(a.self), t.tensor(a.src, value.dtype), name="diagonal_scatter")


CONVERTERS: dict[str, Converter] = {
    "aten.scatter.src": lambda t, a: _scatter(t, a, "replace", a.src),
    "aten.scatter.value": lambda t, a: _scatter(t, a, "replace", a.values["value"]),
    "aten.scatter.reduce": lambda t, a: _scatter(t, a, a.reduce, a.src),
    "aten.scatter.value_reduce": lambda t, a: _scatter(t, a, a.reduce, a.values["value"]),
    "aten.scatter_add.default": lambda t, a: _scatter(t, a, "sum", a.src),
    "aten.scatter_reduce.two": _scatter_reduce,
    "aten.index_add.default": lambda t, a: _index_write(t, a, "sum", a.source),
    "aten.index_copy.default": lambda t, a: _index_write(t, a, "replace", a.source),
    "aten.index_put.default": _index_put,
    "aten._unsafe_index_put.default": _index_put,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select_scatter.default": _select_scatter,
    "aten.diagonal_scatter.default": _diagonal_scatter,
}


def _index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> torch.Tensor:
    """By index_put, which takes negative indices as eager's index_fill does; PyTorch makes index_copy of it."""
    filler = value.to(x.dtype) if isinstance(value, torch.Tensor) else x.new_full((), value)
    where = [None] * (dim % x.ndim) + [index]
    written: torch.Tensor = torch.ops.aten.index_put(x, where, filler)
    return written


def _identity(reduce: str, dtype: torch.dtype) -> Any:
    """What a reduction starts from where the old element does not count."""
    if reduce in ("sum", "mean", "prod"):
        return 1 if reduce == "prod" else 0
    if dtype.is_floating_point:
        return -float("inf") if reduce == "amax" else float("inf")
    limits = torch.iinfo(dtype)
    return limits.min if reduce == "amax" else limits.max


def _scatter_reduce_of_new(
    x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Means, and reductions that leave out the old elements, by those that do not."""
    if x.ndim == 0 or x.dtype is torch.bool or (include_self and reduce != "mean"):
        return NotImplemented
    count = torch.zeros_like(x, dtype=torch.int64).scatter_add(dim, index, torch.ones_like(index))
    if not include_self:
        x = torch.where(count > 0, torch.full_like(x, _identity(reduce, x.dtype)), x)
    total = x.scatter_reduce(dim, index, src, "sum" if reduce == "mean" else reduce)
    if reduce != "mean":
        return total
    number = (count + int(include_self)).clamp(min=1)
    return torch.div(total, number.to(x.dtype), rounding_mode=None if x.dtype.is_floating_point else "floor")


DECOMPOSITIONS = {
    "aten.scatter_reduce.two": _scatter_reduce_of_new,
    "aten.index_fill.int_Scalar": _index_fill,
    "aten.index_fill.int_Tensor": _index_fill,
}

# PyTorch's decompositions make index_put of these, which takes the negative indices that eager refuses here.
KEPT = ("aten.index_add.default", "aten.index_copy.default")
