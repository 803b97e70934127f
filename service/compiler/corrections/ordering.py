"""Running sums, products and extremes; sorting and the largest elements.

TVM's cumsum and cumprod keep the dtype of small integers; its sort calls a C++ comparison that NaN makes undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from service.compiler.corrections.creation import is_empty
from service.compiler.corrections.indexing import zeros_like
from service.compiler.extrema import is_float
from service.compiler.promotion import widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed


def _product(sizes: Any) -> Any:
    total: Any = tirx.const(1, "int64")
    for size in sizes:
        total = total * size
    return total


def _running(combine: Callable[[Any, Any], Any], name: str) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        value, target = a.self.meta["val"], a.result.dtype
        if value.ndim == 0 or is_empty(value):
            return t.cast(t.tensor(a.self), value.dtype, target)
        dtype = widened(target)
        # Eager accumulates float32 in float64.
        wide = torch.float64 if dtype is torch.float32 else dtype
        axis = a.dim % value.ndim

        def kernel(ins: Any, outs: Any) -> Any:
            shape = ins[0].shape
            before, length, after = _product(shape[:axis]), shape[axis], _product(shape[axis + 1 :])
            ib = IRBuilder()
            with ib, T.seq_scope():
                x, out = T.buffer_proxy(ins[0]), T.buffer_proxy(outs[0])
                with T.serial(0, before) as i, T.serial(0, length) as k, T.serial(0, after) as j:
                    here = (i * length + k) * after + j
                    with T.If(k == 0):
                        with T.Then():
                            out[here] = x[here]
                        with T.Else():
                            out[here] = combine(out[here - after], x[here])
            return ib.get()

        def compute(x: Any) -> Any:
            return te.extern([x.shape], [x], kernel, dtype=[x.dtype], name=name)

        result = t.te(compute, t.tensor(a.self, wide), name=name)
        return t.cast(result, wide, target)

    return convert


def _running_extreme(largest: bool) -> Converter:
    """Values and int64 indices: the last of equals, NaN once there is one."""

    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        if value.ndim == 0:
            return [t.tensor(a.self), t.tensor(0, torch.int64)]
        if is_empty(value):
            return [zeros_like(t, each) for each in a.result]
        dtype = torch.int8 if value.dtype is torch.bool else widened(value.dtype)
        axis = a.dim % value.ndim

        def takes(new: Any, old: Any) -> Any:
            better = new >= old if largest else new <= old
            return tirx.Or(better, tirx.isnan(new)) if is_float(new) else better

        def kernel(ins: Any, outs: Any) -> Any:
            shape = ins[0].shape
            before, length, after = _product(shape[:axis]), shape[axis], _product(shape[axis + 1 :])
            ib = IRBuilder()
            with ib, T.seq_scope():
                x, best, index = (T.buffer_proxy(each) for each in (ins[0], outs[0], outs[1]))
                with T.serial(0, before) as i, T.serial(0, length) as k, T.serial(0, after) as j:
                    here = (i * length + k) * after + j
                    with T.If(k == 0):
                        with T.Then():
                            best[here] = x[here]
                            index[here] = tirx.const(0, "int64")
                        with T.Else():
                            newer = takes(x[here], best[here - after])
                            index[here] = tirx.Select(newer, tirx.Cast("int64", k), index[here - after])
                            best[here] = tirx.Select(newer, x[here], best[here - after])
            return ib.get()

        def compute(x: Any) -> Any:
            return te.extern([x.shape, x.shape], [x], kernel, dtype=[x.dtype, "int64"], name="running_extreme")

        pair = t.te(compute, t.tensor(a.self, dtype), name="cummax" if largest else "cummin")
        return [t.cast(t.item(pair, 0), dtype, value.dtype), t.item(pair, 1)]

    return convert


def _merge_kernel(descending: bool) -> Callable[[Any, Any], Any]:
    """Sorts each row of (rows, length): the indices in order, by merging runs of doubled width; NaN is the largest."""

    def before(x: Any, y: Any) -> Any:
        """Whether y must come before x, which stands first."""
        ordered = y > x if descending else y < x
        if not is_float(x):
            return ordered
        if descending:
            return tirx.Select(tirx.isnan(x), tirx.const(False, "bool"), tirx.Or(tirx.isnan(y), ordered))
        return tirx.Select(tirx.isnan(y), tirx.const(False, "bool"), tirx.Or(tirx.isnan(x), ordered))

    def kernel(ins: Any, outs: Any) -> Any:
        rows, length = ins[0].shape
        zero = tirx.const(0, "int64")
        ib = IRBuilder()
        with ib, T.seq_scope():
            x, order, scratch = (T.buffer_proxy(each) for each in (ins[0], outs[0], outs[1]))
            state = T.buffer_proxy(T.alloc_buffer((3,), "int64", scope="local"))
            with T.serial(0, rows) as row:
                base = row * length
                with T.serial(0, length) as k:
                    order[base + k] = tirx.Cast("int64", k)
                state[2] = tirx.const(1, "int64")
                with T.While(state[2] < length):
                    width = state[2]
                    with T.serial(0, tirx.floordiv(length + 2 * width - 1, 2 * width)) as run:
                        first = run * 2 * width
                        middle = tirx.min(first + width, length)
                        last = tirx.min(first + 2 * width, length)
                        state[0] = first + zero
                        state[1] = middle + zero
                        with T.serial(0, last - first) as k:
                            right = tirx.Select(
                                state[0] >= middle,
                                tirx.const(True, "bool"),
                                tirx.Select(
                                    state[1] >= last,
                                    tirx.const(False, "bool"),
                                    before(
                                        x[base + order[base + tirx.min(state[0], length - 1)]],
                                        x[base + order[base + tirx.min(state[1], length - 1)]],
                                    ),
                                ),
                            )
                            with T.If(right):
                                with T.Then():
                                    scratch[base + first + k] = order[base + state[1]]
                                    state[1] = state[1] + 1
                                with T.Else():
                                    scratch[base + first + k] = order[base + state[0]]
                                    state[0] = state[0] + 1
                    with T.serial(0, length) as k:
                        order[base + k] = scratch[base + k]
                    state[2] = width * 2
        return ib.get()

    return kernel


def ordered(t: Translation, node: Any, axis: int, descending: bool) -> tuple[Any, Any, list[Any]]:
    """Values and indices, int64, of a node sorted along `axis`, which is moved to the end; and their shape."""
    value = node.meta["val"]
    dtype = torch.int8 if value.dtype is torch.bool else widened(value.dtype)
    order = [at for at in range(value.ndim) if at != axis] + [axis]
    dims = [t.dim(value.shape[at]) for at in order]
    length = dims[-1]
    rows: Any = 1
    for size in dims[:-1]:
        rows = rows * size
    x = t.emit(relax.op.permute_dims(t.tensor(node, dtype), order))
    flat = t.emit(relax.op.reshape(x, relax.ShapeExpr([rows, length])))

    def compute(data: Any) -> Any:
        kernel = _merge_kernel(descending)
        return te.extern([data.shape, data.shape], [data], kernel, dtype=["int64", "int64"], name="sorted")

    indices = t.item(t.te(compute, flat, name="sort"), 0)

    def pick(data: Any, index: Any) -> Any:
        return te.compute(data.shape, lambda i, k: data(i, tirx.max(tirx.min(index(i, k), length_of(data) - 1), 0)))

    def length_of(data: Any) -> Any:
        return data.shape[1]

    values = t.te(pick, flat, indices, name="sorted_values")
    return t.cast(values, dtype, value.dtype), indices, dims


def _placed(t: Translation, expr: Any, dims: list[Any], axis: int, count: Any = None) -> Any:
    """Rows as `ordered` gives them back in the shape and the place that they came from; the first `count` of each."""
    if count is not None:
        expr = t.emit(relax.op.strided_slice(expr, [1], [0], [count], assume_inbound=True))
        dims = [*dims[:-1], count]
    shaped = t.emit(relax.op.reshape(expr, relax.ShapeExpr(dims)))
    back = list(range(len(dims) - 1))
    back.insert(axis, len(dims) - 1)
    return t.emit(relax.op.permute_dims(shaped, back))


def _sort(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    if value.ndim == 0:
        return [t.tensor(a.self), t.tensor(0, torch.int64)]
    if is_empty(value):
        return [zeros_like(t, each) for each in a.result]
    axis = a.dim % value.ndim
    values, indices, dims = ordered(t, a.self, axis, bool(a.descending))
    return [_placed(t, each, dims, axis) for each in (values, indices)]


def _argsort(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    if value.ndim == 0 or is_empty(value):
        return zeros_like(t, a.result)
    axis = a.dim % value.ndim
    _, indices, dims = ordered(t, a.self, axis, bool(a.descending))
    return _placed(t, indices, dims, axis)


def _topk(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    if value.ndim == 0:
        return [t.tensor(a.self), t.tensor(0, torch.int64)]
    if any(is_empty(each) for each in a.result):
        return [zeros_like(t, each) for each in a.result]
    axis = a.dim % value.ndim
    if not isinstance(a.k, int):
        raise ImportFailed("topk is compiled for a fixed k.", step=0)
    values, indices, dims = ordered(t, a.self, axis, bool(a.largest))
    return [_placed(t, each, dims, axis, a.k) for each in (values, indices)]


CONVERTERS: dict[str, Converter] = {
    "aten.cumsum.default": _running(lambda x, y: x + y, "cumsum"),
    "aten.cumprod.default": _running(lambda x, y: x * y, "cumprod"),
    "aten.cummax.default": _running_extreme(largest=True),
    "aten.cummin.default": _running_extreme(largest=False),
    "aten.sort.default": _sort,
    "aten.sort.stable": _sort,
    "aten.argsort.default": _argsort,
    "aten.argsort.stable": _argsort,
    "aten.topk.default": _topk,
}


def _picked(values: torch.Tensor, indices: torch.Tensor, dim: int, keepdim: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A slice of one element along `dim` of both, without that dimension unless it is kept."""
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _kth_value(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, stable=True, dim=dim)
    return _picked(values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1), dim, keepdim)


