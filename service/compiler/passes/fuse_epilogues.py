"""Maps after a matrix product or a convolution moved into it, across reshapes that only rename places in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir import Var

from service.compiler.report import Report
from service.compiler.schedules.call_fusor import CallFusor, ProgramCall
from service.compiler.schedules.computation import Computation, Program, inlined
from service.compiler.schedules.contraction import find_fold
from service.compiler.schedules.expressions import Unsupported, rewrite, size
from service.nouns import Stage

# Beyond so many subexpressions a map stays a function of its own.
_LARGEST_MAP = 600


@dataclass(frozen=True)
class FuseEpilogues:
    """Moves the maps after a matrix product, a convolution or another fold into its function.

    fuse_ops does not fuse across a reshape. A reshape moves nothing in memory, so a map behind one still reads and
    writes the elements of the fold in their order: activation, residual and scale after the reshaped result of a
    matrix product are computed before it is stored for the first time. A result that something else reads too, and a
    map that reads elements in another order, are left alone.
    """

    name: ClassVar[str] = "fuse_epilogues"
    stage: ClassVar[Stage] = Stage.SCHEDULE
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def matmul(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), w: T.Buffer((T.int64(8), T.int64(6)), "float32"), matmul: T.Buffer((T.int64(4), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, k in T.grid(T.int64(4), T.int64(6), T.int64(8)):
            with T.sblock("matmul"):
                v_i0, v_i1, v_k = T.axis.remap("SSR", [i0, i1, k])
                T.reads(x[v_i0, v_k], w[v_k, v_i1])
                T.writes(matmul[v_i0, v_i1])
                with T.init():
                    matmul[v_i0, v_i1] = T.float32(0.0)
                matmul[v_i0, v_i1] = matmul[v_i0, v_i1] + x[v_i0, v_k] * w[v_k, v_i1]

    @T.prim_func(private=True, s_tir=True)
    def relu(lv1: T.Buffer((T.int64(2), T.int64(2), T.int64(6)), "float32"), relu: T.Buffer((T.int64(2), T.int64(2), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(2), T.int64(6)):
            with T.sblock("relu"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(lv1[v_i0, v_i1, v_i2])
                T.writes(relu[v_i0, v_i1, v_i2])
                relu[v_i0, v_i1, v_i2] = T.Select(lv1[v_i0, v_i1, v_i2] < T.float32(0.0), T.float32(0.0), lv1[v_i0, v_i1, v_i2])

    @T.prim_func(private=True, s_tir=True)
    def reshape(lv: T.Buffer((T.int64(4), T.int64(6)), "float32"), T_reshape: T.Buffer((T.int64(2), T.int64(2), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for ax0, ax1, ax2 in T.grid(T.int64(2), T.int64(2), T.int64(6)):
            with T.sblock("T_reshape"):
                v_ax0, v_ax1, v_ax2 = T.axis.remap("SSS", [ax0, ax1, ax2])
                T.reads(lv[(v_ax0 * T.int64(2) + v_ax2 // T.int64(6) + v_ax1) % T.int64(4), v_ax2 % T.int64(6)])
                T.writes(T_reshape[v_ax0, v_ax1, v_ax2])
                T_reshape[v_ax0, v_ax1, v_ax2] = lv[(v_ax0 * T.int64(2) + v_ax2 // T.int64(6) + v_ax1) % T.int64(4), v_ax2 % T.int64(6)]

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), w: R.Tensor((8, 6), dtype="float32")) -> R.Tensor((2, 2, 6), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.matmul, (x, w), out_ty=R.Tensor((4, 6), dtype="float32"))
            lv1 = R.call_tir(cls.reshape, (lv,), out_ty=R.Tensor((2, 2, 6), dtype="float32"))
            gv = R.call_tir(cls.relu, (lv1,), out_ty=R.Tensor((2, 2, 6), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def matmul_reshape_relu(p0: T.Buffer((T.int64(4), T.int64(8)), "float32"), p1: T.Buffer((T.int64(8), T.int64(6)), "float32"), map: T.Buffer((T.int64(2), T.int64(2), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        sum = T.sblock_alloc_buffer((T.int64(4), T.int64(6)))
        for i0, i1, k0 in T.grid(T.int64(4), T.int64(6), T.int64(8)):
            with T.sblock("sum"):
                v_i0, v_i1, v_k0 = T.axis.remap("SSR", [i0, i1, k0])
                T.reads(p0[v_i0, v_k0], p1[v_k0, v_i1])
                T.writes(sum[v_i0, v_i1])
                with T.init():
                    sum[v_i0, v_i1] = T.float32(0.0)
                sum[v_i0, v_i1] = sum[v_i0, v_i1] + p0[v_i0, v_k0] * p1[v_k0, v_i1]
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(2), T.int64(6)):
            with T.sblock("map"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(sum[(v_i0 * T.int64(2) + v_i2 // T.int64(6) + v_i1) % T.int64(4), v_i2 % T.int64(6)])
                T.writes(map[v_i0, v_i1, v_i2])
                map[v_i0, v_i1, v_i2] = T.Select(sum[(v_i0 * T.int64(2) + v_i2 // T.int64(6) + v_i1) % T.int64(4), v_i2 % T.int64(6)] < T.float32(0.0), T.float32(0.0), sum[(v_i0 * T.int64(2) + v_i2 // T.int64(6) + v_i1) % T.int64(4), v_i2 % T.int64(6)])

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), w: R.Tensor((8, 6), dtype="float32")) -> R.Tensor((2, 2, 6), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.matmul_reshape_relu, (x, w), out_ty=R.Tensor((2, 2, 6), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        fusor = _Fusor(mod)
        fused = fusor.fused()
        if fusor.count:
            report.notes.append(f"{fusor.count} functions moved into the one whose result they read.")
        return fused


@relax.expr_functor.mutator
class _Fusor(CallFusor):
    def fuse_call(self, binding: Any, own: ProgramCall) -> None:
        new = self.visit_expr(binding.var)
        for index, (original, operand) in enumerate(zip(binding.value.args[1].fields, own.operands, strict=True)):
            before = self.calls.get(operand) if isinstance(operand, relax.Var) else None
            if before is None or self.dataflow.uses(original) != 1:
                continue
            merged = _merged(before, own, index)
            if merged is None:
                continue
            new = self.replace(binding, self.add(merged.program, merged.name), merged.operands)
            self.count += 1
            own = merged
            break
        if own.program.folds() and isinstance(binding.var, relax.DataflowVar):
            self.calls[new] = own


def _merged(before: ProgramCall, after: ProgramCall, index: int) -> ProgramCall | None:
    """`after` with the computation of its operand `index`, which is the result of `before`; None if that cannot be."""
    after = _apart(before, after)
    source, result = after.program.inputs[index], before.program.outputs[0]
    if after.program.folds() or any(size(each.value) > _LARGEST_MAP for each in after.program.computations):
        return None

    def on_load(buffer: Any, indices: list[Any]) -> Any:
        return tirx.BufferLoad(result, indices) if buffer.same_as(source) else None

    moved = tuple(
        Computation(each.buffer, each.axes, rewrite(each.value, {}, on_load)) for each in after.program.computations
    )
    others = [(buffer, operand) for buffer, operand in zip(after.program.inputs, after.operands, strict=True)
              if not buffer.same_as(source)]  # fmt: skip
    inputs = (*before.program.inputs, *(buffer for buffer, _ in others))
    outputs = after.program.outputs
    program = Program(inputs, outputs, (*before.program.computations, *moved), (*inputs, *outputs))
    try:
        find_fold(program)
        program = inlined(program)
    except Unsupported:
        return None
    operands = (*before.operands, *(operand for _, operand in others))
    return ProgramCall(program, operands, f"{before.name}_{after.name.removeprefix('fused_')}")


def _apart(before: ProgramCall, after: ProgramCall) -> ProgramCall:
    """`after` with buffers of its own where it calls a function that is in `before` already."""
    program = after.program
    taken = {*before.program.parameters, *(each.buffer for each in before.program.computations)}
    mine = {*program.parameters, *(each.buffer for each in program.computations)}
    fresh = {buffer: Var(str(buffer.name), buffer.ty) for buffer in mine & taken}
    if not fresh:
        return after

    def own(buffer: Any) -> Any:
        return fresh.get(buffer, buffer)

    def on_load(buffer: Any, indices: list[Any]) -> Any:
        return tirx.BufferLoad(fresh[buffer], indices) if buffer in fresh else None

    computations = tuple(
        replace(each, buffer=own(each.buffer), value=rewrite(each.value, {}, on_load)) for each in program.computations
    )
    inputs, outputs, parameters = (
        tuple(map(own, buffers)) for buffers in (program.inputs, program.outputs, program.parameters)
    )
    return replace(after, program=Program(inputs, outputs, computations, parameters))
