"""legalize_ops: the example of its documentation, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from service.compiler.passes.legalize_ops import LegalizeOps
from service.compiler.passes.lower_to_tensorir import LowerToTensorIR
from service.compiler.report import Report
from tests.compiler.conftest import module_of, run_module


def test_the_documented_example_is_what_the_pass_does() -> None:
    after = LegalizeOps().apply(module_of(LegalizeOps.before), Report())
    tvm.ir.assert_structural_equal(after, module_of(LegalizeOps.after))


def test_the_numbers_stay() -> None:
    before = module_of(LegalizeOps.before)
    shapes = [tuple(int(dim) for dim in param.ty.shape.values) for param in before["main"].params]
    generator = np.random.default_rng(3)
    inputs = [generator.standard_normal(shape).astype("float32") for shape in shapes]
    after = LegalizeOps().apply(before, Report())
    np.testing.assert_array_equal(run_module(after, *inputs)[0], run_module(before, *inputs)[0])


FMA = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            gv = R.ewise_fma(x, x, x)
            R.output(gv)
        return gv
"""


def test_ewise_fma_is_lowered_though_tvm_has_no_rule_for_it() -> None:
    after = LegalizeOps().apply(module_of(FMA), Report())
    assert "R.ewise_fma" not in after.script(show_meta=False)
    x = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    np.testing.assert_allclose(run_module(after, x)[0], x * x + x, rtol=1e-6, atol=1e-7)


def test_relu_keeps_nan_as_pytorch_does() -> None:
    text = FMA.replace("ewise_fma(x, x, x)", "nn.relu(x)")
    after = LegalizeOps().apply(module_of(text), Report())
    assert np.isnan(run_module(after, np.full((3, 4), np.nan, "float32"))[0]).all()


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_extrema_are_numpy_s_and_keep_nan(name: str, dtype: str) -> None:
    text = FMA.replace("ewise_fma(x, x, x)", f"{name}(x, y)").replace(
        '"float32")', f'"{dtype}"), y: R.Tensor((4,), "{dtype}")'
    )
    x = np.arange(12).reshape(3, 4).astype(dtype)
    y = np.array([5, 2, 9, 4], dtype)
    if dtype == "float32":
        x[0, 0] = y[1] = np.nan
    wanted = getattr(np, name)(x, y)
    for lowered in (LegalizeOps(), LowerToTensorIR()):
        np.testing.assert_array_equal(run_module(lowered.apply(module_of(text), Report()), x, y)[0], wanted)
