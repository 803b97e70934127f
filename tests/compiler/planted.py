"""Faulty passes, put in the place of `dead_code_elimination` where a test looks for what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import tvm
from tvm import relax

from service.compiler.passes import make_pass
from service.compiler.report import Report
from service.nouns import PassSpec, Stage

PLACE = "dead_code_elimination"


# Has something in it after a pass that would have ended the process.
DEATHS: list[str] = []


def has_operator(mod: tvm.IRModule, name: str) -> bool:
    """Whether a Relax function of the module calls the operator."""
    found = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and getattr(expr.op, "name", "") == name:
            found.append(expr)

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return bool(found)


@relax.expr_functor.mutator
class _ReluAsExp(relax.PyExprMutator):
    def visit_call_(self, op: relax.Call) -> relax.Expr:
        call = super().visit_expr_post_order(op)
        return relax.op.exp(call.args[0]) if getattr(call.op, "name", "") == "relax.nn.relu" else call


@tvm.transform.module_pass(opt_level=0, name="ReluAsExp")
def relu_as_exp(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Computes exp in place of relu."""
    wrong = tvm.IRModule(dict(mod.functions.items()), attrs=mod.attrs)
    wrong["main"] = _ReluAsExp(mod).visit_expr(mod["main"])
    return wrong


@tvm.transform.module_pass(opt_level=0, name="Loses")
def loses_a_parameter(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Leaves a variable that nothing defines, where there is a relu."""
    if not has_operator(mod, "relax.nn.relu"):
        return mod
    stray = relax.Var("stray", mod["main"].params[0].ty)
    function = relax.Function(mod["main"].params, relax.SeqExpr([], stray), stray.ty, True, mod["main"].attrs)
    return tvm.IRModule({"main": function})


@tvm.transform.module_pass(opt_level=0, name="RefusesRelu")
def refuses_relu(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Fails where there is a relu."""
    if has_operator(mod, "relax.nn.relu"):
        raise tvm.error.InternalError("Check failed: no relu in main at 0x1f00, of 12 bindings")
    return mod


@tvm.transform.module_pass(opt_level=0, name="DiesOfRelu")
def dies_of_relu(mod: tvm.IRModule, _context: object) -> tvm.IRModule:
    """Ends the process where there is a relu."""
    if has_operator(mod, "relax.nn.relu"):
        DEATHS.append("SIGSEGV")
        raise tvm.error.InternalError("the process would be gone now")
    return mod


FAULTS = {"wrong": relu_as_exp, "ill-formed": loses_a_parameter, "raise": refuses_relu, "die": dies_of_relu}


@dataclass(frozen=True)
class Planted:
    """A pass made of three of TVM's, the second of them faulty."""

    fault: str
    name: ClassVar[str] = PLACE
    stage: ClassVar[Stage] = Stage.SIMPLIFY

    def apply(self, mod: tvm.IRModule, _report: Report) -> tvm.IRModule:
        inner = [relax.transform.CanonicalizeBindings(), FAULTS[self.fault], relax.transform.DeadCodeElimination()]
        return tvm.transform.Sequential(inner)(mod)


def planting(fault: str):
    """What takes the place of `make_pass`."""

    def make(spec: PassSpec):
        return Planted(fault) if spec.name == PLACE else make_pass(spec)

    return make
