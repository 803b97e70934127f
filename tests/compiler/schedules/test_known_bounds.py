"""Bounds that are known take one comparison, and keep NaN: service.compiler.schedules.known_bounds."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

from service.compiler.extrema import maximum, minimum
from service.compiler.schedules import elementwise
from service.compiler.schedules.computation import read
from service.compiler.schedules.kernel import Situation
from service.compiler.schedules.known_bounds import with_known_bounds
from tests.compiler.schedules.kernels import UNITS, numbers, run, scheduled

NUMBERS = np.array([np.nan, -np.inf, np.inf, -2, 0, 3, 6, 9], "float32")


def clipped(x, low, high, turned):
    if turned:
        return te.compute((8,), lambda i: minimum(high(), maximum(low(), x[i])))
    return te.compute((8,), lambda i: minimum(maximum(x[i], low()), high()))


def parameters(turned=False):
    x, low, high = te.placeholder((8,), name="x"), te.placeholder((), name="low"), te.placeholder((), name="high")
    return [x, low, high, clipped(x, low, high, turned)]


def bounded(turned, low, high):
    program = read(te.create_prim_func(parameters(turned), "int64"))
    _, first, second, _ = program.parameters
    return str(with_known_bounds(program, {first: low, second: high}).computations[0].value)


def known(value, times=1):
    return (np.array(value, "float32"),) * times


@pytest.mark.parametrize("turned", [False, True])
def test_known_bounds_are_literals_in_one_comparison_each(turned):
    text = bounded(turned, known(0.0, 2), known(6.0))
    assert "isnan" not in text
    assert "low" not in text
    assert "6" in text


@pytest.mark.parametrize("low", [(), (*known(0.0), *known(1.0)), known(np.nan), known(-np.inf), known([0.0, 0.0])])
def test_what_is_not_one_finite_number_stays(low):
    text = bounded(False, low, known(6.0))
    assert "isnan" in text
    assert "low" in text


@pytest.mark.parametrize("turned", [False, True])
def test_literals_keep_nan_and_infinities(turned):
    x = te.placeholder((8,), name="x")
    low, high = (lambda: tirx.const(0, "float32")), (lambda: tirx.const(6, "float32"))
    program = read(te.create_prim_func([x, clipped(x, low, high, turned)], "int64"))
    assert "isnan" not in str(with_known_bounds(program, {}).computations[0].value)
    kernel = elementwise.schedule("main", with_known_bounds(program, {}), Situation(UNITS["avx2"]))
    np.testing.assert_array_equal(run(kernel, [NUMBERS], (8,)), np.clip(NUMBERS, 0, 6))


def test_bounds_that_are_not_known_keep_nan_too():
    x, low = te.placeholder((8,), name="x"), te.placeholder((8,), name="low")
    kernel = scheduled(elementwise.schedule, [x, low, te.compute((8,), lambda i: maximum(x[i], low[i]))])
    other = numbers(8)
    np.testing.assert_array_equal(run(kernel, [NUMBERS, other], (8,)), np.maximum(NUMBERS, other))
    np.testing.assert_array_equal(run(kernel, [other, NUMBERS], (8,)), np.maximum(other, NUMBERS))
