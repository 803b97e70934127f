"""Lowers exp, erf, tanh and softmax to polynomials that are faster and not quite exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class FastMathTransform:
    """Lowers exp, erf, tanh and softmax to polynomials that are faster and not quite exact.

    In float32 the errors are about 2e-7, but erf loses NaN: a model with erf (GELU) needs `"special_values": "report"`.
    In float16, erf is wrong by 1 %, which verification refuses. Other operators are left to the lowering that follows.
    """

    name: ClassVar[str] = "fast_math_transform"
    stage: ClassVar[Stage] = Stage.LOWERING
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            lv = R.tanh(x)
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\

@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def fast_tanh(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), T_fast_tanh: T.Buffer((T.int64(4), T.int64(8)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        T_minimum = T.sblock_alloc_buffer((T.int64(4), T.int64(8)))
        T_maximum = T.sblock_alloc_buffer((T.int64(4), T.int64(8)))
        for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("T_minimum"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(x[v_ax0, v_ax1])
                T.writes(T_minimum[v_ax0, v_ax1])
                T_minimum[v_ax0, v_ax1] = T.min(T.float32(9.0), x[v_ax0, v_ax1])
        for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("T_maximum"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(T_minimum[v_ax0, v_ax1])
                T.writes(T_maximum[v_ax0, v_ax1])
                T_maximum[v_ax0, v_ax1] = T.max(T.float32(-9.0), T_minimum[v_ax0, v_ax1])
        for ax0, ax1 in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("T_fast_tanh"):
                v_ax0, v_ax1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(T_maximum[v_ax0, v_ax1])
                T.writes(T_fast_tanh[v_ax0, v_ax1])
                T_fast_tanh[v_ax0, v_ax1] = T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * T.float32(-2.76076847742355e-16) + T.float32(2.0001879048247699e-13)) + T.float32(-8.60467152213735e-11)) + T.float32(5.1222970903711401e-08)) + T.float32(1.4857223571797901e-05)) + T.float32(0.00063726192887543596)) + T.float32(0.0048935245589178597)) / (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * (T_maximum[v_ax0, v_ax1] * T_maximum[v_ax0, v_ax1] * T.float32(1.1982583946670199e-06) + T.float32(0.000118534705686654)) + T.float32(0.0022684346324390002)) + T.float32(0.0048935251855438504))

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32")) -> R.Tensor((4, 8), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.fast_tanh, (x,), out_ty=R.Tensor((4, 8), dtype="float32"))
            gv: R.Tensor((4, 8), dtype="float32") = R.nn.relu(lv)
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.FastMathTransform()(mod)
