"""What the build shows of itself."""

from __future__ import annotations

import pytest

from service.compiler.compile import compile_model
from service.nouns import Limits
from tests.compiler.conftest import MakeRun


def test_every_kernel_stands_in_every_result(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course")
    assert list(run.results) == ["vm", "tir", "llvm"]
    vm, tir, llvm = run.snapshots[-3:]
    kernels = {entry["name"] for entry in tir["functions"]}
    assert kernels == {entry["name"] for entry in llvm["functions"]}
    assert [entry["name"] for entry in vm["functions"]] == ["main"]
    assert all(f" {kernel} " in vm["text"] for kernel in kernels)
    assert "T.decl_buffer" in tir["text"]
    assert "T.target" not in tir["text"]
    assert "define" in llvm["text"]
    assert [step["index"] for step in run.results.values()] == [4, 5, 6]


def test_the_memory_plan_is_told(compiled: MakeRun, models: dict[str, str]) -> None:
    memory = compiled(models["mixed"], "generic").results["vm"]["details"]["memory"]
    assert memory["allocated_bytes"] > 0
    assert memory["reused_bytes"] == memory["tensor_bytes"] - memory["allocated_bytes"]


def test_a_result_without_room_fails_nothing(make_run: MakeRun, models: dict[str, str]) -> None:
    whole = make_run(models["mlp"], "course")
    compile_model(whole.job, whole.emit)
    steps = sum(len(str(snapshot)) for snapshot in whole.snapshots[:-3])
    run = make_run(models["mlp"], "course", limits=Limits(ir_bytes=steps * 2))
    compile_model(run.job, run.emit)
    assert run.end["verification"]["passed"]
    assert run.snapshots[-1]["text"] == ""
    assert "have no room" in run.results["llvm"]["notes"][0]


def test_the_time_of_the_build_is_parted(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course")
    parts = [step["wall_ms"] for step in run.results.values()]
    build = next(entry for entry in run.end["timings"] if entry["phase"] == "build")
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(build["wall_ms"], rel=1.0)
    assert sum(parts) <= build["wall_ms"]
