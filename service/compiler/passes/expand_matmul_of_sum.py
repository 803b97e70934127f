"""Writes the product with a sum of matrices as the sum of products: x (A + B) as x A + x B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ExpandMatmulOfSum:
    """Writes the product with a sum of matrices as the sum of products: x (A + B) as x A + x B.

    Undone by nothing here, and rounded otherwise than before: of use where A is large and shared and B is small, as in
    low-rank adapters.
    """

    name: ClassVar[str] = "expand_matmul_of_sum"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), a: R.Tensor((4, 3), "float32"), b: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            lv = R.add(a, b)
            lv1 = R.matmul(x, lv)
            gv = R.exp(lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), a: R.Tensor((4, 3), "float32"), b: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            lv: R.Tensor((2, 3), "float32") = R.matmul(x, a, out_dtype=None)
            lv1: R.Tensor((2, 3), "float32") = R.matmul(x, b, out_dtype=None)
            lv1_1: R.Tensor((2, 3), "float32") = R.add(lv, lv1)
            gv: R.Tensor((2, 3), "float32") = R.exp(lv1_1)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ExpandMatmulOfSum()(mod)
