"""Takes composite operators apart into simple ones, as they are computed at inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tvm import IRModule, relax

from service.compiler.report import Report
from service.nouns import Stage


@dataclass(frozen=True)
class DecomposeOpsForInference:
    """Takes composite operators apart into simple ones, as they are computed at inference.

    Batch normalisation becomes arithmetic with the running statistics, layer normalisation stays whole. A fusion can
    then take the parts into its groups.
    """

    name: ClassVar[str] = "decompose_ops_for_inference"
    stage: ClassVar[Stage] = Stage.SIMPLIFY
    needs: ClassVar[tuple[str, ...]] = ("operators",)
    gives: ClassVar[tuple[str, ...]] = ()
    takes: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((1, 2, 3, 3), "float32"),
        s: R.Tensor((2,), "float32"),
        b: R.Tensor((2,), "float32"),
        m: R.Tensor((2,), "float32"),
        v: R.Tensor((2,), "float32"),
    ):
        with R.dataflow():
            lv = R.nn.batch_norm(x, s, b, m, v, axis=1, training=False)
            gv = lv[0]
            R.output(gv)
        return gv
"""
    after: ClassVar[str] = """\
@I.ir_module
class Module:
    @R.function
    def main(
        x: R.Tensor((1, 2, 3, 3), "float32"),
        s: R.Tensor((2,), "float32"),
        b: R.Tensor((2,), "float32"),
        m: R.Tensor((2,), "float32"),
        v: R.Tensor((2,), "float32"),
    ):
        with R.dataflow():
            lv = R.expand_dims(m, axis=[0, 2, 3])
            lv1 = R.subtract(x, lv)
            lv2 = R.expand_dims(v, axis=[0, 2, 3])
            lv3 = R.add(lv2, R.const(9.9999997473787516e-06, "float32"))
            lv4 = R.sqrt(lv3)
            lv5 = R.divide(lv1, lv4)
            lv6 = R.expand_dims(s, axis=[0, 2, 3])
            lv7 = R.multiply(lv5, lv6)
            lv8 = R.expand_dims(b, axis=[0, 2, 3])
            lv9 = R.add(lv7, lv8)
            lv_1 = lv9, m, v
            gv = lv_1[0]
            R.output(gv)
        return gv
"""

    def apply(self, mod: IRModule, report: Report) -> IRModule:  # noqa: ARG002 - nothing to report
        return relax.transform.DecomposeOpsForInference()(mod)
