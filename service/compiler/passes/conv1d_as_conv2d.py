"""Convolutions of sequences as convolutions of images of one row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax

from service.compiler.dataflow import rewrite_functions
from service.compiler.report import Report
from service.nouns import Stage

# Where the axis of one row is put.
_ROW = 2
_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.softplus", "sigmoid", "tanh", "exp", "log",
        "negative", "abs", "sqrt", "rsqrt", "square", "erf", "sin", "cos", "clip", "add", "subtract", "multiply",
        "divide", "maximum", "minimum", "power",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Conv1dAsConv2d:
    """Writes each conv1d as a conv2d of an image with one row, so that it gets the layout and the kernels of images.

    Element-wise operators of such a result are computed on the image too, so that it is one from the first convolution
    to the last. The row is an axis of size 1: nothing is moved in memory for it.
    """

    name: ClassVar[str] = "conv1d_as_conv2d"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 2, 8), "float32"), w: R.Tensor((4, 2, 3), "float32"), b: R.Tensor((1, 4, 1), "float32")):
        with R.dataflow():
            lv = R.nn.conv1d(x, w, strides=[2], padding=[1, 1])
            lv1 = R.add(lv, b)
            gv = R.nn.relu(lv1)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 2, 8), "float32"), w: R.Tensor((4, 2, 3), "float32"), b: R.Tensor((1, 4, 1), "float32")):
        with R.dataflow():
            lv = R.expand_dims(x, axis=[2])
            lv1 = R.expand_dims(w, axis=[2])
            lv2 = R.nn.conv2d(lv, lv1, strides=[1, 2], padding=[0, 1, 0, 1])
            lv3 = R.expand_dims(b, axis=[2])
            lv4 = R.add(lv2, lv3)
            lv5 = R.nn.relu(lv4)
            gv = R.squeeze(lv5, axis=[2])
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        lifter = _Lifter(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        rewritten = rewrite_functions(lifter, mod)
        if not lifter.convolutions:
            return mod
        report.notes.append(f"{lifter.convolutions} convolutions of sequences are convolutions of images.")
        return relax.transform.DeadCodeElimination()(rewritten)


@relax.expr_functor.mutator
class _Lifter(relax.PyExprMutator):  # type: ignore[misc]
    """`images` are the variables of sequences that are there as images too."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.convolutions = 0
        self.images: dict[Any, Any] = {}
        self.inside = False

    def visit_dataflow_block_(self, block: Any) -> Any:
        self.inside = True
        new = super().visit_dataflow_block_(block)
        self.inside = False
        return new

    def visit_var_binding_(self, binding: Any) -> None:
        image = self._image(binding.value) if self.inside and isinstance(binding.value, relax.Call) else None
        if image is None:
            super().visit_var_binding_(binding)
            return
        self.images[binding.var] = self.builder_.emit(image)
        row = relax.op.squeeze(self.images[binding.var], [_ROW])
        is_inner = isinstance(binding.var, relax.DataflowVar)
        self.set_var_remap(binding.var, self.builder_.emit(row) if is_inner else self.builder_.emit_output(row))

    def _image(self, call: Any) -> Any:
        """The call on images; None where it stays one on sequences."""
        name = str(getattr(call.op, "name", ""))
        if name == "relax.nn.conv1d" and call.attrs.data_layout == "NCW" and call.attrs.kernel_layout == "OIW":
            self.convolutions += 1
            return self._convolution(call)
        of_images = any(isinstance(each, relax.Var) and each in self.images for each in call.args)
        if name in _ELEMENTWISE and of_images and all(map(_is_sequence_or_less, call.args)):
            return relax.Call(call.op, [self._lifted(each) for each in call.args], call.attrs, call.ty_args)
        return None

    def _convolution(self, call: Any) -> Any:
        attrs = call.attrs
        before, after = (int(each) for each in attrs.padding)
        return relax.op.nn.conv2d(
            *(self._lifted(each) for each in call.args),
            strides=[1, int(attrs.strides[0])],
            padding=[0, before, 0, after],
            dilation=[1, int(attrs.dilation[0])],
            groups=int(attrs.groups),
            out_dtype=attrs.out_dtype or None,
        )

    def _lifted(self, operand: Any) -> Any:
        if isinstance(operand, relax.Var) and operand in self.images:
            return self.images[operand]
        ty, operand = operand.ty, self.visit_expr(operand)
        # Fewer axes than two are the last ones, behind the row.
        if not isinstance(ty, relax.TensorType) or ty.ndim < 2:
            return operand
        return self.builder_.emit(relax.op.expand_dims(operand, [ty.ndim - 1]))


def _is_sequence_or_less(operand: Any) -> bool:
    return not isinstance(operand.ty, relax.TensorType) or 0 <= operand.ty.ndim <= 3
