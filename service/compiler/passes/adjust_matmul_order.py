"""Chooses the order of a product of three matrices that needs the fewest multiplications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class AdjustMatmulOrder:
    """Chooses the order of a product of three matrices that needs the fewest multiplications.

    The result is rounded otherwise than before, as with any change of order.
    """

    name: ClassVar[str] = "adjust_matmul_order"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8,), "float32"), a: R.Tensor((2, 8), "float32"), b: R.Tensor((8, 2), "float32")):
        with R.dataflow():
            lv = R.matmul(b, a)
            lv1 = R.matmul(lv, x)
            gv = R.exp(lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8,), "float32"), a: R.Tensor((2, 8), "float32"), b: R.Tensor((8, 2), "float32")):
        with R.dataflow():
            lv: R.Tensor((2,), "float32") = R.matmul(a, x, out_dtype=None)
            lv1: R.Tensor((8,), "float32") = R.matmul(b, lv, out_dtype=None)
            gv: R.Tensor((8,), "float32") = R.exp(lv1)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.AdjustMatmulOrder()(mod)
