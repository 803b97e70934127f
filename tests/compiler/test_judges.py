"""Modules held against eager, and against the time of others."""

from __future__ import annotations

import pytest

from service.compiler.importers.exported_program import import_model
from service.compiler.judges import CrashJudge, NumbersJudge, TimeJudge
from service.compiler.target import tvm_target
from service.nouns import Target
from tests.compiler.planted import relu_as_exp


@pytest.fixture
def model(make_run, models):
    return import_model(make_run(models["mlp"]).job)


def test_right_numbers_have_no_verdict_and_wrong_ones_name_the_node(model):
    judge = NumbersJudge(model, tvm_target(Target()), special=True)
    assert judge.verdict(model.module) is None
    verdict = judge.verdict(relu_as_exp(model.module))
    assert verdict is not None
    assert (verdict.node, verdict.binding) == ("relu", "relu")
    assert "output_0" in verdict.message


def test_a_run_is_slow_beside_another(model):
    judge = TimeJudge(model, tvm_target(Target()), factor=2.0)
    taken = judge.run_ms(model.module)
    judge.reference_ms = taken * 100
    assert judge.verdict(model.module) is None
    judge.reference_ms = 0.0
    verdict = judge.verdict(model.module)
    assert (verdict is None) == (taken < 0.02) or verdict.after_ms > verdict.before_ms


def test_what_runs_has_no_verdict(model):
    assert CrashJudge(model, tvm_target(Target())).verdict(model.module) is None
