"""Whether a module shows a symptom that is seen only when it is run: wrong numbers, or a slow run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Protocol

from tvm import IRModule

from service.compiler.importers import ImportedModel
from service.compiler.kernel_cache import KernelCache
from service.compiler.step_numbers import StepNumbers
from service.compiler.verify import Case, Cases, make_cases, verify
from service.errors import JsonObject, VerificationFailed
from service.runtime.session import Session

# Runs are repeated for this long, and this often at least; the quickest counts, which is disturbed least.
REPEAT_S = 0.3
REPEATS = 7
# Less than this is noise, whatever the factor.
LEAST_MS = 0.02


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a module: a sentence, and where the numbers left eager's or what a run took."""

    message: str
    node: str | None = None
    binding: str | None = None
    before_ms: float | None = None
    after_ms: float | None = None


class Judge(Protocol):
    """Runs modules, each of which must compute what the model does."""

    def verdict(self, mod: IRModule, executable: Any = None) -> Verdict | None:
        """None where the module does not show the symptom. Raises what tvm raises when it cannot be run.

        What runs is `executable` where it is given, which was built of the module.
        """


class NumbersJudge:
    """Holds a module against PyTorch eager, as the verification of a library does."""

    def __init__(self, model: ImportedModel, target: Any, special: bool) -> None:
        self._model = model
        self._target = target
        self._special = "fail" if special else "report"
        self._kernels = KernelCache(target)
        self._cases = make_cases(model)

    def verdict(self, mod: IRModule, executable: Any = None) -> Verdict | None:
        """Implements `Judge.verdict`."""
        session = Session(self._kernels.build(mod) if executable is None else executable)
        try:
            verify(session, self._cases, self._model.signature.outputs, self._special)
        except VerificationFailed as problem:
            outputs: list[JsonObject] = problem.extensions["outputs"]
            failed = next((each for each in outputs if not each["passed"]), JsonObject())
            case = next((each for each in self._cases.cases if each.name == failed.get("case")), None)
            first = None if case is None else self._first_binding(mod, case)
            place = {} if first is None else {"node": first["node"], "binding": first["binding"]}
            return Verdict(_worst(problem, failed), **place)
        return None

    def _first_binding(self, mod: IRModule, case: Case) -> JsonObject | None:
        """The first binding of a relax function that is not what eager has for its node."""
        model = self._model
        names = tuple(spec.name for spec in model.signature.outputs)
        depth = model.reference.depth()
        numbers = StepNumbers(case, self._target, depth, names, model.node_of, model.node_values)
        found: JsonObject | None = numbers.check(mod, 0, True).details.get("first_binding")
        return found


def _worst(problem: VerificationFailed, failed: JsonObject) -> str:
    if not failed:
        return problem.detail
    return f"Output {failed['name']!r} differs from PyTorch's on the inputs {failed['case']!r}: {failed['reason']}."


class TimeJudge:
    """Holds the time of a run against that of another module, `reference`, by a factor."""

    def __init__(self, model: ImportedModel, target: Any, factor: float) -> None:
        self._inputs = model.example_inputs
        self._kernels = KernelCache(target)
        self._factor = factor
        self.reference: Session | None = None

    def session(self, mod: IRModule) -> Session:
        """The module, ready to run."""
        return Session(self._kernels.build(mod))

    def verdict(self, mod: IRModule, executable: Any = None) -> Verdict | None:
        """Implements `Judge.verdict`, beside `reference`; None where there is none."""
        if self.reference is None:
            return None
        session = self.session(mod) if executable is None else Session(executable)
        before, after = self._quickest(self.reference, session)
        if after <= before * self._factor or after - before < LEAST_MS:
            return None
        message = f"A run takes {after:.3f} ms of CPU time, {after / max(before, 1e-6):.1f} times {before:.3f} ms."
        return Verdict(message, before_ms=round(before, 4), after_ms=round(after, 4))

    def _quickest(self, *sessions: Session) -> list[float]:
        """For each the CPU milliseconds of its quickest run on the example inputs, one after the other in turn."""
        best = [float("inf")] * len(sessions)
        for session in sessions:
            session.run(self._inputs)
        end = time.perf_counter() + REPEAT_S
        count = 0
        while count < REPEATS or time.perf_counter() < end:
            for position, session in enumerate(sessions):
                # CPU time: on a busy machine, the turns fall into step with those of the scheduler.
                started = time.process_time()
                session.run(self._inputs)
                best[position] = min(best[position], (time.process_time() - started) * 1e3)
            count += 1
        return best


class CrashJudge:
    """Runs a module on all cases, for a process that dies of it."""

    def __init__(self, model: ImportedModel, target: Any) -> None:
        self._kernels = KernelCache(target)
        self._cases: Cases = make_cases(model)

    def verdict(self, mod: IRModule, executable: Any = None) -> Verdict | None:
        """Implements `Judge.verdict`: this process is not there any more to answer otherwise."""
        session = Session(self._kernels.build(mod) if executable is None else executable)
        for case in self._cases.cases:
            session.run(case.inputs)
        return None
