"""Products with constant weights against numpy: every tail of rows and columns, epilogues, layouts, special values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx

from service.compiler.schedules import dense
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, SIZES, UNITS, close, numbers, run, scheduled


def product(m, n, k, *, transposed=False, epilogue=None):
    x = te.placeholder((m, k), name="x")
    w = te.placeholder((n, k) if transposed else (k, n), name="w")
    b = te.placeholder((n,), name="b")
    axis = te.reduce_axis((0, k), name="k")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, axis] * (w[j, axis] if transposed else w[axis, j]), axis=axis))
    z = te.compute((m, n), lambda i, j: (epilogue or (lambda v: v))(y[i, j] + b[j]))
    return [x, w, b, z]


def relu(v):
    return tirx.Select(v < tirx.const(0, "float32"), tirx.const(0, "float32"), v)


@FEW
@given(
    m=st.sampled_from(SIZES), n=st.sampled_from(SIZES), k=st.sampled_from((1, 2, 5, 64, 129)),
    unit=st.sampled_from(sorted(UNITS)), transposed=st.booleans(),
)  # fmt: skip
def test_products_of_all_sizes_are_those_of_numpy(m, n, k, unit, transposed):
    x, w, b = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
    stored = np.ascontiguousarray(w.T) if transposed else w
    kernel = scheduled(dense.schedule, product(m, n, k, transposed=transposed, epilogue=relu), {1: stored}, unit)
    close(run(kernel, [x, stored, b], (m, n)), np.maximum(x @ w + b, 0))


def test_a_symbolic_number_of_rows_keeps_the_kernel():
    rows = tirx.Var("rows", "int64")
    w, b = numbers(20, 35, seed=1), numbers(35, seed=2)
    kernel = scheduled(dense.schedule, product(rows, 35, 20), {1: w}, "avx512")
    for m in (1, 2, 5, 13, 14, 15, 29, 64):
        x = numbers(m, 20)
        close(run(kernel, [x, w, b], (m, 35)), x @ w + b)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_special_values_come_through(value):
    x, w, b = numbers(5, 9), numbers(9, 18, seed=1), numbers(18, seed=2)
    x[3, 4] = value
    kernel = scheduled(dense.schedule, product(5, 18, 9, epilogue=relu), {1: w})
    with np.errstate(invalid="ignore", over="ignore"):
        expected = x @ w + b
    expected = np.where(expected < 0, 0, expected)
    close(run(kernel, [x, w, b], (5, 18)), expected)


def test_a_dear_epilogue_is_computed_in_a_loop_over_the_rows():
    def gelu(v):
        return v * (
            tirx.const(0.5, "float32") + tirx.erf(v * tirx.const(0.70710678, "float32")) * tirx.const(0.5, "float32")
        )

    from math import erf

    x, w, b = numbers(9, 6), numbers(6, 21, seed=1), numbers(21, seed=2)
    kernel = scheduled(dense.schedule, product(9, 21, 6, epilogue=gelu), {1: w}, "avx512")
    y = x @ w + b
    close(run(kernel, [x, w, b], (9, 21)), y * (0.5 + 0.5 * np.vectorize(erf)(y * 0.70710678)))


def test_a_weight_that_is_repeated_along_a_batch_is_one_matrix():
    x, w = te.placeholder((3, 4, 6), name="x"), te.placeholder((3, 6, 5), name="w")
    k = te.reduce_axis((0, 6), name="k")
    y = te.compute((3, 4, 5), lambda b, i, j: te.sum(x[b, i, k] * w[b, k, j], axis=k))
    data, weight = numbers(3, 4, 6), numbers(6, 5, seed=1)
    same = np.broadcast_to(weight, (3, 6, 5)).copy()
    close(run(scheduled(dense.schedule, [x, w, y], {1: same}), [data, same], (3, 4, 5)), data @ weight)
    with pytest.raises(Unsupported, match="own weight"):
        scheduled(dense.schedule, [x, w, y], {1: numbers(3, 6, 5)})


def test_what_is_no_product_with_a_constant_is_refused():
    with pytest.raises(Unsupported, match="constant"):
        scheduled(dense.schedule, product(4, 4, 4))
