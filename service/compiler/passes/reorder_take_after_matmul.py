"""Makes matmul(x, take(weights, indices)) into take(matmul(x, weights), indices)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ReorderTakeAfterMatmul:
    """Makes matmul(x, take(weights, indices)) into take(matmul(x, weights), indices).

    That reads the weights where they are instead of copying the chosen ones first; it costs more arithmetic where few
    are chosen.
    """

    name: ClassVar[str] = "reorder_take_after_matmul"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8), "float32"), w: R.Tensor((8, 16), "float32"), i: R.Tensor((4,), "int64")):
        with R.dataflow():
            lv = R.take(w, i, axis=1)
            gv = R.matmul(x, lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 8), "float32"), w: R.Tensor((8, 16), "float32"), i: R.Tensor((4,), "int64")):
        with R.dataflow():
            lv = R.matmul(x, w)
            gv = R.take(lv, i, axis=1)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ReorderTakeAfterMatmul()(mod)
