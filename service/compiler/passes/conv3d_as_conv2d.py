"""Convolutions of volumes as convolutions of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import IRModule, relax, tirx

from service.compiler.dataflow import rewrite_functions
from service.compiler.report import Report
from service.compiler.schedules.expressions import constant
from service.nouns import Stage


@dataclass(frozen=True)
class Conv3dAsConv2d:
    """Writes each conv3d as a conv2d, so that it gets the layout and the kernels of images.

    The layers that the taps along the depth read are laid side by side as channels of one image for each layer of the
    result: the input is written once for each of these taps, and there is no sum of results. Depth and channels must be
    of known size, and the channels in one group.
    """

    name: ClassVar[str] = "conv3d_as_conv2d"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 2, 5, 4, 4), "float32"), w: R.Tensor((3, 2, 3, 1, 1), "float32")):
        with R.dataflow():
            gv = R.nn.conv3d(x, w, strides=[2, 1, 1], padding=[1, 0, 0, 1, 0, 0])
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 2, 5, 4, 4), "float32"), w: R.Tensor((3, 2, 3, 1, 1), "float32")):
        with R.dataflow():
            lv = R.nn.pad(x, (0, 0, 0, 0, 1, 1, 0, 0, 0, 0), pad_value=0.0, pad_mode="constant")
            lv1 = R.strided_slice(lv, (R.prim_value(2),), (R.prim_value(0),), (R.prim_value(5),), (R.prim_value(2),), assume_inbound=False)
            lv2 = R.strided_slice(lv, (R.prim_value(2),), (R.prim_value(1),), (R.prim_value(6),), (R.prim_value(2),), assume_inbound=False)
            lv3 = R.strided_slice(lv, (R.prim_value(2),), (R.prim_value(2),), (R.prim_value(7),), (R.prim_value(2),), assume_inbound=False)
            lv4 = R.concat((lv1, lv2, lv3), axis=1)
            lv5 = R.permute_dims(lv4, axes=[0, 2, 1, 3, 4])
            lv6 = R.reshape(lv5, R.shape([3, 6, 4, 4]))
            lv7 = R.permute_dims(w, axes=[0, 2, 1, 3, 4])
            lv8 = R.reshape(lv7, R.shape([3, 6, 1, 1]))
            lv9 = R.nn.conv2d(lv6, lv8)
            lv10 = R.reshape(lv9, R.shape([1, 3, 3, 4, 4]))
            gv = R.permute_dims(lv10, axes=[0, 2, 1, 3, 4])
            R.output(gv)
        return gv
"""  # noqa: E501

    def apply(self, mod: IRModule, report: Report) -> IRModule:
        writer = _Writer(IRModule(dict(mod.functions.items()), attrs=mod.attrs))
        rewritten = rewrite_functions(writer, mod)
        if not writer.convolutions:
            return mod
        report.notes.append(f"{writer.convolutions} convolutions of volumes are convolutions of images.")
        return rewritten


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.convolutions = 0

    def visit_call_(self, op: Any) -> Any:
        call = super().visit_call_(op)
        if str(getattr(op.op, "name", "")) != "relax.nn.conv3d" or not _is_known(op):
            return call
        self.convolutions += 1
        attrs = call.attrs
        padding = [int(each) for each in attrs.padding]
        volume, weight = call.args
        depth = [constant(op.ty.shape.values[2]), int(attrs.strides[0]), int(attrs.dilation[0])]
        image = self._images(volume, int(weight.ty.shape.values[2]), depth, (padding[0], padding[3]))
        outputs, inputs, taps, *rest = weight.ty.shape.values
        weight = self._emit(relax.op.permute_dims(weight, [0, 2, 1, 3, 4]))
        product = self._emit(
            relax.op.nn.conv2d(
                image,
                self._emit(relax.op.reshape(weight, [outputs, taps * inputs, *rest])),
                strides=list(attrs.strides)[1:],
                padding=[*padding[1:3], *padding[4:]],
                dilation=list(attrs.dilation)[1:],
                out_dtype=attrs.out_dtype or None,
            )
        )
        batch, _, *sizes = op.ty.shape.values
        apart = self._emit(relax.op.reshape(product, [batch, depth[0], outputs, *sizes[1:]]))
        return relax.op.permute_dims(apart, [0, 2, 1, 3, 4])

    def _images(self, volume: Any, taps: int, depth: list[Any], padding: tuple[int, int]) -> Any:
        """One image for each layer of the result, with the channels of all layers that it is made of."""
        layers, stride, dilation = depth
        if any(padding):
            volume = self._emit(relax.op.nn.pad(volume, [0, 0, 0, 0, *padding, 0, 0, 0, 0]))
        parts = [
            relax.op.strided_slice(volume, [2], [first], [first + (layers - 1) * stride + 1], [stride])
            for first in range(0, taps * dilation, dilation)
        ]
        joined = self._emit(relax.op.concat([self._emit(part) for part in parts], axis=1)) if taps > 1 else parts[0]
        batch, channels, _, *sizes = volume.ty.shape.values
        moved = self._emit(relax.op.permute_dims(self._emit(joined), [0, 2, 1, 3, 4]))
        images = self._emit(relax.op.reshape(moved, [batch * layers, taps * channels, *sizes]))
        if constant(batch) is not None:
            return images
        # A size of its own: a kernel would be handed the batch as a number to compute this from.
        own = relax.TensorType([tirx.Var("images", "int64"), taps * channels, *sizes], images.ty.dtype)
        return self.builder_.match_cast(images, own)

    def _emit(self, expr: Any) -> Any:
        return expr if isinstance(expr, relax.Var) else self.builder_.emit(expr)


def _is_known(call: Any) -> bool:
    """Whether it is a convolution in one group of channels, whose channels, taps and depth are of known size."""
    attrs = call.attrs
    if attrs.data_layout != "NCDHW" or attrs.kernel_layout != "OIDHW" or int(attrs.groups) != 1:
        return False
    shapes = [each.ty.shape for each in (*call.args, call)]
    if not all(isinstance(shape, relax.ShapeExpr) for shape in shapes):
        return False
    volume, weight, result = (list(shape.values) for shape in shapes)
    return all(constant(each) is not None for each in (*volume[1:3], *weight, result[2]))
