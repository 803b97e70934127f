"""What a Snapshot says of a module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tvm

from service.compiler.compile import compile_model
from service.compiler.functions import constants_of
from service.compiler.passes.fuse_dense_add import FuseDenseAdd
from service.compiler.passes.fuse_tir import FuseTIR
from service.compiler.recipes import load_catalogue
from service.compiler.snapshot import Snapshots, parse_back
from tests import zoo
from tests.compiler.conftest import MakeRun, module_of, save


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


def test_figures_are_differences_from_the_step_before() -> None:
    snapshots = Snapshots(1 << 20)
    snapshots.take(module_of(FuseDenseAdd.before))
    fused = snapshots.take(module_of(FuseDenseAdd.after))
    figures = fused.figures
    assert figures.op_changes == {"call": 1}
    assert (figures.functions_added, figures.functions_removed, figures.functions_changed) == (1, 0, 1)
    assert json.loads(fused.blob)["changes"] == {"added": ["fused_dense_add0"], "removed": [], "changed": ["main"]}
    assert figures.peak_rss_bytes > 1 << 20
    assert figures.flops is None


def test_the_cost_of_a_module_is_the_sum_over_its_calls() -> None:
    figures = Snapshots(1 << 20).take(module_of(FuseTIR.after)).figures
    assert figures.flops
    assert figures.bytes_moved


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", ["lenet", "bert", "lstm_tagger", "unet"])
def test_the_text_of_every_step_of_every_preset_parses_back_to_an_equal_module(
    name: str, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants are named by the text and taken from the module."""
    path = save(*zoo.make(name), tmp_path / "given.pt2")
    modules: list[tvm.IRModule] = []
    take = Snapshots.take

    def remember(self: Snapshots, mod: tvm.IRModule, **where: Any) -> Any:
        modules.append(mod)
        return take(self, mod, **where)

    monkeypatch.setattr(Snapshots, "take", remember)
    # The presets have steps in common, and some steps change nothing: each text is parsed once.
    parsed: dict[str, tvm.IRModule] = {}
    for recipe in load_catalogue().recipes:
        modules.clear()
        run = make_run(path, recipe)
        compile_model(run.job, run.emit)
        assert len(modules) == len(run.steps)
        for mod, snapshot in zip(modules, run.snapshots, strict=False):
            text = snapshot["text"]
            if text not in parsed:
                parsed[text] = parse_back(text, constants_of(mod))
            tvm.ir.assert_structural_equal(parsed[text], mod)
