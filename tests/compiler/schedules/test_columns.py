"""Folds across memory against numpy: pooling with the channels last, sums over leading axes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

from service.compiler.extrema import maximum
from service.compiler.schedules import columns
from tests.compiler.schedules.kernels import FEW, SIZES, UNITS, close, numbers, run, scheduled


@FEW
@given(m=st.sampled_from(SIZES), n=st.sampled_from(SIZES), unit=st.sampled_from(sorted(UNITS)))
def test_sums_over_the_first_axis_are_those_of_numpy(m, n, unit):
    x = te.placeholder((m, n), name="x")
    kernel = scheduled(columns.schedule, [x, topi.sum(x, axis=0)], None, unit)
    close(run(kernel, [numbers(m, n)], (n,)), numbers(m, n).sum(0))


def test_max_pooling_with_a_border_keeps_nan():
    x = te.placeholder((1, 5, 6, 19), name="x")
    ky, kx = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    fold = te.comm_reducer(maximum, lambda _: tirx.const(-np.inf, "float32"), name="max")

    def term(n, y, z, c):
        i, j = y * 2 + ky - 1, z * 2 + kx - 1
        inside = tirx.all(i >= 0, i < 5, j >= 0, j < 6)
        return fold(tirx.if_then_else(inside, x[n, i, j, c], tirx.const(-np.inf, "float32")), axis=[ky, kx])

    data = numbers(1, 5, 6, 19)
    data[0, 2, 2, 3] = np.nan
    import torch

    image = torch.from_numpy(data.transpose(0, 3, 1, 2).copy())
    theirs = torch.nn.functional.max_pool2d(image, 3, 2, 1).numpy().transpose(0, 2, 3, 1)
    mine = run(scheduled(columns.schedule, [x, te.compute((1, 3, 3, 19), term)]), [data], (1, 3, 3, 19))
    np.testing.assert_array_equal(mine, theirs)


@FEW
@given(
    channels=st.sampled_from([1, 3, 4, 7, 16, 33]), images=st.sampled_from([1, 3]), unit=st.sampled_from(sorted(UNITS))
)
def test_vectors_run_along_the_axis_that_is_last_where_it_is_read(channels, images, unit):
    """Pooling from channels last to channels first, as before a dense layer."""
    x = te.placeholder((images, 6, 4, channels), name="x")
    ky, kx = te.reduce_axis((0, 2)), te.reduce_axis((0, 2))
    fold = te.comm_reducer(maximum, lambda _: tirx.const(-np.inf, "float32"), name="max")
    y = te.compute((images, channels, 3, 2), lambda n, c, i, j: fold(x[n, i * 2 + ky, j * 2 + kx, c], axis=[ky, kx]))
    kernel = scheduled(columns.schedule, [x, y], None, unit)
    data = numbers(images, 6, 4, channels)
    data[0, 1, 1, 0] = np.nan
    expected = data.reshape(images, 3, 2, 2, 2, channels).transpose(0, 5, 1, 3, 2, 4).max((4, 5))
    np.testing.assert_array_equal(run(kernel, [data], expected.shape), expected)
    assert kernel.parameters.get("axis") == (1 if channels >= 4 else None)
