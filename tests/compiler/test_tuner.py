"""The search for parameters: what it takes, what it leaves, and that it ends. Times are scripted, so that nothing flakes."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import tvm
from tvm import IRModule, relax

from service.compiler import tuner
from service.compiler.kernel_timer import Operands, TimedKernel, bytes_of, race
from service.compiler.passes.schedule import Schedule
from service.compiler.report import Report
from service.compiler.schedules import dense
from service.compiler.schedules.known import using
from service.compiler.target import tvm_target
from service.nouns import Limits, PassSpec, Target
from service.tuning import TuningRecord
from tests.compiler.schedules.kernels import numbers, scheduled
from tests.compiler.schedules.test_dense import product

SPEC = PassSpec("schedule", {"parallel": True})


def module(*sizes: tuple[int, int, int]) -> IRModule:
    """Products with constant weights, one after the other's input."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType((m, k), "float32")) for i, (m, k, _) in enumerate(sizes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            weights = [relax.const(tvm.runtime.tensor(numbers(k, n))) for _, k, n in sizes]
            made = [builder.emit(relax.op.matmul(x, w)) for x, w in zip(inputs, weights, strict=True)]
            out = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(out)
    return relax.transform.LegalizeOps()(builder.get())


class Scripted:
    """A kernel whose time in ns is what `times` says of its tile, and of how many samples there were."""

    times = staticmethod(lambda _parameters, _samples: 100.0)
    made = 0

    def __init__(self, kernel, _target, _operands) -> None:
        Scripted.made += 1
        self.parameters, self.samples = kernel.parameters, 0
        self.first_ns = self.sample()

    def sample(self) -> float:
        self.samples += 1
        return self.times(self.parameters, self.samples)


@pytest.fixture
def tuned(monkeypatch):
    """Tunes a module with scripted times; what is known then, and the events."""
    monkeypatch.setattr(tuner, "TimedKernel", Scripted)
    monkeypatch.setattr(Scripted, "made", 0)

    def run(mod, times, known=None, budget_s=30.0):
        monkeypatch.setattr(Scripted, "times", staticmethod(times))
        known, events = {} if known is None else known, []
        target = tvm_target(Target())
        search = tuner.Tuner(target, known, budget_s, lambda event, _blobs: events.append(event), Limits())
        search.before(3, PassSpec("fuse_ops"), mod)
        assert not events
        search.before(4, SPEC, mod)
        return known, events

    return run


def entries(mod, known):
    report = Report()
    with tvm_target(Target()), using(known):
        Schedule().apply(mod, report)
    return report.details["kernels"]


def narrow_is_fast(parameters, _samples):
    return 50.0 if parameters["columns"] == parameters["lanes"] else 100.0


def test_a_clearly_faster_candidate_is_taken_and_shown(tuned):
    mod = module((64, 32, 96))
    known, events = tuned(mod, narrow_is_fast)
    (record,) = known.values()
    assert (record.choice["vectors"], record.gain) == (1, 2.0)
    assert events[0] == {"event": "begin", "phase": "tune", "step": 4, "pass": "schedule"}
    assert [event["record"] for event in events[1:] if event["record"]] == [record.to_json()]
    progress = events[-1]["progress"]
    assert (progress["kernels"], progress["kernels_done"], progress["best_gain"]) == (1, 1, 2.0)
    (entry,) = entries(mod, known)
    assert (entry["tuned"], entry["gain"], entry["key"], entry["choice"]) == (True, 2.0, record.key, record.choice)
    assert entry["parameters"]["columns"] == entry["parameters"]["lanes"]
    (plain,) = entries(mod, {})
    assert plain["tuned"] is False
    assert plain["parameters"] != entry["parameters"]


def test_what_is_hardly_faster_is_noise(tuned):
    (rule,) = entries(module((64, 32, 96)), {})
    known, _ = tuned(
        module((64, 32, 96)), lambda p, _: 100.0 if p["columns"] == rule["parameters"]["columns"] else 99.0
    )
    (record,) = known.values()
    assert record.gain == 1.0
    (entry,) = entries(module((64, 32, 96)), known)
    assert (entry["tuned"], entry["parameters"]) == (True, rule["parameters"])


