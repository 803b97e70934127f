"""Computes at compile time what depends on constants alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class FoldConstant:
    """Computes at compile time what depends on constants alone, such as the transposition of a weight.

    Works on operators and on calls of TensorIR functions, but not inside the sub-functions that a fusion has grouped:
    there, constants are parameters. Slow where a recurrent network was unrolled into thousands of operators.
    """

    name: ClassVar[str] = "fold_constant"
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
            lv = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
            gv = R.add(x, lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            gv = R.add(x, R.const(3.0, "float32"))
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.FoldConstant()(mod)
