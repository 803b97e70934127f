"""Computes 2-d convolutions with the channels last (NHWC), and what stands between them as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.catalogue import option
from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class ConvertLayout:
    """Computes 2-d convolutions with the channels last (NHWC), and what stands between them as well.

    TVM puts a permute_dims where a tensor comes in or goes out, and carries the layout through pooling, normalisation
    and elementwise operators, so that a network has one at each end. The weights are permuted, too: put fold_constant
    behind this pass to have that done at compile time.
    """

    name: ClassVar[str] = "convert_layout"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            lv = R.nn.conv2d(x, w, padding=1)
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            lv = R.permute_dims(x, axes=[0, 2, 3, 1])
            lv1 = R.permute_dims(w, axes=[0, 2, 3, 1])
            lv2 = R.nn.conv2d(
                lv, lv1, padding=1, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC"
            )
            lv3 = R.nn.relu(lv2)
            gv = R.permute_dims(lv3, axes=[0, 3, 1, 2])
            R.output(gv)
        return gv
"""

    kernel: str = option("OHWI", "The layout of the weights.", choices=("OHWI", "HWIO"))

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", self.kernel]})(mod)
