"""Images with the channels last between the functions of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir import Op

from service.compiler.dataflow import relax_functions, rewrite_functions
from service.compiler.report import Report
from service.compiler.schedules.block_form import reordered, write
from service.compiler.schedules.computation import Program, inlined, read
from service.compiler.schedules.expressions import Unsupported, loads, variables
from service.compiler.schedules.unit_axis import with_unit_axis
from service.nouns import Stage

_LAST = (0, 2, 3, 1)
_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True)
class ChannelsLast:
    """Stores images with the channels last between the functions of a network.

    What a convolution gives is stored as (batch, rows, columns, channels), and so is what is made of it as long as
    channels stay channels: by element-wise functions, pooling, joins and resizing. Vectors then run along the
    channels, in convolutions and elsewhere. The model's inputs and outputs keep their layout: the first convolution
    reads it as it is, and where other functions need it a transposition is left for the lowering.
    """

    name: ClassVar[str] = "channels_last"
    stage: ClassVar[Stage] = Stage.SCHEDULE
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def conv2d(x: T.Buffer((T.int64(1), T.int64(2), T.int64(4), T.int64(4)), "float32"), w: T.Buffer((T.int64(3), T.int64(2), T.int64(3), T.int64(3)), "float32"), conv2d_nchw: T.Buffer((T.int64(1), T.int64(3), T.int64(2), T.int64(2)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        pad_temp = T.sblock_alloc_buffer((T.int64(1), T.int64(2), T.int64(4), T.int64(4)))
        for i0, i1, i2, i3 in T.grid(T.int64(1), T.int64(2), T.int64(4), T.int64(4)):
            with T.sblock("pad_temp"):
                v_i0, v_i1, v_i2, v_i3 = T.axis.remap("SSSS", [i0, i1, i2, i3])
                T.reads(x[v_i0, v_i1, v_i2, v_i3])
                T.writes(pad_temp[v_i0, v_i1, v_i2, v_i3])
                pad_temp[v_i0, v_i1, v_i2, v_i3] = x[v_i0, v_i1, v_i2, v_i3]
        for nn, ff, yy, xx, rc, ry, rx in T.grid(T.int64(1), T.int64(3), T.int64(2), T.int64(2), T.int64(2), T.int64(3), T.int64(3)):
            with T.sblock("conv2d_nchw"):
                v_nn, v_ff, v_yy, v_xx, v_rc, v_ry, v_rx = T.axis.remap("SSSSRRR", [nn, ff, yy, xx, rc, ry, rx])
                T.reads(pad_temp[v_nn, v_rc, v_yy + v_ry, v_xx + v_rx], w[v_ff, v_rc, v_ry, v_rx])
                T.writes(conv2d_nchw[v_nn, v_ff, v_yy, v_xx])
                with T.init():
                    conv2d_nchw[v_nn, v_ff, v_yy, v_xx] = T.float32(0.0)
                conv2d_nchw[v_nn, v_ff, v_yy, v_xx] = conv2d_nchw[v_nn, v_ff, v_yy, v_xx] + pad_temp[v_nn, v_rc, v_yy + v_ry, v_xx + v_rx] * w[v_ff, v_rc, v_ry, v_rx]

    @R.function
    def main(x: R.Tensor((1, 2, 4, 4), dtype="float32"), w: R.Tensor((3, 2, 3, 3), dtype="float32")) -> R.Tensor((1, 3, 2, 2), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.conv2d, (x, w), out_ty=R.Tensor((1, 3, 2, 2), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def conv2d_last(p0: T.Buffer((T.int64(1), T.int64(2), T.int64(4), T.int64(4)), "float32"), p1: T.Buffer((T.int64(3), T.int64(2), T.int64(3), T.int64(3)), "float32"), sum: T.Buffer((T.int64(1), T.int64(2), T.int64(2), T.int64(3)), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        for i0, i1, i2, i3, k0, k1, k2 in T.grid(T.int64(1), T.int64(2), T.int64(2), T.int64(3), T.int64(2), T.int64(3), T.int64(3)):
            with T.sblock("sum"):
                v_i0, v_i1, v_i2, v_i3, v_k0, v_k1, v_k2 = T.axis.remap("SSSSRRR", [i0, i1, i2, i3, k0, k1, k2])
                T.reads(p0[v_i0, v_k0, v_i1 + v_k1, v_i2 + v_k2], p1[v_i3, v_k0, v_k1, v_k2])
                T.writes(sum[v_i0, v_i1, v_i2, v_i3])
                with T.init():
                    sum[v_i0, v_i1, v_i2, v_i3] = T.float32(0.0)
                sum[v_i0, v_i1, v_i2, v_i3] = sum[v_i0, v_i1, v_i2, v_i3] + p0[v_i0, v_k0, v_i1 + v_k1, v_i2 + v_k2] * p1[v_i3, v_k0, v_k1, v_k2]

    @R.function
    def main(x: R.Tensor((1, 2, 4, 4), dtype="float32"), w: R.Tensor((3, 2, 3, 3), dtype="float32")) -> R.Tensor((1, 3, 2, 2), dtype="float32"):
        cls = Module
        with R.dataflow():
            lv = R.call_tir(cls.conv2d_last, (x, w), out_ty=R.Tensor((1, 2, 2, 3), dtype="float32"))
            gv: R.Tensor((1, 3, 2, 2), dtype="float32") = R.permute_dims(lv, axes=[0, 3, 1, 2])
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        layouts = _Layouts(mod)
        if not layouts.chosen:
            return mod
        mutator = _Rewriter(IRModule(dict(mod.functions.items()), attrs=mod.attrs), layouts)
        rewritten = rewrite_functions(mutator, mod)
        report.notes.append(f"{len(layouts.chosen)} tensors have their channels last.")
        return relax.transform.DeadCodeElimination()(rewritten)


class _Layouts:
    """Which variables hold their tensor with the channels last: what convolutions give, and what is made of that."""

    def __init__(self, mod: IRModule) -> None:
        self.call_tir = Op.get("relax.call_tir")
        self.programs: dict[Any, Program] = {}
        # The axis of the image that the result of such a function has not.
        self.unit_axes: dict[Any, int] = {}
        self.chosen: set[Any] = set()
        for _, function in relax_functions(mod):
            results = _results(function)
            for block in getattr(function.body, "blocks", ()):
                if not isinstance(block, relax.DataflowBlock):
                    continue
                for binding in block.bindings:
                    self._visit(mod, binding, results)

    def _visit(self, mod: IRModule, binding: Any, results: set[Any]) -> None:
        call = getattr(binding, "value", None)
        if not isinstance(call, relax.Call) or call.op != self.call_tir or len(call.args) != 2:
            return
        program = self._program(mod, call.args[0])
        is_image = call.args[0] in self.unit_axes or _is_image(binding.var)
        if program is None or len(program.outputs) != 1 or not is_image:
            return
        operands = list(call.args[1].fields)
        if is_convolution(program) or (binding.var not in results and self._keeps_axes(program, operands)):
            self.chosen.add(binding.var)

    def _program(self, mod: IRModule, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                program = inlined(read(mod[gvar]))
            except Unsupported:
                return None
            if not program.has_inputs_first():
                return None
            wide = with_unit_axis(program)
            if wide is not None and is_convolution(wide[0]):
                program, self.unit_axes[gvar] = wide
            self.programs[gvar] = program
        return self.programs[gvar]

    def _keeps_axes(self, program: Program, operands: list[Any]) -> bool:
        """Whether channels and columns of the result are made of channels and columns of tensors with channels last."""
        last = [
            buffer for buffer, operand in zip(program.inputs, operands, strict=False)
            if isinstance(operand, relax.Var) and operand in self.chosen
        ]  # fmt: skip
        if not last or len(program.computations) != 1:
            return False
        computation = program.computations[0]
        if len(computation.axes) != 4:
            return False
        allowed = [{axis.var} | {each.var for each in computation.reduced} for axis in computation.axes]
        found = [load for load in loads(computation.value) if any(load.source.same_as(buffer) for buffer in last)]
        return bool(found) and all(variables(load.indices[axis]) <= allowed[axis] for load in found for axis in (1, 3))


def is_convolution(program: Program) -> bool:
    """Whether the function sums over channels and windows of an image."""
    folds = program.folds()
    return (
        len(folds) == 1
        and folds[0].fold == "sum"
        and len(folds[0].axes) == 4
        and len(folds[0].reduced) == 3
        and len(program.outputs[0].ty.shape) == 4
        and any(len(load.indices) == 4 and not load.source.same_as(folds[0].buffer) for load in loads(folds[0].value))
    )


def _is_image(var: Any) -> bool:
    return isinstance(var.ty, relax.TensorType) and var.ty.ndim == 4 and isinstance(var.ty.shape, relax.ShapeExpr)


def _results(function: Any) -> set[Any]:
    """The variables whose tensors leave the function."""
    found: set[Any] = set()
    body = function.body.body if isinstance(function.body, relax.SeqExpr) else function.body
    relax.analysis.post_order_visit(body, lambda each: found.add(each) if isinstance(each, relax.Var) else None)
    for block in getattr(function.body, "blocks", ()):
        for binding in block.bindings:
            value = binding.value
            if binding.var in found and isinstance(value, relax.Var | relax.Tuple):
                relax.analysis.post_order_visit(
                    value, lambda each: found.add(each) if isinstance(each, relax.Var) else None
                )
    return found


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, layouts: _Layouts) -> None:
        super().__init__(mod)
        self.layouts = layouts
        self.last: dict[Any, Any] = {}
        self.inside = False
        self.written: dict[Any, Any] = {}

    def visit_dataflow_block_(self, block: Any) -> Any:
        self.inside = True
        new = super().visit_dataflow_block_(block)
        self.inside = False
        return new

    def visit_var_binding_(self, binding: Any) -> None:
        call = binding.value
        if not self._is_affected(binding):
            super().visit_var_binding_(binding)
            return
        program = self.layouts.programs[call.args[0]]
        operands = list(call.args[1].fields)
        orders = {}
        arguments = []
        for buffer, operand in zip(program.inputs, operands, strict=True):
            if isinstance(operand, relax.Var) and operand in self.last:
                orders[buffer] = _LAST
                arguments.append(self.last[operand])
            else:
                arguments.append(self.visit_expr(operand))
        ty = binding.var.ty
        unit_axis = self.layouts.unit_axes.get(call.args[0])
        if binding.var in self.layouts.chosen:
            # What is kept between goes the way of the result.
            orders |= {each.buffer: _LAST for each in program.computations if len(each.axes) == 4}
            shape = list(ty.shape.values)
            if unit_axis is not None:
                shape.insert(unit_axis, tirx.const(1, "int64"))
            ty = relax.TensorType(reordered(shape, _LAST), str(ty.dtype))
        gvar = self._function(call.args[0], program, orders)
        call = relax.call_tir(gvar, relax.Tuple(arguments), ty)
        emit = self.builder_.emit if isinstance(binding.var, relax.DataflowVar) else self.builder_.emit_output
        if binding.var in self.layouts.chosen:
            new = self.builder_.emit(call)
            image = relax.op.permute_dims(new, list(_FIRST))
            if unit_axis is None:
                self.last[binding.var] = new
            else:
                image = relax.op.reshape(self.builder_.emit(image), binding.var.ty.shape)
            self.set_var_remap(binding.var, emit(image))
        else:
            self.set_var_remap(binding.var, emit(call))

    def _is_affected(self, binding: Any) -> bool:
        call = binding.value
        if not self.inside or not isinstance(call, relax.Call):
            return False
        if call.op != self.layouts.call_tir or len(call.args) != 2:
            return False
        reads = any(isinstance(each, relax.Var) and each in self.last for each in call.args[1].fields)
        return call.args[0] in self.layouts.programs and (reads or binding.var in self.layouts.chosen)

    def _function(self, gvar: Any, program: Program, orders: dict[Any, Any]) -> Any:
        key = (gvar, tuple(orders.get(buffer) for buffer in (*program.inputs, *program.outputs)))
        if key not in self.written:
            function = write(program, orders)
            self.written[key] = self.builder_.add_func(function, f"{gvar.name_hint}_last")
        return self.written[key]
