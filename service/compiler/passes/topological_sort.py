"""Orders the bindings of each dataflow block anew, without changing what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.catalogue import option
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class TopologicalSort:
    """Orders the bindings of each dataflow block anew, without changing what they compute.

    Depth first keeps a value close to where it is read, so fewer tensors live at a time; breadth first puts independent
    bindings side by side.
    """

    name: ClassVar[str] = "topological_sort"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            lv1 = R.exp(y)
            lv2 = R.negative(lv)
            lv3 = R.negative(lv1)
            gv = R.add(lv2, lv3)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), y: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            lv2 = R.negative(lv)
            lv1 = R.exp(y)
            lv3 = R.negative(lv1)
            gv = R.add(lv2, lv3)
            R.output(gv)
        return gv
"""

    order: str = option("depth-first", "How the graph is walked.", choices=("depth-first", "breadth-first"))
    direction: str = option("from-inputs", "Where the walk begins.", choices=("from-inputs", "from-outputs"))

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.TopologicalSort(self.order, self.direction)(mod)
