"""Makes a matmul with the transpose of its right operand into one kernel that reads that operand by rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class FuseTransposeMatmul:
    """Makes a matmul with the transpose of its right operand into one kernel that reads that operand by rows.

    `torch.nn.Linear` is imported so. The kernel copies nothing, and reads both operands in the order in which they lie
    in memory. Without this pass the transposition is a kernel of its own, or is done at compile time by fold_constant.
    """

    name: ClassVar[str] = "fuse_transpose_matmul"
    stage: ClassVar[Stage] = Stage.FUSION
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((2, 8), "float32")):
        with R.dataflow():
            lv = R.permute_dims(w)
            gv = R.matmul(x, lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def NT_matmul(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), w: T.Buffer((T.int64(2), T.int64(8)), "float32"), NT_matmul: T.Buffer((T.int64(4), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i0, i1, k in T.grid(T.int64(4), T.int64(2), T.int64(8)):
            with T.sblock("NT_matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                with T.init():
                    NT_matmul[v_i0, v_i1] = T.float32(0.0)
                NT_matmul[v_i0, v_i1] = NT_matmul[v_i0, v_i1] + x[v_i0, v_k] * w[v_i1, v_k]

    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((2, 8), "float32")):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.NT_matmul, (x, w), out_ty=R.Tensor((4, 2), "float32"))
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.DeadCodeElimination()(relax.transform.FuseTransposeMatmul()(mod))
