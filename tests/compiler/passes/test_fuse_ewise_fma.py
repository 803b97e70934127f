"""fuse_ewise_fma: what fuses, what must not, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from service.compiler.passes.fuse_ewise_fma import FuseEwiseFMA
from service.compiler.report import Report
from tests.compiler.conftest import module_of, run_module

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(({rows}, 8), "{dtype}"), y: R.Tensor((4, 8), "{dtype}"), z: R.Tensor((4, 8), "{dtype}")):
        with R.dataflow():
            {body}
            R.output(gv)
        return gv
"""


def module(*lines: str, dtype: str = "float32", rows: int = 4) -> tvm.IRModule:
    return module_of(MODULE.format(body="\n            ".join(lines), dtype=dtype, rows=rows))


@pytest.mark.parametrize("addition", ["R.add(lv, z)", "R.add(z, lv)"])
def test_a_product_fuses_into_the_add_on_either_side(addition: str) -> None:
    before = module("lv = R.multiply(x, y)", f"gv = {addition}")
    after = FuseEwiseFMA().apply(before, Report())
    tvm.ir.assert_structural_equal(after, module("gv = R.ewise_fma(x, y, z)"))
    inputs = [np.random.default_rng(seed).standard_normal((4, 8)).astype("float32") for seed in range(3)]
    np.testing.assert_allclose(run_module(after, *inputs)[0], run_module(before, *inputs)[0], rtol=1e-6, atol=1e-6)


def test_a_product_with_two_readers_stays_and_a_note_says_so() -> None:
    before = module("lv = R.multiply(x, y)", "lv1 = R.add(lv, z)", "gv = R.subtract(lv1, lv)")
    report = Report()
    tvm.ir.assert_structural_equal(FuseEwiseFMA().apply(before, report), before)
    assert len(report.notes) == 1


@pytest.mark.parametrize(("dtype", "rows"), [("int32", 4), ("float32", 1)])
def test_integers_and_broadcasts_stay(dtype: str, rows: int) -> None:
    before = module("lv = R.multiply(x, y)", "gv = R.add(lv, z)", dtype=dtype, rows=rows)
    tvm.ir.assert_structural_equal(FuseEwiseFMA().apply(before, Report()), before)


def test_a_product_whose_operands_ended_with_their_block_stays() -> None:
    before = module_of("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            gv = R.multiply(lv, y)
            R.output(gv)
        with R.dataflow():
            gv1 = R.add(gv, y)
            R.output(gv1)
        return gv1
""")
    tvm.ir.assert_structural_equal(FuseEwiseFMA().apply(before, Report()), before)


def test_the_module_given_is_not_changed() -> None:
    before, twin = (module("lv = R.multiply(x, y)", "gv = R.add(lv, z)") for _ in range(2))
    FuseEwiseFMA().apply(before, Report())
    tvm.ir.assert_structural_equal(before, twin)
