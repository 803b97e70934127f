"""Polynomials in place of the C library's functions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tvm import te, topi

from service.compiler.schedules import elementwise
from tests.compiler.schedules.kernels import run, scheduled

SPECIAL = [
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    1e-40,
    -1e-40,
    88.5,
    89.5,
    -87.5,
    -100.0,
    -104.5,
    3.9,
    4.1,
    8.0,
    1e4,
    -1e4,
]


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("exp", np.exp),
        ("tanh", np.tanh),
        ("erf", np.vectorize(math.erf)),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    ],
)
def test_polynomials_are_right_everywhere(name, reference):
    values = np.concatenate([np.linspace(-110, 95, 4001), np.linspace(-9, 9, 4001), SPECIAL]).astype("float32")
    x = te.placeholder(values.shape, name="x")
    mine = run(scheduled(elementwise.schedule, [x, getattr(topi, name)(x)]), [values], values.shape)
    with np.errstate(over="ignore"):
        expected = reference(values.astype("float64")).astype("float32")
    np.testing.assert_allclose(mine, expected, rtol=1e-6, atol=1e-7 if name != "exp" else 1e-44)
    assert np.isnan(mine).sum() == 1
