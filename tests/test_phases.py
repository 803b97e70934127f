"""The accounts of phases: what is charged to which, and what is told beyond a limit."""

from __future__ import annotations

import os
import time

import pytest

from service.nouns import Limits
from service.phases import PHASES, QUICKEST_LOOK_S, SLOWEST_LOOK_S, Phases, cpu_s

LIMITS = Limits(import_s=10, import_cpu_s=4, passes_s=6, passes_cpu_s=8, build_s=5, verify_s=3)


class Clocks:
    """Two clocks that a test puts forward."""

    def __init__(self, *, tunes: bool = False) -> None:
        self.wall = self.cpu = 100.0
        self.stops = 0
        self.phases = Phases(LIMITS, self.stop, lambda: self.wall, lambda: self.cpu, cores=2, tunes=tunes)

    def stop(self) -> None:
        self.stops += 1

    def spend(self, wall: float, cpu: float = 0.0) -> None:
        self.wall += wall
        self.cpu += cpu
        self.phases.look()


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.mark.parametrize(("wall", "cpu", "clock"), [(10.0, 0.0, ""), (0.0, 4.0, "cpu_")])
def test_a_phase_may_take_its_limit_and_no_more(clocks, wall, cpu, clock):
    clocks.spend(wall / 2, cpu / 2)
    clocks.spend(wall / 2, cpu / 2)
    assert clocks.phases.exceeded is None
    clocks.spend(0.01, 0.01)
    problem = clocks.phases.exceeded.to_json()
    assert (problem["phase"], problem[f"limit_{clock}s"]) == ("import", wall + cpu)
    assert f"RELAXD_IMPORT_{clock.upper()}S" in problem["detail"]
    assert "the import" in problem["detail"]
    assert clocks.stops == 1
    clocks.spend(100.0, 100.0)
    assert clocks.stops == 1


def test_each_phase_has_one_account_however_often_it_begins(clocks):
    for _ in range(3):
        clocks.phases.begin("pass")
        clocks.spend(1.9)
        clocks.phases.begin("verify")
        clocks.spend(0.9)
    assert clocks.phases.exceeded is None
    clocks.phases.begin("pass")
    clocks.spend(0.2)
    assert clocks.phases.exceeded is None
    clocks.phases.begin("verify")
    clocks.spend(0.5)
    assert clocks.phases.exceeded.extensions == {"phase": "verify", "limit_s": 3}


def test_what_ran_before_a_phase_began_is_not_charged_to_it(clocks):
    clocks.wall += 9.0
    clocks.phases.begin("verify")
    clocks.spend(2.9)
    assert clocks.phases.exceeded is None


def test_a_phase_that_has_ended_beyond_its_limit_is_noticed_when_the_next_begins(clocks):
    clocks.wall += 10.1
    clocks.phases.begin("build")
    assert clocks.phases.exceeded.extensions["phase"] == "import"


@pytest.mark.parametrize("name", ["tune", "nonsense"])
def test_a_name_that_is_no_phase_ends_none(clocks, name):
    clocks.phases.begin("build")
    clocks.phases.begin(name)
    clocks.spend(5.1)
    assert clocks.phases.exceeded.extensions["phase"] == "build"


def test_tuning_that_was_asked_for_is_limited_elsewhere():
    clocks = Clocks(tunes=True)
    clocks.phases.begin("tune")
    clocks.spend(1e6, 1e6)
    assert clocks.phases.exceeded is None


def test_the_next_look_is_not_later_than_a_limit_could_be_passed(clocks):
    assert clocks.phases.look() == SLOWEST_LOOK_S
    clocks.spend(0.0, 3.0)
    assert clocks.phases.look() == 0.5  # two cores spend a second in half of one
    clocks.spend(0.0, 1.0)
    assert clocks.phases.look() == QUICKEST_LOOK_S


def test_the_cpu_clock_of_a_process_is_its_own():
    before = cpu_s(os.getpid())
    assert before == pytest.approx(time.process_time(), abs=0.1)
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert cpu_s(os.getpid()) - before >= 0.05
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_s(1 << 22)


def test_a_process_that_is_gone_stops_nothing():
    def gone() -> float:
        raise OSError("gone")

    phases = Phases(Limits(), lambda: None, cpu=gone)
    assert phases.look() > 0
    assert phases.exceeded is None


def test_a_compilation_beyond_the_limit_of_a_phase_is_stopped_and_told_which(new_server, model_file):
    server = new_server(RELAXD_PASSES_S="0.0001", RELAXD_VERIFY_CPU_S="0.001")
    model = model_file("mlp")
    cases = [({"passes": "generic"}, "pass", "limit_s", 0.0001), ({"passes": []}, "verify", "limit_cpu_s", 0.001)]
    for request, phase, name, limit in cases:
        answer = server.compile(model, request)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "/problems/deadline-exceeded")
        assert (problem["phase"], problem[name]) == (phase, limit)
        assert "RELAXD_" + ("PASSES_S" if phase == "pass" else "VERIFY_CPU_S") in problem["detail"]
        assert PHASES[phase][0] in problem["detail"]
        found = server.http.get(problem["href"]).json()
        assert found["state"] == "failed"
        assert found["artifact"] is None


def test_the_kernels_limit_of_all_cpu_time_is_told_as_one(new_server, model_file):
    server = new_server(RELAXD_COMPILE_CPU_S="1")
    answer = server.compile(model_file("deep"), {"passes": ["fuse_dense_add", "legalize_ops"]})
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "/problems/deadline-exceeded")
    assert problem["limit_cpu_s"] == 1
    assert "RELAXD_COMPILE_CPU_S" in problem["detail"]
