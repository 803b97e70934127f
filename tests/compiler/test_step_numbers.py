"""The numbers of every step."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import relax

from service.compiler import pipeline
from service.compiler.compile import compile_model
from service.compiler.kernel_cache import KernelCache
from service.compiler.passes.legalize_ops import LegalizeOps
from service.compiler.report import Report
from service.compiler.target import tvm_target
from service.errors import VerificationFailed
from service.nouns import Stage, Target
from tests import zoo
from tests.compiler.conftest import MakeRun, module_of, save


def test_every_output_has_its_figures(compiled: MakeRun, models: dict[str, str]) -> None:
    run = compiled(models["mixed"], "course", verify="every_step")
    for step in run.steps:
        outputs = step["details"]["numbers"]["outputs"]
        assert [each["name"] for each in outputs] == ["output_0", "output_1", "output_2"]
        assert all(each["passed"] for each in outputs)
        assert all(0 <= each["mean_abs_error"] <= each["max_abs_error"] < 1e-5 for each in outputs)
        assert all(each["mean_rel_error"] <= each["max_rel_error"] for each in outputs)
        assert step["error"] == max(each["max_abs_error"] for each in outputs)
    assert run.end["verification"]["steps"] == {"first_wrong": None, "first_jump": None}


class WrongTanh:
    """Makes tanh of every sigmoid, as a faulty pass would."""

    name, stage = "dead_code_elimination", Stage.SIMPLIFY

    def apply(self, mod: tvm.IRModule, report: Report) -> tvm.IRModule:
        @relax.expr_functor.mutator
        class Wrong(relax.PyExprMutator):
            def visit_call_(self, op: relax.Call) -> relax.Expr:
                call = super().visit_expr_post_order(op)
                return relax.op.tanh(call.args[0]) if getattr(call.op, "name", "") == "relax.nn.softmax" else call

        wrong = tvm.IRModule(dict(mod.functions.items()))
        wrong["main"] = Wrong(mod).visit_expr(mod["main"])
        return wrong


def test_the_step_and_the_binding_that_are_wrong_are_named(
    make_run: MakeRun, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pipeline.make_pass
    monkeypatch.setattr(
        pipeline, "make_pass", lambda spec: WrongTanh() if spec.name == "dead_code_elimination" else real(spec)
    )
    run = make_run(models["mixed"], ["fuse_dense_add", "dead_code_elimination", "legalize_ops"], verify="every_step")
    with pytest.raises(VerificationFailed) as caught:
        compile_model(run.job, run.emit)
    assert caught.value.extensions["steps"] == {"first_wrong": 2, "first_jump": 2}
    assert [step["details"]["numbers"]["outputs"][0]["passed"] for step in run.steps] == [True, True, False, False]
    first = run.steps[2]["details"]["numbers"]["first_binding"]
    assert "softmax" in first["node"]
    assert "softmax" in first["binding"]
    assert first["max_abs_error"] > 1e-2
    assert "softmax" in run.steps[2]["notes"][-1]


def test_a_step_that_changed_nothing_is_not_run_again(
    compiled: MakeRun, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tvm.IRModule] = []
    build = KernelCache.build
    monkeypatch.setattr(KernelCache, "build", lambda self, mod: (built.append(mod), build(self, mod))[1])
    run = compiled(
        models["mlp"], ["dead_code_elimination", "dead_code_elimination", "legalize_ops"], verify="every_step"
    )
    assert len(built) == 2
    assert run.steps[1]["details"]["numbers"] == run.steps[0]["details"]["numbers"]


def test_a_kernel_that_steps_share_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[tvm.IRModule] = []
    build = tvm.tirx.build
    monkeypatch.setattr(tvm.tirx, "build", lambda mod, **rest: (built.append(mod), build(mod, **rest))[1])
    cache = KernelCache(tvm_target(Target()))
    before = module_of(LegalizeOps.before)
    cache.build(before)
    assert len(built) == 1
    cache.build(LegalizeOps().apply(before, Report()))
    assert len(built) == 1


@pytest.mark.filterwarnings("ignore:The tensor attributes")
@pytest.mark.parametrize("name", ["lenet", "gpt", "gru_tagger"])
def test_real_models_are_right_at_every_step(name: str, compiled: MakeRun, tmp_path: Path) -> None:
    run = compiled(save(*zoo.make(name), tmp_path / "given.pt2"), None, verify="every_step")
    assert all(each["passed"] for step in run.steps for each in step["details"]["numbers"]["outputs"])
