"""Computes once what is written twice: the same operator on the same values with the same attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class EliminateCommonSubexpr:
    """Computes once what is written twice: the same operator on the same values with the same attributes."""

    name: ClassVar[str] = "eliminate_common_subexpr"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            lv1 = R.exp(x)
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv: R.Tensor((4,), "float32") = R.exp(x)
            lv1: R.Tensor((4,), "float32") = lv
            gv: R.Tensor((4,), "float32") = R.add(lv, lv)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.EliminateCommonSubexpr()(mod)
