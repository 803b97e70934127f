"""Whatever is chosen for a kernel, it computes the same; what is no candidate is not taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm_ffi
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from service.compiler.schedules import batched_matmul, convolution, dense, depthwise
from service.compiler.schedules.expressions import Unsupported
from tests.compiler.schedules.kernels import SIZES, UNITS, close, numbers, run, scheduled
from tests.compiler.schedules.test_batched_matmul import product as batched_product
from tests.compiler.schedules.test_convolution import GEOMETRY, convolved, expected
from tests.compiler.schedules.test_dense import product, relu

SOME = settings(
    max_examples=16, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
PICK = st.integers(0, 1 << 16)


def picked(schedule: Any, tensors: list[Any], constants: dict[int, np.ndarray], unit: str, pick: int) -> Any:
    """The kernel with one of its candidates, and the candidate."""
    candidates = scheduled(schedule, tensors, constants, unit).candidates
    choice = candidates[pick % len(candidates)]
    return scheduled(schedule, tensors, constants, unit, choice), choice


@SOME
@given(
    m=st.sampled_from(SIZES), n=st.sampled_from(SIZES), k=st.sampled_from((1, 2, 5, 64, 129)),
    unit=st.sampled_from(sorted(UNITS)), pick=PICK,
)  # fmt: skip
def test_products_are_those_of_numpy_with_every_choice(m, n, k, unit, pick):
    x, w, b = numbers(m, k), numbers(k, n, seed=1), numbers(n, seed=2)
    kernel, choice = picked(dense.schedule, product(m, n, k, epilogue=relu), {1: w}, unit, pick)
    assert kernel.parameters["rows"] == choice["rows"]
    close(run(kernel, [x, w, b], (m, n)), np.maximum(x @ w + b, 0))


@SOME
@given(
    batch=st.sampled_from((1, 2)), inputs=st.sampled_from((1, 3, 8, 17)), outputs=st.sampled_from((1, 6, 16, 33, 48)),
    groups=st.sampled_from((1, 1, 3)), last=st.booleans(), pick=PICK, **GEOMETRY,
)  # fmt: skip
def test_convolutions_are_those_of_pytorch_with_every_choice(
    batch, inputs, outputs, groups, height, width, k, stride, padding, dilation, unit, last, pick
):
    assume(min(height, width) + 2 * padding >= dilation * (k - 1) + 1)
    x, w = numbers(batch, groups * inputs, height, width), numbers(groups * outputs, inputs, k, k, seed=1)
    tensors, out = convolved(x.shape, w.shape, stride, padding, dilation, last=last, groups=groups)
    try:
        kernel, _ = picked(convolution.schedule, tensors, {1: w}, unit, pick)
    except Unsupported:
        return
    given_x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if last else x
    close(run(kernel, [given_x, w], out), expected(x, w, stride, padding, dilation, groups))


@SOME
@given(
    m=st.sampled_from([each for each in SIZES if each >= 4]), n=st.sampled_from(SIZES), k=st.sampled_from((1, 8, 33)),
    unit=st.sampled_from(sorted(UNITS)), transposed=st.booleans(), pick=PICK,
)  # fmt: skip
def test_batched_products_are_those_of_numpy_with_every_choice(m, n, k, unit, transposed, pick):
    x, y = numbers(2, m, k), numbers(2, n, k, seed=1) if transposed else numbers(2, k, n, seed=1)
    kernel, _ = picked(batched_matmul.schedule, batched_product(2, m, n, k, transposed), {}, unit, pick)
    close(run(kernel, [x, y], (2, m, n)), x @ (y.transpose(0, 2, 1) if transposed else y) * np.float32(0.5))


@SOME
@given(channels=st.sampled_from((1, 3, 16, 21, 40)), pick=PICK, **GEOMETRY)
def test_depthwise_convolutions_are_those_of_pytorch_with_every_choice(
    channels, height, width, k, stride, padding, dilation, unit, pick
):
    assume(min(height, width) + 2 * padding >= dilation * (k - 1) + 1)
    x, w = numbers(2, channels, height, width), numbers(channels, 1, k, k, seed=1)
    tensors, out = convolved(x.shape, w.shape, stride, padding, dilation, single=True)
    try:
        kernel, _ = picked(depthwise.schedule, tensors, {1: w}, unit, pick)
    except Unsupported:
        return
    given_x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    close(run(kernel, [given_x, w], out), expected(x, w, stride, padding, dilation, channels))


@pytest.mark.parametrize(
    "wanted",
    [
        {"rows": 10**9, "vectors": 2, "group": 1},
        {"rows": 0, "vectors": 1, "group": 1},
        {"rows": -1, "vectors": "2", "group": None},
        {"columns": 8},
        {},
    ],
    ids=str,
)
def test_what_is_no_candidate_is_not_taken(wanted):
    tensors, weight = product(33, 40, 20), numbers(20, 40)
    rule = scheduled(dense.schedule, tensors, {1: weight})
    other = scheduled(dense.schedule, tensors, {1: weight}, wanted=wanted)
    assert tvm_ffi.structural_equal(rule.function, other.function)
    assert other.parameters == rule.parameters


def test_each_choice_is_there_once_and_the_first_is_the_rules():
    kernel = scheduled(dense.schedule, product(33, 40, 20), {1: numbers(20, 40)})
    assert len({tuple(sorted(each.items())) for each in kernel.candidates}) == len(kernel.candidates) > 4
    first = scheduled(dense.schedule, product(33, 40, 20), {1: numbers(20, 40)}, wanted=kernel.candidates[0])
    assert tvm_ffi.structural_equal(kernel.function, first.function)
