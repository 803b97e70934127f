"""Reductions over one, several or all dimensions.

TVM's reductions keep the input's dtype, so that small integers and bools overflow where PyTorch accumulates in int64;
`relax.max`, `relax.min`, argmax and argmin lose NaN; `any` and `prod` of bools reach LLVM as bool arithmetic; sums in
float32 stop growing at 2**24; `var` ignores its correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tvm import relax, te, tirx

from service.compiler.extrema import is_float, maximum, minimum
from service.compiler.pointwise import pointwise
from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name
from service.errors import ImportFailed

# Beyond so many terms, or where their number is a symbol, sums of float32 are accumulated in float64.
PLAIN_TERMS = 1 << 14


def axes_of(rank: int, dims: Any) -> list[int]:
    """The dimensions that `dims` names, sorted: None and an empty list mean all."""
    if dims is None or dims == []:
        return list(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return sorted(axis % rank for axis in listed) if rank else []


def reduced(
    t: Translation,
    x: Any,
    axes: list[int],
    keep: bool,
    fold: Callable[..., Any],
    name: str,
    term: Any = None,
    of_nothing: Any = None,
) -> Any:
    """`fold`, such as te.sum, over `axes` of the tensor `x`, whose elements go through `term` first.

    `of_nothing` is the result over an axis of size 0, in the dtype of `x`: TensorIR initialises a reduction inside its
    loops, so that with no iteration it would be left unwritten. Raises ImportFailed where it is None.
    """
    sizes = list(x.ty.shape)
    if any(isinstance(sizes[axis], int | tirx.IntImm) and int(sizes[axis]) == 0 for axis in axes):
        if of_nothing is None:
            raise ImportFailed("a reduction over an axis of size 0 is not compiled", step=0)
        return _filled(t, x, axes, keep, of_nothing)

    def compute(source: Any) -> Any:
        reduce_axes = {axis: te.reduce_axis((0, source.shape[axis]), name=f"k{axis}") for axis in axes}
        if keep:
            shape = [1 if axis in reduce_axes else size for axis, size in enumerate(source.shape)]
        else:
            shape = [size for axis, size in enumerate(source.shape) if axis not in reduce_axes]

        def body(*i: Any) -> Any:
            own = iter(i)
            index = []
            for axis in range(len(source.shape)):
                at = next(own) if keep or axis not in reduce_axes else None
                index.append(reduce_axes.get(axis, at))
            element = source(*index)
            element = element if term is None else term(element)
            return fold(element, axis=list(reduce_axes.values())) if reduce_axes else element

        return te.compute(shape, body, name=name)

    return t.te(compute, x, name=name)


def _filled(t: Translation, x: Any, axes: list[int], keep: bool, value: Any) -> Any:
    """A result of `reduced` that is `value` everywhere."""
    kept = [1 if axis in axes else size for axis, size in enumerate(x.ty.shape) if keep or axis not in axes]
    dtype: torch.dtype = getattr(torch, str(x.ty.dtype))
    return t.emit(relax.op.full(relax.ShapeExpr(kept), t.tensor(value, dtype), str(x.ty.dtype)))


def _terms(value: Any, axes: list[int]) -> int | None:
    sizes = [value.shape[axis] for axis in axes]
    return math.prod(sizes) if all(isinstance(size, int) for size in sizes) else None


def _accumulator(dtype: torch.dtype, terms: int | None) -> torch.dtype:
    dtype = widened(dtype)
    if dtype is torch.float32 and (terms is None or terms > PLAIN_TERMS):
        return torch.float64
    return dtype


def sum_over(
    t: Translation, x: Any, value: Any, axes: list[int], keep: bool, source: torch.dtype, target: torch.dtype
) -> Any:
    """The sum of `x`, a tensor like `value` of dtype `source`, in `target`."""
    dtype = _accumulator(target, _terms(value, axes))
    if not axes:
        return t.cast(x, source, target)
    if _terms(value, axes) == 0:
        return t.cast(_filled(t, x, axes, keep, 0), source, target)
    if dtype is torch.float32:
        total = t.emit(relax.op.sum(t.cast(x, source, dtype), axes, keep))
        return t.cast(total, dtype, target)
    name = dtype_name(dtype)
    converted = t.cast(x, source, torch.int8) if source is torch.bool else x
    total = reduced(t, converted, axes, keep, te.sum, "sum", lambda each: tirx.Cast(name, each))
    return t.cast(total, dtype, target)


def _sum(t: Translation, a: Arguments) -> Any:
    value = a.self.meta["val"]
    axes = axes_of(value.ndim, a.values.get("dim"))
    source, target = value.dtype, a.result.dtype
    if target is torch.bool:
        return _any(t, a)
    return sum_over(t, t.tensor(a.self), value, axes, a.values.get("keepdim", False), source, target)


def count(t: Translation, value: Any, axes: list[int]) -> Any:
    """How many elements are reduced, as a float64 () tensor."""
    size: Any = 1
    for axis in axes:
        size = size * t.dim(value.shape[axis])
    if isinstance(size, int):
        return t.tensor(float(size), torch.float64)
    from service.compiler.corrections.creation import full_of_size

    return full_of_size(t, size, torch.float64)


def _mean(t: Translation, a: Arguments) -> Any:
    value, target = a.self.meta["val"], a.result.dtype
    axes = axes_of(value.ndim, a.values.get("dim"))
    keep = a.values.get("keepdim", False)
    dtype = _accumulator(target, _terms(value, axes))
    if dtype is torch.float32 and axes and _terms(value, axes):
        return narrowed(t, a, relax.op.mean(t.tensor(a.self, dtype), axes, keep), dtype)
    return mean_over(t, t.tensor(a.self), value, axes, keep, a.result)


def mean_over(t: Translation, x: Any, value: Any, axes: list[int], keep: bool, result: Any) -> Any:
    """The mean of `x`, a tensor like `value`, in the dtype of `result`; it is summed in float64."""
    total = sum_over(t, x, value, axes, keep, value.dtype, torch.float64)
    return t.cast(t.emit(relax.op.divide(total, count(t, value, axes))), torch.float64, result.dtype)


def moments(t: Translation, x: Any, value: Any, axes: list[int], correction: float) -> tuple[Any, Any]:
    """Mean and variance of `x`, a float32 or float64 tensor like `value`, with dimensions kept, as float64."""
    total = sum_over(t, x, value, axes, True, widened(value.dtype), torch.float64)
    number = count(t, value, axes)
    mean = t.emit(relax.op.divide(total, number))
    wide = t.cast(x, widened(value.dtype), torch.float64)
    deviation = t.emit(relax.op.subtract(wide, mean))
    square = t.emit(relax.op.multiply(deviation, deviation))
    squares = sum_over(t, square, value, axes, True, torch.float64, torch.float64)
    divisor = t.emit(relax.op.subtract(number, t.tensor(float(correction), torch.float64)))
    divisor = t.emit(relax.op.maximum(divisor, t.tensor(0.0, torch.float64)))
    return mean, t.emit(relax.op.divide(squares, divisor))


def _statistics(t: Translation, a: Arguments) -> tuple[Any, Any, torch.dtype]:
    value = a.self.meta["val"]
    axes = axes_of(value.ndim, a.values.get("dim"))
    correction = a.values.get("correction")
    unbiased = a.values.get("unbiased", True)
    correction = float(unbiased) if correction is None else float(correction)
    x = t.tensor(a.self, widened(value.dtype))
    mean, variance = moments(t, x, value, axes, correction)
    if not a.values.get("keepdim", False) and axes:
        mean, variance = (t.emit(relax.op.squeeze(each, axes)) for each in (mean, variance))
    return mean, variance, value.dtype


def _variance(t: Translation, a: Arguments) -> Any:
    _, variance, dtype = _statistics(t, a)
    return t.cast(variance, torch.float64, dtype)


def _deviation(t: Translation, a: Arguments) -> Any:
    _, variance, dtype = _statistics(t, a)
    return t.cast(t.emit(relax.op.sqrt(variance)), torch.float64, dtype)


def _variance_and_mean(t: Translation, a: Arguments) -> Any:
    mean, variance, dtype = _statistics(t, a)
    return [t.cast(each, torch.float64, dtype) for each in (variance, mean)]


def _deviation_and_mean(t: Translation, a: Arguments) -> Any:
    mean, variance, dtype = _statistics(t, a)
    return [t.cast(each, torch.float64, dtype) for each in (t.emit(relax.op.sqrt(variance)), mean)]


def _product(t: Translation, a: Arguments) -> Any:
    value, target = a.self.meta["val"], a.result.dtype
    axes = axes_of(value.ndim, a.values.get("dim"))
    keep = a.values.get("keepdim", False)
    if target is torch.bool:
        return _truth(t, t.tensor(a.self, torch.bool), axes, keep, every=True)
    dtype = _accumulator(target, _terms(value, axes))
    fold = te.comm_reducer(lambda x, y: x * y, lambda name: tirx.const(1, name), name="product")
    return narrowed(t, a, reduced(t, t.tensor(a.self, dtype), axes, keep, fold, "prod", of_nothing=1), dtype)


def lowest(dtype: str) -> Any:
    """What every number of the dtype is at least."""
    return -tirx.infinity(dtype) if "float" in dtype else tirx.min_value(dtype)


def _highest(dtype: str) -> Any:
    return tirx.infinity(dtype) if "float" in dtype else tirx.max_value(dtype)


def _extremum_fold(largest: bool) -> Callable[..., Any]:
    choose, identity = (maximum, lowest) if largest else (minimum, _highest)
    fold: Callable[..., Any] = te.comm_reducer(choose, lambda name: identity(str(name)), name="extremum")
    return fold


def extremum(t: Translation, x: Any, axes: list[int], keep: bool, largest: bool) -> Any:
    """The largest or the smallest elements; NaN where there is one."""
    return reduced(t, x, axes, keep, _extremum_fold(largest), "amax" if largest else "amin")


def _extremum(largest: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        axes = axes_of(value.ndim, a.values.get("dim"))
        keep = a.values.get("keepdim", False)
        if value.dtype is torch.bool:
            return _truth(t, t.tensor(a.self), axes, keep, every=not largest)
        dtype = widened(value.dtype)
        return narrowed(t, a, extremum(t, t.tensor(a.self, dtype), axes, keep, largest), dtype)

    return convert


def arg_extremum(t: Translation, x: Any, axis: int, largest: bool) -> list[Any]:
    """Indices, int64, and values along `axis`, which is kept: the first of equals, a NaN before everything."""

    def better(v: Any, w: Any) -> Any:
        strictly = v > w if largest else v < w
        return tirx.Or(strictly, tirx.isnan(v)) if is_float(v) else strictly

    def combine(left: Any, right: Any) -> Any:
        same = (
            tirx.Or(left[1] == right[1], tirx.And(tirx.isnan(left[1]), tirx.isnan(right[1])))
            if is_float(left[1])
            else left[1] == right[1]
        )
        take_left = tirx.Or(
            tirx.And(same, left[0] < right[0]),
            tirx.And(better(left[1], right[1]), tirx.Or(_not_nan(right[1]), left[0] < right[0])),
        )
        return tirx.Select(take_left, left[0], right[0]), tirx.Select(take_left, left[1], right[1])

    def identity(index: str, value: str) -> Any:
        worst = lowest(str(value)) if largest else _highest(str(value))
        return tirx.max_value(str(index)), worst

    def compute(source: Any) -> Any:
        k = te.reduce_axis((0, source.shape[axis]), name="k")
        shape = [1 if at == axis else size for at, size in enumerate(source.shape)]
        fold = te.comm_reducer(combine, identity, name="arg_extremum")

        def body(*i: Any) -> Any:
            index = [k.var if at == axis else each for at, each in enumerate(i)]
            return fold((tirx.Cast("int64", k.var), source(*index)), axis=k)

        return te.compute(shape, body, name="arg_extremum")

    return list(_unpacked(t, t.te(compute, x, name="argmax" if largest else "argmin")))


def _not_nan(x: Any) -> Any:
    return (
        tirx.Select(tirx.isnan(x), tirx.const(False, "bool"), tirx.const(True, "bool"))
        if is_float(x)
        else tirx.const(True, "bool")
    )


def _unpacked(t: Translation, pair: Any) -> tuple[Any, Any]:
    return t.emit(relax.TupleGetItem(pair, 0)), t.emit(relax.TupleGetItem(pair, 1))


def _index_of_extremum(largest: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        dtype = torch.int8 if value.dtype is torch.bool else widened(value.dtype)
        x = t.tensor(a.self, dtype)
        if a.dim is None or value.ndim == 0:
            size: Any = 1
            for each in t.dims(value):
                size = size * each
            x = t.emit(relax.op.reshape(x, relax.ShapeExpr([size])))
            index = arg_extremum(t, x, 0, largest)[0]
        else:
            index = arg_extremum(t, x, a.dim % value.ndim, largest)[0]
        return t.emit(relax.op.reshape(index, t.shape(a.result)))

    return convert


def _with_indices(largest: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        value = a.self.meta["val"]
        dtype = torch.int8 if value.dtype is torch.bool else widened(value.dtype)
        x = t.tensor(a.self, dtype)
        if value.ndim == 0:
            return [t.tensor(a.self), t.tensor(0, torch.int64)]
        index, best = arg_extremum(t, x, a.dim % value.ndim, largest)
        shaped = [
            t.emit(relax.op.reshape(each, t.shape(part))) for each, part in zip((best, index), a.result, strict=True)
        ]
        return [t.cast(shaped[0], dtype, value.dtype), shaped[1]]

    return convert


def _truth(t: Translation, x: Any, axes: list[int], keep: bool, every: bool) -> Any:
    join = (lambda x, y: tirx.And(x, y)) if every else (lambda x, y: tirx.Or(x, y))  # noqa: PLW0108 - needs its code
    fold = te.comm_reducer(join, lambda name: tirx.const(every, "bool"), name="truth")
    return reduced(t, x, axes, keep, fold, "all" if every else "any", of_nothing=every)


def all_true(t: Translation, x: Any) -> Any:
    """Whether all elements of a bool tensor are True, as a () tensor."""
    return _truth(t, x, list(range(len(x.ty.shape))), False, every=True)


def _any(t: Translation, a: Arguments) -> Any:
    return _all_or_any(False)(t, a)


def _all_or_any(every: bool) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        axes = axes_of(a.self.meta["val"].ndim, a.values.get("dim"))
        truth = _truth(t, t.tensor(a.self, torch.bool), axes, a.values.get("keepdim", False), every)
        return t.cast(truth, torch.bool, a.result.dtype)

    return convert


def _norm(t: Translation, a: Arguments) -> Any:
    """The p-norm, accumulated in float64; of infinite order, the largest or smallest magnitude."""
    value, target = a.self.meta["val"], a.result.dtype
    axes, order = axes_of(value.ndim, a.dim), float(a.ord)
    x = t.emit(relax.op.abs(t.tensor(a.self, torch.float64)))
    if math.isinf(order):
        if not axes:
            return t.cast(x, torch.float64, target)
        return t.cast(extremum(t, x, axes, a.keepdim, order > 0), torch.float64, target)
    if order == 0:
        x = t.cast(t.cast(x, torch.float64, torch.bool), torch.bool, torch.float64)
    elif order != 1:
        x = pointwise(t, lambda v: tirx.pow(v, tirx.const(order, "float64")), x, name="power")
    total = sum_over(t, x, value, axes, a.keepdim, torch.float64, torch.float64)
    if order not in (0, 1):
        total = pointwise(t, lambda v: tirx.pow(v, tirx.const(1 / order, "float64")), total, name="root")
    return t.cast(total, torch.float64, target)


CONVERTERS: dict[str, Converter] = {
    "aten.sum.default": _sum,
    "aten.sum.dim_IntList": _sum,
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
    "aten.linalg_vector_norm.default": _norm,
    "aten.var.correction": _variance,
    "aten.var.dim": _variance,
    "aten.var.default": _variance,
    "aten.std.correction": _deviation,
    "aten.std.dim": _deviation,
    "aten.std.default": _deviation,
    "aten.var_mean.correction": _variance_and_mean,
    "aten.std_mean.correction": _deviation_and_mean,
    "aten.prod.default": _product,
    "aten.prod.dim_int": _product,
    "aten.amax.default": _extremum(largest=True),
    "aten.amin.default": _extremum(largest=False),
    "aten.max.default": _extremum(largest=True),
    "aten.min.default": _extremum(largest=False),
    "aten.max.dim": _with_indices(largest=True),
    "aten.min.dim": _with_indices(largest=False),
    "aten.argmax.default": _index_of_extremum(largest=True),
    "aten.argmin.default": _index_of_extremum(largest=False),
    **{
        f"aten.{name}.{overload}": _all_or_any(name == "all")
        for name in ("all", "any")
        for overload in ("default", "dim", "dims")
    },
}
