"""fuse_dense_add: which matmuls are grouped with which adds, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.dataflow import is_primitive
from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.report import Report
from tests.compiler.conftest import module_of, run_module

TWO_ADDS = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 2), "float32"), b: R.Tensor((2,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.add(b, lv)
            gv = R.multiply(lv1, lv2)
            R.output(gv)
        return gv
"""


def groups(mod: tvm.IRModule) -> list[str]:
    return sorted(gvar.name_hint for gvar, function in mod.functions.items() if is_primitive(function))


def inputs(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def test_a_transposed_weight_moves_into_the_group() -> None:
    before = module_of(FuseDenseAdd.before)
    after = FuseDenseAdd().apply(before, Report())
    tvm.ir.assert_structural_equal(after, module_of(FuseDenseAdd.after))
    values = inputs((4, 8), (2, 8), (2,))
    np.testing.assert_allclose(run_module(after, *values)[0], run_module(before, *values)[0], rtol=1e-5, atol=1e-6)


def test_the_matmul_may_be_the_right_operand() -> None:
    text = FuseDenseAdd.before.replace("R.add(lv1, b)", "R.add(b, lv1)")
    assert groups(FuseDenseAdd().apply(module_of(text), Report())) == ["fused_dense_add0"]


def test_a_matmul_that_feeds_two_adds_stays_one_matmul_and_a_note_names_it() -> None:
    before = module_of(TWO_ADDS)
    report = Report()
    tvm.ir.assert_structural_equal(FuseDenseAdd().apply(before, report), before)
    assert len(report.notes) == 1
    assert "'lv'" in report.notes[0]


def test_allow_duplicates_fuses_it_into_both() -> None:
    before = module_of(TWO_ADDS)
    after = FuseDenseAdd(allow_duplicates=True).apply(before, Report())
    assert groups(after) == ["fused_dense_add0", "fused_dense_add1"]
    values = inputs((4, 8), (8, 2), (2,))
    np.testing.assert_allclose(run_module(after, *values)[0], run_module(before, *values)[0], rtol=1e-5, atol=1e-6)


def test_equal_layers_share_one_sub_function_and_a_second_run_changes_nothing() -> None:
    before = module_of("""
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            lv = R.matmul(x, w)
            lv1 = R.add(lv, b)
            lv2 = R.matmul(lv1, w)
            gv = R.add(lv2, b)
            R.output(gv)
        return gv
""")
    once = FuseDenseAdd().apply(before, Report())
    assert groups(once) == ["fused_dense_add0"]
    tvm.ir.assert_structural_equal(FuseDenseAdd().apply(once, Report()), once)


def test_constants_become_arguments() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    weight, bias = (relax.const(value) for value in inputs((8, 2), (2,)))
    with builder.function("main", [x]):
        with builder.dataflow():
            gv = builder.emit_output(relax.op.add(builder.emit(relax.op.matmul(x, weight)), bias))
        builder.emit_func_output(gv)
    after = FuseDenseAdd().apply(builder.get(), Report())
    call = after["main"].body.blocks[0].bindings[-1].value
    assert len(call.args) == 3
    assert all(isinstance(each, type(weight)) for each in call.args[1:])


@pytest.mark.parametrize("shape", ['("n", 8)', '("n", "m", 8)'])
def test_symbolic_shapes_get_symbols_of_their_own(shape: str) -> None:
    text = FuseDenseAdd.before.replace("(4, 8)", shape)
    after = FuseDenseAdd().apply(module_of(text), Report())
    relax.analysis.well_formed(after)
    assert groups(after) == ["fused_dense_add0"]
