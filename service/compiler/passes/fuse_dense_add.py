"""Matmul and the add of its bias as one sub-function, the second fusion of the MLC lecture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax
from tvm.relax.utils import copy_with_new_vars

from service.catalogue import option
from service.compiler.dataflow import PRIMITIVE, Dataflow, is_call, is_primitive, relax_functions
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class FuseDenseAdd:
    """Groups a matmul and the add of its result into a private sub-function, which fuse_tir makes one kernel.

    The matmul may be either operand of the add. If its weight is a `permute_dims` that nothing else reads, as
    `torch.nn.Linear` is imported, the transposition moves into the group too; put `fold_constant` before this pass to
    transpose constant weights at compile time instead. Constants become arguments of the call. Groups of the same
    shapes share one sub-function.

    A matmul that something else reads too is left alone: fusing it would compute it twice. A note names it.
    """

    name: ClassVar[str] = "fuse_dense_add"
    stage: ClassVar[Stage] = Stage.FUSION
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((2, 8), "float32"), b: R.Tensor((2,), "float32")):
        with R.dataflow():
            lv = R.permute_dims(w)
            lv1 = R.matmul(x, lv)
            gv = R.add(lv1, b)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function(private=True)
    def fused_dense_add0(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((2, 8), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor((4, 2), "float32"):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            lv = R.permute_dims(w)
            lv1 = R.matmul(x, lv)
            gv = R.add(lv1, b)
            R.output(gv)
        return gv

    @R.function
    def main(
        x: R.Tensor((4, 8), "float32"), w: R.Tensor((2, 8), "float32"), b: R.Tensor((2,), "float32")
    ) -> R.Tensor((4, 2), "float32"):
        cls = Module
        with R.dataflow():
            gv: R.Tensor((4, 2), "float32") = cls.fused_dense_add0(x, w, b)
            R.output(gv)
        return gv
"""

    allow_duplicates: bool = option(
        False, "Fuse a matmul that has other users too. It is then computed once for each of them."
    )

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        # The builder of the mutator writes the sub-functions into its module: it gets one of its own.
        mutator = _Fusor(IRModule(dict(mod.functions.items()), attrs=mod.attrs), self.allow_duplicates, report.notes)
        for gvar, function in relax_functions(mod):
            if not is_primitive(function):
                mutator.fuse(gvar, function)
        return mutator.builder_.get() if mutator.fused else mod


@relax.expr_functor.mutator
class _Fusor(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule, allow_duplicates: bool, notes: list[str]) -> None:
        super().__init__(mod)
        self.allow_duplicates = allow_duplicates
        self.notes = notes
        self.fused = 0
        self.names = {str(gvar.name_hint) for gvar in mod.get_global_vars()}
        self.dataflow: Dataflow

    def fuse(self, gvar: Any, function: relax.Function) -> None:
        """Rewrites one function of the builder's module."""
        before = self.fused
        self.dataflow = Dataflow(function)
        rewritten = self.visit_expr(function)
        if self.fused > before:
            self.builder_.update_func(gvar, relax.analysis.remove_all_unused(rewritten))

    def visit_call_(self, op: Any) -> Any:
        if is_call(op, "relax.add"):
            for index in (0, 1):
                matmul = self._fusable(op.args[index])
                call = None if matmul is None else self._group(matmul, op, index)
                if call is not None:
                    self.fused += 1
                    return call
        return super().visit_expr_post_order(op)

    def _fusable(self, product: Any) -> Any:
        matmul = self.dataflow.call_of(product, "relax.matmul")
        if matmul is None or not self.dataflow.reaches(product, matmul):
            return None
        users = self.dataflow.uses(product)
        if users > 1 and not self.allow_duplicates:
            name = str(product.name)
            note = f"matmul {name!r} was left: {users} operators read it. Set allow_duplicates to fuse it all the same."
            if note not in self.notes:
                self.notes.append(note)
            return None
        return matmul

    def _group(self, matmul: Any, add: Any, index: int) -> Any:
        """The call of a new sub-function for `add`, whose operand `index` is `matmul`; None if shapes forbid it."""
        data, weight = matmul.args
        transpose = self.dataflow.call_of(weight, "relax.permute_dims")
        if transpose is not None and not self._can_absorb(weight, transpose):
            transpose = None
        source = weight if transpose is None else transpose.args[0]
        arguments = [self.visit_expr(operand) for operand in (data, source, add.args[1 - index])]
        if not all(isinstance(argument.ty, relax.TensorType) for argument in arguments):
            return None
        function = _sub_function(arguments, transpose, matmul, add, index)
        if function is None:
            return None
        return relax.Call(self._add(function), arguments)

    def _can_absorb(self, weight: Any, transpose: Any) -> bool:
        return self.dataflow.uses(weight) == 1 and self.dataflow.reaches(weight, transpose)

    def _add(self, function: relax.Function) -> Any:
        number = 0
        while f"fused_dense_add{number}" in self.names:
            number += 1
        # The builder gives back the variable of an equal function if it has one.
        gvar = self.builder_.add_func(function, f"fused_dense_add{number}")
        self.names.add(str(gvar.name_hint))
        return gvar


def _sub_function(arguments: list[Any], transpose: Any, matmul: Any, add: Any, index: int) -> Any:
    """(data, weight, addend) -> data @ weight + addend as a Primitive function with symbols of its own.

    None when a shape of an argument is an expression from which a symbol that is needed cannot be found again.
    """
    names = ("x", "w", "b")
    params = [relax.Var(name, argument.ty) for name, argument in zip(names, arguments, strict=True)]
    data, weight, addend = params
    builder = relax.BlockBuilder()
    with builder.function("fused", params, private=True):
        with builder.dataflow():
            if transpose is not None:
                weight = builder.emit(relax.Call(transpose.op, [weight], transpose.attrs))
            product = builder.emit(relax.Call(matmul.op, [data, weight], matmul.attrs))
            operands = [product, addend] if index == 0 else [addend, product]
            result = builder.emit_output(relax.Call(add.op, operands, add.attrs))
        builder.emit_func_output(result)
    function = builder.get()["fused"].with_attr(PRIMITIVE, True)
    if relax.analysis.free_symbolic_vars(function):
        return None
    return copy_with_new_vars(function)
