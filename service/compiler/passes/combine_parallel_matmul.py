"""Makes one matmul of several that share their left operand, such as the projections of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class CombineParallelMatmul:
    """Makes one matmul of several that share their left operand, such as the projections of attention.

    The right operands are concatenated, and the result is split. With constant weights, put fold_constant behind it:
    then the concatenation costs nothing at run time.
    """

    name: ClassVar[str] = "combine_parallel_matmul"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 4), "float32"),
        w0: R.Tensor((4, 3), "float32"),
        w1: R.Tensor((4, 3), "float32"),
    ):
        with R.dataflow():
            lv = R.matmul(x, w0)
            lv1 = R.matmul(x, w1)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((2, 4), "float32"),
        w0: R.Tensor((4, 3), "float32"),
        w1: R.Tensor((4, 3), "float32"),
    ):
        with R.dataflow():
            lv = R.concat((w0, w1), axis=1)
            lv1 = R.matmul(x, lv, out_dtype="float32")
            lv2 = R.split(lv1, indices_or_sections=[3], axis=1)
            lv_1 = lv2[0]
            lv1_1 = lv2[1]
            gv = R.add(lv_1, lv1_1)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.CombineParallelMatmul()(mod)
