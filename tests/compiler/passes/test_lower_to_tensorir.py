"""lower_to_tensorir: the operator map's numbers, groups that stay groups, and the note on what it does not have."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

from service.compiler.operator_map import OPERATORS
from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.passes.lower_to_tensorir import LowerToTensorIR
from service.compiler.report import Report
from tests.compiler.conftest import module_of, run_module
from tests.compiler.passes.test_fuse_dense_add import groups

UNARY = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3, 4), "float32")):
        with R.dataflow():
            gv = R.{call}
            R.output(gv)
        return gv
"""
BINARY = UNARY.replace('"float32")):', '"float32"), y: R.Tensor((4,), "float32")):')
CALLS = {
    "relax.matmul": (BINARY, "matmul(x, R.reshape(y, (4, 1)))", lambda x, y: x @ y.reshape(4, 1)),
    "relax.permute_dims": (UNARY, "permute_dims(x)", lambda x: x.T),
    "relax.reshape": (UNARY, "reshape(x, (2, 6))", lambda x: x.reshape(2, 6)),
    "relax.flatten": (UNARY, "flatten(x)", lambda x: x.reshape(-1)),
    "relax.nn.softmax": (UNARY, "nn.softmax(x, axis=0)", lambda x: np.exp(x) / np.exp(x).sum(0)),
    "relax.ewise_fma": (UNARY, "ewise_fma(x, x, x)", lambda x: x * x + x),
    "relax.add": (BINARY, "add(x, y)", np.add),
    "relax.subtract": (BINARY, "subtract(x, y)", np.subtract),
    "relax.multiply": (BINARY, "multiply(x, y)", np.multiply),
    "relax.divide": (BINARY, "divide(x, y)", np.divide),
    "relax.maximum": (BINARY, "maximum(x, y)", np.maximum),
    "relax.minimum": (BINARY, "minimum(x, y)", np.minimum),
    "relax.nn.relu": (UNARY, "nn.relu(x)", lambda x: np.maximum(x, 0)),
    "relax.tanh": (UNARY, "tanh(x)", np.tanh),
    "relax.sigmoid": (UNARY, "sigmoid(x)", lambda x: 1 / (1 + np.exp(-x))),
    "relax.exp": (UNARY, "exp(x)", np.exp),
    "relax.log": (UNARY, "log(R.exp(x))", lambda x: x),
    "relax.sqrt": (UNARY, "sqrt(R.exp(x))", lambda x: np.sqrt(np.exp(x))),
    "relax.abs": (UNARY, "abs(x)", np.abs),
    "relax.negative": (UNARY, "negative(x)", np.negative),
}


def test_every_operator_of_the_map_is_tried() -> None:
    assert set(CALLS) == set(OPERATORS)


@pytest.mark.parametrize("operator", sorted(CALLS))
def test_the_map_computes_what_numpy_computes(operator: str) -> None:
    text, call, expected = CALLS[operator]
    generator = np.random.default_rng(2)
    values = [generator.standard_normal(shape).astype("float32") for shape in ((3, 4), (4,))]
    values = values if text is BINARY else values[:1]
    report = Report()
    after = LowerToTensorIR().apply(module_of(text.format(call=call)), report)
    assert report.notes == []
    assert any(isinstance(function, tvm.tirx.PrimFunc) for function in after.functions.values())
    np.testing.assert_allclose(run_module(after, *values)[0], expected(*values), rtol=1e-5, atol=1e-6)


def test_relu_keeps_nan_as_pytorch_does() -> None:
    after = LowerToTensorIR().apply(module_of(UNARY.format(call="nn.relu(x)")), Report())
    assert np.isnan(run_module(after, np.full((3, 4), np.nan, "float32"))[0]).all()


def test_an_operator_outside_the_map_goes_to_the_legalizer_and_is_noted() -> None:
    report = Report()
    after = LowerToTensorIR().apply(module_of(UNARY.format(call="erf(R.cos(x))")), report)
    assert report.notes == ["Lowered by TVM's legalizer, not by the operator map: relax.cos (1), relax.erf (1)."]
    assert "R.call_tir" in after["main"].script(show_meta=False)


def test_integers_go_to_the_legalizer_where_te_would_not_promote() -> None:
    text = UNARY.format(call="divide(x, x)").replace("float32", "int32")
    report = Report()
    LowerToTensorIR().apply(module_of(text), report)
    assert "relax.divide (1)" in report.notes[0]


def test_groups_stay_groups() -> None:
    fused = FuseDenseAdd().apply(module_of(FuseDenseAdd.before), Report())
    after = LowerToTensorIR().apply(fused, Report())
    relax.analysis.well_formed(after)
    assert groups(after) == ["fused_dense_add0"]
