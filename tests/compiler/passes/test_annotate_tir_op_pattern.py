"""annotate_tir_op_pattern: the example of its documentation, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import tvm

from service.compiler.passes.annotate_tir_op_pattern import AnnotateTIROpPattern
from service.compiler.report import Report
from tests.compiler.conftest import module_of, run_module


def test_the_documented_example_is_what_the_pass_does() -> None:
    after = AnnotateTIROpPattern().apply(module_of(AnnotateTIROpPattern.before), Report())
    tvm.ir.assert_structural_equal(after, module_of(AnnotateTIROpPattern.after))


def test_the_numbers_stay() -> None:
    before = module_of(AnnotateTIROpPattern.before)
    shapes = [tuple(int(dim) for dim in param.ty.shape.values) for param in before["main"].params]
    generator = np.random.default_rng(3)
    inputs = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    after = AnnotateTIROpPattern().apply(before, Report())
    np.testing.assert_array_equal(run_module(after, *inputs)[0], run_module(before, *inputs)[0])
