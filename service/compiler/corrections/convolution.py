"""Convolutions and their transposes in one, two and three dimensions.

TVM leaves dilated transposes unlowered (`topi.nn.conv2d_transpose` has no dilation), has none in three dimensions for
groups, loses output_padding, and adds float32 biases to float64 results.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import relax, te, tirx

from service.compiler.corrections import phases
from service.compiler.corrections.creation import is_empty
from service.compiler.corrections.indexing import zeros_like
from service.compiler.pointwise import dtype_of
from service.compiler.promotion import narrowed, widened
from service.compiler.translation import Arguments, Converter, Translation
from service.errors import ImportFailed

_MOST_PHASES = 16
_OPERATORS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}


def _every(amounts: Any, rank: int) -> list[int]:
    listed = list(amounts)
    return listed * rank if len(listed) == 1 else listed


def _convolution(t: Translation, a: Arguments) -> Any:
    rank = a.result.ndim - 2
    dtype = widened(a.result.dtype)
    weight = a.weight.meta["val"]
    if rank not in _OPERATORS or any(not isinstance(size, int) for size in weight.shape):
        raise ImportFailed("convolutions are compiled for weights of fixed size in 1, 2 or 3 dimensions.", step=0)
    stride, padding, dilation = (_every(each, rank) for each in (a.stride, a.padding, a.dilation))
    if is_empty(a.input.meta["val"]) or is_empty(weight) or is_empty(a.result):
        product = _broadcast_zeros(t, a, dtype)
    elif a.transposed:
        product = _transposed(t, a, dtype, rank, stride, padding, dilation)
    else:
        product = t.emit(
            _OPERATORS[rank](
                t.tensor(a.input, dtype),
                t.tensor(a.weight, dtype),
                strides=stride,
                padding=padding + padding,
                dilation=dilation,
                groups=a.groups,
            )
        )
    if a.bias is not None:
        bias = t.emit(relax.op.reshape(t.tensor(a.bias, dtype), [1, a.bias.meta["val"].shape[0], *[1] * rank]))
        product = t.emit(relax.op.add(product, bias))
    return narrowed(t, a, product, dtype)


def _broadcast_zeros(t: Translation, a: Arguments, dtype: torch.dtype) -> Any:
    return t.cast(zeros_like(t, a.result), a.result.dtype, dtype)


def _transposed(
    t: Translation,
    a: Arguments,
    dtype: torch.dtype,
    rank: int,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Any:
    """The transpose as convolutions of the input, one for each phase of the strides.

    Where the weight is not known, or there are many phases, as one of the input spread by the strides.
    """
    few = 1 < math.prod(stride) <= _MOST_PHASES and set(dilation) == {1}
    stored = t.stored(a.weight)
    if few and stored is not None and phases.is_possible(a, stride, padding):
        return phases.transposed(t, a, stored.to(dtype), stride, padding, _OPERATORS[rank])
    sizes = a.weight.meta["val"].shape
    before = [d * (k - 1) - p for d, k, p in zip(dilation, sizes[2:], padding, strict=True)]
    spread = _spread(t, t.tensor(a.input, dtype), a, rank, stride, before, dilation)
    weight = _turned(t, a, dtype, rank)
    return t.emit(
        _OPERATORS[rank](
            spread, weight, strides=[1] * rank, padding=[0] * (2 * rank), dilation=dilation, groups=a.groups
        )
    )


def _spread(
    t: Translation, x: Any, a: Arguments, rank: int, stride: list[int], before: list[int], dilation: list[int]
) -> Any:
    kernel = a.weight.meta["val"].shape[2:]
    result = t.dims(a.result)
    source = t.dims(a.input)
    spatial = [size + d * (k - 1) for size, d, k in zip(result[2:], dilation, kernel, strict=True)]

    def compute(data: Any, shape: Any) -> Any:
        def read(*i: Any) -> Any:
            offsets = [each - low for each, low in zip(i[2:], before, strict=True)]
            places = [tirx.floordiv(each, step) for each, step in zip(offsets, stride, strict=True)]
            inside = [
                tirx.all(each >= 0, tirx.floormod(each, step) == 0, place < size)
                for each, step, place, size in zip(offsets, stride, places, data.shape[2:], strict=True)
            ]
            element = data(*i[:2], *places)
            return tirx.if_then_else(tirx.all(*inside), element, tirx.const(0, dtype_of(element)))

        return te.compute(shape, read, name="spread")

    return t.te(compute, x, relax.ShapeExpr([*source[:2], *spatial]), name="spread")


def _turned(t: Translation, a: Arguments, dtype: torch.dtype, rank: int) -> Any:
    """(in, out / groups, …) as (out, in / groups, …), its spatial dimensions reversed."""
    stored = t.stored(a.weight)
    if stored is not None:
        axes = list(range(2, 2 + rank))
        inputs, outputs = stored.shape[:2]
        grouped = stored.flip(axes).reshape(a.groups, inputs // a.groups, outputs, *stored.shape[2:])
        turned = grouped.transpose(1, 2).reshape(a.groups * outputs, inputs // a.groups, *stored.shape[2:])
        return t.constant(turned.to(dtype))
    groups = a.groups
    inputs, outputs = a.weight.meta["val"].shape[:2]
    own = inputs // groups

    def compute(w: Any) -> Any:
        def read(o: Any, i: Any, *k: Any) -> Any:
            group = tirx.floordiv(o, outputs)
            back = [size - 1 - each for size, each in zip(w.shape[2:], k, strict=True)]
            return w(group * own + i, tirx.floormod(o, outputs), *back)

        return te.compute([groups * outputs, own, *w.shape[2:]], read, name="turned")

    return t.te(compute, t.tensor(a.weight, dtype), name="turned")


CONVERTERS: dict[str, Converter] = {"aten.convolution.default": _convolution}
