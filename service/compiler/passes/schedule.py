"""Kernels made for the CPU in place of the functions that a lowering and fusion have left."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm
from tvm import IRModule, relax, tirx
from tvm.ir import GenericConst, Op

from service.catalogue import option
from service.compiler.dataflow import relax_functions
from service.compiler.report import Report
from service.compiler.schedules import KERNEL_CLASSES
from service.compiler.schedules.computation import Program, read
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.vector_unit import vector_unit
from service.errors import JsonObject
from service.nouns import Stage


@dataclass(frozen=True)
class Schedule:
    """TODO."""

    name: ClassVar[str] = "schedule"
    stage: ClassVar[Stage] = Stage.FUSE_TIR
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = ""
    after: ClassVar[str] = ""

    parallel: bool = option(True, "Let loops that pay for it use several threads.")

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        calls = _calls(mod)
        kernels: dict[Any, Kernel] = {}
        entries = []
        for gvar in sorted(mod.get_global_vars(), key=lambda each: str(each.name_hint)):
            function = mod[gvar]
            if not isinstance(function, tirx.PrimFunc) or gvar not in calls:
                continue
            entry = _entry(gvar, function, calls[gvar], self.parallel, kernels)
            entries.append(entry)
        report.details["kernels"] = entries
        report.notes.extend(_notes(entries))
        return _replaced(mod, kernels) if kernels else mod


def _calls(mod: IRModule) -> dict[Any, list[list[Any]]]:
    """The operands of each call of each TensorIR function; functions that are used otherwise are not there."""
    found: dict[Any, list[list[Any]]] = {}
    call_tir = Op.get("relax.call_tir")

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and expr.op == call_tir and len(expr.args) == 2:
            found.setdefault(expr.args[0], []).append(list(expr.args[1].fields))

    for _, function in relax_functions(mod):
        relax.analysis.post_order_visit(function, visit)
    return found


def _situation(program: Program, calls: list[list[Any]], parallel: bool) -> Situation:
    constants = {}
    for index, buffer in enumerate(program.parameters):
        operands = [operands[index] for operands in calls if index < len(operands)]
        if operands and all(isinstance(each, GenericConst) for each in operands):
            constants[buffer] = tuple(each.value.numpy() for each in operands)
    return Situation(vector_unit(tvm.target.Target.current()), parallel, constants)


def _entry(gvar: Any, function: Any, calls: list[list[Any]], parallel: bool, kernels: dict[Any, Kernel]) -> JsonObject:
    name = str(gvar.name_hint)
    entry: JsonObject = {"function": name, "kernel": None, "parameters": {}, "reason": None, "flops": 0, "bytes": 0}
    try:
        program = read(function)
    except Unsupported as reason:
        return {**entry, "reason": str(reason)}
    situation = _situation(program, calls, parallel)
    reasons = []
    for label, schedule in KERNEL_CLASSES.items():
        try:
            kernel = schedule(name, program, situation)
        except Unsupported as reason:
            reasons.append(f"{label}: {reason}")
            continue
        kernels[gvar] = kernel
        return {**entry, "kernel": kernel.name, "parameters": kernel.parameters, "flops": kernel.flops}
    return {**entry, "reason": "; ".join(reasons)}


def _notes(entries: list[JsonObject]) -> list[str]:
    chosen = Counter(str(entry["kernel"]) for entry in entries if entry["kernel"] is not None)
    left = [str(entry["function"]) for entry in entries if entry["kernel"] is None]
    notes = []
    if chosen:
        notes.append("Kernels: " + ", ".join(f"{name} ({count})" for name, count in sorted(chosen.items())) + ".")
    if left:
        notes.append(f"Left as they were: {', '.join(left[:8])}{' …' if len(left) > 8 else ''}.")
    return notes


def _replaced(mod: IRModule, kernels: dict[Any, Kernel]) -> IRModule:
    """The module with the kernels in place, equal ones once, and the constants that they read packed."""
    rest = {gvar: function for gvar, function in mod.functions.items() if gvar not in kernels}
    mutator = _Packer(IRModule(rest, attrs=mod.attrs), kernels)
    for gvar, function in relax_functions(mod):
        mutator.builder_.update_func(gvar, mutator.visit_expr(function))
    return mutator.builder_.get()


@relax.expr_functor.mutator
class _Packer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, kernels: dict[Any, Kernel]) -> None:
        super().__init__(mod)
        self.kernels = kernels
        self.call_tir = Op.get("relax.call_tir")
        # A function with other parameters needs a variable with another type.
        self.renamed = {
            gvar: self.builder_.add_func(kernel.function, str(gvar.name_hint)) for gvar, kernel in kernels.items()
        }

    def visit_call_(self, op: Any) -> Any:
        if op.op != self.call_tir or op.args[0] not in self.kernels:
            return super().visit_expr_post_order(op)
        operands = [self.visit_expr(operand) for operand in op.args[1].fields]
        for index, pack in self.kernels[op.args[0]].packings.items():
            operands[index] = relax.const(tvm.runtime.tensor(pack(operands[index].value.numpy())))
        arguments = [self.renamed[op.args[0]], relax.Tuple(operands), *op.args[2:]]
        return relax.Call(op.op, arguments, op.attrs, op.ty_args)
