"""Multiply and add in one operator, the first fusion of the MLC lecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import tvm_ffi
from tvm import IRModule, relax

from service.compiler.dataflow import Dataflow, is_call, relax_functions
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class FuseEwiseFMA:
    """Replaces a multiply that only feeds an add by one `relax.ewise_fma`.

    The multiply may be either operand of the add. All three operands must have the same shape and the same floating
    point dtype, because `ewise_fma` does not broadcast. A multiply that something else reads too is left alone, so
    that nothing is computed twice; a note says how many there were.
    """

    name: ClassVar[str] = "fuse_ewise_fma"
    stage: ClassVar[Stage] = Stage.FUSION
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32"), z: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.multiply(x, y)
            gv = R.add(lv, z)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32"), z: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            gv = R.ewise_fma(x, y, z)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        shared = 0
        for gvar, function in relax_functions(mod):
            fusor = _Fusor(mod, function)
            rewritten = fusor.visit_expr(function)
            shared += fusor.shared
            if fusor.fused:
                mod = IRModule(dict(mod.functions.items()), attrs=mod.attrs)
                mod[gvar] = relax.analysis.remove_all_unused(rewritten)
        if shared:
            report.notes.append(f"{shared} multiply-add pairs were left: something else reads the product too.")
        return mod


@relax.expr_functor.mutator
class _Fusor(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, function: relax.Function) -> None:
        super().__init__(mod)
        self.dataflow = Dataflow(function)
        self.fused = 0
        self.shared = 0

    def visit_call_(self, op: Any) -> Any:
        if is_call(op, "relax.add"):
            for product, addend in (op.args, reversed(op.args)):
                multiply = self._fusable(product, addend)
                if multiply is not None:
                    self.fused += 1
                    operands = [self.visit_expr(operand) for operand in (*multiply.args, addend)]
                    return relax.op.ewise_fma(*operands)
        return super().visit_expr_post_order(op)

    def _fusable(self, product: Any, addend: Any) -> Any:
        multiply = self.dataflow.call_of(product, "relax.multiply")
        if multiply is None or not _same_float_tensors((*multiply.args, addend)):
            return None
        if not self.dataflow.reaches(product, multiply):
            return None
        if self.dataflow.uses(product) > 1:
            self.shared += 1
            return None
        return multiply


def _same_float_tensors(operands: tuple[Any, ...]) -> bool:
    types = [operand.ty for operand in operands]
    if not all(isinstance(ty, relax.TensorType) and isinstance(ty.shape, relax.ShapeExpr) for ty in types):
        return False
    if "float" not in str(types[0].dtype):
        return False
    return all(tvm_ffi.structural_equal(types[0], ty) for ty in types[1:])
