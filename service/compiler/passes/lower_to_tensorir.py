"""Lowering by an operator map, as the MLC lecture teaches it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax

from service.compiler.dataflow import rewrite_functions
from service.compiler.operator_map import OPERATORS, has_legalizer_rule, legalize, lower
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class LowerToTensorIR:
    """Lowers Relax operators to TensorIR functions by a map from operators to tensor expressions.

    The map has the operators of multi-layer networks: matmul, permute_dims, arithmetic, activations, reshape and
    softmax. What it does not have goes to TVM's legalizer, and a note says which operators and how many. The
    sub-functions that a fusion has grouped stay grouped; fuse_tir makes one kernel of each.
    """

    name: ClassVar[str] = "lower_to_tensorir"
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

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        lowerer = _Lowerer(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        mod = rewrite_functions(lowerer, mod)
        if lowerer.left:
            counts = ", ".join(f"{name} ({count})" for name, count in sorted(lowerer.left.items()))
            report.notes.append(f"Lowered by TVM's legalizer, not by the operator map: {counts}.")
            mod = legalize(mod)
        return mod


@relax.expr_functor.mutator
class _Lowerer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.left: Counter[str] = Counter()

    def visit_call_(self, op: Any) -> Any:
        call = super().visit_expr_post_order(op)
        name = getattr(call.op, "name", None)
        if name is None:
            return call
        rule = OPERATORS.get(name)
        expression = None if rule is None else rule(call)
        if expression is not None:
            return lower(self.builder_, call, expression)
        if has_legalizer_rule(call.op):
            self.left[name] += 1
        return call
