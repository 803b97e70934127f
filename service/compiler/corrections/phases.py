"""Transposed convolutions with strides as ordinary ones: the places of the result a stride apart are one phase.

A phase takes every stride-th tap of the weight and no other, so that nothing is multiplied by zeros that were put in
between (Dumoulin and Visin, A guide to convolution arithmetic for deep learning, section 4).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx

from service.compiler.translation import Arguments, Translation


@dataclass(frozen=True)
class Line:
    """One phase along one axis: the results ``start + stride * (first + n) - padding``, taps ``start + stride * j``.

    `taps` is how many of these the weight has. `before` and `after` elements of the input count as zeros, or are left
    out where that is negative.
    """

    start: int
    first: int
    taps: int
    before: int
    after: int

    def places(self, size: int) -> int:
        """How many results it has for an input of `size` elements."""
        return size + self.before + self.after - self.taps + 1


def lines(stride: int, padding: int, output_padding: int, kernel: int) -> list[Line]:
    """The phases of an axis, by the remainder of their first tap."""
    found = []
    for start in range(stride):
        taps = len(range(start, kernel, stride))
        first = -((start - padding) // stride)
        after = (kernel - 1 - padding + output_padding - start) // stride
        found.append(Line(start, first, taps, taps - 1 - first, after))
    return found


def transposed(
    t: Translation,
    a: Arguments,
    stored: torch.Tensor,
    stride: list[int],
    padding: list[int],
    convolve: Callable[..., Any],
) -> Any:
    """The transpose of a convolution without dilation, by the weight `stored`; computed in its dtype."""
    weight = _grouped(stored, a.groups)
    axes = _axes(a, stride, padding)
    outputs = a.groups * weight.shape[1]
    parts: dict[Any, list[tuple[Line, ...]]] = {}
    for phase in itertools.product(*axes):
        if all(line.taps and _has_places(line, size) for line, size in zip(phase, t.dims(a.input)[2:], strict=True)):
            # Without groups, phases that read the same elements are channels of one convolution.
            alike = tuple((line.taps, line.before, line.after) for line in phase)
            parts.setdefault(alike if a.groups == 1 else phase, []).append(phase)
    x = t.tensor(a.input, stored.dtype)
    results: list[Any] = []
    places: dict[tuple[int, ...], tuple[int, int]] = {}
    for members in parts.values():
        own = torch.cat([_taps(weight, phase, stride) for phase in members])
        image, pads = _cut(t, x, members[0])
        for index, phase in enumerate(members):
            places[tuple(line.start for line in phase)] = len(results), index * outputs
        ones = [1] * len(stride)
        results.append(
            t.emit(convolve(image, t.constant(own), strides=ones, padding=pads, dilation=ones, groups=a.groups))
        )
    firsts = [[line.first for line in axis] for axis in axes]
    return _joined(t, a, results, places, (stride, padding, firsts))


def is_possible(a: Arguments, stride: list[int], padding: list[int]) -> bool:
    """Whether each phase has a number of places that is not negative, whatever an unknown size will be."""
    shape = a.input.meta["val"].shape[2:]
    return all(
        isinstance(size, int) or line.places(1) >= 0
        for size, axis in zip(shape, _axes(a, stride, padding), strict=True)
        for line in axis
    )


def _axes(a: Arguments, stride: list[int], padding: list[int]) -> list[list[Line]]:
    kernel = a.weight.meta["val"].shape[2:]
    extra = list(a.output_padding)
    extra = extra * len(stride) if len(extra) == 1 else extra
    return list(map(lines, stride, padding, extra, kernel))


def _has_places(line: Line, size: Any) -> bool:
    return not isinstance(size, int) or line.places(size) > 0


def _grouped(stored: torch.Tensor, groups: int) -> torch.Tensor:
    """The weight (in, out / groups, …) as (groups, out / groups, in / groups, …)."""
    inputs, outputs = stored.shape[:2]
    return stored.reshape(groups, inputs // groups, outputs, *stored.shape[2:]).transpose(1, 2)


def _taps(weight: torch.Tensor, phase: tuple[Line, ...], stride: list[int]) -> torch.Tensor:
    """The taps of a phase, turned around, as (out, in / groups, …)."""
    own = weight
    for axis, (line, step) in enumerate(zip(phase, stride, strict=True), start=3):
        own = own.index_select(axis, torch.arange(line.start, weight.shape[axis], step).flip(0))
    return own.reshape(-1, *own.shape[2:]).contiguous()


def _cut(t: Translation, x: Any, phase: tuple[Line, ...]) -> tuple[Any, list[int]]:
    """The elements that a phase reads, and the zeros around them."""
    for axis, line in enumerate(phase, start=2):
        if line.before < 0 or line.after < 0:
            end = x.ty.shape.values[axis] + min(line.after, 0)
            x = t.emit(relax.op.strided_slice(x, axes=[axis], begin=[max(-line.before, 0)], end=[end]))
    return x, [*(max(line.before, 0) for line in phase), *(max(line.after, 0) for line in phase)]


def _joined(
    t: Translation,
    a: Arguments,
    results: list[Any],
    places: dict[tuple[int, ...], tuple[int, int]],
    layout: tuple[list[int], list[int], list[list[int]]],
) -> Any:
    """All phases in their places; 0 where a phase has no taps."""
    stride, padding, firsts = layout

    def compute(*given: Any) -> Any:
        *parts, shape = given

        def read(n: Any, channel: Any, *at: Any) -> Any:
            moved = [each + pad for each, pad in zip(at, padding, strict=True)]
            value: Any = tirx.const(0, str(parts[0].dtype))
            for start, (part, first) in places.items():
                inside = [
                    tirx.floordiv(each, step) - firsts[axis][start[axis]]
                    for axis, (each, step) in enumerate(zip(moved, stride, strict=True))
                ]
                here = [
                    tirx.floormod(each, step) == own
                    for each, step, own in zip(moved, stride, start, strict=True)
                    if step > 1
                ]
                value = tirx.if_then_else(tirx.all(*here), parts[part](n, channel + first, *inside), value)
            return value

        return te.compute(shape, read, name="phases")

    return t.te(compute, *results, relax.ShapeExpr(t.dims(a.result)), name="phases")
