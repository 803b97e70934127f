"""Views of tensors moved into the matrix products of computed operands that read them, as in attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir.prim import expr as prim

from service.compiler.report import Report
from service.compiler.schedules.call_fusor import CallFusor, ProgramCall
from service.compiler.schedules.computation import Computation, Program, shape_of
from service.compiler.schedules.contraction import find_contraction, is_load
from service.compiler.schedules.expressions import Unsupported, integer, loads, rewrite
from service.nouns import Stage


@dataclass(frozen=True)
class FuseViews:
    """Moves slices, reshapes and transpositions of tensors into the matrix products that read their results.

    In attention the heads are cut out of one projection and transposed before they are multiplied. The kernel of a
    product of two computed tensors packs one operand anyway and can read the other at any place, so that neither needs
    to be written once more. A view may scale what it reads by a number. Operands that are constants are left alone,
    they are packed at compile time, and so are views that something else than a product reads: they stay for it.
    """

    name: ClassVar[str] = "fuse_views"
    stage: ClassVar[Stage] = Stage.SCHEDULE
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def heads(x: T.Buffer((T.int64(4), T.int64(8)), "float32"), heads: T.Buffer((T.int64(2), T.int64(4), T.int64(4)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2 in T.grid(T.int64(2), T.int64(4), T.int64(4)):
            with T.sblock("heads"):
                v_i0, v_i1, v_i2 = T.axis.remap("SSS", [i0, i1, i2])
                T.reads(x[v_i1, v_i0 * T.int64(4) + v_i2])
                T.writes(heads[v_i0, v_i1, v_i2])
                heads[v_i0, v_i1, v_i2] = x[v_i1, v_i0 * T.int64(4) + v_i2]

    @T.prim_func(private=True, s_tir=True)
    def matmul(a: T.Buffer((T.int64(2), T.int64(4), T.int64(4)), "float32"), b: T.Buffer((T.int64(2), T.int64(4), T.int64(6)), "float32"), matmul: T.Buffer((T.int64(2), T.int64(4), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, k in T.grid(T.int64(2), T.int64(4), T.int64(6), T.int64(4)):
            with T.sblock("matmul"):
                v_i0, v_i1, v_i2, v_k = T.axis.remap("SSSR", [i0, i1, i2, k])
                T.reads(a[v_i0, v_i1, v_k], b[v_i0, v_k, v_i2])
                T.writes(matmul[v_i0, v_i1, v_i2])
                with T.init():
                    matmul[v_i0, v_i1, v_i2] = T.float32(0.0)
                matmul[v_i0, v_i1, v_i2] = matmul[v_i0, v_i1, v_i2] + a[v_i0, v_i1, v_k] * b[v_i0, v_k, v_i2]

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), y: R.Tensor((2, 4, 6), dtype="float32")) -> R.Tensor((2, 4, 6), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.heads, (x,), out_ty=R.Tensor((2, 4, 4), dtype="float32"))
            gv = R.call_tir(cls.matmul, (lv, y), out_ty=R.Tensor((2, 4, 6), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def matmul_of_views(p0: T.Buffer((T.int64(4), T.int64(8)), "float32"), p1: T.Buffer((T.int64(2), T.int64(4), T.int64(6)), "float32"), sum: T.Buffer((T.int64(2), T.int64(4), T.int64(6)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, k0 in T.grid(T.int64(2), T.int64(4), T.int64(6), T.int64(4)):
            with T.sblock("sum"):
                v_i0, v_i1, v_i2, v_k0 = T.axis.remap("SSSR", [i0, i1, i2, k0])
                T.reads(p0[v_i1, v_i0 * T.int64(4) + v_k0], p1[v_i0, v_k0, v_i2])
                T.writes(sum[v_i0, v_i1, v_i2])
                with T.init():
                    sum[v_i0, v_i1, v_i2] = T.float32(0.0)
                sum[v_i0, v_i1, v_i2] = sum[v_i0, v_i1, v_i2] + p0[v_i1, v_i0 * T.int64(4) + v_k0] * p1[v_i0, v_k0, v_i2]

    @R.function
    def main(x: R.Tensor((4, 8), dtype="float32"), y: R.Tensor((2, 4, 6), dtype="float32")) -> R.Tensor((2, 4, 6), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.matmul_of_views, (x, y), out_ty=R.Tensor((2, 4, 6), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        fusor = _Fusor(mod)
        fused = fusor.fused()
        if fusor.count:
            report.notes.append(f"{fusor.count} views moved into the matrix products that read them.")
        return fused


@relax.expr_functor.mutator
class _Fusor(CallFusor):
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.written: dict[Any, Any] = {}

    def fuse_call(self, binding: Any, own: ProgramCall) -> None:
        if _is_view(own):
            if isinstance(binding.var, relax.DataflowVar):
                self.calls[self.visit_expr(binding.var)] = own
            return
        key: tuple[Any, ...] = (binding.value.args[0],)
        for buffer in _operands_of_product(own):
            index = next(i for i, each in enumerate(own.program.inputs) if each.same_as(buffer))
            view = self.calls.get(own.operands[index]) if isinstance(own.operands[index], relax.Var) else None
            if view is not None:
                own = _with_view(own, index, view)
                key = (*key, index, id(view.program))
        if len(key) == 1:
            return
        if key not in self.written:
            self.written[key] = self.add(own.program, f"{own.name}_of_views")
        self.replace(binding, self.written[key], own.operands)
        self.count += len(key) // 2


def _is_view(call: ProgramCall) -> bool:
    """Whether each element of the result is one of the only operand, or that times a number."""
    program = call.program
    if len(program.computations) != 1 or program.computations[0].fold is not None or len(program.inputs) != 1:
        return False
    value = program.computations[0].value
    while isinstance(value, prim.Mul) and isinstance(value.b, prim.FloatImm):
        value = value.a
    return (
        is_load(value) and not any(loads(index) for index in value.indices) and isinstance(call.operands[0], relax.Var)
    )


def _operands_of_product(call: ProgramCall) -> list[Any]:
    """The buffers of the two operands of a product of matrices that are computed; none for other functions."""
    try:
        contraction = find_contraction(call.program)
    except Unsupported:
        return []
    sides = [contraction.left, contraction.right]
    if len(contraction.fold.reduced) != 1 or not all(is_load(side) for side in sides):
        return []
    buffers = [side.source for side in sides]
    found = [operand for buffer, operand in zip(call.program.inputs, call.operands, strict=True)
             if any(buffer.same_as(each) for each in buffers)]  # fmt: skip
    is_computed = len(found) == 2 and all(isinstance(each, relax.Var) for each in found)
    return buffers if is_computed else []


def _with_view(call: ProgramCall, index: int, view: ProgramCall) -> ProgramCall:
    """`call` with what its operand `index` is a view of in the place of that."""
    source, body = call.program.inputs[index], view.program.computations[0]

    # A buffer of its own: the other operand may be a view of the same tensor.
    tensor = view.program.inputs[0]
    fresh = tirx.decl_buffer([integer(each) for each in shape_of(tensor)], str(tensor.ty.dtype))

    def fresh_load(_: Any, indices: list[Any]) -> Any:
        return tirx.BufferLoad(fresh, indices)

    def on_load(buffer: Any, indices: list[Any]) -> Any:
        if not buffer.same_as(source):
            return None
        return rewrite(body.value, {axis.var: at for axis, at in zip(body.axes, indices, strict=True)}, fresh_load)

    moved = tuple(
        Computation(
            each.buffer,
            each.axes,
            rewrite(each.value, {}, on_load),
            each.reduced,
            each.fold,
            each.start,
            each.keeps_nan,
        )
        for each in call.program.computations
    )
    inputs = tuple(fresh if each.same_as(source) else each for each in call.program.inputs)
    program = Program(inputs, call.program.outputs, moved, (*inputs, *call.program.outputs))
    operands = (*call.operands[:index], view.operands[0], *call.operands[index + 1 :])
    return ProgramCall(program, operands, call.name)
