"""Removes bindings that only give another name to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class CanonicalizeBindings:
    """Removes bindings that only give another name to a value.

    Makes the text of a module shorter and the patterns of later passes match; nothing is computed otherwise.
    """

    name: ClassVar[str] = "canonicalize_bindings"
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
            lv = x
            lv1 = R.add(lv, lv)
            lv2 = lv1
            gv = R.multiply(lv2, x)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv1: R.Tensor((4,), "float32") = R.add(x, x)
            gv: R.Tensor((4,), "float32") = R.multiply(lv1, x)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.CanonicalizeBindings()(mod)
