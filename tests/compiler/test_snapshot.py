"""What a Snapshot says of a module."""

from __future__ import annotations

import json

from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.passes.fuse_tir import FuseTIR
from service.compiler.snapshot import Snapshots
from tests.compiler.conftest import module_of


def test_functions_operators_and_calls_are_counted() -> None:
    snapshot = Snapshots(1 << 20).take(module_of(FuseDenseAdd.after))
    assert snapshot.ops == {"call": 1, "relax.add": 1, "relax.matmul": 1, "relax.permute_dims": 1}
    group, main = json.loads(snapshot.blob)["functions"]
    assert (group["name"], group["kind"], group["primitive"]) == ("fused_dense_add0", "relax", True)
    assert (main["name"], main["calls"], main["ops"]) == ("main", ["fused_dense_add0"], {"call": 1})
    assert main["text"].startswith("@R.function")


def test_tensorir_functions_have_their_kind_and_call_tir_its_name() -> None:
    snapshot = Snapshots(1 << 20).take(module_of(FuseTIR.after))
    body = json.loads(snapshot.blob)
    kinds = {each["name"]: each["kind"] for each in body["functions"]}
    assert kinds == {"fused_add_relu": "tensorir", "main": "relax"}
    assert snapshot.ops == {"call_tir": 1}
    assert "@I.ir_module" in body["text"]
