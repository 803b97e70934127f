"""TVM's own lowering of Relax operators to TensorIR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule

from service.compiler.operator_map import legalize
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class LegalizeOps:
    """Lowers every Relax operator to a call of a TensorIR function, by TVM's own rules.

    The sub-functions that a fusion has grouped stay grouped; fuse_tir makes one kernel of each. An operator for which
    TVM has no rule stays as it is.
    """

    name: ClassVar[str] = "legalize_ops"
    stage: ClassVar[Stage] = Stage.LOWERING
    needs: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[tuple[str, ...]] = ("tensorir",)
    takes: ClassVar[tuple[str, ...]] = ("operators",)
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), b: R.Tensor((8,), "float32")):
        with R.dataflow():
            lv = R.add(x, b)
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def add(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), b: T.Buffer((T.int64(8),), "float32"), T_add: T.Buffer((T.int64(4), T.int64(8)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("T_add"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(x[v_ax0, v_ax1], b[v_ax1])
                T.writes(T_add[v_ax0, v_ax1])
                T_add[v_ax0, v_ax1] = x[v_ax0, v_ax1] + b[v_ax1]

    @T.prim_func(private=True, s_tir=True)
    def relu(lv: T.Buffer((T.int64(4), T.int64(8)), "float32"), relu: T.Buffer((T.int64(4), T.int64(8)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1 in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("relu"):
                v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                T.reads(lv[v_i0, v_i1])
                T.writes(relu[v_i0, v_i1])
                relu[v_i0, v_i1] = T.Select(lv[v_i0, v_i1] < T.float32(0.0), T.float32(0.0), lv[v_i0, v_i1])

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), b: R.Tensor((8,), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.add, (x, b), out_ty=R.Tensor((4, 8), dtype="float32"))
            gv = R.call_tir(cls.relu, (lv,), out_ty=R.Tensor((4, 8), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return legalize(mod)
