"""Removes what nothing uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class DeadCodeElimination:
    """Removes bindings that nothing reads and functions that nothing calls."""

    name: ClassVar[str] = "dead_code_elimination"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.exp(x)
            gv = R.nn.relu(x)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            gv = R.nn.relu(x)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.DeadCodeElimination()(mod)
