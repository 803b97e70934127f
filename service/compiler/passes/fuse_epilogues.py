"""Maps after a matrix product or a convolution moved into it, across reshapes that only rename places in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax
from tvm.ir import Op

from service.compiler.dataflow import relax_functions
from service.compiler.report import Report
from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import Computation, Program, inlined, read, shape_of
from service.compiler.schedules.contraction import find_fold
from service.compiler.schedules.expressions import Unsupported, rewrite, size
from service.nouns import Stage

# Beyond so many subexpressions a map stays a function of its own.
_LARGEST_MAP = 200


@dataclass(frozen=True)
class FuseEpilogues:
    """TODO."""

    name: ClassVar[str] = "fuse_epilogues"
    stage: ClassVar[Stage] = Stage.FUSE_TIR
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""

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
            new = self.builder_.emit(relax.call_tir(gvar, relax.Tuple(list(merged.operands)), binding.var.ty))
            self.set_var_remap(binding.var, new)
            self.count += 1
            own = merged
            break
        if own.program.folds():
            self.pending[new] = own

    def _is_plain(self, binding: Any) -> bool:
        call = binding.value
        return (
            isinstance(call, relax.Call)
            and call.op == self.call_tir
            and len(call.args) == 2
            and isinstance(binding.var, relax.DataflowVar)
            and isinstance(binding.var.ty, relax.TensorType)
        )

    def _program(self, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                program = read(self.mod[gvar])
                fixed = all(isinstance(each, int) for buffer in program.parameters for each in shape_of(buffer))
                self.programs[gvar] = inlined(program) if fixed else None
            except Unsupported:
                self.programs[gvar] = None
        return self.programs[gvar]


def _merged(before: _Call, after: _Call, index: int) -> _Call | None:
    """`after` with the computation of its operand `index`, which is the result of `before`; None if that cannot be."""
    source, result = after.program.inputs[index], before.program.outputs[0]
    if after.program.folds() or any(size(each.value) > _LARGEST_MAP for each in after.program.computations):
        return None

    def on_load(buffer: Any, indices: list[Any]) -> Any:
        from tvm import tirx

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


def _uses(function: Any) -> dict[Any, int]:
    from service.compiler.dataflow import Dataflow

    dataflow = Dataflow(function)
    found: dict[Any, int] = {}
    relax.analysis.post_order_visit(
        function, lambda each: found.setdefault(each, dataflow.uses(each)) if isinstance(each, relax.Var) else None
    )
    return found
