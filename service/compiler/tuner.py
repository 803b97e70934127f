"""The search for faster parameters of kernels, on this machine and within a budget of seconds.

It runs before the schedule pass, on the module that the pass will be given, so that the step shows what is built.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import IRModule

from service.compiler.clock import Duration
from service.compiler.foreign import boundary
from service.compiler.kernel_timer import HOPELESS, Operands, TimedKernel, bytes_of, race
from service.compiler.passes.schedule import Schedule
from service.compiler.pipeline import Emit, begin
from service.compiler.schedules.choice import Choice
from service.compiler.schedules.expressions import Unsupported
from service.compiler.schedules.kernel import Kernel
from service.compiler.schedules.known import key_of
from service.compiler.target import cpu_flags, threads
from service.errors import ExecutionFailed
from service.host_cpu import missing_flags
from service.nouns import Limits, PassSpec
from service.runtime.threads import allow_threads
from service.tuning import TUNED, TuningProgress, TuningRecord

# What is not faster than this is taken for noise.
_CLEARLY = 1.02
# Kernels with less than this part of the time are not worth a build.
_MATTERS = 0.01
# The part of the budget that may be spent on finding out which kernels matter.
_TO_RANK = 0.25
# The most operands that are used in turn, in bytes: beyond, no cache holds them.
_MOST_WALKED = 32 << 20
_TOLD_S = 0.5


@dataclass
class _Task:
    """One kernel to be tuned; `weight` is its calls times its time, or what is guessed of it."""

    key: str
    kernel: Kernel
    make: Callable[[Choice | None], Kernel]
    calls: int
    operands: Operands
    weight: float = 0.0
    timed: TimedKernel | None = None


def _digest(kernel: Kernel) -> int:
    return int(tvm_ffi.structural_hash(kernel.function))


class Tuner:
    """Tunes the kernels of each schedule pass of a Recipe, and adds what it finds to `known`."""

    def __init__(
        self, target: Any, known: dict[str, TuningRecord], budget_s: float, emit: Emit, limits: Limits
    ) -> None:
        self._target = target
        self._known = known
        self._emit = emit
        self._limits = limits
        self._budget_s = budget_s
        self._left_s = budget_s
        self._until = math.inf
        self._told_at = -math.inf
        self._kernels = self._done = self._measured = 0
        self._best_gain = 1.0
        self.spent = Duration()
        if threads(target) != 1:
            # Before the first loop that would start them.
            allow_threads(threads(target))

    def before(self, index: int, spec: PassSpec, mod: IRModule) -> None:
        """Called before each pass. Raises ExecutionFailed."""
        if spec.name != TUNED or missing_flags(cpu_flags(self._target)):
            return
        self._emit(begin("tune", index, spec.name), ())
        self._until = time.perf_counter() + self._left_s
        sentence = "The kernels could not be measured"
        with self.spent.measure(), boundary(ExecutionFailed, sentence, self._limits, step=index), self._target:
            self._tune(Schedule(**spec.options), mod)
        self._left_s = max(self._until - time.perf_counter(), 0.0)

    def _tune(self, rewrite: Schedule, mod: IRModule) -> None:
        tasks = self._tasks(rewrite, mod)
        self._kernels += len(tasks)
        self._tell()
        ranked = self._ranked(tasks)
        self._done += len(tasks) - len(ranked)
        for position, task in enumerate(ranked):
            now = time.perf_counter()
            if now >= self._until:
                break
            # The dearest kernels have the most to give, but none gets all.
            share = 1.0 if position == len(ranked) - 1 else 0.5
            record = self._best(task, now + (self._until - now) * share)
            task.timed = None
            if record is not None:
                self._known[task.key] = record
                self._best_gain = max(self._best_gain, record.gain)
                self._done += 1
            self._tell(record)
        self._tell(throttled=False)

    def _tasks(self, rewrite: Schedule, mod: IRModule) -> list[_Task]:
        """Each distinct kernel that has something to choose and whose sizes are known."""
        tasks: dict[str, _Task] = {}
        walked = 0
        for planned in rewrite.plan(mod):
            if planned.kernel is None or planned.make is None:
                continue
            size = bytes_of(planned.kernel)
            walked += planned.calls * size
            if size == 0 or not planned.kernel.candidates:
                continue
            key = key_of(planned.kernel)
            task = tasks.setdefault(key, _Task(key, planned.kernel, planned.make, 0, Operands()))
            task.calls += planned.calls
            # Operations, or bytes where they are more: a byte costs about as much as a few operations.
            task.weight = task.calls * max(planned.kernel.flops, 4 * size)
        for task in tasks.values():
            task.operands.turns_for(bytes_of(task.kernel), min(walked, _MOST_WALKED))
        return list(tasks.values())

    def _ranked(self, tasks: list[_Task]) -> list[_Task]:
        """The dearest first, by measurement as far as a part of the budget goes; those that do not matter left out.

        What has a record comes after what has none: it was tuned before.
        """
        guessed = sorted(tasks, key=lambda task: -task.weight)
        until = time.perf_counter() + (self._until - time.perf_counter()) * _TO_RANK
        measured: list[_Task] = []
        while guessed and time.perf_counter() < until:
            task = guessed.pop(0)
            task.timed = self._timed(task, task.make(self._usual(task)))
            if task.timed is not None:
                task.weight = task.calls * race([task.timed], until, 3)[0]
                measured.append(task)
            self._tell()
        least = _MATTERS * sum(task.weight for task in measured)
        matter = sorted((task for task in measured if task.weight >= least), key=lambda task: -task.weight)
        return sorted(matter + guessed, key=lambda task: task.key in self._known)

    def _usual(self, task: _Task) -> Choice:
        """What would be taken without any tuning: the choice on record, the rule's where that is none of the kernel."""
        record = self._known.get(task.key)
        usable = record is not None and self._made(task, record.choice) is not None
        return record.choice if record is not None and usable else task.kernel.candidates[0]

    def _made(self, task: _Task, choice: Choice) -> Kernel | None:
        try:
            return task.make(choice) if choice in task.kernel.candidates else None
        except Unsupported:
            return None

    def _timed(self, task: _Task, kernel: Kernel) -> TimedKernel | None:
        self._measured += 1
        try:
            return TimedKernel(kernel, self._target, task.operands)
        except Exception:  # noqa: BLE001  what cannot be built is no candidate
            return None

    def _best(self, task: _Task, until: float) -> TuningRecord | None:
        """The best choice for one kernel, out of two at least; None where what is taken without it cannot be built."""
        rule, usual = task.kernel.candidates[0], self._usual(task)
        entrants: list[tuple[Choice, TimedKernel]] = []
        quickest = math.inf
        seen: dict[int, TimedKernel | None] = {}
        # Building takes most of the time: what is left is for the race.
        building_until = until - 0.3 * (until - time.perf_counter())
        for choice in sorted(task.kernel.candidates, key=lambda each: (each != usual, each != rule)):
            if len(seen) >= 2 and time.perf_counter() >= building_until:
                break
            kernel = self._made(task, choice)
            if kernel is None or (digest := _digest(kernel)) in seen:
                continue
            timed = task.timed if task.timed is not None and choice == usual else self._timed(task, kernel)
            seen[digest] = timed
            if timed is not None:
                quickest = min(quickest, timed.first_ns)
                if choice in (usual, rule) or timed.first_ns <= HOPELESS * quickest:
                    entrants.append((choice, timed))
            self._tell()
        if len(seen) == 1:
            # All candidates are the same code.
            return TuningRecord(task.key, rule, 1.0)
        of_rule = seen.get(_digest(task.kernel))
        if of_rule is None or not entrants or entrants[0][0] != usual:
            return None
        times = race([timed for _, timed in entrants], until)
        winner = min(range(len(entrants)), key=times.__getitem__)
        # The winner must win once more, against what would be taken without it: the best of many is often luck.
        finalists = [of_rule, entrants[0][1], entrants[winner][1]]
        by_rule, by_usual, by_winner = race(finalists, max(until, time.perf_counter() + 0.1))
        taken, least = (winner, by_winner) if by_usual / by_winner >= _CLEARLY else (0, by_usual)
        choice, timed = entrants[taken]
        if timed is of_rule or by_rule / least < _CLEARLY:
            return TuningRecord(task.key, rule, 1.0)
        return TuningRecord(task.key, choice, round(by_rule / least, 4))

    def _tell(self, record: TuningRecord | None = None, *, throttled: bool = True) -> None:
        now = time.perf_counter()
        if record is None and throttled and now - self._told_at < _TOLD_S:
            return
        self._told_at = now
        left = max(self._until - now, 0.0)
        progress = TuningProgress(
            self._budget_s, round(left, 3), self._kernels, self._done, self._measured, self._best_gain
        )
        told = None if record is None else record.to_json()
        self._emit({"event": "tuning", "progress": progress.to_json(), "record": told}, ())
