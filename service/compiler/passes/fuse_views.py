"""Views of tensors moved into the matrix products of computed operands that read them, as in attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir import Op
from tvm.ir.prim import expr as prim

from service.compiler.dataflow import relax_functions
from service.compiler.report import Report
from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import Computation, Program, inlined, read, shape_of
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
        fusor = _Fusor(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        for gvar, function in relax_functions(mod):
            fusor.fuse(gvar, function)
        if not fusor.count:
            return mod
        report.notes.append(f"{fusor.count} views moved into the matrix products that read them.")
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
        self.views: dict[Any, _Call] = {}
        self.written: dict[Any, Any] = {}

    def fuse(self, gvar: Any, function: Any) -> None:
        """Rewrites one function of the builder's module."""
        before = self.count
        self.views = {}
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
        if not self.inside or not isinstance(call, relax.Call) or call.op != self.call_tir or len(call.args) != 2:
            return
        program = self._program(call.args[0])
        if program is None:
            return
        own = _Call(program, tuple(self.visit_expr(each) for each in call.args[1].fields), str(call.args[0].name_hint))
        if _is_view(own):
            if isinstance(binding.var, relax.DataflowVar):
                self.views[self.visit_expr(binding.var)] = own
            return
        key: list[Any] = [call.args[0]]
        for buffer in _operands_of_product(own):
            index = next(i for i, each in enumerate(own.program.inputs) if each.same_as(buffer))
            view = self.views.get(own.operands[index]) if isinstance(own.operands[index], relax.Var) else None
            if view is not None:
                own = _with_view(own, index, view)
                key += [index, id(view.program)]
        if len(key) > 1:
            self._emit(binding, own, tuple(key))

    def _emit(self, binding: Any, call: _Call, key: Any) -> None:
        if key not in self.written:
            self.written[key] = self.builder_.add_func(write(call.program, {}), f"{call.name}_of_views")
        new = relax.call_tir(self.written[key], relax.Tuple(list(call.operands)), binding.var.ty)
        inner = isinstance(binding.var, relax.DataflowVar)
        self.set_var_remap(binding.var, self.builder_.emit(new) if inner else self.builder_.emit_output(new))
        self.count += len(key) // 2

    def _program(self, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                program = inlined(read(self.mod[gvar]))
                fixed = all(isinstance(each, int) for buffer in program.parameters for each in shape_of(buffer))
                single = len(program.outputs) == 1 and program.has_inputs_first()
                self.programs[gvar] = program if fixed and single else None
            except Unsupported:
                self.programs[gvar] = None
        return self.programs[gvar]


def _is_view(call: _Call) -> bool:
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


def _operands_of_product(call: _Call) -> list[Any]:
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


def _with_view(call: _Call, index: int, view: _Call) -> _Call:
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
    return _Call(program, operands, call.name)
