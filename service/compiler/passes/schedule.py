"""Kernels made for the CPU in place of the functions that a lowering and fusion have left."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm
from tvm import IRModule, relax, tirx
from tvm.ir import GenericConst, Op

from service.catalogue import option
from service.compiler.dataflow import relax_functions, rewrite_functions
from service.compiler.report import Report
from service.compiler.schedules import KERNEL_CLASSES, KernelClass, loops
from service.compiler.schedules.choice import Choice
from service.compiler.schedules.computation import Program, read
from service.compiler.schedules.expressions import HasBfloat16, Unsupported
from service.compiler.schedules.kernel import Kernel, Situation
from service.compiler.schedules.known import best_known
from service.compiler.schedules.known_bounds import with_known_bounds
from service.compiler.schedules.vector_unit import vector_unit
from service.compiler.schedules.writer import parameter_bytes
from service.compiler.target import threads
from service.errors import JsonObject
from service.nouns import Stage
from service.runtime.session import Array


@dataclass(frozen=True)
class Schedule:
    """Puts a kernel made for the target's CPU in place of each TensorIR function that is of a known kind.

    The kinds are matrix products and convolutions with constant weights (those of 3 x 3 taps with fewer
    multiplications, where the numbers are of like magnitude), depthwise convolutions, products of two computed
    matrices, maps, folds along rows (softmax, normalisation, sums) and folds across memory (pooling). Vector width
    and the number of registers come from the target's features. Constant weights are packed into the order in which
    the kernel reads them, so that nothing is packed at run time; what is computed of a sum before it is stored is
    computed in registers. Exponentials and their like become polynomials, which keep NaN and infinities.

    A function of another kind stays as it is. The step's details say for each function which kernel it got, with which
    parameters, or why it got none; and where a kernel's parameters were measured on this type of machine before (by a
    Compilation with `tune`), that it is `tuned`, and its gain over the parameters of the rule.
    """

    name: ClassVar[str] = "schedule"
    stage: ClassVar[Stage] = Stage.SCHEDULE
    needs: ClassVar[tuple[str, ...]] = ("tensorir",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def fused_add_multiply(x: T.Buffer((T.int64(10),), "float32"), y: T.Buffer((T.int64(10),), "float32"), T_multiply_intermediate: T.Buffer((T.int64(10),), "float32")):
        T.func_attr({"tirx.noalias": True})
        # with T.sblock("root"):
        T_add_intermediate = T.sblock_alloc_buffer((T.int64(10),))
        for ax0 in range(T.int64(10)):
            with T.sblock("T_add"):
                v_ax0 = T.axis.spatial(T.int64(10), ax0)
                T.reads(x[v_ax0], y[v_ax0])
                T.writes(T_add_intermediate[v_ax0])
                T_add_intermediate[v_ax0] = x[v_ax0] + y[v_ax0]
        for ax0 in range(T.int64(10)):
            with T.sblock("T_multiply"):
                v_ax0 = T.axis.spatial(T.int64(10), ax0)
                T.reads(T_add_intermediate[v_ax0], y[v_ax0])
                T.writes(T_multiply_intermediate[v_ax0])
                T_multiply_intermediate[v_ax0] = T_add_intermediate[v_ax0] * y[v_ax0]

    @R.function
    def main(x: R.Tensor((10,), dtype="float32"), y: R.Tensor((10,), dtype="float32")) -> R.Tensor((10,), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.fused_add_multiply, (x, y), out_ty=R.Tensor((10,), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def fused_add_multiply(p0: T.Buffer((T.int64(10),), "float32"), p1: T.Buffer((T.int64(10),), "float32"), p2: T.Buffer((T.int64(10),), "float32")):
        T.func_attr({"scheduled": True, "tirx.noalias": True})
        with T.sblock("root"):
            T.reads()
            T.writes()
            for v in range(T.int64(2)):
                for v_1 in T.vectorized(T.int64(4)):
                    p2[v * T.int64(4) + v_1] = (p0[v * T.int64(4) + v_1] + p1[v * T.int64(4) + v_1]) * p1[v * T.int64(4) + v_1]
            for v in T.vectorized(T.int64(2)):
                p2[T.int64(8) + v] = (p0[T.int64(8) + v] + p1[T.int64(8) + v]) * p1[T.int64(8) + v]

    @R.function
    def main(x: R.Tensor((10,), dtype="float32"), y: R.Tensor((10,), dtype="float32")) -> R.Tensor((10,), dtype="float32"):
        cls = Module
        with R.dataflow():
            gv = R.call_tir(cls.fused_add_multiply, (x, y), out_ty=R.Tensor((10,), dtype="float32"))
            R.output(gv)
        return gv
"""  # noqa: E501

    parallel: bool = option(True, "Let loops that pay for it use several threads, where the target has more than one.")
    winograd: bool = option(
        True,
        "Compute 3 x 3 convolutions with fewer multiplications (Winograd's minimal filtering). Numbers are rounded in "
        "other places, and the weight takes up to five times its memory.",
    )

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        kernels: dict[Any, Kernel] = {}
        entries = []
        for planned in self.plan(mod):
            entry: JsonObject = {"function": planned.name, "kernel": None, "parameters": {}, "reason": planned.reason}
            entry |= {"flops": 0, "bytes": planned.bytes, "tuned": False}
            if planned.kernel is not None and planned.make is not None:
                kernel, record = best_known(planned.kernel, planned.make)
                kernels[planned.gvar] = kernel
                known = {} if record is None else {"tuned": True, **record.to_json()}
                entry |= {"kernel": kernel.name, "parameters": kernel.parameters, "flops": kernel.flops, **known}
            entries.append(entry)
        report.details["kernels"] = entries
        report.notes.extend(_notes(entries))
        return _replaced(mod, kernels) if kernels else mod

    def plan(self, mod: IRModule) -> Iterator[Planned]:
        """For each TensorIR function that is called, by name, the kernel that the rule makes of it, or why none."""
        calls = _calls(mod)
        target = tvm.target.Target.current(allow_none=True)
        for gvar in sorted(mod.get_global_vars(), key=lambda each: str(each.name_hint)):
            function = mod[gvar]
            if isinstance(function, tirx.PrimFunc) and gvar in calls:
                yield _planned(gvar, function, calls[gvar], self._situation(target))

    def _situation(self, target: Any) -> Situation:
        parallel = self.parallel and (target is None or threads(target) != 1)
        return Situation(vector_unit(target), parallel, winograd=self.winograd)


