"""One Compilation from end to end, as the worker sees it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from service.compiler.compile import compile_model
from service.errors import BuildFailed, DamagedModel
from service.nouns import Target
from service.runtime.session import Session
from tests.compiler.conftest import MakeRun


def test_the_events_come_in_order(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course")
    order = [each["event"] + ":" + str(each.get("phase", "")) for each in run.events]
    passes = ["begin:pass", "step:"] * 3
    ending = ["begin:build", "step:", "step:", "step:", "begin:verify", "succeeded:"]
    assert order == ["begin:import", "signature:", "step:", *passes, *ending]
    assert [step["index"] for step in run.steps] == [0, 1, 2, 3]
    assert [step["stage"] for step in run.steps] == ["import", "fusion", "lowering", "fuse_tir"]
    assert list(run.results) == ["vm", "tir", "llvm"]
    assert len(run.snapshots) == 7


def test_success_says_what_was_verified_and_built(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "generic")
    assert run.end["verification"]["passed"] is True
    assert run.end["verification"]["cases"] == [
        "example",
        "random_0",
        "random_1",
        "zero",
        "tiny",
        "large",
        "nan",
        "infinite",
    ]
    manifest = run.end["manifest"]
    assert manifest["signature"] == run.named("signature")[0]["signature"]
    assert manifest["library_bytes"] == Path(run.job.library_path).stat().st_size
    assert manifest["entry"] == "main"
    assert [each["phase"] for each in run.end["timings"]] == ["import", "pass", "build", "verify"]
    assert all(each["cpu_ms"] >= 0 for each in run.end["timings"])


@pytest.mark.parametrize("recipe", ["course", "generic", "none"])
@pytest.mark.parametrize("name", ["mlp", "mixed", "mixed_dynamic"])
def test_every_preset_compiles_every_model(compiled: MakeRun, models: dict[str, str], name: str, recipe: str) -> None:
    run = compiled(models[name], recipe)
    assert all(each["passed"] for each in run.end["verification"]["outputs"])


def test_the_snapshots_parse_back_into_their_functions(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course")
    for snapshot, step in zip(run.snapshots, [*run.steps, *run.results.values()], strict=True):
        assert len(snapshot["functions"]) == step["functions"]
        assert all(each["text"].splitlines()[-1].strip() for each in snapshot["functions"])


def test_a_damaged_file_is_the_sender_s_fault(make_run: MakeRun, models: dict[str, str], tmp_path: Path) -> None:
    whole = Path(models["mlp"]).read_bytes()
    for name, content in {"cut": whole[: len(whole) // 2], "text": b"hello", "empty": b""}.items():
        path = tmp_path / name
        path.write_bytes(content)
        run = make_run(str(path))
        with pytest.raises(DamagedModel):
            compile_model(run.job, run.emit)
        assert run.events == [{"event": "begin", "phase": "import", "step": 0, "pass": None}]


def test_an_unknown_cpu_fails_before_the_import(make_run: MakeRun, models: dict[str, str]) -> None:
    run = make_run(models["mlp"], target=Target(cpu="potato"))
    with pytest.raises(BuildFailed, match="potato"):
        compile_model(run.job, run.emit)
    assert run.events == []


@pytest.mark.parametrize("recipe", ["course", "generic"])
def test_the_lecture_s_network_predicts_as_eager_does(compiled: MakeRun, lecture_mlp, recipe: str) -> None:
    path, images, labels = lecture_mlp
    run = compiled(path, recipe)
    logits = Session(run.job.library_path).run([images])[0]
    program = torch.export.load(path)
    with torch.no_grad():
        eager = program.module()(torch.from_numpy(images)).numpy()
    assert (logits.argmax(1) == eager.argmax(1)).all()
    assert int((logits.argmax(1) == labels).sum()) == 438
    np.testing.assert_allclose(logits, eager, rtol=1e-3, atol=1e-4)


def test_the_lecture_s_steps_are_the_lecture_s(compiled: MakeRun, lecture_mlp) -> None:
    run = compiled(lecture_mlp[0], "course")
    _, fused, _, kernels = run.snapshots[:4]
    primitive = [each["name"] for each in fused["functions"] if each["primitive"]]
    assert primitive == ["fused_dense_add0", "fused_dense_add1"]
    tensorir = [each["name"] for each in kernels["functions"] if each["kind"] == "tensorir"]
    assert sorted(tensorir) == ["fused_dense_add0", "fused_dense_add1", "relu"]
    assert not any(each["primitive"] for each in kernels["functions"])


def test_a_matmul_that_feeds_two_adds_is_computed_once(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mixed"], ["fuse_dense_add"])
    main = next(each for each in run.snapshots[1]["functions"] if each["name"] == "main")
    assert (main["ops"]["relax.matmul"], main["ops"]["call"]) == (1, 2)
    assert "was left" in run.steps[1]["notes"][0]
