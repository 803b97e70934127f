"""Gathers bindings that stand outside of dataflow blocks into such blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.catalogue import option
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ConvertToDataflow:
    """Gathers bindings that stand outside of dataflow blocks into such blocks.

    Fusion and folding look into dataflow blocks only. An imported model is one block but for its checks of indices;
    after to_non_dataflow this brings the blocks back.
    """

    name: ClassVar[str] = "convert_to_dataflow"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        lv = R.exp(x)
        gv = R.negative(lv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            gv = R.negative(lv)
            R.output(gv)
        return gv
"""

    min_size: int = option(2, "The fewest bindings that are worth a block.", minimum=1, maximum=1000)

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ConvertToDataflow(self.min_size)(mod)
