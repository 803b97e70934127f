"""What the passes share that merge the TensorIR functions of two calls: which calls they see, and as which Programs."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from tvm import IRModule, relax
from tvm.ir import Op

from service.compiler.dataflow import Dataflow, relax_functions
from service.compiler.schedules.block_form import write
from service.compiler.schedules.computation import Program, inlined, read, shape_of
from service.compiler.schedules.expressions import Unsupported


@dataclass(frozen=True)
class ProgramCall:
    """A call of a function whose Program is known: the operand of each of its inputs."""

    program: Program
    operands: tuple[Any, ...]
    name: str


class CallFusor(relax.PyExprMutator):  # type: ignore[misc]
    """Visits each call_tir in a dataflow block whose function is a Program of fixed sizes with one output.

    A subclass is decorated with `relax.expr_functor.mutator` and says in `fuse_call` what becomes of such a call;
    `calls` has those that may move into what reads their result, by its variable, and is empty for each function;
    `count` is how many calls have moved, `dataflow` the function as it was.
    """

    def __init__(self, mod: IRModule) -> None:
        super().__init__(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        self.call_tir = Op.get("relax.call_tir")
        self.mod = mod
        self.count = 0
        self.inside = False
        self.programs: dict[Any, Program | None] = {}
        self.calls: dict[Any, ProgramCall] = {}
        self.dataflow: Dataflow

    @abstractmethod
    def fuse_call(self, binding: Any, own: ProgramCall) -> None:
        """Called after `binding` was emitted, whose value is the call; `own` has the operands as they are now."""

    def fused(self) -> IRModule:
        """The module with calls merged, and without the functions that nothing calls any more."""
        for gvar, function in relax_functions(self.mod):
            before = self.count
            self.calls = {}
            self.dataflow = Dataflow(function)
            rewritten = self.visit_expr(function)
            if self.count > before:
                self.builder_.update_func(gvar, rewritten)
        return relax.transform.DeadCodeElimination()(self.builder_.get()) if self.count else self.mod

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
        if program is None or not isinstance(binding.var.ty, relax.TensorType):
            return
        operands = tuple(self.visit_expr(each) for each in call.args[1].fields)
        self.fuse_call(binding, ProgramCall(program, operands, str(call.args[0].name_hint)))

    def add(self, program: Program, name: str) -> Any:
        """A new function of the module; its GlobalVar."""
        return self.builder_.add_func(write(program, {}), name)

    def replace(self, binding: Any, gvar: Any, operands: tuple[Any, ...]) -> Any:
        """Binds a call of `gvar` in place of what `binding` has; the new variable."""
        call = relax.call_tir(gvar, relax.Tuple(list(operands)), binding.var.ty)
        is_inner = isinstance(binding.var, relax.DataflowVar)
        new = self.builder_.emit(call) if is_inner else self.builder_.emit_output(call)
        self.set_var_remap(binding.var, new)
        return new

    def _program(self, gvar: Any) -> Program | None:
        if gvar not in self.programs:
            try:
                program = read(self.mod[gvar])
                fixed = all(isinstance(each, int) for buffer in program.parameters for each in shape_of(buffer))
                single = len(program.outputs) == 1 and program.has_inputs_first()
                self.programs[gvar] = inlined(program) if fixed and single else None
            except Unsupported:
                self.programs[gvar] = None
        return self.programs[gvar]
