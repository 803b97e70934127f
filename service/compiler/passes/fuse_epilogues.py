"""Maps after a matrix product or a convolution moved into it, across reshapes that only rename places in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir import Op, Var

from service.compiler.dataflow import Dataflow, relax_functions
from service.compiler.report import Report
from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import Computation, Program, inlined, read, shape_of
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
        fusor = _Fusor(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        for gvar, function in relax_functions(mod):
            fusor.fuse(gvar, function)
        if not fusor.count:
            return mod
        report.notes.append(f"{fusor.count} functions moved into the one whose result they read.")
        return relax.transform.DeadCodeElimination()(fusor.builder_.get())


@dataclass(frozen=True)
class _Call:
    """A call of a function whose Program is known: the operand of each of its inputs."""

    program: Program
    operands: tuple[Any, ...]
    name: str


@relax.expr_functor.mutator
class _Fusor(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.call_tir = Op.get("relax.call_tir")
        self.mod = mod
        self.count = 0
        self.inside = False
        self.programs: dict[Any, Program | None] = {}
        self.pending: dict[Any, _Call] = {}
        self.uses: dict[Any, int] = {}

    def fuse(self, gvar: Any, function: Any) -> None:
        """Rewrites one function of the builder's module."""
        before = self.count
        self.pending = {}
        self.uses = _uses(function)
        rewritten = self.visit_expr(function)
        if self.count > before:
            self.builder_.update_func(gvar, rewritten)

    def visit_dataflow_block_(self, block: Any) -> Any:
        self.inside = True
        new = super().visit_dataflow_block_(block)
        self.inside = False
        return new

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        super().visit_var_binding_(binding)
        if not self._is_plain(binding):
            return
        program = self._program(call.args[0])
        new = self.visit_expr(binding.var)
        if program is None or len(program.outputs) != 1:
            return
        operands = tuple(self.visit_expr(each) for each in call.args[1].fields)
        own = _Call(program, operands, str(call.args[0].name_hint))
        for index, (original, operand) in enumerate(zip(call.args[1].fields, operands, strict=True)):
            before = self.pending.get(operand) if isinstance(operand, relax.Var) else None
            if before is None or self.uses.get(original) != 1:
                continue
            merged = _merged(before, own, index)
            if merged is None:
                continue
            gvar = self.builder_.add_func(write(merged.program, {}), merged.name)
            call = relax.call_tir(gvar, relax.Tuple(list(merged.operands)), binding.var.ty)
            inner = isinstance(binding.var, relax.DataflowVar)
            new = self.builder_.emit(call) if inner else self.builder_.emit_output(call)
            self.set_var_remap(binding.var, new)
            self.count += 1
            own = merged
            break
        if own.program.folds() and isinstance(binding.var, relax.DataflowVar):
            self.pending[new] = own

    def _is_plain(self, binding: Any) -> bool:
        call = binding.value
        return (
            self.inside
            and isinstance(call, relax.Call)
            and call.op == self.call_tir
            and len(call.args) == 2
            and isinstance(binding.var.ty, relax.TensorType)
        )

    def _program(self, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                program = read(self.mod[gvar])
                fixed = all(isinstance(each, int) for buffer in program.parameters for each in shape_of(buffer))
                self.programs[gvar] = inlined(program) if fixed and program.has_inputs_first() else None
            except Unsupported:
                self.programs[gvar] = None
        return self.programs[gvar]


def _merged(before: _Call, after: _Call, index: int) -> _Call | None:
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
    return _Call(program, operands, f"{before.name}_{after.name.removeprefix('fused_')}")


def _apart(before: _Call, after: _Call) -> _Call:
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


def _uses(function: Any) -> dict[Any, int]:
    dataflow = Dataflow(function)
    found: dict[Any, int] = {}
    relax.analysis.post_order_visit(
        function, lambda each: found.setdefault(each, dataflow.uses(each)) if isinstance(each, relax.Var) else None
    )
    return found
