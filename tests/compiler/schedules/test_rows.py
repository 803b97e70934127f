"""Folds along rows against numpy: softmax with masked rows, layer normalisation, sums, extrema, tests.

Through service.compiler.schedules.folding.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

from service.compiler.schedules import rows
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, SIZES, UNITS, close, numbers, run, scheduled

MANY = (*SIZES, 257)


@FEW
@given(m=st.sampled_from(SIZES), n=st.sampled_from(MANY), unit=st.sampled_from(sorted(UNITS)))
def test_softmax_is_that_of_numpy(m, n, unit):
    x = te.placeholder((m, n), name="x")
    data = numbers(m, n) * 20
    exponentials = np.exp(data - data.max(1, keepdims=True))
    try:
        kernel = scheduled(rows.schedule, [x, topi.nn.softmax(x)], None, unit)
    except Unsupported:
        assert n < UNITS[unit].lanes("float32")
        return
    close(run(kernel, [data], (m, n)), exponentials / exponentials.sum(1, keepdims=True))


@pytest.mark.parametrize(("value", "gives_nan"), [(np.nan, True), (np.inf, True), (-np.inf, False), (-1e30, False)])
def test_softmax_keeps_special_values(value, gives_nan):
    x = te.placeholder((3, 40), name="x")
    data = numbers(3, 40)
    data[1, 7] = value
    mine = run(scheduled(rows.schedule, [x, topi.nn.softmax(x)]), [data], (3, 40))
    assert np.isnan(mine[1]).all() == gives_nan
    assert not np.isnan(mine[[0, 2]]).any()
    if not gives_nan:
        assert mine[1, 7] == 0


@FEW
@given(m=st.sampled_from((1, 4)), n=st.sampled_from(MANY), unit=st.sampled_from(sorted(UNITS)),
       fold=st.sampled_from(("sum", "max", "min")))  # fmt: skip
def test_folds_are_those_of_numpy(m, n, unit, fold):
    x = te.placeholder((m, n), name="x")
    try:
        kernel = scheduled(rows.schedule, [x, getattr(topi, fold)(x, axis=1)], None, unit)
    except Unsupported:
        assert n < UNITS[unit].lanes("float32")
        return
    close(run(kernel, [numbers(m, n)], (m,)), getattr(np, fold)(numbers(m, n), axis=1))


@pytest.mark.parametrize("n", [1, 16, 33, 100])
def test_truth_values_are_folded(n):
    x = te.placeholder((1, n), name="x")
    k = te.reduce_axis((0, n), name="k")
    fold = te.comm_reducer(lambda a, b: tirx.And(a, b), lambda _: tirx.const(True, "bool"), name="all")  # noqa: PLW0108
    y = te.compute((1,), lambda i: fold(x[i, k] > tirx.const(0, "float32"), axis=k))
    kernel = scheduled(rows.schedule, [x, y])
    data = np.ones((1, n), "float32")
    assert run(kernel, [data], (1,), "bool").tolist() == [True]
    data[0, n - 1] = -1
    assert run(kernel, [data], (1,), "bool").tolist() == [False]


def test_a_result_in_other_axes_than_the_rows_goes_row_by_row():
    """As in group normalisation: sums over groups, a result over channels."""
    x = te.placeholder((2, 12, 5, 5), name="x")
    c, i, j = (te.reduce_axis((0, size)) for size in (4, 5, 5))
    total = te.compute((2, 3), lambda n, g: te.sum(x[n, g * 4 + c, i, j], axis=[c, i, j]))
    y = te.compute((2, 12, 5, 5), lambda n, o, a, b: x[n, o, a, b] / total[n, tirx.floordiv(o, 4)])
    data = np.abs(numbers(2, 12, 5, 5)) + 1
    sums = data.reshape(2, 3, -1).sum(2)
    mine = run(scheduled(rows.schedule, [x, y]), [data], (2, 12, 5, 5))
    close(mine, data / np.repeat(sums, 4, axis=1)[:, :, None, None])
