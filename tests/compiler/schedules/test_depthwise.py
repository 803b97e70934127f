"""Convolutions of each channel by itself against PyTorch."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from service.compiler.schedules import depthwise
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, close, numbers, run, scheduled
from tests.compiler.schedules.test_convolution import GEOMETRY, convolved, expected


@FEW
@given(channels=st.sampled_from((1, 3, 16, 21, 40)), **GEOMETRY)
def test_depthwise_convolutions_are_those_of_pytorch(channels, height, width, k, stride, padding, dilation, unit):
    assume(min(height, width) + 2 * padding >= dilation * (k - 1) + 1)
    x, w = numbers(2, channels, height, width), numbers(channels, 1, k, k, seed=1)
    tensors, out = convolved(x.shape, w.shape, stride, padding, dilation, single=True)
    try:
        kernel = scheduled(depthwise.schedule, tensors, {1: w}, unit)
    except Unsupported:
        assert 1 in (k, channels, *out[1:3], height, width)
        return
    given_x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    close(run(kernel, [given_x, w], out), expected(x, w, stride, padding, dilation, channels))
