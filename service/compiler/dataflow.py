"""Who defines and who uses the variables of a Relax function: what a fusion must know not to compute a thing twice."""

from __future__ import annotations

from typing import Any

from tvm import relax

PRIMITIVE = "Primitive"


class Dataflow:
    """Definitions and uses of the variables of one Relax function, as it stood when this was made."""

    def __init__(self, function: relax.Function) -> None:
        self._values: dict[Any, Any] = dict(relax.analysis.get_var2val(function).items())
        counter = _UseCounter()
        counter.visit_expr(function)
        self._uses = counter.uses

    def call_of(self, expr: Any, operator: str) -> Any:
        """The call of `operator` (``relax.matmul``) that `expr`, a variable, is bound to; None if it is not."""
        if not isinstance(expr, relax.Var):
            return None
        value = self._values.get(expr)
        return value if is_call(value, operator) else None

    def uses(self, var: Any) -> int:
        """How often `var` is read, the function's result included."""
        return self._uses.get(var, 0)

    def reaches(self, var: Any, call: Any) -> bool:
        """Whether the operands of `call`, the value of `var`, can be read wherever `var` can.

        A dataflow variable ends with its block; the block's outputs live on.
        """
        if isinstance(var, relax.DataflowVar):
            return True
        return not any(isinstance(operand, relax.DataflowVar) for operand in call.args)


def is_call(expr: Any, operator: str) -> bool:
    """Whether `expr` is a call of the Relax operator of that full name."""
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", None) == operator


def is_primitive(function: Any) -> bool:
    """Whether `function` is a group that FuseTIR will turn into one kernel."""
    attributes = getattr(function, "attrs", None)
    return attributes is not None and PRIMITIVE in attributes and bool(attributes[PRIMITIVE])


def relax_functions(mod: Any) -> list[tuple[Any, Any]]:
    """(GlobalVar, Function) of every Relax function of `mod`, by name."""
    pairs = [(gvar, func) for gvar, func in mod.functions.items() if isinstance(func, relax.Function)]
    return sorted(pairs, key=lambda pair: str(pair[0].name_hint))


def rewrite_functions(mutator: Any, mod: Any) -> Any:
    """The module of a mutator's builder after it has visited every Relax function of `mod`."""
    for gvar, function in relax_functions(mod):
        mutator.builder_.update_func(gvar, mutator.visit_expr(function))
    return mutator.builder_.get()


@relax.expr_functor.visitor
class _UseCounter(relax.PyExprVisitor):  # type: ignore[misc]
    def __init__(self) -> None:
        self.uses: dict[Any, int] = {}

    def visit_var_(self, op: Any) -> None:
        self.uses[op] = self.uses.get(op, 0) + 1

    def visit_dataflow_var_(self, op: Any) -> None:
        self.uses[op] = self.uses.get(op, 0) + 1
