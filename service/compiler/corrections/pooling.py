"""Pooling in one, two and three dimensions: windows over the last dimensions of a tensor.

TVM's max pools lose NaN and have no indices, its average pools ignore divisor_override and count the padding of
ceil_mode wrongly, and adaptive max pools are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from service.compiler.corrections.creation import is_empty
from service.compiler.corrections.indexing import zeros_like
from service.compiler.corrections.reductions import extremum, lowest, mean_over
from service.compiler.extrema import is_float, maximum
from service.compiler.pointwise import dtype_of
from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation, dtype_name
from service.errors import ImportFailed


@dataclass(frozen=True)
class Windows:
    """One window for each place of the result: along each spatial axis, from `start(i)`, every `step`-th of `extent`
    elements, those before `end(i)`."""

    extents: tuple[int, ...]
    steps: tuple[int, ...]
    start: Callable[[int, Any], Any]
    end: Callable[[int, Any, Any], Any]
    sizes: tuple[Any, ...]

    def places(self, i: Sequence[Any], k: Sequence[Any]) -> tuple[list[Any], Any]:
        """Where the elements `k` of the windows at `i` stand, and whether they are elements of the input."""
        rank = len(self.extents)
        at = [self.start(axis, i[axis]) + k[axis] * self.steps[axis] for axis in range(rank)]
        inside = [
            tirx.And(place >= 0, place < self.end(axis, i[axis], self.sizes[axis])) for axis, place in enumerate(at)
        ]
        return at, tirx.all(*inside)


def _every(amounts: Any, rank: int) -> list[int]:
    listed = [amounts] if isinstance(amounts, int) else list(amounts)
    return listed * rank if len(listed) == 1 else listed


def _sliding(a: Arguments, rank: int, sizes: tuple[Any, ...]) -> Windows:
    kernel = _every(a.kernel_size, rank)
    stride = _every(a.stride, rank) if a.values.get("stride") else kernel
    padding = _every(a.padding, rank)
    dilation = _every(a.values.get("dilation", 1), rank)
    return Windows(
        tuple(kernel),
        tuple(dilation),
        lambda axis, i: i * stride[axis] - padding[axis],
        lambda axis, i, size: size,
        sizes,
    )


def _adaptive(value: Any, result: Any, rank: int, sizes: tuple[Any, ...]) -> Windows:
    inputs, outputs = value.shape[-rank:], result.shape[-rank:]
    if any(not isinstance(size, int) for size in (*inputs, *outputs)):
        raise ImportFailed("adaptive pooling is compiled for inputs of fixed size.", step=0)
    extents = tuple(
        max((math.ceil((i + 1) * h / o) - (i * h) // o for i in range(o)), default=0)
        for h, o in zip(inputs, outputs, strict=True)
    )
    return Windows(
        extents,
        (1,) * rank,
        lambda axis, i: tirx.floordiv(i * inputs[axis], outputs[axis]),
        lambda axis, i, size: tirx.floordiv((i + 1) * inputs[axis] + outputs[axis] - 1, outputs[axis]),
        sizes,
    )


Make = Callable[[tuple[Any, ...]], Windows]


def _max_values(t: Translation, x: Any, shape: Any, rank: int, make: Make) -> Any:
    def compute(data: Any, out: Any) -> Any:
        windows = make(tuple(data.shape[-rank:]))
        axes = [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(windows.extents)]
        fold = te.comm_reducer(maximum, lambda name: lowest(str(name)), name="largest")

        def body(*i: Any) -> Any:
            at, inside = windows.places(i[-rank:], axes)
            element = data(*i[:-rank], *at)
            return fold(tirx.if_then_else(inside, element, lowest(dtype_of(element))), axis=axes)

        return te.compute(out, body, name="max_pool")

    return t.te(compute, x, shape, name="max_pool")


def _max_with_indices(t: Translation, x: Any, shape: Any, rank: int, make: Make) -> Any:
    """Values, and the positions of the largest elements, the first of equals and the last of NaNs, as eager."""

    def combine(left: Any, right: Any) -> Any:
        if is_float(right[1]):
            left_nan, right_nan = tirx.isnan(left[1]), tirx.isnan(right[1])
            either = tirx.Select(left_nan, tirx.Select(right_nan, left[0] > right[0], left_nan), left[1] > right[1])
            either = tirx.Select(
                tirx.And(right_nan, tirx.Or(left[1] <= left[1], left_nan)),
                tirx.And(left_nan, left[0] > right[0]),
                either,
            )
            same = tirx.And(left[1] <= right[1], left[1] >= right[1])
        else:
            either, same = left[1] > right[1], left[1] == right[1]
        chosen = tirx.Or(either, tirx.And(same, left[0] < right[0]))
        return tirx.Select(chosen, left[0], right[0]), tirx.Select(chosen, left[1], right[1])

    def compute(data: Any, out: Any) -> Any:
        windows = make(tuple(data.shape[-rank:]))
        axes = [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(windows.extents)]
        identity: Any = lambda index, value: (tirx.max_value("int64"), lowest(str(value)))  # noqa: E731
        fold = te.comm_reducer(combine, identity, name="largest")

        def body(*i: Any) -> Any:
            at, inside = windows.places(i[-rank:], axes)
            element = data(*i[:-rank], *at)
            flat: Any = tirx.const(0, "int64")
            for place, size in zip(at, data.shape[-rank:], strict=True):
                flat = flat * size + place
            index = tirx.if_then_else(inside, tirx.Cast("int64", flat), tirx.max_value("int64"))
            return fold((index, tirx.if_then_else(inside, element, lowest(dtype_of(element)))), axis=axes)

        return te.compute(out, body, name="max_pool")

    pair = t.te(compute, x, shape, name="max_pool_with_indices")
    return t.item(pair, 1), t.item(pair, 0)


def _is_used(a: Arguments, index: int) -> bool:
    return any(user.args[1] == index for user in a.node.users)


def _is_whole(a: Arguments, rank: int, value: Any) -> bool:
    """Whether one adaptive window is the whole of an image whose size is a symbol."""
    sizes, wanted = a.self.meta["val"].shape[-rank:], value.shape[-rank:]
    ones = all(isinstance(size, int) and size == 1 for size in wanted)
    return "output_size" in a.values and ones and any(not isinstance(size, int) for size in sizes)


def _max_pool(rank: int, make_windows: Callable[[Arguments, int], Make]) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        results = a.result if isinstance(a.result, list | tuple) else [a.result]
        source = a.self.meta["val"]
        dtype = widened(source.dtype)
        if is_empty(source) or is_empty(results[0]):
            filled = [zeros_like(t, each) for each in results]
            return filled if len(results) > 1 else filled[0]
        if _is_whole(a, rank, results[0]) and (len(results) == 1 or not _is_used(a, 1)):
            axes = list(range(source.ndim - rank, source.ndim))
            values = t.cast(extremum(t, t.tensor(a.self, dtype), axes, True, largest=True), dtype, source.dtype)
            return [values, None] if len(results) > 1 else values
        x, shape, make = t.tensor(a.self, dtype), t.shape(results[0]), make_windows(a, rank)
        if len(results) == 1 or not _is_used(a, 1):
            values, indices = _max_values(t, x, shape, rank, make), None
        else:
            values, indices = _max_with_indices(t, x, shape, rank, make)
        values = t.cast(values, dtype, source.dtype)
        return [values, indices] if len(results) > 1 else values

    return convert


def _sliding_windows(a: Arguments, rank: int) -> Make:
    return lambda sizes: _sliding(a, rank, sizes)


def _adaptive_windows(a: Arguments, rank: int) -> Make:
    result = a.result[0] if isinstance(a.result, list | tuple) else a.result
    return lambda sizes: _adaptive(a.self.meta["val"], result, rank, sizes)


def _divisor(a: Arguments, rank: int, windows: Windows, i: Sequence[Any]) -> Any:
    """How many elements a window counts."""
    if a.values.get("divisor_override") is not None:
        return tirx.const(a.divisor_override, "int64")
    product: Any = tirx.const(1, "int64")
    for axis in range(rank):
        start, size = windows.start(axis, i[axis]), windows.sizes[axis]
        padding = _every(a.padding, rank)[axis] if "padding" in a.values else 0
        end = windows.end(axis, i[axis], size)
        high = tirx.min(start + windows.extents[axis], end + padding)
        if a.values.get("count_include_pad", False):
            product = product * (high - start)
        else:
            product = product * (tirx.min(high, end) - tirx.max(start, 0))
    return product


def _average(rank: int, make_windows: Callable[[Arguments, int], Make]) -> Converter:
    def convert(t: Translation, a: Arguments) -> Any:
        dtype = widened(a.result.dtype)
        if is_empty(a.self.meta["val"]) or is_empty(a.result):
            return zeros_like(t, a.result)
        if _is_whole(a, rank, a.result):
            source = a.self.meta["val"]
            return mean_over(t, t.tensor(a.self), source, list(range(source.ndim - rank, source.ndim)), True, a.result)
        make = make_windows(a, rank)

        def compute(data: Any, out: Any) -> Any:
            windows = make(tuple(data.shape[-rank:]))
            axes = [te.reduce_axis((0, extent), name=f"k{axis}") for axis, extent in enumerate(windows.extents)]

            def window(*i: Any) -> Any:
                at, inside = windows.places(i[-rank:], axes)
                element = data(*i[:-rank], *at)
                return te.sum(tirx.if_then_else(inside, element, tirx.const(0, dtype_of(element))), axis=axes)

            total = te.compute(out, window, name="window_sum")

            def mean(*i: Any) -> Any:
                return total(*i) / tirx.Cast(dtype_name(dtype), _divisor(a, rank, windows, i[-rank:]))

            return te.compute(out, mean, name="avg_pool")

        return narrowed(t, a, t.te(compute, t.tensor(a.self, dtype), t.shape(a.result), name="avg_pool"), dtype)

    return convert


CONVERTERS: dict[str, Converter] = {
    **{f"aten.avg_pool{rank}d.default": _average(rank, _sliding_windows) for rank in (1, 2, 3)},
    **{
        f"aten.{under}adaptive_avg_pool{rank}d.default": _average(rank, _adaptive_windows)
        for rank in (1, 2, 3)
        for under in ("", "_")
    },
    **{f"aten.max_pool{rank}d.default": _max_pool(rank, _sliding_windows) for rank in (1, 2, 3)},
    **{f"aten.max_pool{rank}d_with_indices.default": _max_pool(rank, _sliding_windows) for rank in (1, 2, 3)},
    **{f"aten.adaptive_max_pool{rank}d.default": _max_pool(rank, _adaptive_windows) for rank in (1, 2, 3)},
}

KEPT = tuple(CONVERTERS)
