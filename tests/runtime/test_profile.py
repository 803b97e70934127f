"""The times of kernels, and what the machine can do."""

from __future__ import annotations

import numpy as np
import tvm

from service.compiler.build import build_executable
from service.compiler.passes.fuse_tir import FuseTIR
from service.compiler.target import tvm_target
from service.nouns import Target
from service.runtime import machine_peak
from service.runtime.machine_peak import measure_peak
from service.runtime.profile import profile
from service.runtime.session import Session
from tests.compiler.conftest import module_of


def test_each_function_is_timed_and_counted() -> None:
    session = Session(build_executable(module_of(FuseTIR.after), tvm_target(Target())))
    inputs = [np.ones((4, 8), np.float32), np.ones((8,), np.float32)][: len(module_of(FuseTIR.after)["main"].params)]
    before = session.run(inputs)
    measured = profile(session, inputs, 4)
    functions = {each["function"]: each for each in measured["functions"]}
    assert measured["runs"] == 4
    assert functions["fused_add_relu"]["calls"] == 1
    assert 0 < functions["fused_add_relu"]["min_us"] <= functions["fused_add_relu"]["median_us"]
    assert measured["total"]["median_us"] > 0
    for after, same in zip(session.run(inputs), before, strict=True):
        np.testing.assert_array_equal(after, same)


def test_the_machine_is_measured() -> None:
    peak = measure_peak()
    assert 1e9 < peak.flops_per_s < 1e13
    assert 1e8 < peak.bytes_per_s < 1e13


def test_what_is_measured_is_what_is_computed() -> None:
    """An optimiser that drops the work would make the peak as high as one likes."""
    target = tvm.target.Target("llvm")
    count = machine_peak._ACCUMULATORS * 8
    read = tvm.tirx.build(tvm.IRModule({"peak": machine_peak._reads(8, 5)}), target=target)["peak"]
    stream = np.random.default_rng(0).standard_normal((5, count)).astype(np.float32)
    sums = tvm.runtime.tensor(np.zeros(count, np.float32))
    read(tvm.runtime.tensor(stream.reshape(-1)), sums)
    np.testing.assert_allclose(sums.numpy(), stream.sum(0), rtol=1e-5, atol=1e-6)
    multiply_add = tvm.tirx.build(tvm.IRModule({"peak": machine_peak._multiply_adds(8)}), target=target)["peak"]
    sums = tvm.runtime.tensor(np.zeros(count, np.float32))
    multiply_add(tvm.runtime.tensor(np.full(8, 0.5, np.float32)), sums)
    np.testing.assert_allclose(sums.numpy(), 1.0, rtol=1e-6)
