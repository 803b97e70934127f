"""The times of kernels, and what the machine can do."""

from __future__ import annotations

import numpy as np

from service.compiler.build import build_executable
from service.compiler.passes.fuse_tir import FuseTIR
from service.compiler.target import tvm_target
from service.nouns import Target
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
