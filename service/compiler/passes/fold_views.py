"""Reshapes and transpositions of constants, without compiling anything for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tvm
from tvm import IRModule, relax
from tvm.ir import GenericConst

from service.compiler.dataflow import rewrite_functions
from service.compiler.report import Report
from service.compiler.schedules.expressions import constant
from service.nouns import Stage
from service.runtime.session import Array


@dataclass(frozen=True)
class FoldViews:
    """Carries out reshapes and transpositions of constants at compile time, such as those of weights and biases.

    fold_constant does so too, among much else, but it compiles a function for each; this pass takes a thousandth of
    the time. Put it before the lowering.
    """

    name: ClassVar[str] = "fold_views"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            lv = R.reshape(R.const(2.0, "float32"), R.shape([]))
            gv = R.multiply(x, lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            gv = R.multiply(x, R.const(2.0, "float32"))
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        folder = _Folder(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        rewritten = rewrite_functions(folder, mod)
        if not folder.folded:
            return mod
        report.notes.append(f"{len(folder.folded)} views of constants folded.")
        return rewritten


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.folded: dict[Any, Any] = {}
        # The value of one constant in one other form, however often it is used.
        self.known: dict[Any, Any] = {}

    def visit_dataflow_var_(self, op: Any) -> Any:
        return self.folded[op] if op in self.folded else super().visit_dataflow_var_(op)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self._value(binding) if isinstance(binding.var, relax.DataflowVar) else None
        if value is None:
            super().visit_var_binding_(binding)
        else:
            self.folded[binding.var] = value

    def _value(self, binding: Any) -> Any:
        call = binding.value
        view = _VIEWS.get(str(getattr(call.op, "name", ""))) if isinstance(call, relax.Call) else None
        if view is None:
            return None
        source = self.folded.get(call.args[0], call.args[0])
        shape = binding.var.ty.shape
        if not isinstance(source, GenericConst) or not isinstance(shape, relax.ShapeExpr):
            return None
        sizes: list[Any] = [constant(each) for each in shape.values]
        axes = getattr(call.attrs, "axes", None)
        order = None if axes is None else [int(axis) for axis in axes]
        if any(size is None for size in sizes) or str(binding.var.ty.dtype) == "bfloat16":
            return None
        key = (source, call.op, str(sizes), str(order))
        if key not in self.known:
            array = np.ascontiguousarray(view(source.value.numpy(), sizes, order)).reshape(sizes)
            self.known[key] = relax.const(tvm.runtime.tensor(array))
        return self.known[key]


_View = Callable[[Array, list[Any], Any], Array]


def _reshaped(value: Array, sizes: list[Any], _: Any) -> Array:
    return value.reshape(sizes)


_VIEWS: dict[str, _View] = {
    "relax.permute_dims": lambda value, _, axes: value.transpose(axes),
    "relax.reshape": _reshaped,
    "relax.flatten": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.squeeze": _reshaped,
}
