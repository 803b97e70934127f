"""Maps against numpy: tails, broadcasts, transposes, lookups; through service.compiler.schedules.writer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

from service.compiler.schedules import elementwise
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import FEW, SIZES, UNITS, close, numbers, run, scheduled


@FEW
@given(shape=st.lists(st.sampled_from(SIZES), min_size=1, max_size=3), unit=st.sampled_from(sorted(UNITS)))
def test_broadcast_sums_are_those_of_numpy(shape, unit):
    x, y = te.placeholder(shape, name="x"), te.placeholder(shape[-1:], name="y")
    kernel = scheduled(elementwise.schedule, [x, y, topi.add(x, y)], None, unit)
    close(run(kernel, [numbers(*shape), numbers(shape[-1])], tuple(shape)), numbers(*shape) + numbers(shape[-1]))


@FEW
@given(shape=st.tuples(*[st.sampled_from((1, 3, 16, 21))] * 3), order=st.permutations(range(3)))
def test_transpositions_are_those_of_numpy(shape, order):
    x = te.placeholder(shape, name="x")
    kernel = scheduled(elementwise.schedule, [x, topi.transpose(x, order)], None, "avx512")
    expected = numbers(*shape).transpose(order)
    np.testing.assert_array_equal(run(kernel, [numbers(*shape)], expected.shape), expected)


def test_a_symbolic_size_is_covered():
    n = tirx.Var("n", "int64")
    x = te.placeholder((n, 7), name="x")
    kernel = scheduled(elementwise.schedule, [x, topi.multiply(x, x)])
    for size in (1, 2, 3, 9):
        close(run(kernel, [numbers(size, 7)], (size, 7)), numbers(size, 7) ** 2)


def test_rows_are_looked_up():
    table, rows = te.placeholder((9, 21), name="t"), te.placeholder((5,), dtype="int64", name="r")
    y = te.compute((5, 21), lambda i, j: table[rows[i], j])
    where = np.array([3, 8, 0, 0, 5])
    kernel = scheduled(elementwise.schedule, [table, rows, y])
    np.testing.assert_array_equal(run(kernel, [numbers(9, 21), where], (5, 21)), numbers(9, 21)[where])


def test_a_fold_is_refused():
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Unsupported, match="folds"):
        scheduled(elementwise.schedule, [x, topi.sum(x, axis=1)])
