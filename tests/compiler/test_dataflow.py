"""Definitions and uses of variables."""

from __future__ import annotations

from service.compiler.dataflow import Dataflow, is_primitive, relax_functions
from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.passes.fuse_tir import FuseTIR
from tests.compiler.conftest import module_of

MODULE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            lv1 = R.multiply(lv, lv)
            gv = R.add(lv1, x)
            R.output(gv)
        return gv
"""


def test_uses_count_every_read_and_the_result() -> None:
    main = module_of(MODULE)["main"]
    dataflow = Dataflow(main)
    lv, lv1, gv = (binding.var for binding in main.body.blocks[0].bindings)
    assert [dataflow.uses(var) for var in (main.params[0], lv, lv1, gv)] == [2, 2, 1, 1]


def test_a_definition_is_found_by_its_operator_only() -> None:
    main = module_of(MODULE)["main"]
    dataflow = Dataflow(main)
    lv = main.body.blocks[0].bindings[0].var
    assert dataflow.call_of(lv, "relax.exp") is not None
    assert dataflow.call_of(lv, "relax.add") is None
    assert dataflow.call_of(main.params[0], "relax.exp") is None


def test_groups_and_relax_functions_are_told_apart() -> None:
    names = {
        gvar.name_hint: is_primitive(function) for gvar, function in relax_functions(module_of(FuseDenseAdd.after))
    }
    assert names == {"fused_dense_add0": True, "main": False}
    assert [gvar.name_hint for gvar, _ in relax_functions(module_of(FuseTIR.after))] == ["main"]
