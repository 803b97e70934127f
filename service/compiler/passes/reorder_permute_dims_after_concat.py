"""Concatenates first and transposes once, where several values are transposed alike and then concatenated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ReorderPermuteDimsAfterConcat:
    """Concatenates first and transposes once, where several values are transposed alike and then concatenated."""

    name: ClassVar[str] = "reorder_permute_dims_after_concat"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            lv = R.permute_dims(x, axes=[1, 0])
            lv1 = R.permute_dims(y, axes=[1, 0])
            lv2 = R.concat((lv, lv1), axis=1)
            gv = R.exp(lv2)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), y: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            lv: R.Tensor((4, 4), "float32") = R.concat((x, y), axis=0)
            lv2: R.Tensor((4, 4), "float32") = R.permute_dims(lv, axes=[1, 0])
            gv: R.Tensor((4, 4), "float32") = R.exp(lv2)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ReorderPermuteDimsAfterConcat()(mod)
