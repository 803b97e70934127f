"""Images with the channels last between the functions of a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx
from tvm.ir import Op

from service.compiler.dataflow import relax_functions
from service.compiler.report import Report
from service.compiler.schedules.block_form import reordered, write
from service.compiler.schedules.computation import Program, inlined, read
from service.compiler.schedules.expressions import Unsupported, loads, variables
from service.nouns import Stage

_LAST = (0, 2, 3, 1)
_FIRST = (0, 3, 1, 2)


@dataclass(frozen=True)
class ChannelsLast:
    """TODO."""

    name: ClassVar[str] = "channels_last"
    stage: ClassVar[Stage] = Stage.FUSE_TIR
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        layouts = _Layouts(mod)
        if not layouts.chosen:
            return mod
        mutator = _Rewriter(IRModule(dict(mod.functions.items()), attrs=mod.attrs), layouts)
        for gvar, function in relax_functions(mod):
            mutator.builder_.update_func(gvar, mutator.visit_expr(function))
        report.notes.append(f"{len(layouts.chosen)} tensors have their channels last.")
        return relax.transform.DeadCodeElimination()(mutator.builder_.get())


class _Layouts:
    """Which variables hold their tensor with the channels last: what convolutions give, and what is made of that."""

    def __init__(self, mod: IRModule) -> None:
        self.call_tir = Op.get("relax.call_tir")
        self.programs: dict[Any, Program] = {}
        self.chosen: set[Any] = set()
        for _, function in relax_functions(mod):
            results = _results(function)
            for block in getattr(function.body, "blocks", ()):
                for binding in block.bindings:
                    self._visit(mod, binding, results)

    def _visit(self, mod: IRModule, binding: Any, results: set[Any]) -> None:
        call = getattr(binding, "value", None)
        if not isinstance(call, relax.Call) or call.op != self.call_tir or len(call.args) != 2:
            return
        program = self._program(mod, call.args[0])
        if program is None or len(program.outputs) != 1 or not _is_image(binding.var):
            return
        operands = list(call.args[1].fields)
        if is_convolution(program):
            self.chosen.add(binding.var)
        elif binding.var not in results and self._keeps_axes(program, operands):
            self.chosen.add(binding.var)

    def _program(self, mod: IRModule, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                self.programs[gvar] = inlined(read(mod[gvar]))
            except Unsupported:
                return None
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
        found = [
            load for load in loads(computation.value) if any(load.source.same_as(buffer) for buffer in last)
        ]
        return bool(found) and all(
            variables(load.indices[axis]) <= allowed[axis] for load in found for axis in (1, 3)
        )


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
        self.written: dict[Any, Any] = {}

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
        if binding.var in self.layouts.chosen:
            # What is kept between goes the way of the result.
            orders |= {each.buffer: _LAST for each in program.computations if len(each.axes) == 4}
            ty = relax.TensorType(reordered(list(ty.shape.values), _LAST), str(ty.dtype))
        gvar = self._function(call.args[0], program, orders)
        new = self.builder_.emit(relax.call_tir(gvar, relax.Tuple(arguments), ty))
        if binding.var in self.layouts.chosen:
            self.last[binding.var] = new
            back = self.builder_.emit(relax.op.permute_dims(new, list(_FIRST)))
            self.set_var_remap(binding.var, back)
        else:
            self.set_var_remap(binding.var, new)

    def _is_affected(self, binding: Any) -> bool:
        call = binding.value
        if not isinstance(call, relax.Call) or call.op != self.layouts.call_tir or len(call.args) != 2:
            return False
        reads = any(isinstance(each, relax.Var) and each in self.last for each in call.args[1].fields)
        return call.args[0] in self.layouts.programs and (reads or binding.var in self.layouts.chosen)

    def _function(self, gvar: Any, program: Program, orders: dict[Any, Any]) -> Any:
        key = (gvar, tuple(orders.get(buffer) for buffer in (*program.inputs, *program.outputs)))
        if key not in self.written:
            function = write(program, orders)
            self.written[key] = self.builder_.add_func(function, f"{gvar.name_hint}_last")
        return self.written[key]
