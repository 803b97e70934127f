"""Products of two computed operands against numpy, transposed and scaled ones too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx

from service.compiler.schedules import batched_matmul
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, SIZES, UNITS, close, numbers, run, scheduled


def product(b, m, n, k, transposed):
    x = te.placeholder((b, m, k), name="x")
    y = te.placeholder((b, n, k) if transposed else (b, k, n), name="y")
    axis = te.reduce_axis((0, k), name="k")

    def term(h, i, j):
        right = y[h, j, axis] if transposed else y[h, axis, j]
        return te.sum(x[h, i, axis] * right, axis=axis)

    z = te.compute((b, m, n), term)
    return [x, y, te.compute((b, m, n), lambda h, i, j: z[h, i, j] * tirx.const(0.5, "float32"))]


@FEW
@given(
    b=st.sampled_from((1, 3)), m=st.sampled_from([each for each in SIZES if each >= 4]), n=st.sampled_from(SIZES),
    k=st.sampled_from((1, 8, 33)), unit=st.sampled_from(sorted(UNITS)), transposed=st.booleans(),
)  # fmt: skip
def test_products_of_all_sizes_are_those_of_numpy(b, m, n, k, unit, transposed):
    x, y = numbers(b, m, k), numbers(b, n, k, seed=1) if transposed else numbers(b, k, n, seed=1)
    kernel = scheduled(batched_matmul.schedule, product(b, m, n, k, transposed), None, unit)
    right = y.transpose(0, 2, 1) if transposed else y
    close(run(kernel, [x, y], (b, m, n)), x @ right * np.float32(0.5))


def test_a_symbolic_number_of_rows_keeps_the_kernel():
    rows = tirx.Var("rows", "int64")
    kernel = scheduled(batched_matmul.schedule, product(2, rows, 19, 7, False))
    for m in (1, 4, 6, 13, 40):
        x, y = numbers(2, m, 7), numbers(2, 7, 19, seed=1)
        close(run(kernel, [x, y], (2, m, 19)), x @ y * np.float32(0.5))


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_heads_are_read_where_they_lie_and_the_scale_of_the_left_operand_goes_to_the_packed_one(unit):
    b, m, n, k = 2, 9, 33, 7
    x, y = te.placeholder((m, b * k), name="x"), te.placeholder((n, b * k), name="y")
    axis = te.reduce_axis((0, k), name="k")
    half = tirx.const(0.5, "float32")
    z = te.compute((b, m, n), lambda h, i, j: te.sum(x[i, h * k + axis] * half * y[j, h * k + axis], axis=axis))
    left, right = numbers(m, b * k), numbers(n, b * k, seed=1)
    kernel = scheduled(batched_matmul.schedule, [x, y, z], None, unit)
    heads, others = left.reshape(m, b, k).transpose(1, 0, 2), right.reshape(n, b, k).transpose(1, 2, 0)
    close(run(kernel, [left, right], (b, m, n)), heads @ others * np.float32(0.5))


def test_few_rows_are_left_to_other_kernels():
    with pytest.raises(Unsupported, match="few rows"):
        scheduled(batched_matmul.schedule, product(2, 2, 19, 7, False))
