"""Removes reshapes that change nothing, and all but the last of several in a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class RemoveRedundantReshape:
    """Removes reshapes that change nothing, and all but the last of several in a row."""

    name: ClassVar[str] = "remove_redundant_reshape"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            lv = R.reshape(x, R.shape([3, 4]))
            lv1 = R.reshape(lv, R.shape([12]))
            gv = R.exp(lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 6), "float32")):
        with R.dataflow():
            lv1: R.Tensor((12,), "float32") = R.reshape(x, R.shape([12]))
            gv: R.Tensor((12,), "float32") = R.exp(lv1)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.RemoveRedundantReshape()(mod)
