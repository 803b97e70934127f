"""Maps against numpy: tails, broadcasts, transposes, lookups; through service.compiler.schedules.writer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx, topi

from service.compiler.extrema import maximum, minimum
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


# Calls that are vector operations, calls that become ones, and calls of the C library one element after another.
CALLS = {
    "isnan": (lambda v: tirx.Select(tirx.isnan(v), tirx.const(2, "float32"), v), lambda v: np.where(np.isnan(v), 2, v)),
    "maximum": (lambda v: maximum(v, tirx.const(0, "float32")), lambda v: np.maximum(v, 0)),
    "bounds": (
        lambda v: minimum(maximum(v * v + v, tirx.const(0, "float32")), tirx.const(6, "float32")),
        lambda v: np.clip(v * v + v, 0, 6),
    ),
    "a branch": (
        lambda v: tirx.if_then_else(v > tirx.const(1, "float32"), tirx.exp(v), v),
        lambda v: np.where(v > 1, np.exp(v), v),
    ),
    "branches": (
        lambda v: tirx.exp(tirx.if_then_else(v > tirx.const(1, "float32"), tirx.cos(v), tirx.tanh(v))),
        lambda v: np.exp(np.where(v > 1, np.cos(v), np.tanh(v))),
    ),
    "nearbyint": (tirx.nearbyint, np.rint),
    "ceil": (tirx.ceil, np.ceil),
    "floor": (tirx.floor, np.floor),
    "trunc": (tirx.trunc, np.trunc),
    "abs": (tirx.abs, np.abs),
    "sqrt": (lambda v: tirx.sqrt(tirx.abs(v)), lambda v: np.sqrt(np.abs(v))),
    "exp": (tirx.exp, np.exp),
    "tanh": (tirx.tanh, np.tanh),
    "sin": (tirx.sin, np.sin),
    "atan": (tirx.atan, np.arctan),
    "log1p": (lambda v: tirx.log1p(tirx.abs(v)), lambda v: np.log1p(np.abs(v))),
    "isinf": (lambda v: tirx.Select(tirx.isinf(v), v, -v), lambda v: np.where(np.isinf(v), v, -v)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_name_beside_any_call_is_known_where_it_is_read(name):
    mine, theirs = CALLS[name]
    x = te.placeholder((37,), name="x")
    # The sum and what is called of it stand more than once: both get names.
    y = te.compute((37,), lambda i: mine(x[i] + 1.5) * (x[i] + 1.5) + mine(x[i] + 1.5))
    value = numbers(37)
    value[[3, 20]] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        shifted = value + np.float32(1.5)
        expected = theirs(shifted) * shifted + theirs(shifted)
    close(run(scheduled(elementwise.schedule, [x, y]), [value], (37,)), expected.astype("float32"))


def test_a_name_whose_branch_depends_on_the_place_is_known_where_it_is_read():
    x = te.placeholder((61,), name="x")

    def sided(i):
        return tirx.if_then_else(i >= 13, tirx.cos(x[i - 13]), tirx.sin(x[i]))

    y = te.compute((61,), lambda i: sided(i) * tirx.exp(sided(i)))
    place, value = np.arange(61), numbers(61)
    side = np.where(place >= 13, np.cos(value[np.maximum(place - 13, 0)]), np.sin(value))
    close(run(scheduled(elementwise.schedule, [x, y]), [value], (61,)), side * np.exp(side))


def test_no_function_is_called_to_know_a_nan():
    x = te.placeholder((64,), name="x")
    kernel = scheduled(elementwise.schedule, [x, te.compute((64,), lambda i: maximum(x[i], tirx.const(0, "float32")))])
    assert "isnan" not in kernel.function.script()
    assert "T.vectorized" in kernel.function.script()


def test_a_fold_is_refused():
    x = te.placeholder((4, 4), name="x")
    with pytest.raises(Unsupported, match="folds"):
        scheduled(elementwise.schedule, [x, topi.sum(x, axis=1)])