def _median_along(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower of two medians; NaN and the place of the first where there is one."""
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    value, index = _kth_value(x, (x.shape[dim] + 1) // 2, dim, keepdim=True)
    if x.is_floating_point():
        nan = torch.isnan(x)
        some = nan.any(dim, keepdim=True)
        index = torch.where(some, nan.to(torch.int32).argmax(dim, keepdim=True), index)
        value = torch.where(some, torch.full_like(value, math.nan), value)
    return _picked(value, index, dim, keepdim)


def _median_of_numbers(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """As `_median_along`, of what is not NaN."""
    if x.ndim == 0 or not x.is_floating_point():
        return _median_along(x, dim, keepdim)
    values, indices = torch.sort(x, stable=True, dim=dim)
    count = (~torch.isnan(x)).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    return _picked(values.gather(dim, middle), indices.gather(dim, middle), dim, keepdim)


def _whole(along: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: along(x.reshape(-1), 0)[0]


DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "aten.kthvalue.default": _kth_value,
    "aten.median.dim": _median_along,
    "aten.median.default": _whole(_median_along),
    "aten.nanmedian.dim": _median_of_numbers,
    "aten.nanmedian.default": _whole(_median_of_numbers),
}


def _largest(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, stable=True, dim=dim, descending=largest)
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)


def _sorted(
    x: torch.Tensor, dim: int = -1, descending: bool = False, **_: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = torch.sort(x, stable=True, dim=dim, descending=descending)
    return values, indices


# PyTorch leaves open which of equal elements these name; in this way it is the first, as in the compiled library.
FIRST_OF_EQUALS: dict[str, Callable[..., Any]] = DECOMPOSITIONS | {
    "aten.topk.default": _largest,
    **{f"aten.sort.{overload}": _sorted for overload in ("default", "stable")},
    **{
        f"aten.argsort.{overload}": lambda x, *args, **options: _sorted(x, *args, **options)[1]
        for overload in ("default", "stable")
    },
}
