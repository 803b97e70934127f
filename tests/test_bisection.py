"""From a Compilation that goes wrong to a small model: with the compiler in this process, where faults can be planted."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from service.bisection import Bisection, Bisections, Bounds
from service.compiler import locating
from service.compiler.recipes import load_catalogue
from service.diagnosis import symptom_of
from service.errors import CompilationNotReady, NoSymptom, NotFound, Problem
from service.nouns import CompileJob, Limits, ModelFormat, State, Target, Verify
from service.records import Compilation, Model
from service.symptoms import Symptom, SymptomKind
from service.wire import Frame
from service.worker.bisecting import bisect
from tests.compiler.planted import DEATHS, PLACE, planting
from tests.fakes import GONE, FakePool, FakeWorker

KINDS = {
    "raise": "pass-failed",
    "ill-formed": "ill-formed-module",
    "wrong": "verification-failed",
    "die": "worker-crashed",
}


class Net(nn.Module):
    """One relu among much else; widths that can be smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = torch.tanh(self.a(x)) * 2.0
        h = torch.relu(self.b(h) - 0.5)
        return torch.sigmoid(self.c(h)), h.mean(1)


class LocalPool(FakePool):
    """Runs each attempt in this process; a fault that would end a worker ends the attempt."""

    def __init__(self) -> None:
        super().__init__(self.attempt)

    async def attempt(self, frame: Frame) -> list[Any]:
        sent: list[Any] = []
        folder = self.work_dir
        job = CompileJob.from_json(frame.body["job"])
        inputs = None if job.inputs_path is None else str(folder / job.inputs_path)
        job = dataclasses.replace(
            job, model_path=str(folder / job.model_path), work_dir=str(folder), inputs_path=inputs
        )
        try:
            bisect(frame.body, job, lambda body, blobs: sent.append(Frame(body, blobs)))
        except Problem as problem:
            sent.append(Frame({"event": "failed", "problem": problem.to_json()}))
        if DEATHS:
            DEATHS.clear()
            return [*(frame for frame in sent if frame.body["event"] != "located"), GONE]
        return sent

    async def fork(self, role: str, confinement: Any, limits: Any) -> FakeWorker:
        worker = await super().fork(role, confinement, limits)
        await asyncio.sleep(0)
        return worker


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("bisection") / "net.pt2"
    torch.manual_seed(3)
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Net().eval(), (torch.randn(4, 16),), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, file)
    return file


def failed(file: Path, problem: dict[str, Any] | None, **fields: Any) -> Compilation:
    recipe = load_catalogue().recipe(["fuse_dense_add", PLACE, "legalize_ops"], Target(), 200)
    state = State.SUCCEEDED if problem is None else State.FAILED
    model = Model("0" * 64, ModelFormat.EXPORTED_PROGRAM, file.stat().st_size, file.name)
    return Compilation("c0ffee", state, "now", model, recipe, Verify.ARTIFACT, problem=problem, **fields)


def problem_of(slug: str, **members: Any) -> dict[str, Any]:
    return {"type": f"/problems/{slug}", "title": "t", "status": 422, "detail": "It failed.", **members}


async def bisected(
    file: Path, scratch: Path, symptom: Symptom, bounds: Bounds | None = None, check: Callable = id
) -> Bisection:
    bisections = Bisections(LocalPool(), Limits(), scratch)
    try:
        bisections.start(failed(file, None), {"model": file}, symptom, None, bounds or Bounds())
        done = await bisections.wait("c0ffee", 600)
        check(done)
        return done
    finally:
        await bisections.close()


@pytest.mark.parametrize(
    ("fault", "kind", "inner"),
    [
        ("raise", SymptomKind.FAILURE, "RefusesRelu"),
        ("ill-formed", SymptomKind.FAILURE, "Loses"),
        ("wrong", SymptomKind.WRONG, "ReluAsExp"),
        ("die", SymptomKind.CRASH, "DiesOfRelu"),
    ],
)
def test_a_planted_fault_is_found_and_reduced_to_the_relu(model, tmp_path, monkeypatch, fault, kind, inner):
    monkeypatch.setattr(locating, "make_pass", planting(fault))
    saved: list[torch.export.ExportedProgram] = []

    def read(bisection: Bisection) -> None:
        assert bisection.reduced is not None, bisection.to_json()
        saved.append(torch.export.load(str(bisection.reduced)))

    symptom = symptom_of(failed(model, problem_of(KINDS[fault])))
    assert symptom.kind is kind
    done = asyncio.run(bisected(model, tmp_path, symptom, check=read))
    assert done.state is State.SUCCEEDED, done.to_json()
    found = done.to_json()["found"]
    assert (found["step"], found["pass"], found["inner_pass"]) == (2, PLACE, inner)
    reduced = done.to_json()["reduced"]
    assert (reduced["nodes"], reduced["outputs"]) == (1, 1)
    assert reduced["nodes_before"] >= 8
    assert "torch.ops.aten.relu.default(" in reduced["code"]
    (argument,) = saved[0].example_inputs[0]
    assert argument.numel() <= 2
    assert done.attempts < 40
    if fault == "wrong":
        assert found["node"] == "relu"
    if fault == "die":
        assert found["signal"] == "SIGSEGV"