@dataclass(frozen=True)
class Planned:
    """What is planned for a function that is called so many times: `make` makes its kernel with another choice."""

    gvar: Any
    calls: int
    bytes: int
    kernel: Kernel | None = None
    make: Callable[[Choice | None], Kernel] | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """The function's."""
        return str(self.gvar.name_hint)


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


def _planned(gvar: Any, function: Any, calls: list[list[Any]], own: Situation) -> Planned:
    planned = Planned(gvar, len(calls), parameter_bytes(function))
    reasons = []
    try:
        for label, make in _makers(planned.name, function, calls, own):
            try:
                return dataclasses.replace(planned, kernel=make(None), make=make)
            except Unsupported as reason:
                reasons.append(f"{label}: {reason}")
    except HasBfloat16 as reason:
        reasons.append(str(reason))
    return dataclasses.replace(planned, reason="; ".join(reasons))


def _makers(
    name: str, function: Any, calls: list[list[Any]], own: Situation
) -> list[tuple[str, Callable[[Choice | None], Kernel]]]:
    """What makes a kernel of each class, by the name of the class, in the order in which they are tried.

    Raises HasBfloat16.
    """
    try:
        program = read(function)
    except HasBfloat16:
        raise
    except Unsupported as reason:
        return [(f"{reason}; {loops.NAME}", lambda _: loops.schedule(name, function, own))]
    situation = dataclasses.replace(own, constants=_constants(program, calls))
    program = with_known_bounds(program, situation.constants)

    def maker(schedule: KernelClass) -> Callable[[Choice | None], Kernel]:
        return lambda wanted: schedule(name, program, dataclasses.replace(situation, wanted=wanted))

    return [(label, maker(schedule)) for label, schedule in KERNEL_CLASSES.items()]


def _constants(program: Program, calls: list[list[Any]]) -> dict[Any, tuple[Array, ...]]:
    """The values of each parameter that is a constant in all calls."""
    constants = {}
    for index, buffer in enumerate(program.parameters):
        operands = [operands[index] for operands in calls if index < len(operands)]
        if operands and all(isinstance(each, GenericConst) for each in operands):
            constants[buffer] = tuple(each.value.numpy() for each in operands)
    return constants


def _notes(entries: list[JsonObject]) -> list[str]:
    chosen = Counter(str(entry["kernel"]) for entry in entries if entry["kernel"] is not None)
    left = [str(entry["function"]) for entry in entries if entry["kernel"] is None]
    tuned = sum(bool(entry["tuned"]) for entry in entries)
    notes = []
    if chosen:
        notes.append("Kernels: " + ", ".join(f"{name} ({count})" for name, count in sorted(chosen.items())) + ".")
    if tuned:
        notes.append(f"Parameters by measurement: {tuned} of {sum(chosen.values())}.")
    if left:
        notes.append(f"Left as they were: {', '.join(left[:8])}{' …' if len(left) > 8 else ''}.")
    return notes


def _replaced(mod: IRModule, kernels: dict[Any, Kernel]) -> IRModule:
    """The module with the kernels in place, equal ones once, and the constants that they read packed."""
    rest = {gvar: function for gvar, function in mod.functions.items() if gvar not in kernels}
    mutator = _Packer(IRModule(rest, attrs=mod.attrs), kernels)
    return rewrite_functions(mutator, mod)


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