def test_luck_that_does_not_come_again_is_not_taken(tuned):
    def times(parameters, samples):
        return 50.0 if parameters["columns"] == parameters["lanes"] and samples < 6 else 100.0

    known, _ = tuned(module((64, 32, 96)), times)
    (record,) = known.values()
    assert record.gain == 1.0


def test_a_wrong_record_is_found_out_and_replaced(tuned):
    mod = module((64, 32, 96))
    known, _ = tuned(mod, narrow_is_fast)
    (key,) = known
    with tvm_target(Target()):
        (planned,) = Schedule().plan(mod)
    slow = next(choice for choice in planned.kernel.candidates if choice["vectors"] > 1)
    poisoned = {key: TuningRecord(key, slow, 9.0)}
    assert entries(mod, poisoned)[0]["choice"] == slow
    healed, _ = tuned(mod, narrow_is_fast, poisoned)
    assert healed[key].choice["vectors"] == 1
    assert healed[key].gain == 2.0


@pytest.mark.parametrize("choice", [{}, {"rows": 4096, "vectors": 1, "group": 1}, {"rows": 6}], ids=str)
def test_a_record_that_names_no_candidate_is_not_used(tuned, choice):
    mod = module((64, 32, 96))
    known, _ = tuned(mod, narrow_is_fast)
    (key,) = known
    poisoned = {key: TuningRecord(key, choice, 9.0)}
    (entry,) = entries(mod, poisoned)
    assert entry == entries(mod, {})[0]
    assert tuned(mod, narrow_is_fast, poisoned)[0] == known


def test_kernels_without_a_record_come_first_and_equal_ones_are_one(tuned):
    mod = module((64, 32, 96), (64, 32, 96), (64, 32, 96), (48, 200, 96))
    known, events = tuned(mod, narrow_is_fast)
    assert len(known) == 2
    assert events[-1]["progress"]["kernels"] == 2
    small = module((64, 32, 96), (16, 32, 48))
    again, events = tuned(small, narrow_is_fast, dict(known))
    told = [event["record"]["key"] for event in events if event.get("record")]
    assert told[0] not in known
    assert len(again) == 3


def test_without_time_little_is_measured_and_nothing_fails(tuned):
    mod = module(*[(64, 32, 16 * n) for n in range(1, 7)])
    began = Scripted.made
    known, events = tuned(mod, narrow_is_fast, budget_s=1e-9)
    assert (known, Scripted.made) == ({}, began)
    assert events[-1]["progress"]["seconds_left"] == 0


def test_another_cpu_is_not_measured(tuned, monkeypatch):
    monkeypatch.setattr(tuner, "missing_flags", lambda _flags: ["avx999"])
    known, events = tuned(module((64, 32, 96)), narrow_is_fast)
    assert (known, events) == ({}, [])


def test_a_candidate_that_cannot_be_built_is_none(tuned):
    def times(parameters, _samples):
        if parameters["columns"] == parameters["lanes"]:
            raise tvm.TVMError("no code for it")
        return 100.0

    known, _ = tuned(module((64, 32, 96)), times)
    assert next(iter(known.values())).choice["vectors"] != 1


def test_a_race_leaves_out_what_is_far_behind():
    class Counted:
        def __init__(self, ns):
            self.ns, self.samples = ns, 0

        def sample(self):
            self.samples += 1
            return self.ns

    fast, near, slow = Counted(100.0), Counted(110.0), Counted(300.0)
    assert race([fast, near, slow], math.inf) == [100.0, 110.0, 300.0]
    assert slow.samples == 2 < near.samples == fast.samples
    once = Counted(5.0)
    assert race([once], time.perf_counter() - 1) == [5.0]
    assert once.samples == 1


def test_a_real_kernel_is_timed_with_memory_that_kernels_share():
    tensors, weight = product(6, 40, 20), numbers(20, 40)
    kernel = scheduled(dense.schedule, tensors, {1: weight})
    operands = Operands()
    operands.turns_for(bytes_of(kernel), 3 * bytes_of(kernel))
    sets = operands.sets(kernel)
    assert len(sets) == 3
    assert sets[0][1].shape == tuple(kernel.packings[1](weight).shape)
    again = operands.sets(kernel)
    again[0][0].numpy()[...] = 7.0
    assert np.array_equal(sets[0][0].numpy(), again[0][0].numpy())
    timed = TimedKernel(kernel, tvm_target(Target()), operands)
    assert 0 < timed.sample() < 1e9
