"""The steps of a Recipe: what each emits, and that a failure keeps what went before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import tvm
from tvm import relax

from service.compiler import pipeline
from service.compiler.compile import compile_model
from service.compiler.report import Report
from service.errors import IllFormedModule, MemoryLimitExceeded, OutputTooLarge, PassFailed, VerificationFailed
from service.nouns import Limits, PassSpec, Stage
from tests.compiler.conftest import MakeRun


@dataclass(frozen=True)
class Planted:
    """A pass that a test puts in the place of dead_code_elimination."""

    fault: str
    name: ClassVar[str] = "dead_code_elimination"
    stage: ClassVar[Stage] = Stage.SIMPLIFY

    def apply(self, mod: tvm.IRModule, report: Report) -> tvm.IRModule:
        report.notes.append("planted")
        if self.fault == "raise":
            raise tvm.error.InternalError("Check failed: the planted fault")
        if self.fault == "memory":
            raise MemoryError
        if self.fault == "ill-formed":
            main = mod["main"]
            stray = relax.Var("stray", main.params[0].ty)
            return tvm.IRModule({"main": relax.Function([], relax.SeqExpr([], stray), stray.ty, True, main.attrs)})
        return _with_relu_made_exp(mod)


def _with_relu_made_exp(mod: tvm.IRModule) -> tvm.IRModule:
    @relax.expr_functor.mutator
    class Wrong(relax.PyExprMutator):
        def visit_call_(self, op: relax.Call) -> relax.Expr:
            call = super().visit_expr_post_order(op)
            return relax.op.exp(call.args[0]) if getattr(call.op, "name", "") == "relax.nn.relu" else call

    wrong = tvm.IRModule(dict(mod.functions.items()))
    wrong["main"] = Wrong(mod).visit_expr(mod["main"])
    return wrong


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch):
    def put(fault: str) -> None:
        real = pipeline.make_pass

        def make(spec: PassSpec):
            return Planted(fault) if spec.name == "dead_code_elimination" else real(spec)

        monkeypatch.setattr(pipeline, "make_pass", make)

    return put


PASSES = ["fuse_dense_add", "dead_code_elimination", "legalize_ops"]


def test_a_failing_pass_keeps_the_snapshots_before_it(make_run: MakeRun, models: dict[str, str], plant) -> None:
    plant("raise")
    run = make_run(models["mlp"], PASSES)
    with pytest.raises(PassFailed) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions == {"step": 2, "pass": "dead_code_elimination"}
    assert "the planted fault" in caught.value.detail
    assert [step["pass"] for step in run.steps] == [None, "fuse_dense_add"]
    assert len(run.snapshots) == 2
    assert run.events[-1] == {"event": "begin", "phase": "pass", "step": 2, "pass": "dead_code_elimination"}


def test_an_ill_formed_module_is_named(make_run: MakeRun, models: dict[str, str], plant) -> None:
    plant("ill-formed")
    run = make_run(models["mlp"], PASSES)
    with pytest.raises(IllFormedModule) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["step"] == 2


def test_lack_of_memory_is_not_the_fault_of_the_pass(make_run: MakeRun, models: dict[str, str], plant) -> None:
    plant("memory")
    run = make_run(models["mlp"], PASSES)
    with pytest.raises(MemoryLimitExceeded) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["limit_bytes"] == run.job.limits.compile_memory_bytes


def test_a_wrong_pass_is_seen_at_its_step_and_fails_verification(
    make_run: MakeRun, models: dict[str, str], plant
) -> None:
    plant("wrong")
    run = make_run(models["mlp"], PASSES, verify="every_step")
    with pytest.raises(VerificationFailed) as caught:
        compile_model(run.job, run.emit)
    errors = [step["error"] for step in run.steps]
    assert errors[0] < 1e-5
    assert errors[1] < 1e-5
    assert errors[2] > 1e-2
    assert run.steps[2]["notes"][0] == "planted"
    assert run.steps[2]["details"]["numbers"]["first_binding"]["binding"] == "relu"
    assert caught.value.extensions["outputs"][0]["passed"] is False


def test_changed_is_about_structure(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], ["dead_code_elimination", "fuse_dense_add", "fuse_dense_add"])
    assert [step["changed"] for step in run.steps] == [True, False, True, False]


def test_the_ir_of_all_steps_together_is_bounded(make_run: MakeRun, models: dict[str, str]) -> None:
    run = make_run(models["mlp"], PASSES, limits=Limits(ir_bytes=6000))
    with pytest.raises(OutputTooLarge) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["limit_bytes"] == 6000
    assert caught.value.extensions["step"] == len(run.steps)


def test_checking_every_step_gives_every_step_an_error(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mlp"], "course", verify="every_step")
    assert all(0 <= step["error"] < 1e-5 for step in run.steps)
    assert {"event": "begin", "phase": "verify", "step": 1, "pass": "fuse_dense_add"} in run.events
