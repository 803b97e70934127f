"""Dissolves all dataflow blocks into plain bindings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ToNonDataflow:
    """Dissolves all dataflow blocks into plain bindings.

    Passes that look into dataflow blocks only, as fuse_ops and fold_constant do, find nothing after it; the build does
    the same at its end. convert_to_dataflow brings the blocks back.
    """

    name: ClassVar[str] = "to_non_dataflow"
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
            gv = R.negative(lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        lv = R.exp(x)
        gv = R.negative(lv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ToNonDataflow()(mod)
