"""3 x 3 convolutions with fewer multiplications: as PyTorch has them, also where numbers are not of like magnitude."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tvm import te, tirx

from service.compiler.schedules import convolution, winograd
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.magnitudes import RATIO
from tests.compiler.schedules.kernels import FEW, UNITS, close, numbers, run, scheduled
from tests.compiler.schedules.test_convolution import convolved, expected

TOLERANCE = 4e-5


@pytest.fixture
def always(monkeypatch):
    """The transforms are taken to pay for every image."""
    monkeypatch.setattr(winograd, "_cost", lambda _, results: -results)


def kernel_of(x, w, padding=1, unit="avx2", wanted=None):
    tensors, out = convolved(x.shape, w.shape, 1, padding, 1)
    return scheduled(winograd.schedule, tensors, {1: w}, unit, wanted), out


def convolve(x, w, padding=1, unit="avx2", wanted=None):
    kernel, out = kernel_of(x, w, padding, unit, wanted)
    assert kernel.name == winograd.NAME
    return run(kernel, [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w], out)


@FEW
@given(
    batch=st.sampled_from((1, 2, 3)), inputs=st.sampled_from((16, 17, 40)), outputs=st.sampled_from((16, 32, 48, 80)),
    height=st.sampled_from((1, 2, 4, 7, 16, 29)), width=st.sampled_from((1, 3, 5, 8, 23)),
    padding=st.sampled_from((0, 1, 2, 3)), unit=st.sampled_from(sorted(UNITS)),
    results=st.sampled_from((2, 4)), wide=st.booleans(),
)  # fmt: skip
def test_convolutions_are_those_of_pytorch(batch, inputs, outputs, height, width, padding, unit, results, wide):
    if min(height, width) + 2 * padding < 3:
        return
    x, w = numbers(batch, inputs, height, width), numbers(outputs, inputs, 3, 3, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd, "_cost", lambda _, results: -results)
        try:
            candidates = kernel_of(x, w, padding, unit)[0].candidates
        except Unsupported:
            # A tensor expression with loops of one pass is simplified so far that its windows cannot be told any more.
            assert 1 in (height, width, height + 2 * padding - 2, width + 2 * padding - 2)
            return
        wanted = [each for each in candidates if each["results"] == results][-1 if wide else 0]
        close(convolve(x, w, padding, unit, wanted), expected(x, w, 1, padding, 1), TOLERANCE)


def symbolic_batch():
    batch = tirx.Var("n", "int64")
    x = te.placeholder((batch, 12, 9, 16), name="x")
    w = te.placeholder((32, 16, 3, 3), name="w")
    rc, ry, rx = (te.reduce_axis((0, size)) for size in (16, 3, 3))
    y = te.compute(
        (batch, 10, 7, 32), lambda n, y, z, o: te.sum(x[n, y + ry, z + rx, rc] * w[o, rc, ry, rx], axis=[rc, ry, rx])
    )
    return [x, w, y]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("batch", [1, 3])
def test_the_batch_may_be_a_symbol(batch):
    x, w = numbers(batch, 16, 12, 9), numbers(32, 16, 3, 3, seed=1)
    kernel = scheduled(winograd.schedule, symbolic_batch(), {1: w})
    result = run(kernel, [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w], (batch, 10, 7, 32))
    wanted = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w)).numpy().transpose(0, 2, 3, 1)
    close(result, wanted, TOLERANCE)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e20, 1e4, 2 * RATIO])
@pytest.mark.parametrize("place", [(0, 0), (5, 11), (23, 22)])
def test_an_element_that_stands_out_reaches_the_places_that_read_it_and_no_others(value, place):
    x, w = numbers(2, 16, 24, 23), numbers(32, 16, 3, 3, seed=1)
    x[0, 2, *place] = value
    with np.errstate(over="ignore"):
        wanted = expected(x, w, 1, 1, 1)
    result = convolve(x, w)
    np.testing.assert_array_equal(np.isfinite(result), np.isfinite(wanted))
    # What the element does not reach is as good as if it were not there.
    quiet = np.where(np.abs(wanted) < 1e3, wanted, 0)
    close(np.where(np.abs(wanted) < 1e3, result, 0), quiet, TOLERANCE)
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(result[finite], wanted[finite], rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("scale", [0.0, 1e-40, 1e-30, 1e-15, 1e10, 1e30])
def test_any_scale_of_all_numbers_keeps_its_digits(scale):
    x, w = numbers(1, 16, 12, 12) * np.float32(scale), numbers(16, 16, 3, 3, seed=1)
    close(convolve(x, w), expected(x, w, 1, 1, 1), TOLERANCE)


@pytest.mark.usefixtures("always")
def test_weights_that_stand_out_have_the_direct_kernel():
    x, w = numbers(1, 64, 16, 16), numbers(16, 64, 3, 3, seed=1)
    for value in (1e5, np.inf, np.nan):
        w[3, 5, 1, 1] = value
        with pytest.raises(Unsupported, match="weights"):
            kernel_of(x, w)


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "reason"),
    [(8, 32, 32, "too few"), (32, 8, 32, "too few"), (32, 33, 32, "whole vectors"), (512, 512, 4, "too small")],
)
def test_what_does_not_pay_is_refused_with_the_reason(inputs, outputs, size, reason):
    with pytest.raises(Unsupported, match=reason):
        kernel_of(numbers(1, inputs, size, size), numbers(outputs, inputs, 3, 3))


def test_other_taps_and_layouts_are_refused():
    for k, stride, dilation in ((1, 1, 1), (5, 1, 1), (3, 2, 1), (3, 1, 2)):
        tensors, _ = convolved((1, 32, 32, 32), (32, 32, k, k), stride, k // 2, dilation)
        with pytest.raises(Unsupported, match="3 x 3"):
            scheduled(winograd.schedule, tensors, {1: numbers(32, 32, k, k)})
    tensors, _ = convolved((1, 32, 32, 32), (32, 32, 3, 3), 1, 1, 1, last=False)
    with pytest.raises(Unsupported, match="channels last"):
        scheduled(winograd.schedule, tensors, {1: numbers(32, 32, 3, 3)})


def test_the_direct_kernel_may_be_chosen():
    x, w = numbers(1, 32, 32, 32), numbers(32, 32, 3, 3, seed=1)
    kernel, out = kernel_of(x, w)
    direct = next(each for each in kernel.candidates if not each["results"])
    chosen, _ = kernel_of(x, w, wanted=direct)
    assert chosen.name == convolution.NAME
    assert chosen.candidates == kernel.candidates
    close(run(chosen, [np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w], out), expected(x, w, 1, 1, 1))


def test_two_threads_have_equal_shares():
    tensors, _ = convolved((1, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1)
    for parallel in (False, True):
        kernel = scheduled(winograd.schedule, tensors, {1: numbers(64, 64, 3, 3)}, parallel=parallel)
        # 14 rows of blocks, by two: 7 groups would be the same work for one thread.
        assert kernel.parameters["groups_of_blocks"] == (14 if parallel else 7)
