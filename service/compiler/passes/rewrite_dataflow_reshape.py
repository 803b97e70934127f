"""Makes kernels that only copy elements in order into reshapes, which copy nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class RewriteDataflowReshape:
    """Makes kernels that only copy elements in order into reshapes, which copy nothing.

    The build does this in any case; as a pass it shows which kernels are reshapes, and keeps fuse_ops from drawing them
    into groups, where they become loops again.
    """

    name: ClassVar[str] = "rewrite_dataflow_reshape"
    stage: ClassVar[Stage] = Stage.LOWERING
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def reshape(x: T.Buffer((T.int64(4),), "float32"), T_reshape: T.Buffer((T.int64(2), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        for ax0, ax1 in T.grid(T.int64(2), T.int64(2)):
            with T.sblock("T_reshape"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T_reshape[v_ax0, v_ax1] = x[v_ax0 * T.int64(2) + v_ax1]

    @T.prim_func(private=True, s_tir=True)
    def exp(x: T.Buffer((T.int64(2), T.int64(2)), "float32"), y: T.Buffer((T.int64(2), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(T.int64(2), T.int64(2)):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = T.exp(x[v_i, v_j])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.reshape, (x,), out_ty=R.Tensor((2, 2), "float32"))
            gv = R.call_tir(cls.exp, (lv,), out_ty=R.Tensor((2, 2), "float32"))
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def reshape(x: T.Buffer((T.int64(4),), "float32"), T_reshape: T.Buffer((T.int64(2), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        for ax0, ax1 in T.grid(T.int64(2), T.int64(2)):
            with T.sblock("T_reshape"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T_reshape[v_ax0, v_ax1] = x[v_ax0 * T.int64(2) + v_ax1]

    @T.prim_func(private=True, s_tir=True)
    def exp(x: T.Buffer((T.int64(2), T.int64(2)), "float32"), y: T.Buffer((T.int64(2), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(T.int64(2), T.int64(2)):
            with T.sblock("y"):
                v_i, v_j = T.axis.remap("SS", [i, j])
                y[v_i, v_j] = T.exp(x[v_i, v_j])

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((2, 2), "float32"):
        cls = Module
        with R.dataflow():
            lv: R.Tensor((2, 2), "float32") = R.reshape(x, R.shape([2, 2]))
            gv = R.call_tir(cls.exp, (lv,), out_ty=R.Tensor((2, 2), "float32"))
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.RewriteDataflowReshape()(mod)