def test_the_printed_module_shows_the_fault_by_itself(model, tmp_path, monkeypatch):
    monkeypatch.setattr(locating, "make_pass", planting("raise"))
    done = asyncio.run(bisected(model, tmp_path, Symptom(SymptomKind.FAILURE)))
    scope: dict[str, Any] = {}
    exec(done.to_json()["reduced"]["code"], scope)
    again = tmp_path / "again.pt2"
    torch.export.save(scope["program"], again)
    done = asyncio.run(bisected(again, tmp_path, Symptom(SymptomKind.FAILURE)))
    assert done.to_json()["found"]["inner_pass"] == "RefusesRelu"


def test_what_does_not_show_again_is_said(model, tmp_path):
    done = asyncio.run(bisected(model, tmp_path, Symptom(SymptomKind.FAILURE)))
    assert done.state is State.FAILED
    assert isinstance(done.problem, NoSymptom)
    assert done.reduced is None


def test_the_limit_of_attempts_keeps_what_was_found(model, tmp_path, monkeypatch):
    monkeypatch.setattr(locating, "make_pass", planting("raise"))
    done = asyncio.run(bisected(model, tmp_path, Symptom(SymptomKind.FAILURE), Bounds(attempts=4)))
    assert done.state is State.SUCCEEDED
    assert done.attempts == 4
    assert done.found is not None
    assert "limit of 4 attempts" in done.notes[-1]


def test_what_does_not_end_is_located_and_not_reduced(model, tmp_path):
    begun = {"event": "begin", "phase": "pass", "step": 2, "pass": PLACE}

    async def script(_frame: Frame) -> list[Any]:
        return [Frame(begun)]

    async def go() -> Bisection:
        bisections = Bisections(FakePool(script), Limits(compile_s=0.05), tmp_path)
        symptom = symptom_of(failed(model, problem_of("deadline-exceeded")))
        bisections.start(failed(model, None), {"model": model}, symptom, None, Bounds())
        return await bisections.wait("c0ffee", 60)

    done = asyncio.run(go())
    assert done.state is State.SUCCEEDED
    assert done.found is not None
    assert (done.found.kind, done.found.pass_name) == (SymptomKind.HANG, PLACE)
    assert done.attempts == 1
    assert "not reduced" in done.notes[0]


def test_it_can_be_cancelled_and_asked_for_again(model, tmp_path, monkeypatch):
    monkeypatch.setattr(locating, "make_pass", planting("raise"))

    async def go() -> None:
        bisections = Bisections(LocalPool(), Limits(), tmp_path)
        arguments = (failed(model, None), {"model": model}, Symptom(SymptomKind.FAILURE), None, Bounds())
        first = bisections.start(*arguments)
        assert bisections.start(*arguments) is first
        while first.attempts < 2:
            await asyncio.sleep(0)
        await bisections.delete("c0ffee")
        assert first.state is State.CANCELLED
        assert bisections.get("c0ffee") is first
        await bisections.delete("c0ffee")
        with pytest.raises(NotFound):
            bisections.get("c0ffee")
        assert bisections.start(*arguments) is not first
        await bisections.close()
        assert not list(tmp_path.glob("work-*/reduced.pt2"))

    asyncio.run(go())


@pytest.mark.parametrize("slug", ["import-failed", "signature-mismatch", "memory-limit-exceeded", "interrupted"])
def test_a_failure_that_no_pass_is_the_cause_of_has_no_symptom(model, slug):
    with pytest.raises(NoSymptom, match=slug):
        symptom_of(failed(model, problem_of(slug)))


def test_a_success_has_one_where_its_numbers_are_not_all_right(model):
    with pytest.raises(NoSymptom, match="slow"):
        symptom_of(failed(model, None, verification={"passed": True, "special_values": {"passed": True}}))
    wrong = {"passed": True, "special_values": {"passed": False}}
    assert symptom_of(failed(model, None, verification=wrong)).kind is SymptomKind.WRONG
    step = {"passed": True, "special_values": {"passed": True}, "steps": {"first_wrong": 2}}
    assert symptom_of(failed(model, None, verification=step)).kind is SymptomKind.WRONG


def test_a_crash_of_what_was_built_is_looked_for_by_running_it(model):
    assert symptom_of(failed(model, problem_of("worker-crashed", phase="verify"))).runs
    assert not symptom_of(failed(model, problem_of("worker-crashed", phase="pass"))).runs


def test_one_that_runs_is_not_ready(model):
    running = dataclasses.replace(failed(model, None), state=State.RUNNING)
    with pytest.raises(CompilationNotReady):
        symptom_of(running)
