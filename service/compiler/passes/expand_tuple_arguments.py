"""Passes the fields of a tuple to private sub-functions one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ExpandTupleArguments:
    """Passes the fields of a tuple to private sub-functions one by one.

    A field that the sub-function does not read can then be removed by remove_unused_parameters.
    """

    name: ClassVar[str] = "expand_tuple_arguments"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            lv = p[0]
            lv1 = p[1]
            gv = R.add(lv, lv1)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4,), "float32") = cls.inner((x, y))
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(p_0: R.Tensor((4,), "float32"), p_1: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            gv = R.add(p_0, p_1)
            R.output(gv)
        return gv

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4,), "float32") = cls.inner(x, y)
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ExpandTupleArguments()(mod)
