"""Convolutions against PyTorch: kernels, strides, paddings, dilations, odd channels, both input layouts."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from tvm import te, tirx

from service.compiler.schedules import convolution
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, UNITS, close, numbers, run, scheduled


def convolved(shape, weight, stride, padding, dilation, *, last=True, single=False, groups=1):
    """Tensors of a convolution with the channels last; the input has them second unless `last`."""
    batch, channels, height, width = shape
    outputs, own, down, across = weight
    x = te.placeholder((batch, height, width, channels) if last else shape, name="x")
    w = te.placeholder(weight, name="w")
    sizes = [
        (size + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for size, k in ((height, down), (width, across))
    ]
    rc, ry, rx = (te.reduce_axis((0, size), name=name) for size, name in ((own, "rc"), (down, "ry"), (across, "rx")))

    def term(n, y, z, o):
        i, j = y * stride + ry * dilation - padding, z * stride + rx * dilation - padding
        c = o + rc if single else rc + (tirx.floordiv(o, outputs // groups) * own if groups > 1 else 0)
        inside = [tirx.const(0, "int64") <= i, i < height, tirx.const(0, "int64") <= j, j < width]
        element = x[n, i, j, c] if last else x[n, c, i, j]
        if padding:
            element = tirx.if_then_else(tirx.all(*inside), element, tirx.const(0, "float32"))
        return te.sum(element * w[o, rc, ry, rx], axis=[rc, ry, rx])

    out = (batch, *sizes, outputs)
    y = te.compute(out, term)
    z = te.compute(out, lambda *i: tirx.Select(y(*i) < tirx.const(0, "float32"), tirx.const(0, "float32"), y(*i)))
    return [x, w, z], out


def expected(x, w, stride, padding, dilation, groups=1):
    y = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), None, stride, padding, dilation, groups)
    return np.maximum(y.numpy().transpose(0, 2, 3, 1), 0)


GEOMETRY = {
    "height": st.sampled_from((1, 4, 7, 17)), "width": st.sampled_from((1, 5, 14, 23)), "k": st.sampled_from((1, 2, 3, 5)),
    "stride": st.sampled_from((1, 2, 3)), "padding": st.sampled_from((0, 1, 2)), "dilation": st.sampled_from((1, 2)),
    "unit": st.sampled_from(sorted(UNITS)),
}  # fmt: skip


@FEW
@given(
    batch=st.sampled_from((1, 2)), inputs=st.sampled_from((1, 3, 8, 17)), outputs=st.sampled_from((1, 6, 16, 33, 48)),
    last=st.booleans(), **GEOMETRY,
)  # fmt: skip
def test_convolutions_are_those_of_pytorch(
    batch, inputs, outputs, height, width, k, stride, padding, dilation, unit, last
):
    assume(min(height, width) + 2 * padding >= dilation * (k - 1) + 1)
    x, w = numbers(batch, inputs, height, width), numbers(outputs, inputs, k, k, seed=1)
    tensors, out = convolved(x.shape, w.shape, stride, padding, dilation, last=last)
    given_x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    try:
        kernel = scheduled(convolution.schedule, tensors, {1: w}, unit)
    except Unsupported:
        # A tensor expression with loops of one pass is simplified so far that its windows cannot be told any more.
        assert 1 in (k, *out[1:3], height, width, inputs, outputs)
        return
    close(run(kernel, [given_x, w], out), expected(x, w, stride, padding, dilation))


@FEW
@given(
    groups=st.sampled_from((2, 3, 8)), inputs=st.sampled_from((1, 2, 4, 9)), outputs=st.sampled_from((2, 4, 6, 16, 21, 48)),
    last=st.booleans(), **GEOMETRY,
)  # fmt: skip
def test_grouped_convolutions_are_those_of_pytorch(
    groups, inputs, outputs, height, width, k, stride, padding, dilation, unit, last
):
    assume(min(height, width) + 2 * padding >= dilation * (k - 1) + 1)
    x, w = numbers(1, groups * inputs, height, width), numbers(groups * outputs, inputs, k, k, seed=1)
    tensors, out = convolved(x.shape, w.shape, stride, padding, dilation, last=last, groups=groups)
    given_x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    try:
        kernel = scheduled(convolution.schedule, tensors, {1: w}, unit)
    except Unsupported:
        # And of a condition on even numbers only their halves are left.
        assert 1 in (k, *out[1:3], height, width) or (stride == dilation == 2 and padding == 1)
        return
    assert kernel.parameters["groups"] == groups
    close(run(kernel, [given_x, w], out), expected(x, w, stride, padding, dilation, groups))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_special_values_reach_the_places_that_read_them(value):
    x, w = numbers(1, 9, 6, 6), numbers(20, 9, 3, 3, seed=1)
    x[0, 2, 0, 5] = value
    tensors, out = convolved(x.shape, w.shape, 1, 1, 1)
    kernel = scheduled(convolution.schedule, tensors, {1: w})
    close(run(kernel, [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w], out), expected(x, w, 1, 1, 1))


def test_a_border_of_another_value_is_refused():
    x = te.placeholder((1, 6, 6, 8), name="x")
    w = te.placeholder((16, 8, 3, 3), name="w")
    axes = [te.reduce_axis((0, size)) for size in (8, 3, 3)]

    def term(n, y, z, o):
        rc, ry, rx = axes
        inside = tirx.all(y + ry >= 1, y + ry < 7, z + rx >= 1, z + rx < 7)
        element = tirx.if_then_else(inside, x[n, y + ry - 1, z + rx - 1, rc], tirx.const(1, "float32"))
        return te.sum(element * w[o, rc, ry, rx], axis=axes)

    with pytest.raises(Unsupported, match="border"):
        scheduled(convolution.schedule, [x, w, te.compute((1, 6, 6, 16), term)], {1: numbers(16, 8, 3, 3)})


@FEW
@given(
    batch=st.sampled_from((1, 3)), height=st.sampled_from((1, 7, 34, 48)), outputs=st.sampled_from((6, 24, 48, 72)),
    parallel=st.booleans(), unit=st.sampled_from(sorted(UNITS)),
)  # fmt: skip
def test_pointwise_convolutions_have_pieces_enough_for_threads(batch, height, outputs, parallel, unit):
    """With something added that must be that of the same place."""
    width, inputs = 10, 8
    x, w = numbers(batch, height, width, inputs), numbers(outputs, inputs, 1, 1, seed=1)
    more = numbers(batch, height, width, outputs, seed=2)
    a, b, c = (te.placeholder(each.shape, name=name) for each, name in ((x, "x"), (w, "w"), (more, "r")))
    k = te.reduce_axis((0, inputs))
    ones = [te.reduce_axis((0, 1), name=name) for name in ("ry", "rx")]
    y = te.compute(
        more.shape, lambda n, i, j, o: te.sum(a[n, i + ones[0], j + ones[1], k] * b[o, k, *ones], axis=[k, *ones])
    )
    z = te.compute(more.shape, lambda *at: y(*at) + c(*at))
    try:
        kernel = scheduled(convolution.schedule, [a, b, c, z], {1: w}, unit, parallel=parallel)
    except Unsupported:
        # As above.
        assert height == 1
        return
    close(run(kernel, [x, w, more], more.shape), x @ w[:, :, 0, 0].T + more)
    loops = [
        int(found)
        for found in re.findall(r"in T\.(?:parallel|serial|grid)\((?:T\.int64\()?(\d+)", kernel.function.script())
    ]
    if parallel and height == 48:
        assert loops[0] >= 16
