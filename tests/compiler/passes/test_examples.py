"""Every pass of the Catalogue: its documented example is what it does, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from service.compiler.passes import Pass, make_pass, pass_class, pass_names
from service.compiler.report import Report
from service.nouns import PassSpec
from tests.compiler.conftest import module_of, run_module

# Passes that change the order of a sum round otherwise than before.
ROUNDING = {"adjust_matmul_order": 1e-5, "expand_matmul_of_sum": 1e-5, "decompose_ops_for_inference": 1e-5}


def rewrite(name: str) -> Pass:
    """The pass with the options of its example."""
    return make_pass(PassSpec(name, getattr(pass_class(name), "example_options", {})))


@pytest.mark.parametrize("name", pass_names())
def test_the_documented_example_is_what_the_pass_does(name: str) -> None:
    cls = pass_class(name)
    before = module_of(cls.before)
    after = rewrite(name).apply(before, Report())
    relax.analysis.well_formed(after)
    assert not tvm_ffi.structural_equal(before, after), "the example shows nothing"
    tvm.ir.assert_structural_equal(after, module_of(cls.after))


@pytest.mark.parametrize("name", pass_names())
def test_the_numbers_of_the_example_stay(name: str) -> None:
    before = module_of(pass_class(name).before)
    generator = np.random.default_rng(3)
    inputs = []
    for parameter in before["main"].params:
        shape = tuple(int(dim) for dim in parameter.ty.shape.values)
        inputs.append(np.abs(generator.standard_normal(shape)).astype(str(parameter.ty.dtype)))
    after = rewrite(name).apply(before, Report())
    for mine, theirs in zip(run_module(after, *inputs), run_module(before, *inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=ROUNDING.get(name, 2e-6), atol=1e-6)


@pytest.mark.parametrize("name", pass_names())
def test_a_second_time_the_pass_leaves_a_module_that_is_well_formed(name: str) -> None:
    once = rewrite(name).apply(module_of(pass_class(name).before), Report())
    relax.analysis.well_formed(rewrite(name).apply(once, Report()))
