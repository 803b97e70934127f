"""Modules held against eager, and against the time of others."""

from __future__ import annotations

import time

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


class Busy:
    """A session that computes for a while."""

    def run(self, _inputs):
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass


def test_a_run_is_slow_beside_another(model, monkeypatch):
    judge = TimeJudge(model, tvm_target(Target()), factor=3.0)
    assert judge.verdict(model.module) is None
    judge.reference = Busy()
    assert judge.verdict(model.module) is None
    judge.reference = judge.session(model.module)
    assert judge.verdict(model.module) is None
    monkeypatch.setattr(judge, "session", lambda _: Busy())
    verdict = judge.verdict(model.module)
    assert verdict is not None
    assert verdict.after_ms >= 5 > verdict.before_ms


def test_what_runs_has_no_verdict(model):
    assert CrashJudge(model, tvm_target(Target())).verdict(model.module) is None
